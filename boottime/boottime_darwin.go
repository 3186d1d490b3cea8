package boottime

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Now reads CLOCK_MONOTONIC, which on macOS counts the time asleep
// (clock_gettime(3)).
func Now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("boottime: CLOCK_MONOTONIC can't be read: %v", err))
	}
	return Instant(ts.Nano())
}

func until(at Instant) (<-chan struct{}, func()) { return poll(at) }
