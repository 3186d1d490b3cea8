//go:build linux

package e2e

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// farOff is a schedule whose next tick is half a day away.
func farOff() string { return time.Now().UTC().Add(12 * time.Hour).Format("5 4 15 * * *") }

// soon is a schedule with one tick a day, the next a few seconds from now.
func soon() string { return time.Now().UTC().Add(5 * time.Second).Format("5 4 15 * * *") }

// scheduled are the variables of a task on a schedule, and others.
func scheduled(schedule string, more ...string) map[string]string {
	env := map[string]string{"SOLOJOB_SCHEDULE": schedule}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

// pair starts a holder and, when that leads, a task that stands by. Both have
// the same variables, and the holder may have more.
func (w *World) pair(env map[string]string, more ...string) (holder, standby *Agent) {
	w.t.Helper()
	all := map[string]string{}
	maps.Copy(all, env)
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	holder = w.Start(Start{Name: "a", Env: all})
	holder.Logged("lease acquired", 1)
	standby = w.Start(Start{Name: "b", Env: env})
	standby.Logged("standing by", 1)
	return holder, standby
}

// marked is the first heartbeat of a holder, after a request, whose row says
// that it is draining.
func (w *World) marked(a *Agent, request *Call) boottime.Instant {
	w.t.Helper()
	at := boottime.Instant(0)
	w.Until("the row says that the holder is draining", patience, func() bool {
		for _, c := range w.store.Find(Renew, a.Door, request.Applied) {
			if c.After["draining"]["BOOL"] == true {
				at = c.Applied
				return true
			}
		}
		return false
	})
	return at
}

// signalled waits until a job gets SIGTERM.
func (w *World) signalled(l *Life) boottime.Instant {
	w.t.Helper()
	w.Until("the job gets SIGTERM", patience, func() bool { _, got := l.Signalled("TERM"); return got })
	at, _ := l.Signalled("TERM")
	return at
}

// A holder that is asked to hand over lets its run end by itself, then says in
// the row that it is draining, and gives the lease to a task that stands by; it
// goes on as a standby.
func TestHandoverAfterTheRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a, b := w.pair(scheduled("@every 2s"))
	first := w.Life(1)

	asked := o.Did("handover")
	if asked.Change.Read == nil || !*asked.Change.Read {
		t.Errorf("the operator is not told that the holder has read it: %v", asked)
	}
	o.Refused("already", "handover")
	w.During("the run goes on, and its holder holds", 2*w.timing.Heartbeat, func() bool {
		_, over := first.Ended()
		return !over && w.Row().Owner() == a.Owner()
	})
	first.Exit(0, 0)
	if dead := w.Dead(first); w.marked(a, asked.Write) < first.LastAlive() {
		t.Errorf("the row said that the holder was draining before the run had ended, at %v", dead)
	}
	second := w.Life(2)
	if _, got := first.Signalled("TERM"); got {
		t.Errorf("the run was told to end")
	}
	if second.Owner != b.Owner() || second.Fence <= first.Fence || !tickOf(t, second).After(tickOf(t, first)) {
		t.Errorf("%v under %s, tick %v, follows %v, tick %v", second, second.Owner, tickOf(t, second), first, tickOf(t, first))
	}
	if how := b.Logged("lease acquired", 1).Text("how"); how != "released" {
		t.Errorf("the lease was acquired as %q, want released", how)
	}
	if row := w.Row(); row.text("handover") != "" || row["draining"]["BOOL"] == true {
		t.Errorf("the request stands in the new holder's row: %v", row)
	}
	a.Logged("standing by", 1)
	if !a.Running() {
		t.Errorf("the task that handed over ended with %d", a.Status())
	}
	second.Exit(0, 0)
}

