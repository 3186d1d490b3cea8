//go:build linux

package e2e

import (
	"strconv"
	"syscall"
	"testing"
)

// A run is in the history when it has ended, as its holder saw it; one whose
// task was killed is entered by the next leader.
func TestHistoryKnowsTheInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	o := w.Operator("o")
	a, b := w.pair(scheduled(soon()))
	first := w.Life(1)
	w.Until("the run is in the row", patience, func() bool { return w.Row().text("tick_state") == "running" })
	a.Signal(syscall.SIGKILL)
	w.Dead(first)
	second := w.Life(2)
	second.Exit(3, 0)
	tick := first.Env("SOLOJOB_RUN_TICK")
	failed := o.Recorded("the second attempt", func(r Ran) bool { return r.Fence == second.Fence })
	if failed.Tick != tick || failed.State != "failed" || failed.ExitCode != 3 || failed.Attempt != 2 || failed.Owner != b.Owner() ||
		failed.Kind != "tick" || failed.Started == "" || failed.Ended == "" {
		t.Errorf("the history says of the second attempt: %+v", failed)
	}
	broken := o.Recorded("the first attempt", func(r Ran) bool { return r.State == "interrupted" })
	if broken.Tick != tick || broken.Attempt != 1 || broken.Fence != first.Fence || broken.Owner != a.Owner() || broken.Started == "" || broken.Ended != "" {
		t.Errorf("the history says of the first attempt, which was killed: %+v", broken)
	}
}

// What operators ask is in the history, written by the holder that acts on it,
// with who asked.
func TestHistoryKnowsWhoAsked(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"service", "schedule"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, attentive)
			o := w.Operator("o")
			env := map[string]string{}
			if mode == "schedule" {
				env = scheduled("@every 1s", "PROBE_FOR", "100ms")
			}
			_, b := w.pair(env)
			w.Life(1)
			paused := o.Did("pause")
			o.Did("resume")
			w.Life(2)
			handed := o.Did("handover", "--now")
			w.Until("b has the lease", patience, func() bool { return w.Row().Owner() == b.Owner() })
			for what, by := range map[string]string{
				"the pause": paused.Write.After.text("paused_by"), "the handover": handed.Write.After.text("handover_by"),
			} {
				o.Recorded(what+", and that "+by+" asked for it", func(r Ran) bool { return by != "" && r.By == by })
			}
		})
	}
}

// historyLength is how many runs are kept.
const historyLength = 100

// The history keeps the last hundred runs: a run replaces that whose fence was a
// hundred lower.
func TestHistoryWrapsAround(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a := w.Start(Start{Name: "a"})
	turns := rounds(2, historyLength+5)
	var lives []*Life
	for turn := 1; turn <= turns+1; turn++ {
		life := w.Life(turn)
		lives = append(lives, life)
		if !full() { // the fences between are nobody's
			o.Did("fence", "bump", "--no-wait", "--to", strconv.FormatInt(life.Fence+historyLength-1, 10))
		}
		if turn <= turns {
			w.signalProcess(a.Supervisor(life), syscall.SIGKILL, "a's supervisor")
		}
	}
	last := lives[turns-1] // the one after it goes on
	o.Recorded("the last run", func(r Ran) bool { return r.Fence == last.Fence })
	runs := o.History()
	kept := 0
	for _, l := range lives[:turns] {
		if l.Fence > last.Fence-historyLength {
			kept++
		}
	}
	if len(runs) != kept || kept > historyLength {
		t.Errorf("the history has %d runs after %d, want the last %d", len(runs), turns, kept)
	}
	for i, r := range runs {
		if want := lives[turns-kept+i].Fence; r.Fence != want || r.Kind != "service" || r.State != "interrupted" || r.Owner != a.Owner() {
			t.Errorf("run %d of the history is %+v, want FENCE %d", i, r, want)
		}
	}
}

// So is the run of a service whose agent died.
func TestHistoryKnowsTheServiceThatDied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	o := w.Operator("o")
	a, _ := w.pair(nil)
	first := w.Life(1)
	w.Until("the run is in the row", patience, func() bool { return w.Row().text("run_since") != "" })
	a.Signal(syscall.SIGKILL)
	w.Life(2)
	lost := o.Recorded("the first run", func(r Ran) bool { return r.Fence == first.Fence })
	if lost.Kind != "service" || lost.State != "interrupted" || lost.Owner != a.Owner() || lost.Started == "" || lost.Ended != "" {
		t.Errorf("the history says of the run whose agent died: %+v", lost)
	}
}

// An extra run whose agent died is not started again, and the next leader says so.
func TestHistoryKnowsTheInterruptedExtraRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	o := w.Operator("o")
	a, b := w.pair(scheduled(farOff()))
	o.Did("run-now")
	first := w.Life(1)
	a.Signal(syscall.SIGKILL)
	w.Dead(first)
	b.Logged("extra run interrupted: it is not started again", 1)
	lost := o.Recorded("the extra run", func(r Ran) bool { return r.Fence == first.Fence })
	if lost.Kind != "run-now" || lost.State != "interrupted" || lost.Owner != a.Owner() || lost.Tick != "" || lost.Ended != "" {
		t.Errorf("the history says of the extra run, whose agent died: %+v", lost)
	}
	w.During("no further run", 2*w.timing.Heartbeat, func() bool { return len(w.Lives()) == 1 })
}

// Runs of a schedule keep their places in the history however many fences are
// used up between them, by handovers and operators.
func TestHandoversPushNoRunOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	w.Start(Start{Name: "a", Env: scheduled(farOff())})
	w.Until("the schedule is in the row", patience, func() bool { return w.Row().text("schedule") != "" })
	const runs = 3
	for n := 1; n <= runs; n++ {
		o.Did("run-now")
		life := w.Life(n)
		life.Exit(0, 0)
		o.Recorded("the run", func(r Ran) bool { return r.Fence == life.Fence })
		o.Did("fence", "bump", "--no-wait", "--to", strconv.FormatInt(life.Fence+historyLength-1, 10))
	}
	if kept := o.History(); len(kept) != runs {
		t.Errorf("the history has %d of %d runs: %v", len(kept), runs, kept)
	}
}
