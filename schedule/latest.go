package schedule

import "time"

// countable is up to how many ticks Latest counts. A log line needs no better
// number, and counting them takes less than a heartbeat on a quarter of a CPU.
const countable = 10_000

// Latest returns the latest tick after one instant and not after another, and
// how many ticks there are between them. If exact is false, there are at least
// that many. Without a tick, latest is the zero time.
//
// It takes some dozens of steps, whether the two are a second apart or a
// century, and, to count, one for each tick up to a fixed number.
func (s *Schedule) Latest(after, until time.Time) (latest time.Time, count int, exact bool) {
	low, high := min(after.Unix(), lastInstant), min(until.Unix(), lastInstant)
	if s.every > 0 {
		return s.latestMultiple(low, high)
	}
	first, ok := s.from(low + 1)
	if !ok || first > high {
		return time.Time{}, 0, true
	}
	last := s.last(first, high)

	count = 1
	tick := first
	for tick < last && count < countable {
		if tick, ok = s.from(tick + 1); !ok {
			break
		}
		count++
	}
	return instant(last), count, tick == last
}

func (s *Schedule) latestMultiple(low, high int64) (latest time.Time, count int, exact bool) {
	first, ok := s.from(low + 1)
	if !ok || first > high {
		return time.Time{}, 0, true
	}
	last := high - mod(high, s.every)
	return instant(last), int((last-first)/s.every) + 1, true
}

// last returns the last tick up to high, given an earlier one, or the same. The
// window before high is doubled until it has a tick; then it is halved.
func (s *Schedule) last(known, high int64) int64 {
	for window := int64(1); high-window > known; window *= 2 {
		if tick, ok := s.from(high - window + 1); ok && tick <= high {
			known = tick
			break
		}
	}
	// known is a tick; no tick lies between none and high.
	for none := high; known < none; {
		middle := known + (none-known+1)/2
		if tick, ok := s.from(middle); ok && tick <= high {
			known = tick
		} else {
			none = middle - 1
		}
	}
	return known
}
