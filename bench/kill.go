//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// kills measures how long trees of processes take to die when their agent is
// killed, and how long when they are killed by somebody who knows each of them.
func kills(ctx context.Context, s *stage, o options) ([]table, error) {
	t := table{ID: "kill", Header: statsHeader}
	for _, size := range []int{200, 1000} {
		env := map[string]string{"BENCH_JOB_DRAIN": "0s", "BENCH_JOB_TREE": strconv.Itoa(size - 1)}
		var swept, bare sample
		for i := range o.kills {
			took, err := killAgent(ctx, s, fmt.Sprintf("kill-%d-%d", size, i), env)
			if err != nil {
				return nil, err
			}
			swept = append(swept, took)
			env["BENCH_JOB_NAME"] = fmt.Sprintf("bare-%d-%d", size, i)
			if took, err = killBare(ctx, s, size, env); err != nil {
				return nil, err
			}
			bare = append(bare, took)
		}
		t.Rows = append(t.Rows,
			swept.row(fmt.Sprintf("agent killed → last of %d processes dead", size)),
			bare.row(fmt.Sprintf("· for comparison, %d known processes killed one by one", size)))
	}
	return []table{t}, nil
}

func killAgent(ctx context.Context, s *stage, lease string, env map[string]string) (time.Duration, error) {
	p, err := s.agent(lease, 0, env)
	if err != nil {
		return 0, err
	}
	l, err := next(ctx, s.witness.lane(lease))
	if err != nil {
		return 0, p.explain(err)
	}
	told := boottime.Now()
	p.signal(syscall.SIGKILL)
	if err := wait(ctx, "the end of a job whose agent was killed", l.over); err != nil {
		return 0, err
	}
	return l.dead.Sub(told), nil
}

// killBare starts the job without an agent, and kills all its processes, of
// which it must find size. They are orphans then, and it reaps them.
func killBare(ctx context.Context, s *stage, size int, env map[string]string) (time.Duration, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	p, err := s.start(env, s.program("job"))
	if err != nil {
		return 0, err
	}
	l, err := next(ctx, s.witness.lane(env["BENCH_JOB_NAME"]))
	if err != nil {
		return 0, p.explain(err)
	}
	tree, err := descendants(p.pid())
	told := boottime.Now()
	for _, pid := range tree {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	p.signal(syscall.SIGKILL)
	err = errors.Join(err, wait(ctx, "the end of a job that was killed", l.over))
	for _, pid := range tree {
		syscall.Wait4(pid, nil, 0, nil) // ours, now that its parents are dead
	}
	if len(tree)+1 != size {
		err = errors.Join(err, fmt.Errorf("the job has %d processes, not %d", len(tree)+1, size))
	}
	return l.dead.Sub(told), err
}

// descendants are all processes below one, by what /proc says of each.
func descendants(root int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	var found []int
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return found, nil
}

// parentOf reads the fourth field of /proc/PID/stat; the second is a name in
// parentheses that may contain anything.
func parentOf(pid int) (int, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}
