package runner

import (
	"time"

	"solojob/boottime"
)

// recheck is how often the clock is looked at where no timer runs on it: a
// timeout of poll(2) stands still while the machine is suspended.
const recheck = 50 * time.Millisecond

// pollTimeout is what to give poll(2), in milliseconds, to wake at the instant
// or before.
func pollTimeout(until boottime.Instant) int {
	if until == 0 {
		return -1
	}
	left := until.Sub(boottime.Now())
	if left <= 0 {
		return 0
	}
	return int(min(left, recheck)/time.Millisecond) + 1 // rounded up: no busy last millisecond
}
