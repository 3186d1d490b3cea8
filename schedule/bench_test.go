package schedule

import (
	"testing"
	"time"
)

// BenchmarkNext is what it costs to know the next tick.
func BenchmarkNext(b *testing.B) {
	for _, spec := range []string{"* * * * * *", "*/5 * * * *", "30 2 * * *", "0 0 29 2 *", "@every 90s"} {
		b.Run(spec, func(b *testing.B) {
			s := parse(b, spec, zone(b, "Europe/Berlin"))
			tick := at(b, "2024-01-01T00:00:00Z")
			b.ReportAllocs()
			for b.Loop() {
				if tick = s.Next(tick); tick.Year() > 2080 {
					tick = at(b, "2024-01-01T00:00:00Z")
				}
			}
		})
	}
}

// BenchmarkLatest is what it costs a new leader to know what it missed: a day,
// and a year of ticks.
func BenchmarkLatest(b *testing.B) {
	until := at(b, "2024-06-01T12:00:30Z")
	for _, c := range []struct {
		name, spec string
		missed     time.Duration
	}{
		{"a day of minutes", "* * * * *", 24 * time.Hour},
		{"a year of minutes", "* * * * *", 365 * 24 * time.Hour},
		{"a year of seconds", "* * * * * *", 365 * 24 * time.Hour},
		{"a year of days", "30 2 * * *", 365 * 24 * time.Hour},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := parse(b, c.spec, zone(b, "Europe/Berlin"))
			for b.Loop() {
				s.Latest(until.Add(-c.missed), until)
			}
		})
	}
}
