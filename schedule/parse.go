package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/robfig/cron/v3"
)

// The places of the fields.
const (
	seconds = iota
	minutes
	hours
	dayOfMonth
	month
	dayOfWeek
	fieldCount
)

// fieldName is how errors call a field.
func fieldName(field int) string {
	return [fieldCount]string{"seconds", "minutes", "hours", "day-of-month", "month", "day-of-week"}[field]
}

// named returns the fields that a short form stands for.
func named(name string) (fields string, ok bool) {
	switch name {
	case "@yearly", "@annually":
		return "0 0 0 1 1 *", true
	case "@monthly":
		return "0 0 0 1 * *", true
	case "@weekly":
		return "0 0 0 * * 0", true
	case "@daily", "@midnight":
		return "0 0 0 * * *", true
	case "@hourly":
		return "0 0 * * * *", true
	}
	return "", false
}

// Parse reads a spec whose times are in the given zone (nil for UTC) unless it
// names one itself. The error is a clause about the spec that says which part
// of it is wrong; what can never come due is an error too.
func Parse(spec string, zone *time.Location) (*Schedule, error) {
	if zone == nil {
		zone = time.UTC
	}
	rest := strings.TrimSpace(spec)
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		if after, ok := strings.CutPrefix(rest, prefix); ok {
			end := strings.IndexFunc(after, unicode.IsSpace)
			if end < 0 {
				end = len(after)
			}
			var err error
			if zone, err = namedZone(after[:end]); err != nil {
				return nil, err
			}
			rest = after[end:]
			break
		}
	}
	if zone.String() == "Local" {
		return nil, errors.New("the time zone Local means another zone on every machine: name the zone")
	}
	words := strings.Fields(strings.ToLower(rest))
	if len(words) == 0 {
		return nil, errors.New("there is no schedule in it")
	}
	s := &Schedule{zone: zone, spec: strings.Join(words, " ")}
	var err error
	if words[0] == "@every" {
		err = s.parseEvery(words[1:])
	} else if fields, ok := named(s.spec); ok {
		err = s.parseFields(strings.Fields(fields))
	} else if strings.HasPrefix(words[0], "@") {
		err = fmt.Errorf("%.40q is not known; there are @hourly, @daily, @weekly, @monthly, @yearly and @every with a duration", s.spec)
	} else {
		err = s.parseFields(words)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func namedZone(name string) (*time.Location, error) {
	if name == "" {
		return nil, errors.New("it names no time zone after the equals sign")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("the time zone %.60q is not known", name)
	}
	return zone, nil
}

// parseEvery reads the duration of @every. Ticks are whole seconds, so it is
// too: rounding would make another schedule of it than the one written down.
func (s *Schedule) parseEvery(words []string) error {
	if len(words) != 1 {
		return errors.New("@every needs one duration, such as @every 90s")
	}
	d, err := time.ParseDuration(words[0])
	switch {
	case err != nil:
		return fmt.Errorf("@every needs a duration with its unit, such as 90s or 1h30m, and %.40q is none", words[0])
	case d < time.Second:
		return fmt.Errorf("@every %s is less than a second", d)
	case d%time.Second != 0:
		return fmt.Errorf("@every %s is not a whole number of seconds", d)
	}
	s.every = int64(d / time.Second)
	s.spec = "@every " + short(d)
	return nil
}

// short writes a duration without the zeros that time.Duration pads it with.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// parseFields reads five or six fields. Each is given to robfig/cron by itself
// first, so that an error names it.
func (s *Schedule) parseFields(fields []string) error {
	switch len(fields) {
	case fieldCount - 1:
		fields = append([]string{"0"}, fields...)
	case fieldCount:
	default:
		return fmt.Errorf("it has %d fields; there are five (minutes, hours, day of month, month, day of week), or six with seconds in front", len(fields))
	}
	given := append([]string(nil), fields...)
	for i, field := range fields {
		if field == "" || strings.HasPrefix(field, ",") || strings.HasSuffix(field, ",") || strings.Contains(field, ",,") {
			return fmt.Errorf("the %s field %.40q has an empty place in its list", fieldName(i), field) // robfig/cron would read: never
		}
		if i == dayOfWeek {
			field = sundayIsZero(field)
			fields[i] = field
		}
		alone := [fieldCount]string{"*", "*", "*", "*", "*", "*"}
		alone[i] = field
		if _, err := parseCron(alone[:]); err != nil {
			return fmt.Errorf("the %s field %.40q is wrong: %s", fieldName(i), given[i], reason(err, i))
		}
	}
	wall, err := parseCron(fields)
	if err != nil {
		return err
	}
	s.wall, s.fields = wall, given
	s.pattern = isPattern(given, wall)
	if err := s.canCome(); err != nil {
		return err
	}
	s.warn()
	return nil
}

// reason says in the user's terms why the parser refuses a field.
func reason(err error, field int) string {
	text := fmt.Sprintf("%.80s", err)
	switch {
	case strings.HasPrefix(text, "failed to parse int"):
		text = "not a number"
	case strings.Contains(text, "above maximum"):
		text = "too large a number"
	case strings.Contains(text, "below minimum"):
		text = "too small a number"
	}
	return text + "; it takes " + [fieldCount]string{"0 to 59", "0 to 59", "0 to 23", "1 to 31", "1 to 12 or jan to dec", "0 to 7 or sun to sat"}[field] +
		", * for all, lists (1,2), ranges (1-5) and steps (*/2)"
}

// parseCron parses six fields. The parser panics on some inputs; whatever it
// does, a spec is no reason to end the process.
func parseCron(fields []string) (wall *cron.SpecSchedule, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it can't be read: %v", r)
		}
	}()
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse(strings.Join(fields, " "))
	if err != nil {
		return nil, err
	}
	wall, ok := schedule.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("it is no schedule of fields")
	}
	wall.Location = time.UTC // the wall clock is read as if it showed UTC
	return wall, nil
}

