//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"solojob/boottime"
)

const (
	// standbyPoll is the default of SOLOJOB_POLL.
	standbyPoll = 2 * time.Second
	// shortDrain is long enough for each standby to have read that the holder
	// is draining, wherever it was between two polls.
	shortDrain = 3 * time.Second
)

// starts measures how soon a task that finds the lease free runs the job.
func starts(ctx context.Context, s *stage, o options) ([]table, error) {
	var acquire, job, all sample
	for i := range o.rounds {
		lease := fmt.Sprintf("start-%d", i)
		p, err := s.agent(lease, 0, map[string]string{"BENCH_JOB_DRAIN": "0s"})
		if err != nil {
			return nil, err
		}
		l, err := next(ctx, s.witness.lane(lease))
		if err != nil {
			return nil, p.explain(err)
		}
		acquired, err := s.store.fenced(lease, l.fence)
		if err != nil {
			return nil, err
		}
		acquire = append(acquire, acquired.Sub(p.started))
		job = append(job, l.began.Sub(acquired))
		all = append(all, l.began.Sub(p.started))
		if err := p.stop(ctx); err != nil {
			return nil, p.explain(err)
		}
	}
	return []table{{ID: "start", Header: statsHeader, Rows: [][]string{
		acquire.row("the agent is started → acquisition applied at the store"),
		job.row("acquisition applied → job's first instruction"),
		all.row("the agent is started → job's first instruction"),
	}}}, nil
}

// moves are what one way of moving a lease took, each time.
type moves struct {
	lost  sample // told to stop, or killed → the old job's last process dead
	gap   sample // that → the next job's first instruction
	whole sample // told to stop, or killed → the next job's first instruction
	over  sample // takeover: the next job's start, beyond lease × 1.021 since the last heartbeat

	release, acquire, launch sample // handover: what the gap is made of
}

// parts are the samples in the order of their fields.
func (m *moves) parts() []*sample {
	return []*sample{&m.lost, &m.gap, &m.whole, &m.over, &m.release, &m.acquire, &m.launch}
}

