// Package logqueue keeps the log from ever holding up the one who logs.
//
// Standard error may block for as long as it likes: a log driver in blocking
// mode that can't deliver, a pipe that nobody reads, a terminal stopped with
// Ctrl-S. A heartbeat that waited for it would cost the lease. So lines go into
// a bounded queue, which never waits, and one goroutine writes them out, which
// may. What doesn't fit is dropped, counted, and, when the writer gets through
// again, said in a line of its own at the place of the gap.
//
// The file descriptor is shared with the job and with everyone else who writes
// to the container's log. Hence:
//
//   - O_NONBLOCK is never set (it belongs to the open file, not to the
//     descriptor, and would make the job's own writes fail); os.File, which sets
//     and clears it, is not used. If somebody else has set it, that is no error.
//   - A line is one write(2) of its own, so that up to PIPE_BUF bytes it never
//     mixes with the job's output (pipe(7)).
//   - A closed pipe, a full disk or a bad descriptor loses lines and nothing
//     else: it never ends the process. (Go ends a process for EPIPE on 1 and 2
//     in os.File only; a write(2) of one's own just fails, see os/signal.)
package logqueue

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// capacity is the memory for lines that wait: at some 250 bytes a line,
	// hours of an agent that renews its lease in vain.
	capacity = 256 << 10

	// overhead is what a line costs beside its text, so that a flood of short
	// lines is bounded as well.
	overhead = 64
)

// DroppedMessage is the message of the line that says how many lines are
// missing at its place, in its attribute "lines".
const DroppedMessage = "log lines dropped"

// Queue is the way of log lines to a file descriptor. Its methods may be used
// from any goroutine.
type Queue struct {
	handler  slog.Handler
	dropLine func(lines int) []byte
	capacity int

	mu     sync.Mutex
	lines  []line
	size   int  // of lines, overhead included
	lost   int  // dropped since the last line that was taken in
	closed bool // nothing is taken in any more
	wake   chan struct{}

	dropped atomic.Int64
	abandon chan struct{} // closed: what is left is not worth waiting for
	done    chan struct{} // closed: the writer has ended
}

// line is one line that waits, and how many were dropped just before it.
type line struct {
	text []byte
	lost int
}

// New returns a queue that writes to the file descriptor fd, which it does not
// own and never closes. handler makes the slog.Handler that formats the lines;
// it is called with the queue, and for lines of the queue's own with a buffer.
// The queue is to be closed.
func New(fd int, handler func(io.Writer) slog.Handler) *Queue {
	return open(fd, capacity, handler)
}

func open(fd, capacity int, handler func(io.Writer) slog.Handler) *Queue {
	q := &Queue{
		capacity: capacity,
		wake:     make(chan struct{}, 1),
		abandon:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	q.handler = handler(q)
	q.dropLine = func(lines int) []byte {
		var b bytes.Buffer
		r := slog.NewRecord(time.Now(), slog.LevelWarn, DroppedMessage, 0)
		r.AddAttrs(slog.Int("lines", lines))
		if err := handler(&b).Handle(context.Background(), r); err != nil {
			return fmt.Appendf(nil, "%s: %d\n", DroppedMessage, lines)
		}
		return b.Bytes()
	}
	go q.write(fd)
	return q
}

// Handler returns the handler whose lines go through the queue.
func (q *Queue) Handler() slog.Handler { return q.handler }

// Dropped returns how many lines have been lost so far: for lack of room,
// because they could not be written, or because they came after Close.
func (q *Queue) Dropped() int64 { return q.dropped.Load() }

// Write takes a copy of one line, or drops it. It never waits, and reports
// success either way: whoever logs can do nothing about it.
func (q *Queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.dropped.Add(1)
		return len(p), nil
	}
	text := make([]byte, 0, len(p)+1)
	text = append(text, p...)
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	if cost := len(text) + overhead; q.size+cost <= q.capacity {
		q.lines = append(q.lines, line{text: text, lost: q.lost})
		q.size += cost
		q.lost = 0
	} else {
		q.lost++
		q.dropped.Add(1)
	}
	q.ring()
	return len(p), nil
}

func (q *Queue) ring() {
	select {
	case q.wake <- struct{}{}:
	default: // it is awake already
	}
}

// take returns the next line, the number of lines missing before it, and
// whether there is any of the two. A line without text only tells of a gap.
func (q *Queue) take() (next line, any, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == 0 {
		next.lost, q.lost = q.lost, 0
		q.lines = nil // the array of a flood is not kept
		return next, next.lost > 0, q.closed
	}
	next = q.lines[0]
	q.lines[0] = line{}
	q.lines = q.lines[1:]
	q.size -= len(next.text) + overhead
	return next, true, q.closed
}

// Close takes nothing in any more and waits until everything that waits has
// been written, or ctx is done; then it gives the rest up and returns an error
// that says how much that is. It may be called more than once.
//
// A writer that waits for room ends within stopWithin. One that the kernel
// holds in write(2), because the job filled the pipe at that very moment,
// can't be woken and is left behind: the process is about to exit.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	q.ring()
	q.mu.Unlock()
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-q.done: // both at once
		return nil
	default:
	}
	q.mu.Lock()
	select {
	case <-q.abandon:
	default:
		close(q.abandon)
	}
	left := len(q.lines)
	q.dropped.Add(int64(left))
	q.lines, q.size = nil, 0
	q.mu.Unlock()
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case <-q.done:
	case <-timer.C:
	}
	return fmt.Errorf("the log is not written out: %d lines and the one in hand are lost: %w", left, ctx.Err())
}
