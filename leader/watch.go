package leader

import (
	"time"

	"solojob/boottime"
)

// How a lease was acquired.
const (
	New      = "new"      // there was no row
	Released = "released" // the row had no owner
	Expired  = "expired"  // its holder was silent for the whole lease
)

// driftFactor is what a standby waits in excess of the holder's lease: the
// holder's clock may tick 1 % slow and ours 1 % fast, 1.01 / 0.99 < 1.021.
const driftFactor = 1.021

// watch is what a standby knows of the row from its own reads, and so the
// answer to "when is the lease expired?".
//
// The holder's deadline is lease after it *sent* the write of a beat. The reply
// that first showed us that beat arrived after the write was applied, which was
// after it was sent. So if we wait for the whole lease from that arrival and
// the beat is still the same, the holder has given up before: no clock of
// another machine is needed, and a slow network only makes us wait longer.
//
// A row that we have seen and that is gone counts as held from the reply that
// first showed it gone, not from the last that showed it: until then its holder
// renewed, and it learns of the loss only with its next renewal. So does a row
// whose fence has fallen.
type watch struct {
	row   *Row             // the last row read that had a beat, nil if none ever
	bare  *Row             // what is there instead, if the row has lost its beat
	gone  bool             // the row is not there any more, or has no beat
	since boottime.Instant // arrival of the reply that first showed this beat, or first showed it gone

	// lowered is set while the row shows a lower fence than we have seen: it was
	// restored, and whoever holds the lease learns it only with its next
	// renewal. So it counts as held, for the longest lease ever shown.
	lowered bool
	longest time.Duration

	revision string        // of our code, "" if it has none
	holdBack time.Duration // how long a released lease is left to the revision that announced itself
}

// alive reports whether a row shows that its holder renews: it has another beat
// than the last time.
func (w *watch) alive(row *Row) bool {
	return w.row != nil && !w.gone && row != nil && !row.Free() && row.Beat != "" && row.Beat != w.row.Beat
}

// see takes in a row (nil for none) whose reply arrived at an instant; highest is
// the highest fence seen before.
func (w *watch) see(row *Row, arrived boottime.Instant, highest int64) {
	if row == nil || row.Beat == "" {
		if w.row != nil && !w.gone {
			w.gone, w.since = true, arrived
		}
		w.bare = row
		return
	}
	if w.row == nil || w.gone || w.row.Beat != row.Beat {
		w.since, w.lowered = arrived, row.Fence < highest
	}
	w.longest = max(w.longest, row.Lease)
	w.row, w.bare, w.gone = row, nil, false
}

// invited reports whether a released lease is ours to take as soon as anybody's:
// if another revision announced itself last, a deploy is going on, and its tasks
// shall have the lease first. An expired lease is anybody's.
func (w *watch) invited() bool {
	return w.revision == "" || w.row.Announced == "" || w.row.Announced == w.revision
}

// opens returns the instant from which the lease may be acquired, if nothing
// changes.
func (w *watch) opens() boottime.Instant {
	if !w.gone && !w.lowered && w.row.Free() {
		return w.since.Add(w.holdBack)
	}
	return w.expires()
}

// expires returns the instant from which the lease may be taken over.
func (w *watch) expires() boottime.Instant {
	lease := w.row.Lease
	if w.lowered {
		lease = w.longest
	}
	return w.since.Add(time.Duration(float64(lease) * driftFactor))
}

// open reports whether the lease may be acquired now, and how. The owner name
// is unique to this process, so a row that carries it while we stand by is left
// from an acquisition or a release whose reply never came: no job runs under it.
func (w *watch) open(me string, now boottime.Instant) (how string, ok bool) {
	switch {
	case w.row == nil:
		return New, true
	case w.gone:
		return New, now >= w.expires()
	case w.lowered:
		return Expired, now >= w.expires()
	case w.row.Owner == me:
		return Released, true
	case w.row.Free():
		return Released, w.invited() || now >= w.since.Add(w.holdBack)
	default:
		return Expired, now >= w.expires()
	}
}

// present is the row as an acquisition must find it, nil if there is none.
func (w *watch) present() *Row {
	if w.row == nil || w.gone {
		return w.bare
	}
	return w.row
}
