//go:build linux

package e2e

import (
	"strconv"
	"syscall"
	"testing"
	"time"
)

// An agent that is told to stop drains its job under its own heartbeats; the
// job is dead before the lease is released, and the next task, which polls fast
// meanwhile, launches at once.
func TestHandoverAfterDraining(t *testing.T) {
	t.Parallel()
	timing := calm
	timing.Poll = time.Second
	w := newWorld(t, timing)
	drain := map[string]string{"PROBE_ON_TERM": "3s"}
	a := w.Start(Start{Name: "a", Env: drain})
	first := w.Life(1)
	b := w.Start(Start{Name: "b", Env: drain})
	b.Logged("standing by", 1)

	a.Signal(syscall.SIGTERM)
	w.Until("the job gets SIGTERM", patience, func() bool { _, got := first.Signalled("TERM"); return got })
	term, _ := first.Signalled("TERM")
	dead := w.Dead(first)
	second := w.Life(2)
	release := w.store.Find(Release, a.Door, 0)
	if len(release) != 1 {
		t.Fatalf("the lease was released %d times", len(release))
	}
	beats, draining := 0, false
	for _, c := range w.store.Find(Renew, a.Door, term) {
		if c.Applied < release[0].Applied {
			beats++
			draining = draining || c.After["draining"]["BOOL"] == true
		}
	}
	if beats < 2 || !draining {
		t.Errorf("%d heartbeats in 3 s of draining (draining in the row: %v); the lease must be kept", beats, draining)
	}
	if dead > release[0].Applied || release[0].Applied > second.Started {
		t.Errorf("not in order: job dead %v, lease released %v, next job %v", dead, release[0].Applied, second.Started)
	}
	if second.Owner != b.Owner() {
		t.Errorf("the next job runs under %s", second.Owner)
	}
	polls := 0
	for _, c := range w.store.Find(Read, b.Door, 0) {
		if c.Before["draining"]["BOOL"] == true {
			polls++
		}
	}
	if polls < 5 {
		t.Errorf("the standby read the draining row %d times in 3 s: no faster than always", polls)
	}
	// A standby that learned of it by a lease run out would take 20 s.
	w.within("from the old job's end to the new one's start", second.Started.Sub(dead), 3*time.Second)
	if status := a.Ended(); status != 0 {
		t.Errorf("the drained agent ended with %d, its job with 0", status)
	}
	if started := b.Logged("job started", 1); started.Text("pid") != strconv.Itoa(second.PID) || started.Text("fence") != strconv.FormatInt(second.Fence, 10) {
		t.Errorf("%v is logged as pid %s, fence %s", second, started.Text("pid"), started.Text("fence"))
	}
	for _, msg := range []string{"draining", "job exited", "lease released"} {
		if n := len(a.Lines(msg)); n != 1 {
			t.Errorf("the log says %q %d times", msg, n)
		}
	}
	if how := b.Logged("lease acquired", 1).Text("how"); how != "released" {
		t.Errorf("the lease was acquired as %q, want released", how)
	}
}

// A scheduled run that would end by itself within the grace is not signalled
// when its agent is told to stop.
func TestScheduledRunEndsByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm)
	a := w.Start(Start{Name: "a", Env: map[string]string{"SOLOJOB_SCHEDULE": "@every 2s"}})
	run := w.Life(1)
	run.Exit(0, 3*time.Second)
	a.Signal(syscall.SIGTERM)
	dead := w.Dead(run)
	if status := a.Ended(); status != 0 {
		t.Errorf("the agent ended with %d", status)
	}
	for _, signal := range []string{"TERM", "INT", "HUP", "QUIT"} {
		if _, got := run.Signalled(signal); got {
			t.Errorf("the run got SIG%s, %v before its own end", signal, dead.Sub(run.Started))
		}
	}
	exited := a.Logged("job exited", 1)
	if exited.Text("exit_code") != "0" || exited.Text("signal") != "" {
		t.Errorf("the run is logged as ended with %q, signal %q", exited.Text("exit_code"), exited.Text("signal"))
	}
	if tick, err := time.Parse("2006-01-02T15:04:05Z", run.Env("SOLOJOB_RUN_TICK")); err != nil || tick.Unix()%2 != 0 {
		t.Errorf("the run's tick is %q, want an even second in UTC", run.Env("SOLOJOB_RUN_TICK"))
	}
	row := w.Row()
	if row.text("tick") != run.Env("SOLOJOB_RUN_TICK") || row.text("tick_state") != "done" {
		t.Errorf("the row does not say that tick %s is done: %v", run.Env("SOLOJOB_RUN_TICK"), row)
	}
	if len(w.Lives()) != 1 {
		t.Errorf("%d runs: one was started after the stop", len(w.Lives()))
	}
}

// A scheduled run that goes on too long gets SIGTERM when just the loss grace
// is left of the stop grace, and is killed at its end.
func TestScheduledRunIsEndedInTime(t *testing.T) {
	t.Parallel()
	timing := calm
	timing.StopGrace, timing.LossGrace = 4*time.Second, time.Second
	w := newWorld(t, timing)
	a := w.Start(Start{Name: "a", Env: map[string]string{"SOLOJOB_SCHEDULE": "@every 2s", "PROBE_ON_TERM": "ignore"}})
	run := w.Life(1)
	told := w.signalProcess(a.PID, syscall.SIGTERM, "agent a")
	dead := w.Dead(run)
	term, got := run.Signalled("TERM")
	if !got || term.Sub(told) < 2*time.Second {
		t.Errorf("SIGTERM came (%v) %v after the stop, want %v", got, term.Sub(told), timing.StopGrace-timing.LossGrace)
	}
	if dead.Sub(told) < timing.StopGrace-100*time.Millisecond {
		t.Errorf("the run was killed %v after the stop, before the grace of %v was over", dead.Sub(told), timing.StopGrace)
	}
	w.within("from the stop to the death of a run that ignores SIGTERM", dead.Sub(told), timing.StopGrace+5*time.Second)
	if status := a.Ended(); status != 0 {
		t.Errorf("the agent ended with %d: a leader on a schedule ends with 0", status)
	}
}
