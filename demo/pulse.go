package demo

import (
	"sync"
	"time"
)

// feelEvery is how often the pulse is felt, and starved the hold-up from which on a machine
// counts as too busy for the demo: it must leave the agents time for several
// renewals within a lease.
const (
	feelEvery = 50 * time.Millisecond
	starved   = heartbeat
)

// pulse measures how long this process is kept from running, so that a demo that failed on
// a starved machine can say so.
type pulse struct {
	quit  chan struct{}
	felt  sync.WaitGroup
	worst time.Duration // read after stop
}

func feelPulse() *pulse {
	p := &pulse{quit: make(chan struct{})}
	p.felt.Go(func() {
		for last := time.Now(); ; {
			select {
			case <-p.quit:
				return
			case <-time.After(feelEvery):
			}
			now := time.Now()
			p.worst = max(p.worst, now.Sub(last)-feelEvery)
			last = now
		}
	})
	return p
}

// stop ends the measurement and returns the longest hold-up.
func (p *pulse) stop() time.Duration {
	close(p.quit)
	p.felt.Wait()
	return p.worst
}
