package config_test

import (
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // a test machine may have no zone database

	"github.com/caarlos0/env/v11"

	"solojob/config"
)

// load reads settings given without the prefix, a lease among them.
func load(t *testing.T, settings ...string) (*config.Config, error) {
	t.Helper()
	environ := []string{"PATH=/bin", "SOLOJOB_LEASE=nightly"}
	for _, s := range settings {
		environ = append(environ, config.Prefix+s)
	}
	return config.Load(environ, config.Options{})
}

// problems returns the lines of a configuration error.
func problems(t *testing.T, err error) []string {
	t.Helper()
	var list *config.Error
	if !errors.As(err, &list) {
		t.Fatalf("the error is %v, not a list of problems", err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(list.Problems) {
		t.Fatalf("%d problems make %d lines:\n%v", len(list.Problems), len(lines), err)
	}
	return lines
}

// With nothing but a lease set, every setting has its documented default.
func TestDefaults(t *testing.T) {
	got, err := load(t)
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		Table: "solojob", Lease: "nightly", Mode: config.ModeService,
		Timezone: "UTC", Location: time.UTC, CatchUp: config.NoLimit, Overlap: config.OverlapSkip,
		Guarantee: config.AtLeastOnce, MaxAttempts: 3, IfHeld: config.IfHeldWait,
		Handover: config.HandoverIdle, StopSignal: "TERM", StopOnWinch: "off", TaskProtection: "off",
		LeaseDuration: 30 * time.Second, Heartbeat: 5 * time.Second, Poll: 2 * time.Second,
		LossGrace: 4 * time.Second, KillMargin: time.Second, StopGrace: 25 * time.Second,
		LogLevel: slog.LevelInfo, LogFormat: config.LogJSON,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Every setting reaches its field.
func TestEverySettingIsRead(t *testing.T) {
	got, err := load(t, "TABLE=arn:aws:dynamodb:eu-central-1:123456789012:table/locks",
		"SCHEDULE=*/5 * * * *", "TIMEZONE=Europe/Berlin", "MODE=CRON", "CATCH_UP=1h", "OVERLAP=replace", "TIMEOUT=90s",
		"GUARANTEE=at-least-once", "MAX_ATTEMPTS=7", "LEASE_DURATION=3s", "HEARTBEAT=400ms", "POLL=150ms",
		"LOSS_GRACE=1s", "KILL_MARGIN=0.5s", "STOP_GRACE=2m", "FENCE_FLOOR=9000000000000000", "LOG_LEVEL=Debug", "LOG_FORMAT=text",
		"IF_HELD=skip", "WAIT=5m", "ONCE_KEY=abc", "HANDOVER=never", "REVISION=12", "STOP_SIGNAL=sigint", "STOP_ON_WINCH=on", "TASK_PROTECTION=on")
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := &config.Config{
		Table: "arn:aws:dynamodb:eu-central-1:123456789012:table/locks", Lease: "nightly", Mode: config.ModeCron,
		Schedule: "*/5 * * * *", Timezone: "Europe/Berlin", Location: berlin, CatchUp: time.Hour, Overlap: config.OverlapReplace, Timeout: 90 * time.Second,
		Guarantee: config.AtLeastOnce, MaxAttempts: 7, IfHeld: config.IfHeldSkip, Wait: 5 * time.Minute, OnceKey: "abc",
		Handover: config.HandoverNever, Revision: "12", StopSignal: "INT", StopOnWinch: "on", TaskProtection: "on",
		LeaseDuration: 3 * time.Second, Heartbeat: 400 * time.Millisecond, Poll: 150 * time.Millisecond,
		LossGrace: time.Second, KillMargin: 500 * time.Millisecond, StopGrace: 2 * time.Minute,
		FenceFloor: 9_000_000_000_000_000, LogLevel: slog.LevelDebug, LogFormat: config.LogText,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// CATCH_UP=0 is never, which is not the same as no limit.
func TestCatchUpZeroIsNotUnset(t *testing.T) {
	for _, zero := range []string{"0", "0s", "0h0m"} {
		got, err := load(t, "SCHEDULE=@hourly", "CATCH_UP="+zero)
		if err != nil || got.CatchUp != 0 {
			t.Errorf("%q: %v, %v; want 0", zero, got, err)
		}
	}
}

// The mode follows the schedule, and a contradiction between them is an error:
// no mistake turns a cron job into a service.
func TestMode(t *testing.T) {
	for _, c := range []struct {
		settings []string
		want     string // empty for an error
	}{
		{nil, "service"},
		{[]string{"SCHEDULE=@hourly"}, "cron"},
		{[]string{"SCHEDULE=@hourly", "MODE=cron"}, "cron"},
		{[]string{"SCHEDULE=@hourly", "MODE=once"}, "once"},
		{[]string{"MODE=once"}, "once"},
		{[]string{"MODE=service"}, "service"},
		{[]string{"MODE=cron"}, ""},
		{[]string{"SCHEDULE=@hourly", "MODE=service"}, ""},
		{[]string{"SCHEDULE="}, ""},
		{[]string{"CATCH_UP=1h"}, ""},
		{[]string{"OVERLAP=skip"}, ""},
		{[]string{"TIMEZONE=UTC"}, ""},
		{[]string{"GUARANTEE=at-most-once"}, ""},
		{[]string{"MODE=service", "TIMEZONE=UTC"}, ""},
		{[]string{"MODE=once", "TIMEZONE=UTC"}, "once"},
	} {
		got, err := load(t, c.settings...)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%q: mode %s, want an error", c.settings, got.Mode)
		case c.want == "":
			if lines := problems(t, err); len(lines) != 1 {
				t.Errorf("%q: %d lines for one problem:\n%v", c.settings, len(lines), err)
			}
		case err != nil:
			t.Errorf("%q: %v", c.settings, err)
		case got.Mode != c.want:
			t.Errorf("%q: mode %s, want %s", c.settings, got.Mode, c.want)
		}
	}
	got, err := config.Load([]string{"SOLOJOB_LEASE=a", "SOLOJOB_SCHEDULE=@hourly", "SOLOJOB_MODE=cron"}, config.Options{Once: true})
	if err != nil || got.Mode != config.ModeOnce {
		t.Errorf("the command once beside a schedule: %+v, %v", got, err)
	}
}

// A name for the lease is required, except where no other deployment can
// exist.
func TestLeaseIsRequired(t *testing.T) {
	_, err := config.Load(nil, config.Options{})
	if err == nil || !strings.Contains(err.Error(), "SOLOJOB_LEASE: is required") {
		t.Errorf("without a lease: %v", err)
	}
	got, err := config.Load(nil, config.Options{Local: true})
	if err != nil || got.Lease != "local" {
		t.Errorf("--local: %+v, %v", got, err)
	}
	got, err = config.Load([]string{"SOLOJOB_LEASE=mine"}, config.Options{Local: true})
	if err != nil || got.Lease != "mine" {
		t.Errorf("--local with a lease: %+v, %v", got, err)
	}
}

// On a terminal the log is text, elsewhere JSON, and a setting decides over
// both.
func TestLogFormat(t *testing.T) {
	for _, c := range []struct {
		setting  string
		terminal bool
		want     string
	}{
		{"", false, "json"}, {"", true, "text"},
		{"SOLOJOB_LOG_FORMAT=json", true, "json"}, {"SOLOJOB_LOG_FORMAT=text", false, "text"},
	} {
		got, err := config.Load([]string{"SOLOJOB_LEASE=a", c.setting}, config.Options{Terminal: c.terminal})
		if err != nil || got.LogFormat != c.want {
			t.Errorf("%q, terminal %t: %+v, %v; want %s", c.setting, c.terminal, got, err, c.want)
		}
	}
}

// The schedule is judged together with everything else, in its own zone.
func TestScheduleIsCheckedInItsZone(t *testing.T) {
	check := func(spec string, zone *time.Location) error {
		return errors.New("the day of month\n" + spec + " in " + zone.String() + " never comes.")
	}
	_, err := config.Load([]string{"SOLOJOB_LEASE=a", "SOLOJOB_SCHEDULE=0 0 31 2 *", "SOLOJOB_TIMEZONE=Asia/Tokyo", "SOLOJOB_POLL=1"},
		config.Options{CheckSchedule: check})
	lines := problems(t, err)
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `SOLOJOB_SCHEDULE="0 0 31 2 *": the day of month 0 0 31 2 * in Asia/Tokyo never comes. Accepted: `) {
		t.Errorf("got\n%v", err)
	}
}

// What the documentation says of the settings is what the struct has: the same
// names, none twice, and the same defaults.
func TestSettingsAgreeWithTheStruct(t *testing.T) {
	fields, err := env.GetFieldParamsWithOptions(&config.Config{}, env.Options{Environment: map[string]string{}, Prefix: config.Prefix})
	if err != nil {
		t.Fatal(err)
	}
	inStruct := map[string]env.FieldParams{}
	for _, f := range fields {
		if _, twice := inStruct[f.Key]; twice {
			t.Errorf("%s has two fields", f.Key)
		}
		inStruct[f.Key] = f
	}
	settings := config.Settings()
	if len(settings) != len(inStruct) {
		t.Errorf("%d settings, %d fields", len(settings), len(inStruct))
	}
	for _, s := range settings {
		f, ok := inStruct[s.Name]
		if !ok {
			t.Errorf("%s has no field", s.Name)
		}
		if f.HasDefaultValue && f.DefaultValue != s.Default {
			t.Errorf("%s: default %q in the struct, %q in the documentation", s.Name, f.DefaultValue, s.Default)
		}
		if s.Default == "" || s.Accepts == "" || s.Meaning == "" {
			t.Errorf("%s lacks a default, what it accepts, or its meaning: %+v", s.Name, s)
		}
		if strings.ContainsAny(s.Default+s.Accepts+s.Meaning, "|\n") {
			t.Errorf("%s can't stand in a table: %+v", s.Name, s)
		}
	}
}

// Every default that is a value is accepted when somebody sets it.
func TestDefaultsMayBeSet(t *testing.T) {
	environ := []string{"SOLOJOB_LEASE=a", "SOLOJOB_SCHEDULE=@hourly"}
	for _, s := range config.Settings() {
		if !strings.Contains(s.Default, " ") && s.Name != "SOLOJOB_SCHEDULE" {
			environ = append(environ, s.Name+"="+s.Default)
		}
	}
	got, err := config.Load(environ, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := load(t, "SCHEDULE=@hourly")
	if err != nil {
		t.Fatal(err)
	}
	want.Lease = "a"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with every default set\n%+v, with none\n%+v", got, want)
	}
}

// A schedule is looked at although its zone is wrong: all problems are told at
// once.
func TestScheduleBesideAWrongZone(t *testing.T) {
	_, err := config.Load([]string{"SOLOJOB_LEASE=l", "SOLOJOB_SCHEDULE=wrong", "SOLOJOB_TIMEZONE=Mars"}, config.Options{
		CheckSchedule: func(string, *time.Location) error { return errors.New("it never comes due") },
	})
	lines := problems(t, err)
	if len(lines) != 2 || !strings.Contains(err.Error(), "never comes due") || !strings.Contains(err.Error(), "Mars") {
		t.Errorf("%v", err)
	}
}
