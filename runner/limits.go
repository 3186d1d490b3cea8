package runner

import (
	"time"

	"solojob/boottime"
)

// limits decide when a run is signalled. They hold no process and read no
// clock; the supervisor asks them at every wake-up, after it has read the
// control pipe empty.
type limits struct {
	validUntil boottime.Instant
	grace      time.Duration // stop signal → KILL, before the deadline
	margin     time.Duration // KILL → deadline
	timeout    time.Duration // of the run; 0: none
	stopGrace  time.Duration // stop signal → KILL, after the timeout

	started  boottime.Instant // of the job; zero before
	stopping bool             // the stop signal is sent: the run is over, come what may
	killAt   boottime.Instant // while stopping
	killing  bool             // KILL is sent, and goes on being sent
	reason   Reason
}

// verdict is what to do to the job now.
type verdict int

const (
	letRun verdict = iota
	sendStop
	sendKill
)

func (l *limits) killDeadline() boottime.Instant { return l.validUntil.Add(-l.margin) }
func (l *limits) stopDeadline() boottime.Instant { return l.killDeadline().Add(-l.grace) }

// extend moves the deadline forward. It never comes back, so an old message
// does no harm.
func (l *limits) extend(validUntil boottime.Instant) {
	l.validUntil = max(l.validUntil, validUntil)
}

// stop asks for the stop signal now and KILL at killAt. Later calls can only
// bring the latter forward.
func (l *limits) stop(reason Reason, killAt boottime.Instant) verdict {
	if l.stopping || l.killing {
		l.killAt = min(l.killAt, killAt)
		return letRun
	}
	l.stopping, l.killAt, l.reason = true, killAt, reason
	return sendStop
}

// kill asks for KILL now. The first reason for it stays.
func (l *limits) kill(reason Reason) verdict {
	if l.killing {
		return letRun
	}
	l.killing, l.reason = true, reason
	return sendKill
}

// judge compares the limits with the clock.
func (l *limits) judge(now boottime.Instant) verdict {
	switch {
	case l.killing:
		return letRun
	case now >= l.killDeadline():
		return l.kill(Deadline)
	case l.stopping && now >= l.killAt:
		return l.kill(l.reason)
	case l.stopping:
		return letRun
	case now >= l.stopDeadline():
		// Bounded here, because a renewal that comes late must not lengthen
		// the grace of a run that is over.
		return l.stop(Deadline, l.killDeadline())
	case l.timeout > 0 && l.started > 0 && now >= l.started.Add(l.timeout):
		return l.stop(TimedOut, now.Add(l.stopGrace))
	}
	return letRun
}

// next is the instant at which judge may say something else; zero for none.
func (l *limits) next() boottime.Instant {
	switch {
	case l.killing:
		return 0
	case l.stopping:
		return min(l.killAt, l.killDeadline())
	case l.timeout > 0 && l.started > 0:
		return min(l.stopDeadline(), l.started.Add(l.timeout))
	}
	return l.stopDeadline()
}
