package operator

import (
	"context"
	"time"

	"solojob/leader"
)

// The items of a lease that somebody can hold.
const (
	ServiceItem = "lease" // of a service or a schedule
	OnceItem    = "once"  // of runs in once mode
)

// Key names one lease item.
type Key struct {
	Name string // of the lease
	Item string // ServiceItem or OnceItem
}

// String is how people call the item.
func (k Key) String() string {
	if k.Item == ServiceItem {
		return k.Name
	}
	return k.Name + " (" + k.Item + ")"
}

// Lease is a lease item as it was read.
type Lease struct {
	Key
	leader.Row

	// RunSince is when the run going on was launched, "" for none. Launching
	// says that the holder writes it at all.
	RunSince  string
	Launching bool
	// ChangedBy is the last break or bump, and who did it: "" for none.
	ChangedBy string

	// Damage says what is wrong with an item that can't be read; then nothing
	// but Key is set.
	Damage string
}

// unheld reports whether there is nobody to watch and to ask: the lease is free,
// or its row says nothing.
func (l *Lease) unheld() bool { return l.Damage != "" || l.Beat == "" || l.Free() }

// requestKind is the kind of an entry for what an operator asked for: no run.
const requestKind = "request"

// Run is one run in a lease's history. What was not written is zero.
type Run struct {
	Fence    int64
	Number   int64  // counts the runs of a schedule; 0: nothing counts them but the fence
	Tick     string // RFC 3339; "" for a run that no tick caused
	Kind     string // "tick", "service", "run-now", "request"
	Attempt  int
	Owner    string
	Started  string // RFC 3339
	Ended    string // RFC 3339; "" if nobody knows
	Duration time.Duration
	ExitCode int
	State    string // one of the Run constants
	Why      string // why it ended, part of a sentence
	By       string // who asked for it
}

// The states of a run that has ended.
const (
	RunDone        = "done"
	RunFailed      = "failed"
	RunInterrupted = "interrupted"
	RunStopped     = "stopped"
)

// HistoryLength is how many runs are kept of a lease: a run's item is named by
// its fence modulo this number.
const HistoryLength = 100

// Table is a table of leases as the operator needs it. Each method is one
// request (a long listing takes several); reads are consistent. Errors are as
// those of [leader.Store].
type Table interface {
	// Leases lists every lease item, in no particular order.
	Leases(ctx context.Context) ([]Lease, error)
	// Lease reads one item, nil if there is none.
	Lease(ctx context.Context, k Key) (*Lease, error)
	// Runs reads the history of a lease, in no particular order.
	Runs(ctx context.Context, k Key) ([]Run, error)
	// Write applies one change if its condition holds, and returns the item
	// after it. Otherwise the error is a *[leader.ConditionError].
	Write(ctx context.Context, k Key, c Change) (*Lease, error)
}

// Change is one conditional write: [SetPaused], [AskHandover], [AskRun], [Break]
// or [RaiseFence]. Every one demands that the row exists, with a beat.
type Change interface {
	// applied reports whether the row shows that this very change was applied,
	// for a write whose reply was lost.
	applied(now *Lease) bool
}

// SetPaused pauses a lease that is not, or resumes one that is paused by whom
// it was seen to be.
type SetPaused struct {
	Paused bool
	By     string
	SeenBy string // for a resumption: what paused_by has to be
}

// AskHandover asks a holder to hand over, if it still holds the lease and was
// not asked before: a plain request never replaces one for at once.
type AskHandover struct {
	Owner string
	Now   bool
	By    string
}

// AskRun asks for one extra run, if none is asked for already and the lease is
// not paused.
type AskRun struct {
	ID string // never used before
	By string
}

// Break frees the row, raises the fence by one and clears what the holder was
// asked, if beat and fence are still what was seen.
type Break struct {
	SeenBeat  string
	SeenFence int64
	Beat      string // never used before
	By        string
}

// RaiseFence raises the fence, if it is still what was seen and lower.
type RaiseFence struct {
	Seen, To int64
	By       string
}

func (c SetPaused) applied(l *Lease) bool {
	return l.Requests.Paused == c.Paused && l.Requests.PausedBy == c.By
}

func (c AskHandover) applied(l *Lease) bool {
	r := l.Requests
	return r.Handover == c.Owner && r.HandoverNow == c.Now && r.HandoverBy == c.By
}

func (c AskRun) applied(l *Lease) bool { return l.Requests.RunNow == c.ID }
func (c Break) applied(l *Lease) bool  { return l.Beat == c.Beat }
func (c RaiseFence) applied(l *Lease) bool {
	return l.Fence >= c.To && l.ChangedBy == c.By
}
