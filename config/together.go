package config

import (
	"fmt"
	"time"
)

// together checks what settings say together, and fills in the defaults that
// depend on others. A relation is judged only if all its members are right by
// themselves: one mistake is one line.
type together struct {
	report *report
	cfg    *Config
	set    map[string]string // as in the environment, without the prefix
	usable map[string]string // those of them that are right by themselves, full names
	opts   Options
}

// wrong adds a problem with a setting, which may be unset. What is accepted is
// said where no sentence says what to do: a value that is wrong only beside
// another one is among what is accepted.
func (c *together) wrong(name, wrong, do string) {
	p := Problem{Variable: Prefix + name, Value: c.set[name], Wrong: wrong, Do: do}
	if do == "" || !c.isSet(name) {
		p.Accepted = accepted(name)
	}
	c.report.add(p)
}

func accepted(name string) string {
	for _, s := range table() {
		if s.name == name {
			return s.accepts
		}
	}
	return ""
}

func (c *together) isSet(name string) bool {
	_, ok := c.set[name]
	return ok
}

// sound reports whether none of the settings is wrong by itself.
func (c *together) sound(names ...string) bool {
	for _, name := range names {
		if c.report.has(Prefix + name) {
			return false
		}
	}
	return true
}

func (c *together) lease() {
	if c.isSet("LEASE") {
		return
	}
	if c.opts.Local {
		c.cfg.Lease = localLease
		return
	}
	// No default: a name that two deployments derive differently would split the lock.
	c.wrong("LEASE", "is required and not set",
		"Set it to a name that all tasks of this job share and no other job uses, such as the name of the service")
}

// mode settles the mode. A schedule beside an explicit once is accepted: it is
// how a task definition with a schedule is run by hand, whose overrides can set
// variables but can't remove them.
func (c *together) mode() {
	scheduled := c.isSet("SCHEDULE")
	switch {
	case c.opts.Once:
		c.cfg.Mode = ModeOnce
	case c.cfg.Mode == "" && scheduled:
		c.cfg.Mode = ModeCron
	case c.cfg.Mode == "":
		c.cfg.Mode = ModeService
	case c.cfg.Mode == ModeCron && !scheduled:
		c.wrong("MODE", "needs a schedule, and SOLOJOB_SCHEDULE is not set", "Set SOLOJOB_SCHEDULE, or choose another mode")
	case c.cfg.Mode == ModeService && scheduled:
		c.wrong("MODE", "contradicts SOLOJOB_SCHEDULE, which is set", "Remove one of the two")
	}
	if c.cfg.Mode != ModeService || scheduled || !c.sound("MODE") {
		return
	}
	for _, s := range table() {
		if s.cron && c.isSet(s.name) {
			c.wrong(s.name, "has a meaning on a schedule only, and SOLOJOB_SCHEDULE is not set", "Set SOLOJOB_SCHEDULE, or remove it")
		}
	}
}

func (c *together) schedule() {
	zone := time.UTC // to look for what else is wrong with a schedule whose zone is
	if c.sound("TIMEZONE") {
		loaded, err := time.LoadLocation(c.cfg.Timezone)
		if err != nil {
			c.wrong("TIMEZONE", "can't be loaded: "+oneLine(err), "")
		} else {
			zone = loaded
		}
	}
	c.cfg.Location = zone
	if !c.isSet("SCHEDULE") || !c.sound("SCHEDULE") {
		return
	}
	if err := c.opts.CheckSchedule(c.cfg.Schedule, zone); err != nil {
		c.wrong("SCHEDULE", oneLine(err), "")
	}
}

func (c *together) attempts() {
	if c.cfg.Mode == ModeCron && c.cfg.Guarantee == AtMostOnce && c.isSet("MAX_ATTEMPTS") && c.cfg.MaxAttempts > 1 && c.sound("GUARANTEE", "MAX_ATTEMPTS") {
		c.wrong("MAX_ATTEMPTS", "contradicts SOLOJOB_GUARANTEE, by which a run is started once at most", "Remove one of the two")
	}
}

// beats is how many heartbeats fit into a lease by default: several in a row
// may fail before it is in danger.
const beats = 6

// timing checks the rule by which a holder can lose two renewals, and the job
// still be stopped before the lease ends:
//
//	lease >= 3 x heartbeat + loss grace + kill margin
func (c *together) timing() {
	cfg := c.cfg
	if !c.sound("LEASE_DURATION") {
		return
	}
	if cfg.LeaseDuration%time.Millisecond != 0 {
		// The row tells it in milliseconds: rounded down, standbys would wait too short.
		c.wrong("LEASE_DURATION", "is not a whole number of milliseconds", fmt.Sprintf("Set it to %s", short(cfg.LeaseDuration.Truncate(time.Millisecond))))
		return
	}
	if !c.isSet("HEARTBEAT") {
		cfg.Heartbeat = (cfg.LeaseDuration / beats).Truncate(time.Millisecond)
	}
	if c.sound("HEARTBEAT", "LOSS_GRACE", "KILL_MARGIN") {
		if need := 3*cfg.Heartbeat + cfg.LossGrace + cfg.KillMargin; cfg.LeaseDuration < need {
			c.wrong("LEASE_DURATION", fmt.Sprintf("is too short (%s) for three heartbeats of %s, a loss grace of %s and a kill margin of %s, which make %s",
				short(cfg.LeaseDuration), short(cfg.Heartbeat), short(cfg.LossGrace), short(cfg.KillMargin), short(need)), c.fit())
		}
	}
	if c.sound("LOSS_GRACE", "STOP_GRACE") && cfg.StopGrace <= cfg.LossGrace {
		c.wrong("STOP_GRACE", fmt.Sprintf("is not longer (%s) than the loss grace (%s), which a run that is to end by itself leaves to the job for its TERM",
			short(cfg.StopGrace), short(cfg.LossGrace)), "Make SOLOJOB_STOP_GRACE longer, or SOLOJOB_LOSS_GRACE shorter")
	}
}

// fit returns a sentence with settings that satisfy the rule: a lease for the
// other numbers, and numbers in the proportions of the defaults for the lease.
func (c *together) fit() string {
	cfg := c.cfg
	long := 3*cfg.Heartbeat + cfg.LossGrace + cfg.KillMargin
	if !c.isSet("HEARTBEAT") {
		long = 2 * (cfg.LossGrace + cfg.KillMargin) // the heartbeat, a sixth, grows with it
	}
	long = (long + time.Second - 1).Truncate(time.Second)
	tenth := (cfg.LeaseDuration / 10).Truncate(time.Millisecond)
	smaller := fmt.Sprintf("SOLOJOB_HEARTBEAT=%s SOLOJOB_LOSS_GRACE=%s SOLOJOB_KILL_MARGIN=%s",
		short((cfg.LeaseDuration / beats).Truncate(time.Millisecond)), short(4*tenth), short(tenth))
	if long > longestLease {
		return "Set smaller ones, such as " + smaller
	}
	return fmt.Sprintf("Set SOLOJOB_LEASE_DURATION to %s or more; or keep it, and set %s", short(long), smaller)
}

func (c *together) log() {
	if c.cfg.LogFormat != "" {
		return
	}
	c.cfg.LogFormat = LogJSON
	if c.opts.Terminal {
		c.cfg.LogFormat = LogText
	}
}
