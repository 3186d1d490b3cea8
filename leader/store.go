package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"solojob/boottime"
)

// Store is what the elector needs of a database with conditional writes on one
// row. Each method is one attempt: it neither retries nor waits longer than its
// context, and the elector knows of every request that may have been applied.
//
// A write whose condition does not hold returns a [*ConditionError]. A store
// that answers for good that it will not serve us returns an error that is
// [ErrRefused]. Every other error means that the write may or may not have been
// applied.
type Store interface {
	// Read returns the row, nil if there is none. A consistent read reflects
	// every write that was answered before it was sent.
	Read(ctx context.Context, consistent bool) (*Row, error)
	// Acquire makes a.Owner the holder, if the row is still a.Seen.
	Acquire(ctx context.Context, a Acquisition) (*Row, error)
	// Renew writes r.Beat and what else r carries, if r.Owner holds the lease
	// with r.Fence and the row's beat is older.
	Renew(ctx context.Context, r Renewal) (*Row, error)
	// Release frees the lease, on the condition of a renewal.
	Release(ctx context.Context, r Release) (*Row, error)
	// Announce writes the revision of a standby's code, if holder still owns
	// the lease. It is no part of the protocol: it changes neither the beat nor
	// the fence.
	Announce(ctx context.Context, holder, revision string) (*Row, error)
}

// Acquisition is the write that takes a free, expired or absent lease.
type Acquisition struct {
	Owner    string
	Fence    int64 // the new one
	Beat     string
	Lease    time.Duration
	Revision string // also becomes the announced one; "" writes neither
	Wall     time.Time

	// Seen is the row that the condition demands, by beat and fence; nil: that
	// there is none.
	Seen *Row
}

// Renewal is a heartbeat, and with a Claim the right to launch once more.
type Renewal struct {
	Owner    string
	Fence    int64 // the one held; a claim makes it one more
	Beat     string
	Draining bool
	Wall     time.Time
	Record   Record
	Claim    *Claim // nil for a plain heartbeat
	Answered bool   // the operator's request to run now is dealt with: clear it
}

// Release gives the lease up.
type Release struct {
	Owner string
	Fence int64
	Beat  string
}

// ErrRefused marks errors by which the store refuses us for good, such as a
// table that does not exist. They end an elector only before it has read the
// row once: a permission that vanishes later may come back.
var ErrRefused = errors.New("the lease store refuses us")

// ConditionError says that a write was not applied because the row is not what
// the write demanded.
type ConditionError struct {
	Known bool // whether the store told what the row is instead
	Row   *Row // nil if there is none
}

func (e *ConditionError) Error() string {
	switch {
	case !e.Known:
		return "the row is not what the write demanded"
	case e.Row == nil:
		return "the row does not exist"
	default:
		return fmt.Sprintf("the row has owner %q, fence %d, beat %q", e.Row.Owner, e.Row.Fence, e.Row.Beat)
	}
}

// Clock is the local clock by which ownership is judged: [boottime.Clock], or a
// fake one in tests.
type Clock interface {
	Now() boottime.Instant
	// Until returns a channel that is closed once the clock has reached at, and
	// a function that gives the wait up.
	Until(at boottime.Instant) (<-chan struct{}, func())
}