// With --now the run is ended at once; on a schedule nothing is lost by that,
// for the run starts again in the next task.
func TestHandoverNow(t *testing.T) {
	t.Parallel()
	timing := attentive
	timing.LossGrace, timing.StopGrace = 500*time.Millisecond, 1500*time.Millisecond
	w := newWorld(t, timing)
	o := w.Operator("o")
	a, b := w.pair(scheduled(soon()), "PROBE_ON_TERM", "ignore")
	first := w.Life(1)
	o.Did("handover") // it waits for the run,
	asked := o.Did("handover", "--now")
	w.actedAtOnce(a, asked.Write, "SIGTERM", w.signalled(first))
	w.within("from the request to the job's death", w.Dead(first).Sub(asked.Write.Applied), timing.Lease/2)
	second := w.Life(2)
	if second.Owner != b.Owner() || second.Fence <= first.Fence || !tickOf(t, second).Equal(tickOf(t, first)) {
		t.Errorf("%v under %s, tick %v, follows %v, tick %v", second, second.Owner, tickOf(t, second), first, tickOf(t, first))
	}
	second.Exit(0, 0)
	w.Until("the tick is done", patience, func() bool { return w.Row().text("tick_state") == "done" })
	if !a.Running() || len(w.Lives()) != 2 {
		t.Errorf("%d runs; the task that handed over runs: %v", len(w.Lives()), a.Running())
	}
}

// The job of a service is never done by itself, so it is ended for a handover;
// the other task takes it, and can hand it back. Where nobody takes it, the same
// task has it again.
func TestHandoverOfAService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a, b := w.pair(nil)
	first := w.Life(1)
	asked := o.Did("handover")
	w.actedAtOnce(a, asked.Write, "draining", w.marked(a, asked.Write))
	w.Dead(first)
	second := w.Life(2)
	if _, got := first.Signalled("TERM"); !got || second.Owner != b.Owner() {
		t.Errorf("%v was told to end: %v; then %v under %s", first, got, second, second.Owner)
	}
	a.Logged("standing by", 1)
	o.Did("handover", "--now")
	if third := w.Life(3); third.Owner != a.Owner() {
		t.Errorf("%v under %s after the lease was to be handed back", third, third.Owner)
	}
	b.Signal(syscall.SIGTERM)
	b.Ended()
	o.Did("handover")
	fourth := w.Life(4)
	if fourth.Owner != a.Owner() {
		t.Errorf("%v under %s", fourth, fourth.Owner)
	}
	w.During("a handover that nobody followed is over", 2*w.timing.Heartbeat, func() bool {
		_, over := fourth.Ended()
		return !over && w.Row().text("handover") == ""
	})
}

// A service that is paused has no job; the lease stays with its holder. It goes
// on, with a higher FENCE, when it is resumed. A pause needs no agent to be
// alive, and outlives the holder.
func TestPauseOfAService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a, b := w.pair(nil)
	first := w.Life(1)
	asked := o.Did("pause")
	w.actedAtOnce(a, asked.Write, "SIGTERM", w.signalled(first))
	dead := w.Dead(first)
	o.Refused("paused already", "pause")
	if shown := o.Status(); !shown.Paused || shown.Job.State != "paused" || shown.Owner != a.Owner() {
		t.Errorf("the status of a paused lease: %+v", shown)
	}
	w.Until("the holder's heart beats on", patience, func() bool { return len(w.store.Find(Renew, a.Door, dead)) >= 2 })
	resumed := o.Did("resume")
	second := w.Life(2)
	w.actedAtOnce(a, resumed.Write, "launch", second.Started)
	if second.Owner != a.Owner() || second.Fence <= first.Fence {
		t.Errorf("%v under %s follows %v", second, second.Owner, first)
	}
	o.Refused("not paused", "resume")

	o.Did("pause", "--no-wait")
	a.Signal(syscall.SIGTERM)
	w.Dead(second)
	w.Until("b has the lease", patience, func() bool { return w.Row().Owner() == b.Owner() })
	w.During("nothing is started under a paused lease", 2*w.timing.Heartbeat, func() bool { return len(w.Lives()) == 2 })
	o.Did("resume")
	if third := w.Life(3); third.Owner != b.Owner() || third.Fence <= second.Fence {
		t.Errorf("%v under %s follows %v", third, third.Owner, second)
	}
}

