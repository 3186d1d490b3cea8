package leader

import (
	"context"
	"time"

	"solojob/boottime"
)

type opKind int

const (
	opRead    opKind = iota // eventually consistent, half the price
	opRecheck               // consistent, before a takeover
	opAcquire
	opRenew
	opRelease
	opAnnounce
)

func (k opKind) String() string {
	return [...]string{"read", "recheck", "acquire", "renew", "release", "announce"}[k]
}

// operation is one thing asked of the store: one or more attempts, one after
// another, until one is known to have been applied or refused. The elector has
// at most one operation; the replies to an abandoned one are ignored.
type operation struct {
	kind  opKind
	fence int64 // the fence that the row has once the write is applied

	acquisition Acquisition
	holder      string    // to whom the revision is announced
	answers     bool      // a renewal clears the operator's request
	claim       *request  // of a renewal that claims
	waiting     []request // whose record this renewal carries

	// sent has, by the beat of each attempt, the instant before it was sent:
	// any of them may have been applied.
	sent   map[string]boottime.Instant
	first  boottime.Instant // when the first attempt was sent
	asked  boottime.Instant // when the latest was
	tries  int
	verify bool // the next attempt reads what became of the earlier ones

	inFlight bool
	retryAt  boottime.Instant // when the next attempt is due, if none is in flight
	giveUp   boottime.Instant // when no attempt is worth another, zero for never
	cancel   context.CancelFunc
}

// reply is what an attempt came to.
type reply struct {
	op      *operation
	beat    string
	row     *Row
	err     error
	arrived boottime.Instant
}

const (
	// attemptShare is a first attempt's time limit as a share of the heartbeat
	// interval: three attempts, one of them slow, fit into one interval.
	attemptShare = 0.3
	// minAttempt keeps very short heartbeats from giving up on a store that is
	// merely busy.
	minAttempt = 100 * time.Millisecond
	// firstBackoff is the mean wait after a first failed attempt; it doubles.
	firstBackoff = 20 * time.Millisecond
	// maxBackoffShare caps the wait at this share of the heartbeat interval, so
	// that a fault's end is noticed soon after it.
	maxBackoffShare = 0.2
)

// start makes op the elector's operation and sends its first attempt.
func (e *Elector) start(op *operation) {
	op.sent = map[string]boottime.Instant{}
	e.op = op
	e.attempt()
}

// attempt sends the operation's next attempt, with a beat of its own, and
// returns at once.
func (e *Elector) attempt() {
	op, now := e.op, e.cfg.Clock.Now()
	beat, call := e.call(op)
	ctx, cancel := context.WithTimeout(context.Background(), e.attemptLimit(op))
	op.cancel, op.inFlight = cancel, true
	if op.tries == 0 {
		op.first = now
	}
	op.tries++
	op.asked = now
	if beat != "" {
		op.sent[beat] = now
	}
	var tooLate boottime.Instant // a renewal is not sent by a holder that was frozen past its deadline
	if op.kind == opRenew {
		tooLate = e.validUntil
	}
	e.attempts.Go(func() {
		defer cancel()
		r := reply{op: op, beat: beat}
		if tooLate != 0 && e.cfg.Clock.Now() >= tooLate {
			r.err = context.DeadlineExceeded
		} else {
			r.row, r.err = call(ctx)
		}
		r.arrived = e.cfg.Clock.Now()
		select {
		case e.replies <- r:
		case <-e.ended:
		}
	})
}

// attemptLimit is the time limit of the operation's next attempt. It grows by half
// of the first with each that failed, up to a heartbeat interval, so that a
// store or a machine that is merely slow is not given up on for ever. Only a
// renewal's does not: the last attempt into a fault must not outlast it by much.
func (e *Elector) attemptLimit(op *operation) time.Duration {
	first := max(minAttempt, time.Duration(float64(e.cfg.Heartbeat)*attemptShare))
	if op.kind == opRenew {
		return first
	}
	return min(first+time.Duration(op.tries)*first/2, max(first, e.cfg.Heartbeat))
}

// call prepares one attempt: the beat that it writes, if it writes, and the
// request to the store.
func (e *Elector) call(op *operation) (beat string, call func(context.Context) (*Row, error)) {
	store := e.cfg.Store
	switch {
	case op.kind == opAnnounce:
		holder := op.holder
		return "", func(ctx context.Context) (*Row, error) { return store.Announce(ctx, holder, e.cfg.Revision) }
	case op.kind == opRead:
		return "", func(ctx context.Context) (*Row, error) { return store.Read(ctx, false) }
	case op.kind == opRecheck || op.verify:
		return "", func(ctx context.Context) (*Row, error) { return store.Read(ctx, true) }
	}
	beat = e.beats.next()
	switch op.kind {
	case opAcquire:
		a := op.acquisition
		a.Beat, a.Wall = beat, e.cfg.Wall()
		return beat, func(ctx context.Context) (*Row, error) { return store.Acquire(ctx, a) }
	case opRelease:
		r := Release{Owner: e.me, Fence: op.fence, Beat: beat}
		return beat, func(ctx context.Context) (*Row, error) { return store.Release(ctx, r) }
	default:
		r := Renewal{Owner: e.me, Fence: e.fence, Beat: beat, Draining: e.draining, Wall: e.cfg.Wall(), Record: e.record}
		if op.claim != nil {
			r.Claim = op.claim.claim
			r.Record = op.claim.claim.Record
		} else {
			r.Answered, op.answers = e.answered, e.answered
		}
		return beat, func(ctx context.Context) (*Row, error) { return store.Renew(ctx, r) }
	}
}

// retry plans the operation's next attempt.
func (e *Elector) retry() {
	most := time.Duration(float64(e.cfg.Heartbeat) * maxBackoffShare)
	wait := min(most, firstBackoff<<min(e.op.tries-1, 10))
	e.op.retryAt = e.cfg.Clock.Now().Add(time.Duration(float64(wait) * (0.5 + e.cfg.Random())))
}

// abandon ends the operation: whatever its attempts come to is ignored.
func (e *Elector) abandon() {
	if e.op == nil {
		return
	}
	e.op.cancel()
	e.op = nil
}
