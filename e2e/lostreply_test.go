//go:build linux

package e2e

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// lostReplies are the ways in which a reply does not arrive.
var lostReplies = []struct {
	name  string
	fault Fault
}{{"the connection breaks", Fault{LoseReply: true}}, {"nothing comes back", Fault{Mute: true}}}

// once is a fault for the first request of a kind, and what else is to happen
// before that is applied.
func once(kind Kind, f Fault, before ...func()) func(*Call) Fault {
	var first sync.Once
	return func(c *Call) Fault {
		met := Fault{}
		if c.Foreseen == kind {
			first.Do(func() {
				for _, do := range before {
					do()
				}
				met = f
			})
		}
		return met
	}
}

// An acquisition whose reply is lost is an acquisition: one FENCE, one launch.
func TestLostReplyToAcquire(t *testing.T) {
	t.Parallel()
	for _, c := range lostReplies {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			a := w.StartThrough(once(Acquire, c.fault), Start{Name: "a"})
			life := w.Life(1)
			w.Until("a heartbeat", patience, func() bool { return len(w.store.Find(Renew, a.Door, 0)) > 0 })
			if acquired := w.store.Find(Acquire, nil, 0); len(acquired) != 1 || life.Fence != acquired[0].After.Fence() {
				t.Errorf("%d acquisitions were applied, and the job has FENCE %d", len(acquired), life.Fence)
			}
			w.unchanged(life)
		})
	}
}

// A claim whose reply is lost is a claim: FENCE rises by one.
func TestLostReplyToClaim(t *testing.T) {
	t.Parallel()
	for _, c := range lostReplies {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			a := w.Start(Start{Name: "a"})
			first := w.Life(1)
			a.Door.Set(once(Claim, c.fault))
			w.signalProcess(a.Supervisor(first), syscall.SIGKILL, "a's supervisor")
			second := w.Life(2)
			claims := w.store.Find(Claim, a.Door, 0)
			if second.Owner != first.Owner || len(claims) != 1 || second.Fence != first.Fence+1 {
				t.Errorf("%v follows %v after %d claims", second, first, len(claims))
			}
			since := boottime.Now()
			w.Until("two more heartbeats", patience, func() bool { return len(w.store.Find(Renew, a.Door, since)) >= 2 })
			if _, over := second.Ended(); over || len(w.Lives()) != 2 || w.Row().Fence() != second.Fence {
				t.Errorf("the second job does not run on; %d launches, FENCE in the row %d", len(w.Lives()), w.Row().Fence())
			}
		})
	}
}

// A release whose reply is lost is a release: the next job starts within a
// poll, and the agent that gave up ends with 0.
func TestLostReplyToRelease(t *testing.T) {
	t.Parallel()
	for _, c := range lostReplies {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			timing := calm
			timing.Poll = time.Second
			w := newWorld(t, timing)
			a := w.Start(Start{Name: "a"})
			first := w.Life(1)
			b := w.Start(Start{Name: "b"})
			b.Logged("standing by", 1)
			a.Door.Set(once(Release, c.fault))
			a.Signal(syscall.SIGTERM)
			dead := w.Dead(first)
			second := w.Life(2)
			w.within("from the old job's end to the new one's start", second.Started.Sub(dead), timing.Poll+5*time.Second)
			if status := a.Ended(); status != 0 {
				t.Errorf("the agent ended with %d", status)
			}
			if releases := w.store.Find(Release, nil, 0); len(releases) != 1 {
				t.Errorf("%d releases were applied", len(releases))
			}
			w.During("the second job runs on", 2*timing.Heartbeat, func() bool {
				_, over := second.Ended()
				return !over && len(w.Lives()) == 2
			})
		})
	}
}

