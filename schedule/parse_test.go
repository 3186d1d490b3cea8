package schedule

import (
	"strings"
	"testing"
	"time"
)

// What can't be used is refused with a sentence that names the part that is
// wrong.
func TestRefusedSpecs(t *testing.T) {
	for spec, want := range map[string]string{
		"":                              "no schedule",
		"  \t ":                         "no schedule",
		"* * * *":                       "it has 4 fields",
		"* * * * * * *":                 "it has 7 fields",
		"60 * * * *":                    `the minutes field "60" is wrong: too large a number; it takes 0 to 59`,
		"60 * * * * *":                  `the seconds field "60"`,
		"* 24 * * *":                    `the hours field "24" is wrong: too large a number; it takes 0 to 23`,
		"* * 0 * *":                     `the day-of-month field "0" is wrong: too small a number; it takes 1 to 31`,
		"* * 32 * *":                    `the day-of-month field "32"`,
		"* * * 13 *":                    `the month field "13"`,
		"* * * foo *":                   `the month field "foo" is wrong: not a number; it takes 1 to 12 or jan to dec`,
		"* * * * 8":                     `the day-of-week field "8" is wrong: too large a number; it takes 0 to 7 or sun to sat`,
		"* * * * 5-8":                   `the day-of-week field "5-8"`,
		"* * * * 7-1":                   `the day-of-week field "7-1"`,
		"* * * * sat-mon":               `the day-of-week field "sat-mon"`,
		"* * L * *":                     `the day-of-month field "l" is wrong: not a number`,
		"* * * * 5#3":                   `the day-of-week field "5#3"`,
		", * * * *":                     `the minutes field "," has an empty place`,
		"1,,2 * * * *":                  `the minutes field "1,,2" has an empty place`,
		"* * * * ,1":                    `the day-of-week field ",1" has an empty place`,
		"*/0 * * * *":                   `the minutes field "*/0"`,
		"*/x * * * *":                   `the minutes field "*/x"`,
		"*/ * * * *":                    `the minutes field "*/"`,
		"/ * * * *":                     `the minutes field "/"`,
		"5- * * * *":                    `the minutes field "5-"`,
		"-5 * * * *":                    `the minutes field "-5"`,
		"1-2-3 * * * *":                 `the minutes field "1-2-3"`,
		"1/2/3 * * * *":                 `the minutes field "1/2/3"`,
		"9999999999999999999 * * * *":   `the minutes field "9999999999999999999"`,
		"0 0 31 2 *":                    `it never comes due: the month field "2" has no month in which the day-of-month field "31" comes`,
		"0 0 30-31 feb *":               "never comes due",
		"0 0 31 4,6,9,11 *":             "never comes due",
		"@every":                        "@every needs one duration",
		"@every 1 h":                    "@every needs one duration",
		"@every 90":                     "with its unit",
		"@every 999ms":                  "less than a second",
		"@every 0s":                     "less than a second",
		"@every -5m":                    "less than a second",
		"@every 1500ms":                 "not a whole number of seconds",
		"@every 99999999h":              "none",
		"@reboot":                       `"@reboot" is not known`,
		"@everyday":                     "is not known",
		"@daily 5":                      "is not known",
		"@":                             "is not known",
		"CRON_TZ=":                      "names no time zone",
		"CRON_TZ= * * * * *":            "names no time zone",
		"CRON_TZ=Mars/Base * * * * *":   `the time zone "Mars/Base" is not known`,
		"CRON_TZ=Local * * * * *":       "another zone on every machine",
		"CRON_TZ=UTC":                   "no schedule",
		"TZ=UTC":                        "no schedule",
		"TZ":                            "it has 1 fields",
		"CRON_TZ=UTC TZ=UTC * * * * *":  `the seconds field "tz=utc" is wrong: not a number`,
		"CRON_TZ=../../etc * * * * *":   "is not known",
		"\x00 * * * *":                  "the minutes field",
		strings.Repeat("1,", 99) + " *": "it has 2 fields",
	} {
		s, err := Parse(spec, time.UTC)
		if err == nil {
			t.Errorf("%q is accepted: %s", spec, s)
			continue
		}
		if s != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q, want %q in it", spec, err, want)
		}
	}
	if _, err := Parse("@hourly", time.Local); err == nil {
		t.Error("the zone of the machine is accepted")
	}
}

