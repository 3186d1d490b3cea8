package leader

import (
	"errors"

	"solojob/boottime"
)

// settle decides what a reply to the current operation means.
func (e *Elector) settle(r reply) error {
	op := e.op
	op.inFlight = false
	var refusal *ConditionError
	switch {
	case op.kind == opAnnounce && r.err == nil:
		e.op, e.announced = nil, true
		e.cfg.Log.Info("revision announced", "revision", e.cfg.Revision, "holder", op.holder)
	case op.kind == opAnnounce:
		e.failed(r.err)
	case r.err == nil && r.beat != "":
		e.applied(r.row, op.sent[r.beat])
	case r.err == nil && op.verify:
		op.verify = false
		e.judge(r.row, r.arrived)
	case r.err == nil:
		e.observe(r.row, r.arrived)
	case errors.As(r.err, &refusal) && !refusal.Known:
		op.verify = true
		e.attempt()
	case errors.As(r.err, &refusal):
		e.judge(refusal.Row, r.arrived)
	default:
		if err := e.refused(r.err); err != nil {
			return err
		}
		e.failed(r.err)
	}
	return nil
}

// learn takes from a reply to an abandoned operation what can't mislead: that
// there was such a fence, and such a lease.
func (e *Elector) learn(r reply) {
	row := r.row
	var refusal *ConditionError
	if errors.As(r.err, &refusal) {
		row = refusal.Row
	}
	if row != nil {
		e.highest = max(e.highest, row.Fence)
		e.watch.longest = max(e.watch.longest, row.Lease)
	}
}

// observe takes in a row that was read, and competes if the lease is open.
func (e *Elector) observe(row *Row, arrived boottime.Instant) {
	recheck := e.op != nil && e.op.kind != opRead
	e.op = nil
	if e.failing {
		e.failing = false
		e.cfg.Log.Info("lease read again")
	}
	if e.watch.alive(row) {
		select {
		case <-e.held:
		default:
		}
		e.held <- row.Owner
	}
	e.watch.see(row, arrived, e.highest)
	if row != nil {
		e.highest = max(e.highest, row.Fence)
	}
	if e.stopping {
		e.state = stopped
		return
	}
	now := e.cfg.Clock.Now()
	how, open := e.watch.open(e.me, now)
	switch {
	case open && (how == Released || recheck || e.watch.row == nil):
		e.acquire(how)
		return
	case open: // about to take over: look again, consistently
		e.start(&operation{kind: opRecheck})
		return
	}
	e.state, e.settled = standingBy, true
	poll := e.jittered(e.cfg.Poll)
	if row != nil && row.Draining {
		poll = min(poll, drainPoll)
	}
	e.readAt = min(now.Add(poll), max(now, e.watch.opens()))
	if e.watch.gone || row.Free() {
		return
	}
	if row.Owner != e.holder {
		e.holder = row.Owner
		e.cfg.Log.Info("standing by", "holder", row.Owner, "fence", row.Fence)
	}
	e.announce(row, now)
}

// announce tells a holder of another revision that ours is here: once in the
// life of this process, when it has lived for a heartbeat, so that a release
// that crashes at once moves nothing. A process that was here first announces
// nothing later: it is the old one.
func (e *Elector) announce(row *Row, now boottime.Instant) {
	if e.announced || now < e.began.Add(e.cfg.Heartbeat) {
		return
	}
	if e.cfg.Revision == "" || row.Revision == e.cfg.Revision || row.Announced == e.cfg.Revision {
		e.announced = true
		return
	}
	e.start(&operation{kind: opAnnounce, holder: row.Owner})
}

// applied takes in a write that is known to have been applied, and the instant
// before it was sent.
func (e *Elector) applied(row *Row, sent boottime.Instant) {
	op := e.op
	e.op = nil
	switch op.kind {
	case opAcquire:
		e.hold(op, row, sent, e.how)
	case opRelease:
		e.released(row)
	case opRenew:
		e.renewed(op, row, sent)
	}
}

