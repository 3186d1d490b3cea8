package schedule

import (
	"fmt"
	"math"
	"testing"
	"time"
)

const noLimit = time.Duration(math.MaxInt64)

// What a new leader does first, for everything that its row may say: the heart
// of "is it ever missed?".
func TestDecide(t *testing.T) {
	hourly := parse(t, "@hourly", time.UTC)
	usual := Rules{CatchUp: noLimit, MaxAttempts: 3}
	row := func(through, tick, state string, attempt int) Row {
		r := Row{Schedule: hourly.String(), Through: at(t, "2024-01-01T"+through+"Z"), State: state, Attempt: attempt}
		if tick != "" {
			r.Tick = at(t, "2024-01-01T"+tick+"Z")
		}
		return r
	}
	changed := row("10:00:05", "10:00:00", StateDone, 1)
	changed.Schedule = "CRON_TZ=UTC @daily"
	changedAndInterrupted := row("10:00:05", "10:00:00", StateRunning, 1)
	changedAndInterrupted.Schedule = "CRON_TZ=UTC @daily"
	changedInFuture := row("23:00:00", "10:00:00", StateDone, 1)
	changedInFuture.Schedule = "CRON_TZ=UTC @daily"
	with := func(change func(*Rules)) Rules { r := usual; change(&r); return r }
	none := []Missed(nil)
	one := func(tick, reason string) []Missed { return []Missed{{at(t, "2024-01-01T"+tick+"Z"), 1, true, reason}} }

	for _, c := range []struct {
		name    string
		row     Row
		now     string
		rules   Rules
		again   string
		attempt int
		late    string
		missed  []Missed
		through string
		fresh   string
	}{
		{"a new lease starts from now", Row{}, "10:20:00.7", usual, "", 0, "", none, "10:20:00", "new lease"},
		{"a row of service mode starts from now", Row{Through: at(t, "2024-01-01T05:00:00Z")}, "10:20:00", usual, "", 0, "", none, "10:20:00", "new lease"},
		{"a changed schedule starts from now", changed, "13:20:00", usual, "", 0, "", none, "13:20:00", "schedule changed"},
		{"a changed schedule forgets a through of the future", changedInFuture, "13:20:00", usual, "", 0, "", none, "13:20:00", "schedule changed"},
		{"a run that was interrupted by the deploy that changed the schedule starts again", changedAndInterrupted, "13:20:00", usual,
			"10:00:00", 2, "", none, "13:20:00", "schedule changed"},

		{"nothing happened", row("10:20:00", "10:00:00", StateDone, 1), "10:20:40", usual, "", 0, "", none, "10:20:40", ""},
		{"the leader died five seconds before the tick", row("10:59:55", "10:00:00", StateDone, 1), "11:00:25", usual, "", 0, "11:00:00", none, "10:59:59", ""},
		{"three ticks without a leader", row("10:30:00", "10:00:00", StateDone, 1), "13:30:00", usual, "", 0, "13:00:00",
			[]Missed{{at(t, "2024-01-01T12:00:00Z"), 2, true, ReasonSuperseded}}, "12:59:59", ""},
		{"no tick was ever claimed", row("10:30:00", "", "", 0), "11:30:00", usual, "", 0, "11:00:00", none, "10:59:59", ""},
		{"the missed tick is too old", row("10:30:00", "10:00:00", StateDone, 1), "11:30:00", with(func(r *Rules) { r.CatchUp = 10 * time.Minute }),
			"", 0, "", one("11:00:00", ReasonTooOld), "11:30:00", ""},
		{"never catch up", row("10:30:00", "10:00:00", StateDone, 1), "11:00:01", with(func(r *Rules) { r.CatchUp = 0 }),
			"", 0, "", one("11:00:00", ReasonTooOld), "11:00:01", ""},
		{"a run that failed by itself is not repeated", row("10:20:00", "10:00:00", StateFailed, 1), "10:21:00", usual, "", 0, "", none, "10:21:00", ""},

		{"the agent died while the job ran", row("10:20:00", "10:00:00", StateRunning, 1), "10:21:00", usual, "10:00:00", 2, "", none, "10:21:00", ""},
		{"the job was signalled", row("10:20:00", "10:00:00", StateInterrupted, 2), "10:21:00", usual, "10:00:00", 3, "", none, "10:21:00", ""},
		{"a drained run did not count", row("10:20:00", "10:00:00", StateInterrupted, 0), "10:21:00", usual, "10:00:00", 1, "", none, "10:21:00", ""},
		{"all attempts are used up", row("10:20:00", "10:00:00", StateRunning, 3), "10:21:00", usual, "", 0, "", one("10:00:00", ReasonAttempts), "10:21:00", ""},
		{"at most once", row("10:20:00", "10:00:00", StateRunning, 1), "10:21:00", with(func(r *Rules) { r.AtMostOnce = true }),
			"", 0, "", one("10:00:00", ReasonAtMostOnce), "10:21:00", ""},
		{"the interrupted run is too old", row("10:20:00", "10:00:00", StateRunning, 1), "10:21:00", with(func(r *Rules) { r.CatchUp = 10 * time.Minute }),
			"", 0, "", one("10:00:00", ReasonTooOld), "10:21:00", ""},
		{"interrupted first, then the latest missed", row("10:20:00", "10:00:00", StateRunning, 1), "13:21:00", usual, "10:00:00", 2, "13:00:00",
			[]Missed{{at(t, "2024-01-01T12:00:00Z"), 2, true, ReasonSuperseded}}, "12:59:59", ""},
		{"attempts used up, and a missed tick", row("10:20:00", "10:00:00", StateRunning, 3), "11:21:00", usual, "", 0, "11:00:00",
			one("10:00:00", ReasonAttempts), "10:59:59", ""},

		{"a through of the future decides what it says", row("12:00:00", "10:00:00", StateDone, 1), "10:30:00", usual, "", 0, "", none, "12:00:00", ""},
		{"a claimed tick is decided whatever through says", row("10:30:00", "12:00:00", StateDone, 1), "12:30:00", usual, "", 0, "", none, "12:30:00", ""},
		{"a tick that a fast clock claimed runs again at once", row("11:00:00", "11:00:00", StateRunning, 1), "10:59:58", usual, "11:00:00", 2, "", none, "11:00:00", ""},
	} {
		got, err := hourly.Decide(c.row, at(t, "2024-01-01T"+c.now+"Z"), c.rules)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		day := func(tick time.Time) string {
			if tick.IsZero() {
				return ""
			}
			return tick.Format("15:04:05")
		}
		if day(got.Again) != c.again || got.Attempt != c.attempt || day(got.Late) != c.late || !same(got.Missed, c.missed) || day(got.Through) != c.through || got.Fresh != c.fresh {
			t.Errorf("%s:\ngot  %+v\nwant again %q attempt %d late %q missed %v through %q fresh %q", c.name, got, c.again, c.attempt, c.late, c.missed, c.through, c.fresh)
		}
		if ahead := got.Ahead; (ahead > 0) != got.Through.After(at(t, "2024-01-01T"+c.now+"Z")) {
			t.Errorf("%s: ahead %s", c.name, ahead)
		}
	}
}

