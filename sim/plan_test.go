package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"solojob/agent"
	"solojob/schedule"
)

// plan is a run before it begins: all that was decided by its seed. The rest is
// drawn from the streams of the tasks.
type plan struct {
	seed     uint64
	profile  profile
	schedule string // "" for a service
	step     time.Duration
	rules    schedule.Rules
	overlap  string
	handover string // what the agents are set to
	tasks    int
	settings []settings // of the tasks in the order of their starts, over and over
	bare     float64    // share of failed conditions whose row the server keeps to itself
	road     road
	jobs     habits
	horizon  time.Duration // until all faults end
	faults   []fault

	// For runs that show one thing.
	calm     time.Duration   // how long to go on after the faults, 0 for long enough
	before   time.Duration   // how long ago the last tick of a free lease was, 0 for a new lease
	wallOffs []time.Duration // of the tasks in the order of their starts, over and over
	steady   bool            // no clock drifts
	brief    bool            // keep only the end of the history
}

// profile is the kind of a run.
type profile string

const (
	// wild: everything may happen.
	wild profile = "wild"
	// hiccups: only faults of the network, each shorter than promise P5 says.
	hiccups profile = "hiccups"
	// deploys: a good network, and tasks that come and go.
	deploys profile = "deploys"
)

// settings are those of one task.
type settings struct {
	lease, heartbeat, poll, lossGrace, margin, stopGrace time.Duration
}

var (
	standard = settings{30 * time.Second, 5 * time.Second, 2 * time.Second, 4 * time.Second, time.Second, 25 * time.Second}
	brisk    = settings{12 * time.Second, 2 * time.Second, time.Second, 2 * time.Second, time.Second, 10 * time.Second}
	lengthy  = settings{75 * time.Second, 10 * time.Second, 2 * time.Second, 5 * time.Second, time.Second, 25 * time.Second}
)

// road is the network when nothing in particular is wrong: shares of requests.
type road struct {
	dropped float64 // never arrive
	mute    float64 // their replies never arrive
	again   float64 // arrive twice, the second time up to two leases later
	late    float64 // arrive up to two leases late
	failed  float64 // are answered with an error, applied or not
	slow    float64 // take up to 1.5 s on their way there
	stale   float64 // eventually consistent reads that show an old row
}

// habits are those of the job.
type habits struct {
	length   time.Duration // mean time until it ends by itself; 0: never
	fails    float64       // share of runs that end with another status than 0
	deaf     float64       // share of runs that ignore TERM
	stuck    float64       // share of runs that outlive KILL by up to two leases
	killsOwn time.Duration // the tick so long after the start takes its own task down; 0: none does
}

// fault is one thing that goes wrong, or is done to the tasks.
type fault struct {
	at     time.Duration
	kind   kind
	slot   int           // which of the tasks alive, by age; holder for the one in the row, everyone for all
	length time.Duration // of those that last
	amount time.Duration // of a step of the clock; until a restart
}

const (
	holder   = -1
	everyone = -2
)

type kind string

// What may go wrong, or be done.
const (
	crashAgent     kind = "agent killed"
	crashTask      kind = "task killed"
	crashGuard     kind = "supervisor killed"
	freezeTask     kind = "task frozen"
	freezeAgent    kind = "agent frozen"
	freezeGuard    kind = "supervisor frozen"
	freezeAtSend   kind = "task frozen just before it sends"
	freezeAtLaunch kind = "task frozen just before it launches"
	freezeAcquire  kind = "task frozen while it acquires"
	stopTask       kind = "task told to stop"
	scaleOut       kind = "task added"
	deploy         kind = "deploy"
	stepClock      kind = "time of day jumps"
	deleteRow      kind = "row deleted"
	restoreRow     kind = "old row restored"
	cut            kind = "requests dropped"
	mute           kind = "replies dropped"
	slow           kind = "network slow"
	failing        kind = "server errors"
	throttled      kind = "throttled"
	denied         kind = "access denied"
	pause          kind = "paused"
	handOver       kind = "handover asked for"
	runNow         kind = "extra run asked for"
	breakLease     kind = "lease of a dead task broken"
	bumpFence      kind = "fence raised by hand"
	deceive        kind = "writes applied, and answered with an error"
)

