package agent

import (
	"context"
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
	// hearing is how long an alarm waits for news of the run before it decides.
	hearing = 100 * time.Millisecond
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
	hears   bool          // the alarm rang, and waits for news of the run

	claiming bool      // a claim is under way: what row and through say is not settled
	late     time.Time // the missed tick that runs after the interrupted one, zero for none
	waiting  time.Time // the tick that came due during the run and waits for its end
	replaced bool      // the run is being ended for what waits
	leaving  bool      // an operator asked for a handover: nothing new is started
	hurried  bool      // a handover has waited for one good moment already
	paused   bool      // the pause is entered into the history
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

// valid reports whether this term may still decide anything.
func (c *cronTerm) valid() bool { return !isLost(c.term) && c.Clock.Now() < c.until }

// note has the next heartbeat write what is decided.
func (c *cronTerm) note(soon bool) {
	if !c.decided {
		c.term.Note(leader.Record{}, soon)
		return
	}
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

// setAlarm wakes the term when the next tick is due, or sooner.
func (c *cronTerm) setAlarm() {
	if c.hears {
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
	switch {
	case c.run == nil:
	case !c.hears:
		// If this process was frozen, the run may have ended meanwhile, before
		// these ticks: what its supervisor has to say about that is heard first.
		c.alarm.Set(c.Clock, c.Clock.Now().Add(hearing))
		c.hears = true
	default:
		c.hears = false
		if !c.run.isOver() {
			c.overlap(c.clock.now())
		}
	}
	c.setAlarm()
}

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
