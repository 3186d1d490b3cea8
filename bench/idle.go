//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// settle is how long agents run before they are watched: what starting costs is
// not idling.
const settle = 15 * time.Second

// idle measures what agents at default settings cost while nothing happens.
func idle(ctx context.Context, s *stage, o options) ([]table, error) {
	var watched []*idler
	for _, w := range []struct {
		name, lease string
		env         map[string]string
		holds       bool
	}{
		{"holder, a service's job running", "idle", map[string]string{"BENCH_JOB_DRAIN": "0s"}, true},
		{"standby", "idle", map[string]string{"BENCH_JOB_DRAIN": "0s"}, false},
		{"holder, between two runs of a schedule", "idle-cron", map[string]string{"SOLOJOB_SCHEDULE": "0 0 29 2 *"}, false},
	} {
		p, err := s.agent(w.lease, 0, w.env)
		if err != nil {
			return nil, err
		}
		defer p.stop(ctx)
		if w.holds {
			if _, err := next(ctx, s.witness.lane(w.lease)); err != nil {
				return nil, p.explain(err)
			}
		}
		if err := s.store.untilRead(ctx, p.door, 1); err != nil {
			return nil, p.explain(err)
		}
		watched = append(watched, &idler{name: w.name, process: p})
	}
	if err := pass(ctx, settle); err != nil {
		return nil, err
	}
	for _, i := range watched {
		if err := i.begin(s); err != nil {
			return nil, i.process.explain(err)
		}
	}
	if err := pass(ctx, o.idle); err != nil {
		return nil, err
	}
	memory := table{ID: "memory", Header: []string{"MB", "agent RSS", "supervisor RSS", "**both, RSS**", "both, PSS", "threads"}}
	cost := table{ID: "idle", Header: []string{"", "CPU seconds per hour", "of that, supervisor", "reads per hour", "writes per hour", "refused"},
		Note: fmt.Sprintf("Watched for %v and scaled.", o.idle)}
	for _, i := range watched {
		m, c, err := i.end(s)
		if err != nil {
			return nil, i.process.explain(err)
		}
		memory.Rows, cost.Rows = append(memory.Rows, m), append(cost.Rows, c)
	}
	return []table{memory, cost}, nil
}

// idler is one agent that is watched.
type idler struct {
	name       string
	process    *process
	supervisor int

	since          time.Time
	agentCPU, cpu  time.Duration
	requestsBefore counts
}

func (i *idler) begin(s *stage) (err error) {
	agent := i.process.pid()
	children, err := descendants(agent)
	if err != nil || len(children) == 0 {
		return fmt.Errorf("agent %d has no supervisor (%w)", agent, err)
	}
	i.supervisor = children[0] // nearest first, and it is the only child
	if i.agentCPU, err = cpuTime(agent); err != nil {
		return err
	}
	if i.cpu, err = cpuTime(i.supervisor); err != nil {
		return err
	}
	i.since, i.requestsBefore = time.Now(), s.store.requests(i.process.door)
	return nil
}

func (i *idler) end(s *stage) (memory, cost []string, err error) {
	agentCPU, err := cpuTime(i.process.pid())
	if err != nil {
		return nil, nil, err
	}
	cpu, err := cpuTime(i.supervisor)
	if err != nil {
		return nil, nil, err
	}
	took, now, before := time.Since(i.since), s.store.requests(i.process.door), i.requestsBefore
	hourly := func(n float64) float64 { return n * float64(time.Hour) / float64(took) }
	agentCPU, cpu = agentCPU-i.agentCPU, cpu-i.cpu
	cost = []string{i.name,
		fmt.Sprintf("%.2f", hourly((agentCPU + cpu).Seconds())), fmt.Sprintf("%.2f", hourly(cpu.Seconds())),
		fmt.Sprintf("%.0f", hourly(float64(now.reads-before.reads))),
		fmt.Sprintf("%.0f", hourly(float64(now.writes-before.writes))),
		fmt.Sprint(now.refused - before.refused)}
	a, err := memoryOf(i.process.pid())
	if err != nil {
		return nil, nil, err
	}
	b, err := memoryOf(i.supervisor)
	if err != nil {
		return nil, nil, err
	}
	return []string{i.name, megabytes(a.rss), megabytes(b.rss), "**" + megabytes(a.rss+b.rss) + "**", megabytes(a.pss + b.pss),
		fmt.Sprintf("%s + %s", a.threads, b.threads)}, cost, nil
}

// cpuTime is the time that all threads of a process were on a core. A process's
// clock is made of its id (clock_getcpuclockid(3), MAKE_PROCESS_CPUCLOCK in the
// kernel's posix-timers.h).
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2 // what the scheduler counted, exact to the nanosecond
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("process %d has no CPU clock: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

type footprint struct {
	rss, pss int64 // bytes
	threads  string
}

// memoryOf reads smaps_rollup (proc(5)). RSS counts a page that is shared with
// other processes whole, PSS shares it out among them.
func memoryOf(pid int) (footprint, error) {
	f := footprint{threads: procLine(fmt.Sprintf("/proc/%d/status", pid), "Threads")}
	for name, to := range map[string]*int64{"Rss": &f.rss, "Pss": &f.pss} {
		kilobytes, _, _ := strings.Cut(procLine(fmt.Sprintf("/proc/%d/smaps_rollup", pid), name), " ")
		n, err := strconv.ParseInt(kilobytes, 10, 64)
		if err != nil {
			return f, fmt.Errorf("the memory of process %d can't be read: %w", pid, err)
		}
		*to = n << 10
	}
	return f, nil
}

// pass lets time pass.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