// weather are the faults of the network, which last.
var weather = []kind{cut, mute, slow, failing, throttled, denied, deceive}

func (f fault) String() string {
	who := fmt.Sprint("task ", f.slot)
	switch f.slot {
	case holder:
		who = "the holder"
	case everyone:
		who = "everyone"
	}
	return fmt.Sprintf("%s: %s, %s, %s, %s", f.at.Round(time.Millisecond), f.kind, who, f.length.Round(time.Millisecond), f.amount.Round(time.Millisecond))
}

// stream is a source of random numbers of its own for each purpose, so that
// more draws for one do not change what comes for another.
func stream(seed uint64, purpose string) *rand.Rand {
	mixed := seed
	for _, b := range []byte(purpose) {
		mixed = (mixed ^ uint64(b)) * 1099511628211 // FNV-1a
	}
	return rand.New(rand.NewPCG(seed, mixed))
}

// between is uniform from least to most.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Float64()*float64(most-least))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// newPlan makes the plan of a seed.
func newPlan(seed uint64) *plan {
	r := stream(seed, "plan")
	p := &plan{
		seed:     seed,
		profile:  pick(r, wild, wild, wild, wild, deploys, hiccups),
		tasks:    2 + r.IntN(3),
		settings: []settings{pick(r, standard, standard, brisk)},
		bare:     pick(r, 0, 0, 0.5, 1),
		handover: pick(r, agent.HandoverIdle, agent.HandoverNever, agent.HandoverNow),
		jobs:     habits{deaf: 0.2},
	}
	if r.IntN(4) == 0 { // deploys change settings: both are there for a while
		p.settings = append(p.settings, pick(r, brisk, lengthy))
	}
	if r.IntN(2) == 0 {
		p.onSchedule(r)
	}
	longest := p.longest()
	p.horizon = between(r, 12*longest.lease, 24*longest.lease)
	switch p.profile {
	case hiccups:
		p.settings = p.settings[:1]
		p.road.again = 0.05
		p.hiccups(r)
	case deploys:
		p.disturb(r, 15*time.Second, []kind{stopTask, deploy, deploy, scaleOut, crashTask, handOver, runNow})
	case wild:
		p.road = road{
			dropped: pick(r, 0, 0.02, 0.1),
			mute:    pick(r, 0, 0.02, 0.1),
			again:   pick(r, 0, 0.05, 0.2),
			late:    pick(r, 0, 0.02, 0.1),
			failed:  pick(r, 0, 0.02, 0.1),
			slow:    pick(r, 0, 0.3),
			stale:   pick(r, 0, 0.2),
		}
		p.jobs.stuck = pick(r, 0, 0, 0.1)
		if p.schedule == "" {
			p.jobs.length = pick[time.Duration](r, 0, 0, 5) * longest.lease
		}
		p.disturb(r, pick[time.Duration](r, 15, 30, 60)*time.Second, slices.Concat(weather, weather, weather, []kind{
			crashAgent, crashAgent, crashTask, crashGuard, freezeTask, freezeTask, freezeAgent, freezeAgent, freezeGuard,
			freezeAtSend, freezeAtSend, freezeAtLaunch, freezeAcquire, freezeAcquire, stopTask, scaleOut, deploy, stepClock, stepClock,
			pause, handOver, runNow, breakLease, bumpFence,
		}))
		if r.IntN(2) == 0 {
			p.faults = append(p.faults, fault{at: between(r, p.horizon/4, p.horizon*9/10), kind: pick(r, deleteRow, deleteRow, restoreRow)})
		}
	}
	slices.SortFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
	return p
}

