package schedule

import (
	"testing"
	"time"
)

// The latest of any number of ticks is found in a few steps, however long
// nobody led; and the count says when it stops counting.
func TestLatestOfManyIsCheap(t *testing.T) {
	for _, c := range []struct {
		spec, after, until string
		latest             string
		count              int
		exact              bool
	}{
		{"* * * * * *", "2023-01-01T00:00:00Z", "2024-01-01T00:00:00.5Z", "2024-01-01T00:00:00Z", countable, false},
		{"* * * * *", "1970-01-01T00:00:00Z", "2100-01-01T00:00:30Z", "2100-01-01T00:00:00Z", countable, false},
		{"* * * * 1 *", "2023-01-01T00:00:00Z", "2023-12-31T00:00:00Z", "2023-01-31T23:59:59Z", countable, false},
		{"@every 1s", "2023-01-01T00:00:00Z", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z", 31_536_000, true},
		{"@every 7s", "1970-01-01T00:00:00Z", "1970-01-01T00:00:21Z", "1970-01-01T00:00:21Z", 3, true},
		{"@every 7s", "1970-01-01T00:00:07Z", "1970-01-01T00:00:13Z", "", 0, true},
		{"@daily", "2023-06-01T00:00:00Z", "2023-06-11T00:00:00Z", "2023-06-11T00:00:00Z", 10, true},
		{"@daily", "2023-06-01T00:00:00Z", "2023-06-01T00:00:00Z", "", 0, true},
		{"@daily", "2023-06-02T00:00:00Z", "2023-06-01T00:00:00Z", "", 0, true},
		{"0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-28T00:00:00Z", "", 0, true},
		{"0 0 29 2 *", "2096-02-28T00:00:00Z", "2104-02-28T00:00:00Z", "2096-02-29T00:00:00Z", 1, true},
		{"@yearly", "0001-01-01T00:00:00Z", "2024-06-01T00:00:00Z", "2024-01-01T00:00:00Z", 2023, true},
	} {
		s := parse(t, c.spec, time.UTC)
		latest, count, exact := s.Latest(at(t, c.after), at(t, c.until))
		want := time.Time{}
		if c.latest != "" {
			want = at(t, c.latest)
		}
		if !latest.Equal(want) || count != c.count || exact != c.exact {
			t.Errorf("%q from %s to %s: %s of %d (exact: %t), want %s of %d (exact: %t)", c.spec, c.after, c.until, latest, count, exact, want, c.count, c.exact)
		}
	}
}

// Due runs the latest tick if it is young enough and accounts for all others.
func TestDue(t *testing.T) {
	hourly := parse(t, "@hourly", time.UTC)
	for _, c := range []struct {
		name         string
		through, now string
		catchUp      time.Duration
		run          string
		missed       []Missed
	}{
		{"nothing came due", "2024-01-01T10:00:00Z", "2024-01-01T10:59:59Z", noLimit, "", nil},
		{"one tick", "2024-01-01T10:00:00Z", "2024-01-01T11:20:00Z", noLimit, "2024-01-01T11:00:00Z", nil},
		{"three ticks", "2024-01-01T10:00:00Z", "2024-01-01T13:20:00Z", noLimit, "2024-01-01T13:00:00Z",
			[]Missed{{at(t, "2024-01-01T12:00:00Z"), 2, true, ReasonSuperseded}}},
		{"as old as allowed", "2024-01-01T10:00:00Z", "2024-01-01T11:20:00.9Z", 20 * time.Minute, "2024-01-01T11:00:00Z", nil},
		{"too old", "2024-01-01T10:00:00Z", "2024-01-01T12:20:01Z", 20 * time.Minute, "",
			[]Missed{{at(t, "2024-01-01T12:00:00Z"), 2, true, ReasonTooOld}}},
		{"never", "2024-01-01T10:00:00Z", "2024-01-01T11:00:01Z", 0, "", []Missed{{at(t, "2024-01-01T11:00:00Z"), 1, true, ReasonTooOld}}},
		{"never, in the tick's own second", "2024-01-01T10:00:00Z", "2024-01-01T11:00:00.4Z", 0, "2024-01-01T11:00:00Z", nil},
		{"the clock went back", "2024-01-01T10:00:00Z", "2024-01-01T09:00:00Z", noLimit, "", nil},
	} {
		run, missed := hourly.Due(at(t, c.through), at(t, c.now), c.catchUp)
		if got := text(run); got != c.run || !same(missed, c.missed) {
			t.Errorf("%s: run %q, missed %v; want %q, %v", c.name, got, missed, c.run, c.missed)
		}
	}
}

// text writes a tick, or nothing for none.
func text(tick time.Time) string {
	if tick.IsZero() {
		return ""
	}
	return tick.Format(time.RFC3339)
}

func same(a, b []Missed) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].Latest.Equal(b[i].Latest) || a[i].Count != b[i].Count || a[i].Exact != b[i].Exact || a[i].Reason != b[i].Reason {
			return false
		}
	}
	return true
}
