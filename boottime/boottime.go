// Package boottime reads the one clock by which solojob judges ownership:
// a local clock that never steps and that goes on counting while the machine
// is suspended.
//
// Go's own monotonic clock stops during a suspend (on Linux it is
// CLOCK_MONOTONIC), so a holder that slept through its lease would believe it
// still held it. CLOCK_BOOTTIME (clock_gettime(2)) counts that time. On macOS
// CLOCK_MONOTONIC does.
//
// The clock is one for the whole machine: an Instant that the agent sends to
// its supervisor means the same there. It says nothing on another machine.
package boottime

import "time"

// Instant is a reading of the clock: nanoseconds since the machine started.
// The zero Instant is earlier than every reading.
type Instant int64

// Add returns the instant d after i.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Before reports whether i is earlier than j.
func (i Instant) Before(j Instant) bool { return i < j }

// Clock is the machine's clock. The zero value is ready for use.
type Clock struct{}

// Now reads the clock.
func (Clock) Now() Instant { return Now() }

// Until returns a channel that is closed once the clock has reached at (at
// once, if it already has), and a function that gives the wait up and frees
// what it holds. The function must be called, may be called more than once,
// and returns after nothing of the wait is left running.
func (Clock) Until(at Instant) (<-chan struct{}, func()) { return until(at) }

// Timer waits for one instant after another. It belongs to one goroutine.
type Timer struct {
	at   Instant
	c    <-chan struct{}
	stop func()
}

// C is closed once the instant of the last Set has come; it is nil, which
// blocks for ever, when none is set.
func (t *Timer) C() <-chan struct{} { return t.c }

// At is the instant that the timer is set to, zero when none is.
func (t *Timer) At() Instant { return t.at }

// Set makes the timer wait for at on the given clock, and forget what it was
// set to before.
func (t *Timer) Set(clock interface {
	Until(Instant) (<-chan struct{}, func())
}, at Instant) {
	t.Stop()
	t.at = at
	t.c, t.stop = clock.Until(at)
}

// Stop unsets the timer.
func (t *Timer) Stop() {
	if t.stop != nil {
		t.stop()
	}
	*t = Timer{}
}
