//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"solojob/boottime"
)

// shortFault is a third of the lease, and well below what brisk makes invisible.
const shortFault = 2 * time.Second

// Faults of the holder's path to the store that are shorter than a third of a
// lease, at random phases of its heartbeat, are invisible: the same process
// runs on with the same FENCE.
func TestShortFaultsAreInvisible(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault *Fault // nil: the door refuses connections
	}{
		{"accepts and never answers", &hang},
		{"refuses connections", nil},
		{"answers 500", &serverError},
		{"throttles", &throttled},
		{"denies access", &denied},
		{"calls the credentials expired", &expired},
		{"is busy with a transaction", &conflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			a := w.Start(Start{Name: "a"})
			life := w.Life(1)
			b := w.Start(Start{Name: "b"})
			b.Logged("standing by", 1)
			for range rounds(1, 25) {
				phase := rand.N(brisk.Heartbeat)
				time.Sleep(phase) // the phase is what is varied
				if c.fault == nil {
					a.Door.Refuse()
				} else {
					a.Door.Set(always(*c.fault))
				}
				time.Sleep(shortFault) // the length of the fault is what is tested
				if c.fault != nil {
					a.Door.Set(nil)
				} else if err := a.Door.Open(); err != nil {
					t.Fatal(err)
				}
				healed := boottime.Now()
				w.Until(fmt.Sprintf("a heartbeat after a fault at phase %v", phase), patience, func() bool {
					return len(w.store.Find(Renew, a.Door, healed)) > 0 || len(w.Lives()) > 1
				})
				w.unchanged(life)
			}
		})
	}
}

// unchanged checks that a job has lived through what the test did, unsignalled.
func (w *World) unchanged(life *Life) {
	w.t.Helper()
	_, over := life.Ended()
	_, signalled := life.Signalled("TERM")
	if over || signalled || len(w.Lives()) != 1 || w.Row().Fence() != life.Fence {
		w.t.Fatalf("%v did not run on undisturbed (over: %v, signalled: %v, %d launches, FENCE in the row %d)",
			life, over, signalled, len(w.Lives()), w.Row().Fence())
	}
}

// A store that applies writes but loses 30 % of the replies is invisible too.
func TestLostRepliesAreInvisible(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a"})
	life := w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	lost := 0
	a.Door.Set(func(c *Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		if c.Foreseen == Read || dice.Float64() >= 0.3 {
			return Fault{}
		}
		lost++
		return Fault{LoseReply: dice.IntN(2) == 0, Mute: true}
	})
	w.During("the job runs on", time.Duration(rounds(10, 60))*time.Second, func() bool {
		_, over := life.Ended()
		return !over && len(w.Lives()) == 1
	})
	a.Door.Set(nil)
	w.unchanged(life)
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%d replies were lost", lost)
}

// A holder that is cut off for longer than its lease: its job gets SIGTERM, then
// SIGKILL, and is dead before the lease ends. The agent stays, and stands by.
func TestCutForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a", Env: deafToTerm})
	first := w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	a.Door.Set(always(hang))
	cut := boottime.Now()
	w.diesInTime(first, a)
	term, got := first.Signalled("TERM")
	if !got || term < cut {
		t.Errorf("the job was killed without SIGTERM before")
	}
	second := w.Life(2)
	if second.Owner != b.Owner() {
		t.Errorf("the second job runs under %s", second.Owner)
	}
	a.Door.Set(nil)
	w.standsBy(a, boottime.Now())
	if killed := a.Logged("job killed", 1); killed.Text("reason") == "" {
		t.Errorf("the log does not say why the job was killed")
	}
}

// A cut of the only task: the job dies in time, and when the path is back the
// same agent takes the lease again, under a new FENCE.
func TestCutOfTheOnlyTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a"})
	first := w.Life(1)
	a.Door.Refuse()
	w.diesInTime(first, a)
	if err := a.Door.Open(); err != nil {
		t.Fatal(err)
	}
	if second := w.Life(2); second.Fence <= first.Fence || second.Owner != first.Owner {
		t.Errorf("%v follows %v", second, first)
	}
}

// Writes of a holder that reach the store late, after another has taken over,
// leave the new holder's row untouched.
func TestLateWritesAfterATakeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a"})
	first := w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	late := make(chan struct{})
	var mu sync.Mutex
	held := 0
	a.Door.Set(func(c *Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		if c.Foreseen == Read {
			return hang
		}
		held++
		return Fault{Hold: late}
	})
	w.Dead(first)
	second := w.Life(2)
	mu.Lock()
	want := held
	mu.Unlock()
	if want == 0 {
		t.Fatal("no write was held")
	}
	delivered := boottime.Now()
	close(late)
	w.refusedAll(a, delivered, want)
	a.Door.Set(nil)
	w.standsBy(a, delivered)
	w.During("the new holder's job runs on", w.timing.Lease/2, func() bool {
		_, over := second.Ended()
		return !over && len(w.Lives()) == 2
	})
}

// refusedAll waits until so many late writes have been delivered, and checks
// that none was applied.
func (w *World) refusedAll(a *Agent, since boottime.Instant, n int) {
	w.t.Helper()
	w.Until(fmt.Sprintf("%d late writes are delivered", n), patience, func() bool {
		writes := 0
		for _, c := range w.store.Calls() {
			if c.Door == a.Door && c.Applied >= since && c.Kind != Read {
				writes++
			}
		}
		return writes >= n
	})
	for _, c := range w.store.Calls() {
		if c.Door == a.Door && c.Applied >= since && c.Write() {
			w.t.Errorf("a late %s of agent %s was applied: %v → %v", c.Kind, a.Name, c.Before, c.After)
		}
	}
	w.t.Logf("%d late writes were refused", n)
}
