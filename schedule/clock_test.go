package schedule

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // a test machine may have no zone database
)

// zone loads a time zone.
func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// zones returns every name of the zone database that Go 1.26 embeds.
func zones(t testing.TB) []string {
	t.Helper()
	list, err := os.ReadFile("testdata/zones.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(list))
}

// distinct returns one name of each clock: many are names of the same.
func distinct(t testing.TB) []string {
	t.Helper()
	var names []string
	seen := map[string]bool{}
	for _, name := range zones(t) {
		z := zone(t, name)
		clock := fmt.Sprint(periodAt(z, 0).offset)
		for _, at := range changes(z) {
			clock += fmt.Sprint(" ", at, periodAt(z, at).offset)
		}
		if !seen[clock] {
			seen[clock] = true
			names = append(names, name)
		}
	}
	return names
}

// parse parses a spec that is right.
func parse(t testing.TB, spec string, z *time.Location) *Schedule {
	t.Helper()
	s, err := Parse(spec, z)
	if err != nil {
		t.Fatalf("%q: %v", spec, err)
	}
	return s
}

// at reads an instant.
func at(t testing.TB, text string) time.Time {
	t.Helper()
	i, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// Around each change of the wall clock, each schedule comes due at exactly the
// instants that the package's comment promises.
func TestTicksAroundClockChanges(t *testing.T) {
	for _, c := range []struct {
		change string // what the wall clock does
		zone   string
		spec   string
		after  string
		want   []string
	}{
		{"02:00 becomes 03:00 at 07:00Z", "America/New_York", "30 2 * * *", "2024-03-09T00:00:00Z",
			[]string{"2024-03-09T07:30:00Z", "2024-03-10T07:00:00Z", "2024-03-11T06:30:00Z"}},
		{"02:00 becomes 03:00 at 07:00Z", "America/New_York", "0,20,40 2,3 * * *", "2024-03-09T08:50:00Z",
			[]string{"2024-03-10T07:00:00Z", "2024-03-10T07:20:00Z", "2024-03-10T07:40:00Z", "2024-03-11T06:00:00Z"}},
		{"02:00 becomes 03:00 at 07:00Z", "America/New_York", "*/30 * * * *", "2024-03-10T06:00:00Z",
			[]string{"2024-03-10T06:30:00Z", "2024-03-10T07:00:00Z", "2024-03-10T07:30:00Z"}},
		{"02:00 becomes 03:00 at 07:00Z", "America/New_York", "30 * * * *", "2024-03-10T06:00:00Z",
			[]string{"2024-03-10T06:30:00Z", "2024-03-10T07:00:00Z", "2024-03-10T07:30:00Z"}},
		{"02:00 becomes 03:00 at 07:00Z", "America/New_York", "0 4 * * *", "2024-03-10T00:00:00Z",
			[]string{"2024-03-10T08:00:00Z", "2024-03-11T08:00:00Z"}},
		{"02:00 becomes 01:00 at 06:00Z", "America/New_York", "30 1 * * *", "2024-11-03T00:00:00Z",
			[]string{"2024-11-03T05:30:00Z", "2024-11-04T06:30:00Z"}},
		{"02:00 becomes 01:00 at 06:00Z", "America/New_York", "0 1,2 * * *", "2024-11-03T00:00:00Z",
			[]string{"2024-11-03T05:00:00Z", "2024-11-03T07:00:00Z", "2024-11-04T06:00:00Z"}},
		{"02:00 becomes 01:00 at 06:00Z", "America/New_York", "0 */2 * * *", "2024-11-03T03:00:00Z",
			[]string{"2024-11-03T04:00:00Z", "2024-11-03T07:00:00Z", "2024-11-03T09:00:00Z"}},
		{"02:00 becomes 01:00 at 06:00Z", "America/New_York", "30 * * * *", "2024-11-03T04:00:00Z",
			[]string{"2024-11-03T04:30:00Z", "2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z", "2024-11-03T07:30:00Z"}},
		{"02:00 becomes 01:00 at 06:00Z", "America/New_York", "*/30 1 * * *", "2024-11-03T04:00:00Z",
			[]string{"2024-11-03T05:00:00Z", "2024-11-03T05:30:00Z", "2024-11-03T06:00:00Z", "2024-11-03T06:30:00Z", "2024-11-04T06:00:00Z"}},
		{"02:00 becomes 01:00 at 06:00Z", "America/New_York", "0,30 1 * * *", "2024-11-03T04:00:00Z",
			[]string{"2024-11-03T05:00:00Z", "2024-11-03T05:30:00Z", "2024-11-04T06:00:00Z"}},
		{"02:00 becomes 01:00 at 06:00Z", "America/New_York", "@daily", "2024-11-02T12:00:00Z",
			[]string{"2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"}},
		{"02:00 becomes 01:00 at 06:00Z", "America/New_York", "@every 45m", "2024-11-03T05:00:00Z",
			[]string{"2024-11-03T05:15:00Z", "2024-11-03T06:00:00Z", "2024-11-03T06:45:00Z"}},

		{"01:00 becomes 02:00 at 01:00Z", "Europe/London", "30 1 * * *", "2024-03-30T12:00:00Z",
			[]string{"2024-03-31T01:00:00Z", "2024-04-01T00:30:00Z"}},
		{"02:00 becomes 01:00 at 01:00Z", "Europe/London", "30 1 * * *", "2024-10-26T12:00:00Z",
			[]string{"2024-10-27T00:30:00Z", "2024-10-28T01:30:00Z"}},
		{"02:00 becomes 01:00 at 01:00Z", "Europe/London", "@hourly", "2024-10-26T23:00:00Z",
			[]string{"2024-10-27T00:00:00Z", "2024-10-27T01:00:00Z", "2024-10-27T02:00:00Z"}},

		{"midnight becomes 01:00 at 03:00Z", "America/Sao_Paulo", "0 0 * * *", "2018-11-03T00:00:00Z",
			[]string{"2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}},
		{"midnight becomes 01:00 at 03:00Z", "America/Sao_Paulo", "30 0 4 11 *", "2018-01-01T00:00:00Z",
			[]string{"2018-11-04T03:00:00Z", "2019-11-04T03:30:00Z"}},
		{"midnight becomes 01:00 at 03:00Z", "America/Sao_Paulo", "0 0 * * 0", "2018-10-29T00:00:00Z",
			[]string{"2018-11-04T03:00:00Z", "2018-11-11T02:00:00Z"}},
		{"midnight becomes 23:00 at 02:00Z", "America/Sao_Paulo", "30 23 * * *", "2019-02-16T00:00:00Z",
			[]string{"2019-02-16T01:30:00Z", "2019-02-17T01:30:00Z", "2019-02-18T02:30:00Z"}},
		{"midnight becomes 23:00 at 02:00Z", "America/Sao_Paulo", "0 0 * * *", "2019-02-16T12:00:00Z",
			[]string{"2019-02-17T03:00:00Z", "2019-02-18T03:00:00Z"}},

		{"02:00 becomes 02:30 at 15:30Z", "Australia/Lord_Howe", "15 2 * * *", "2024-10-05T00:00:00Z",
			[]string{"2024-10-05T15:30:00Z", "2024-10-06T15:15:00Z"}},
		{"02:00 becomes 02:30 at 15:30Z", "Australia/Lord_Howe", "@hourly", "2024-10-05T14:00:00Z",
			[]string{"2024-10-05T14:30:00Z", "2024-10-05T15:30:00Z", "2024-10-05T16:00:00Z"}},
		{"02:00 becomes 01:30 at 15:00Z", "Australia/Lord_Howe", "45 1 * * *", "2024-04-06T00:00:00Z",
			[]string{"2024-04-06T14:45:00Z", "2024-04-07T15:15:00Z"}},
		{"02:00 becomes 01:30 at 15:00Z", "Australia/Lord_Howe", "45 * * * *", "2024-04-06T14:00:00Z",
			[]string{"2024-04-06T14:45:00Z", "2024-04-06T15:15:00Z", "2024-04-06T16:15:00Z"}},
		{"02:00 becomes 01:30 at 15:00Z", "Australia/Lord_Howe", "0 2 * * *", "2024-04-06T00:00:00Z",
			[]string{"2024-04-06T15:30:00Z", "2024-04-07T15:30:00Z"}},

		{"December 30 is no day", "Pacific/Apia", "0 12 * * *", "2011-12-29T00:00:00Z",
			[]string{"2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"}},
		{"December 30 is no day", "Pacific/Apia", "0 0 * * *", "2011-12-29T00:00:00Z",
			[]string{"2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"}},
		{"December 30 is no day", "Pacific/Apia", "30 6 30 12 *", "2011-01-01T00:00:00Z",
			[]string{"2011-12-30T10:00:00Z", "2012-12-29T16:30:00Z"}},
		{"December 30 is no day", "Pacific/Apia", "0 */6 * * *", "2011-12-30T00:00:00Z",
			[]string{"2011-12-30T04:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T16:00:00Z"}},

		{"Ramadan begins: 03:00 becomes 02:00 at 02:00Z", "Africa/Casablanca", "30 2 * * *", "2024-03-09T12:00:00Z",
			[]string{"2024-03-10T01:30:00Z", "2024-03-11T02:30:00Z"}},
		{"Ramadan ends: 02:00 becomes 03:00 at 02:00Z", "Africa/Casablanca", "30 2 * * *", "2024-04-13T12:00:00Z",
			[]string{"2024-04-14T02:00:00Z", "2024-04-15T01:30:00Z"}},

		{"midnight becomes 00:15 at 18:30Z", "Asia/Kathmandu", "0,10,20 0 * * *", "1985-12-31T12:00:00Z",
			[]string{"1985-12-31T18:30:00Z", "1985-12-31T18:35:00Z", "1986-01-01T18:15:00Z"}},
		{"nothing", "Asia/Kathmandu", "@daily", "2024-01-01T00:00:00Z",
			[]string{"2024-01-01T18:15:00Z", "2024-01-02T18:15:00Z"}},

		{"a day comes twice, from 13:00Z on", "Pacific/Kwajalein", "0 12 * * *", "1969-09-29T12:00:00Z",
			[]string{"1969-09-30T01:00:00Z", "1969-10-02T00:00:00Z"}},
	} {
		s := parse(t, c.spec, zone(t, c.zone))
		tick := at(t, c.after)
		for _, want := range c.want {
			tick = s.Next(tick)
			if got := tick.Format(time.RFC3339); got != want {
				t.Errorf("%s (%s), %q: got %s, want %s", c.zone, c.change, c.spec, got, want)
				break
			}
		}
	}
}

// The ticks of @every are multiples since 1970, so that every task computes the
// same ones, whatever its zone and whenever it starts.
func TestEveryIsAnchoredToTheEpoch(t *testing.T) {
	for _, c := range []struct{ spec, after, want string }{
		{"@every 90m", "1970-01-01T00:00:00Z", "1970-01-01T01:30:00Z"},
		{"@every 90m", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"},
		{"@every 90m", "1969-12-31T12:00:00Z", "1969-12-31T13:30:00Z"},
		{"@every 7s", "1970-01-01T00:01:10.999Z", "1970-01-01T00:01:17Z"},
		{"@every 7s", "1970-01-01T00:01:09.999Z", "1970-01-01T00:01:10Z"},
		{"@every 24h", "2024-03-10T12:00:00Z", "2024-03-11T00:00:00Z"},
	} {
		for _, name := range []string{"UTC", "America/New_York", "Asia/Kathmandu"} {
			if got := parse(t, c.spec, zone(t, name)).Next(at(t, c.after)); !got.Equal(at(t, c.want)) {
				t.Errorf("%q in %s after %s: got %s, want %s", c.spec, name, c.after, got, c.want)
			}
		}
	}
}

// February 29 is found over the eight years around a year that is no leap year
// although four divides it.
func TestLeapDays(t *testing.T) {
	s := parse(t, "0 0 29 2 *", time.UTC)
	var got []string
	for tick := at(t, "2090-01-01T00:00:00Z"); len(got) < 4; {
		tick = s.Next(tick)
		got = append(got, tick.Format(time.DateOnly))
	}
	if list := strings.Join(got, " "); list != "2092-02-29 2096-02-29 2104-02-29 2108-02-29" {
		t.Errorf("got %s", list)
	}
}

// Next is later than its argument in extreme times as well, and never leaves
// the years that the row can tell.
func TestNextAtTheEndsOfTime(t *testing.T) {
	for _, spec := range []string{"* * * * * *", "0 0 29 2 *", "@every 1s", "@every 100000h"} {
		for _, name := range []string{"UTC", "America/New_York", "Pacific/Apia"} {
			s := parse(t, spec, zone(t, name))
			for _, from := range []time.Time{
				{}, time.Unix(-1<<62, 0), time.Unix(1<<62, 0), time.Unix(-1<<63, 0), time.Unix(1<<63-1, 999_999_999),
				time.Unix(lastInstant-2, 0), time.Unix(lastInstant, 1), time.Unix(firstInstant-1, 0),
			} {
				next := s.Next(from)
				if next.IsZero() {
					continue
				}
				if next.Unix() <= from.Unix() || next.Year() < 1 || next.Year() > 9999 {
					t.Errorf("%q in %s: after %d comes %s", spec, name, from.Unix(), next)
				}
				if latest, count, _ := s.Latest(from, next); count != 1 || !latest.Equal(next) {
					t.Errorf("%q in %s: the latest of one tick is %s (of %d), want %s", spec, name, latest, count, next)
				}
			}
		}
	}
}