// Spellings of one schedule are one: the same ticks, and the same text in the
// row where they differ in white space, case or where the zone was set only.
func TestSpellings(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	want := parse(t, "0 9 * * mon", berlin).String()
	if want != "CRON_TZ=Europe/Berlin 0 9 * * mon" {
		t.Errorf("the row would say %q", want)
	}
	for _, same := range []string{"  0  9 *\t* MON ", "CRON_TZ=Europe/Berlin 0 9 * * Mon", "TZ=Europe/Berlin   0 9 * * mon"} {
		if got := parse(t, same, berlin).String(); got != want {
			t.Errorf("%q becomes %q, want %q", same, got, want)
		}
	}
	again := parse(t, want, time.UTC)
	if again.String() != want {
		t.Errorf("what the row says, %q, is read as %q", want, again)
	}
	for _, every := range []string{"@every 90m", "@every 1h30m", "CRON_TZ=Asia/Tokyo @EVERY 5400s"} {
		if got := parse(t, every, berlin).String(); got != "@every 1h30m" {
			t.Errorf("%q becomes %q", every, got)
		}
	}
	for _, pair := range [][2]string{
		{"0 0 * * 7", "0 0 * * 0"}, {"0 0 * * 5-7", "0 0 * * 5,6,0"}, {"0 0 * * 0-7", "0 0 * * *"}, {"0 0 * * 1-7/2", "0 0 * * 1,3,5,0"},
		{"0 0 * * fri-sun", "0 0 * * 5,6,0"}, {"0 0 * * 7-7", "0 0 * * 0"}, {"0 0 * * 3,7", "0 0 * * 3,0"}, {"0 0 * * sun-sat", "0 0 * * *"},
		{"0 0 ? * ?", "0 0 * * *"}, {"0 0 0 * * *", "0 0 * * *"}, {"@hourly", "0 * * * *"}, {"@daily", "0 0 * * *"}, {"@midnight", "@daily"},
		{"@weekly", "0 0 * * 0"}, {"@monthly", "0 0 1 * *"}, {"@yearly", "0 0 1 1 *"}, {"@annually", "@yearly"}, {"0 0 1 JAN *", "@yearly"},
		{"5/20 * * * *", "5,25,45 * * * *"}, {"@every 1h", "@hourly"},
	} {
		a, b := parse(t, pair[0], time.UTC), parse(t, pair[1], time.UTC)
		tick := at(t, "2024-02-25T00:00:00Z")
		for range 50 {
			x, y := a.Next(tick), b.Next(tick)
			if !x.Equal(y) {
				t.Errorf("%q and %q differ after %s: %s and %s", pair[0], pair[1], tick, x, y)
				break
			}
			tick = x
		}
	}
}

// A day of the month beside a day of the week, and other things that surprise,
// are accepted with a warning.
func TestWarnings(t *testing.T) {
	for spec, want := range map[string]string{
		"0 0 13 * 5":    "day of month (13) and day of week (5) are both given: it comes due on days that match either",
		"0 0 */2 * mon": "match either",
		"0 0 1-31 * 1":  "match either",
		"0 0 31 * *":    "skips every month that has no day 31",
		"0 0 29 2 *":    "no day 29",
		"*/7 * * * *":   "*/7 in the minutes field does not divide 60",
		"0 */5 * * *":   "*/5 in the hours field does not divide 24",
		"* * * * *":     "",
		"0 0 13 * *":    "",
		"0 0 * * 5":     "",
		"0 0 28,31 * *": "",
		"*/15 * * * *":  "",
		"@every 7m":     "",
	} {
		got := parse(t, spec, time.UTC).Warnings()
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("%q: %q, want %q", spec, got, want)
		}
	}
	s := parse(t, "0 0 13 * 5", time.UTC)
	s.Warnings()[0] = ""
	if s.Warnings()[0] == "" {
		t.Error("the caller can change the warnings")
	}
}

