package leader

import (
	"fmt"
	"time"
)

// Row is the lease as the store shows it. Times in it are for people to read.
type Row struct {
	Owner     string        // the holder, empty when the lease is free
	Fence     int64         // the highest fencing token handed out
	Beat      string        // changes with every write; "" in a row that no agent wrote
	Lease     time.Duration // the holder's lease duration, which standbys wait for
	Draining  bool          // the holder is stopping
	Revision  string        // of the holder's code; "" if it has none
	Announced string        // the revision that announced itself last
	Since     string        // when the holder acquired it
	Requests  Requests      // what operators ask of the holder
	Record    Record        // what the holder's runs left in it
	RunFence  int64         // the fence of the last claim, 0 if there was none

	// Date is the store's own clock in the reply that showed the row, zero if
	// the reply had none. Ownership is never judged by it.
	Date time.Time
}

// Free reports whether nobody holds the lease.
func (r *Row) Free() bool { return r.Owner == "" }

// Stamp is how an instant stands in the row: in UTC and whole seconds, so that
// two of them sort as text.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Requests are what operators wrote into the row. The holder reads them in the
// reply to each heartbeat.
type Requests struct {
	Paused      bool   // start nothing
	PausedBy    string // who asked
	Handover    string // the owner that shall hand over, "" for none
	HandoverNow bool   // without waiting for the end of its run
	HandoverBy  string
	RunNow      string // the id of a request for one extra run, "" for none
	RunBy       string
}

// Record is what runs store in the row. This package carries it and does not
// understand it. What is empty or nil is not written: what the row says stays.
// Attempt is written together with Tick.
type Record struct {
	Schedule  string // the schedule and its zone
	Through   string // the instant up to which every tick is decided
	Tick      string // the last claimed tick
	TickState string
	Attempt   int  // the attempts at the last claimed tick that count
	ExitCode  *int // of the last run, nil while there is none
	Runs      int  // how many claims there have been: the number of the last run

	RunSince *string // since when a run goes on, "" while none does, for people to read
}

// Claim asks for the right to launch: a fence of its own, and for a tick of a
// schedule the tick.
type Claim struct {
	// Record is what the row says once the claim is applied.
	Record Record
	// Tick, if not empty, claims a tick: on the condition that the row's
	// Through is earlier.
	Tick string
	// Again, if not nil, claims the interrupted run of the row's last tick once
	// more: on the condition that tick, state and attempt are still these.
	Again *Record
	// RunNow, if not empty, carries out and clears the operator's request with
	// this id: on the condition that it still stands in the row.
	RunNow string
}

// owner is how this process calls itself in the row: the name may be shared
// (a container restarted in the same task), the nonce is not.
func owner(name, nonce string) string { return name + "/" + nonce }

// beats hands out values that no other attempt ever uses and that sort by age
// within one process: the conditions of renewals compare them as text.
type beats struct {
	nonce string
	last  uint64
}

func (b *beats) next() string {
	b.last++
	return fmt.Sprintf("%s-%016d", b.nonce, b.last)
}
