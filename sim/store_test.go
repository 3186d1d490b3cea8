package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"solojob/boottime"
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

// door is one task's way to the store; a leader.Store.
type door struct {
	*store
	t *task

	mu      sync.Mutex
	random  *rand.Rand
	weather []kind // what is wrong with the network now
}

// request is one attempt under way.
type request struct {
	op    string
	beat  string // that it writes, "" for a read
	sent  boottime.Instant
	when  time.Time
	seen  *leader.Row   // what an acquisition demands to see
	claim *leader.Claim // what a claim claims
	by    string        // the owner that a write's condition demands, but an acquisition's
	fence int64         // and the fence
	deed  *deed         // for the history of the register; nil if nobody keeps it
}

// trip is what becomes of one request.
type trip struct {
	there, back time.Duration
	dropped     bool // never arrives
	lost        bool // the reply never arrives
	failed      bool // the server answers with an error ...
	applied     bool // ... although it applied the write
	err         error
	again       time.Duration // arrives once more, so long after
	stale       bool
	bare        bool
}

var (
	errThrottled = errors.New("DynamoDB answered ThrottlingException")
	errServer    = errors.New("DynamoDB answered InternalServerError")
	errDenied    = fmt.Errorf("%w: access to table %q is denied", leader.ErrRefused, "solojob")
	errDead      = errors.New("this process is dead")
)

// trip draws what becomes of a request. It always draws the same number of
// times, so that one fault more or less changes nothing else.
func (d *door) trip() trip {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, lease := d.w.plan, d.w.plan.longest().lease
	var draws [10]float64
	for i := range draws {
		draws[i] = d.random.Float64()
	}
	scale := func(i int, most time.Duration) time.Duration { return time.Duration(draws[i] * float64(most)) }
	quick := trip{there: time.Millisecond/2 + scale(0, 20*time.Millisecond), back: time.Millisecond/2 + scale(1, 20*time.Millisecond), bare: draws[5] < p.bare}
	if d.w.isCalm() {
		return quick
	}
	t := quick
	t.dropped, t.lost, t.stale = draws[2] < p.road.dropped, draws[3] < p.road.mute, draws[4] < p.road.stale
	if draws[6] < p.road.again {
		t.again = scale(7, 2*lease)
	}
	if draws[8] < p.road.late {
		t.there += scale(7, 2*lease)
	}
	if draws[3] > 1-p.road.slow {
		t.there += scale(8, 1500*time.Millisecond)
	}
	if draws[9] < p.road.failed {
		t.failed, t.applied, t.err = true, draws[7] < 0.5, errServer
	}
	for _, k := range d.weather {
		switch k {
		case cut:
			t.dropped = true
		case mute:
			t.lost = true
		case slow:
			t.there += scale(7, 4*time.Second)
			t.back += scale(8, 4*time.Second)
		case failing:
			t.failed, t.applied, t.err = true, false, errServer
		case throttled:
			t.failed, t.applied, t.err = true, false, errThrottled
		case denied:
			t.failed, t.applied, t.err = true, false, errDenied
		case deceive:
			t.failed, t.applied, t.err = true, true, errServer
		}
	}
	return t
}

// change adds or takes away a fault of the network.
func (d *door) change(k kind, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if on {
		d.weather = append(d.weather, k)
	} else if i := slices.Index(d.weather, k); i >= 0 {
		d.weather = slices.Delete(d.weather, i, i+1)
	}
}

type answer struct {
	row *leader.Row
	err error
}

// do sends one request and waits for its reply, as long as ctx allows. The
// request itself goes on when nobody waits any more.
func (d *door) do(ctx context.Context, q request, apply func() (*leader.Row, error)) (*leader.Row, error) {
	d.t.beforeSending()
	if d.t.isDead() {
		return nil, errDead
	}
	q.sent, q.when = d.t.clock.read(), time.Now()
	t := d.trip()
	d.w.promises.sending(d.t, q)
	d.note(q, t)
	q.deed = d.w.register.begin(q)
	came := make(chan answer, 1)
	d.travelling.Go(func() {
		time.Sleep(t.there)
		switch {
		case t.dropped:
			return
		case t.failed && !t.applied:
		default:
			a := d.serve(q, t, apply)
			if t.again > 0 {
				d.travelling.Go(func() {
					time.Sleep(t.again)
					d.serve(q, t, apply)
				})
			}
			if !t.failed {
				time.Sleep(t.back)
				if !t.lost {
					came <- a
				}
				return
			}
		}
		time.Sleep(t.back)
		if !t.lost {
			came <- answer{nil, t.err}
		}
	})
	if q.op == "acquire" {
		d.t.atGate(freezeAcquire)
	}
	var a answer
	select {
	case a = <-came:
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	d.t.agentGate.pass()
	select {
	case a = <-came: // while the task was frozen
	default:
	}
	var failed *leader.ConditionError
	switch {
	case a.row != nil:
		d.t.sawRow(a.row)
	case errors.As(a.err, &failed) && failed.Row != nil:
		d.t.sawRow(failed.Row)
	}
	q.deed.end(a)
	return a.row, a.err
}

// note counts the faults that a request meets.
func (d *door) note(q request, t trip) {
	h := d.w.history
	count := func(yes bool, what string) {
		if yes {
			h.count(what)
			if q.beat != "" {
				h.add(d.t.name, "%s %s: %s", q.op, q.beat, what)
			}
		}
	}
	count(t.dropped, "request lost")
	count(t.lost && !t.dropped, "reply lost")
	count(t.failed && !t.dropped && t.applied, "applied, answered with an error")
	count(t.failed && !t.dropped && !t.applied, "answered with an error")
	count(t.again > 0 && q.beat != "", "request delivered twice")
	count(t.there > time.Second && !t.dropped, "request late")
	count(t.bare && q.beat != "", "row of a failed condition kept back")
	count(t.stale && q.op == "read", "stale read")
}

// serve applies a request at the server.
func (d *door) serve(q request, t trip, apply func() (*leader.Row, error)) answer {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	if q.op == "read" && t.stale && len(d.old) > 0 {
		row := d.old[len(d.old)-1-int(t.there)%min(stale, len(d.old))]
		row.Date = time.Now().Truncate(time.Second).UTC()
		return answer{&row, nil}
	}
	before := d.snapshot()
	row, err := apply()
	if err == nil && q.beat != "" {
		d.wrote(q, before)
		row = d.snapshot()
	}
	var failed *leader.ConditionError
	if errors.As(err, &failed) {
		d.w.history.add(d.t.name, "%s %s refused by %s", q.op, q.beat, show(d.row))
		if t.bare {
			return answer{nil, &leader.ConditionError{}}
		}
		if failed.Row != nil {
			failed.Row.Date = time.Now().Truncate(time.Second).UTC()
		}
	}
	if row != nil {
		row.Date = time.Now().Truncate(time.Second).UTC()
	}
	return answer{row, err}
}

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

// wrote keeps the row before the write, and shows both to the observer.
func (d *door) wrote(q request, before *leader.Row) {
	d.remember(before)
	q.deed.applied(d.row)
	d.w.history.add(d.t.name, "%s %s applied, sent %s ago: %s", q.op, q.beat, time.Since(q.when).Round(time.Millisecond), show(d.row))
	d.w.promises.applied(d.t, q, before, d.snapshot())
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
