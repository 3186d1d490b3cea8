// Package health answers the question of a container's health check, asked by
// `solojob health` in a process of its own: does the agent live?
//
// Healthy means that the lease's row has been read once and that the agent's
// loops go round. It does not mean that DynamoDB can be reached now: a store
// that is down for all tasks must not make ECS replace the tasks that will go on
// when it is back. And it does not mean that this task leads: standbys are
// healthy. But a task that has never reached the store must not count as
// started: a deploy with a wrong route, role or table then fails before it has
// replaced the tasks that work.
//
// Question and answer need no file system, no shell and no port: they meet at an
// abstract Unix socket (unix(7)), whose name holds the mount namespace, so that
// the containers of a task, which share a network and with it all abstract
// names, don't collide. Such names have no permissions, so [Check] trusts an
// answer only if it comes from a process of its own container. A name goes away
// with its process: there are no stale ones.
package health

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"solojob/boottime"
)

// Monitor keeps what is known of an agent's health. All of its methods may be
// called from any goroutine and none of them waits, so the heartbeat may use
// them; the methods that report do nothing on a nil Monitor.
type Monitor struct {
	now   func() boottime.Instant
	read  atomic.Bool
	loops atomic.Pointer[Loop] // the latest, and through it the others
}

// NewMonitor returns the Monitor of an agent that has yet to read the row.
func NewMonitor() *Monitor { return &Monitor{now: boottime.Now} }

// RowRead reports that the lease's row was read, or found not to exist. From
// then on the agent is healthy while its loops go round.
func (m *Monitor) RowRead() {
	if m != nil && !m.read.Load() {
		m.read.Store(true)
	}
}

// Loop is one goroutine that must go round for the agent to be alive.
type Loop struct {
	monitor *Monitor
	name    string
	limit   time.Duration
	last    atomic.Int64 // the Instant of the last Beat
	earlier *Loop
}

// Loop adds a goroutine that must call [Loop.Beat] at least once in limit, from
// now on. The limit must be a multiple of how long the goroutine waits when all
// is well, and of how long a slow machine keeps it from running: ten seconds at
// least. The name is for people.
func (m *Monitor) Loop(name string, limit time.Duration) *Loop {
	if m == nil {
		return nil
	}
	l := &Loop{monitor: m, name: name, limit: limit}
	l.Beat()
	for {
		l.earlier = m.loops.Load()
		if m.loops.CompareAndSwap(l.earlier, l) {
			return l
		}
	}
}

// Beat reports that the goroutine goes round. It does nothing on a nil Loop.
func (l *Loop) Beat() {
	if l != nil {
		l.last.Store(int64(l.monitor.now()))
	}
}

var errNeverRead = errors.New("the lease's row has not been read yet: can this task reach DynamoDB, and is it allowed to? Its log says more")

// State is nil for a healthy agent. Else it says what is wrong.
func (m *Monitor) State() error {
	for l := m.loops.Load(); l != nil; l = l.earlier {
		if silent := m.now().Sub(boottime.Instant(l.last.Load())); silent > l.limit {
			return fmt.Errorf("the agent is stuck: its %s has not moved for %v", l.name, silent.Round(time.Second))
		}
	}
	if !m.read.Load() {
		return errNeverRead
	}
	return nil
}
