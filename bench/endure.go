//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// lookEvery is how often the processes are looked at.
	lookEvery = time.Second
	// lingering is in how many looks running a dead process must be unreaped
	// before it counts as a zombie: one is dead for a moment after each run.
	lingering = 3
	// periods is how many rows the table has.
	periods = 12
)

// endurance watches a holder and a standby at a heartbeat of 100 ms while a job
// that leaves five deaf descendants behind is launched each second: whatever a
// heartbeat or a run leaves over, memory, descriptors, threads or zombies, adds
// up.
func endurance(ctx context.Context, s *stage, o options) ([]table, error) {
	const lease = "endurance"
	env := map[string]string{
		"SOLOJOB_SCHEDULE": "@every 1s", "SOLOJOB_HEARTBEAT": "100ms", "SOLOJOB_LEASE_DURATION": "30s", "SOLOJOB_POLL": "500ms",
		"BENCH_JOB_TREE": "5",
	}
	runs := s.witness.lane(lease)
	var watched [2]*endurer
	for i := range watched {
		p, err := s.agent(lease, 0, env)
		if err != nil {
			return nil, err
		}
		defer p.stop(ctx)
		if i == 0 { // it is the holder then
			_, err = next(ctx, runs)
		} else {
			err = s.store.untilRead(ctx, p.door, 1)
		}
		if err != nil {
			return nil, p.explain(err)
		}
		watched[i] = &endurer{process: p, dead: map[int]int{}}
	}
	t := table{ID: "endurance", Header: []string{"until", "holder: agent RSS, MB", "supervisor RSS, MB", "descriptors", "threads",
		"standby: agent RSS, MB", "supervisor RSS, MB", "descriptors", "threads", "zombies", "writes", "runs"}}
	began := time.Now()
	var first, last [2]look
	for period := 1; period <= periods; period++ {
		before, launched := s.store.requests(watched[0].process.door), 0
		end := began.Add(o.endurance * time.Duration(period) / periods)
		for done := false; !done; {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-watched[0].process.exited:
				return nil, watched[0].process.explain(fmt.Errorf("the holder ended after %v", time.Since(began)))
			case <-watched[1].process.exited:
				return nil, watched[1].process.explain(fmt.Errorf("the standby ended after %v", time.Since(began)))
			case <-runs:
				launched++
			case <-time.After(min(lookEvery, time.Until(end))):
			}
			done = !time.Now().Before(end)
			for _, e := range watched {
				if err := e.look(done); err != nil {
					return nil, e.process.explain(err)
				}
			}
		}
		a, b := watched[0].typical(), watched[1].typical()
		if period == 2 { // in the first they warm up
			first = [2]look{a, b}
		}
		last = [2]look{a, b}
		row := slices.Concat([]string{time.Since(began).Round(time.Second).String()}, a.cells(), b.cells(),
			[]string{fmt.Sprint(a.zombies + b.zombies), fmt.Sprint(s.store.requests(watched[0].process.door).writes - before.writes), fmt.Sprint(launched)})
		t.Rows = append(t.Rows, row)
		fmt.Fprintln(os.Stderr, strings.Join(row, "  ")) // an hour is long
	}
	retries := 0
	for _, e := range watched {
		log, err := os.ReadFile(e.process.log)
		if err != nil {
			return nil, err
		}
		retries += strings.Count(string(log), `"renewal failed"`)
	}
	t.Note = fmt.Sprintf("%s %d attempts at a heartbeat failed and were repeated.", verdict(first, last), retries)
	return []table{t}, nil
}

// endurer is an agent that is watched.
type endurer struct {
	process *process
	looks   []look
	latest  time.Time
	dead    map[int]int // looks running in which a process was dead and unreaped
}

// look is what an agent and its supervisor take at one time.
type look struct {
	agentRSS, supervisorRSS int64
	agentFDs, supervisorFDs int64
	agentThreads            int64
	supervisorThreads       int64
	zombies                 int64
}

