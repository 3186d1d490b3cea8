package runner

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// sleeper is the one place where a loop of ours waits. It ends the wait for
// data on a pipe, for an instant on the boot clock, for a child that ended,
// and for a call of wake.
type sleeper struct {
	alarm     alarm
	bell      [2]int // a pipe that wake writes to
	children  chan os.Signal
	forwarded chan struct{} // closed when the goroutine that turns SIGCHLD into wake has ended

	mu     sync.Mutex
	closed bool
}

func newSleeper() (*sleeper, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	s := &sleeper{
		alarm:     newAlarm(),
		bell:      [2]int{r, w},
		children:  make(chan os.Signal, 1), // one that waits is enough: all children are looked at
		forwarded: make(chan struct{}),
	}
	signal.Notify(s.children, syscall.SIGCHLD)
	go func() {
		defer close(s.forwarded)
		for range s.children {
			s.wake()
		}
	}()
	return s, nil
}

// wake ends the present sleep, or the next one at once. It never blocks, and
// may be called by any goroutine at any time, even after close.
func (s *sleeper) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		unix.Write(s.bell[1], []byte{0}) // a full pipe wakes as well
	}
}

// sleep returns when something may have happened; zero means no instant. It
// doesn't say what: its caller looks at everything.
func (s *sleeper) sleep(until boottime.Instant, pipes ...unix.PollFd) {
	fds := append(pipes, unix.PollFd{Fd: int32(s.bell[0]), Events: unix.POLLIN})
	s.alarm.poll(until, fds)
	var rung [64]byte
	for {
		if n, err := unix.Read(s.bell[0], rung[:]); n < len(rung) && err != syscall.EINTR {
			return
		}
	}
}

// close frees everything. No sleep may follow.
func (s *sleeper) close() {
	signal.Stop(s.children)
	close(s.children)
	<-s.forwarded
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	unix.Close(s.bell[0])
	unix.Close(s.bell[1])
	s.alarm.close()
}

// pipe makes a pipe both of whose ends are non-blocking and close-on-exec: no
// job can hold an end open.
func pipe() (r, w int, err error) {
	var fds [2]int
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(fds[:]); err != nil {
		return 0, 0, fmt.Errorf("a pipe can't be made: %w", err)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			return 0, 0, fmt.Errorf("a pipe can't be made non-blocking: %w", err)
		}
	}
	return fds[0], fds[1], nil
}
