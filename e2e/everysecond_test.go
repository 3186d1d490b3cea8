//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// hasty is a lease that is over soon, under a schedule that has a tick in each
// second of it.
var hasty = Timing{
	Lease: 3 * time.Second, Heartbeat: 500 * time.Millisecond, Poll: 300 * time.Millisecond,
	LossGrace: 400 * time.Millisecond, KillMargin: 600 * time.Millisecond, StopGrace: 5 * time.Second,
}

// betweenFaults is how often the leader meets a fault.
const betweenFaults = 10 * time.Second

// A tick in each second, and every ten seconds the leader is killed, told to
// stop, cut off or frozen: each tick runs to its end, or is missed or skipped
// for a reason that somebody has logged, and the numbers add up. A run is only
// repeated if its end could not be written down. (For two minutes: E2E_FULL=1.)
func TestEverySecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	s := &seconds{World: w}
	for range 3 {
		s.start()
	}
	w.Life(2)
	kinds := []func(*Agent) string{s.kill, s.tellToStop, s.cutOff, s.freeze}
	for i := range rounds(len(kinds), 12) {
		began := boottime.Now()
		time.Sleep(rand.N(time.Second)) // the phase is what is varied
		leader := s.leader()
		s.faults = append(s.faults, &struck{at: boottime.Now(), what: kinds[i%len(kinds)](leader)})
		time.Sleep(betweenFaults - boottime.Now().Sub(began)) // how often is what is tested
	}
	runs := len(w.Lives())
	w.Until("all is well again", patience, func() bool {
		lives := w.Lives()
		return len(lives) > runs+3 && lives[len(lives)-2].Finished()
	})
	s.judge()
}

// seconds is the world of TestEverySecond.
type seconds struct {
	*World
	started int
	faults  []*struck
}

// struck is what was done to a leader, and what it cost.
type struck struct {
	at     boottime.Instant
	what   string
	missed int
	back   time.Duration // until the next run began
}

func (s *seconds) start() *Agent {
	s.started++
	return s.Start(Start{
		Name:   fmt.Sprintf("t%d", s.started),
		Env:    map[string]string{"SOLOJOB_SCHEDULE": "*/1 * * * * *", "PROBE_FOR": "250ms"},
		Status: []int{0},
	})
}

// leader waits until the row names an agent that runs.
func (s *seconds) leader() *Agent {
	var leader *Agent
	s.Until("somebody leads", patience, func() bool {
		owner := s.Row().Owner()
		for _, a := range s.Others(nil) {
			if owner != "" && a.Owner() == owner && a.Running() {
				leader = a
			}
		}
		return leader != nil
	})
	return leader
}

func (s *seconds) kill(a *Agent) string {
	a.Signal(syscall.SIGKILL)
	s.start()
	return "killed"
}

func (s *seconds) tellToStop(a *Agent) string {
	a.Signal(syscall.SIGTERM)
	s.start()
	return "told to stop"
}

func (s *seconds) cutOff(a *Agent) string {
	a.Door.Set(always(hang))
	time.AfterFunc(2*s.timing.Lease, func() { a.Door.Set(nil) })
	return "cut off for 6 s"
}

func (s *seconds) freeze(a *Agent) string {
	s.signalProcess(a.PID, syscall.SIGSTOP, "agent "+a.Name)
	time.AfterFunc(2*s.timing.Lease, func() { a.Signal(syscall.SIGCONT) })
	return "frozen for 6 s"
}

// verdict is what became of one tick.
type verdict struct {
	runs   []*Life
	ended  int      // runs that came to their end
	logged []string // why it does not run, by each leader that decided so
}

