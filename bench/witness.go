//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"solojob/boottime"
)

// witness is what the jobs report to. What it knows comes from the jobs' own
// clock readings and from the kernel, not from any agent.
type witness struct {
	listener *net.UnixListener
	readers  sync.WaitGroup

	mu    sync.Mutex
	lanes map[string]chan *life
	conns map[net.Conn]struct{}
}

// life is one launch of the job with all its descendants.
type life struct {
	began boottime.Instant // the job's first act
	wall  time.Time        // the same instant by the wall clock
	pid   int
	fence int64  // 0 without
	tick  string // "" without

	over  chan struct{}    // closed when the last process of the tree is dead
	ended boottime.Instant // the job's last act, if it had the time; read it after over
	dead  boottime.Instant // when the witness saw the last one's end; likewise
}

// laneRoom is how many lives of one name may wait to be looked at: more than
// any benchmark launches.
const laneRoom = 1 << 14

func newWitness(socket string) (*witness, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	w := &witness{listener: l, lanes: map[string]chan *life{}, conns: map[net.Conn]struct{}{}}
	w.readers.Go(w.accept)
	return w, nil
}

// lane is where the lives of one name (a lease, as a rule) arrive, in the order
// in which they told of their start.
func (w *witness) lane(name string) chan *life {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lanes[name] == nil {
		w.lanes[name] = make(chan *life, laneRoom)
	}
	return w.lanes[name]
}

func (w *witness) accept() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		w.conns[conn] = struct{}{}
		w.mu.Unlock()
		w.readers.Go(func() { w.read(conn) })
	}
}

func (w *witness) read(conn net.Conn) {
	defer func() {
		w.mu.Lock()
		delete(w.conns, conn)
		w.mu.Unlock()
		conn.Close()
	}()
	var l *life
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 7 && fields[0] == "start":
			l = newLife(fields)
			w.lane(fields[5]) <- l
		case len(fields) == 2 && fields[0] == "end" && l != nil:
			l.ended = boottime.Instant(number(fields[1]))
		}
	}
	if l != nil {
		l.dead = boottime.Now()
		close(l.over)
	}
}

// newLife takes in a start line; the job's package comment says what is in it.
func newLife(fields []string) *life {
	l := &life{
		began: boottime.Instant(number(fields[1])),
		wall:  time.Unix(0, number(fields[2])),
		pid:   int(number(fields[3])),
		fence: number(fields[4]),
		over:  make(chan struct{}),
	}
	if fields[6] != "-" {
		l.tick = fields[6]
	}
	return l
}

// number is 0 for what is none.
func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// close waits for the readers. Jobs that still live lose their connection, and
// end when they next speak.
func (w *witness) close() {
	w.listener.Close()
	w.mu.Lock()
	for conn := range w.conns {
		conn.Close()
	}
	w.mu.Unlock()
	w.readers.Wait()
}

// patience is how long a benchmark waits for what should come soon. It is used
// up only when something is broken.
const patience = 90 * time.Second

// next waits for the next life of a lane.
func next(ctx context.Context, lane <-chan *life) (*life, error) {
	select {
	case l := <-lane:
		return l, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(patience):
		return nil, fmt.Errorf("no job started within %v", patience)
	}
}

// wait waits until something is over.
func wait(ctx context.Context, what string, over <-chan struct{}) error {
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return fmt.Errorf("%s: not within %v", what, patience)
	}
}
