//go:build linux

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

var deafToTerm = map[string]string{"PROBE_ON_TERM": "ignore"}

// lastKept is when the store last applied a write that kept the lease with the
// agent: its valid_until is no later than a lease after it.
func (w *World) lastKept(a *Agent) boottime.Instant {
	last := boottime.Instant(0)
	for _, c := range w.store.Calls() {
		if c.Door == a.Door && (c.Kind == Acquire || c.Kind == Renew || c.Kind == Claim) {
			last = c.Applied
		}
	}
	return last
}

// diesInTime waits for the death of a job whose agent can't keep the lease, and
// checks that it did not outlive the lease. Its last word, by its own clock, is
// what counts: a loaded machine may be late to show the test its death.
func (w *World) diesInTime(l *Life, a *Agent) {
	w.t.Helper()
	dead := w.Dead(l)
	end := w.lastKept(a).Add(w.timing.Lease)
	w.t.Logf("seen dead %v before the lease ended", end.Sub(dead).Round(time.Millisecond))
	if last := l.LastAlive(); last > end {
		w.t.Errorf("%v lived on for %v after its lease had ended", l, last.Sub(end))
	}
}

// standsBy checks that an agent that comes back, after another has taken over,
// writes nothing that counts and waits as a standby.
func (w *World) standsBy(a *Agent, since boottime.Instant) {
	w.t.Helper()
	lost := a.Logged("lease lost", 1)
	if lost.Text("reason") == "" {
		w.t.Errorf("agent %s does not say why it lost the lease", a.Name)
	}
	w.Until("agent "+a.Name+" stands by again", patience, func() bool {
		lines := a.Lines("standing by")
		return len(lines) > 0 && lines[len(lines)-1].At >= lost.At
	})
	w.Until("agent "+a.Name+" watches the row again", patience, func() bool {
		return len(w.store.Find(Read, a.Door, max(since, lost.At))) > 1
	})
	for _, c := range w.store.Calls() {
		if c.Door == a.Door && c.Applied >= since && c.Write() {
			w.t.Errorf("agent %s came back with a %s that was applied", a.Name, c.Kind)
		}
	}
	if !a.Running() {
		w.t.Errorf("agent %s ended: a service that loses its lease stands by", a.Name)
	}
}

// SIGSTOP of the agent alone: its supervisor kills the job, which ignores
// SIGTERM, before anyone else may start one. When the agent wakes, it renews
// nothing and stands by.
func TestStoppedAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a", Env: deafToTerm})
	first := w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	stopped := w.signalProcess(a.PID, syscall.SIGSTOP, "agent a")
	w.diesInTime(first, a)
	second := w.Life(2)
	if _, got := first.Signalled("TERM"); !got {
		t.Errorf("the job got no SIGTERM before it was killed")
	}
	if second.Owner != b.Owner() {
		t.Errorf("the second job runs under %s", second.Owner)
	}
	w.During("the second job runs on", max(0, 2*w.timing.Lease-boottime.Now().Sub(stopped)), func() bool {
		return len(w.Lives()) == 2
	})
	w.standsBy(a, w.signalProcess(a.PID, syscall.SIGCONT, "agent a"))
	w.During("the second job runs on", w.timing.Lease/2, func() bool { return len(w.Lives()) == 2 })
}

// SIGSTOP of the supervisor alone, while the agent renews: the agent notices
// the silence, kills the job and the supervisor, and launches anew.
func TestStoppedSupervisorIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	a := w.Start(Start{Name: "a", Env: deafToTerm})
	first := w.Life(1)
	supervisor := a.Supervisor(first)
	stopped := w.signalProcess(supervisor, syscall.SIGSTOP, "a's supervisor")
	dead := w.Dead(first)
	w.within("from the supervisor's stop to the job's death", dead.Sub(stopped), w.timing.Lease+5*time.Second)
	second := w.Life(2)
	if second.Owner != first.Owner || second.Fence <= first.Fence {
		t.Errorf("%v follows %v, want the same owner and a higher FENCE", second, first)
	}
	if replaced := a.Supervisor(second); replaced == supervisor {
		t.Errorf("the stopped supervisor %d keeps the second job", supervisor)
	}
	second.Exit(0, 0)
	if status := a.Ended(); status != 0 {
		t.Errorf("the agent ended with %d, its job with 0", status)
	}
}

