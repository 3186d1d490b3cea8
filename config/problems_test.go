package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"solojob/config"
)

// Twelve wrong settings at once are twelve lines, each with the variable and
// its value.
func TestTwelveProblemsTwelveLines(t *testing.T) {
	wrong := []string{
		"LEASE=two\nlines", "TABLE=my table", "MODE=daemon", "TIMEZONE=Europe/Berlln", "OVERLAP=wait", "CATCH_UP=-1h",
		"GUARANTEE=exactly-once", "MAX_ATTEMPTS=0", "TIMEOUT=1 day", "LEASE_DURATION=30", "POLL= 2s", "LOG_LEVEL=",
	}
	environ := []string{}
	for _, w := range wrong {
		environ = append(environ, config.Prefix+w)
	}
	_, err := config.Load(environ, config.Options{})
	lines := problems(t, err)
	if len(lines) != len(wrong) {
		t.Fatalf("%d lines, want %d:\n%v", len(lines), len(wrong), err)
	}
	for _, w := range wrong {
		name, value, _ := strings.Cut(w, "=")
		start := config.Prefix + name
		if value != "" {
			start += fmt.Sprintf("=%q", value)
		}
		found := 0
		for _, line := range lines {
			if strings.HasPrefix(line, start+": ") {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d lines begin with %s:\n%v", found, start, err)
		}
	}
}

// Each mistake is one line that says what is wrong and what to do.
func TestProblems(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		setting string
		want    []string // parts of the line
	}{
		{"HEARTBEAT=5", []string{`SOLOJOB_HEARTBEAT="5": has no unit`, "write 5s"}},
		{"HEARTBEAT=5 s", []string{"Did you mean 5s?"}},
		{"HEARTBEAT=5S", []string{"Did you mean 5s?"}},
		{"TIMEOUT=2 minutes", []string{"Did you mean 2m?"}},
		{"TIMEOUT=2d", []string{"write 48h"}},
		{"TIMEOUT=99999999999999999999h", []string{"beyond all bounds"}},
		{"TIMEOUT=2562047h", []string{"longer than 8760h", "Accepted: 0, or a duration from 10ms to 8760h"}},
		{"TIMEOUT=1e3", []string{"has no unit"}},
		{"TIMEOUT=NaN", []string{"has no unit"}},
		{"TIMEOUT=abc", []string{"is not a duration."}},
		{"POLL=0", []string{"is zero"}},
		{"POLL=-2s", []string{"is negative"}},
		{"POLL=1ms", []string{"is shorter than 50ms"}},
		{"POLL=1h", []string{"is longer than 5m."}},
		{"POLL=2s ", []string{"white space around"}},
		{"POLL=\t", []string{"nothing but white space", "don't set it"}},
		{"POLL=", []string{"SOLOJOB_POLL: is set but empty", "Accepted: a duration from 50ms to 5m, such as 2s."}},
		{"LEASE_DURATION=30.0005s", []string{"whole number of milliseconds", "Set it to 30s"}},
		{"TABLE=ab", []string{"2 bytes long"}},
		{"TABLE=" + long, []string{"300 bytes long", "… (300 bytes)"}},
		{"TABLE=arn:aws:dynamodb:eu-central-1:1234:table/x", []string{"is not the ARN of a table"}},
		{"TABLE=table/x", []string{"is no name of a table"}},
		{"SCHEDULE=@hourly\x00", []string{"U+0000"}},
		{"SCHEDULE=" + long, []string{"is too long (300 bytes)"}},
		{"TIMEZONE=Local", []string{"another zone on every machine"}},
		{"TIMEZONE=../etc/passwd", []string{"not a known time zone"}},
		{"MODE=deamon", []string{"Accepted: service, cron or once."}},
		{"MAX_ATTEMPTS=three", []string{"is not a whole number"}},
		{"MAX_ATTEMPTS=1001", []string{"is more than 1000"}},
		{"MAX_ATTEMPTS=99999999999999999999", []string{"is out of range"}},
		{"FENCE_FLOOR=-1", []string{"is less than 0"}},
		{"STOP_GRACE=4s", []string{"is not longer (4s) than the loss grace (4s)"}},
		{"SCHEDUL=@hourly", []string{"SOLOJOB_SCHEDUL: is not a setting; the nearest that is one is SOLOJOB_SCHEDULE"}},
		{"schedule=@hourly", []string{"SOLOJOB_SCHEDULE"}},
		{"=x", []string{"SOLOJOB_: is not a setting"}},
		{"RUN=x", []string{"SOLOJOB_RUN: is not a setting"}},
		{"PO\nLL=1s", []string{`"SOLOJOB_PO\nLL": is not a setting; the nearest that is one is SOLOJOB_POLL`}},
		{strings.Repeat("Y", 100_000) + "=1", []string{"is not a setting"}},
	} {
		settings := []string{c.setting}
		if strings.HasPrefix(c.setting, "TIMEZONE") {
			settings = append(settings, "SCHEDULE=@hourly")
		}
		got, err := load(t, settings...)
		if err == nil {
			t.Errorf("%q is accepted: %+v", c.setting, got)
			continue
		}
		if lines := problems(t, err); len(lines) != 1 || len(lines[0]) > 1000 {
			t.Errorf("%.40q: %d lines for one problem:\n%v", c.setting, len(lines), err)
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%.40q: %v\nlacks %q", c.setting, err, part)
			}
		}
	}
}

