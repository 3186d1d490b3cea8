package runner

import (
	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// alarm is a timerfd on the boot clock: it fires at the thaw of a machine that
// was suspended past the instant, where poll's own timeout would wait for all
// of the rest.
type alarm struct{ fd int }

func newAlarm() alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		fd = -1 // out of descriptors: poll rechecks, which is slower but never wrong
	}
	return alarm{fd}
}

// poll waits for the instant (zero: for none) or for one of the descriptors.
func (a alarm) poll(until boottime.Instant, fds []unix.PollFd) {
	timeout := -1
	if a.fd < 0 {
		timeout = pollTimeout(until)
	} else {
		var spec unix.ItimerSpec // zero disarms, and so does setting forget an expiry that nobody read
		if until > 0 {
			spec.Value = unix.NsecToTimespec(int64(until))
		}
		if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
			timeout = pollTimeout(until)
		}
		fds = append(fds, unix.PollFd{Fd: int32(a.fd), Events: unix.POLLIN})
	}
	unix.Poll(fds, timeout) // EINTR is a wake-up like any other
}

func (a alarm) close() {
	if a.fd >= 0 {
		unix.Close(a.fd)
	}
}
