package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"solojob/boottime"
)

// Config is what an elector needs. Every field without "may" must be set.
type Config struct {
	Store Store
	Clock Clock

	// Name is the first part of the owner: the task's id or the host's name. It
	// need not be unique; the random Nonce of this process makes the owner so.
	Name  string
	Nonce string

	Lease     time.Duration // how long a lease is valid without a renewal
	Heartbeat time.Duration // from the sending of one renewal to the next
	Poll      time.Duration // between a standby's reads

	Revision string // of the code; may be empty
	// FenceFloor is what every fence handed out is greater than; may be 0.
	FenceFloor int64
	Wall       func() time.Time // the time of day, for people to read in the row
	Random     func() float64   // in [0, 1), for jitter
	Log        *slog.Logger     // must not block
	// Alive is called each time round the elector's loop, which is at least once
	// a poll or a heartbeat; it may be nil, and must not block.
	Alive func()
}

// Owner is how a process with this configuration calls itself in the row.
func (c *Config) Owner() string { return owner(c.Name, c.Nonce) }

// A lowered or missing row is answered with a fence this far above the highest
// remembered: the elector may have missed a few.
const fenceJump = 1_000_000

const (
	// drainPoll is how often the row of a draining holder is read, so that a
	// handover takes a fraction of a second.
	drainPoll = 200 * time.Millisecond
	// holdBackPolls is for how many polls a released lease is left to the tasks
	// of the revision that announced itself: each of them has read it by then.
	holdBackPolls = 3
	// jitter spreads the standbys' reads: ± 10 %.
	jitter = 0.1
)

type state int

const (
	standingBy state = iota // watching somebody else's lease, or looking for one
	competing               // an acquisition is under way
	holding                 // the lease is ours, and renewed
	lost                    // it was ours; the job may not be dead yet
	releasing               // the job is dead, the row is being freed
	stopped
)

// Elector competes for one lease, and hands out a [Term] each time it has it.
type Elector struct {
	cfg      Config
	me       string
	terms    chan *Term
	requests chan request
	replies  chan reply
	stop     chan struct{}
	stopOnce sync.Once
	ended    chan struct{}
	held     chan string
	attempts sync.WaitGroup

	// What follows belongs to Run's goroutine.
	began     boottime.Instant
	announced bool // our revision is announced, or needs no announcement
	state     state
	stopping  bool // no more competing: end as soon as nothing is held
	settled   bool // the store has served us: its refusals are no longer final
	failing   bool // the last read failed, and was logged
	beats     beats
	highest   int64 // the highest fence ever seen
	watch     watch
	holder    string           // whom we told to stand by behind
	readAt    boottime.Instant // a standby's next read
	op        *operation
	how       string // while competing: how the lease is being acquired

	// While holding; fence also while lost and releasing.
	term       *Term
	taken      bool // somebody has received the term
	fence      int64
	validUntil boottime.Instant
	beatAt     boottime.Instant // the next heartbeat
	draining   bool
	answered   bool // the next renewal clears the operator's request to run
	record     Record
	urgent     []request // wait for the next applied renewal
	hurry      bool      // renew as soon as no write is under way
	claims     []request
	releaser   request
}

// NewElector returns an elector that does nothing before Run.
func NewElector(cfg Config) *Elector {
	return &Elector{
		cfg:      cfg,
		me:       cfg.Owner(),
		beats:    beats{nonce: cfg.Nonce},
		watch:    watch{revision: cfg.Revision, holdBack: holdBackPolls * cfg.Poll},
		terms:    make(chan *Term),
		requests: make(chan request),
		replies:  make(chan reply),
		stop:     make(chan struct{}),
		ended:    make(chan struct{}),
		held:     make(chan string, 1),
	}
}

// Owner is how this elector calls itself in the row.
func (e *Elector) Owner() string { return e.me }

// Terms delivers each term as it is acquired. A term that nobody receives by
// the time it is lost, or Stop is called, is released by the elector itself.
func (e *Elector) Terms() <-chan *Term { return e.terms }

// Held delivers the name of a holder that is alive: its beat was seen to change
// while we stood by. A row with an owner alone says nothing: that owner may have
// crashed. A name that is not received is replaced by the next.
func (e *Elector) Held() <-chan string { return e.held }

// Stop ends the competition: Run returns when nothing is held any more, which
// is up to whoever has received a term. It may be called more than once.
func (e *Elector) Stop() { e.stopOnce.Do(func() { close(e.stop) }) }

