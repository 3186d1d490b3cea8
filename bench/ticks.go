//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// supercronicVersion is what the schedule is compared with, from the Go module
// proxy.
const supercronicVersion = "v0.2.48"

const supercronicPackage = "github.com/aptible/supercronic@" + supercronicVersion

// tickLatency is how far away the store is: what DynamoDB takes for a
// conditional write within a Region, as a rule.
const tickLatency = 5 * time.Millisecond

// Solojob fires in even seconds and supercronic in odd ones, so that neither
// stands in the other's way.
const (
	evenSeconds  = "*/2 * * * * *"
	oddSeconds   = "1-59/2 * * * * * *" // with a field for the year
	tickInterval = 2 * time.Second
)

// ticks measures from a tick's instant to the first act of its job.
func ticks(ctx context.Context, s *stage, o options) ([]table, error) {
	count := max(o.ticks/o.abreast, 1)
	supercronic, missing := installSupercronic(ctx, s)
	var solo, others []<-chan *life
	for i := range o.abreast {
		lease := fmt.Sprintf("ticks-%d", i)
		solo = append(solo, s.witness.lane(lease))
		p, err := s.agent(lease, tickLatency, map[string]string{"SOLOJOB_SCHEDULE": evenSeconds})
		if err != nil {
			return nil, err
		}
		defer p.stop(ctx)
		if missing != nil {
			continue
		}
		name := fmt.Sprintf("supercronic-%d", i)
		others = append(others, s.witness.lane(name))
		// The job stands in for the shell, so that no shell is in either's way.
		tab := s.program(name + ".crontab")
		if err := os.WriteFile(tab, fmt.Appendf(nil, "SHELL=%s\nBENCH_JOB_NAME=%s\n%s job\n", s.program("job"), name, oddSeconds), 0o600); err != nil {
			return nil, err
		}
		if p, err = s.start(nil, supercronic, tab); err != nil {
			return nil, err
		}
		defer p.stop(ctx)
	}
	mine, claims, launches, err := collectTicks(ctx, s, solo, count)
	if err != nil {
		return nil, err
	}
	t := table{ID: "ticks", Header: statsHeader, Rows: [][]string{
		mine.row("solojob: tick → job's first instruction"),
		claims.row("· of that, tick → claim applied at the store, 5 ms away"),
		launches.row("· of that, claim applied → job's first instruction"),
	}}
	if missing != nil {
		t.Note = "supercronic could not be installed: " + missing.Error()
	} else {
		theirs, err := collectOdd(ctx, others, count)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, theirs.row("supercronic "+supercronicVersion+": tick → job's first instruction"))
	}
	bare, err := bareExec(ctx, s, o.ticks)
	if err != nil {
		return nil, err
	}
	t.Rows = append(t.Rows, bare.row("for comparison, fork of a small program → job's first instruction"))
	if t.Note == "" {
		t.Note = fmt.Sprintf("%d ticks, %d abreast.", count*o.abreast, o.abreast)
	}
	return []table{t}, nil
}

// installSupercronic builds supercronic into the stage's directory.
func installSupercronic(ctx context.Context, s *stage) (string, error) {
	install := exec.CommandContext(ctx, "go", "install", supercronicPackage)
	install.Env = append(os.Environ(), "GOBIN="+s.dir, "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return filepath.Join(s.dir, "supercronic"), nil
}

// collectTicks takes count runs of each lane, and splits each run's delay at the
// instant at which the store applied its claim.
func collectTicks(ctx context.Context, s *stage, lanes []<-chan *life, count int) (all, claims, launches sample, err error) {
	for i, lane := range lanes {
		for range count {
			l, err := next(ctx, lane)
			if err != nil {
				return nil, nil, nil, err
			}
			tick, err := time.Parse(time.RFC3339, l.tick)
			if err != nil {
				return nil, nil, nil, fmt.Errorf("a job has no tick: %w", err)
			}
			claimed, err := s.store.fenced(fmt.Sprintf("ticks-%d", i), l.fence)
			if err != nil {
				return nil, nil, nil, err
			}
			delay, launch := l.wall.Sub(tick), l.began.Sub(claimed)
			all, claims, launches = append(all, delay), append(claims, delay-launch), append(launches, launch)
		}
	}
	return all, claims, launches, nil
}

// collectOdd takes count runs of each lane of a program that fires in odd
// seconds. It does not tell its job which tick it is, so it is taken to be the
// last one before: a delay of more than two seconds would go unseen.
func collectOdd(ctx context.Context, lanes []<-chan *life, count int) (sample, error) {
	var all sample
	for _, lane := range lanes {
		for range count {
			l, err := next(ctx, lane)
			if err != nil {
				return nil, err
			}
			all = append(all, l.wall.Add(time.Second).Sub(l.wall.Add(time.Second).Truncate(tickInterval)))
		}
	}
	return all, nil
}

// bareExec is what no scheduler can be faster than: this program, which is
// small, starts the job at once.
func bareExec(ctx context.Context, s *stage, n int) (sample, error) {
	lane := s.witness.lane("bare")
	var all sample
	for range n {
		p, err := s.start(map[string]string{"BENCH_JOB_NAME": "bare"}, s.program("job"))
		if err != nil {
			return nil, err
		}
		l, err := next(ctx, lane)
		if err != nil {
			return nil, p.explain(err)
		}
		if err := wait(ctx, "the job", p.exited); err != nil {
			return nil, err
		}
		all = append(all, l.began.Sub(p.started))
		s.forget(p)
	}
	return all, nil
}
