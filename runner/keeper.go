package runner

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// keeper is the agent's loop: it keeps a supervisor at hand, tells it what the
// callers of the run want, and steps in where the supervisor fails.
type keeper struct {
	opts    Options
	host    *Hosted
	sleeper *sleeper
	program string // to execute as supervisor
	stdin   int    // the job's standard input
	body    func(*Hosted) int

	bodyStarted bool
	bodyDone    chan struct{}
	code        int              // body's result, once bodyDone is closed
	leaveBy     boottime.Instant // once body has returned; zero before

	guard     *guard // started and not yet reaped
	failures  int    // starts in a row that came to nothing
	nextStart boottime.Instant
	startErr  error // of the last one that failed

	run      *Run
	want     wishes
	told     wishes // what of it the supervisor was told
	launched bool   // the launch was sent: a job may exist

	// What the agent itself sees of a run whose supervisor failed.
	sweeping  bool
	why       Reason
	broom     broom
	startedAt Moment
	endedAt   Moment
	status    int
	signal    syscall.Signal
}

// A supervisor that can't be started is tried again with doubling pauses. At
// the start of the program it is an error after a few.
const (
	startPause    = 100 * time.Millisecond
	startPauseMax = 5 * time.Second
	firstTries    = 3
)

// startLimit is how long a supervisor may take to become ready: many times
// what it takes on the smallest task (200 ms at 0.25 vCPU).
const startLimit = 20 * time.Second

// endLimit is how long to wait, when all is over, for the kernel to end a
// supervisor that got KILL.
const endLimit = time.Second

func (k *keeper) loop() (int, error) {
	k.bodyDone = make(chan struct{})
	defer k.host.close()
	for {
		// Reports first: they may settle what the rest would otherwise judge.
		if k.guard != nil {
			k.guard.report.empty(k.hear)
			if k.guard.report.damaged && !k.guard.killed {
				k.opts.Log.Error("the supervisor's reports can't be understood: killing it and all that is left of the job")
				k.guard.kill()
			}
		}
		none := reap(k.note)
		now := boottime.Now()
		k.attend()
		k.judge(now)
		if k.sweeping {
			k.broom.sweep(k.run.pid)
			if treeGone(none, k.run.pid) {
				k.settle(k.ownResult())
			}
		}
		if err := k.keepGuard(now); err != nil {
			return 0, err
		}
		k.tell(now)
		if k.leaving(now) {
			return k.code, nil
		}
		k.sleeper.sleep(k.next(now), k.polls()...)
	}
}

// attend learns what the callers want.
func (k *keeper) attend() {
	run, want := k.host.current()
	if run != k.run {
		k.run, k.told, k.launched = run, wishes{}, false
		k.why, k.broom = "", broom{}
		k.startedAt, k.endedAt, k.status, k.signal = Moment{}, Moment{}, statusLost, syscall.SIGKILL
	}
	k.want = want
	if k.leaveBy > 0 && k.want.kill == "" {
		k.want.kill = AgentEnds
	}
}

// judge steps in if the supervisor does not do its part.
func (k *keeper) judge(now boottime.Instant) {
	switch {
	case k.guard != nil && !k.guard.ready && now >= k.guard.started.Add(startLimit):
		k.guard.kill()
	case k.run == nil || k.sweeping:
	case !k.launched:
		l := k.limits()
		if k.want.kill != "" {
			k.settle(Result{Reason: k.want.kill})
		} else if k.want.stop {
			k.settle(Result{Reason: Stopped})
		} else if now >= l.stopDeadline() {
			k.settle(Result{Reason: Deadline})
		}
	case now >= k.backstop():
		k.opts.Log.Error("the job's death was not reported in time: killing the supervisor and all that is left", "fence", k.run.launch.Fence)
		k.replace(Deadline)
	case k.guard != nil && k.guard.silent(now, k.patience(now)):
		k.opts.Log.Error("the supervisor does not answer: killing it and all that is left of the job", "fence", k.run.launch.Fence)
		k.replace(SupervisorSilent)
	}
}

func (k *keeper) limits() *limits {
	return &limits{validUntil: k.want.validUntil, grace: k.opts.LossGrace, margin: k.opts.KillMargin}
}

// backstop is when the agent no longer waits for the supervisor to report the
// job's death: half of the margin is left to kill it ourselves.
func (k *keeper) backstop() boottime.Instant { return k.want.validUntil.Add(-k.opts.KillMargin / 2) }