// Run is the elector. It returns nil after Stop, an error that is [ErrRefused]
// if the store refuses us before it ever served us, and the context's error
// when ctx ends: then everything is dropped as it is, and a lease that is held
// runs out by itself.
func (e *Elector) Run(ctx context.Context) error {
	defer e.attempts.Wait()
	defer close(e.ended)
	defer e.abandon()

	var timer boottime.Timer
	defer timer.Stop()
	stop := e.stop
	e.began = e.cfg.Clock.Now()
	e.standBy(0)
	for e.state != stopped {
		if e.cfg.Alive != nil {
			e.cfg.Alive()
		}
		var terms chan<- *Term
		if e.state == holding && !e.taken {
			terms = e.terms
		}
		if due := e.due(); due != timer.At() {
			timer.Set(e.cfg.Clock, due)
		}
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stop:
			stop = nil
			e.checkDeadline()
			e.beginStop()
		case terms <- e.term:
			e.taken = true
		case r := <-e.requests:
			e.checkDeadline()
			e.serve(r)
		case r := <-e.replies:
			e.checkDeadline()
			if r.op == e.op {
				err = e.settle(r)
			} else {
				e.learn(r)
			}
		case <-timer.C():
			timer.Stop()
			e.checkDeadline()
			e.onTime()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// due is the next instant at which the elector has something to do by itself.
func (e *Elector) due() boottime.Instant {
	next := never
	sooner := func(at boottime.Instant) { next = min(next, at) }
	if e.op != nil {
		if !e.op.inFlight {
			sooner(e.op.retryAt)
		}
		if e.op.giveUp != 0 {
			sooner(e.op.giveUp)
		}
	}
	switch e.state {
	case standingBy:
		if e.op == nil {
			sooner(e.readAt)
		}
	case holding:
		sooner(e.validUntil)
		if e.op == nil {
			sooner(e.beatAt)
		}
	}
	return next
}

// never is later than every reading of the clock.
const never = boottime.Instant(1<<63 - 1)

// checkDeadline is the first thing that the elector does whenever it wakes: a
// holder that was frozen past its deadline sends nothing more.
func (e *Elector) checkDeadline() {
	if e.state == holding && e.cfg.Clock.Now() >= e.validUntil {
		e.lose(Loss{Reason: LossExpired})
	}
}

// onTime does what is due.
func (e *Elector) onTime() {
	now := e.cfg.Clock.Now()
	if e.op != nil {
		switch {
		case e.op.giveUp != 0 && now >= e.op.giveUp:
			e.givenUp()
		case !e.op.inFlight && now >= e.op.retryAt:
			e.attempt()
		}
		return
	}
	switch {
	case e.state == standingBy && now >= e.readAt:
		kind := opRead
		if _, ok := e.watch.open(e.me, now); ok && e.watch.row != nil {
			kind = opRecheck // about to take over: a herd mostly costs reads
		}
		e.start(&operation{kind: kind})
	case e.state == holding && now >= e.beatAt:
		e.renew()
	}
}

// beginStop ends the competition.
func (e *Elector) beginStop() {
	e.stopping = true
	switch {
	case e.state == standingBy:
		e.abandon()
		e.state = stopped
	case e.state == competing:
		// An attempt may have been applied: learn it, so that no lease is left.
		e.op.giveUp = e.cfg.Clock.Now().Add(e.cfg.Heartbeat)
	case e.state == holding && !e.taken:
		e.release(request{})
	}
}

// serve does what the user of a term asks.
func (e *Elector) serve(r request) {
	if r.term != e.term || e.state == releasing {
		r.answer(0, errOver)
		return
	}
	if r.kind == askRelease {
		e.release(r)
		return
	}
	if e.state == lost {
		r.answer(0, e.term.Loss())
		return
	}
	switch r.kind {
	case askClaim:
		e.claims = append(e.claims, r)
	case askRecord:
		e.record, e.hurry = r.record, true
		e.urgent = append(e.urgent, r)
	case askNote:
		e.record = r.record
		e.hurry = e.hurry || r.soon
		r.answer(0, nil)
	case askAnswer:
		e.answered, e.hurry = true, true
		r.answer(0, nil)
	case askDrain:
		e.draining, e.hurry = true, true
		r.answer(0, nil)
	}
	e.renewIfAsked()
}

// renewIfAsked sends a renewal before its time if somebody waits for one.
func (e *Elector) renewIfAsked() {
	if e.op == nil && (e.hurry || len(e.claims) > 0) {
		e.renew()
	}
}

// renew starts a heartbeat, which carries the first of the claims.
func (e *Elector) renew() {
	op := &operation{kind: opRenew, fence: e.fence}
	if len(e.claims) > 0 {
		op.claim, e.claims = &e.claims[0], e.claims[1:]
		op.fence++
	} else {
		op.waiting, e.urgent = e.urgent, nil
		e.hurry = false
	}
	e.start(op)
}

// release frees the row, or after a loss to somebody else leaves it alone.
func (e *Elector) release(r request) {
	e.abandonRenewal(errOver)
	if e.state == lost && e.term.loss.Reason != LossExpired {
		e.over(r, nil)
		return
	}
	e.state, e.releaser = releasing, r
	// Once the lease has run out by itself there is little left to give up.
	giveUp := max(e.validUntil, e.cfg.Clock.Now().Add(e.cfg.Heartbeat))
	e.start(&operation{kind: opRelease, fence: e.fence, giveUp: giveUp})
}

// over ends a term whose job is dead, and goes on as a standby.
func (e *Elector) over(r request, err error) {
	r.answer(0, err)
	pause := e.jittered(e.cfg.Poll)
	if e.term != nil && e.term.loss.Reason == "" {
		pause = holdBackPolls * e.cfg.Poll // we gave it up for somebody else to have it
	}
	e.op, e.term, e.taken = nil, nil, false
	if e.stopping {
		e.state = stopped
		return
	}
	e.standBy(pause)
}

// standBy goes on watching, with the next read after a while.
func (e *Elector) standBy(after time.Duration) {
	e.state = standingBy
	e.readAt = e.cfg.Clock.Now().Add(after)
}

// lose ends the right to act. The term stays until its job is dead.
func (e *Elector) lose(l Loss) {
	e.state = lost
	e.term.loss = l
	e.abandonRenewal(&e.term.loss)
	attrs := []any{"reason", l.Reason, "fence", e.fence}
	if l.Holder != "" {
		attrs = append(attrs, "holder", l.Holder)
	}
	e.cfg.Log.Warn("lease lost", attrs...)
	close(e.term.lost)
	if !e.taken { // nothing was started under it
		e.release(request{})
	}
}

// abandonRenewal drops the write under way and tells everyone who waits.
func (e *Elector) abandonRenewal(why error) {
	waiting := append(e.claims, e.urgent...)
	if e.op != nil {
		if e.op.claim != nil {
			waiting = append(waiting, *e.op.claim)
		}
		waiting = append(waiting, e.op.waiting...)
	}
	e.abandon()
	e.claims, e.urgent, e.hurry = nil, nil, false
	for _, r := range waiting {
		r.answer(0, why)
	}
}

// hold begins a term with an acquisition that was sent at an instant.
func (e *Elector) hold(op *operation, row *Row, sent boottime.Instant, how string) {
	e.op = nil
	e.fence, e.highest = op.fence, max(e.highest, op.fence)
	e.validUntil = sent.Add(e.cfg.Lease)
	e.settled, e.failing, e.holder = true, false, ""
	e.draining, e.answered, e.record = false, false, Record{}
	e.watch.see(row, e.cfg.Clock.Now(), e.highest)
	e.term = &Term{
		Fence: op.fence, How: how, Row: row, Before: op.acquisition.Seen,
		elector: e, beats: make(chan Beat, 1), lost: make(chan struct{}),
	}
	if seen := op.acquisition.Seen; seen != nil && e.cfg.Revision != "" && seen.Announced != e.cfg.Revision {
		e.term.Uninvited = seen.Announced
	}
	e.taken = false
	if e.stopping || e.cfg.Clock.Now() >= e.validUntil {
		// Too late to act under it, or no longer wanted: nothing was started.
		e.release(request{})
		return
	}
	e.state = holding
	e.beatAt = sent.Add(e.cfg.Heartbeat)
	e.term.publish(Beat{ValidUntil: e.validUntil, Asked: op.asked, Row: row})
	e.cfg.Log.Info("lease acquired", "how", how, "fence", op.fence)
}

// acquire competes for the row that was seen last.
func (e *Elector) acquire(how string) {
	seen := e.watch.present()
	a := Acquisition{
		Owner: e.me, Fence: e.nextFence(seen), Lease: e.cfg.Lease,
		Revision: e.cfg.Revision, Seen: seen,
	}
	e.state, e.how = competing, how
	now := e.cfg.Clock.Now()
	e.start(&operation{kind: opAcquire, fence: a.Fence, acquisition: a, giveUp: now.Add(e.cfg.Lease)})
}

// nextFence is greater than every fence that this agent has seen.
func (e *Elector) nextFence(seen *Row) int64 {
	var stored int64
	if seen != nil {
		stored = seen.Fence
	}
	next := stored + 1
	if stored < e.highest {
		next = e.highest + fenceJump
	}
	return max(next, e.cfg.FenceFloor+1)
}

func (e *Elector) jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*e.cfg.Random()))
}

// refused turns an error by which the store refuses us into Run's result, as
// long as it never served us.
func (e *Elector) refused(err error) error {
	if !e.settled && errors.Is(err, ErrRefused) {
		return fmt.Errorf("%s: %w", e.op.kind, err)
	}
	return nil
}
