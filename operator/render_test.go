package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"solojob/leader"
	"solojob/operator"
)

// hourly is a lease on an hourly schedule, decided up to an hour.
func hourly(through string) operator.View {
	v := operator.View{Now: begin}
	v.Key = operator.Key{Name: "t", Item: operator.ServiceItem}
	v.Row = leader.Row{
		Owner: "t/1", Beat: "a", Fence: 200, Lease: 30 * time.Second,
		Record: leader.Record{Schedule: "CRON_TZ=UTC 0 0 * * * *", Through: through, Tick: "2026-01-02T01:00:00Z", TickState: "done"},
	}
	return v
}

func run(fence int64, tick string) operator.Run {
	return operator.Run{
		Fence: fence, Tick: tick, Kind: "tick", Attempt: 1, Owner: "t/1", State: "done",
		Started: tick, Ended: tick, Duration: time.Second,
	}
}

// The history says which ticks have no run, between runs and after the last; and
// nothing where a run on record may have been overwritten, where the schedule was
// another one, or where a run goes on.
func TestGapsInHistory(t *testing.T) {
	const one, two, five = "2026-01-01T21:00:00Z", "2026-01-01T22:00:00Z", "2026-01-02T01:00:00Z"
	for _, c := range []struct {
		name string
		runs []operator.Run
		view func(v *operator.View)
		want []string
	}{
		{name: "none", runs: []operator.Run{run(198, one), run(199, two)}, view: func(v *operator.View) { v.Record.Through = two }},
		{
			name: "between", runs: []operator.Run{run(198, one), run(199, five)},
			view: func(v *operator.View) { v.Record.Through = five },
			want: []string{"3 ticks without a run on record: 2026-01-01T22:00:00Z to 2026-01-02T00:00:00Z"},
		},
		{
			name: "one", runs: []operator.Run{run(198, one), run(199, "2026-01-01T23:00:00Z")},
			view: func(v *operator.View) { v.Record.Through = "2026-01-01T23:00:00Z" },
			want: []string{"1 tick without a run on record: 2026-01-01T22:00:00Z"},
		},
		{
			name: "after", runs: []operator.Run{run(198, one), run(199, two)},
			want: []string{"5 ticks without a run on record: 2026-01-01T23:00:00Z to 2026-01-02T03:00:00Z"},
		},
		{
			name: "running", runs: []operator.Run{run(199, "2026-01-02T02:00:00Z")},
			view: func(v *operator.View) { v.Record.Tick, v.Record.TickState = "2026-01-02T03:00:00Z", "running" },
		},
		{
			name: "undecided", runs: []operator.Run{run(199, five)},
			view: func(v *operator.View) { v.Owner, v.Record.Through = "", five },
			want: []string{"2 ticks not decided yet: 2026-01-02T02:00:00Z to 2026-01-02T03:00:00Z"},
		},
		{
			name: "overwritten", runs: []operator.Run{run(50, one), run(141, "2026-01-02T02:00:00Z"), run(151, "2026-01-02T03:00:00Z")},
		},
		{
			name: "a raised fence", runs: []operator.Run{run(3, one), run(5, "2026-01-01T23:00:00Z"), run(501, "2026-01-02T03:00:00Z")},
			view: func(v *operator.View) { v.Fence = 501 },
			want: []string{"1 tick without a run on record: 2026-01-01T22:00:00Z"},
		},
		{name: "another schedule", runs: []operator.Run{run(198, "2026-01-01T21:30:00Z"), run(199, "2026-01-02T03:00:00Z")}},
		{name: "the same tick again", runs: []operator.Run{run(198, "2026-01-02T03:00:00Z"), run(199, "2026-01-02T03:00:00Z")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := hourly("2026-01-02T03:04:00Z")
			v.Runs = c.runs
			if c.view != nil {
				c.view(&v)
			}
			got := operator.RenderHistory(v, 30, operator.Style{})
			if n := strings.Count(got, " tick without") + strings.Count(got, " ticks "); n != len(c.want) {
				t.Errorf("%d gaps, want %d:\n%s", n, len(c.want), got)
			}
			for _, w := range c.want {
				if !strings.Contains(got, "·  "+w+"\n") {
					t.Errorf("no %q in\n%s", w, got)
				}
			}
		})
	}
}