// look looks at the processes, unless it did so a moment ago.
func (e *endurer) look(anyway bool) error {
	if !anyway && time.Since(e.latest) < lookEvery {
		return nil
	}
	e.latest = time.Now()
	agent := e.process.pid()
	tree, err := descendants(agent)
	if err != nil {
		return err
	}
	var l look
	if l.agentRSS, l.agentFDs, l.agentThreads, err = holds(agent); err != nil {
		return err
	}
	for _, pid := range tree {
		name := procLine(fmt.Sprintf("/proc/%d/status", pid), "Name") // before it is executed it looks like its agent
		if parent, ok := parentOf(pid); ok && parent == agent && name == "solojob-super" && l.supervisorRSS == 0 {
			// It may have just ended.
			l.supervisorRSS, l.supervisorFDs, l.supervisorThreads, _ = holds(pid)
		}
	}
	dead := map[int]int{}
	for _, pid := range tree {
		if strings.HasPrefix(procLine(fmt.Sprintf("/proc/%d/status", pid), "State"), "Z") {
			dead[pid] = e.dead[pid] + 1
			if dead[pid] >= lingering {
				l.zombies++
			}
		}
	}
	e.dead = dead
	e.looks = append(e.looks, l)
	return nil
}

// holds is what one process takes.
func holds(pid int) (rss, descriptors, threads int64, err error) {
	m, err := memoryOf(pid)
	if err != nil {
		return 0, 0, 0, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return m.rss, int64(len(open)), number(m.threads), err
}

// typical takes the median of each figure of a period, and the most zombies: a
// look may fall into a launch.
func (e *endurer) typical() look {
	median := func(figure func(look) int64) int64 {
		var all []int64
		for _, l := range e.looks {
			if v := figure(l); v > 0 {
				all = append(all, v)
			}
		}
		if len(all) == 0 {
			return 0
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	l := look{
		agentRSS:          median(func(l look) int64 { return l.agentRSS }),
		supervisorRSS:     median(func(l look) int64 { return l.supervisorRSS }),
		agentFDs:          median(func(l look) int64 { return l.agentFDs }),
		supervisorFDs:     median(func(l look) int64 { return l.supervisorFDs }),
		agentThreads:      median(func(l look) int64 { return l.agentThreads }),
		supervisorThreads: median(func(l look) int64 { return l.supervisorThreads }),
	}
	for _, seen := range e.looks {
		l.zombies = max(l.zombies, seen.zombies)
	}
	e.looks = nil
	return l
}

func (l look) cells() []string {
	return []string{megabytes(l.agentRSS), megabytes(l.supervisorRSS),
		fmt.Sprintf("%d + %d", l.agentFDs, l.supervisorFDs), fmt.Sprintf("%d + %d", l.agentThreads, l.supervisorThreads)}
}

// verdict says what rose from the second period to the last. Memory may by a
// fifth, which is how far the collector lets the heap of an agent swing; what
// adds up with each of thousands of runs exceeds that.
func verdict(first, last [2]look) string {
	var rose []string
	for i, who := range []string{"the holder's", "the standby's"} {
		for _, f := range []struct {
			what         string
			before, now  int64
			slack, parts int64
		}{
			{"memory", first[i].agentRSS, last[i].agentRSS, 1 << 20, 5},
			{"descriptors", first[i].agentFDs, last[i].agentFDs, 4, 0}, // a launch opens two pipes
			{"threads", first[i].agentThreads, last[i].agentThreads, 4, 0},
			{"supervisor's memory", first[i].supervisorRSS, last[i].supervisorRSS, 4 << 20, 5}, // of many: each lives for one run
			{"supervisor's descriptors", first[i].supervisorFDs, last[i].supervisorFDs, 8, 0},  // fewer while it starts
			{"supervisor's threads", first[i].supervisorThreads, last[i].supervisorThreads, 4, 0},
			{"zombies", 0, last[i].zombies, 0, 0},
		} {
			allowed := f.before + f.slack
			if f.parts > 0 {
				allowed += f.before / f.parts
			}
			if f.now > allowed {
				rose = append(rose, fmt.Sprintf("%s %s from %d to %d", who, f.what, f.before, f.now))
			}
		}
	}
	if rose == nil {
		return nothingRose
	}
	return "ROSE: " + strings.Join(rose, "; ") + "."
}

const nothingRose = "Nothing rose."
