package sim

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"solojob/boottime"
	"solojob/runner"
)

// job is one launched process tree, as the observer sees it.
type job struct {
	t       *task
	fence   int64
	tick    string
	attempt int
	nature  nature

	term, kill chan struct{} // closed when the signal is sent
	dead       chan struct{}
	launched   time.Time // by the agent
	status     int       // once dead
	byItself   bool      // nobody signalled it

	// The observer's, under its lock.
	alive  bool
	frozen bool
	doomed bool // thawed past its deadline: it is being killed
	exempt bool // of an epoch that is over
	began  time.Time
	ended  time.Time
	told   time.Time // when its supervisor said so
}

// nature is how a job behaves: drawn when it is launched.
type nature struct {
	start   time.Duration // from the launch to the execution
	length  time.Duration // until it ends by itself, 0 for never
	status  int           // then
	onTerm  time.Duration // from TERM to its end; 0: it ignores TERM
	onKill  time.Duration // from KILL to the death of the last process
	stuck   bool          // that takes longer than anybody can wait
	kills   bool          // it takes its task down instead of ending
	perhaps float64       // what else has to be decided
}

func (t *task) nature() nature {
	t.mu.Lock()
	defer t.mu.Unlock()
	var d [9]float64
	for i := range d {
		d[i] = t.jobs.Float64()
	}
	s, h := t.settings, t.w.plan.jobs
	n := nature{
		start:  2*time.Millisecond + time.Duration(d[0]*d[0]*d[0]*float64(200*time.Millisecond)),
		onTerm: time.Duration(d[1] * float64(s.stopGrace/2)),
		onKill: time.Duration(d[2] * float64(s.margin) * 0.4),
	}
	if h.length > 0 {
		n.length = time.Duration((0.5 + d[3]) * float64(h.length))
	}
	if d[4] < h.fails {
		n.status = 3
	}
	if d[5] < h.deaf {
		n.onTerm = 0
	}
	if d[6] < h.stuck {
		n.stuck, n.onKill = true, time.Duration(d[7]*float64(2*s.lease))
	}
	n.perhaps = d[8]
	return n
}

