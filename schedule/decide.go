package schedule

import (
	"fmt"
	"time"
)

// The states of a row's last claimed tick.
const (
	StateRunning     = "running"     // claimed, and nobody wrote down how it ended
	StateDone        = "done"        // it ended with 0
	StateFailed      = "failed"      // it ended by itself, not with 0, or took too long
	StateInterrupted = "interrupted" // it was signalled by us, and did not end with 0
)

// Row is what a lease's row says about its schedule, as it was read when the
// term began, so before anything of this term was written.
type Row struct {
	Schedule string    // Schedule.String of who wrote Through; empty for a new lease
	Through  time.Time // every tick up to it is decided; zero if that was never written
	Tick     time.Time // the last claimed tick; zero if there is none
	State    string    // of that tick; empty if there is none
	Attempt  int       // how many attempts at that tick count so far
}

// Rules are what the user chose.
type Rules struct {
	CatchUp     time.Duration // how old a tick may be that is run late; 0: none is
	AtMostOnce  bool          // an interrupted run is not started again
	MaxAttempts int           // how often a tick is started in all, at least 1
}

// Plan is what a leader does first.
type Plan struct {
	// Again is the interrupted tick that runs first, and Attempt says which
	// attempt that will be. Zero if there is none.
	Again   time.Time
	Attempt int

	// Late is the missed tick that runs next. Zero if there is none.
	Late time.Time

	// Missed are the ticks that will not be run, to be reported now.
	Missed []Missed

	// Through is the instant up to which every tick is decided once Missed has
	// been reported: ticks after it are the leader's to run, Late the first.
	Through time.Time

	// Fresh says why nothing was caught up, [New] or [Changed]; it is empty if
	// the row's schedule is this one.
	Fresh string

	// Ahead is how far into the future ticks are decided by the row already:
	// some task's clock was wrong. Until then no tick comes due.
	Ahead time.Duration
}

// Missed are ticks that came due and will not run, for one reason.
type Missed struct {
	Latest time.Time // the latest of them
	Count  int       // how many there are, Latest included
	Exact  bool      // false: there are at least Count
	Reason string    // one of the Reason constants
}

// Why nothing is caught up.
const (
	New     = "new lease"
	Changed = "schedule changed"
)

// Why ticks are missed.
const (
	ReasonSuperseded = "a later tick runs instead"
	ReasonTooOld     = "older than the catch-up limit"
	ReasonAttempts   = "interrupted in its last attempt"
	ReasonAtMostOnce = "interrupted, and runs are started at most once"
)

// Decide answers what became of the ticks that a new leader finds undecided,
// at the start of its term. An error says what is wrong with the row; nothing
// may be launched then.
//
//  1. A run that was interrupted starts again, unless it may not: by the
//     guarantee, because it had all its attempts, or because it is too old. The
//     tick was claimed, so this holds although the schedule has changed since.
//  2. A new lease and a changed schedule start from now: what others scheduled
//     is nothing to catch up on.
//  3. Of the ticks since the row was last written, the latest runs, late, if it
//     is not too old. All others are missed.
//
// Every tick after Row.Through and not after now is in the plan exactly once.
func (s *Schedule) Decide(row Row, now time.Time, rules Rules) (Plan, error) {
	if err := row.check(); err != nil {
		return Plan{}, err
	}
	var plan Plan

	// 1. The interrupted run. If its state is running, its agent died.
	if row.State == StateRunning || row.State == StateInterrupted {
		reason := ""
		switch {
		case rules.AtMostOnce:
			reason = ReasonAtMostOnce
		case row.Attempt >= rules.MaxAttempts:
			reason = ReasonAttempts
		case tooOld(row.Tick, now, rules.CatchUp):
			reason = ReasonTooOld
		}
		if reason == "" {
			plan.Again, plan.Attempt = row.Tick, row.Attempt+1
		} else {
			plan.Missed = append(plan.Missed, Missed{Latest: row.Tick, Count: 1, Exact: true, Reason: reason})
		}
	}

	// 2. Starting from now.
	if row.Schedule == "" || row.Through.IsZero() {
		plan.Fresh = New
	} else if row.Schedule != s.String() {
		plan.Fresh = Changed
	}
	// A claimed tick stays behind us, even one that a fast clock claimed.
	decided := row.Tick
	if plan.Fresh == "" {
		decided = later(row.Through, row.Tick)
	}
	plan.Through = later(now, decided)
	plan.Ahead = max(0, decided.Sub(now))
	if plan.Fresh != "" {
		return plan, nil
	}

	// 3. Catching up.
	late, missed := s.Due(decided, now, rules.CatchUp)
	plan.Missed = append(plan.Missed, missed...)
	if !late.IsZero() {
		plan.Late = late
		plan.Through = late.Add(-time.Second) // late itself is decided when it is claimed
	}
	return plan, nil
}

// Due answers what to do about the ticks after through and not after now: the
// latest is to be run if it is not older than catchUp, all others are missed.
// Besides the start of a term, that is the question whenever the leader wakes
// up late, or the clock stepped forward.
func (s *Schedule) Due(through, now time.Time, catchUp time.Duration) (run time.Time, missed []Missed) {
	latest, count, exact := s.Latest(through, now)
	if count == 0 {
		return time.Time{}, nil
	}
	if tooOld(latest, now, catchUp) {
		return time.Time{}, []Missed{{Latest: latest, Count: count, Exact: exact, Reason: ReasonTooOld}}
	}
	if count == 1 {
		return latest, nil
	}
	before, _, _ := s.Latest(through, latest.Add(-time.Second))
	return latest, []Missed{{Latest: before, Count: count - 1, Exact: exact, Reason: ReasonSuperseded}}
}

// tooOld compares in whole seconds, as ticks are: a tick is not late in its own
// second.
func tooOld(tick, now time.Time, catchUp time.Duration) bool {
	return now.Truncate(time.Second).Sub(tick) > catchUp
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b.UTC().Truncate(time.Second)
	}
	return a.UTC().Truncate(time.Second)
}

func (r Row) check() error {
	switch r.State {
	case "", StateDone, StateFailed, StateRunning, StateInterrupted:
	default:
		return fmt.Errorf("the row's tick_state is %.40q, which is none of %s, %s, %s and %s", r.State, StateRunning, StateDone, StateFailed, StateInterrupted)
	}
	if r.Tick.IsZero() != (r.State == "") {
		return fmt.Errorf("the row's tick is %s but its tick_state is %.40q; they come together", r.Tick.Format(time.RFC3339), r.State)
	}
	if r.Attempt < 0 {
		return fmt.Errorf("the row's tick_attempt is %d", r.Attempt)
	}
	return nil
}
