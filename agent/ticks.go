package agent

import (
	"errors"
	"fmt"
	"time"

	"solojob/leader"
	"solojob/schedule"
)

// open decides what a new leader finds undecided.
func (c *cronTerm) open() (*due, error) {
	c.fence = c.term.Fence
	c.beat(<-c.term.Beats()) // the acquisition is the first

	if c.clock.held > maxSkew { // the time of day is not known well: the next reply tells
		c.term.Note(leader.Record{}, true)
		if c.idle(); !c.valid() {
			return nil, nil
		}
	}
	c.row = c.term.Row.Record
	c.row.RunSince = nil
	c.looked = c.clock.now()
	plan, err := c.decide()
	if err != nil {
		return nil, err
	}
	if plan.Ahead > maxSkew {
		c.Log.Warn("ticks are decided into the future: none comes due before", "through", c.row.Through, "ahead", plan.Ahead.String())
	}
	c.decided = true
	if plan.Fresh == schedule.Changed {
		c.Log.Info("schedule changed", "from", c.row.Schedule, "schedule", c.Schedule.String(), "fence", c.fence)
	}
	c.findLost()
	return c.adopt(plan), nil
}

// findLost enters the run into the history that was going on when the last
// leader died or lost the lease. An extra run is not started again, so this is
// all that becomes of it.
func (c *cronTerm) findLost() {
	before, e := c.term.Before, Entry{Fence: c.term.Row.RunFence, Number: c.row.Runs, Kind: KindTick, Tick: c.row.Tick, Attempt: c.row.Attempt}
	switch {
	case e.Fence == 0:
	case c.row.TickState == schedule.StateRunning:
		c.rememberLost(e, before)
	case before != nil && before.Record.RunSince != nil && *before.Record.RunSince != "":
		e.Kind, e.Tick, e.Attempt = KindRunNow, "", 1
		c.Log.Warn("extra run interrupted: it is not started again", "run_fence", e.Fence, "fence", c.fence)
		c.rememberLost(e, before)
	}
}

// decide asks what is to be done given the row.
func (c *cronTerm) decide() (schedule.Plan, error) {
	row, err := scheduleRow(c.row)
	if err != nil {
		return schedule.Plan{}, err
	}
	return c.Schedule.Decide(row, c.clock.now(), c.Rules)
}

// adopt makes a plan the state of the term.
func (c *cronTerm) adopt(plan schedule.Plan) *due {
	c.through, c.late, c.waiting = plan.Through.Truncate(time.Second), time.Time{}, time.Time{}
	c.row.Schedule = c.Schedule.String()
	for _, m := range plan.Missed {
		if c.wishes.Paused && m.Reason == schedule.ReasonSuperseded {
			m.Reason = c.pausedBy() // none of them runs
			c.logMissed("tick skipped", m)
			continue
		}
		c.logMissed("tick missed", m)
	}
	if plan.Again.IsZero() && interrupted(c.row) {
		c.row.TickState = schedule.StateFailed // it is not started again
	}
	c.note(true)
	switch {
	case !plan.Again.IsZero():
		c.late, c.waiting = plan.Late, plan.Late
		return &due{tick: plan.Again, attempt: plan.Attempt, again: true}
	case !plan.Late.IsZero():
		return &due{tick: plan.Late, attempt: 1}
	default:
		return nil
	}
}

// next is the tick that is due now, between two runs.
func (c *cronTerm) next() *due {
	now := c.clock.now()
	if late := c.late; !late.IsZero() {
		c.late, c.waiting = time.Time{}, time.Time{}
		if c.Overlap == OverlapSkip {
			return &due{tick: late, attempt: 1} // what came after it came during the run
		}
	}
	limit, message := time.Duration(1<<63-1), "tick missed"
	switch {
	case !c.waiting.IsZero():
		message = "tick skipped" // all but the latest that came during the run
	case now.Sub(c.looked) > awake:
		limit = c.Rules.CatchUp // frozen, or the clock stepped forward
	}
	c.looked, c.waiting = now, time.Time{}
	run, missed := c.Schedule.Due(c.through, now, limit)
	for _, m := range missed {
		c.logMissed(message, m)
	}
	if !run.IsZero() {
		return &due{tick: run, attempt: 1}
	}
	c.advance(now)
	if id := c.wishes.RunNow; id != "" {
		c.wishes.RunNow = ""
		return &due{attempt: 1, asked: id, by: c.wishes.RunBy}
	}
	return nil
}