// onSchedule makes it a run in cron mode.
func (p *plan) onSchedule(r *rand.Rand) {
	p.step = pick(r, 10*time.Second, 30*time.Second, time.Minute)
	p.schedule = map[time.Duration]string{10 * time.Second: "*/10 * * * * *", 30 * time.Second: "@every 30s", time.Minute: "* * * * *"}[p.step]
	p.rules = schedule.Rules{CatchUp: 1<<63 - 1, MaxAttempts: 3, AtMostOnce: r.IntN(4) == 0}
	if r.IntN(4) == 0 {
		p.rules.CatchUp = pick[time.Duration](r, 0, 1, 3) * p.step
	}
	p.overlap = pick(r, "skip", "skip", "queue", "replace")
	p.jobs.length = pick(r, p.step/8, p.step/2, p.step*3/2)
	p.jobs.fails = 0.1
}

// longest are the settings with the longest lease.
func (p *plan) longest() settings {
	return slices.MaxFunc(p.settings, func(a, b settings) int { return int(a.lease - b.lease) })
}

// disturb plans faults of the given kinds, one after a mean gap.
func (p *plan) disturb(r *rand.Rand, gap time.Duration, kinds []kind) {
	lease := p.longest().lease
	for at := between(r, 0, 2*gap); at < p.horizon; at += between(r, 0, 2*gap) {
		f := fault{at: at, kind: pick(r, kinds...), slot: pick(r, holder, holder, holder, r.IntN(8))}
		f.length = between(r, 0, pick(r, lease/8, lease, 3*lease))
		f.amount = between(r, time.Second, lease)
		switch {
		case f.kind == freezeAcquire:
			f.slot, f.length = r.IntN(8), between(r, lease, 3*lease)
		case f.kind == stepClock:
			f.amount = between(r, -3*time.Hour, 3*time.Hour)
		case slices.Contains(weather, f.kind) && r.IntN(4) == 0:
			f.slot = everyone
		}
		p.faults = append(p.faults, f)
	}
}

// hiccups plans faults that promise P5 calls invisible.
func (p *plan) hiccups(r *rand.Rand) {
	s := p.settings[0]
	// The promise less a retry: a last attempt that hangs, the wait after it, a
	// slow reply, and the clock's 1 %.
	retry := s.heartbeat*6/10 + 500*time.Millisecond + s.lease/50
	most := s.lease - s.heartbeat - s.lossGrace - s.margin - retry
	for at := 2 * s.heartbeat; at < p.horizon; {
		f := fault{at: at, kind: pick(r, weather...), slot: pick(r, everyone, holder), length: between(r, most/8, most)}
		p.faults = append(p.faults, f)
		at += f.length + between(r, 2*s.heartbeat, 5*s.heartbeat)
	}
}

// drift is the rate of a task's clock: at most 1 % off, and often just that.
func (p *plan) drift(r *rand.Rand) float64 {
	drift := pick(r, 0.01, -0.01, 0.02*r.Float64()-0.01)
	if p.steady {
		return 0
	}
	return drift
}

// wallOff is by how much a task's time of day is off: mostly little.
func (p *plan) wallOff(r *rand.Rand) time.Duration {
	little, much := between(r, -time.Second, time.Second), between(r, -2*time.Hour, 2*time.Hour)
	if p.profile != hiccups && r.IntN(4) == 0 {
		return much
	}
	return little
}

func (p *plan) String() string {
	var b strings.Builder
	mode := "service"
	if p.schedule != "" {
		mode = fmt.Sprintf("schedule %q, overlap %s, catch up %s, at most once %v", p.schedule, p.overlap, p.rules.CatchUp, p.rules.AtMostOnce)
	}
	fmt.Fprintf(&b, "seed %d, %s, %s, %d tasks, %s, handover %s, row kept back %.0f %%\nnetwork %+v\njob %+v\n",
		p.seed, p.profile, mode, p.tasks, p.horizon.Round(time.Second), p.handover, 100*p.bare, p.road, p.jobs)
	for _, s := range p.settings {
		fmt.Fprintf(&b, "settings %+v\n", s)
	}
	for _, f := range p.faults {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	return b.String()
}
