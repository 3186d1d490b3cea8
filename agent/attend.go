package agent

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"solojob/boottime"
	"solojob/leader"
	"solojob/runner"
)

// launch starts the job under a term, with the fence that it has.
func (a *Agent) launch(tick string, attempt int) Run {
	return a.Launch(runner.Launch{
		Fence:      a.fence,
		ValidUntil: a.until,
		Env:        jobEnviron(a.Environ, a.fence, a.Lease, a.Elector.Owner(), tick, attempt),
		Timeout:    a.Timeout,
		StopGrace:  a.StopGrace,
	})
}

// jobEnviron is the job's environment: everything inherited but our own
// settings and any FENCE, so that exactly one is left, and a solojob inside
// the job starts from nothing.
func jobEnviron(inherited []string, fence int64, lease, owner, tick string, attempt int) []string {
	env := slices.DeleteFunc(slices.Clone(inherited), func(kv string) bool {
		return strings.HasPrefix(kv, "FENCE=") || strings.HasPrefix(kv, "SOLOJOB_")
	})
	env = append(env,
		fmt.Sprintf("FENCE=%d", fence),
		"SOLOJOB_RUN_LEASE="+lease,
		"SOLOJOB_RUN_OWNER="+owner,
		fmt.Sprintf("SOLOJOB_RUN_ATTEMPT=%d", attempt))
	if tick != "" {
		env = append(env, "SOLOJOB_RUN_TICK="+tick)
	}
	return env
}

// watchman follows one run under one term. A mode selects on what it needs and
// passes each event on to the method that handles it.
type watchman struct {
	*Agent
	term    *leader.Term
	run     Run
	started <-chan struct{}
	lost    <-chan struct{}
	// patient lets a run that is told to stop go on until it would be killed
	// soon, so that one which ends by itself in time does.
	patient bool
	timer   boottime.Timer // for what is due next, of the two below
	stopAt  boottime.Instant
	giveUp  boottime.Instant
	dead    bool
	given   bool
	// replaced says that the run is ended for the next.
	replaced bool
}

func (a *Agent) watchman(term *leader.Term, run Run, patient bool) *watchman {
	w := &watchman{Agent: a, term: term, run: run, patient: patient, started: run.Started(), lost: term.Lost()}
	if a.stops > 0 {
		w.stopRun()
	}
	return w
}

// attend follows a run until every process of it is dead, and returns true; or
// until the lease is over and some can't be killed, and returns false.
func (w *watchman) attend() bool {
	defer w.timer.Stop()
	for _, b := range w.Busy {
		b.Begin()
		defer b.End()
	}
	for !w.dead && !w.given {
		select {
		case <-w.run.Done():
			w.dead = true
		case <-w.started:
			w.logStart()
		case b := <-w.term.Beats():
			w.extend(b)
		case <-w.lost:
			w.lose()
		case sig := <-w.Stop:
			w.drain(w.term, sig)
			w.stopRun()
		case <-w.alarm.C():
			w.onTick()
		case <-w.timer.C():
			w.onTime()
		}
	}
	if w.dead {
		w.logEnd()
	}
	return w.dead
}

// isOver reports whether every process of the run is dead.
func (w *watchman) isOver() bool { return isClosed(w.run.Done()) }

func (w *watchman) extend(b leader.Beat) {
	w.beat(b)
	w.run.Extend(b.ValidUntil)
}

// lose kills the job: the lease is over, or known to be somebody else's.
func (w *watchman) lose() {
	w.lost = nil
	reason := runner.LeaseTaken
	if w.term.Loss().Reason == leader.LossExpired {
		reason = runner.Deadline
	}
	w.run.Kill(reason)
	// After a freeze the deadline has passed before the kill could begin.
	w.giveUp = max(w.until, w.Clock.Now().Add(w.KillMargin))
	w.timer.Set(w.Clock, w.giveUp)
}

// stopRun acts on the requests to stop that have come so far.
func (w *watchman) stopRun() {
	killAt := w.stop.Add(w.StopGrace)
	switch {
	case w.stops >= 3:
		w.run.Kill(runner.Stopped)
	case w.stops == 2 || !w.patient:
		w.run.Stop(killAt)
	case w.lost != nil:
		w.stopAt = killAt.Add(-w.LossGrace)
		w.timer.Set(w.Clock, w.stopAt)
	}
}

func (w *watchman) onTime() {
	w.timer.Stop()
	if w.giveUp != 0 {
		w.given = true
		w.Log.Error("job can't be killed, and its lease is over: ending without a release", "fence", w.fence)
		return
	}
	w.run.Stop(w.stop.Add(w.StopGrace))
}

func (w *watchman) logStart() {
	w.started = nil
	w.Log.Info("job started", "pid", w.run.Pid(), "fence", w.fence)
}

func (w *watchman) logEnd() {
	r := w.run.Result()
	if w.started != nil && r.Launched {
		w.logStart() // it ended at once
	}
	switch {
	case r.ExecErr != nil:
		w.Log.Error("job can't be executed", "error", r.ExecErr.Error(), "fence", w.fence)
		return
	case !r.Launched:
		w.Log.Warn("job not started", "reason", string(r.Reason), "fence", w.fence)
		return
	case w.replaced:
		w.Log.Warn("job killed", "reason", "replaced", "fence", w.fence)
	case r.Signalled && (r.Reason != runner.Stopped || r.Signal == syscall.SIGKILL):
		w.Log.Warn("job killed", "reason", string(r.Reason), "fence", w.fence)
	}
	attrs := []any{"exit_code", exitStatus(r), "duration", r.Ended.Boot.Sub(r.Started.Boot).Round(time.Millisecond).String(), "fence", w.fence}
	if r.Signal != 0 {
		attrs = append(attrs, "signal", signalName(r.Signal))
	}
	w.Log.Info("job exited", attrs...)
}

// isLost reports whether the term is over.
func isLost(term *leader.Term) bool { return isClosed(term.Lost()) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