// patience is how long the supervisor may owe an acknowledgement: two
// heartbeats, or half a margin if KILL is due.
func (k *keeper) patience(now boottime.Instant) time.Duration {
	if k.want.kill != "" || k.want.stop && now >= k.want.killAt {
		return k.opts.KillMargin / 2
	}
	return 2 * k.opts.Heartbeat
}

// replace ends the supervisor and begins to sweep away what it leaves.
func (k *keeper) replace(reason Reason) {
	k.why = reason
	k.sweeping = true
	k.guard.kill()
}

// keepGuard starts a supervisor if there is none. It waits for the end of a
// sweep: that kills everything below us, and ends only when nobody is left.
func (k *keeper) keepGuard(now boottime.Instant) error {
	if k.guard != nil || k.sweeping || k.leaveBy > 0 || now < k.nextStart {
		return nil
	}
	err := k.startErr
	k.startErr = nil
	if err == nil {
		k.guard, err = startGuard(k.program, k.stdin)
	}
	if err != nil {
		return k.startFailed(now, err)
	}
	return nil
}

// startFailed plans the next try. Before the body runs, the last one's failure
// is returned.
func (k *keeper) startFailed(now boottime.Instant, err error) error {
	k.failures++
	if !k.bodyStarted && k.failures >= firstTries {
		return fmt.Errorf("the supervisor process can't be started: %w", err)
	}
	pause := min(startPause<<min(k.failures-1, 10), startPauseMax)
	k.nextStart = now.Add(pause)
	k.opts.Log.Warn("the supervisor process can't be started; trying again", "error", err, "pause", pause)
	return nil
}

// hear acts on a report of the supervisor. What it does not understand it does
// not act on at all: least of all does it take a job for dead.
func (k *keeper) hear(f frame) bool {
	g := k.guard
	switch f.kind {
	case frameReady:
		if g.ready || !f.body.whole() {
			return false
		}
		g.ready = true
		k.failures = 0
		k.startBody()
	case frameAck:
		seq := f.body.int()
		if seq <= g.acked || seq > g.control.seq || !f.body.whole() {
			return false
		}
		g.heard(seq)
	case frameStarted:
		pid, at := int(f.body.int()), getMoment(&f.body)
		if !k.launched || pid <= 0 || !f.body.whole() {
			return false
		}
		k.startedAt = at
		k.host.begun(k.run, pid)
	case frameDead:
		e, ok := decodeEnding(&f.body)
		if !k.launched || !ok {
			return false
		}
		k.settle(k.resultOf(e))
		g.kill() // it would exit by itself, unless somebody stops it just now
	default:
		return false
	}
	return true
}

func (k *keeper) startBody() {
	if k.bodyStarted {
		return
	}
	k.bodyStarted = true
	go func() {
		defer k.sleeper.wake()
		defer close(k.bodyDone)
		k.code = k.body(k.host)
	}()
}

// note takes down what ended. Orphans that fell to us are of no interest.
func (k *keeper) note(pid int, ws syscall.WaitStatus) {
	k.broom.died()
	switch {
	case k.guard != nil && pid == k.guard.pid:
		k.guard.reaped = true
		k.guard.report.empty(k.hear) // its last words
		k.guardDied(ws)
	case k.run != nil && pid == k.run.pid:
		k.endedAt = now()
		k.status, k.signal = statusOf(ws)
	}
}

func (k *keeper) guardDied(ws syscall.WaitStatus) {
	g := k.guard
	g.close()
	k.guard = nil
	if !g.killed && g.ready {
		status, _ := statusOf(ws)
		k.opts.Log.Warn("the supervisor died; starting another", "status", status)
	}
	if !g.ready {
		k.startErr = errors.New("it ended before it was ready")
	}
	if k.run != nil && k.launched && !k.sweeping {
		k.why, k.sweeping = SupervisorDied, true
	}
}

// resultOf translates the supervisor's report.
func (k *keeper) resultOf(e ending) Result {
	r := Result{
		Launched:  e.launched,
		Started:   e.started,
		Ended:     e.ended,
		Signalled: e.signalled,
		Reason:    e.reason,
	}
	switch {
	case e.launched:
		r.ExitStatus, r.Signal = statusOf(e.status)
	case e.errno != 0:
		failure := explain(k.opts.Path, e.errno)
		r.ExecErr, r.ExitStatus = failure, failure.Status
	}
	return r
}

