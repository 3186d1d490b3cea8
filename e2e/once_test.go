//go:build linux

package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// attentive is for tests of what a holder is told in the row: its heartbeat is
// short beside the lease, so that what waited for the lease would show, and the
// standbys look often.
var attentive = Timing{
	Lease: 12 * time.Second, Heartbeat: time.Second, Poll: 500 * time.Millisecond,
	LossGrace: time.Second, KillMargin: time.Second, StopGrace: 12 * time.Second,
}

func kill(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// One of several tasks runs, under a FENCE, and each ends as it was asked to if
// the lease is held: skip with 0, fail with 75, wait by its turn or with 75 when
// its time is up. The log says who has the lease.
func TestOnceWhileTheLeaseIsHeld(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, attentive)
	a := w.Once("a", nil, 5)
	first := w.Life(1)
	if first.Owner != a.Owner() {
		t.Errorf("%v runs under %s, agent a is %s", first, first.Owner, a.Owner())
	}
	wait := w.Once("wait", nil)
	skip := w.Once("skip", map[string]string{"SOLOJOB_IF_HELD": "skip"})
	fail := w.Once("fail", map[string]string{"SOLOJOB_IF_HELD": "fail"}, 75)
	brief := w.Start(Start{Name: "brief", Env: map[string]string{"SOLOJOB_MODE": "once", "SOLOJOB_IF_HELD": "wait", "SOLOJOB_WAIT": "2s"}, Status: []int{75}})

	if status, line := skip.Ended(), skip.Logged("skipped", 1); status != 0 || line.Text("holder") != a.Owner() {
		t.Errorf("skip ended with %d, and logs the holder as %q", status, line.Text("holder"))
	}
	if status, line := fail.Ended(), fail.Logged("lease is held", 1); status != 75 || line.Text("holder") != a.Owner() {
		t.Errorf("fail ended with %d, and logs the holder as %q", status, line.Text("holder"))
	}
	if status := brief.Ended(); status != 75 {
		t.Errorf("a wait of 2 s ended with %d", status)
	}
	brief.excuse("SOLOJOB_WAIT")
	w.Wait(wait)
	if _, over := first.Ended(); over || !wait.Running() || len(w.Lives()) != 1 {
		t.Fatalf("the run did not go on alone while others were there")
	}
	first.Exit(5, 0)
	if status := a.Ended(); status != 5 {
		t.Errorf("agent a ended with %d, its job with 5", status)
	}
	second := w.Life(2)
	if second.Owner != wait.Owner() || second.Fence <= first.Fence {
		t.Errorf("%v under %s follows %v", second, second.Owner, first)
	}
	second.Exit(0, 0)
	if status := wait.Ended(); status != 0 || len(w.Lives()) != 2 {
		t.Errorf("the one that waited ended with %d, after %d runs in all", status, len(w.Lives()))
	}
}

// excuse takes the last sentence of an agent that has ended, which is for people
// and no JSON, out of the lines that are checked.
func (a *Agent) excuse(about string) {
	a.readers.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	var kept []string
	for _, text := range a.raw {
		if !strings.Contains(text, about) {
			kept = append(kept, text)
		}
	}
	a.raw = kept
}

// A crashed run does not make later tasks skip, or fail, for ever: a holder that
// is silent for its lease is taken over.
func TestOnceTakesOverFromTheDead(t *testing.T) {
	t.Parallel()
	for _, ifHeld := range []string{"skip", "fail"} {
		t.Run(ifHeld, func(t *testing.T) {
			t.Parallel()
			w := newOnceWorld(t, brisk)
			a := w.Once("a", nil)
			first := w.Life(1)
			w.KillAll(a, first)
			w.Dead(first)
			b := w.Once("b", map[string]string{"SOLOJOB_IF_HELD": ifHeld}, 3)
			second := w.Life(2)
			if second.Owner != b.Owner() || second.Fence <= first.Fence {
				t.Errorf("%v under %s follows %v", second, second.Owner, first)
			}
			if how := b.Logged("lease acquired", 1).Text("how"); how != "expired" {
				t.Errorf("the lease was acquired as %q, want expired", how)
			}
			second.Exit(3, 0)
			if status := b.Ended(); status != 3 {
				t.Errorf("agent b ended with %d, its job with 3", status)
			}
		})
	}
}

// When the lease is lost during the run, the job is killed and the task ends
// with 79; the next one runs only then.
func TestOnceLosesTheLease(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, brisk)
	a := w.Once("a", deafToTerm, 79)
	first := w.Life(1)
	b := w.Once("b", nil)
	w.Wait(b)
	a.killed = true // it can't release
	a.Door.Set(always(hang))
	w.Dead(first)
	if status := a.Ended(); status != 79 {
		t.Errorf("agent a ended with %d after it had lost the lease, want 79", status)
	}
	second := w.Life(2)
	if second.Owner != b.Owner() || second.Fence <= first.Fence {
		t.Errorf("%v under %s follows %v", second, second.Owner, first)
	}
	second.Exit(0, 0)
	b.Ended()
}

// A step before the service waits for no service: once mode has a lease of its
// own, whichever of the two is held.
func TestOnceBesideTheService(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, attentive)
	open, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	defer end.Close()
	// The steps are shells: the recorder knows a lease by its name, and these two have the same.
	before := w.Start(Start{
		Name: "before", Wrap: viaOnce, Stdin: open, Env: map[string]string{"SOLOJOB_IF_HELD": "fail"},
		Command: []string{"--", "/bin/sh", "-c", `echo "begun with $FENCE"; read line; exit 0`},
	})
	w.Until("the step runs", patience, func() bool { return strings.Contains(before.Stdout(), "begun with 1") })
	w.Start(Start{Name: "service"})
	life := w.Life(1)
	if !before.Running() {
		t.Fatalf("the step ended before the service began")
	}
	end.Close()
	if status := before.Ended(); status != 0 {
		t.Errorf("the step before the service ended with %d", status)
	}
	beside := w.Start(Start{
		Name: "beside", Wrap: viaOnce, Env: keyed("release-1", "SOLOJOB_IF_HELD", "fail"),
		Command: []string{"--", "/bin/sh", "-c", `echo "ran with $FENCE"`},
	})
	if status := beside.Ended(); status != 0 || !strings.Contains(beside.Stdout(), "ran with 2") {
		t.Errorf("the step beside the service ended with %d; it says %q", status, beside.Stdout())
	}
	w.unchanged(life)
	since := boottime.Now()
	w.Until("the service's heart beats on", patience, func() bool { return len(w.store.Find(Renew, nil, since)) > 0 })
	for _, a := range w.agents {
		if lost := a.Lines("run is missing from the history"); len(lost) > 0 {
			t.Errorf("agent %s: a run is missing from the history: %s", a.Name, lost[0].Text("error"))
		}
	}
}
