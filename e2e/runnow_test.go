//go:build linux

package e2e

import (
	"syscall"
	"testing"
	"time"
)

// tickAttributes are what a row says of its last tick.
var tickAttributes = []string{"tick", "tick_state", "tick_attempt", "exit_code"}

// sameTick checks that a write left the row's last tick alone.
func (w *World) sameTick(before, after Row) {
	w.t.Helper()
	for _, name := range tickAttributes {
		if was, is := before[name], after[name]; (Row{name: was}).String() != (Row{name: is}).String() {
			w.t.Errorf("an extra run changed %s from %v to %v", name, was, is)
		}
	}
}

// extra checks that a launch is an extra run: with a FENCE of its own, claimed
// by the write that clears the request, and no tick's.
func (w *World) extra(a *Agent, l *Life) {
	w.t.Helper()
	if l.Env("SOLOJOB_RUN_TICK") != "" || l.Owner != a.Owner() {
		w.t.Errorf("%v under %s, tick %q, want an extra run under %s", l, l.Owner, l.Env("SOLOJOB_RUN_TICK"), a.Owner())
	}
	for _, c := range w.store.Find(Claim, a.Door, 0) {
		if c.After.Fence() != l.Fence {
			continue
		}
		if c.Before.text("run_now") == "" || c.After.text("run_now") != "" {
			w.t.Errorf("%v was claimed by a write that leaves the request %q → %q", l, c.Before.text("run_now"), c.After.text("run_now"))
		}
		w.sameTick(c.Before, c.After)
		return
	}
	w.t.Errorf("%v was not claimed", l)
}

// run-now is one extra run in the task that leads, within a heartbeat, as a
// claimed run with a FENCE of its own; the schedule's ticks are as they were. It
// is in the history with who asked.
func TestRunNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a, _ := w.pair(scheduled(soon()))
	first := w.Life(1)
	first.Exit(3, 0)
	w.Until("the tick has failed", patience, func() bool { return w.Row().text("tick_state") == "failed" })
	before := w.Row()

	asked := o.Did("run-now")
	second := w.Life(2)
	w.actedAtOnce(a, asked.Write, "launch", second.Started)
	w.extra(a, second)
	if second.Fence <= first.Fence {
		t.Errorf("%v follows %v", second, first)
	}
	second.Exit(4, 0)
	ran := o.Recorded("the extra run", func(r Ran) bool { return r.Fence == second.Fence })
	if ran.Kind != "run-now" || ran.State != "failed" || ran.ExitCode != 4 || ran.Owner != a.Owner() || ran.By == "" || ran.By != asked.Write.After.text("run_by") || ran.Tick != "" {
		t.Errorf("the history says of the extra run: %+v", ran)
	}
	w.During("no further run", 2*w.timing.Heartbeat, func() bool { return len(w.Lives()) == 2 })
	w.sameTick(before, w.Row())
}

// A request for an extra run honours the overlap rule: while a run goes on it is
// refused, waits for its end, or replaces it.
func TestRunNowWhileARunGoesOn(t *testing.T) {
	t.Parallel()
	for _, overlap := range []string{"skip", "queue", "replace"} {
		t.Run(overlap, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, attentive)
			o := w.Operator("o")
			a := w.Start(Start{Name: "a", Env: scheduled(farOff(), "SOLOJOB_OVERLAP", overlap)})
			w.Until("the schedule is in the row", patience, func() bool { return w.Row().text("schedule") != "" })
			o.Did("run-now")
			first := w.Life(1)
			w.extra(a, first)
			asked := o.Did("run-now")
			switch overlap {
			case "skip":
				a.Logged("request to run now is refused", 1)
				w.Until("the request is cleared", patience, func() bool { return w.Row().text("run_now") == "" })
			case "queue":
				w.During("the request waits", 2*w.timing.Heartbeat, func() bool {
					_, over := first.Ended()
					return !over && len(w.Lives()) == 1 && w.Row().text("run_now") != ""
				})
			case "replace":
				w.actedAtOnce(a, asked.Write, "SIGTERM", w.signalled(first))
			}
			if overlap != "replace" {
				first.Exit(0, 0)
			}
			w.Dead(first)
			if _, got := first.Signalled("TERM"); got != (overlap == "replace") {
				t.Errorf("the run that went on was told to end: %v", got)
			}
			runs := 1
			if overlap != "skip" {
				second := w.Life(2)
				w.extra(a, second)
				second.Exit(0, 0)
				runs = 2
			}
			w.During("no further run", 2*w.timing.Heartbeat, func() bool { return len(w.Lives()) == runs })
		})
	}
}

// A request that nobody has acted upon stands in the row for the next leader,
// who carries it out once. One that meets a pause is refused, and is not left
// over for later.
func TestRunNowWithoutALeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	env := scheduled(farOff(), "SOLOJOB_OVERLAP", "queue")
	a := w.Start(Start{Name: "a", Env: env})
	w.Until("the schedule is in the row", patience, func() bool { return w.Row().text("schedule") != "" })
	a.Signal(syscall.SIGTERM)
	a.Ended()
	asked := o.Did("run-now")
	o.Refused("already", "run-now")
	if asked.Change.Read != nil {
		t.Errorf("the operator is told whether a holder has read it, and there is none: %v", asked)
	}
	b := w.Start(Start{Name: "b", Env: env})
	first := w.Life(1)
	w.extra(b, first)

	o.Did("run-now") // it waits for the run that goes on,
	o.Did("pause")
	first.Exit(0, 0)
	b.Logged("request to run now is refused", 1)
	w.Until("the request is cleared", patience, func() bool { return w.Row().text("run_now") == "" })
	o.Did("resume")
	w.During("no further run", 2*w.timing.Heartbeat, func() bool { return len(w.Lives()) == 1 })
}

// A service has no extra runs.
func TestRunNowOfAService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	w.Start(Start{Name: "a"})
	life := w.Life(1)
	o.Refused("no schedule", "run-now")
	w.During("one job runs", time.Second, func() bool { return len(w.Lives()) == 1 })
	w.unchanged(life)
}