// ownResult is what we know of a run whose supervisor failed.
func (k *keeper) ownResult() Result {
	if k.endedAt.Boot == 0 {
		k.endedAt = now()
	}
	return Result{
		Launched:   true,
		ExitStatus: k.status,
		Signal:     k.signal,
		Started:    k.startedAt,
		Ended:      k.endedAt,
		Signalled:  true,
		Reason:     k.why,
	}
}

// settle ends the run: every process of it is dead.
func (k *keeper) settle(r Result) {
	run := k.run
	k.run, k.launched, k.sweeping = nil, false, false
	k.host.over(run, r)
}

// tell sends the supervisor whatever it was not told yet.
func (k *keeper) tell(now boottime.Instant) {
	g := k.guard
	if g == nil {
		return
	}
	if g.ready && !g.killed && k.run != nil {
		k.compose(g, now)
	}
	g.control.flush()
}

func (k *keeper) compose(g *guard, now boottime.Instant) {
	if !k.launched {
		k.launched = true
		o := k.order()
		g.send(now, frameLaunch, o.encode())
		k.told.validUntil = k.want.validUntil
	}
	// Deadlines that the pipe doesn't take at once are not queued: the next
	// one replaces them.
	ping := !g.owes() && now >= g.lastSent.Add(k.patience(now)/2)
	if (k.want.validUntil > k.told.validUntil || ping) && !g.control.full() {
		g.send(now, frameExtend, putInt(nil, int64(k.want.validUntil)))
		k.told.validUntil = k.want.validUntil
	}
	for _, sig := range k.want.signals {
		g.send(now, frameForward, putInt(nil, int64(sig)))
	}
	k.want.signals = nil
	if k.want.stop && (!k.told.stop || k.want.killAt < k.told.killAt) {
		g.send(now, frameStop, putInt(nil, int64(k.want.killAt)))
		k.told.stop, k.told.killAt = true, k.want.killAt
	}
	if k.want.kill != "" && k.told.kill == "" {
		g.send(now, frameKill, putString(nil, string(k.want.kill)))
		k.told.kill = k.want.kill
	}
}

func (k *keeper) order() *order {
	l := k.run.launch
	return &order{
		path:       k.opts.Path,
		command:    k.opts.Command,
		env:        l.Env,
		validUntil: k.want.validUntil,
		grace:      k.opts.LossGrace,
		margin:     k.opts.KillMargin,
		timeout:    l.Timeout,
		stopGrace:  l.StopGrace,
		stopSignal: k.opts.StopSignal,
	}
}

// leaving reports whether Host may return: body has, and nobody is left, or
// those that are can't be killed.
func (k *keeper) leaving(now boottime.Instant) bool {
	select {
	case <-k.bodyDone:
	default:
		return false
	}
	if k.leaveBy == 0 {
		k.leaveBy = now.Add(k.opts.KillMargin)
		k.host.close()
		k.sleeper.wake() // one more turn, which sees even a run that was launched just now
		return false
	}
	if k.run != nil {
		if now < k.leaveBy {
			return false
		}
		k.opts.Log.Error("processes of the job are left that can't be killed", "fence", k.run.launch.Fence)
		if k.guard != nil {
			k.guard.close() // end-of-file: it goes on killing
		}
		return true
	}
	if k.guard == nil {
		return true
	}
	k.guard.kill()
	if now < k.leaveBy.Add(endLimit) {
		return false
	}
	k.guard.close()
	return true
}

// next is when to wake at the latest; zero for never.
func (k *keeper) next(now boottime.Instant) boottime.Instant {
	var at boottime.Instant
	sooner := func(t boottime.Instant) {
		if at == 0 || t < at {
			at = t
		}
	}
	if k.leaveBy > 0 {
		if k.run != nil {
			sooner(k.leaveBy)
		} else {
			sooner(k.leaveBy.Add(endLimit))
		}
	}
	switch {
	case k.sweeping:
		sooner(k.broom.next)
	case k.guard == nil:
		sooner(max(k.nextStart, 1))
	case !k.guard.ready:
		sooner(k.guard.started.Add(startLimit))
	}
	switch {
	case k.run == nil || k.sweeping:
	case !k.launched:
		sooner(k.limits().stopDeadline())
	default:
		sooner(k.backstop())
		if k.guard != nil {
			sooner(k.guard.nextLook(now, k.patience(now)))
			if k.want.stop && now < k.want.killAt {
				sooner(k.want.killAt)
			}
		}
	}
	return at
}

func (k *keeper) polls() []unix.PollFd {
	if k.guard == nil {
		return nil
	}
	return []unix.PollFd{k.guard.report.poll(), k.guard.control.poll()}
}
