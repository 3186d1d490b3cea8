//go:build linux

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"solojob/boottime"
)

// patience is how long a test waits for what should come soon. It is only ever
// used up when something is broken, so it is made for the slowest machine.
const patience = 30 * time.Second

// worldCount numbers the worlds of this process, for addresses of their own.
var worldCount atomic.Int64

// Timing is the settings of a lease. Tests use short ones.
type Timing struct {
	Lease, Heartbeat, Poll, LossGrace, KillMargin, StopGrace time.Duration
}

// brisk is for tests in which a lease must run out. Faults of up to 3.2 s are
// invisible (P5), and an attempt has half a second for its reply, which is what
// a loaded machine needs.
var brisk = Timing{
	Lease: 6 * time.Second, Heartbeat: 1500 * time.Millisecond, Poll: 500 * time.Millisecond,
	LossGrace: 600 * time.Millisecond, KillMargin: 700 * time.Millisecond, StopGrace: 12 * time.Second,
}

// calm is for tests in which no lease may run out, and in which a handover that
// waited for it, or for a normal poll, would show.
var calm = Timing{
	Lease: 20 * time.Second, Heartbeat: time.Second, Poll: 8 * time.Second,
	LossGrace: 2 * time.Second, KillMargin: time.Second, StopGrace: 20 * time.Second,
}

// World is one store, one recorder, and the agents of one test.
type World struct {
	t        *testing.T
	number   int
	dir      string
	lease    string
	timing   Timing
	store    *Store
	recorder *Recorder

	mu       sync.Mutex
	timeline []note
	wake     chan struct{}
	agents   []*Agent
}

type note struct {
	at        boottime.Instant
	who, what string
}

// newWorld makes an empty world. At the test's end its agents are told to stop,
// and the invariants are checked.
func newWorld(t *testing.T, timing Timing) *World {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	w := &World{t: t, number: int(worldCount.Add(1)), dir: dir, lease: "nightly", timing: timing, wake: make(chan struct{})}
	if w.recorder, err = newRecorder(w); err != nil {
		t.Fatal(err)
	}
	if w.store, err = newStore(w); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// note adds to the timeline that is printed when a test fails.
func (w *World) note(at boottime.Instant, who, format string, args ...any) {
	w.mu.Lock()
	w.timeline = append(w.timeline, note{at, who, fmt.Sprintf(format, args...)})
	w.mu.Unlock()
	w.changed()
}

// changed has every wait look again.
func (w *World) changed() {
	w.mu.Lock()
	close(w.wake)
	w.wake = make(chan struct{})
	w.mu.Unlock()
}

// Until waits until a condition holds, looking whenever anything happens. It
// ends the test, with the whole story, when that takes too long.
func (w *World) Until(what string, limit time.Duration, holds func() bool) {
	w.t.Helper()
	deadline := time.After(limit)
	for {
		w.mu.Lock()
		wake := w.wake
		w.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-wake:
		case <-time.After(10 * time.Millisecond): // for what /proc alone tells
		case <-deadline:
			w.t.Fatalf("waited %v in vain until %s", limit, what)
		}
	}
}

// During lets time pass while a condition must hold.
func (w *World) During(what string, long time.Duration, holds func() bool) {
	w.t.Helper()
	end := time.After(long)
	for {
		if !holds() {
			w.t.Fatalf("not all the time: %s", what)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-end:
			return
		}
	}
}

// story is the timeline in the order of the one clock.
func (w *World) story() string {
	w.mu.Lock()
	notes := slices.Clone(w.timeline)
	w.mu.Unlock()
	slices.SortStableFunc(notes, func(a, b note) int { return int(a.at - b.at) })
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "%9.3f  %-6s %s\n", n.at.Sub(notes[0].at).Seconds(), n.who, n.what)
	}
	return b.String()
}

// Lives are the jobs of the world's lease.
func (w *World) Lives() []*Life {
	var lives []*Life
	for _, l := range w.recorder.Lives() {
		if l.Lease == w.lease {
			lives = append(lives, l)
		}
	}
	return lives
}

// Life waits for the n-th launch, counted from 1.
func (w *World) Life(n int) *Life {
	w.t.Helper()
	w.Until(fmt.Sprintf("job number %d runs", n), patience, func() bool { return len(w.Lives()) >= n })
	return w.Lives()[n-1]
}

// Dead waits for the end of a job, and tells when it was.
func (w *World) Dead(l *Life) boottime.Instant {
	w.t.Helper()
	w.Until(fmt.Sprintf("%v is dead", l), patience, func() bool { _, over := l.Ended(); return over })
	at, _ := l.Ended()
	return at
}

// Row is the lease item as it stands.
func (w *World) Row() Row { return w.store.Row(w.lease) }

// AgentOf is the agent under which a job was launched.
func (w *World) AgentOf(l *Life) *Agent {
	w.t.Helper()
	var found *Agent
	w.Until(fmt.Sprintf("an agent logs as the owner of %v", l), patience, func() bool {
		w.mu.Lock()
		agents := slices.Clone(w.agents)
		w.mu.Unlock()
		for _, a := range agents {
			if a.Owner() == l.Owner {
				found = a
			}
		}
		return found != nil
	})
	return found
}

// Others are all agents but one.
func (w *World) Others(a *Agent) []*Agent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.agents), func(b *Agent) bool { return a == b })
}
