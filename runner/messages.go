package runner

import (
	"bytes"
	"syscall"
	"time"

	"solojob/boottime"
)

// order is the body of a launch: all that the supervisor needs to know.
type order struct {
	path       string
	command    []string
	env        []string
	validUntil boottime.Instant
	grace      time.Duration // stop signal → KILL, before the deadline
	margin     time.Duration // KILL → deadline
	timeout    time.Duration
	stopGrace  time.Duration // stop signal → KILL, after the timeout
	stopSignal syscall.Signal
}

func (o *order) encode() []byte {
	b := putString(nil, o.path)
	b = putStrings(b, o.command)
	b = putStrings(b, o.env)
	for _, v := range []int64{int64(o.validUntil), int64(o.grace), int64(o.margin), int64(o.timeout), int64(o.stopGrace), int64(o.stopSignal)} {
		b = putInt(b, v)
	}
	return b
}

// decodeOrder refuses what encode would have written differently.
func decodeOrder(b *body) (o order, ok bool) {
	written := b.rest
	o.path = b.string()
	o.command = b.strings()
	o.env = b.strings()
	o.validUntil = boottime.Instant(b.int())
	o.grace = time.Duration(b.int())
	o.margin = time.Duration(b.int())
	o.timeout = time.Duration(b.int())
	o.stopGrace = time.Duration(b.int())
	o.stopSignal = syscall.Signal(b.int())
	return o, b.whole() && bytes.Equal(o.encode(), written)
}

// ending is the body of the report that every process of the run is dead, or
// that none was ever started.
type ending struct {
	launched  bool
	errno     syscall.Errno // of the execution that failed
	status    syscall.WaitStatus
	started   Moment
	ended     Moment
	signalled bool
	reason    Reason
}

func (e *ending) encode() []byte {
	b := putInt(nil, flag(e.launched))
	b = putInt(b, int64(e.errno))
	b = putInt(b, int64(e.status))
	b = putMoment(b, e.started)
	b = putMoment(b, e.ended)
	b = putInt(b, flag(e.signalled))
	return putString(b, string(e.reason))
}

// decodeEnding refuses what encode would have written differently.
func decodeEnding(b *body) (e ending, ok bool) {
	written := b.rest
	e.launched = b.int() != 0
	e.errno = syscall.Errno(b.int())
	e.status = syscall.WaitStatus(b.int())
	e.started = getMoment(b)
	e.ended = getMoment(b)
	e.signalled = b.int() != 0
	e.reason = Reason(b.string())
	return e, b.whole() && bytes.Equal(e.encode(), written)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func putMoment(to []byte, m Moment) []byte {
	if m.Boot == 0 {
		return putInt(putInt(to, 0), 0)
	}
	return putInt(putInt(to, int64(m.Boot)), m.Wall.UnixNano())
}

func getMoment(b *body) Moment {
	boot, wall := b.int(), b.int()
	if boot == 0 {
		return Moment{}
	}
	return Moment{Boot: boottime.Instant(boot), Wall: time.Unix(0, wall)}
}