func (e *Elector) renewed(op *operation, row *Row, sent boottime.Instant) {
	e.fence, e.highest = op.fence, max(e.highest, op.fence)
	e.validUntil = max(e.validUntil, sent.Add(e.cfg.Lease))
	e.beatAt = sent.Add(e.cfg.Heartbeat)
	e.cfg.Log.Debug("lease renewed", "fence", e.fence)
	e.term.publish(Beat{ValidUntil: e.validUntil, Asked: op.asked, Row: row})
	if op.answers {
		e.answered = false
	}
	if op.claim != nil {
		e.record = op.claim.claim.Record
		op.claim.answer(op.fence, nil)
	}
	for _, r := range op.waiting {
		r.answer(0, nil)
	}
	e.renewIfAsked()
}

func (e *Elector) released(row *Row) {
	e.cfg.Log.Info("lease released", "fence", e.fence)
	e.watch.see(row, e.cfg.Clock.Now(), e.highest)
	e.over(e.releaser, nil)
}

// judge decides what became of a write, given the row that refused it.
func (e *Elector) judge(row *Row, arrived boottime.Instant) {
	op := e.op
	if row != nil {
		if sent, ours := op.sent[row.Beat]; ours { // an attempt whose reply was lost
			e.applied(row, sent)
			return
		}
		e.highest = max(e.highest, row.Fence)
	}
	switch op.kind {
	case opAcquire:
		e.observe(row, arrived)
	case opRelease:
		if row != nil && row.Owner == e.me && row.Beat != "" {
			// A claim whose reply was lost, or an operator, raised the fence.
			e.fence, op.fence = row.Fence, row.Fence
			e.retry()
			return
		}
		e.op = nil
		e.watch.see(row, arrived, e.highest)
		e.over(e.releaser, nil)
	case opRenew:
		e.judgeRenewal(op, row, arrived)
	}
}

// judgeRenewal decides whether a holder whose renewal was refused still holds.
func (e *Elector) judgeRenewal(op *operation, row *Row, arrived boottime.Instant) {
	switch {
	case row == nil || row.Beat == "":
		e.watch.see(row, arrived, e.highest)
		e.lose(Loss{Reason: LossDeleted})
	case row.Free():
		e.watch.see(row, arrived, e.highest)
		e.lose(Loss{Reason: LossFreed})
	case row.Owner != e.me:
		e.watch.see(row, arrived, e.highest)
		e.lose(Loss{Reason: LossTaken, Holder: row.Owner})
	case row.Fence < e.fence:
		e.watch.see(row, arrived, e.highest)
		e.lose(Loss{Reason: LossRestored})
	case row.Fence > e.fence: // raised by an operator: ours all the same
		e.cfg.Log.Warn("fence raised in the row", "fence", row.Fence, "from", e.fence)
		e.fence = row.Fence
		op.fence = row.Fence
		if op.claim != nil {
			op.fence++
		}
		e.attempt()
	case op.claim != nil: // ours, with our fence: it is the tick that was refused
		e.op = nil
		op.claim.answer(0, ErrDecided)
		e.hurry = true
		e.renewIfAsked()
	default:
		e.failed(&ConditionError{Known: true, Row: row})
	}
}

// failed takes in an attempt of which nothing is known.
func (e *Elector) failed(err error) {
	now := e.cfg.Clock.Now()
	op := e.op
	switch op.kind {
	case opAnnounce: // it is tried again at the next read
		e.op = nil
		e.cfg.Log.Debug("announcement failed", "error", err.Error())
		return
	case opRead, opRecheck:
		e.op = nil
		if !e.failing {
			e.failing = true
			e.cfg.Log.Warn("lease can't be read", "error", err.Error())
		}
		e.readAt = now.Add(e.jittered(e.cfg.Poll))
		return
	case opRenew:
		e.cfg.Log.Warn("renewal failed", "error", err.Error(), "attempt", op.tries,
			"valid_for", e.validUntil.Sub(now).String(), "fence", e.fence)
	default:
		e.cfg.Log.Warn(op.kind.String()+" failed", "error", err.Error(), "attempt", op.tries)
	}
	e.retry()
}

// givenUp ends an acquisition or a release that took too long.
func (e *Elector) givenUp() {
	op := e.op
	e.abandon()
	switch {
	case op.kind == opRelease:
		e.cfg.Log.Warn("release not confirmed", "fence", e.fence)
		e.over(e.releaser, errUnconfirmed)
	case e.stopping: // it may have been applied: free what may be ours
		e.fence = op.fence
		e.release(request{})
	default:
		e.standBy(e.jittered(e.cfg.Poll))
	}
}

var errUnconfirmed = errors.New("the release was not confirmed")
