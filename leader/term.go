package leader

import (
	"errors"
	"fmt"

	"solojob/boottime"
)

// Why a lease was lost.
const (
	LossExpired  = "expired"  // no renewal went through in time
	LossTaken    = "taken"    // the row has another owner
	LossFreed    = "freed"    // somebody emptied the owner by hand
	LossDeleted  = "deleted"  // the row is gone
	LossRestored = "restored" // the row shows an older state than ours
)

// Loss says why a term ended before it was released.
type Loss struct {
	Reason string // one of the constants above
	Holder string // who holds the lease instead, if known
}

func (l *Loss) Error() string {
	if l.Holder != "" {
		return fmt.Sprintf("lease lost (%s): held by %s", l.Reason, l.Holder)
	}
	return fmt.Sprintf("lease lost (%s)", l.Reason)
}

// ErrDecided is what a claim returns when its tick was decided by somebody
// else, or its interrupted run was claimed already. The term goes on.
var ErrDecided = errors.New("the tick is already decided")

// errOver is what requests to a term return once it is released.
var errOver = errors.New("the term is over")

// Beat is what an applied renewal, claim or acquisition tells.
type Beat struct {
	ValidUntil boottime.Instant // act until then, not later
	Asked      boottime.Instant // before the request was sent whose reply shows Row: its Date is no older
	Row        *Row             // as the store had it after the write
}

// Term is one holder's time with the lease: from the acquisition until the
// lease is lost or released. Its methods may be called from any goroutine.
//
// Whoever receives a term must call Release, once, when every process that was
// started under it is dead. Until then the elector renews the lease as long as
// it can, and does not compete for it again.
type Term struct {
	// Fence is the fencing token of the acquisition.
	Fence int64
	// How is one of New, Released and Expired.
	How string
	// Row is the lease as it was acquired.
	Row *Row
	// Before is the row that the acquisition found, nil if there was none.
	Before *Row
	// Uninvited is the revision that had announced itself before the lease was
	// acquired by another one, ours; "" if there was none.
	Uninvited string

	elector *Elector
	beats   chan Beat
	lost    chan struct{}
	loss    Loss // set before lost is closed
}

// Beats delivers the latest applied write of the lease, once: a beat that is
// not received before the next one comes is replaced by it. The first one is
// the acquisition.
func (t *Term) Beats() <-chan Beat { return t.beats }

// Lost is closed when the lease is lost: by its deadline, or because the row
// says so. Every process of the job has to be killed at once.
func (t *Term) Lost() <-chan struct{} { return t.lost }

// Loss says why the lease was lost; it is valid once Lost is closed.
func (t *Term) Loss() *Loss { return &t.loss }

// Claim raises the fence, and returns the new one, with which one launch may
// carry out what was claimed. It returns [ErrDecided] if the tick is taken, a
// *[Loss] if the lease is lost meanwhile. Only one claim may be under way.
func (t *Term) Claim(c Claim) (int64, error) {
	a := t.ask(request{kind: askClaim, claim: &c})
	return a.fence, a.err
}

// Record makes every renewal from now on carry r, sends one at once, and
// returns when it is applied or the term is over.
func (t *Term) Record(r Record) error {
	return t.ask(request{kind: askRecord, record: r}).err
}

// Note makes every renewal from now on carry r, and returns without waiting for
// one; soon sends one before the next heartbeat is due.
func (t *Term) Note(r Record, soon bool) {
	t.ask(request{kind: askNote, record: r, soon: soon})
}

// Drain makes the row say that the holder is stopping, so that the standbys
// poll fast, and returns without waiting for it.
func (t *Term) Drain() {
	t.ask(request{kind: askDrain})
}

// Answer clears the operator's request for an extra run without carrying it
// out, and returns without waiting for it.
func (t *Term) Answer() {
	t.ask(request{kind: askAnswer})
}

// Release gives the lease up, or takes note that it was lost, and returns when
// that is done. It is for whoever received the term, when every process of the
// job is confirmed dead, and for nobody before. It reports whether the row is
// known to be free of us.
func (t *Term) Release() bool {
	return t.ask(request{kind: askRelease}).err == nil
}

func (t *Term) ask(r request) answer {
	r.term, r.reply = t, make(chan answer, 1)
	select {
	case t.elector.requests <- r:
	case <-t.elector.ended:
		return answer{err: errOver}
	}
	select {
	case a := <-r.reply:
		return a
	case <-t.elector.ended:
	}
	select {
	case a := <-r.reply: // the elector's last act
		return a
	default:
		return answer{err: errOver}
	}
}

// publish replaces the beat that nobody has received yet. Only the elector's
// goroutine sends, so there is room after the first select.
func (t *Term) publish(b Beat) {
	select {
	case <-t.beats:
	default:
	}
	t.beats <- b
}

type askKind int

const (
	askClaim askKind = iota
	askRecord
	askNote
	askDrain
	askAnswer
	askRelease
)

// request is what a term's user asks of the elector's goroutine.
type request struct {
	kind   askKind
	term   *Term
	claim  *Claim
	record Record
	soon   bool
	reply  chan answer // buffered: the elector never waits for the asker
}

type answer struct {
	fence int64
	err   error
}

func (r request) answer(fence int64, err error) {
	if r.reply != nil {
		r.reply <- answer{fence, err}
	}
}