// live is the job itself.
func (j *job) live() {
	defer close(j.dead)
	defer func() { j.t.w.promises.died(j) }()
	var end <-chan time.Time
	if j.nature.length > 0 {
		timer := time.NewTimer(j.nature.length)
		defer timer.Stop()
		end = timer.C
	}
	term := j.term
	for {
		select {
		case <-j.kill: // works on what is stopped, too
			time.Sleep(j.nature.onKill)
			j.status = 128 + int(syscall.SIGKILL)
			return
		case <-end:
			end = nil
			j.t.jobGate.pass()
			if j.nature.kills {
				j.t.w.crashFrom(j.t)
				continue
			}
			if isClosed(j.kill) {
				continue
			}
			j.status, j.byItself = j.nature.status, term != nil
			return
		case <-term:
			term = nil
			j.t.jobGate.pass()
			if j.nature.onTerm == 0 {
				continue
			}
			select {
			case <-time.After(j.nature.onTerm):
				j.t.jobGate.pass()
				if isClosed(j.kill) {
					continue
				}
				j.status = 128 + int(syscall.SIGTERM)
				if j.nature.perhaps < 0.5 {
					j.status = 0
				}
				return
			case <-j.kill:
			}
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// run is one launch as the agent sees it, an agent.Run, together with the
// supervisor that sees it through. It follows package runner's rules.
type run struct {
	t       *task
	l       runner.Launch
	job     *job
	started chan struct{}
	done    chan struct{}
	news    chan struct{} // something below has changed
	report  chan struct{} // the supervisor is through

	mu         sync.Mutex
	validUntil boottime.Instant
	stopAsked  bool
	killAt     boottime.Instant // while stopping
	stopping   bool             // TERM is sent
	killing    bool             // KILL is sent
	reason     runner.Reason
	kill       runner.Reason // asked for
	result     runner.Result
}

func (t *task) launch(l runner.Launch) *run {
	r := &run{
		t: t, l: l, validUntil: l.ValidUntil,
		started: make(chan struct{}), done: make(chan struct{}),
		news: make(chan struct{}, 1), report: make(chan struct{}),
	}
	r.job = &job{
		t: t, fence: l.Fence, nature: t.nature(), launched: time.Now(),
		term: make(chan struct{}), kill: make(chan struct{}), dead: make(chan struct{}),
	}
	for _, kv := range l.Env {
		if v, ok := strings.CutPrefix(kv, "SOLOJOB_RUN_TICK="); ok {
			r.job.tick = v
		}
		if v, ok := strings.CutPrefix(kv, "SOLOJOB_RUN_ATTEMPT="); ok {
			fmt.Sscan(v, &r.job.attempt)
		}
	}
	if after := t.w.plan.jobs.killsOwn; after > 0 {
		r.job.nature.kills = r.job.tick == t.w.history.start.Add(after).UTC().Format(time.RFC3339)
	}
	t.w.promises.told(t, l.Fence, l.ValidUntil)
	go r.supervise()
	go r.keep()
	return r
}

func (r *run) tell(change func()) {
	r.mu.Lock()
	change()
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *run) moment() runner.Moment {
	return runner.Moment{Boot: r.t.clock.read(), Wall: time.Now()}
}

// supervise is the supervisor process.
func (r *run) supervise() {
	defer close(r.report)
	time.Sleep(r.job.nature.start)
	r.t.guardGate.pass()
	r.mu.Lock()
	r.judge()
	if r.stopping || r.killing {
		r.result.Reason = r.reason
		r.mu.Unlock()
		r.t.w.history.add(r.t.name, "job with fence %d not started: %s", r.l.Fence, r.reason)
		return
	}
	r.result.Launched, r.result.Started = true, r.moment()
	r.mu.Unlock()
	r.t.w.promises.executed(r.job)
	go r.job.live()
	close(r.started)
	for {
		r.mu.Lock()
		r.judge()
		wait := r.t.clock.in(r.next())
		r.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-r.job.dead:
			timer.Stop()
			r.t.guardGate.pass()
			r.mu.Lock()
			r.result.Ended, r.result.ExitStatus = r.moment(), r.job.status
			if r.job.status > 128 {
				r.result.Signal = syscall.Signal(r.job.status - 128)
			}
			r.result.Signalled, r.result.Reason = r.stopping || r.killing, r.reason
			r.mu.Unlock()
			r.t.w.promises.reported(r.job)
			return
		case <-r.news:
		case <-timer.C:
		}
		timer.Stop()
		r.t.guardGate.pass()
	}
}

// judge does what is due. Newer deadlines are known by now, even after a pause.
func (r *run) judge() {
	now, margin, grace := r.t.clock.read(), r.t.settings.margin, r.t.settings.lossGrace
	killDeadline := r.validUntil.Add(-margin)
	switch {
	case r.killing:
	case r.kill != "":
		r.sendKill(r.kill)
	case now >= killDeadline:
		r.sendKill(runner.Deadline)
	case r.stopping && now >= r.killAt:
		r.sendKill(r.reason)
	case r.stopping:
	case r.stopAsked:
		r.sendTerm(runner.Stopped)
	case now >= killDeadline.Add(-grace):
		r.killAt = killDeadline
		r.sendTerm(runner.Deadline)
	}
}

func (r *run) sendTerm(why runner.Reason) {
	r.stopping, r.reason = true, why
	if r.result.Launched {
		r.t.w.history.add(r.t.name, "TERM to the job with fence %d: %s", r.l.Fence, why)
		close(r.job.term)
	}
}

func (r *run) sendKill(why runner.Reason) {
	r.killing, r.reason = true, why
	if r.result.Launched {
		r.t.w.history.add(r.t.name, "KILL to the job with fence %d: %s", r.l.Fence, why)
		close(r.job.kill)
	}
}

func (r *run) next() boottime.Instant {
	killDeadline := r.validUntil.Add(-r.t.settings.margin)
	switch {
	case r.killing:
		return r.t.clock.read().Add(time.Hour)
	case r.stopping:
		return min(r.killAt, killDeadline)
	}
	return killDeadline.Add(-r.t.settings.lossGrace)
}

// keep is the agent's side: it passes the report on, and steps in when there is
// none by half a margin before the end.
func (r *run) keep() {
	for reported := false; !reported; {
		r.mu.Lock()
		wait := r.t.clock.in(r.validUntil.Add(-r.t.settings.margin / 2))
		killing := r.killing
		r.mu.Unlock()
		if killing {
			wait = time.Hour
		}
		timer := time.NewTimer(wait)
		select {
		case <-r.report:
			reported = true
		case <-timer.C:
			r.t.agentGate.pass()
			r.mu.Lock()
			late := r.t.clock.read() >= r.validUntil.Add(-r.t.settings.margin/2)
			r.mu.Unlock()
			if late {
				r.replace(runner.Deadline)
			}
		}
		timer.Stop()
	}
	r.t.agentGate.pass()
	close(r.done)
}

// replace kills the supervisor and all that it leaves.
func (r *run) replace(why runner.Reason) {
	r.mu.Lock()
	if !r.killing {
		r.sendKill(why)
	}
	r.mu.Unlock()
	r.t.guardGate.open()
}

// Started is part of agent.Run, as are the others.
func (r *run) Started() <-chan struct{} { return r.started }
func (r *run) Pid() int                 { return int(r.l.Fence) }
func (r *run) Done() <-chan struct{}    { return r.done }

func (r *run) Extend(validUntil boottime.Instant) {
	r.t.agentGate.pass()
	r.t.w.promises.told(r.t, r.l.Fence, validUntil)
	r.tell(func() { r.validUntil = max(r.validUntil, validUntil) })
}

func (r *run) Stop(killAt boottime.Instant) {
	r.t.agentGate.pass()
	r.tell(func() {
		if r.stopAsked || r.stopping {
			r.killAt = min(r.killAt, killAt)
		} else {
			r.stopAsked, r.killAt = true, killAt
		}
	})
}

func (r *run) Kill(why runner.Reason) {
	r.t.agentGate.pass()
	r.tell(func() {
		if r.kill == "" {
			r.kill = why
		}
	})
}

func (r *run) Result() runner.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result
}

// abandoned is the agent's death, which the supervisor learns by end-of-file.
func (r *run) abandoned() {
	r.tell(func() {
		if r.kill == "" {
			r.kill = runner.AgentEnds
		}
	})
}
