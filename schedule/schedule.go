// Package schedule answers when a job is due, and, for a leader that has just
// begun, what became due while nobody led. It is pure: it has no clock, and the
// same question always has the same answer, in every task.
//
// # What a schedule means
//
// A spec has five fields (minute, hour, day of month, month, day of week), or
// six with seconds in front; or it is @hourly and the like, or @every and a
// duration. CRON_TZ=Zone in front sets the time zone. The fields are parsed by
// robfig/cron: lists, ranges, steps, names of months and days, ? for *. Sunday
// is 0 or 7. If a day of the month and a day of the week are both given, a day
// needs to match one of the two, as in every cron.
//
// Ticks are whole seconds. Every tick has its place on the wall clock of the
// zone, and usually that is all. Where the wall clock jumps:
//
//   - Forward, over a tick: the tick comes at the first instant after the jump.
//     Several that were jumped over, and one that is due there anyway, are one.
//   - Back, so that a tick's place is shown twice: a fixed time comes once, the
//     first time. An hourly or finer pattern comes both times, every real hour.
//
// A pattern is a * or a step or range in the minutes or seconds, or an hours
// field that has hours in a row by * or a range: "*/10 0-6 * * *",
// "30 * * * *". Everything else is a fixed time: "30 1 * * *",
// "0,30 1 * * *", "0 */2 * * *".
//
// The ticks of @every D are the multiples of D since the Unix epoch, in no
// time zone, so that every task computes the same ones.
//
// # Why robfig/cron computes the next tick only on a wall clock
//
// Its Next, given a zone, drops a fixed time that is jumped over and doubles
// one that comes twice; it looks five years ahead, and 2096-02-29 is followed
// by 2104-02-29. So it is asked in UTC, where no clock jumps, for the next place
// on the wall clock, and the rules above turn places into instants.
package schedule

import (
	"time"

	"github.com/robfig/cron/v3"
)

// Schedule is a series of instants. It never changes, and any number of
// goroutines may use it.
type Schedule struct {
	spec     string         // as in String, without the zone
	zone     *time.Location // whose wall clock the ticks are on
	every    int64          // seconds between ticks; 0: wall says when
	wall     *cron.SpecSchedule
	pattern  bool     // comes twice where the wall clock does
	fields   []string // seconds to day of week, as they were given
	warnings []string
}

// String returns the schedule in the form that stands in the lease's row: two
// schedules are the same if this is. Case, white space, and where the zone was
// set make no difference.
func (s *Schedule) String() string {
	if s.every > 0 {
		return s.spec
	}
	return "CRON_TZ=" + s.zone.String() + " " + s.spec
}

// Zone returns the time zone that the ticks are computed in.
func (s *Schedule) Zone() *time.Location { return s.zone }

// Warnings returns sentences on what a reader of the spec might not expect.
func (s *Schedule) Warnings() []string { return append([]string(nil), s.warnings...) }

// The years that RFC 3339 can write, 1 to 9999, in Unix time: a tick outside
// could not stand in the row. The first second of all is the zero time.Time.
const (
	firstInstant = -62_135_596_800 + 1
	lastInstant  = 253_402_300_799
)

// Next returns the first tick after the given instant, in UTC and a whole
// second, or the zero time if there is none before the year 10000. It is later
// than its argument, always.
func (s *Schedule) Next(after time.Time) time.Time {
	at := after.Unix() // rounded down, before 1970 as well
	if at >= lastInstant {
		return time.Time{}
	}
	tick, ok := s.from(at + 1)
	if !ok {
		return time.Time{}
	}
	return instant(tick)
}

func instant(unix int64) time.Time { return time.Unix(unix, 0).UTC() }

// from returns the first tick at or after the given second, in Unix time.
func (s *Schedule) from(at int64) (tick int64, ok bool) {
	at = max(at, firstInstant)
	if at > lastInstant {
		return 0, false
	}
	if s.every > 0 {
		tick = at - mod(at, s.every)
		if tick < at {
			tick += s.every
		}
	} else if tick, ok = s.fromWall(at); !ok {
		return 0, false
	}
	return tick, tick <= lastInstant
}

// mod returns the remainder of a/b that is not negative.
func mod(a, b int64) int64 { return ((a % b) + b) % b }

// fromWall walks the periods between the jumps of the wall clock: within each,
// the wall clock and time differ by the period's offset alone.
func (s *Schedule) fromWall(at int64) (tick int64, ok bool) {
	next := places{wall: s.wall}
	for at <= lastInstant {
		p := periodAt(s.zone, at)
		place := at + p.offset // what the wall clock shows at that second

		// 1. What the clock jumped over comes at the first instant after it.
		jumpedTo, shown := p.jump(s.zone, at)
		if at == p.start && shown < jumpedTo {
			if n, ok := next.from(shown); ok && n < jumpedTo {
				return at, true
			}
		}
		// 2. What it shows for the second time has come already, unless it is a pattern.
		if !s.pattern {
			place = max(place, shown)
		}
		// 3. The rest comes when it is shown.
		n, ok := next.from(place)
		if !ok {
			return 0, false
		}
		if !p.ends || n < p.end+p.offset {
			return n - p.offset, true
		}
		at = p.end
	}
	return 0, false
}

// places finds the places on the wall clock that match the fields. It remembers
// the last answer, because a walk over many periods asks for the same one.
type places struct {
	wall       *cron.SpecSchedule
	asked, got int64 // no place lies between the two
	valid      bool
}

// horizon is how far robfig/cron looks ahead, in years, beside the current one.
const horizon = 5

// from returns the first place at or after the given one, both as if the wall
// clock showed UTC.
func (p *places) from(at int64) (int64, bool) {
	if p.valid && p.asked <= at && at <= p.got {
		return p.got, true
	}
	if p.wall.Second == 1 { // only :00; robfig/cron would go there second by second
		at += mod(-at, 60)
	}
	after := instant(at - 1)
	// The rarest day, February 29, is at most eight years away.
	for range 2 {
		if n := p.wall.Next(after); !n.IsZero() {
			*p = places{wall: p.wall, asked: at, got: n.Unix(), valid: true}
			return p.got, true
		}
		after = time.Date(after.Year()+horizon, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return 0, false
}
