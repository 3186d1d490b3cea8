package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// endless is how long a few dozen ticks never take, on the slowest machine.
const endless = time.Minute

// Whatever stands in a spec, parsing it ends with an error or with a schedule
// that goes forward from any instant, is the same when it is read back from the
// row, and agrees with itself on the latest tick. Nothing panics or hangs.
func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"* * * * *", "*/15 0-6 * * mon-fri", "0,30 30 1 29 2 7", "@every 90m", "@daily", "CRON_TZ=Asia/Kathmandu 5/20 ? */2 * ?", "TZ= *", "TZ=x", "@every 1", ",", "*/0 * * * *",
		"0 0 31 2 *", "0 0 * * sun-sat/9223372036854775807", "59 59 23 31 12 *", "* * 29 2 1-7/2",
	} {
		f.Add(spec, byte(0), int64(1_710_000_000))
		f.Add(spec, byte(2), int64(-1<<40))
	}
	names := []string{"UTC", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Casablanca"}
	f.Fuzz(func(t *testing.T, spec string, zoneIndex byte, unix int64) {
		hangs := time.AfterFunc(endless, func() { panic(fmt.Sprintf("%q, zone %d, from %d: no end after %s", spec, zoneIndex, unix, endless)) })
		defer hangs.Stop()
		s, err := Parse(spec, zone(t, names[int(zoneIndex)%len(names)]))
		if err != nil {
			if s != nil || err.Error() == "" || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%q: %v beside %v", spec, s, err)
			}
			return
		}
		if s.Words() == "" {
			t.Fatalf("%q: no words", spec)
		}
		again, err := Parse(s.String(), time.UTC)
		if err != nil || again.String() != s.String() || again.Words() != s.Words() {
			t.Fatalf("%q: read back from %q it is %v, %v", spec, s, again, err)
		}
		from := time.Unix(unix, 0)
		tick := s.Next(from)
		if tick.IsZero() {
			if from.Year() > -1<<20 && from.Year() < 9990 {
				t.Fatalf("%q: nothing comes after %s", spec, from)
			}
			return
		}
		if !again.Next(from).Equal(tick) {
			t.Fatalf("%q: after %s comes %s, or %s", spec, from, tick, again.Next(from))
		}
		first := tick
		for range 20 {
			next := s.Next(tick)
			if next.IsZero() && tick.Year() > 9990 {
				return
			}
			if next.Unix() <= tick.Unix() {
				t.Fatalf("%q: after %s comes %s", spec, tick, next)
			}
			tick = next
		}
		if latest, count, exact := s.Latest(first.Add(-time.Second), tick); !latest.Equal(tick) || count != 21 || !exact {
			t.Fatalf("%q: of the 21 ticks from %s to %s the latest is %s (of %d)", spec, first, tick, latest, count)
		}
	})
}
