package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"solojob/leader"
)

// store is one row, read and written atomically. It is what DynamoDB promises
// to be for one item.
type store struct {
	w *world

	mu      sync.Mutex
	row     *leader.Row
	old     []leader.Row // the rows before it, newest last
	deleted time.Time    // when somebody deleted the row; zero if nobody did

	travelling sync.WaitGroup // requests under way, also those that nobody waits for
}

const (
	// remembered is how many old rows are kept: one of them may be restored.
	remembered = 200
	// stale is how many of them an eventually consistent read may show.
	stale = 3
)

func show(r *leader.Row) string {
	if r == nil {
		return "no row"
	}
	s := fmt.Sprintf("[owner %q fence %d beat %s", r.Owner, r.Fence, r.Beat)
	if r.Draining {
		s += " draining"
	}
	if r.Record.Through != "" {
		s += fmt.Sprintf(" through %s tick %s %s %d", r.Record.Through, r.Record.Tick, r.Record.TickState, r.Record.Attempt)
	}
	return s + "]"
}

func (s *store) remember(before *leader.Row) {
	if before == nil {
		return
	}
	if len(s.old) == remembered {
		s.old = append(s.old[:0], s.old[1:]...)
	}
	s.old = append(s.old, *before)
}

func (s *store) snapshot() *leader.Row {
	if s.row == nil {
		return nil
	}
	r := *s.row
	return &r
}

func (s *store) refuse() (*leader.Row, error) {
	return nil, &leader.ConditionError{Known: true, Row: s.snapshot()}
}

// Read is part of leader.Store.
func (d *door) Read(ctx context.Context, consistent bool) (*leader.Row, error) {
	op := "read"
	if consistent {
		op = "consistent read"
	}
	return d.do(ctx, request{op: op}, func() (*leader.Row, error) { return d.snapshot(), nil })
}

// Acquire is part of leader.Store.
func (d *door) Acquire(ctx context.Context, a leader.Acquisition) (*leader.Row, error) {
	return d.do(ctx, request{op: "acquire", beat: a.Beat, seen: a.Seen}, func() (*leader.Row, error) {
		if !d.isStill(a.Seen) {
			return d.refuse()
		}
		row := leader.Row{}
		if d.row != nil {
			row = *d.row
		}
		row.Owner, row.Fence, row.Beat, row.Lease, row.Draining = a.Owner, a.Fence, a.Beat, a.Lease, false
		row.Requests.Handover, row.Requests.HandoverNow = "", false
		row.Record.RunSince = new(string)
		if a.Revision != "" {
			row.Revision, row.Announced = a.Revision, a.Revision
		}
		d.row = &row
		return d.row, nil
	})
}

// isStill reports whether the row is the one that was seen, none for nil.
func (d *door) isStill(seen *leader.Row) bool {
	if seen == nil || d.row == nil {
		return seen == nil && d.row == nil
	}
	return d.row.Beat == seen.Beat && d.row.Fence == seen.Fence
}

// Renew is part of leader.Store.
func (d *door) Renew(ctx context.Context, r leader.Renewal) (*leader.Row, error) {
	op := "renew"
	if r.Claim != nil {
		op = "claim"
	}
	return d.do(ctx, request{op: op, beat: r.Beat, claim: r.Claim, by: r.Owner, fence: r.Fence}, func() (*leader.Row, error) {
		if !d.isHeld(r.Owner, r.Fence, r.Beat) {
			return d.refuse()
		}
		row := *d.row
		if c := r.Claim; c != nil {
			if c.Tick != "" && row.Record.Through >= c.Tick {
				return d.refuse()
			}
			if a := c.Again; a != nil && (row.Record.Tick != a.Tick || row.Record.TickState != a.TickState || row.Record.Attempt != a.Attempt) {
				return d.refuse()
			}
			if c.RunNow != "" && row.Requests.RunNow != c.RunNow {
				return d.refuse()
			}
			if c.RunNow != "" {
				row.Requests.RunNow = ""
			}
			row.Fence++
			row.RunFence = row.Fence
		}
		if r.Answered {
			row.Requests.RunNow = ""
		}
		row.Beat, row.Draining = r.Beat, r.Draining
		row.Record = merged(row.Record, r.Record)
		d.row = &row
		return d.row, nil
	})
}

// merged is what the row says after a write of r: what is empty is not written.
func merged(row, r leader.Record) leader.Record {
	for _, f := range []struct {
		to   *string
		from string
	}{{&row.Schedule, r.Schedule}, {&row.Through, r.Through}, {&row.Tick, r.Tick}, {&row.TickState, r.TickState}} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	if r.Tick != "" {
		row.Attempt = r.Attempt
	}
	if r.ExitCode != nil {
		row.ExitCode = r.ExitCode
	}
	if r.RunSince != nil {
		row.RunSince = r.RunSince
	}
	row.Runs = max(row.Runs, r.Runs)
	return row
}

// Release is part of leader.Store.
func (d *door) Release(ctx context.Context, r leader.Release) (*leader.Row, error) {
	return d.do(ctx, request{op: "release", beat: r.Beat, by: r.Owner, fence: r.Fence}, func() (*leader.Row, error) {
		if !d.isHeld(r.Owner, r.Fence, r.Beat) {
			return d.refuse()
		}
		row := *d.row
		row.Owner, row.Beat, row.Draining = "", r.Beat, false
		row.Requests.Handover, row.Requests.HandoverNow = "", false
		d.row = &row
		return d.row, nil
	})
}

// Announce is part of leader.Store.
func (d *door) Announce(ctx context.Context, holder, revision string) (*leader.Row, error) {
	return d.do(ctx, request{op: "announce"}, func() (*leader.Row, error) {
		if d.row == nil || d.row.Owner != holder {
			return d.refuse()
		}
		row := *d.row
		row.Announced = revision
		d.row = &row
		return d.row, nil
	})
}

func (d *door) isHeld(owner string, fence int64, beat string) bool {
	return d.row != nil && d.row.Owner == owner && d.row.Fence == fence && d.row.Beat < beat
}

// request is an operator's: it changes neither beat nor owner. Change reports
// whether it does anything.
func (s *store) request(change func(*leader.Row) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.row == nil {
		return
	}
	row := *s.row
	if change(&row) {
		s.remember(s.snapshot())
		s.row = &row
	}
}

// remove is somebody who deletes the row by hand.
func (s *store) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.snapshot()
	s.remember(before)
	s.row, s.deleted = nil, time.Now()
	s.w.promises.tampered(before, nil)
}

// restore is somebody who puts the row back as it was a while ago.
func (s *store) restore(r *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.old) == 0 {
		return
	}
	old := s.old[r.IntN(len(s.old))]
	old.Requests = leader.Requests{} // or nobody would ever resume it
	before := s.snapshot()
	s.remember(before)
	s.row, s.deleted = &old, time.Now()
	s.w.promises.tampered(before, &old)
}

func (s *store) now() *leader.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot()
}
