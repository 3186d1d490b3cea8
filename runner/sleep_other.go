//go:build !linux

package runner

import (
	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// alarm has no timer of the boot clock to use here, so it rechecks.
type alarm struct{}

func newAlarm() alarm { return alarm{} }

// poll waits for the instant (zero: for none) or for one of the descriptors.
func (alarm) poll(until boottime.Instant, fds []unix.PollFd) {
	unix.Poll(fds, pollTimeout(until))
}

func (alarm) close() {}
