package agent

import (
	"errors"
	"fmt"
	"time"

	"solojob/leader"
	"solojob/runner"
	"solojob/schedule"
)

// due is a run that is to be started, and how it is claimed.
type due struct {
	tick    time.Time // zero for an extra run
	attempt int
	again   bool
	asked   string // the operator's request for an extra run
	by      string // whose it is
}

// mayReplace reports whether what waits would be run by this term. Otherwise the
// run that goes on may as well come to its end.
func (c *cronTerm) mayReplace() bool { return c.run != nil && c.stops == 0 && !c.leaving }

// replace ends the run for what waits.
func (c *cronTerm) replace() {
	c.replaced, c.run.replaced = true, true
	c.run.run.Stop(c.Clock.Now().Add(c.StopGrace))
}

// carryOut claims a run and follows it, until everything of it is dead, and
// returns what is to be run next if that is already known. Alive says that the
// run could not be killed.
func (c *cronTerm) carryOut(d due) (next *due, alive bool) {
	decided := c.through
	claim := c.claimFor(d)
	switch err := c.take(claim); {
	case errors.Is(err, leader.ErrDecided):
		if decided.After(c.through) {
			c.through = decided
		}
		c.Log.Warn("claim refused: it was decided by somebody else", "tick", claim.Tick, "fence", c.fence)
		return nil, false
	case err != nil:
		return nil, false // told to stop, or the lease is lost
	}
	c.row = claim.Record
	tick := ""
	if d.asked == "" {
		tick = leader.Stamp(d.tick)
		c.Log.Info("tick claimed", "tick", tick, "attempt", d.attempt, "fence", c.fence, "late", lateness(c.clock.now().Sub(d.tick)))
	} else {
		c.Log.Info("extra run claimed", "by", by(d.by), "fence", c.fence)
	}

	result := runner.Result{Reason: runner.Stopped} // and not launched
	if c.ready(c.term) {
		run := c.launch(tick, d.attempt)
		c.run = c.watchman(c.term, run, true)
		c.setAlarm()
		dead := c.run.attend()
		c.run, c.hears = nil, false
		if !dead {
			return nil, true
		}
		result = run.Result()
	}
	if !result.Ended.Wall.IsZero() {
		c.overlap(c.clock.when(result.Ended.Boot))
	}
	return c.ended(d, result), false
}

// claimFor is the claim of a run, and what the row says once it is applied. An
// extra run leaves the tick alone.
func (c *cronTerm) claimFor(d due) leader.Claim {
	before, since := c.row, leader.Stamp(c.clock.now())
	claim := leader.Claim{Record: c.row, RunNow: d.asked}
	claim.Record.RunSince = &since
	claim.Record.Runs++
	switch {
	case d.asked != "":
		return claim
	case d.again:
		claim.Again = &before
	default:
		claim.Tick, c.through = leader.Stamp(d.tick), d.tick
	}
	r := &claim.Record
	r.Through, r.Tick, r.TickState, r.Attempt = leader.Stamp(c.through), leader.Stamp(d.tick), schedule.StateRunning, d.attempt
	return claim
}

// ended writes down how a run ended, and returns the next attempt at it if
// there is to be one in this term.
func (c *cronTerm) ended(d due, r runner.Result) *due {
	state, status := c.outcome(r), r.ExitStatus
	if r.Reason == runner.TimedOut {
		status = ExitTimeout
	}
	entry := Entry{Fence: c.fence, Number: c.row.Runs, Kind: KindTick, Attempt: d.attempt, State: state, ExitCode: status}
	if c.replaced {
		entry.Why = "replaced"
	}
	c.replaced, c.row.RunSince = false, new(string)
	if d.asked != "" {
		entry.Kind, entry.By = KindRunNow, d.by
		c.remember(entry, r)
		c.note(true)
		return nil
	}
	entry.Tick = leader.Stamp(d.tick)
	c.remember(entry, r)
	c.row.TickState = state
	if state == schedule.StateInterrupted && r.Reason == runner.Stopped {
		c.row.Attempt-- // a run that is drained does not count
	}
	if r.Launched || r.ExecErr != nil {
		c.row.ExitCode = &status
	}
	c.row.Through = leader.Stamp(c.through)
	c.record()
	if !interrupted(c.row) || c.stops > 0 || !c.valid() {
		return nil
	}
	plan, err := c.decide()
	if err != nil {
		c.Log.Error("an interrupted run can't be started again", "error", err.Error())
		return nil
	}
	return c.adopt(plan)
}

// outcome is the state of the tick whose run ended. A run is interrupted if we
// signalled it and it did not end well all the same; one that failed by itself,
// took too long or made room for the next is not, and not repeated.
func (c *cronTerm) outcome(r runner.Result) string {
	switch {
	case r.Reason == runner.TimedOut:
		return schedule.StateFailed
	case r.Launched && r.ExitStatus == 0:
		return schedule.StateDone
	case r.Reason == runner.ByItself || c.replaced:
		return schedule.StateFailed
	default:
		return schedule.StateInterrupted
	}
}

// record has the end of a run written into the row before anything else
// happens: a release that came first would have the next leader repeat it.
func (c *cronTerm) record() {
	written := make(chan error, 1)
	row := c.row
	go func() { written <- c.term.Record(row) }()
	for {
		select {
		case err := <-written:
			if err != nil {
				c.Log.Warn("the end of the run is not recorded", "error", err.Error(), "tick", row.Tick, "fence", c.fence)
			}
			return
		case b := <-c.term.Beats():
			c.beat(b)
		case sig := <-c.Stop:
			c.drain(c.term, sig)
		}
	}
}

func lateness(d time.Duration) string { return fmt.Sprint(d.Round(time.Millisecond)) }