// Fixed times come once where the wall clock is set back, patterns twice; this
// is how they are told apart.
func TestPatterns(t *testing.T) {
	for spec, want := range map[string]bool{
		"* * * * *": true, "*/15 * * * *": true, "30 * * * *": true, "@hourly": true, "*/10 0-6 * * *": true, "0 0-6 * * *": true, "0-10 1 * * *": true,
		"* 1 * * *": true, "*/20 30 1 * * *": true, "0 */1 * * *": true, "0 8,0-3 * * *": true, "10/20 1 * * *": true,
		"30 1 * * *": false, "0,30 1 * * *": false, "0 */2 * * *": false, "0 1,2,3 * * *": false, "@daily": false, "@weekly": false, "0 0 1 * *": false,
		"5-5 1 * * *": false, "0 0-23/2 * * *": false, "0,30 30 1 * * *": false, "@every 5m": false,
	} {
		if got := parse(t, spec, time.UTC).pattern; got != want {
			t.Errorf("%q: pattern %t, want %t", spec, got, want)
		}
	}
}

// The words say what the spec says.
func TestWords(t *testing.T) {
	tokyo := zone(t, "Asia/Tokyo")
	for spec, want := range map[string]string{
		"* * * * *":                     "every minute (Asia/Tokyo)",
		"*/5 * * * *":                   "every 5 minutes (Asia/Tokyo)",
		"* * * * * *":                   "every second (Asia/Tokyo)",
		"*/10 * * * * *":                "every 10 seconds (Asia/Tokyo)",
		"@hourly":                       "every hour (Asia/Tokyo)",
		"30 * * * *":                    "at minute 30, every hour (Asia/Tokyo)",
		"0 */2 * * *":                   "at minute 0, every 2 hours (Asia/Tokyo)",
		"30 2 * * *":                    "at 02:30 every day (Asia/Tokyo)",
		"5 30 2 * * *":                  "at 02:30:05 every day (Asia/Tokyo)",
		"0,30 9,17 * * *":               "at 09:00, 09:30, 17:00 and 17:30 every day (Asia/Tokyo)",
		"0 9 * * mon-fri":               "at 09:00 on Monday to Friday (Asia/Tokyo)",
		"0 9 * * 1,7":                   "at 09:00 on Monday and Sunday (Asia/Tokyo)",
		"0 0 13 * 5":                    "at 00:00 on day 13 of the month and on every Friday (Asia/Tokyo)",
		"0 0 1,15 jan-mar *":            "at 00:00 on days 1 and 15 of the month in January to March (Asia/Tokyo)",
		"@yearly":                       "at 00:00 on day 1 of the month in January (Asia/Tokyo)",
		"0 0 */2 * *":                   "at 00:00 every 2 days of the month from day 1 on (Asia/Tokyo)",
		"*/10 0-6 * * *":                "every 10 minutes, in hours 0 to 6 (Asia/Tokyo)",
		"5/20 * * * *":                  "every 20 minutes from minute 5 on (Asia/Tokyo)",
		"10-50/20 3 * * *":              "every 20 minutes from minute 10 to 50, in hour 3 (Asia/Tokyo)",
		"CRON_TZ=Europe/Rome 0 9 * * *": "at 09:00 every day (Europe/Rome)",
		"@every 90m":                    "every 1 hour 30 minutes, counted from 1970-01-01 00:00 UTC",
		"@every 1m":                     "every minute, counted from 1970-01-01 00:00 UTC",
		"@every 45s":                    "every 45 seconds, counted from 1970-01-01 00:00 UTC",
	} {
		if got := parse(t, spec, tokyo).Words(); got != want {
			t.Errorf("%q: %q, want %q", spec, got, want)
		}
	}
}
