package sim

import (
	"log/slog"
	"sync"
	"time"

	"solojob/boottime"
	"solojob/leader"
)

// promises is the observer: it knows every clock, every message and every job,
// and judges each event by DESIGN section 1.
//
//	P1  No two jobs run at once. A job whose whole task is frozen does not run;
//	    one that thaws past its deadline is being killed, and may overlap for that
//	    moment. Stronger: no job outlives the deadline that follows from what the
//	    store has applied; no agent believes in a later one; nobody takes a lease
//	    over before.
//	P2  Each job that is executed has a fence above all that were handed out.
//	P3  See ticks.
//	P4  Nobody releases the lease, or competes for it, while a job of his lives.
//	P5  In a run that has only the faults which the promise calls invisible, no
//	    lease is lost and the first job runs to the end.
//	P6  No tick is claimed before its time, however wrong the claimer's clock is;
//	    and all of the above in spite of clocks that jump.
//
// And after the faults, the job runs again; who is told to stop ends; and no
// lease is left held.
type promises struct {
	w     *world
	ticks *ticks

	mu       sync.Mutex
	jobs     []*job // those alive
	ran      int    // how many were executed
	lastRan  time.Time
	fence    int64                      // the highest handed out
	launched int64                      // the highest that a job was started with
	limits   map[*task]boottime.Instant // until when each may act, by what the store applied
	pausedAt time.Time                  // when an operator paused; zero while nobody did
	meddled  bool                       // the row was deleted or restored
	put      *leader.Row                // with this, if it was restored
	deleted  string                     // the owner in the row that was deleted
	term     int64                      // the fence with which he acquired it
	acquired int64                      // the fence of the last acquisition
}

func newPromises(w *world) *promises {
	p := &promises{w: w, limits: map[*task]boottime.Instant{}}
	p.ticks = newTicks(w)
	return p
}

func (p *promises) broken(promise, format string, args ...any) {
	p.w.history.violate(promise, format, args...)
}

// jobOf is the job of a task that is alive; nil if there is none.
func (p *promises) jobOf(t *task) *job {
	for _, j := range p.jobs {
		if j.t == t {
			return j
		}
	}
	return nil
}

// sending is called when a request leaves a task.
func (p *promises) sending(t *task, q request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.claim != nil {
		p.ticks.asks(t, q.claim)
	}
	if j := p.jobOf(t); j != nil && (q.op == "acquire" || q.op == "release") {
		p.broken("P4", "%s sends %s %s while its job with fence %d is alive", t.name, q.op, q.beat, j.fence)
	}
}

// applied is called for every write that the store applies, with the row before
// and after it.
func (p *promises) applied(t *task, q request, before, after *leader.Row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if after == nil {
		p.broken("P2", "%s deletes the row", q.op)
		return
	}
	if p.meddled && q.when.Before(p.w.store.deleted) {
		p.ticks.forget() // what the row said when it was sent is back again
	}
	if q.op == "acquire" {
		p.took(t, q, before, after)
	}
	if before != nil && after.Fence < before.Fence {
		p.broken("P2", "%s lowers the fence from %d to %d", q.op, before.Fence, after.Fence)
	}
	if q.op == "release" {
		if j := p.jobOf(t); j != nil && !t.isDead() {
			p.broken("P4", "the lease of %s is released while its job with fence %d is alive", t.name, j.fence)
		}
	} else {
		p.limits[t] = max(p.limits[t], q.sent.Add(t.settings.lease))
	}
	if q.op == "acquire" || q.op == "claim" {
		p.fence = max(p.fence, after.Fence)
	}
	if p.w.plan.schedule != "" && p.w.plan.before == 0 {
		p.ticks.wrote(t, q, before, after)
	}
}

func (p *promises) took(t *task, q request, before, after *leader.Row) {
	if p.mayNotKnow(t, q, before, after) {
		p.w.history.add("world", "the rows before this one don't count any more: %s never saw them", t.name)
		p.fence, p.launched = 0, 0
		p.limits = map[*task]boottime.Instant{}
		for _, j := range p.jobs {
			j.exempt = true
		}
	}
	p.acquired = after.Fence
	if after.Fence <= p.fence {
		p.broken("P2", "%s acquires with fence %d, and %d was handed out", t.name, after.Fence, p.fence)
	}
	for _, holder := range p.w.all() {
		if holder == t {
			continue
		}
		j := p.jobOf(holder)
		silent := before != nil && before.Owner == holder.owner && !p.meddled
		if left := p.limits[holder].Sub(holder.clock.read()); left > 0 && (silent || j != nil && !j.exempt && !holder.isDead()) {
			p.broken("P1", "%s takes the lease over %s before the end of that of %s", t.name, left, holder.name)
		}
	}
}

// mayNotKnow reports whether an acquisition by a task that never saw what was
// in the row before somebody deleted or restored it: the one exception to P1
// and P2. Neither does a message know that was sent before the deletion.
func (p *promises) mayNotKnow(t *task, q request, before, after *leader.Row) bool {
	if !p.meddled {
		return false
	}
	if q.when.Before(p.w.store.deleted) {
		return true
	}
	saw, highest, owner := t.seen()
	if p.put != nil {
		// It saw no more than the old row, or came later and saw only what grew from
		// it, or never saw the holder's term, and how long a lease that one has.
		return highest <= p.put.Fence || highest < p.term || before != nil && after.Fence <= p.fence && highest <= before.Fence
	}
	// Or it saw an older row alone: it can't know the lease of a later holder.
	return q.seen == nil && (!saw || owner != p.deleted)
}

