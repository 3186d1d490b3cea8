package operator

import (
	"fmt"
	"strings"
	"time"

	"solojob/schedule"
)

// State is what a lease is in, in one word.
type State string

// The states of a lease.
const (
	Free     State = "free"     // nobody holds it
	Held     State = "held"     // and the holder beats, or was not watched for long enough
	Draining State = "draining" // the holder is stopping
	Silent   State = "silent"   // the holder does not beat
	Vanished State = "vanished" // the row has no beat: it counts as absent
	Damaged  State = "damaged"  // the row can't be read
)

// View is a lease as it is shown: what was read, what was seen, and the time of
// day for telling how long ago things were.
type View struct {
	Lease
	Heartbeat Heartbeat
	Watched   bool // Heartbeat is set
	Now       time.Time
	Runs      []Run // the history, the latest run last; nil if it was not read
}

// State is the lease's state.
func (v *View) State() State {
	switch {
	case v.Damage != "":
		return Damaged
	case v.Beat == "":
		return Vanished
	case v.Free():
		return Free
	case v.Watched && v.Heartbeat.Silent:
		return Silent
	case v.Draining:
		return Draining
	default:
		return Held
	}
}

// The states of a job.
const (
	JobNone    = "none" // nobody holds the lease
	JobIdle    = "idle"
	JobRunning = "running"
	JobPaused  = "paused"
)

// Job is what the holder does.
type Job struct {
	State string
	Since string // RFC 3339, "" if it is not known
	// Tick and Attempt are those of the run going on, if it is a tick's.
	Tick    string
	Attempt int
}

// Job tells what the holder does, by its own words in the row.
func (l *Lease) Job() Job {
	scheduled := l.Record.Schedule != ""
	var running bool
	j := Job{Since: l.RunSince}
	switch {
	case l.unheld():
		return Job{State: JobNone}
	case l.Launching:
		running = l.RunSince != ""
	case scheduled && l.Item == ServiceItem:
		running = l.Record.TickState == schedule.StateRunning
	default: // it runs for as long as the lease is held
		running = !l.Requests.Paused
		j.Since = l.Since
	}
	switch {
	case running:
		j.State = JobRunning
		if scheduled && l.Record.TickState == schedule.StateRunning {
			j.Tick, j.Attempt = l.Record.Tick, l.Record.Attempt
		}
		return j
	case l.Requests.Paused:
		return Job{State: JobPaused}
	default:
		return Job{State: JobIdle}
	}
}

// LastRun is the last run that has ended, from the history or else from the row.
// It returns nil if neither knows of one.
func (v *View) LastRun() *Run {
	for i := len(v.Runs) - 1; i >= 0; i-- {
		if v.Runs[i].Kind != requestKind {
			return &v.Runs[i]
		}
	}
	r := v.Record
	if v.Damage != "" || r.Tick == "" || r.TickState == schedule.StateRunning {
		return nil
	}
	run := &Run{Tick: r.Tick, Kind: "tick", State: r.TickState, Attempt: r.Attempt}
	if r.ExitCode != nil {
		run.ExitCode = *r.ExitCode
	}
	return run
}

// Schedule is the lease's schedule, nil if it has none or one that can't be read.
func (l *Lease) Schedule() *schedule.Schedule {
	if l.Record.Schedule == "" || l.Item != ServiceItem {
		return nil
	}
	s, err := schedule.Parse(l.Record.Schedule, nil)
	if err != nil {
		return nil
	}
	return s
}

// NextTick is the first tick that is not decided yet; zero if there is none.
func (v *View) NextTick() time.Time {
	s := v.Schedule()
	if s == nil {
		return time.Time{}
	}
	after := v.Now
	if through, ok := instant(v.Record.Through); ok && through.After(after) {
		after = through
	}
	return s.Next(after)
}

// Asked says what operators have asked of the holder that it has not done yet.
func (l *Lease) Asked() []string {
	var asked []string
	r := l.Requests
	if r.Handover != "" && r.Handover == l.Owner {
		when := "after its run"
		if r.HandoverNow {
			when = "at once"
		}
		asked = append(asked, fmt.Sprintf("to hand over %s, by %s", when, who(r.HandoverBy)))
	}
	if r.RunNow != "" {
		asked = append(asked, "for one extra run, by "+who(r.RunBy))
	}
	return asked
}

// Describe is the lease in one line: "held by t1, fence 41, idle".
func (l *Lease) Describe() string {
	switch {
	case l.Damage != "":
		return "damaged"
	case l.Beat == "":
		return fmt.Sprintf("a row without a beat, which counts as absent, fence %d", l.Fence)
	}
	var parts []string
	if l.Free() {
		parts = append(parts, "free")
	} else {
		parts = append(parts, "held by "+task(l.Owner))
	}
	parts = append(parts, fmt.Sprintf("fence %d", l.Fence))
	if l.Draining {
		parts = append(parts, "draining")
	}
	switch j := l.Job(); {
	case j.Tick != "":
		parts = append(parts, "running tick "+j.Tick)
	case j.State == JobIdle || j.State == JobRunning:
		parts = append(parts, j.State)
	}
	if l.Requests.Paused {
		parts = append(parts, "paused by "+who(l.Requests.PausedBy))
	}
	for _, a := range l.Asked() {
		parts = append(parts, "asked "+a)
	}
	return strings.Join(parts, ", ")
}

// task is the part of an owner by which people find it: the ECS task's id, or
// the host's name. What follows it is the nonce of the process.
func task(owner string) string {
	name, _, _ := strings.Cut(owner, "/")
	return name
}

// who names who asked.
func who(by string) string {
	if by == "" {
		return "somebody who left no name"
	}
	return by
}

// instant reads a time of the row, for people; ok is false if there is none.
func instant(s string) (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339, s)
	return t, err == nil
}
