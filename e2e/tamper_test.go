//go:build linux

package e2e

import (
	"syscall"
	"testing"

	"solojob/boottime"
)

// leap is how far above the highest FENCE it remembers an agent starts when the
// row was lost or put back: it may have missed a few.
const leap = 1_000_000

// A row that is deleted by hand while a job runs: the job is killed, only then
// does the next one start, and its FENCE is greater than all before.
func TestRowDeletedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a"})
	first := w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	deleted := w.store.Delete(t, w.lease)
	dead := w.Dead(first)
	w.within("death of the job after the row's", dead.Sub(deleted), w.timing.Heartbeat+prompt)
	second := w.Life(2)
	if second.Fence < first.Fence+leap {
		t.Errorf("%v follows %v after the row was deleted, want at least %d more", second, first, leap)
	}
	if !a.Running() || !b.Running() {
		t.Errorf("an agent ended because the row was deleted")
	}
}

// A row put back from a backup, with a lower FENCE than was handed out since,
// whoever it says holds the lease: the job is killed and the next FENCE is
// greater than all before.
func TestRowRestoredFromBackup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		kind Kind
	}{{"held by the holder of today", Acquire}, {"free", Release}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			a := w.Start(Start{Name: "a"})
			w.Life(1)
			if c.kind == Release {
				a.Signal(syscall.SIGTERM)
				a.Ended()
				a = w.Start(Start{Name: "a again"})
				w.Life(2)
			}
			b := w.Start(Start{Name: "b"})
			b.Logged("standing by", 1)
			for range 2 { // launches since the backup
				launches := len(w.Lives())
				w.signalProcess(a.Supervisor(w.Lives()[launches-1]), syscall.SIGKILL, "a's supervisor")
				w.Life(launches + 1)
			}
			launches := len(w.Lives())
			highest := w.Lives()[launches-1]
			w.Until("the standby has seen the row of today", patience, func() bool {
				for _, read := range w.store.Find(Read, b.Door, highest.Started) {
					if read.Before.Fence() == highest.Fence {
						return true
					}
				}
				return false
			})
			w.store.Restore(t, w.store.Find(c.kind, nil, 0)[0].After)
			w.Dead(highest)
			if next := w.Life(launches + 1); next.Fence < highest.Fence+leap {
				t.Errorf("%v follows %v after an old row was put back, want at least %d more", next, highest, leap)
			}
		})
	}
}

// Duplicates of old requests, delivered after newer ones, change nothing.
func TestDuplicatesChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a"})
	first := w.Life(1)
	w.Until("some heartbeats", patience, func() bool { return len(w.store.Find(Renew, a.Door, 0)) >= 3 })
	w.signalProcess(a.Supervisor(first), syscall.SIGKILL, "a's supervisor")
	second := w.Life(2)
	w.Until("some heartbeats", patience, func() bool { return len(w.store.Find(Renew, a.Door, second.Started)) >= 3 })

	kinds := map[Kind]bool{}
	writes := w.store.Calls()
	for _, c := range writes {
		if c.Write() {
			kinds[c.Kind] = true
			if again := w.store.Replay(c); again.Kind != Refused {
				t.Errorf("a duplicate of an old %s was applied: %v → %v", c.Kind, again.Before, again.After)
			}
		}
	}
	if !kinds[Acquire] || !kinds[Renew] || !kinds[Claim] {
		t.Errorf("only %v were delivered again", kinds)
	}
	since := boottime.Now()
	w.Until("two more heartbeats", patience, func() bool { return len(w.store.Find(Renew, a.Door, since)) >= 2 })
	if _, over := second.Ended(); over || len(w.Lives()) != 2 {
		t.Errorf("the job did not survive the duplicates")
	}
}
