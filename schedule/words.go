package schedule

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Words returns the schedule in English, with its time zone, to be read beside
// the spec: "at 02:30 on Monday to Friday (Europe/Berlin)".
func (s *Schedule) Words() string {
	if s.every > 0 {
		return "every " + spoken(time.Duration(s.every)*time.Second) + ", counted from 1970-01-01 00:00 UTC"
	}
	text, fixed := s.timeWords()
	for _, part := range []string{s.dayWords(fixed), s.monthWords()} {
		if part != "" {
			text += " " + part
		}
	}
	return text + " (" + s.zone.String() + ")"
}

// item is one member of a field's list: a value or a range, with a step.
type item struct {
	all         bool // * or ?
	first, last string
	step        int // 1 if none is given
}

// items takes apart a field that the parser has accepted.
func items(field string) []item {
	var list []item
	for text := range strings.SplitSeq(field, ",") {
		span, step, stepped := strings.Cut(text, "/")
		it := item{step: 1}
		if stepped {
			it.step, _ = strconv.Atoi(step)
		}
		var ranged bool
		it.first, it.last, ranged = strings.Cut(span, "-")
		it.all = it.first == "*" || it.first == "?"
		if !ranged && !stepped {
			it.last = it.first
		}
		list = append(list, it)
	}
	return list
}

// plain reports whether it is a single value.
func (it item) plain() bool { return !it.all && it.first == it.last }

func allPlain(list []item) bool {
	for _, it := range list {
		if !it.plain() {
			return false
		}
	}
	return true
}

// everyOne reports whether the field has no effect.
func everyOne(list []item) bool {
	for _, it := range list {
		if it.all && it.step == 1 {
			return true
		}
	}
	return false
}

// listable is how many times of day are written out one by one.
const listable = 8

// timeWords tells the seconds, minutes and hours, and whether they are fixed
// times of the day.
func (s *Schedule) timeWords() (words string, fixed bool) {
	sec, min, hour := items(s.fields[seconds]), items(s.fields[minutes]), items(s.fields[hours])
	if allPlain(sec) && allPlain(min) && allPlain(hour) && len(sec)*len(min)*len(hour) <= listable {
		var times []string
		for h := range each(s.wall.Hour) {
			for m := range each(s.wall.Minute) {
				for c := range each(s.wall.Second) {
					if s.wall.Second == 1 { // only :00
						times = append(times, fmt.Sprintf("%02d:%02d", h, m))
					} else {
						times = append(times, fmt.Sprintf("%02d:%02d:%02d", h, m, c))
					}
				}
			}
		}
		return "at " + and(times), true
	}
	var parts []string
	if s.wall.Second != 1 {
		parts = append(parts, unit(sec, "second"))
	}
	switch {
	case len(parts) > 0 && everyOne(min) && everyOne(hour):
		// every 10 seconds
	case s.wall.Minute == 1 && everyOne(hour):
		parts = append(parts, "every hour")
	default:
		parts = append(parts, unit(min, "minute"))
		if !everyOne(hour) {
			parts = append(parts, unit(hour, "hour"))
		} else if !strings.HasPrefix(parts[len(parts)-1], "every") {
			parts = append(parts, "every hour")
		}
	}
	return strings.Join(parts, ", "), false
}

// each yields the values of a field.
func each(set uint64) func(func(int) bool) {
	return func(yield func(int) bool) {
		for set := values(set); set != 0; set &= set - 1 {
			if !yield(bits.TrailingZeros64(set)) {
				return
			}
		}
	}
}

// unit tells one field of the time: "every 5 minutes", "at minutes 5 and 20 to
// 30".
func unit(list []item, name string) string {
	if everyOne(list) {
		return "every " + name
	}
	if len(list) == 1 && list[0].step > 1 {
		it := list[0]
		text := fmt.Sprintf("every %d %ss", it.step, name)
		switch {
		case it.all:
		case it.last == "":
			text += fmt.Sprintf(" from %s %s on", name, it.first)
		default:
			text += fmt.Sprintf(" from %s %s to %s", name, it.first, it.last)
		}
		return text
	}
	several := len(list) > 1 || !list[0].plain()
	before := "at"
	if name == "hour" {
		before = "in"
	}
	return before + " " + plural(name, several) + " " + and(spans(list, strings.Clone))
}

func plural(name string, several bool) string {
	if several {
		return name + "s"
	}
	return name
}

// spans tells the members of a list, with values written by say.
func spans(list []item, say func(string) string) []string {
	var texts []string
	for _, it := range list {
		text := say(it.first)
		switch {
		case it.all:
			text = "all"
		case it.last == "":
			text = "from " + text + " on"
		case !it.plain():
			text += " to " + say(it.last)
		}
		if it.step > 1 {
			text += fmt.Sprintf(" in steps of %d", it.step)
		}
		texts = append(texts, text)
	}
	return texts
}

func (s *Schedule) dayWords(fixed bool) string {
	dom, dow := items(s.fields[dayOfMonth]), items(s.fields[dayOfWeek])
	onDay := "on " + plural("day", len(dom) > 1 || !dom[0].plain()) + " " + and(spans(dom, strings.Clone)) + " of the month"
	if len(dom) == 1 && dom[0].all {
		onDay = fmt.Sprintf("every %d days of the month from day 1 on", dom[0].step)
	}
	onWeekday := "on " + and(spans(dow, weekdayName))
	switch anyDay, anyWeekday := starred(s.wall.Dom), starred(s.wall.Dow); {
	case anyDay && anyWeekday && fixed:
		return "every day"
	case anyDay && anyWeekday:
		return ""
	case anyWeekday:
		return onDay
	case anyDay:
		return onWeekday
	}
	return onDay + " and " + strings.Replace(onWeekday, "on ", "on every ", 1)
}

func (s *Schedule) monthWords() string {
	list := items(s.fields[month])
	if everyOne(list) {
		return ""
	}
	return "in " + and(spans(list, monthName))
}

func weekdayName(text string) string {
	if n := dayNumber(text); n >= 0 {
		return time.Weekday(n % 7).String()
	}
	return text
}

func monthName(text string) string {
	for m := time.January; m <= time.December; m++ {
		if n, err := strconv.Atoi(text); err == nil && n == int(m) || strings.EqualFold(m.String()[:3], text) {
			return m.String()
		}
	}
	return text
}

// and joins texts as a sentence does.
func and(texts []string) string {
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:len(texts)-1], ", ") + " and " + texts[len(texts)-1]
}

// spoken tells a duration of whole seconds: "1 hour 30 minutes", "minute".
func spoken(d time.Duration) string {
	var parts []string
	for _, u := range []struct {
		name   string
		length time.Duration
	}{{"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		if n := d / u.length; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, plural(u.name, n > 1)))
			d -= n * u.length
		}
	}
	if len(parts) == 1 {
		return strings.TrimPrefix(parts[0], "1 ")
	}
	return strings.Join(parts, " ")
}