// sundayIsZero rewrites a day-of-week field for a parser that knows Sunday as 0
// only: 7, and ranges up to 7 or sun, become lists.
func sundayIsZero(field string) string {
	items := strings.Split(field, ",")
	for i, item := range items {
		span, step, stepped := strings.Cut(item, "/")
		first, last, ranged := strings.Cut(span, "-")
		if !ranged && first == "7" && !stepped {
			items[i] = "0"
		}
		if !ranged || last != "7" && last != "sun" {
			continue
		}
		from := dayNumber(first)
		by := 1
		if stepped {
			by, _ = strconv.Atoi(step)
		}
		if from < 0 || by < 1 || by > 7 || last == "sun" && from == 0 {
			continue // the parser says what is wrong with it
		}
		var days []string
		for day := from; day <= 7; day += by {
			days = append(days, strconv.Itoa(day%7))
		}
		items[i] = strings.Join(days, ",")
	}
	return strings.Join(items, ",")
}

// dayNumber returns the number of a day of the week, or -1.
func dayNumber(day string) int {
	if len(day) == 1 && '0' <= day[0] && day[0] <= '7' {
		return int(day[0] - '0')
	}
	for i := range 7 {
		if name := strings.ToLower(time.Weekday(i).String()[:3]); name == day {
			return i
		}
	}
	return -1
}

// isPattern tells a pattern, which repeats within the hour or every hour, from
// fixed times of the day: see the package's comment.
func isPattern(fields []string, wall *cron.SpecSchedule) bool {
	for i, set := range [...]uint64{seconds: wall.Second, minutes: wall.Minute, hours: wall.Hour} {
		if !strings.ContainsAny(fields[i], "*?-/") {
			continue // numbers alone
		}
		set = values(set)
		if i != hours && bits.OnesCount64(set) > 1 || i == hours && set&(set>>1) != 0 {
			return true
		}
	}
	return false
}

// values returns a field's bits, one for each value, without the one by which
// the parser remembers a star.
func values(set uint64) uint64 { return set &^ (1 << 63) }

// starred reports whether the parser saw a star: a day must then match both
// day fields, else one of them.
func starred(set uint64) bool { return set&(1<<63) != 0 }

// canCome is an error for dates that no calendar has. Of the fields, only the
// day of month can contradict another one, and only if it decides.
func (s *Schedule) canCome() error {
	if !starred(s.wall.Dow) && !starred(s.wall.Dom) {
		return nil // the day of week suffices
	}
	first := bits.TrailingZeros64(values(s.wall.Dom))
	for m := time.January; m <= time.December; m++ {
		if s.wall.Month&(1<<m) != 0 && first <= longest(m) {
			return nil
		}
	}
	return fmt.Errorf("it never comes due: the month field %q has no month in which the day-of-month field %q comes", s.fields[month], s.fields[dayOfMonth])
}

// longest returns how many days a month has in the years when it has most.
func longest(m time.Month) int {
	return time.Date(2000, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// warn collects what is right but may surprise.
func (s *Schedule) warn() {
	w := s.wall
	if !starred(w.Dom) && !starred(w.Dow) {
		s.warnings = append(s.warnings, fmt.Sprintf("day of month (%s) and day of week (%s) are both given: it comes due on days that match either of them, not only on days that match both",
			s.fields[dayOfMonth], s.fields[dayOfWeek]))
	} else if first := bits.TrailingZeros64(values(w.Dom)); first > 28 {
		s.warnings = append(s.warnings, fmt.Sprintf("the day-of-month field (%s) skips every month that has no day %d", s.fields[dayOfMonth], first))
	}
	for _, f := range []struct{ field, round int }{{seconds, 60}, {minutes, 60}, {hours, 24}} {
		for item := range strings.SplitSeq(s.fields[f.field], ",") {
			step, ok := strings.CutPrefix(item, "*/")
			if n, err := strconv.Atoi(step); ok && err == nil && n < f.round && f.round%n != 0 {
				s.warnings = append(s.warnings, fmt.Sprintf("%s in the %s field does not divide %d: it starts anew at each 0, with a shorter step before", item, fieldName(f.field), f.round))
			}
		}
	}
}
