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

// wrote keeps the row before the write, and shows both to the observer.
func (d *door) wrote(q request, before *leader.Row) {
	d.remember(before)
	q.deed.applied(d.row)
	d.w.history.add(d.t.name, "%s %s applied, sent %s ago: %s", q.op, q.beat, time.Since(q.when).Round(time.Millisecond), show(d.row))
	d.w.promises.applied(d.t, q, before, d.snapshot())
}