// pause decides what comes due while the lease is paused.
func (c *cronTerm) pause() {
	c.looked, c.late, c.waiting = c.clock.now(), time.Time{}, time.Time{}
	c.skip(c.looked, c.pausedBy())
	c.refuseExtra("paused")
	if !c.paused {
		c.paused = true
		c.Log.Info("paused", "by", by(c.wishes.PausedBy), "fence", c.fence)
		c.recordRequest("paused", c.wishes.PausedBy)
	}
}

func (c *cronTerm) pausedBy() string { return "paused by " + by(c.wishes.PausedBy) }

// skip decides that no tick up to now runs.
func (c *cronTerm) skip(now time.Time, reason string) {
	latest, count, exact := c.Schedule.Latest(c.through, now)
	if count == 0 {
		return
	}
	c.through = latest
	c.logMissed("tick skipped", schedule.Missed{Latest: latest, Count: count, Exact: exact, Reason: reason})
	c.note(true)
}

// refuseExtra answers a request for an extra run that can't be had.
func (c *cronTerm) refuseExtra(reason string) {
	if c.wishes.RunNow != "" {
		c.Log.Warn("request to run now is refused", "reason", reason, "by", by(c.wishes.RunBy))
		c.wishes.RunNow = ""
		c.term.Answer()
	}
}

// advance moves through over the time in which no tick is due.
func (c *cronTerm) advance(now time.Time) {
	now = now.Truncate(time.Second)
	if next := c.Schedule.Next(c.through); c.waiting.IsZero() && now.After(c.through) && (next.IsZero() || next.After(now)) {
		c.through = now
	}
}

// overlap decides the ticks that have come due while a run went on, by now. One
// that was frozen past its deadline leaves them to the next leader.
func (c *cronTerm) overlap(now time.Time) {
	c.looked = now
	if !c.valid() {
		return
	}
	if !c.late.IsZero() {
		return // an interrupted run comes first, then the missed tick, then these
	}
	if c.Overlap == OverlapSkip {
		c.skip(now, reasonOverlap)
		return
	}
	latest, count, _ := c.Schedule.Latest(c.through, now)
	if count == 0 {
		return
	}
	c.waiting = latest
	if c.Overlap == OverlapReplace && c.mayReplace() {
		c.replace()
	}
}

const reasonOverlap = "the last run goes on"

func (c *cronTerm) logMissed(message string, m schedule.Missed) {
	attrs := []any{"tick", leader.Stamp(m.Latest), "count", m.Count, "reason", m.Reason, "fence", c.fence}
	if !m.Exact {
		attrs = append(attrs, "or_more", true)
	}
	c.Log.Warn(message, attrs...)
}

// interrupted reports whether the row's last run did not come to its end.
func interrupted(r leader.Record) bool {
	return r.TickState == schedule.StateRunning || r.TickState == schedule.StateInterrupted
}

// scheduleRow is the row as the schedule reads it.
func scheduleRow(r leader.Record) (schedule.Row, error) {
	through, err := unstamp("through", r.Through)
	tick, err2 := unstamp("tick", r.Tick)
	return schedule.Row{Schedule: r.Schedule, Through: through, Tick: tick, State: r.TickState, Attempt: r.Attempt}, errors.Join(err, err2)
}

// unstamp reads the attribute name; an empty one is the zero time.
func unstamp(name, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("the row's %s is %.40q, which is no time like 2026-01-02T03:04:05Z", name, s)
	}
	return t.UTC(), nil
}
