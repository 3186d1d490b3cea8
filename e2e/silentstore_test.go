//go:build linux

package e2e

import (
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// A task that can't reach the store at its start waits, and takes part as soon
// as it can.
func TestStoreComesLate(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]Fault{"it never answers": hang, "connections break": reset, "it answers 500": serverError, "it throttles": throttled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			a := w.StartThrough(always(fault), Start{Name: "a"})
			w.Until("the agent has tried a few times", patience, func() bool { return a.Door.Requests() >= 3 || !a.Running() })
			if !a.Running() {
				t.Fatalf("the agent ended with %d for want of the store", a.Status())
			}
			a.Door.Set(nil)
			w.Life(1)
		})
	}
}

// A standby whose store is silent still ends at once when it is told to stop.
func TestStandbyStopsWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm)
	a := w.StartThrough(always(hang), Start{Name: "a"})
	w.Until("the agent has asked the store", patience, func() bool { return a.Door.Requests() > 0 })
	sent := w.signalProcess(a.PID, syscall.SIGTERM, "agent a")
	if status := a.Ended(); status != 0 {
		t.Errorf("the agent ended with %d", status)
	}
	w.within("end of a standby without a store", boottime.Now().Sub(sent), prompt)
}

// A holder that is told to stop while the store is silent ends its job and
// itself, though nothing can be released: not after the lease has ended.
func TestHolderStopsWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a"})
	a.killed = true // it can't but leave the lease held
	life := w.Life(1)
	a.Door.Set(always(hang))
	sent := w.signalProcess(a.PID, syscall.SIGTERM, "agent a")
	w.within("end of the job", w.Dead(life).Sub(sent), w.timing.Lease)
	if status := a.Ended(); status != 0 {
		t.Errorf("the agent ended with %d, its job with 0", status)
	}
	w.within("end of the agent", boottime.Now().Sub(sent), w.timing.Lease+prompt)
}

// A job that drains does not outlive the lease either: when the store falls
// silent meanwhile, it is killed in time, whatever is left of the stop grace.
func TestDrainingEndsWithTheLease(t *testing.T) {
	t.Parallel()
	timing := brisk
	timing.StopGrace = 20 * time.Second
	w := newWorld(t, timing)
	a := w.Start(Start{Name: "a", Env: deafToTerm, Status: []int{128 + 9}})
	first := w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	a.Signal(syscall.SIGTERM)
	w.Until("the job gets SIGTERM", patience, func() bool { _, got := first.Signalled("TERM"); return got })
	a.Door.Set(always(hang))
	w.diesInTime(first, a)
	if second := w.Life(2); second.Owner != b.Owner() {
		t.Errorf("the second job runs under %s", second.Owner)
	}
	a.Door.Set(nil)
	a.killed = true // its status after such a death is not what this test is about
	a.Ended()
}
