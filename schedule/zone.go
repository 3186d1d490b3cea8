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
// mean times from -15:57 (Manila) to +15:03 (Juneau). So, after that time, the
// wall clock shows nothing that it showed before a jump; and no zone's clock
// ever jumped twice within it.
const widest = 32 * 60 * 60

// jump returns the place to which the wall clock jumped when the period began,
// and the place that it would have shown: all before that had been shown. When
// the second at is so far into the period that neither matters any more, it
// spares the search.
func (p period) jump(zone *time.Location, at int64) (to, shown int64) {
	if p.start == math.MinInt64 || at-p.start > widest {
		return math.MinInt64, math.MinInt64
	}
	return p.start + p.offset, p.start + periodAt(zone, p.start-1).offset
}