// tampered is called when somebody deletes the row, or puts an old one back.
func (p *promises) tampered(before, row *leader.Row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.meddled, p.put, p.pausedAt = true, row, time.Time{}
	if before != nil {
		p.deleted, p.term = before.Owner, p.acquired
	}
	p.ticks.forget()
}

// told is called with each deadline that an agent hands on for a job.
func (p *promises) told(t *task, fence int64, validUntil boottime.Instant) {
	if t.isDead() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if limit, known := p.limits[t]; known && validUntil > limit {
		p.broken("P1", "%s believes that its lease is valid for %s longer than it is", t.name, validUntil.Sub(limit))
	}
}

// executed is called when a job begins.
func (p *promises) executed(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.w.history.add(j.t.name, "job with fence %d runs, tick %q attempt %d", j.fence, j.tick, j.attempt)
	for _, k := range p.jobs {
		if !k.exempt && !k.frozen && !k.doomed && !k.nature.stuck {
			p.broken("P1", "the job of %s with fence %d starts while that of %s with fence %d runs", j.t.name, j.fence, k.t.name, k.fence)
		}
	}
	if j.fence <= p.launched {
		p.broken("P2", "a job starts with fence %d, and one was started with %d", j.fence, p.launched)
	}
	p.launched = j.fence
	if j.fence < p.fence {
		p.broken("P2", "a job starts with fence %d, and %d was handed out", j.fence, p.fence)
	}
	if late := j.launched.Sub(p.pausedAt); !p.pausedAt.IsZero() && late > j.t.settings.lease {
		p.broken("pause", "a job is launched %s after the lease was paused", late)
	}
	p.ran++
	p.lastRan = time.Now()
	if p.w.plan.profile == hiccups && p.ran > 1 && p.w.plan.schedule == "" {
		p.broken("P5", "the faults were shorter than promised, and the job had to start again")
	}
	j.alive = true
	p.jobs = append(p.jobs, j)
	p.ticks.ran(j)
	if j.tick != "" {
		p.ticks.executed(j)
	}
}

// died is called when the last process of a job is dead.
func (p *promises) died(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.w.history.add(j.t.name, "job with fence %d is dead, status %d", j.fence, j.status)
	j.alive = false
	for i, k := range p.jobs {
		if k == j {
			p.jobs = append(p.jobs[:i:i], p.jobs[i+1:]...)
			break
		}
	}
	late := j.t.clock.read().Sub(p.limits[j.t])
	if late > 0 && !j.doomed && !j.frozen && !j.exempt && !j.nature.stuck && !j.t.isDead() {
		p.broken("P1", "the job of %s with fence %d lives %s longer than its lease", j.t.name, j.fence, late)
	}
	j.ended = time.Now()
	if j.tick != "" {
		p.ticks.died(j)
	}
}

// drained is called when a task is told to stop, or to hand over.
func (p *promises) drained() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ticks.drains++
}

// paused is called when an operator pauses or resumes the lease.
func (p *promises) paused(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !yes:
		p.pausedAt = time.Time{}
	case p.pausedAt.IsZero():
		p.pausedAt = time.Now()
	}
	p.ticks.pauses++
}

// reported is called when a job's supervisor reports its end.
func (p *promises) reported(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.told = time.Now()
}

// froze is called when all of a task is stopped.
func (p *promises) froze(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j := p.jobOf(t); j != nil {
		j.frozen = true
	}
}

// thawed is called when all of it goes on.
func (p *promises) thawed(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.jobOf(t)
	if j == nil || !j.frozen {
		return
	}
	j.frozen = false
	if t.clock.read() >= p.limits[t].Add(-t.settings.margin) {
		j.doomed = true
		return
	}
	for _, k := range p.jobs {
		if k != j && !k.exempt && !k.frozen && !k.doomed && !k.nature.stuck && !j.exempt {
			p.broken("P1", "the job of %s with fence %d thaws before its deadline, and that of %s with fence %d runs", t.name, j.fence, k.t.name, k.fence)
		}
	}
}

// logged is called for each line of a task's log.
func (p *promises) logged(t *task, message string, attrs map[string]slog.Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch message {
	case "lease acquired":
		delete(p.ticks.outside, t)
	case "lease lost":
		p.ticks.lost[t], p.ticks.outside[t] = time.Now(), time.Now()
		if p.w.plan.profile == hiccups {
			p.broken("P5", "the faults were shorter than promised, and the lease was lost")
		}
	case "tick missed", "tick skipped":
		if p.w.plan.before > 0 {
			return // more than can be judged one by one
		}
		p.ticks.logged(t, message, attrs)
	}
}

// afterCalm is called when there were no faults for so long that all must be
// well again.
func (p *promises) afterCalm(since time.Time) {
	row := p.w.store.now() // the store's lock comes before ours
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w.plan.schedule != "" {
		p.ticks.afterCalm(row)
		return
	}
	if len(p.jobs) == 0 && p.lastRan.Before(since) {
		p.broken("progress", "there were no faults for %s, and no job ran: %s", time.Since(since).Round(time.Second), show(row))
	}
	if len(p.jobs) > 1 {
		p.broken("P1", "%d jobs are alive", len(p.jobs))
	}
}
