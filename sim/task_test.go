package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"solojob/agent"
	"solojob/boottime"
	"solojob/leader"
	"solojob/runner"
	"solojob/schedule"
)

// task is one container: the real agent and elector, with a simulated
// supervisor and job.
type task struct {
	w        *world
	name     string // in the history
	owner    string // in the row
	settings settings
	clock    *clock
	door     *door
	stop     chan os.Signal
	ended    chan struct{} // the agent has returned
	err      error         // with this, once it has

	agentGate, guardGate, jobGate gate

	mu        sync.Mutex
	jobs      *rand.Rand // the jobs' natures
	jitter    *rand.Rand // for the elector
	wallOff   time.Duration
	dead      bool
	told      bool // to stop
	stopped   bool // frozen, whole or in part
	frozen    bool // whole
	armed     map[kind]time.Duration
	run       *run         // the last one
	hasSeen   bool         // a reply has shown it a row
	highest   int64        // the highest fence that a reply has shown it
	lastOwner string       // in the last row that a reply has shown it
	replies   [2]time.Time // when the last two of them came
}

// stopTimeout is what the platform waits in excess of the stop grace, as the
// defaults of both have it.
const stopTimeout = 5 * time.Second

// start starts a task, with a clock and a time of day of its own.
func (w *world) start() *task {
	w.started++
	n := w.started
	p := w.plan
	r := stream(p.seed, fmt.Sprint("task", n))
	t := &task{
		w: w, name: fmt.Sprint("task", n), settings: p.settings[(n-1)%len(p.settings)],
		stop: make(chan os.Signal, 8), ended: make(chan struct{}), armed: map[kind]time.Duration{},
		jobs: stream(p.seed, fmt.Sprint("jobs", n)), jitter: stream(p.seed, fmt.Sprint("jitter", n)),
	}
	t.clock = &clock{start: time.Now(), base: boottime.Instant(between(r, time.Second, 1000*time.Hour)), drift: p.drift(r), gate: &t.agentGate}
	t.door = &door{store: w.store, t: t, random: stream(p.seed, fmt.Sprint("network", n))}
	t.wallOff = p.wallOff(r)
	if len(p.wallOffs) > 0 {
		t.wallOff = p.wallOffs[(n-1)%len(p.wallOffs)]
	}
	name := fmt.Sprint("ecs", n)
	if n%5 == 0 {
		name = "ecs1" // the same task id twice
	}
	s := t.settings
	log := slog.New(&logTap{t: t})
	elector := leader.NewElector(leader.Config{
		Store: t.door, Clock: t.clock, Name: name, Nonce: fmt.Sprintf("n%d", n),
		Lease: s.lease, Heartbeat: s.heartbeat, Poll: s.poll,
		Revision: fmt.Sprint("r", w.revision), Wall: t.wall, Log: log,
		Random: func() float64 { t.mu.Lock(); defer t.mu.Unlock(); return t.jitter.Float64() },
	})
	t.owner = elector.Owner()
	a := agent.New(agent.Options{
		Elector: elector, Clock: t.clock, Wall: t.wall, Stop: t.stop, Lease: "lease",
		Poll: s.poll, Revision: fmt.Sprint("r", w.revision), Handover: p.handover,
		Launch:    func(l runner.Launch) agent.Run { return t.launchJob(l) },
		LossGrace: s.lossGrace, KillMargin: s.margin, StopGrace: s.stopGrace, Log: log,
	})
	w.history.add(t.name, "starts as %s, lease %s, clock %+.2f %%, time of day off by %s", t.owner, s.lease, 100*t.clock.drift, t.wallOff.Round(time.Millisecond))
	w.add(t)
	w.left.Go(func() {
		var status int
		if p.schedule == "" {
			status, t.err = a.Service(context.Background())
		} else {
			s, err := schedule.Parse(p.schedule, time.UTC)
			if err != nil {
				panic(err)
			}
			status, t.err = a.Cron(context.Background(), agent.Cron{Schedule: s, Rules: p.rules, Overlap: p.overlap})
		}
		close(t.ended)
		if t.isDead() {
			return
		}
		w.history.add(t.name, "agent ends with status %d (%v)", status, t.err)
		w.end(t)
		w.replace(t, between(r, time.Second, 20*time.Second))
	})
	return t
}

// launchJob is the agent's way to the runner.
func (t *task) launchJob(l runner.Launch) agent.Run {
	t.atGate(freezeAtLaunch)
	r := t.launch(l)
	t.mu.Lock()
	t.run = r
	dead := t.dead
	t.mu.Unlock()
	if dead {
		r.abandoned()
	}
	return r
}

func (t *task) beforeSending() { t.atGate(freezeAtSend) }

// atGate is a point at which a freeze may have been planned to strike.
func (t *task) atGate(k kind) {
	t.agentGate.pass()
	t.mu.Lock()
	length, struck := t.armed[k]
	delete(t.armed, k)
	t.mu.Unlock()
	if struck {
		t.w.freeze(t, k, length)
		t.agentGate.pass()
	}
}

// wall is the task's time of day.
func (t *task) wall() time.Time {
	t.agentGate.pass()
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Add(t.wallOff)
}

func (t *task) isDead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dead
}

func (t *task) isGone() bool { return t.isDead() || isClosed(t.ended) }

func (t *task) isTold() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told
}

// sawRow takes note that a reply has shown the task a row.
func (t *task) sawRow(r *leader.Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hasSeen, t.highest, t.lastOwner = true, max(t.highest, r.Fence), r.Owner
	t.replies = [2]time.Time{t.replies[1], time.Now()}
}

// replyBeforeLast is when the last reply but one came that showed a row.
func (t *task) replyBeforeLast() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.replies[0]
}

func (t *task) seen() (yes bool, highest int64, owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasSeen, t.highest, t.lastOwner
}

func (t *task) lastRun() *run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.run
}

// signal is a request to stop.
func (t *task) signal() {
	t.mu.Lock()
	t.told = true
	t.mu.Unlock()
	t.w.promises.drained()
	select {
	case t.stop <- syscall.SIGTERM:
	default:
	}
}

// die is SIGKILL to the agent: nothing more comes from it, and what it has
// sent goes on.
func (t *task) die() {
	t.mu.Lock()
	t.dead = true
	run := t.run
	t.mu.Unlock()
	for _, g := range []*gate{&t.agentGate, &t.guardGate, &t.jobGate} {
		g.fall()
	}
	if run != nil {
		run.abandoned()
	}
	// What is left of the agent in this process has to end: it is told to stop,
	// reaches no store any more, and nobody hears of what it does.
	t.signal()
}

// logTap is the task's log.
type logTap struct {
	t *task
}

func (l *logTap) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logTap) Handle(_ context.Context, r slog.Record) error {
	l.t.agentGate.pass()
	if l.t.isDead() {
		return nil
	}
	line := r.Message
	attrs := map[string]slog.Value{}
	r.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.t.w.history.add(l.t.name, "logs: %s", line)
	l.t.w.promises.logged(l.t, r.Message, attrs)
	return nil
}

func (l *logTap) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logTap) WithGroup(string) slog.Handler      { return l }
