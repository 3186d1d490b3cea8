package sim

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"solojob/schedule"
)

var days = flag.Int("sim.days", 4, "how many days of every-minute ticks TestYearOfMinutes has; 366 make its year")

// minutely is a plan of every-minute ticks with nothing going wrong by itself.
func minutely(seed uint64) *plan {
	return &plan{
		seed: seed, profile: wild, tasks: 3, settings: []settings{standard},
		schedule: "* * * * *", step: time.Minute, overlap: "skip",
		rules: schedule.Rules{CatchUp: 1<<63 - 1, MaxAttempts: 3},
		jobs:  habits{length: 5 * time.Second},
	}
}

// keep runs a plan and fails the test if a promise is broken.
func keep(t *testing.T, p *plan) *history {
	t.Helper()
	h := in(t, p)
	if h.broken() {
		t.Fatalf("%s\n%s", h.violations[0].what, h)
	}
	return h
}

// count is how many events have a text.
func (h *history) matches(text func(event) bool) (n int) {
	for _, e := range h.events {
		if text(e) {
			n++
		}
	}
	return n
}

// Every minute for a year, with the leaders dying, freezing, being cut off and
// told to stop at random moments: no tick is run to its end twice, each is run,
// skipped or missed for a reason that is true, and the latest is never lost
// while a task is alive. (For a year: -sim.days=366.)
func TestYearOfMinutes(t *testing.T) {
	p := minutely(1)
	p.horizon = time.Duration(*days) * 24 * time.Hour
	p.brief = true
	// Two hours between two heartbeats: what is proved here is about ticks. In that
	// time a clock that is 1 % off would be a minute wrong.
	p.steady = true
	p.settings = []settings{{8 * time.Hour, 2 * time.Hour, 10 * time.Minute, 4 * time.Second, time.Second, 25 * time.Second}}
	r := stream(1, "year")
	for at := time.Hour; at < p.horizon; at += between(r, time.Hour, 24*time.Hour) {
		f := fault{at: at, slot: holder, kind: pick(r, crashTask, crashAgent, freezeTask, freezeAgent, stopTask, stopTask, stopTask, deploy, cut, crashGuard)}
		f.amount = between(r, time.Second, time.Minute)
		f.length = between(r, time.Second, pick(r, time.Minute, 12*time.Hour))
		p.faults = append(p.faults, f)
	}
	began := time.Now()
	h := keep(t, p)
	t.Logf("%d days in %s: %v", *days, time.Since(began).Round(time.Second), h.faults)
}

// Clocks that are an hour fast, an hour slow, right, and in the year 2099, and
// leadership that moves among them: each tick is run once, at the right time,
// which is the store's.
func TestWrongClocks(t *testing.T) {
	p := minutely(2)
	p.tasks = 4
	p.horizon = 2 * time.Hour
	year2099 := time.Date(2099, 6, 1, 0, 0, 0, 0, time.UTC).Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	p.wallOffs = []time.Duration{time.Hour, -time.Hour, 0, year2099}
	for i := range 20 {
		f := fault{at: time.Duration(i+1) * 5 * time.Minute, slot: holder, kind: []kind{stopTask, crashTask}[i%2], amount: time.Second}
		p.faults = append(p.faults, f)
	}
	ran := map[string]int{}
	for _, e := range keep(t, p).events {
		var fence, attempt int
		var tick string
		if n, _ := fmt.Sscanf(e.what, "job with fence %d runs, tick %q attempt %d", &fence, &tick, &attempt); n != 3 {
			continue
		}
		at, _ := time.Parse(time.RFC3339, tick)
		late := e.at - at.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
		if late < -early || late > 2*time.Minute {
			t.Errorf("the tick %s runs %s late", tick, late)
		}
		if attempt == 1 {
			ran[tick]++
		}
	}
	for tick, n := range ran {
		if n > 1 {
			t.Errorf("the tick %s runs %d times", tick, n)
		}
	}
	if len(ran) < 110 {
		t.Errorf("%d ticks ran in two hours", len(ran))
	}
}

// A lease whose last tick is a year old: one run, at once. And after half a
// million missed ticks there are neither as many steps nor as many lines.
func TestYearOldTick(t *testing.T) {
	for spec, step := range map[string]time.Duration{"@every 8760h": 8760 * time.Hour, "* * * * *": time.Minute, "*/10 * * * * *": 10 * time.Second} {
		p := minutely(3)
		p.schedule, p.step = spec, step
		p.horizon = 5 * time.Second
		p.calm = 50 * time.Second
		p.tasks = 1
		year := 365 * 24 * time.Hour
		p.before = year // all tasks were away for so long
		h := in(t, p)
		first := time.Duration(0)
		for _, e := range h.events {
			if e.who == "task1" && first == 0 && len(e.what) > 14 && e.what[:14] == "job with fence" {
				first = e.at
			}
		}
		if first == 0 || first > 5*time.Second {
			t.Errorf("%s: the missed tick runs at %s\n%s", spec, first, h)
		}
		if lines := h.matches(func(e event) bool { return len(e.what) > 17 && e.what[:17] == "logs: tick missed" }); lines > 1 {
			t.Errorf("%s: %d lines for what was missed", spec, lines)
		}
	}
}

// A job that takes its own task down each time is started in three tasks; then
// its tick is missed, for a reason that is logged, and the next one is normal.
func TestJobThatKillsItsTask(t *testing.T) {
	p := minutely(4)
	p.step, p.schedule = time.Hour, "0 * * * *"
	p.horizon = time.Hour + 30*time.Minute
	p.jobs.killsOwn = time.Hour // the tick of the first hour
	h := in(t, p)
	attempts := h.matches(func(e event) bool {
		var fence, attempt int
		n, _ := fmt.Sscanf(e.what, "job with fence %d runs, tick \"2000-01-01T01:00:00Z\" attempt %d", &fence, &attempt)
		return n == 2
	})
	missed := h.matches(func(e event) bool {
		return strings.HasPrefix(e.what, "logs: tick missed tick=2000-01-01T01:00:00Z count=1 reason="+schedule.ReasonAttempts)
	})
	if attempts != 3 || missed == 0 || h.faults["task killed by its own job"] != 3 {
		t.Errorf("%d attempts, %d lines say that it is missed, %d tasks died\n%s", attempts, missed, h.faults["task killed by its own job"], h)
	}
}
