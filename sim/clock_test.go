package sim

import (
	"sync"
	"time"

	"solojob/boottime"
)

// gate holds back everything that a stopped process would do. Whatever the
// simulated world lets a process do passes its gate first.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed at the thaw; nil while open
	fell bool          // the process is dead: what is left of it holds nobody up
}

func (g *gate) pass() {
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut == nil {
			return
		}
		<-shut
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.fell && g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// fall opens the gate for good.
func (g *gate) fall() {
	g.open()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fell = true
}

// clock is a task's local clock: it never steps and counts every pause, but has
// an origin and a rate of its own.
type clock struct {
	start time.Time
	base  boottime.Instant
	drift float64 // 0.01: 1 % fast
	gate  *gate   // of the agent, which reads it
}

// read is the clock as the world sees it.
func (c *clock) read() boottime.Instant { return c.at(time.Now()) }

func (c *clock) at(t time.Time) boottime.Instant {
	elapsed := t.Sub(c.start)
	return c.base.Add(elapsed + time.Duration(float64(elapsed)*c.drift))
}

// in is how long it takes until the clock shows an instant.
func (c *clock) in(at boottime.Instant) time.Duration {
	left := at.Sub(c.read())
	if left <= 0 {
		return 0
	}
	return left - time.Duration(float64(left)*c.drift/(1+c.drift)) + 1
}

// Now is part of leader.Clock.
func (c *clock) Now() boottime.Instant {
	c.gate.pass()
	return c.read()
}

// farAway is later than any run; the elector uses such instants for "never".
const farAway = boottime.Instant(1 << 62)

// Until is part of leader.Clock.
func (c *clock) Until(at boottime.Instant) (<-chan struct{}, func()) {
	done := make(chan struct{})
	if at > farAway {
		return done, func() {}
	}
	timer := time.AfterFunc(c.in(at), func() {
		c.gate.pass()
		close(done)
	})
	return done, func() { timer.Stop() }
}
