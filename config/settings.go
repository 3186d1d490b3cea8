package config

import (
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// Setting describes one variable, for documentation and --help.
type Setting struct {
	Name    string // the full name, SOLOJOB_…
	Default string // what holds when it is unset, in words where it depends on others
	Accepts string // the accepted values
	Meaning string // what it does
}

// Settings returns every setting in the order in which people need them.
func Settings() []Setting {
	defaults := map[string]string{}
	fields, err := env.GetFieldParamsWithOptions(&Config{}, env.Options{Environment: map[string]string{}})
	if err == nil { // only a malformed struct tag fails, which a test would show
		for _, f := range fields {
			defaults[f.OwnKey] = f.DefaultValue
		}
	}
	var all []Setting
	for _, s := range table() {
		d := s.unset
		if d == "" {
			d = defaults[s.name]
		}
		all = append(all, Setting{Name: Prefix + s.name, Default: d, Accepts: s.accepts, Meaning: s.meaning})
	}
	return all
}

// setting is what is known of one variable by itself. Its default stands in
// the tag of its field in Config.
type setting struct {
	name    string // without the prefix
	unset   string // the default in words, where it is not a fixed value
	accepts string
	meaning string
	cron    bool // it has a meaning on a schedule only
	check   func(value string) (normal string, flaw *flaw)
}

// flaw is what is wrong with a value, and what to do about it.
type flaw struct {
	wrong string // a clause
	do    string // a sentence; empty where what is accepted says it all
}

// The bounds of durations are there to catch slips of the unit, and keep all
// sums far from overflow.
const (
	day  = 24 * time.Hour
	year = 365 * day

	// longestLease is for how long nobody runs the job after a holder died.
	longestLease = time.Hour
)

// rowText is the longest lease name and schedule in bytes. DynamoDB takes keys
// of up to 2048, but both stand in the lease item, which stays under 1 KB so
// that a heartbeat costs one write unit.
const rowText = 255

// largestFence leaves room to count in, and keeps FENCE exact in languages
// whose numbers are doubles (2^53 = 9,007,199,254,740,992).
const largestFence = 9_000_000_000_000_000

// table lists every setting. It is the one place to add a setting at, besides
// its field in Config.
func table() []setting {
	return []setting{
		{
			name: "LEASE", unset: "none: required (" + localLease + " with --local)",
			accepts: "1 to 255 bytes of printable text",
			meaning: "The name of the lease. All tasks that must not run the job at the same time share it, and nothing else does.",
			check:   checkLease,
		},
		{
			name:    "TABLE",
			accepts: "a table name (3 to 255 of a-z, A-Z, 0-9, _ . -) or the ARN of a table",
			meaning: "The DynamoDB table that the lease is kept in.",
			check:   checkTable,
		},
		setting{
			name: "MODE", unset: ModeCron + " if SOLOJOB_SCHEDULE is set, else " + ModeService,
			meaning: "service: the job runs as long as the task holds the lease. cron: the holder runs it on each tick. once: it runs once, then the task ends.",
		}.choice(ModeService, ModeCron, ModeOnce),
		{
			name: "SCHEDULE", unset: "none",
			accepts: "five cron fields (minute, hour, day of month, month, day of week), six with seconds in front, @hourly and the like, or @every and a duration; CRON_TZ=Zone in front for a zone of its own; up to 255 bytes",
			meaning: "When the job runs.",
			check:   checkSchedule,
		},
		{
			name: "TIMEZONE", cron: true,
			accepts: "a name of the IANA time zone database, such as UTC or Europe/Berlin",
			meaning: "The time zone that the schedule is read in.",
			check:   checkTimezone,
		},
		setting{
			name: "OVERLAP", cron: true,
			meaning: "What happens to a tick that comes while the last run goes on. skip: nothing. queue: the latest such tick waits. replace: the run is killed.",
		}.choice(OverlapSkip, OverlapQueue, OverlapReplace),
		setting{
			name: "CATCH_UP", unset: "no limit", cron: true,
			meaning: "How late a tick that was missed or interrupted may still be run; 0 for never.",
		}.durationOrZero("1h", time.Millisecond, 10*year),
		setting{
			name: "GUARANTEE", cron: true,
			meaning: "at-least-once: a run that was interrupted starts again. at-most-once: it never does.",
		}.choice(AtLeastOnce, AtMostOnce),
		setting{
			name:    "MAX_ATTEMPTS",
			meaning: "How many times a run that is interrupted again and again is started in all.",
		}.integer(1, 1000),
		setting{
			name:    "IF_HELD",
			meaning: "What once mode does while another task holds the lease. wait: it waits. skip: it ends with 0. fail: it ends with 75. With a once-key it always waits.",
		}.choice(IfHeldWait, IfHeldSkip, IfHeldFail),
		setting{
			name:    "WAIT",
			meaning: "How long once mode waits for the lease before it ends with 75; 0 for no limit.",
		}.durationOrZero("10m", time.Second, 10*year),
		{
			name: "ONCE_KEY", unset: "none: every invocation runs the job",
			accepts: "1 to 255 bytes of printable text",
			meaning: "In once mode, the job runs at most once successfully for each key, ever, such as a migration for each release.",
			check:   checkLease,
		},
		setting{
			name:    "HANDOVER",
			meaning: "When the holder hands over to tasks of a newer revision. idle: between two runs. never: it does not. now: at once, which ends the job.",
		}.choice(HandoverIdle, HandoverNever, HandoverNow),
		{
			name: "REVISION", unset: "that of the ECS task definition, if there is one",
			accepts: "1 to 255 bytes of printable text",
			meaning: "The revision of the code in this task.",
			check:   checkLease,
		},
		setting{
			name:    "STOP_SIGNAL",
			meaning: "The signal that asks the job to end.",
		}.signal("TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "WINCH"),
		setting{
			name:    "STOP_ON_WINCH",
			meaning: "on: the signal WINCH stops the task, as images of httpd ask for by their STOPSIGNAL. off: it is passed to the job.",
		}.choice("off", "on"),
		setting{
			name:    "TASK_PROTECTION",
			meaning: "on: ECS is asked not to end the task by scale-in or a deploy while a scheduled run goes on.",
		}.choice("off", "on"),
		setting{
			name:    "TIMEOUT",
			meaning: "How long a run may take before it is stopped and counts as failed; 0 for no limit.",
		}.durationOrZero("1h", 10*time.Millisecond, year),
		setting{
			name:    "STOP_GRACE",
			meaning: "How long the job may take to end when the task is told to stop. Keep it below ECS's stopTimeout, which is 30s by default.",
		}.duration("25s", 20*time.Millisecond, day),
		setting{
			name:    "LEASE_DURATION",
			meaning: "How long after its last heartbeat a silent holder is taken over. Faults of the network that are shorter go unnoticed.",
		}.duration("30s", 500*time.Millisecond, longestLease),
		setting{
			name: "HEARTBEAT", unset: "a sixth of SOLOJOB_LEASE_DURATION",
			meaning: "How often the holder renews the lease.",
		}.duration("5s", 50*time.Millisecond, 20*time.Minute),
		setting{
			name:    "POLL",
			meaning: "How often a standby reads the lease.",
		}.duration("2s", 50*time.Millisecond, 5*time.Minute),
		setting{
			name:    "LOSS_GRACE",
			meaning: "How long the job may take to end by itself, after TERM, when the lease is about to be lost.",
		}.duration("4s", 10*time.Millisecond, time.Hour),
		setting{
			name:    "KILL_MARGIN",
			meaning: "How long before the end of the lease the job is killed, so that it is dead in time. 1s covers some 200 processes on a quarter of a CPU.",
		}.duration("1s", 50*time.Millisecond, time.Hour),
		setting{
			name:    "FENCE_FLOOR",
			meaning: "Every FENCE is greater than this. Set it when the table was lost, to the highest FENCE that was ever handed out.",
		}.integer(0, largestFence),
		setting{
			name:    "LOG_LEVEL",
			meaning: "The least severe lines that are logged.",
		}.choice("debug", "info", "warn", "error"),
		setting{
			name: "LOG_FORMAT", unset: LogText + " on a terminal, else " + LogJSON,
			meaning: "The format of the log on stderr.",
		}.choice(LogJSON, LogText),
	}
}

func (s setting) choice(choices ...string) setting {
	s.accepts = strings.Join(choices[:len(choices)-1], ", ") + " or " + choices[len(choices)-1]
	s.check = checkChoice(choices)
	return s
}

func (s setting) signal(names ...string) setting {
	s = s.choice(names...)
	s.check = checkSignal(names)
	return s
}

func (s setting) duration(example string, least, most time.Duration) setting {
	s.accepts = "a duration from " + short(least) + " to " + short(most) + ", such as " + example
	s.check = checkDuration(least, most, false)
	return s
}

func (s setting) durationOrZero(example string, least, most time.Duration) setting {
	s.accepts = "0, or a duration from " + short(least) + " to " + short(most) + ", such as " + example
	s.check = checkDuration(least, most, true)
	return s
}

func (s setting) integer(least, most int64) setting {
	s.accepts = "a whole number from " + decimal(least) + " to " + decimal(most)
	s.check = checkInteger(least, most)
	return s
}