// A supervisor that is stopped for less than two heartbeats does not kill a
// healthy job when it wakes.
func TestBrieflyStoppedSupervisor(t *testing.T) {
	t.Parallel()
	timing := Timing{
		Lease: 9 * time.Second, Heartbeat: 2 * time.Second, Poll: time.Second,
		LossGrace: time.Second, KillMargin: time.Second, StopGrace: 10 * time.Second,
	}
	w := newWorld(t, timing)
	a := w.Start(Start{Name: "a"})
	life := w.Life(1)
	supervisor := a.Supervisor(life)
	for range rounds(1, 5) {
		w.signalProcess(supervisor, syscall.SIGSTOP, "a's supervisor")
		time.Sleep(timing.Heartbeat + timing.Heartbeat/10) // the stop is what is tested: one new deadline waits in the pipe
		awake := w.signalProcess(supervisor, syscall.SIGCONT, "a's supervisor")
		w.Until("two more heartbeats", patience, func() bool { return len(w.store.Find(Renew, a.Door, awake)) >= 2 })
	}
	if _, over := life.Ended(); over || len(w.Lives()) != 1 {
		t.Errorf("the job did not survive the nap of its supervisor")
	}
	if _, got := life.Signalled("TERM"); got {
		t.Errorf("the job got SIGTERM after the nap of its supervisor")
	}
}

// SIGSTOP of the supervisor, then SIGKILL of the agent: the job dies at once.
func TestStoppedSupervisorAndKilledAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm)
	a := w.Start(Start{Name: "a", Env: map[string]string{"PROBE_TREE": "20", "PROBE_ON_TERM": "ignore"}})
	life := w.Life(1)
	w.signalProcess(a.Supervisor(life), syscall.SIGSTOP, "a's supervisor")
	a.killed = true
	killed := w.signalProcess(a.PID, syscall.SIGKILL, "agent a")
	w.within("death of the job", w.Dead(life).Sub(killed), calm.Lease/3)
}

// SIGSTOP of a whole task, for longer than its lease: when it thaws, its job is
// killed before anything else; and what the job still tries to write, thawed
// before its keepers, is refused for its old FENCE.
func TestFrozenTask(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		jobFirst bool
	}{{"all thaw at once", false}, {"the job thaws first", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			a := w.Start(Start{Name: "a", Env: deafToTerm})
			first := w.Life(1)
			supervisor := a.Supervisor(first)
			b := w.Start(Start{Name: "b"})
			b.Logged("standing by", 1)
			first.FreezeOnPurpose()
			task := []int{a.PID, supervisor, first.PID}
			task = append(task, spare(t, a.PID, supervisor)...)
			for _, pid := range task {
				w.signalProcess(pid, syscall.SIGSTOP, "the task of a")
			}
			w.Life(2)
			if c.jobFirst {
				thawed := w.signalProcess(first.PID, syscall.SIGCONT, "the old job")
				w.Until("the thawed job speaks", patience, func() bool { return first.LastAlive() > thawed })
				if first.WriteFenced() {
					t.Errorf("the thawed job's write with FENCE %d was accepted", first.Fence)
				}
			}
			thawed := boottime.Now()
			for _, pid := range task {
				_ = syscall.Kill(pid, syscall.SIGCONT) // the job may be dead by the time it is its turn
			}
			w.note(thawed, "test", "the task of a thaws")
			w.within("death of the old job after the thaw", w.Dead(first).Sub(thawed), 5*time.Second)
			w.standsBy(a, thawed)
			if len(w.Lives()) != 2 {
				t.Errorf("%d launches, want two", len(w.Lives()))
			}
		})
	}
}

// spare are the agent's children but its supervisor: what waits for a next run.
func spare(t *testing.T, agent, supervisor int) []int {
	t.Helper()
	lists, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", agent))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, thread := range lists {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", agent, thread.Name()))
		for field := range strings.FieldsSeq(string(children)) {
			if pid, err := strconv.Atoi(field); err == nil && pid != supervisor {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