// A fault of the store that is shorter than a third of a lease does not cost the
// handover either: the release is tried until it gets through, for as long as
// the lease is the agent's to give.
func TestReleaseOutlastsAShortFault(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]Fault{"throttled": throttled, "silent": hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			a := w.Start(Start{Name: "a"})
			first := w.Life(1)
			b := w.Start(Start{Name: "b"})
			b.Logged("standing by", 1)
			a.Door.Set(always(fault))
			a.Signal(syscall.SIGTERM)
			w.Dead(first)
			time.Sleep(shortFault) // the length of the fault is what is tested
			a.Door.Set(nil)
			w.Life(2)
			if how := b.Logged("lease acquired", 1).Text("how"); how != "released" {
				t.Errorf("the lease was acquired as %q, want released", how)
			}
		})
	}
}

// A renewal that is on its way while the lease is released does not bring the
// lease back, whichever of them the store gets first.
func TestRenewalCrossesRelease(t *testing.T) {
	t.Parallel()
	const workers = 4
	longest := time.Second // how late the renewal is delivered, at most
	n := rounds(8, 100)
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			for i := worker; i < n; i += workers {
				w.crossing(fmt.Sprint(i), longest*time.Duration(i)/time.Duration(n))
			}
		})
	}
}

func (w *World) crossing(name string, delay time.Duration) {
	w.t.Helper()
	var held *Call
	onItsWay, deliver := make(chan struct{}), make(chan struct{})
	var first sync.Once
	runs := len(w.Lives())
	a := w.StartThrough(func(c *Call) Fault {
		fault := Fault{}
		if c.Foreseen == Renew {
			first.Do(func() {
				held = c
				fault = Fault{Hold: deliver}
				close(onItsWay)
			})
		}
		return fault
	}, Start{Name: name})
	w.Life(runs + 1)
	select {
	case <-onItsWay:
	case <-time.After(patience):
		w.t.Fatal("no renewal is sent")
	}
	a.Signal(syscall.SIGTERM)
	time.AfterFunc(delay, func() { close(deliver) })
	a.Ended()
	w.Until("the late renewal is delivered", patience, func() bool {
		for _, c := range w.store.Calls() {
			if c == held {
				return true
			}
		}
		return false
	})
	if row := w.Row(); row.Owner() != "" {
		w.t.Errorf("a renewal delivered %v late (%s) left the lease held: %v", delay, held.Kind, row)
	}
}

// A release that reaches the store after somebody else has acquired leaves the
// new holder's row untouched.
func TestLateRelease(t *testing.T) {
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
		if c.Foreseen != Release && c.Foreseen != Refused {
			return Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		held++
		return Fault{Hold: late}
	})
	a.Signal(syscall.SIGTERM)
	w.Dead(first)
	w.Until("a release is held", patience, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return held > 0
	})
	second := w.Life(2)
	mu.Lock()
	want := held
	mu.Unlock()
	delivered := boottime.Now()
	close(late)
	w.refusedAll(a, delivered, want)
	w.During("the new holder's job runs on", w.timing.Lease, func() bool {
		_, over := second.Ended()
		return !over && len(w.Lives()) == 2 && w.Row().Owner() == b.Owner()
	})
}

// An acquisition whose reply takes longer than the lease launches nothing: the
// next launch has a FENCE of its own.
func TestAcquireAnsweredTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	acquired := make(chan struct{})
	var first sync.Once
	a := w.StartThrough(func(c *Call) Fault {
		if c.Foreseen == Acquire {
			first.Do(func() { close(acquired) })
			return Fault{Mute: true}
		}
		select {
		case <-acquired:
			return hang // the lease is ours, and we are not to learn of it
		default:
			return Fault{}
		}
	}, Start{Name: "a"})
	select {
	case <-acquired:
	case <-time.After(patience):
		t.Fatal("the lease is not acquired")
	}
	w.Until("the acquisition is applied", patience, func() bool { return len(w.store.Find(Acquire, nil, 0)) > 0 })
	lost := w.store.Find(Acquire, nil, 0)[0]
	w.During("nothing is launched", w.timing.Lease+200*time.Millisecond, func() bool { return len(w.Lives()) == 0 })
	a.Door.Set(nil)
	if life := w.Life(1); life.Fence <= lost.After.Fence() {
		t.Errorf("%v was launched under an acquisition that was answered after its lease had ended", life)
	}
}
