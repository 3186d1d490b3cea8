package boottime

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Now reads CLOCK_BOOTTIME.
func Now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("boottime: CLOCK_BOOTTIME can't be read: %v", err)) // in Linux since 2.6.39; nothing is safe without it
	}
	return Instant(ts.Nano())
}

// until waits on a timerfd of the clock itself: it fires at the thaw of a
// machine that was suspended past the instant, where Go's timers would wait
// for the whole rest.
func until(at Instant) (<-chan struct{}, func()) {
	c := make(chan struct{})
	if Now() >= at {
		close(c)
		return c, func() {}
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return poll(at) // out of file descriptors: slower, never wrong
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		unix.Close(fd)
		return poll(at)
	}
	f := os.NewFile(uintptr(fd), "timerfd")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		var expirations [8]byte
		if _, err := f.Read(expirations[:]); err == nil {
			close(c)
		}
	}()
	return c, sync.OnceFunc(func() {
		f.Close() // wakes the reader
		<-gone
	})
}