// judge accounts for every tick from the first that ran to the last that did.
func (s *seconds) judge() {
	t := s.t
	ticks := map[int64]*verdict{}
	of := func(at time.Time) *verdict {
		if ticks[at.Unix()] == nil {
			ticks[at.Unix()] = &verdict{}
		}
		return ticks[at.Unix()]
	}
	lives := s.Lives()
	lives = lives[:len(lives)-1] // the last may go on
	for _, l := range lives {
		v := of(tickOf(t, l))
		v.runs = append(v.runs, l)
		if l.Finished() {
			v.ended++
		}
	}
	for _, a := range s.Others(nil) {
		for _, message := range []string{"tick missed", "tick skipped"} {
			for _, l := range a.Lines(message) {
				s.passedOver(l, message, of)
			}
		}
	}

	reasons, total, late, again := map[string]int{}, 0, 0, 0
	var lateness []time.Duration
	for at := tickOf(t, lives[0]); !at.After(tickOf(t, lives[len(lives)-1])); at = at.Add(time.Second) {
		v := of(at)
		total++
		switch {
		case v.ended > 1:
			s.repeated(at, v)
			fallthrough
		case v.ended == 1:
			behind := wallOf(v.runs[0].Started).Sub(at)
			lateness = append(lateness, behind)
			if behind > time.Second {
				late++
			}
			again += len(v.runs) - 1
		case len(v.logged) > 0:
			reasons[v.logged[len(v.logged)-1]]++
			s.cost(at)
		default:
			t.Errorf("the tick %v neither ran to its end (%d runs began) nor was it said to be missed or skipped", at, len(v.runs))
		}
	}
	slices.Sort(lateness)
	var b strings.Builder
	fmt.Fprintf(&b, "%5d ticks\n%5d ran to their end, half of them within %v; %d began more than a second late (up to %v), and %d runs were started again\n",
		total, len(lateness), lateness[len(lateness)/2].Round(time.Millisecond), late, lateness[len(lateness)-1].Round(time.Millisecond), again)
	sum := len(lateness)
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "%5d %s\n", reasons[reason], reason)
		sum += reasons[reason]
	}
	fmt.Fprintf(&b, "%5d in all\n\n%-18s %6s  %s\n", sum, "the leader was", "missed", "next run after")
	for _, f := range s.faults {
		for _, l := range s.Lives() {
			if f.back == 0 && l.Started > f.at {
				f.back = l.Started.Sub(f.at)
			}
		}
		fmt.Fprintf(&b, "%-18s %6d  %v\n", f.what, f.missed, f.back.Round(time.Millisecond))
	}
	t.Logf("\n%s", &b)
	if sum != total {
		t.Errorf("%d ticks are accounted for, of %d", sum, total)
	}
}

// passedOver takes in a line that says that ticks are not run.
func (s *seconds) passedOver(l Line, message string, of func(time.Time) *verdict) {
	latest, err := time.Parse("2006-01-02T15:04:05Z", l.Text("tick"))
	var count int
	if _, err2 := fmt.Sscan(l.Text("count"), &count); err != nil || err2 != nil || l.Text("reason") == "" {
		s.t.Errorf("no tick, count or reason in %v", l.Fields)
	}
	for i := range count {
		v := of(latest.Add(-time.Duration(i) * time.Second))
		v.logged = append(v.logged, message+": "+l.Text("reason"))
	}
}

// repeated checks that a tick that ran to its end more than once was not
// recorded as done before it was started again.
func (s *seconds) repeated(at time.Time, v *verdict) {
	tick := at.UTC().Format("2006-01-02T15:04:05Z")
	again := v.runs[len(v.runs)-1].Started
	for _, c := range s.store.Calls() {
		if c.Write() && c.After.text("tick") == tick && c.After.text("tick_state") == "done" && c.Applied < again {
			s.t.Errorf("the tick %s was recorded as done, and ran again", tick)
			return
		}
	}
}

// cost puts a tick that did not run down to the fault before it.
func (s *seconds) cost(at time.Time) {
	for i := len(s.faults) - 1; i >= 0; i-- {
		if !wallOf(s.faults[i].at).After(at.Add(time.Second)) {
			s.faults[i].missed++
			return
		}
	}
}

// wallOf is the time of day of an instant.
func wallOf(i boottime.Instant) time.Time { return time.Now().Add(-boottime.Now().Sub(i)) }
