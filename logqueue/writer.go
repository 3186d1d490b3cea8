package logqueue

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// step is how long the writer waits for room before it looks whether it
	// should give up. It costs something only while standard error is blocked.
	step = 50 * time.Millisecond

	// stopWithin is how long Close waits for a writer that it told to give up.
	stopWithin = 4 * step

	// chunk is PIPE_BUF of Linux. poll(2) calls a pipe writable when that much
	// fits, so that a write of no more does not block; and it isn't torn apart
	// (pipe(7)). macOS has 512, where longer lines may block after all.
	chunk = 4096
)

// write writes lines until the queue is closed and empty, or abandoned.
func (q *Queue) write(fd int) {
	defer close(q.done)
	w := writer{fd: fd, abandon: q.abandon}
	unsaid := 0 // lines that are missing and of which no line told yet
	for {
		next, any, closed := q.take()
		switch {
		case any:
			unsaid += next.lost
			if unsaid > 0 && w.line(q.dropLine(unsaid)) {
				unsaid = 0
			}
			if next.text != nil && !w.line(next.text) {
				unsaid++
				q.dropped.Add(1)
			}
		case closed:
			return
		default:
			<-q.wake
		}
		select {
		case <-q.abandon:
			return
		default:
		}
	}
}

// writer writes lines to a file descriptor of which it knows nothing.
type writer struct {
	fd      int
	abandon <-chan struct{}
	torn    bool // a line was written in part only
}

// line writes a whole line and waits as long as that takes. It reports whether
// it got through.
func (w *writer) line(text []byte) bool {
	if w.torn {
		text = append([]byte{'\n'}, text...) // the torn one ends here
	}
	for len(text) > 0 {
		if !w.await() {
			return false
		}
		n, err := unix.Write(w.fd, text[:min(len(text), chunk)])
		if n > 0 {
			text = text[n:]
			w.torn = len(text) > 0
		}
		switch {
		case n > 0, errors.Is(err, unix.EINTR):
		case err == nil, errors.Is(err, unix.EAGAIN):
			// Somebody set O_NONBLOCK, and somebody else was quicker to fill the
			// room; or the file says it has room when it hasn't: don't spin.
			time.Sleep(step / 10)
		default:
			return false
		}
	}
	return true
}

// await waits until the file descriptor takes a write, or fails it at once. It
// reports false when the queue has been abandoned before.
func (w *writer) await() bool {
	for {
		select {
		case <-w.abandon:
			return false
		default:
		}
		fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, int(step.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil, n > 0: // errors are for write(2) to tell
			return true
		}
	}
}
