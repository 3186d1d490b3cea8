package operator

import (
	"context"
	"time"

	"solojob/boottime"
	"solojob/leader"
)

const (
	// watchPeriod is how often a row is read while it is watched: an age of a
	// heartbeat is known this well.
	watchPeriod = 250 * time.Millisecond
	// longestWatch bounds how long a command that is not told to go on watches. It
	// is enough for the default lease, whose holder beats every 5 s.
	longestWatch = 12 * time.Second
	// slowestBeat is the largest share of its lease that a holder's heartbeat
	// interval may be, so that three attempts fit in.
	slowestBeat = 3
	// standbyWait is what a standby waits for in proportion to the holder's
	// lease, as leader has it: two clocks, each 1 % off.
	standbyWait = 1.021
)

// Heartbeat is what watching a row has shown about its holder.
type Heartbeat struct {
	// Age is the time since the beat was first seen. Changed says that it was
	// seen to come; otherwise the heartbeat is at least that old.
	Age     time.Duration
	Changed bool
	// Silent says that a holder which is alive would have been seen to beat.
	Silent bool
	// Takeover is until a standby, if there is one, takes over from a holder
	// that beats no more; negative when that should have happened already.
	Takeover time.Duration
}

// watcher remembers since when each lease has shown its beat, by the local
// clock. Nothing that a row says of the time counts.
type watcher struct {
	clock  leader.Clock
	sights map[Key]sight
}

// sight is a beat, and when the reply arrived that first showed it.
type sight struct {
	beat    string
	first   boottime.Instant
	changed bool // another beat was seen before it
}

func newWatcher(clock leader.Clock) *watcher {
	return &watcher{clock: clock, sights: map[Key]sight{}}
}

// see takes in a row that has just been read.
func (w *watcher) see(l *Lease) {
	before, known := w.sights[l.Key]
	if !known || before.beat != l.Beat {
		w.sights[l.Key] = sight{beat: l.Beat, first: w.clock.Now(), changed: known}
	}
}

// heartbeat is what is known now about the holder of a row that was seen.
func (w *watcher) heartbeat(l *Lease) Heartbeat {
	s := w.sights[l.Key]
	age := w.clock.Now().Sub(s.first)
	return Heartbeat{
		Age: age, Changed: s.changed, Silent: age > silentAfter(l.Row.Lease),
		Takeover: time.Duration(float64(l.Row.Lease)*standbyWait) - age,
	}
}

// silentAfter is how long the beat of a living holder can stay the same: its
// heartbeat interval at most, and the reading takes a period.
func silentAfter(lease time.Duration) time.Duration { return lease/slowestBeat + watchPeriod }

// settled reports whether watching for longer would tell nothing more: the
// holder was seen to beat, or had time enough to.
func (w *watcher) settled(l *Lease) bool {
	if l.unheld() {
		return true
	}
	h := w.heartbeat(l)
	return h.Changed || h.Silent
}

// watch reads the leases again and again until all are settled, for a limited
// time, and leaves in them what was read last. A row that is gone meanwhile is
// left as it was.
func (w *watcher) watch(ctx context.Context, table Table, leases []*Lease) error {
	until := w.clock.Now().Add(longestWatch)
	for {
		open := false
		for _, l := range leases {
			open = open || !w.settled(l)
		}
		if !open || w.clock.Now() >= until {
			return nil
		}
		if err := wait(ctx, w.clock, watchPeriod); err != nil {
			return err
		}
		for _, l := range leases {
			if l.unheld() {
				continue
			}
			now, err := table.Lease(ctx, l.Key)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil || now == nil {
				continue // the beat is not seen to change, and the watch has an end
			}
			*l = *now
			w.see(l)
		}
	}
}

// wait returns after a while, or with the context's error when it ends.
func wait(ctx context.Context, clock leader.Clock, d time.Duration) error {
	over, giveUp := clock.Until(clock.Now().Add(d))
	defer giveUp()
	select {
	case <-over:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
