package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"solojob/leader"
	"solojob/runner"
	"solojob/schedule"
)

// What happens to a tick that comes due while a run goes on.
const (
	OverlapSkip    = "skip"    // it is skipped
	OverlapQueue   = "queue"   // the latest waits for the end of the run
	OverlapReplace = "replace" // the run is ended, then it starts
)

// Cron is what [Agent.Cron] needs beyond the agent's options.
type Cron struct {
	Schedule *schedule.Schedule
	Rules    schedule.Rules
	Overlap  string // one of the Overlap constants
}

const (
	// maxSleep bounds how long a scheduler sleeps, so that a step of the clock
	// is noticed within seconds.
	maxSleep = 5 * time.Second
	// awake is how late a scheduler that was not frozen looks at the clock. A
	// tick that comes due in a longer gap counts as missed.
	awake = 2 * maxSleep
	// prompt is how late the alarm of a process that was not frozen rings.
	prompt = 500 * time.Millisecond
	// upcoming is how many ticks the log announces at the start.
	upcoming = 3
)

// Cron launches the job on each tick of a schedule, in the task that holds the
// lease. Each tick is decided once: it is claimed in the row before its run
// starts, or reported as skipped or missed.
func (a *Agent) Cron(ctx context.Context, c Cron) (int, error) {
	a.announce(c.Schedule)
	return a.compete(ctx, func(term *leader.Term) (int, bool) {
		return (&cronTerm{Agent: a, Cron: c, term: term}).serve()
	})
}

func (a *Agent) announce(s *schedule.Schedule) {
	for _, w := range s.Warnings() {
		a.Log.Warn("schedule", "schedule", s.String(), "warning", w)
	}
	var next []string
	for t := s.Next(a.Wall()); !t.IsZero() && len(next) < upcoming; t = s.Next(t) {
		next = append(next, leader.Stamp(t))
	}
	a.Log.Info("schedule", "schedule", s.String(), "next", next)
}

// cronTerm is one term on a schedule.
type cronTerm struct {
	*Agent
	Cron
	term  *leader.Term
	clock tickClock

	row     leader.Record // what the row says, or will with the next heartbeat
	through time.Time     // every tick up to it is decided
	decided bool          // row and through are ours to write
	looked  time.Time     // when we last saw which ticks are due
	run     *watchman     // the run going on, nil between runs
	asleep  bool          // the alarm rang late: it waits for news of the run

	claiming bool      // a claim is under way: what row and through say is not settled
	late     time.Time // the missed tick that runs after the interrupted one, zero for none
	waiting  time.Time // the tick that came due during the run and waits for its end
	replaced bool      // the run is being ended for what waits
	leaving  bool      // an operator asked for a handover: nothing new is started
	hurried  bool      // a handover has waited for one good moment already
	paused   bool      // the pause is entered into the history
}

// due is a run that is to be started, and how it is claimed.
type due struct {
	tick    time.Time // zero for an extra run
	attempt int
	again   bool
	asked   string // the operator's request for an extra run
	by      string // whose it is
}

func (c *cronTerm) serve() (status int, last bool) {
	c.clock = tickClock{local: c.Clock, wall: c.Wall}
	c.onBeat, c.onTick = c.heard, c.tick
	defer func() {
		c.alarm.Stop()
		c.onBeat, c.onTick = nil, nil
	}()
	next, err := c.open()
	if err != nil {
		c.Log.Error("the row's schedule is damaged: nothing is launched in this term", "error", err.Error(), "fence", c.term.Fence)
	}
	for c.stops == 0 && c.holds() {
		if c.departs() {
			break
		}
		switch {
		case err != nil:
		case c.wishes.Paused:
			c.pause()
			if next != nil && !next.again {
				next = nil // it came due, and is skipped with the others
			}
		case next == nil && !c.leaving:
			c.paused = false
			next = c.next()
		}
		if next == nil || c.wishes.Paused || c.leaving {
			c.idle()
			continue
		}
		var alive bool
		if next, alive = c.carryOut(*next); alive {
			return exitUnkillable, true
		}
	}
	c.release(c.term)
	return ExitOK, c.stops > 0
}

// holds reports whether the lease is still ours. A scheduler that was frozen past
// its deadline decides nothing before it has heard of the loss.
func (c *cronTerm) holds() bool {
	for !isLost(c.term) {
		if c.Clock.Now() < c.until {
			return true
		}
		select {
		case b := <-c.term.Beats():
			c.beat(b)
		case <-c.term.Lost():
		case s := <-c.Stop:
			c.drain(c.term, s)
		}
	}
	return false
}

// departs reports whether it is time to release for a handover that is asked for.
// An operator's request is the end of all launches: what comes due meanwhile is
// for the next leader, who runs it late.
func (c *cronTerm) departs() bool {
	_, now := c.handover()
	asked := c.wishes.Handover == c.Elector.Owner()
	ready := c.yield(c.term)
	c.leaving = asked && c.wishes.why != ""
	if !ready || !now && !asked && !c.goodMoment() {
		return false
	}
	if asked {
		c.recordRequest("handed over", c.wishes.HandoverBy)
	}
	c.wishes.tried[c.wishes.announced] = true
	return true
}

