package agent

import (
	"time"

	"solojob/boottime"
	"solojob/leader"
)

const (
	// maxSkew is how far this task's clock may be from the store's before it is
	// corrected. The store's dates have whole seconds, and a reply takes a while.
	maxSkew = 2 * time.Second
	// halfSecond is the mean of what a date in whole seconds leaves out.
	halfSecond = 500 * time.Millisecond
)

// tickClock is the time of day by which ticks come due. Between two heartbeats
// it runs on the local clock that never steps; at each it is set again: by this
// task's clock, or where that is wrong by more than maxSkew, by the date of the
// store's reply. So a task with a fast clock claims no tick of the future, and
// a step of the clock is judged before it has any effect.
type tickClock struct {
	local leader.Clock
	wall  func() time.Time

	at   boottime.Instant // when it was set
	time time.Time        // to what
	skew time.Duration    // of this task's clock, 0 within the tolerance
	held time.Duration    // how long the reply may have been held up by which it was set
}

// set sets the clock by a reply of the store, and reports whether the correction
// begins, ends or changes. The reply's date was written after the store was
// asked, and is as old as the reply has been held up since: by the network, or
// because this task was frozen. So it only bounds the time of day. A step of
// this task's clock that lies within these bounds is not believed before a
// reply that came faster. A zero date, of a reply that had none, changes
// nothing of what is known.
func (c *tickClock) set(date time.Time, asked boottime.Instant) (changed bool) {
	wall, at := c.wall(), c.local.Now()
	skew := c.skew
	if !date.IsZero() {
		t := wall.Add(-skew)
		if set := !c.time.IsZero(); set && c.stepped() {
			t = c.when(at)
		}
		earliest := date.Add(halfSecond)
		if latest := earliest.Add(at.Sub(asked)); t.After(latest) {
			t = latest
		}
		if t.Before(earliest) {
			t = earliest
		}
		if skew = wall.Sub(t); skew.Abs() <= maxSkew {
			skew = 0
		}
	}
	changed = (skew - c.skew).Abs() > maxSkew
	c.at, c.time, c.skew, c.held = at, wall.Add(-skew), skew, at.Sub(asked)
	return changed
}

// now is the time of day, in UTC.
func (c *tickClock) now() time.Time { return c.when(c.local.Now()) }

// when is the time of day of an instant.
func (c *tickClock) when(at boottime.Instant) time.Time { return c.time.Add(at.Sub(c.at)).UTC() }

// instant is when the local clock will show that a time of day has come.
func (c *tickClock) instant(t time.Time) boottime.Instant {
	return c.at.Add(t.Sub(c.time))
}

// stepped reports whether this task's clock was set since the last heartbeat.
func (c *tickClock) stepped() bool {
	return c.wall().Sub(c.now().Add(c.skew)).Abs() > maxSkew
}
