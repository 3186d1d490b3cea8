// Package config turns environment variables into one validated struct of
// plain values.
//
// An ECS task definition has nothing but the environment to offer, so every
// setting is a variable, and a wrong one is only seen in a log line after a
// deploy. Three rules follow:
//
//   - All problems are reported at once, one line each (see [Error]): nobody
//     should deploy twelve times to find twelve mistakes.
//   - Nothing is guessed. An unknown SOLOJOB_ name, a name that nearly is one,
//     a variable that is set but empty, one that is set twice, and settings
//     that contradict each other are refused: neither a typo nor an empty
//     template parameter may turn a cron job into a service.
//   - Nothing is read but what [Load] is given: no global state, no process
//     environment.
//
// Names that begin with SOLOJOB_RUN_ are what solojob tells its jobs. They are
// never settings, and are ignored.
package config

import (
	"log/slog"
	"math"
	"time"

	"github.com/caarlos0/env/v11"
)

// Prefix begins the name of every setting.
const Prefix = "SOLOJOB_"

// OutputPrefix begins the names of the variables that solojob sets for a job.
const OutputPrefix = Prefix + "RUN_"

// NoLimit is the value of [Config.CatchUp] when no limit is set: every time
// that ever passes is shorter.
const NoLimit = time.Duration(math.MaxInt64)

// The modes of [Config.Mode].
const (
	ModeService = "service" // the job runs as long as this task holds the lease
	ModeCron    = "cron"    // the leader runs the job on each tick of a schedule
	ModeOnce    = "once"    // compete, run the job once, exit with its status
)

// The guarantees of [Config.Guarantee].
const (
	AtLeastOnce = "at-least-once" // an interrupted run starts again
	AtMostOnce  = "at-most-once"  // an interrupted run is given up
)

// What happens, by [Config.Overlap], to a tick that comes while a run goes on.
const (
	OverlapSkip    = "skip"    // it is skipped
	OverlapQueue   = "queue"   // the latest one waits for the end of the run
	OverlapReplace = "replace" // the run is killed, then it starts
)

// What once mode does, by [Config.IfHeld], while another task holds the lease.
const (
	IfHeldWait = "wait" // it waits
	IfHeldSkip = "skip" // it ends well
	IfHeldFail = "fail" // it ends with a status of its own
)

// When the holder hands over to another revision, by [Config.Handover].
const (
	HandoverIdle  = "idle"  // between two runs
	HandoverNever = "never" // it does not
	HandoverNow   = "now"   // at once
)

// The formats of [Config.LogFormat].
const (
	LogJSON = "json"
	LogText = "text"
)

// Config holds every setting, valid in itself and with all others. [Settings]
// has the meaning, the default and the accepted values of each.
type Config struct {
	Table string `env:"TABLE" envDefault:"solojob"` // a name, or an ARN
	Lease string `env:"LEASE"`                      // never empty

	Mode     string         `env:"MODE"`                      // ModeService, ModeCron or ModeOnce; never empty
	Schedule string         `env:"SCHEDULE"`                  // never empty in ModeCron, always in ModeService
	Timezone string         `env:"TIMEZONE" envDefault:"UTC"` // the name of Location
	Location *time.Location `env:"-"`                         // the zone that Schedule is read in
	CatchUp  time.Duration  `env:"CATCH_UP"`                  // 0: never; NoLimit: always
	Overlap  string         `env:"OVERLAP" envDefault:"skip"` // OverlapSkip, OverlapQueue or OverlapReplace
	Timeout  time.Duration  `env:"TIMEOUT" envDefault:"0s"`   // of a run; 0: none

	Guarantee   string `env:"GUARANTEE" envDefault:"at-least-once"` // AtLeastOnce or AtMostOnce
	MaxAttempts int    `env:"MAX_ATTEMPTS" envDefault:"3"`          // at least 1

	IfHeld  string        `env:"IF_HELD" envDefault:"wait"` // IfHeldWait, IfHeldSkip or IfHeldFail
	Wait    time.Duration `env:"WAIT" envDefault:"0s"`      // 0: no limit
	OnceKey string        `env:"ONCE_KEY"`                  // may be empty

	Handover       string `env:"HANDOVER" envDefault:"idle"`       // HandoverIdle, HandoverNever or HandoverNow
	Revision       string `env:"REVISION"`                         // may be empty
	StopSignal     string `env:"STOP_SIGNAL" envDefault:"TERM"`    // without SIG
	StopOnWinch    string `env:"STOP_ON_WINCH" envDefault:"off"`   // "on" or "off"
	TaskProtection string `env:"TASK_PROTECTION" envDefault:"off"` // "on" or "off"

	LeaseDuration time.Duration `env:"LEASE_DURATION" envDefault:"30s"` // whole milliseconds
	Heartbeat     time.Duration `env:"HEARTBEAT"`                       // never 0
	Poll          time.Duration `env:"POLL" envDefault:"2s"`
	LossGrace     time.Duration `env:"LOSS_GRACE" envDefault:"4s"`
	KillMargin    time.Duration `env:"KILL_MARGIN" envDefault:"1s"`
	StopGrace     time.Duration `env:"STOP_GRACE" envDefault:"25s"` // more than LossGrace
	FenceFloor    int64         `env:"FENCE_FLOOR" envDefault:"0"`  // not negative

	LogLevel  slog.Level `env:"LOG_LEVEL" envDefault:"info"`
	LogFormat string     `env:"LOG_FORMAT"` // LogJSON or LogText; never empty
}

// Options are the facts besides the environment that settings depend on.
type Options struct {
	// Local is that the store lives in this process (--local): no other
	// deployment can derive another name for the lease, so it has a default.
	Local bool

	// Once is that the command itself says that the job runs once, whatever
	// the environment, which a step before a service shares with the service.
	Once bool

	// Terminal is that a person reads the log as it is written.
	Terminal bool

	// CheckSchedule says in a sentence why a schedule can't be used, so that a
	// bad one is reported together with all other problems. Without it every
	// schedule is accepted.
	CheckSchedule func(spec string, zone *time.Location) error
}

// localLease is the name of the lease under Options.Local.
const localLease = "local"

// Load reads the settings from environ, which has the form of [os.Environ].
// The error is an [*Error] and lists every problem.
func Load(environ []string, opts Options) (*Config, error) {
	if opts.CheckSchedule == nil {
		opts.CheckSchedule = func(string, *time.Location) error { return nil }
	}
	r := &report{}
	known := table()
	set := r.collect(environ, known)
	usable := r.checkEach(set, known)

	cfg := &Config{CatchUp: NoLimit}
	if err := env.ParseWithOptions(cfg, env.Options{Environment: usable, Prefix: Prefix}); err != nil {
		// Each value was checked, so this is a mistake of ours; still an error and no panic.
		r.add(Problem{Wrong: "the settings can't be read: " + err.Error()})
		return nil, r.err()
	}
	c := together{report: r, cfg: cfg, set: set, usable: usable, opts: opts}
	c.lease()
	c.mode()
	c.schedule()
	c.attempts()
	c.timing()
	c.log()
	if err := r.err(); err != nil {
		return nil, err
	}
	return cfg, nil
}
