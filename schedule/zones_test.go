package schedule

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	all      = flag.Bool("all", false, "walk every zone and every change of its clock instead of a sample; takes an hour, so set -timeout")
	seedFlag = flag.Uint64("seed", 0, "repeat the sample of a failed test")
)

// random returns a source whose seed is printed when the test fails.
func random(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat it with -seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// Around clock changes, the ticks are exactly those of somebody who looks at
// the wall clock every second, for specs and zones of every kind.
func TestTicksAreThoseOfAWatchedClock(t *testing.T) {
	r := random(t)
	type change struct {
		zone string
		at   int64
	}
	var sample []change
	every := zones(t)
	if *all {
		for _, name := range distinct(t) {
			for _, at := range changes(zone(t, name)) {
				sample = append(sample, change{name, at})
			}
		}
	} else {
		for _, name := range []string{"America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Kathmandu", "Pacific/Kwajalein", "Antarctica/Troll"} {
			ats := changes(zone(t, name))
			sample = append(sample, change{name, ats[r.IntN(len(ats))]}, change{"Pacific/Apia", at(t, "2011-12-30T10:00:00Z").Unix()})
		}
		for len(sample) < 24 {
			name := every[r.IntN(len(every))]
			if ats := changes(zone(t, name)); len(ats) > 0 {
				sample = append(sample, change{name, ats[r.IntN(len(ats))]})
			}
		}
	}
	const warmUp, before, after = widest + 3600, 3 * 3600, 28 * 3600 // what was shown before the first of them is not shown again
	for _, c := range sample {
		z := zone(t, c.zone)
		clock := watch(z, c.at-before-warmUp, c.at+after)
		from, until := instant(c.at-before), instant(c.at+after-1)
		for range 6 {
			spec := randomSpec(r)
			s := parse(t, spec, z)
			want := clock.ticks(spec, s.pattern, warmUp)
			got := []int64{}
			for tick := s.Next(from); !tick.IsZero() && !tick.After(until); tick = s.Next(tick) {
				if got = append(got, tick.Unix()); len(got) > len(want) {
					break
				}
			}
			if !slices.Equal(got, want) {
				i := 0
				for i < len(got) && i < len(want) && got[i] == want[i] {
					i++
				}
				t.Fatalf("%s around %s, %q (pattern: %t): %d ticks, want %d; they part at\ngot  %v\nwant %v",
					c.zone, instant(c.at), spec, s.pattern, len(got), len(want), some(got[i:]), some(want[i:]))
			}
			s.checkLatest(t, r, clock, want)
		}
	}
}

func some(ticks []int64) []string {
	var texts []string
	for _, tick := range ticks[:min(len(ticks), 3)] {
		texts = append(texts, instant(tick).Format(time.RFC3339))
	}
	return texts
}

// checkLatest compares Latest with a list of all ticks of a window.
func (s *Schedule) checkLatest(t *testing.T, r *rand.Rand, clock wallClock, ticks []int64) {
	t.Helper()
	if len(ticks) == 0 {
		return
	}
	end := clock.start + int64(len(clock.shows)) - 1
	for range 20 {
		after := ticks[0] - 1 + r.Int64N(end-ticks[0]+1)
		until := after + r.Int64N(end-after+1)
		first, _ := slices.BinarySearch(ticks, after+1)
		last, _ := slices.BinarySearch(ticks, until+1)
		want := time.Time{}
		if last > first {
			want = instant(ticks[last-1])
		}
		latest, count, exact := s.Latest(instant(after), instant(until).Add(999*time.Millisecond))
		if !latest.Equal(want) || exact != (last-first <= countable) || count != min(last-first, countable) {
			t.Fatalf("%s: the latest tick from %s to %s is %s of %d (exact: %t), want %s of %d",
				s, instant(after), instant(until), latest, count, exact, want, last-first)
		}
	}
}

// In every zone of the database, from 1970 to 2100, Next goes forward and is a
// whole second of UTC; and it is the first tick: from just before a tick, and
// from anywhere between two, the answer is that tick.
func TestNextIsStrictlyIncreasing(t *testing.T) {
	r := random(t)
	specs := []struct {
		spec string
		days int // how far around a clock change to walk
	}{
		{"* * * * *", 0}, {"*/7 * * * *", 1}, {"0 * * * *", 2}, {"30 0-3 * * *", 30}, {"30 2 * * *", 60}, {"0 0 * * *", 60},
		{"0,59 0,23 * * 0", 200}, {"*/40 * * * * *", 0}, {"0 */5 * * *", 5}, {"15 1 1,31 * *", 400}, {"0 0 29 2 *", 3000}, {"0 0 13 * 5", 300}, {"@every 37m", 1},
	}
	step := r.IntN(len(specs)) // a few of the specs in each zone are plenty for one run
	names := zones(t)
	if *all {
		names = distinct(t)
	}
	for _, name := range names {
		z := zone(t, name)
		ats := changes(z)
		if len(ats) == 0 {
			ats = []int64{0, at(t, "2024-02-29T00:00:00Z").Unix()}
		}
		if !*all {
			ats = []int64{ats[r.IntN(len(ats))]}
		}
		for _, c := range specs {
			if step++; !*all && step%5 != 0 {
				continue
			}
			s := parse(t, c.spec, z)
			for _, w := range windows(ats, int64(c.days)*86400+3*3600) {
				tick := instant(w[0])
				for until := instant(w[1]); tick.Before(until); {
					next := s.Next(tick)
					if !next.After(tick) || next.Location() != time.UTC || next.Nanosecond() != 0 {
						t.Fatalf("%s, %q: after %s comes %s", name, c.spec, tick, next)
					}
					between := tick.Add(time.Duration(r.Int64N(int64(next.Sub(tick)))))
					if again := s.Next(between); !again.Equal(next) {
						t.Fatalf("%s, %q: after %s comes %s, but after %s comes %s", name, c.spec, tick, next, between, again)
					}
					tick = next
				}
			}
		}
	}
}

// windows are the times that are no further than span from one of the given, in
// ascending order, as pairs of a beginning and an end.
func windows(ats []int64, span int64) (all [][2]int64) {
	for _, at := range ats {
		if n := len(all); n > 0 && at-span <= all[n-1][1] {
			all[n-1][1] = at + span
			continue
		}
		all = append(all, [2]int64{at - span, at + span})
	}
	return all
}

// In every zone, any instant lies in the period that is said to have it, with
// one offset all through: also on the last day of a leap year, where Go's own
// answer ends before it begins.
func TestPeriods(t *testing.T) {
	r := random(t)
	offset := func(z *time.Location, at int64) int64 {
		_, offset := time.Unix(at, 0).In(z).Zone()
		return int64(offset)
	}
	first, last := at(t, "1850-01-01T00:00:00Z").Unix(), at(t, "2500-01-01T00:00:00Z").Unix()
	for _, name := range zones(t) {
		z := zone(t, name)
		for n := range 40 {
			second := first + r.Int64N(last-first)
			if n%4 == 0 {
				second = time.Date(2040+4*r.IntN(20), 12, 30, 0, 0, r.IntN(3*secondsPerDay), 0, time.UTC).Unix()
			}
			p := periodAt(z, second)
			if p.start > second || p.ends && p.end <= second {
				t.Fatalf("%s: the period of %s is %+v", name, instant(second), p)
			}
			from, until := max(p.start, first), last
			if p.ends {
				until = min(p.end, last+secondsPerDay)
			}
			for _, inside := range []int64{from, until - 1, from + r.Int64N(until-from)} {
				if got := offset(z, inside); got != p.offset {
					t.Fatalf("%s: the period of %s is %+v, but at %s the offset is %d", name, instant(second), p, instant(inside), got)
				}
			}
		}
	}
}

// No zone's clock jumps twice within the time that the search looks back.
func TestJumpsAreFarApart(t *testing.T) {
	for _, name := range zones(t) {
		z := zone(t, name)
		previous := int64(-1 << 60)
		for p := periodAt(z, at(t, "1800-01-01T00:00:00Z").Unix()); p.ends && p.end < at(t, "2100-01-01T00:00:00Z").Unix(); {
			next := periodAt(z, p.end)
			if next.offset != p.offset {
				if next.start-previous <= widest {
					t.Errorf("%s jumps at %s and at %s", name, instant(previous), instant(next.start))
				}
				previous = next.start
			}
			p = next
		}
	}
}

// The last days of leap years hold no schedule up.
func TestLastDayOfALeapYear(t *testing.T) {
	s := parse(t, "30 2 * * *", zone(t, "Europe/Berlin"))
	tick := at(t, "2040-12-30T00:00:00Z")
	for _, want := range []string{"2040-12-30T01:30:00Z", "2040-12-31T01:30:00Z", "2041-01-01T01:30:00Z"} {
		if tick = s.Next(tick); tick.Format(time.RFC3339) != want {
			t.Fatalf("got %s, want %s", tick.Format(time.RFC3339), want)
		}
	}
}

// From 1970 to 2100 without a gap, in the zones with the strangest clocks.
func TestHundredAndThirtyYears(t *testing.T) {
	names := []string{"America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"}
	if *all {
		names = distinct(t)
	}
	for _, name := range names {
		for _, spec := range []string{"30 2 * * 0", "0 0 1,15 * *"} {
			s := parse(t, spec, zone(t, name))
			start, end := at(t, "1970-01-01T00:00:00Z"), at(t, "2100-01-01T00:00:00Z")
			count := 0
			for tick := s.Next(start); tick.Before(end); count++ {
				next := s.Next(tick)
				if gap := next.Sub(tick); gap <= 0 || gap > 18*24*time.Hour {
					t.Fatalf("%s, %q: after %s comes %s", name, spec, tick, next)
				}
				tick = next
			}
			if want := map[string]int{"30 2 * * 0": 6783, "0 0 1,15 * *": 130 * 24}[spec]; count < want-1 || count > want+1 {
				t.Errorf("%s, %q: %d ticks in 130 years, want %d", name, spec, count, want)
			}
		}
	}
}
