package schedule

import (
	"math"
	"time"
)

// period is a time between two changes of a zone's rules. On its wall clock
// shows a second that is offset more than Unix time.
type period struct {
	start, end int64 // in Unix time, end excluded
	ends       bool  // false: end means nothing
	offset     int64 // seconds east of UTC
}

func periodAt(zone *time.Location, at int64) period {
	t := time.Unix(at, 0).In(zone)
	_, offset := t.Zone()
	p := period{start: math.MinInt64, offset: int64(offset)}
	start, end := t.ZoneBounds() // zero where there is no bound
	if !start.IsZero() {
		p.start = start.Unix()
	}
	if !end.IsZero() {
		p.end, p.ends = end.Unix(), true
		if p.end <= at {
			// On December 31 of a leap year that is beyond a zone's table, Go says
			// that the period ended on the 365th day of the year, the day before.
			// The zone's rule goes on at least to the end of the year, in UTC.
			p.end = at - mod(at, secondsPerDay) + secondsPerDay
		}
	}
	return p
}

const secondsPerDay = 24 * 60 * 60

// widest is more than two offsets ever differed by: the zone database has local
// mean times from -15:57 (Manila) to +15:03 (Juneau).
const widest = 32 * 60 * 60

// jump returns the place to which the wall clock jumped when the period began,
// and the place up to which all places were done with by then: the latest shown
// until then, or, for a pattern, the one shown just before. When the second at
// is so far into the period that neither matters, it spares the search.
func (p period) jump(zone *time.Location, at int64, pattern bool) (to, shown int64) {
	if p.start == math.MinInt64 || at-p.start > widest {
		return math.MinInt64, math.MinInt64
	}
	to = p.start + p.offset
	before := periodAt(zone, p.start-1)
	shown = p.start + before.offset
	if pattern {
		return to, shown
	}
	for before.start != math.MinInt64 && before.start > p.start-widest {
		end := before.start
		before = periodAt(zone, end-1)
		shown = max(shown, end+before.offset)
	}
	return to, shown
}
