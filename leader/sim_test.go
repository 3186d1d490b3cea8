package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"solojob/boottime"
)

// fakeClock is a local clock in the fake time of a synctest bubble, with an
// offset of its own and a rate of its own.
type fakeClock struct {
	start time.Time
	rate  float64
	base  boottime.Instant
	slept atomic.Int64 // time that passed in a suspend, which no timer noticed
}

func newClock(rate float64, base time.Duration) *fakeClock {
	return &fakeClock{start: time.Now(), rate: rate, base: boottime.Instant(base)}
}

func (c *fakeClock) Now() boottime.Instant {
	return c.base.Add(time.Duration(float64(time.Since(c.start))*c.rate) + time.Duration(c.slept.Load()))
}

func (c *fakeClock) Until(at boottime.Instant) (<-chan struct{}, func()) {
	done := make(chan struct{})
	wait := time.Duration(float64(at.Sub(c.Now()))/c.rate) + 1
	if at == never {
		return done, func() {}
	}
	t := time.AfterFunc(max(0, wait), func() { close(done) })
	return done, func() { t.Stop() }
}

// trip is what the network does to one request.
type trip struct {
	before  time.Duration // on the way there
	after   time.Duration // on the way back
	dropped bool          // never arrives
	lost    bool          // applied, and the reply never arrives
	err     error         // the store's answer, without applying
	again   time.Duration // delivered a second time, so long after the first
}

// simStore is one row that is read and written atomically, behind a network.
type simStore struct {
	mu       sync.Mutex
	row      *Row
	writes   int // applied
	refused  int // failed conditions
	bareCond bool
	onWrite  func(op string, row Row)
}

// door is one task's way to the store.
type door struct {
	*simStore
	road sync.Mutex
	net  func(op string) trip // under road; nil: instant and faithful
}

// weather changes what the network does from now on.
func (d *door) weather(net func(op string) trip) {
	d.road.Lock()
	defer d.road.Unlock()
	d.net = net
}

var errLost = errors.New("lost")

func (d *door) do(ctx context.Context, op string, apply func() (*Row, error)) (*Row, error) {
	var t trip
	d.road.Lock()
	if d.net != nil {
		t = d.net(op)
	}
	d.road.Unlock()
	type result struct {
		row *Row
		err error
	}
	came := make(chan result, 1)
	go func() { // goes on after the caller has given up, as a request does
		time.Sleep(t.before)
		if t.dropped {
			return
		}
		if t.err != nil {
			came <- result{nil, t.err}
			return
		}
		row, err := d.once(apply)
		if t.again > 0 {
			time.AfterFunc(t.again, func() { d.once(apply) })
		}
		time.Sleep(t.after)
		if !t.lost {
			came <- result{row, err}
		}
	}()
	select {
	case r := <-came:
		return r.row, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *simStore) once(apply func() (*Row, error)) (*Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return apply()
}

func (s *simStore) snapshot() *Row {
	if s.row == nil {
		return nil
	}
	r := *s.row
	return &r
}

// peek is the row as it is now.
func (s *simStore) peek() Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.row
}

func (s *simStore) refuse() (*Row, error) {
	s.refused++
	if s.bareCond {
		return nil, &ConditionError{}
	}
	return nil, &ConditionError{Known: true, Row: s.snapshot()}
}

func (s *simStore) wrote(op string) (*Row, error) {
	s.writes++
	if s.onWrite != nil {
		s.onWrite(op, *s.row)
	}
	return s.snapshot(), nil
}

func (d *door) Read(ctx context.Context, consistent bool) (*Row, error) {
	return d.do(ctx, "read", func() (*Row, error) { return d.snapshot(), nil })
}

func (d *door) Acquire(ctx context.Context, a Acquisition) (*Row, error) {
	return d.do(ctx, "acquire", func() (*Row, error) {
		if a.Seen == nil && d.row != nil || a.Seen != nil && (d.row == nil || d.row.Beat != a.Seen.Beat || d.row.Fence != a.Seen.Fence) {
			return d.refuse()
		}
		record := Record{}
		if d.row != nil {
			record = d.row.Record
		}
		d.row = &Row{Owner: a.Owner, Fence: a.Fence, Beat: a.Beat, Lease: a.Lease, Revision: a.Revision, Announced: a.Revision, Record: record}
		return d.wrote("acquire")
	})
}

func (d *door) held(owner string, fence int64, beat string) bool {
	return d.row != nil && d.row.Owner == owner && d.row.Fence == fence && d.row.Beat < beat
}

func (d *door) Renew(ctx context.Context, r Renewal) (*Row, error) {
	return d.do(ctx, "renew", func() (*Row, error) {
		if !d.held(r.Owner, r.Fence, r.Beat) || r.Claim != nil && r.Claim.Tick != "" && d.row.Record.Through >= r.Claim.Tick {
			return d.refuse()
		}
		op := "renew"
		d.row.Beat, d.row.Draining = r.Beat, r.Draining
		if r.Record != (Record{}) {
			d.row.Record = r.Record
		}
		if r.Claim != nil {
			op = "claim"
			d.row.Fence++
		}
		return d.wrote(op)
	})
}

func (d *door) Release(ctx context.Context, r Release) (*Row, error) {
	return d.do(ctx, "release", func() (*Row, error) {
		if !d.held(r.Owner, r.Fence, r.Beat) {
			return d.refuse()
		}
		d.row.Owner, d.row.Beat, d.row.Draining = "", r.Beat, false
		return d.wrote("release")
	})
}

func (d *door) Announce(ctx context.Context, holder, revision string) (*Row, error) {
	return d.do(ctx, "announce", func() (*Row, error) {
		if d.row == nil || d.row.Owner != holder {
			return d.refuse()
		}
		d.row.Announced = revision
		return d.wrote("announce")
	})
}

// task is an elector under test.
type task struct {
	*Elector
	clock *fakeClock
	door  *door
	ran   chan error
	stop  context.CancelFunc
}

type setting func(*Config)

func startTask(t *testing.T, s *simStore, name string, settings ...setting) *task {
	t.Helper()
	clock := newClock(1, time.Hour)
	d := &door{simStore: s}
	rng := rand.New(rand.NewPCG(uint64(len(name)), 7))
	var mu sync.Mutex
	cfg := Config{
		Store: d, Clock: clock, Name: name, Nonce: "n" + name,
		Lease: 30 * time.Second, Heartbeat: 5 * time.Second, Poll: 2 * time.Second,
		Wall: time.Now, Log: slog.New(slog.DiscardHandler),
		Random: func() float64 { mu.Lock(); defer mu.Unlock(); return rng.Float64() },
	}
	for _, set := range settings {
		set(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &task{Elector: NewElector(cfg), clock: cfg.Clock.(*fakeClock), door: d, ran: make(chan error, 1), stop: cancel}
	go func() { k.ran <- k.Run(ctx) }()
	t.Cleanup(cancel)
	return k
}

// term waits for the task's next term.
func (k *task) term(t *testing.T) *Term {
	t.Helper()
	select {
	case m := <-k.Terms():
		return m
	case <-time.After(10 * time.Minute):
		t.Fatal("no term within ten minutes")
		return nil
	}
}

// life is one job's time, in the simulation's own time.
type life struct {
	who        string
	fence      int64
	start, end time.Time
}

func (l life) String() string {
	return fmt.Sprintf("%s fence %d [%s, %s]", l.who, l.fence, l.start.Format("04:05.000"), l.end.Format("04:05.000"))
}