// On a schedule a pause leaves the run that goes on alone, and starts nothing.
// The ticks that come meanwhile are skipped, not missed: after it is resumed the
// first run is of a tick that came later.
func TestPauseOfASchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a, _ := w.pair(scheduled("@every 1s"))
	first := w.Life(1)
	o.Did("pause")
	w.During("the run goes on", 2*w.timing.Heartbeat, func() bool { _, over := first.Ended(); return !over })
	first.Exit(0, 0)
	w.Dead(first)
	w.During("nothing is started", 3*w.timing.Heartbeat, func() bool { return len(w.Lives()) == 1 && w.Row().Owner() == a.Owner() })
	if _, got := first.Signalled("TERM"); got {
		t.Errorf("the run was told to end")
	}
	o.Refused("paused", "run-now")
	resumed := time.Now()
	asked := o.Did("resume")
	second := w.Life(2)
	w.within("from the resumption to the next run", second.Started.Sub(asked.Write.Applied), w.timing.Lease/2)
	w.skippedWhilePaused(second, resumed, a)
	second.Exit(0, 0)
}

// A pause of a schedule outlives its holder: the ticks that come until it is
// resumed, whoever led or nobody, are skipped and not missed.
func TestPauseOutlivesItsHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	o := w.Operator("o")
	a, b := w.pair(scheduled("@every 1s", "PROBE_FOR", "50ms"))
	w.Life(2)
	o.Did("pause")
	w.Until("no run goes on", patience, func() bool {
		lives := w.Lives()
		_, over := lives[len(lives)-1].Ended()
		return over && w.Row().text("tick_state") == "done"
	})
	runs := len(w.Lives())
	a.Signal(syscall.SIGKILL)
	w.Until("b has the lease", patience, func() bool { return w.Row().Owner() == b.Owner() })
	w.During("nothing is started under a paused lease", w.timing.Heartbeat, func() bool { return len(w.Lives()) == runs })
	resumed := time.Now()
	o.Did("resume")
	w.skippedWhilePaused(w.Life(runs+1), resumed, b)
}

// skippedWhilePaused checks the first run after a pause, and what the leader
// says of the ticks before.
func (w *World) skippedWhilePaused(l *Life, resumed time.Time, leader *Agent) {
	w.t.Helper()
	if tick := tickOf(w.t, l); tick.Before(resumed.Truncate(time.Second)) {
		w.t.Errorf("a tick that came during the pause, %v, was run after it, at %v", tick, resumed.UTC())
	}
	if !slices.ContainsFunc(leader.Lines("tick skipped"), func(line Line) bool { return strings.Contains(line.Text("reason"), "paused") }) {
		w.t.Errorf("no tick is called skipped for the pause")
	}
	if missed := leader.Lines("tick missed"); len(missed) > 0 {
		w.t.Errorf("a tick that came during the pause is called missed: %v", missed[0].Fields)
	}
}

// The status tells a holder that beats from one that is silent by watching, and
// changes nothing.
func TestStatusOfLivingAndDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	o := w.Operator("o")
	if s := o.Run("status", w.lease, "--json"); s.Status != 1 {
		t.Errorf("the status of a lease that does not exist: %v", s)
	}
	a := w.Start(Start{Name: "a"})
	life := w.Life(1)
	shown := o.Status()
	if shown.State != "held" || shown.Owner != life.Owner || shown.Fence != life.Fence || shown.Job.State != "running" ||
		shown.Heartbeat == nil || !shown.Heartbeat.Seen || shown.Heartbeat.Silent {
		t.Errorf("the status of a lease that is held: %+v", shown)
	}
	a.Signal(syscall.SIGTERM)
	a.Ended()
	if shown = o.Status(); shown.State != "free" || shown.Owner != "" || shown.Job.State != "none" {
		t.Errorf("the status of a lease that is free: %+v", shown)
	}
	b := w.Start(Start{Name: "b"})
	life = w.Life(2)
	b.Signal(syscall.SIGKILL)
	w.Dead(life)
	shown = o.Status()
	if shown.State != "silent" || shown.Owner != life.Owner || shown.Heartbeat == nil || !shown.Heartbeat.Silent || shown.Heartbeat.Takeover == nil {
		t.Errorf("the status of a lease whose holder is dead: %+v", shown)
	}
	for _, c := range w.store.Calls() {
		if c.Door == o.Door && !isRead(c.Op) {
			t.Errorf("status wrote: %s %s", c.Op, c.Body)
		}
	}
}