// shortHandover is what a handover to a standby that looks often takes at most.
const shortHandover = 400 * time.Millisecond

// goodMoment reports whether a handover now would be over before the next tick,
// so that no tick waits for it. What is due already waits in any case. Where
// ticks leave no such moment, the one after the next run has to do.
func (c *cronTerm) goodMoment() bool {
	next := c.Schedule.Next(c.through)
	wait := next.Sub(c.clock.now())
	good := next.IsZero() || wait > shortHandover || wait <= 0 || c.hurried
	c.hurried = true
	return good
}

// recordRequest enters into the history what an operator asked for, under a fence
// of its own.
func (c *cronTerm) recordRequest(what, who string) {
	c.row.Runs++
	if c.take(leader.Claim{Record: c.row}) == nil {
		c.remember(Entry{Fence: c.fence, Number: c.row.Runs, Kind: KindRequest, State: schedule.StateDone, Why: what, By: by(who)}, runner.Result{})
	}
}

// take is claim, during which what the row says is not settled.
func (c *cronTerm) take(claim leader.Claim) error {
	c.claiming = true
	defer func() { c.claiming = false }()
	return c.claim(c.term, claim)
}

// open decides what a new leader finds undecided.
func (c *cronTerm) open() (*due, error) {
	c.fence = c.term.Fence
	c.beat(<-c.term.Beats()) // the acquisition is the first
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

// valid reports whether this term may still decide anything.
func (c *cronTerm) valid() bool { return !isLost(c.term) && c.Clock.Now() < c.until }

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

// note has the next heartbeat write what is decided.
func (c *cronTerm) note(soon bool) {
	c.row.Through = leader.Stamp(c.through)
	c.term.Note(c.row, soon)
}

// heard takes in a heartbeat: the store's date comes with it.
func (c *cronTerm) heard(b leader.Beat) {
	if c.clock.set(b.Row.Date, b.Asked) {
		if c.clock.skew != 0 {
			c.Log.Warn("this task's clock is wrong: ticks follow the store's", "off_by", c.clock.skew.String())
		} else {
			c.Log.Info("this task's clock is right again")
		}
	}
	if !c.decided || c.claiming {
		return
	}
	c.advance(c.clock.now())
	c.note(false)
	c.setAlarm()
	if c.run == nil {
		return
	}
	if why, now := c.handover(); why != "" && now {
		c.yield(c.term)
		c.run.run.Stop(c.Clock.Now().Add(c.StopGrace))
	}
	switch {
	case c.wishes.RunNow == "" || c.Overlap == OverlapQueue:
	case c.Overlap == OverlapReplace:
		if c.mayReplace() {
			c.replace()
		}
	default:
		c.refuseExtra(reasonOverlap)
	}
}

// mayReplace reports whether what waits would be run by this term. Otherwise the
// run that goes on may as well come to its end.
func (c *cronTerm) mayReplace() bool { return c.run != nil && c.stops == 0 && !c.leaving }

// replace ends the run for what waits.
func (c *cronTerm) replace() {
	c.replaced, c.run.replaced = true, true
	c.run.run.Stop(c.Clock.Now().Add(c.StopGrace))
}

// setAlarm wakes the term when the next tick is due, or sooner.
func (c *cronTerm) setAlarm() {
	if c.asleep {
		return
	}
	at := c.Clock.Now().Add(maxSleep)
	if !c.decided || !c.valid() { // there is nothing to decide
		c.alarm.Set(c.Clock, at)
		return
	}
	if yield := c.wishes.yieldAt; yield > c.Clock.Now() {
		at = min(at, yield)
	}
	if next := c.Schedule.Next(c.through); !next.IsZero() && c.waiting.IsZero() && !c.leaving {
		at = min(at, c.clock.instant(next))
	}
	c.alarm.Set(c.Clock, at)
}

// tick is the alarm.
func (c *cronTerm) tick() {
	if c.clock.stepped() {
		c.note(true) // its reply has the store's date
	}
	switch now := c.Clock.Now(); {
	case c.run == nil:
	case !c.asleep && now.Sub(c.alarm.At()) > prompt:
		// While this process was frozen the run may have ended, before these
		// ticks: what its supervisor has to say about that is heard first.
		c.alarm.Set(c.Clock, now.Add(prompt))
		c.asleep = true
	default:
		c.asleep = false
		if !c.run.isOver() {
			c.overlap(c.clock.now())
		}
	}
	c.setAlarm()
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

// idle waits for the next tick.
func (c *cronTerm) idle() {
	c.setAlarm()
	select {
	case b := <-c.term.Beats():
		c.beat(b)
	case <-c.term.Lost():
	case sig := <-c.Stop:
		c.drain(c.term, sig)
	case <-c.alarm.C():
		c.tick()
	}
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
		c.run, c.asleep = nil, false
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

func lateness(d time.Duration) string { return fmt.Sprint(d.Round(time.Millisecond)) }
