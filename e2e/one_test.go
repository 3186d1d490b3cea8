//go:build linux

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// Three agents on one lease run one job, and each takes its turn when the one
// before it is told to stop.
func TestThreeAgentsRunOneJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	w.Agents(3)
	for turn := 1; turn <= 3; turn++ {
		life := w.Life(turn)
		holder := w.AgentOf(life)
		w.During("one job runs, and its row says whose", w.timing.Lease/2, func() bool {
			return len(w.Lives()) == turn && w.Row().Owner() == life.Owner
		})
		holder.Signal(syscall.SIGTERM)
		if status := holder.Ended(); status != 0 {
			t.Errorf("agent %s ended with %d after its job had ended with 0", holder.Name, status)
		}
	}
	if owner := w.Row().Owner(); owner != "" {
		t.Errorf("the lease is held by %s after all agents have stopped", owner)
	}
}

// Twenty agents that are started at once run one job, and none of the others
// ends: a standby waits, healthy, for ever.
func TestTwentyAgentsAtOnce(t *testing.T) {
	t.Parallel()
	// Forty processes start on few cores: the lease must outlast the crowd.
	timing := Timing{
		Lease: 10 * time.Second, Heartbeat: time.Second, Poll: time.Second,
		LossGrace: time.Second, KillMargin: time.Second, StopGrace: 10 * time.Second,
	}
	w := newWorld(t, timing)
	agents := w.Agents(20)
	life := w.Life(1)
	holder := w.AgentOf(life)
	for _, a := range w.Others(holder) {
		a.Logged("standing by", 1)
	}
	w.During("one job runs and twenty agents live", 2*time.Second, func() bool {
		for _, a := range agents {
			if !a.Running() {
				return false
			}
		}
		return len(w.Lives()) == 1
	})
	if how := holder.Logged("lease acquired", 1).Text("how"); how != "new" {
		t.Errorf("the first holder says that it acquired the lease as %q, want new", how)
	}
	if acquired := len(w.store.Find(Acquire, nil, 0)); acquired != 1 {
		t.Errorf("the lease was acquired %d times", acquired)
	}
}

// A standby waits for the lease duration of the holder, as the row has it, and
// not for its own.
func TestStandbyWaitsForTheHoldersLease(t *testing.T) {
	t.Parallel()
	long := Timing{
		Lease: 8 * time.Second, Heartbeat: time.Second, Poll: 300 * time.Millisecond,
		LossGrace: time.Second, KillMargin: time.Second, StopGrace: 10 * time.Second,
	}
	for _, c := range []struct {
		name            string
		holder, standby Timing
	}{{"the standby's own is shorter", long, brisk}, {"the standby's own is longer", brisk, long}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.holder)
			a := w.Start(Start{Name: "a"})
			first := w.Life(1)
			b := w.Start(Start{Name: "b", Timing: &c.standby})
			b.Logged("standing by", 1)
			a.Signal(syscall.SIGKILL)
			w.Dead(first)
			second := w.Life(2)
			silent := w.store.Find(Renew, a.Door, 0)
			last := w.store.Find(Acquire, a.Door, 0)[0].Applied
			if len(silent) > 0 {
				last = silent[len(silent)-1].Applied
			}
			waited := second.Started.Sub(last)
			if waited < c.holder.Lease {
				t.Errorf("taken over %v after the last heartbeat of a lease of %v", waited, c.holder.Lease)
			}
			w.within("takeover after the last heartbeat", waited, c.holder.Lease+4*time.Second)
			if row := w.Row(); row.number("lease_ms") != c.standby.Lease.Milliseconds() {
				t.Errorf("the new holder's row says a lease of %d ms, want its own", row.number("lease_ms"))
			}
		})
	}
}

// Two tasks that have the same name are two owners all the same.
func TestSameTaskTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	agents := w.Agents(2)
	life := w.Life(1)
	for _, a := range w.Others(w.AgentOf(life)) {
		a.Logged("standing by", 1)
	}
	name := func(a *Agent) string { task, _, _ := strings.Cut(a.Owner(), "/"); return task }
	if name(agents[0]) != name(agents[1]) || name(agents[0]) == "" {
		t.Fatalf("on one host the owners are %q and %q", agents[0].Owner(), agents[1].Owner())
	}
	if agents[0].Owner() == agents[1].Owner() {
		t.Errorf("two processes compete as the same owner, %s", agents[0].Owner())
	}
	w.During("one job runs", w.timing.Lease, func() bool { return len(w.Lives()) == 1 })
}