// A name of a lease is what people see: short enough for the row, and without
// characters that make two names look alike.
func TestLeaseNames(t *testing.T) {
	for _, good := range []string{"a", "billing/nightly export", "päckchen", strings.Repeat("x", 255), "="} {
		if _, err := config.Load([]string{"SOLOJOB_LEASE=" + good}, config.Options{}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", " ", "   ", "a ", "a\nb", "a\x7fb", "a\u00a0b", "a\u200bb", "\ufeffa", "a\xffb", strings.Repeat("x", 256)} {
		got, err := config.Load([]string{"SOLOJOB_LEASE=" + bad}, config.Options{})
		if err == nil {
			t.Errorf("%q is accepted: %+v", bad, got)
			continue
		}
		problems(t, err)
	}
}

// A variable that is set twice is refused: which one counts is up to luck.
func TestSetTwice(t *testing.T) {
	_, err := load(t, "POLL=2s", "POLL=3s")
	if lines := problems(t, err); len(lines) != 1 || !strings.Contains(lines[0], `SOLOJOB_POLL="3s": is set twice, also to "2s"`) {
		t.Errorf("got %v", err)
	}
	_, err = config.Load([]string{"SOLOJOB_LEASE"}, config.Options{})
	if lines := problems(t, err); len(lines) != 1 || !strings.Contains(lines[0], "without a value") {
		t.Errorf("an entry without a value: %v", err)
	}
}

// A slip in the prefix is found as well, and other people's variables are left
// alone.
func TestNearlyOurs(t *testing.T) {
	for _, slip := range []string{"SOLJOB_SCHEDULE", "SOLO_JOB_SCHEDULE", "SOLOJOBS_LEASE", "solojob_schedule", "SOLOJOB-MODE", "Solojob_Whatever"} {
		_, err := config.Load([]string{"SOLOJOB_LEASE=a", slip + "=hunter2"}, config.Options{})
		if err == nil {
			t.Errorf("%s is accepted", slip)
			continue
		}
		if lines := problems(t, err); len(lines) != 1 || !strings.HasPrefix(lines[0], slip+": is not a setting") {
			t.Errorf("%s: %v", slip, err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the value of somebody else's variable is shown: %v", slip, err)
		}
	}
	for _, other := range []string{"SCHEDULE=x", "POLL=", "LEASE=x", "JOB_SCHEDULE=x", "SOLO=", "SOLOJOB=x", "FENCE=3", "=C:=x", "", "=", "x",
		"SOLOJOB_RUN_TICK=x", "SOLOJOB_RUN_=", "SOLOJOB_RUN_POLL=x", "SOLOJOB_RUN_LEASE"} {
		if _, err := config.Load([]string{"SOLOJOB_LEASE=a", other}, config.Options{}); err != nil {
			t.Errorf("%q: %v", other, err)
		}
	}
}

// A lease that is too short for its heartbeats and graces is refused with the
// numbers, and what the error tells to set is then accepted.
func TestLeaseRule(t *testing.T) {
	for _, c := range []struct {
		settings []string
		want     string // empty: accepted
	}{
		{[]string{"LEASE_DURATION=10s"}, ""},
		{[]string{"LEASE_DURATION=9s"}, "(9s) for three heartbeats of 1.5s, a loss grace of 4s and a kill margin of 1s, which make 9.5s. Set SOLOJOB_LEASE_DURATION to 10s or more"},
		{[]string{"LEASE_DURATION=3s"}, "which make 6.5s"},
		{[]string{"LEASE_DURATION=500ms"}, "SOLOJOB_HEARTBEAT=83ms SOLOJOB_LOSS_GRACE=200ms SOLOJOB_KILL_MARGIN=50ms"},
		{[]string{"LEASE_DURATION=501ms"}, "SOLOJOB_KILL_MARGIN=50ms"},
		{[]string{"HEARTBEAT=8.333s"}, ""},
		{[]string{"HEARTBEAT=8.334s"}, "Set SOLOJOB_LEASE_DURATION to 31s or more"},
		{[]string{"LOSS_GRACE=20s"}, "Set SOLOJOB_LEASE_DURATION to 42s or more"},
		{[]string{"KILL_MARGIN=1h", "LEASE_DURATION=1h"}, "Set smaller ones, such as SOLOJOB_HEARTBEAT=10m SOLOJOB_LOSS_GRACE=24m SOLOJOB_KILL_MARGIN=6m"},
	} {
		got, err := load(t, c.settings...)
		if c.want == "" {
			if err != nil {
				t.Errorf("%q: %v", c.settings, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%q is accepted: %+v", c.settings, got)
			continue
		}
		if lines := problems(t, err); len(lines) != 1 || !strings.Contains(lines[0], c.want) {
			t.Errorf("%q: %v\nlacks %q", c.settings, err, c.want)
		}
		_, advice, found := strings.Cut(err.Error(), "SOLOJOB_HEARTBEAT=")
		if !found {
			t.Errorf("%q: no advice in %v", c.settings, err)
			continue
		}
		followed := []string{"SOLOJOB_LEASE=a", "SOLOJOB_STOP_GRACE=1h"}
		for _, s := range c.settings {
			if strings.HasPrefix(s, "LEASE_DURATION") {
				followed = append(followed, config.Prefix+s)
			}
		}
		followed = append(followed, strings.Fields("SOLOJOB_HEARTBEAT="+strings.TrimSuffix(advice, "."))...)
		if _, err := config.Load(followed, config.Options{}); err != nil {
			t.Errorf("following the advice, %q: %v", followed, err)
		}
	}
}

// At-most-once and several attempts contradict each other.
func TestAttempts(t *testing.T) {
	if _, err := load(t, "SCHEDULE=@hourly", "GUARANTEE=at-most-once", "MAX_ATTEMPTS=1"); err != nil {
		t.Error(err)
	}
	if _, err := load(t, "SCHEDULE=@hourly", "GUARANTEE=at-most-once"); err != nil {
		t.Error(err)
	}
	_, err := load(t, "SCHEDULE=@hourly", "GUARANTEE=at-most-once", "MAX_ATTEMPTS=2")
	if lines := problems(t, err); len(lines) != 1 || !strings.HasPrefix(lines[0], `SOLOJOB_MAX_ATTEMPTS="2": contradicts SOLOJOB_GUARANTEE`) {
		t.Errorf("got %v", err)
	}
}

// Whatever stands in the environment, loading it ends with a sound
// configuration or with one line for each problem, and never panics.
func FuzzLoad(f *testing.F) {
	f.Add("SOLOJOB_LEASE=a\x1fSOLOJOB_POLL=2s\x1fPATH=/bin")
	f.Add("SOLOJOB_LEASE=a\x1fSOLOJOB_LEASE_DURATION=3s\x1fSOLOJOB_LOSS_GRACE=1s\x1fSOLOJOB_KILL_MARGIN=100ms\x1fSOLOJOB_HEARTBEAT=.3s")
	f.Add("SOLOJOB_LEASE=a\x1fSOLOJOB_SCHEDULE=@hourly\x1fSOLOJOB_CATCH_UP=0\x1fSOLOJOB_TIMEZONE=Asia/Kathmandu")
	f.Add("SOLOJOB_\x1fSOLOJOB_RUN_=\x1fSOLOJOB_FENCE_FLOOR=99999999999999999999\x1f=\x1f\x1fSOLJOB_MODE=\xff")
	f.Fuzz(func(t *testing.T, joined string) {
		for _, opts := range []config.Options{{}, {Local: true, Once: true, Terminal: true}} {
			got, err := config.Load(strings.Split(joined, "\x1f"), opts)
			if err != nil {
				if got != nil {
					t.Fatal("a configuration beside an error")
				}
				for _, line := range problems(t, err) {
					if line == "" || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == '\x7f' }) {
						t.Fatalf("an empty line, or one with control characters: %q", line)
					}
				}
				continue
			}
			if got.Lease == "" || got.Table == "" || got.Mode == "" || got.Location == nil || got.LogFormat == "" ||
				got.LeaseDuration < 3*got.Heartbeat+got.LossGrace+got.KillMargin || got.Heartbeat <= 0 || got.Poll <= 0 ||
				got.LossGrace <= 0 || got.KillMargin <= 0 || got.StopGrace <= got.LossGrace || got.CatchUp < 0 || got.Timeout < 0 ||
				got.MaxAttempts < 1 || got.FenceFloor < 0 || got.LeaseDuration%time.Millisecond != 0 ||
				(got.Mode == config.ModeCron) != (got.Schedule != "") && got.Mode != config.ModeOnce {
				t.Fatalf("accepted: %+v", got)
			}
		}
	})
}