// However long the names and however narrow the terminal, no line is longer than
// the page, and nothing is left out of the details.
func TestNothingIsWiderThanThePage(t *testing.T) {
	long := strings.Repeat("x", 255)
	v := hourly("2026-01-02T03:04:00Z")
	v.Name, v.Owner, v.Revision = long, strings.Repeat("y", 70)+"/0123456789abcdef", "1234567"
	v.Requests = leader.Requests{
		Paused: true, PausedBy: "arn:aws:sts::123456789012:assumed-role/" + strings.Repeat("z", 80) + " 2026-01-02T03:04:05Z",
		Handover: v.Owner, HandoverBy: strings.Repeat("z", 96), RunNow: "00000000", RunBy: long,
	}
	for i := range 100 {
		r := run(int64(101+i), fmt.Sprintf("2026-01-01T%02d:%02d:00Z", i/60, i%60))
		r.Duration = time.Duration(1+i*i*i) * 100 * time.Second
		r.Owner, r.By, r.State, r.Why, r.ExitCode = v.Owner, long, "interrupted", long, 143
		v.Runs = append(v.Runs, r)
	}
	for _, columns := range []int{0, 80, 90, 100, 300} {
		s := operator.Style{Columns: columns}
		page := map[int]int{0: 100, 300: 100}[columns]
		if page == 0 {
			page = columns
		}
		details := operator.RenderDetails(v, s)
		for name, text := range map[string]string{
			"details": details[strings.Index(details, "\n"):], // the name stands alone on its line
			"history": operator.RenderHistory(v, 100, s)[len(long)+2:],
		} {
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > page {
					t.Errorf("%s at %d columns: %d columns: %s", name, columns, n, line)
				}
			}
		}
		joined := strings.Join(strings.Fields(details), "")
		for _, all := range []string{v.Owner, v.Requests.HandoverBy, long} {
			if !strings.Contains(joined, all) {
				t.Errorf("%q is missing at %d columns:\n%s", all, columns, details)
			}
		}
		// Nine columns do not fit into less than these.
		for line := range strings.Lines(operator.RenderOverview([]operator.View{v, hourly("")}, s)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > max(page, 95) {
				t.Errorf("overview at %d columns: %d columns: %s", columns, n, line)
			}
		}
	}
}

// What stands in a row can't steer the terminal that shows it.
func TestRowsDoNotSteerTheTerminal(t *testing.T) {
	v := hourly("2026-01-02T03:04:00Z")
	evil := "\x1b[2Jgone\r\n\u009bm"
	v.Name, v.Owner, v.Revision, v.Requests.PausedBy, v.ChangedBy = evil, evil, evil, evil, evil
	v.Requests.Paused = true
	r := run(1, evil)
	r.Owner, r.State, r.Why, r.By = evil, evil, evil, evil
	v.Runs = []operator.Run{r}
	text := operator.RenderDetails(v, operator.Style{}) + operator.RenderHistory(v, 1, operator.Style{}) +
		operator.RenderOverview([]operator.View{v}, operator.Style{})
	if strings.ContainsAny(text, "\x1b\r\u009b") {
		t.Errorf("%q", text)
	}
}

// A tick that is decided into the future, by a task whose clock was wrong, is
// said, and the next tick is after it.
func TestTicksDecidedIntoTheFuture(t *testing.T) {
	v := hourly("2099-01-02T03:04:05Z")
	got := operator.RenderDetails(v, operator.Style{})
	for _, want := range []string{"next tick  2099-01-02T04:00:00Z", "Some task's clock was wrong: the ticks up to 2099-01-02T03:04:05Z are decided already"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