// abreast collects moves of several leases at a time.
func abreast(o options, name string, one func(lease string, rounds int) (moves, error)) (moves, error) {
	var (
		all  moves
		errs []error
		mu   sync.Mutex
		wg   sync.WaitGroup
	)
	for i := range o.abreast {
		wg.Go(func() {
			m, err := one(fmt.Sprintf("%s-%d", name, i), (o.rounds+o.abreast-1)/o.abreast)
			mu.Lock()
			defer mu.Unlock()
			for i, part := range m.parts() {
				*all.parts()[i] = append(*all.parts()[i], *part...)
			}
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// handovers measures how a lease moves when its holder is told to stop.
func handovers(ctx context.Context, s *stage, o options) ([]table, error) {
	measure := func(name string, drain time.Duration) (moves, error) {
		return abreast(o, name, func(lease string, rounds int) (moves, error) {
			return move(ctx, s, lease, rounds, map[string]string{"BENCH_JOB_DRAIN": drain.String()}, syscall.SIGTERM)
		})
	}
	drained, err := measure("drain", shortDrain)
	if err != nil {
		return nil, err
	}
	prompt, err := measure("prompt", 0)
	if err != nil {
		return nil, err
	}
	return []table{{ID: "handover", Header: statsHeader, Rows: [][]string{
		drained.lost.row(fmt.Sprintf("job drains for %v: task told to stop → job dead", shortDrain)),
		drained.gap.row("· **job dead → next job's first instruction**"),
		drained.release.row("· · of that, job dead → release applied at the store"),
		drained.acquire.row("· · of that, release applied → acquisition applied"),
		drained.launch.row("· · of that, acquisition applied → job's first instruction"),
		prompt.lost.row("job ends at once: task told to stop → job dead"),
		prompt.gap.row("· job dead → next job's first instruction"),
	}}}, nil
}

// Settings of the takeovers: a short lease, of which the holder renews as often
// as by default, with a poll at its default.
const (
	takeoverLease  = 3 * time.Second
	takeoverGrace  = 500 * time.Millisecond
	takeoverMargin = 500 * time.Millisecond
	takeoverTree   = 20

	defaultLease     = 30 * time.Second
	defaultHeartbeat = defaultLease / 6
)

// patient is how long a standby waits for a silent holder: so much longer than
// its lease that the clocks may differ by 1 % in either direction.
func patient(lease time.Duration) time.Duration { return lease * 1021 / 1000 }

// takeovers measures how a lease moves when its holder's agent is killed.
func takeovers(ctx context.Context, s *stage, o options) ([]table, error) {
	m, err := abreast(o, "takeover", func(lease string, rounds int) (moves, error) {
		return move(ctx, s, lease, rounds, map[string]string{
			"BENCH_JOB_DRAIN": "0s", "BENCH_JOB_TREE": fmt.Sprint(takeoverTree),
			"SOLOJOB_LEASE_DURATION": takeoverLease.String(),
			"SOLOJOB_LOSS_GRACE":     takeoverGrace.String(), "SOLOJOB_KILL_MARGIN": takeoverMargin.String(),
		}, syscall.SIGKILL)
	})
	if err != nil {
		return nil, err
	}
	computed := atDefaults(m.over).row(fmt.Sprintf("computed from that: agent killed → next job's first instruction, lease %v", defaultLease))
	computed[1] = "–"
	return []table{{ID: "takeover", Header: statsHeader, Rows: [][]string{
		m.lost.row(fmt.Sprintf("agent killed → last of its job's %d processes dead", takeoverTree+1)),
		m.whole.row(fmt.Sprintf("agent killed → next job's first instruction, lease %v", takeoverLease)),
		m.over.row("· last heartbeat → next job's first instruction, beyond lease × 1.021"),
		computed,
	}}}, nil
}

// atDefaults is what a takeover takes with a lease of 30 s: that × 1.021 from
// the last heartbeat, which was sent at any time in the last heartbeat
// interval, and then whatever it took here.
func atDefaults(over sample) sample {
	const ages = 100
	var all sample
	for _, o := range over {
		for i := range ages {
			age := defaultHeartbeat * time.Duration(2*i+1) / (2 * ages)
			all = append(all, patient(defaultLease)-age+o)
		}
	}
	return all
}

// move moves one lease from task to task, each time by a signal to the holder's
// agent at a random moment of the standby's poll.
func move(ctx context.Context, s *stage, lease string, rounds int, env map[string]string, how syscall.Signal) (m moves, err error) {
	lane := s.witness.lane(lease)
	holder, err := s.agent(lease, 0, env)
	if err != nil {
		return m, err
	}
	job, err := next(ctx, lane)
	if err != nil {
		return m, holder.explain(err)
	}
	for range rounds {
		standby, err := s.agent(lease, 0, env)
		if err != nil {
			return m, err
		}
		if err := s.store.untilRead(ctx, standby.door, 1); err != nil {
			return m, standby.explain(err)
		}
		select { // any moment is as good as any other
		case <-time.After(rand.N(standbyPoll)):
		case <-ctx.Done():
			return m, context.Cause(ctx)
		}
		told := boottime.Now()
		holder.signal(how)
		if err := wait(ctx, "the job's end", job.over); err != nil {
			return m, holder.explain(err)
		}
		heir, err := next(ctx, lane)
		if err != nil {
			return m, standby.explain(err)
		}
		if err := wait(ctx, "the end of an agent that was told to stop", holder.exited); err != nil {
			return m, holder.explain(err)
		}
		m.lost = append(m.lost, job.dead.Sub(told))
		m.gap = append(m.gap, heir.began.Sub(job.dead))
		m.whole = append(m.whole, heir.began.Sub(told))
		acquired, err := s.store.fenced(lease, heir.fence)
		if err != nil {
			return m, err
		}
		last, err := s.store.before(lease, heir.fence)
		if err != nil {
			return m, err
		}
		if last.owner == "" {
			m.release = append(m.release, last.at.Sub(job.dead))
			m.acquire = append(m.acquire, acquired.Sub(last.at))
			m.launch = append(m.launch, heir.began.Sub(acquired))
		} else {
			m.over = append(m.over, heir.began.Sub(last.at)-patient(takeoverLease))
		}
		s.forget(holder)
		holder, job = standby, heir
	}
	return m, holder.stop(ctx)
}