// A tick of a year ago is one run, at once; a million missed ticks are one run
// and one line.
func TestDecideAfterALongTime(t *testing.T) {
	for spec, missed := range map[string]int{"0 0 1 1 *": 0, "* * * * *": countable - 1, "* * * * * *": countable - 1} {
		s := parse(t, spec, time.UTC)
		plan, err := s.Decide(Row{Schedule: s.String(), Through: at(t, "2023-06-01T00:00:00Z")}, at(t, "2024-12-31T23:59:59Z"), Rules{CatchUp: noLimit, MaxAttempts: 3})
		if err != nil || plan.Late.IsZero() || len(plan.Missed) > 1 {
			t.Errorf("%q: %+v, %v", spec, plan, err)
		}
		if missed > 0 && (plan.Missed[0].Count != missed || plan.Missed[0].Exact) {
			t.Errorf("%q: %+v, want at least %d missed", spec, plan.Missed, missed)
		}
	}
}

// A damaged row is an error that says what is wrong with it, and no plan.
func TestDecideRefusesDamagedRows(t *testing.T) {
	s := parse(t, "@hourly", time.UTC)
	tick := at(t, "2024-01-01T10:00:00Z")
	for _, row := range []Row{
		{State: "walking", Tick: tick}, {State: StateRunning}, {Tick: tick}, {State: StateRunning, Tick: tick, Attempt: -1},
	} {
		row.Schedule, row.Through = s.String(), tick
		plan, err := s.Decide(row, tick.Add(90*time.Minute), Rules{CatchUp: noLimit, MaxAttempts: 3})
		if err == nil || fmt.Sprint(plan) != fmt.Sprint(Plan{}) {
			t.Errorf("%+v: %+v, %v", row, plan, err)
		}
	}
}

// Whatever the leaders and the clocks do, every tick is decided once: run,
// superseded or too old, in order; and the latest is never lost.
func TestEveryTickIsDecidedOnce(t *testing.T) {
	r := random(t)
	s := parse(t, "*/10 * * * *", zone(t, "Europe/London"))
	start := at(t, "2024-03-30T00:00:00Z") // a clock change lies ahead
	now := start
	row := Row{Schedule: s.String(), Through: start}
	runs, missed := map[time.Time]int{}, 0
	rules := Rules{CatchUp: noLimit, MaxAttempts: 2}
	for range 500 {
		plan, err := s.Decide(row, now, rules)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range plan.Missed {
			if m.Reason == ReasonSuperseded {
				missed += m.Count
			}
		}
		row.Through = plan.Through
		if !plan.Again.IsZero() && r.IntN(2) == 0 {
			row.Attempt, row.State = plan.Attempt, []string{StateDone, StateRunning}[r.IntN(2)]
		}
		claim := func(tick time.Time) {
			if !row.Through.Before(tick) {
				t.Fatalf("%s is claimed though everything up to %s is decided", tick, row.Through)
			}
			runs[tick]++
			row.Through, row.Tick, row.Attempt, row.State = tick, tick, 1, []string{StateDone, StateFailed, StateRunning}[r.IntN(3)]
		}
		late := plan.Late
		if !late.IsZero() && r.IntN(5) > 0 { // else the leader dies before it claims
			claim(late)
			late = time.Time{}
		}
		for late.IsZero() && r.IntN(3) > 0 { // the leader lives to see a tick
			tick := s.Next(row.Through)
			now = tick.Add(time.Duration(r.IntN(500)) * time.Millisecond)
			claim(tick)
		}
		now = now.Add(time.Duration(r.IntN(3600)) * time.Second) // nobody leads
	}
	ticks := 0
	for tick := s.Next(start); !tick.After(row.Through); tick = s.Next(tick) {
		ticks++
		if runs[tick] > 1 {
			t.Errorf("%s ran %d times", tick, runs[tick])
		}
	}
	if len(runs)+missed != ticks {
		t.Errorf("%d ticks ran and %d were missed, want %d together", len(runs), missed, ticks)
	}
}
