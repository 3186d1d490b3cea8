package schedule

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// The oracle knows nothing of periods, offsets or robfig/cron. It looks at the
// wall clock in every real second and applies the rules of the package's
// comment as they are written.

// fieldSet holds which values a field has.
type fieldSet [64]bool

// fieldsOf reads six fields of numbers, in which only the day fields may be *
// without being a pattern.
func fieldsOf(spec string) (sets [fieldCount]fieldSet) {
	low := [fieldCount]int{0, 0, 0, 1, 1, 0}
	high := [fieldCount]int{59, 59, 23, 31, 12, 6}
	texts := strings.Fields(spec)
	if len(texts) == 5 {
		texts = append([]string{"0"}, texts...)
	}
	for f, text := range texts {
		for _, item := range strings.Split(text, ",") {
			span, step, stepped := strings.Cut(item, "/")
			first, last, ranged := strings.Cut(span, "-")
			from, to, by := low[f], high[f], 1
			if first != "*" {
				from = number(first)
				to = from
				if stepped {
					to = high[f]
				}
			}
			if ranged {
				to = number(last)
			}
			if stepped {
				by = number(step)
			}
			for v := from; v <= to; v += by {
				sets[f][v] = true
			}
		}
	}
	return sets
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// matcher answers whether a place on the wall clock matches a spec.
type matcher struct {
	sets   [fieldCount]fieldSet
	either bool // one of the day fields suffices

	day     int64 // the day that was looked at last
	matches bool  // whether its date matches
}

func newMatcher(spec string) *matcher {
	texts := strings.Fields(spec)
	return &matcher{
		sets:   fieldsOf(spec),
		either: texts[len(texts)-3] != "*" && texts[len(texts)-1] != "*",
		day:    -1 << 60,
	}
}

func (m *matcher) at(place int64) bool {
	second := mod(place, 86400)
	if !m.sets[seconds][second%60] || !m.sets[minutes][second/60%60] || !m.sets[hours][second/3600] {
		return false
	}
	if day := (place - second) / 86400; day != m.day {
		date := time.Unix(place, 0).UTC()
		byDate, byWeekday := m.sets[dayOfMonth][date.Day()], m.sets[dayOfWeek][date.Weekday()]
		m.day = day
		m.matches = m.sets[month][date.Month()] && (byDate && byWeekday || m.either && (byDate || byWeekday))
	}
	return m.matches
}

// wallClock is what a zone's clock shows, in every second from start on.
type wallClock struct {
	start int64
	shows []int64
}

func watch(zone *time.Location, start, end int64) wallClock {
	w := wallClock{start: start}
	for second := start; second < end; second++ {
		_, offset := time.Unix(second, 0).In(zone).Zone()
		w.shows = append(w.shows, second+int64(offset))
	}
	return w
}

// ticks returns when a spec comes due after the second with the given index.
func (w wallClock) ticks(spec string, pattern bool, index int) []int64 {
	m := newMatcher(spec)
	latest := w.shows[0] // the latest place shown so far
	var due []int64
	for i := 1; i < len(w.shows); i++ {
		now, before := w.shows[i], w.shows[i-1]
		comes := false
		if pattern {
			comes = m.at(now)
			for place := before + 1; place < now && !comes; place++ { // jumped over
				comes = m.at(place)
			}
		} else {
			for place := latest + 1; place <= now && !comes; place++ { // shown or passed for the first time
				comes = m.at(place)
			}
		}
		latest = max(latest, now)
		if comes && i > index {
			due = append(due, w.start+int64(i))
		}
	}
	return due
}

// changes returns the instants from 1970 to 2100 at which a zone's wall clock
// jumps.
func changes(zone *time.Location) []int64 {
	var all []int64
	t := time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC)
	for {
		_, end := t.In(zone).ZoneBounds()
		if end.IsZero() || end.Year() >= 2100 {
			return all
		}
		if !end.After(t) { // as in periodAt
			t = t.Add(24 * time.Hour)
			continue
		}
		_, before := t.In(zone).Zone()
		if _, after := end.Zone(); after != before {
			all = append(all, end.Unix())
		}
		t = end
	}
}

// randomSpec returns a spec that comes due at least now and then around any
// given day.
func randomSpec(r *rand.Rand) string {
	pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	value := func(n int) string { return strconv.Itoa(r.IntN(n)) }
	sec := pick("", "", "", "", "30 ", "*/20 ", "0,59 ")
	minute := pick("*", "0", "30", value(60), "*/15", "5/20", value(60)+","+value(60), "10-50/10")
	hour := pick("*", "*/2", "0-6", "22-23,0-3", value(4), value(24), "1,2", "0,23", value(4)+","+value(24))
	day := pick("* * *", "* * *", "* * *", "*/2 * *", "* */2 *", "* * 0", "* * 1-5", "1-7 * 6", "15-31 * *", "13 * 5")
	return sec + minute + " " + hour + " " + day
}
