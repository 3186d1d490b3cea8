//go:build linux

package e2e

import (
	"fmt"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// prompt is a generous bound for ends that must not wait for a grace or a
// lease; those of the tests that use it are 20 s.
const prompt = 6 * time.Second

// SIGTERM at any moment of the start ends the agent, and no lease is left held.
// Only one that was too early for any handler may end by the signal itself.
func TestStopAtAnyMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm)
	n := rounds(24, 200)
	const latest = 300 * time.Millisecond // past the start on a slow machine
	slowest := time.Duration(0)
	for i := range n {
		a := w.Start(Start{Name: fmt.Sprint(i), Status: []int{0, 128 + 15}})
		moment := latest * time.Duration(i) / time.Duration(n)
		time.Sleep(moment) // the moment is what is varied
		atWork := a.Door.Requests() > 0 || a.Owner() != ""
		a.Signal(syscall.SIGTERM)
		sent := boottime.Now()
		status := a.Ended()
		slowest = max(slowest, boottime.Now().Sub(sent))
		bySignal := status == 128+15 && !atWork
		if status != 0 && !bySignal && !a.jobWasTooYoung() {
			t.Errorf("told to stop %v after its start (at work: %v), the agent ended with %d", moment, atWork, status)
		}
		if owner := w.Row().Owner(); owner != "" {
			t.Fatalf("told to stop %v after its start, the agent left the lease held by %s", moment, owner)
		}
	}
	w.within("the slowest of all ends", slowest, prompt)
}

// A standby that is told to stop ends at once, with 0, and writes nothing.
func TestStandbyStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm)
	w.Start(Start{Name: "a"})
	life := w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	b.Signal(syscall.SIGTERM)
	sent := boottime.Now()
	if status := b.Ended(); status != 0 {
		t.Errorf("the standby ended with %d", status)
	}
	w.within("end of a standby", boottime.Now().Sub(sent), prompt)
	for _, c := range w.store.Calls() {
		if c.Door == b.Door && c.Kind != Read {
			t.Errorf("the standby sent a %s", c.Kind)
		}
	}
	w.unchanged(life)
}

// Each stop signal means stop, and the job gets SIGTERM for all of them.
func TestEachStopSignalStops(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			if signal.Ignored(s) {
				skip(t, s.String()+" is ignored here, as under nohup, and so by all that the test starts")
			}
			w := newWorld(t, calm)
			a := w.Start(Start{Name: "a", Env: map[string]string{"PROBE_ON_TERM": "50ms"}})
			life := w.Life(1)
			sent := w.signalProcess(a.PID, s, "agent a")
			dead := w.Dead(life)
			if status := a.Ended(); status != 0 {
				t.Errorf("the agent ended with %d, its job with 0", status)
			}
			w.within("end of the job", dead.Sub(sent), prompt)
			w.within("end of the agent after its job's", boottime.Now().Sub(dead), prompt)
			if _, got := life.Signalled("TERM"); !got {
				t.Errorf("the job got no SIGTERM")
			}
		})
	}
}

// USR1, USR2 and WINCH are passed to the job, and stop nothing.
func TestOtherSignalsReachTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm)
	a := w.Start(Start{Name: "a"})
	life := w.Life(1)
	for name, s := range map[string]syscall.Signal{"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH} {
		a.Signal(s)
		w.Until("the job gets SIG"+name, patience, func() bool { _, got := life.Signalled(name); return got })
	}
	a.Signal(syscall.SIGPIPE)
	since := boottime.Now()
	w.Until("a heartbeat", patience, func() bool { return len(w.store.Find(Renew, a.Door, since)) > 0 })
	w.unchanged(life)
}

// A service's job that ignores SIGTERM is killed when the stop grace is over,
// and the agent ends with what that makes of it.
func TestStopGraceEnds(t *testing.T) {
	t.Parallel()
	timing := brisk
	timing.StopGrace = 3 * time.Second
	w := newWorld(t, timing)
	a := w.Start(Start{Name: "a", Env: deafToTerm, Status: []int{128 + 9}})
	life := w.Life(1)
	sent := w.signalProcess(a.PID, syscall.SIGTERM, "agent a")
	dead := w.Dead(life)
	term, got := life.Signalled("TERM")
	if !got {
		t.Errorf("the job got no SIGTERM")
	}
	t.Logf("SIGTERM reached the job after %v", term.Sub(sent))
	if dead.Sub(sent) < timing.StopGrace-100*time.Millisecond {
		t.Errorf("the job was killed %v after the stop, before the grace of %v was over", dead.Sub(sent), timing.StopGrace)
	}
	w.within("death of a job that ignores SIGTERM", dead.Sub(sent), timing.StopGrace+prompt)
	if status := a.Ended(); status != 128+9 {
		t.Errorf("the agent ended with %d, its job by SIGKILL", status)
	}
	if exited := a.Logged("job exited", 1); exited.Text("signal") == "" {
		t.Errorf("the log does not say by which signal the job ended: %v", exited.Fields)
	}
}

// A third stop signal kills: whoever presses Ctrl-C that often means it.
func TestThirdStopSignalKills(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm)
	a := w.Start(Start{Name: "a", Env: deafToTerm, Status: []int{128 + 9}})
	life := w.Life(1)
	a.Signal(syscall.SIGTERM)
	w.Until("the job gets SIGTERM", patience, func() bool { _, got := life.Signalled("TERM"); return got })
	a.Signal(syscall.SIGINT)
	// Two signals that the agent has not read yet would be one to it.
	w.During("a second signal does not kill", 300*time.Millisecond, func() bool { _, over := life.Ended(); return !over })
	sent := w.signalProcess(a.PID, syscall.SIGTERM, "agent a")
	w.within("death after the third signal", w.Dead(life).Sub(sent), prompt)
	a.Ended()
}

// A job that ends by itself ends its agent with the job's status, after the
// release: the next task takes over at once.
func TestJobEndsByItself(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 1, 42, 255} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, calm)
			a := w.Start(Start{Name: "a", Status: []int{status}})
			w.Life(1).Exit(status, 0)
			if got := a.Ended(); got != status {
				t.Errorf("the agent ended with %d, its job with %d", got, status)
			}
			if owner := w.Row().Owner(); owner != "" {
				t.Errorf("the lease is left held by %s", owner)
			}
			if code := a.Logged("job exited", 1).Text("exit_code"); code != fmt.Sprint(status) {
				t.Errorf("the job is logged as ended with %q", code)
			}
		})
	}
}
