//go:build linux

package e2e

import (
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// tickOf is the scheduled time that a run was told.
func tickOf(t *testing.T, l *Life) time.Time {
	t.Helper()
	tick, err := time.Parse("2006-01-02T15:04:05Z", l.Env("SOLOJOB_RUN_TICK"))
	if err != nil {
		t.Fatalf("%v was told no tick in UTC: %v", l, err)
	}
	return tick
}

// Each tick runs once, whichever task leads: the leader is told to stop, then
// another is killed between two runs.
func TestEachTickRunsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	env := map[string]string{"SOLOJOB_SCHEDULE": "@every 1s", "PROBE_FOR": "100ms"}
	for _, name := range []string{"a", "b", "c"} {
		w.Start(Start{Name: name, Env: env})
	}
	w.AgentOf(w.Life(3)).Signal(syscall.SIGTERM)
	runs := len(w.Lives())
	leader := w.AgentOf(w.Life(runs + 3))
	w.Until("no run goes on", patience, func() bool {
		lives := w.Lives()
		last := lives[len(lives)-1]
		_, over := last.Ended()
		return over && w.AgentOf(last) == leader && w.Row().text("tick_state") == "done"
	})
	leader.Signal(syscall.SIGKILL)
	runs = len(w.Lives())
	w.Life(runs + 4)

	lives := w.Lives()
	for i, l := range lives[1:] {
		if before, after := tickOf(t, lives[i]), tickOf(t, l); !after.After(before) && l.Env("SOLOJOB_RUN_ATTEMPT") == "1" {
			t.Errorf("%v ran tick %v after %v had run %v", l, after, lives[i], before)
		}
	}
	if row := w.Row(); row.text("through") < lives[len(lives)-1].Env("SOLOJOB_RUN_TICK") {
		t.Errorf("the row counts as decided only what was before %q, and a run of %q has begun",
			row.text("through"), lives[len(lives)-1].Env("SOLOJOB_RUN_TICK"))
	}
}

// A tick that comes while the last run goes on is skipped, and says so.
func TestTickIsSkippedWhileTheJobRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a", Env: map[string]string{"SOLOJOB_SCHEDULE": "@every 1s", "PROBE_FOR": "2500ms"}})
	first, second := w.Life(1), w.Life(2)
	if apart := tickOf(t, second).Sub(tickOf(t, first)); apart < 3*time.Second {
		t.Errorf("runs of 2.5 s belong to ticks %v apart", apart)
	}
	a.Logged("tick skipped", 1)
	a.Logged("tick claimed", 2)
	if second.Fence <= first.Fence {
		t.Errorf("%v follows %v", second, first)
	}
}

// A run that is cut short because its agent died starts again under the next
// leader: the same tick, the next attempt, a higher FENCE.
func TestInterruptedRunStartsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	// One tick an hour, and one soon: the schedule is made for the moment.
	soon := time.Now().UTC().Add(6 * time.Second)
	env := map[string]string{"SOLOJOB_SCHEDULE": soon.Format("5 4 15 * * *")}
	a := w.Start(Start{Name: "a", Env: env})
	w.Until("a leads", patience, func() bool { return w.Row().Owner() != "" })
	b := w.Start(Start{Name: "b", Env: env})
	b.Logged("standing by", 1)
	first := w.Life(1)
	w.Until("the run is in the row", patience, func() bool { return w.Row().text("tick_state") == "running" })
	a.Signal(syscall.SIGKILL)
	w.Dead(first)
	second := w.Life(2)
	if !tickOf(t, second).Equal(tickOf(t, first)) || second.Env("SOLOJOB_RUN_ATTEMPT") != "2" || second.Fence <= first.Fence {
		t.Errorf("%v, tick %v, attempt %s follows %v, tick %v", second, tickOf(t, second), second.Env("SOLOJOB_RUN_ATTEMPT"), first, tickOf(t, first))
	}
	second.Exit(0, 0)
	w.Until("the row says that the tick is done", patience, func() bool { return w.Row().text("tick_state") == "done" })
	w.During("no third run", 2*time.Second, func() bool { return len(w.Lives()) == 2 })
}

// An agent that is frozen while it acquires the lease, or while it claims a
// tick, for longer than the lease, launches nothing under it when it wakes.
func TestFrozenWhileItIsGranted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind Kind
		env  map[string]string
	}{{Acquire, nil}, {Claim, map[string]string{"SOLOJOB_SCHEDULE": "@every 2s"}}} {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			var a *Agent
			started, frozen := make(chan struct{}), make(chan error, 1)
			a = w.StartThrough(once(c.kind, Fault{}, func() {
				<-started
				frozen <- syscall.Kill(a.PID, syscall.SIGSTOP)
			}), Start{Name: "a", Env: c.env})
			close(started)
			select {
			case err := <-frozen:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(patience):
				t.Fatalf("agent a sends no %s", c.kind)
			}
			w.Until("it is applied", patience, func() bool { return len(w.store.Find(c.kind, a.Door, 0)) == 1 })
			b := w.Start(Start{Name: "b"}) // a service, so that it has the lease for good
			service := w.Life(1)
			if service.Owner != b.Owner() {
				t.Fatalf("%v runs under %s", service, service.Owner)
			}
			thawed := w.signalProcess(a.PID, syscall.SIGCONT, "agent a")
			w.Until("a watches the row again", patience, func() bool { return len(w.store.Find(Read, a.Door, thawed)) > 2 })
			w.unchangedService(service)
		})
	}
}

// unchangedService checks that the one job that was launched runs on for a
// while.
func (w *World) unchangedService(l *Life) {
	w.t.Helper()
	since := boottime.Now()
	w.During("one job runs", w.timing.Lease/2, func() bool {
		_, over := l.Ended()
		return !over && len(w.Lives()) == 1
	})
	if len(w.store.Find(Renew, nil, since)) == 0 {
		w.t.Errorf("no heartbeat for half a lease")
	}
}

// A task that is told to stop kills no run for a tick that it will not run:
// with replace, too, a run that ends by itself in time does.
func TestNothingIsReplacedWhileStopping(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a", Env: map[string]string{"SOLOJOB_SCHEDULE": "@every 4s", "SOLOJOB_OVERLAP": "replace", "PROBE_FOR": "7s"}})
	life := w.Life(1)
	a.Signal(syscall.SIGTERM)
	w.Dead(life)
	if _, got := life.Signalled("TERM"); got || !life.Finished() {
		t.Errorf("%v was told to end: %v, and came to its end: %v", life, got, life.Finished())
	}
}
