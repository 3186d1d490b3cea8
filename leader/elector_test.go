package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// However many tasks start at once, one holds the lease and none ends.
func TestOneOfTwentyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		var tasks []*task
		for i := range 20 {
			tasks = append(tasks, startTask(t, s, fmt.Sprint("task", i)))
		}
		time.Sleep(10 * time.Minute)
		holders := 0
		for _, k := range tasks {
			select {
			case m := <-k.Terms():
				holders++
				if m.Fence != 1 || m.How != New {
					t.Errorf("fence %d, how %q", m.Fence, m.How)
				}
			case err := <-k.ran:
				t.Errorf("%s ended: %v", k.Owner(), err)
			default:
			}
			k.stop()
		}
		if holders != 1 {
			t.Errorf("%d holders", holders)
		}
	})
}

// The deadline counts from the sending of the last applied write; at it the
// term is lost, and only after it somebody else acquires.
func TestHolderGivesUpBeforeTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		a := startTask(t, s, "a")
		ta := a.term(t)
		b := startTask(t, s, "b")
		time.Sleep(time.Minute)
		a.door.weather(func(string) trip { return trip{dropped: true} })
		cut := time.Now()
		<-ta.Lost()
		gaveUp := time.Now()
		if r := ta.Loss().Reason; r != LossExpired {
			t.Errorf("reason %q", r)
		}
		tb := b.term(t)
		if tb.How != Expired || tb.Fence != 2 {
			t.Errorf("how %q, fence %d", tb.How, tb.Fence)
		}
		if gap := time.Since(gaveUp); gap <= 0 || time.Since(cut) > 35*time.Second {
			t.Errorf("taken %v after the loss, %v after the cut", gap, time.Since(cut))
		}
		a.door.weather(nil)
		ta.Release()
		if s.row.Owner != b.Owner() || s.row.Fence != 2 {
			t.Errorf("the old holder touched the row: %+v", s.row)
		}
		a.stop()
		b.stop()
	})
}

// A release after the job's death lets the next task begin at its next read,
// which a draining holder makes come soon.
func TestHandoverOfDrainingHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		a := startTask(t, s, "a")
		ta := a.term(t)
		b := startTask(t, s, "b")
		time.Sleep(time.Minute)
		ta.Drain()
		time.Sleep(3 * time.Second)
		if !s.row.Draining {
			t.Fatal("the row does not say that the holder drains")
		}
		a.Stop()
		if !ta.Release() {
			t.Error("release not confirmed")
		}
		freed := time.Now()
		tb := b.term(t)
		if d := time.Since(freed); d > drainPoll {
			t.Errorf("handover took %v", d)
		}
		if tb.How != Released || s.row.Draining {
			t.Errorf("how %q, draining %v", tb.How, s.row.Draining)
		}
		if err := <-a.ran; err != nil {
			t.Error(err)
		}
		b.stop()
	})
}

// Lost replies to an acquisition, a claim or a release cost neither a second
// fence nor a lease left held, whether the store tells the row that refused a
// write or not.
func TestLostRepliesAreRecognised(t *testing.T) {
	for _, bare := range []bool{false, true} {
		for _, op := range []string{"acquire", "claim", "release"} {
			t.Run(fmt.Sprintf("%s, row returned %v", op, !bare), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &simStore{bareCond: bare}
					lose := 0
					kind := map[string]string{"claim": "renew"}[op]
					if kind == "" {
						kind = op
					}
					a := startTask(t, s, "a", func(c *Config) {
						c.Store.(*door).net = func(o string) trip {
							if o == kind && lose > 0 {
								lose--
								return trip{lost: true}
							}
							return trip{}
						}
						if op == "acquire" {
							lose = 2
						}
					})
					ta := a.term(t)
					if ta.Fence != 1 || s.row.Fence != 1 {
						t.Errorf("acquired with fence %d, row %d", ta.Fence, s.row.Fence)
					}
					if op == "claim" {
						lose = 2
					}
					fence, err := ta.Claim(Claim{})
					if err != nil || fence != 2 || s.row.Fence != 2 {
						t.Errorf("claimed fence %d, row %d, %v", fence, s.row.Fence, err)
					}
					if op == "release" {
						lose = 2
					}
					a.Stop()
					if !ta.Release() || !s.row.Free() {
						t.Errorf("left held: %+v", s.row)
					}
					if err := <-a.ran; err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// The lease counts from the instant before the applied write was sent, and
// when the reply to it was lost, from the sending of the attempt that was.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		a := startTask(t, s, "a")
		ta := a.term(t)
		<-ta.Beats()
		sent := a.clock.Now()
		a.door.weather(func(string) trip { return trip{before: 500 * time.Millisecond, after: 500 * time.Millisecond} })
		if err := ta.Record(Record{}); err != nil {
			t.Fatal(err)
		}
		if b := <-ta.Beats(); b.ValidUntil != sent.Add(30*time.Second) {
			t.Errorf("a renewal that took a second is valid for %v from its sending", b.ValidUntil.Sub(sent))
		}
		n := 0
		sent = a.clock.Now()
		a.door.weather(func(string) trip { n++; return trip{lost: n == 1} })
		if _, err := ta.Claim(Claim{}); err != nil {
			t.Fatal(err)
		}
		if b := <-ta.Beats(); b.ValidUntil != sent.Add(30*time.Second) {
			t.Errorf("a claim whose first attempt was applied is valid for %v from its sending", b.ValidUntil.Sub(sent))
		}
		a.stop()
	})
}

// No two attempts share a beat, and beats sort by age: a standby that timed one
// attempt's beat never sees it come back with another.
func TestEveryAttemptHasItsOwnBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		var beats []string
		a := startTask(t, s, "a", func(c *Config) {
			c.Store = &tap{door: c.Store.(*door), beat: func(b string) { beats = append(beats, b) }}
			n := 0
			c.Store.(*tap).net = func(op string) trip { n++; return trip{lost: n%3 == 0, dropped: n%3 == 1} }
		})
		ta := a.term(t)
		time.Sleep(5 * time.Minute)
		ta.Release()
		a.stop()
		if len(beats) < 60 || !sort.StringsAreSorted(beats) {
			t.Errorf("%d beats, in order: %v", len(beats), sort.StringsAreSorted(beats))
		}
		for i := 1; i < len(beats); i++ {
			if beats[i] == beats[i-1] {
				t.Fatalf("beat %q was sent twice", beats[i])
			}
		}
	})
}

// tap is a door that tells the beat of every attempt.
type tap struct {
	*door
	beat func(string)
}

func (p *tap) Acquire(ctx context.Context, a Acquisition) (*Row, error) {
	p.beat(a.Beat)
	return p.door.Acquire(ctx, a)
}

func (p *tap) Renew(ctx context.Context, r Renewal) (*Row, error) {
	p.beat(r.Beat)
	return p.door.Renew(ctx, r)
}

func (p *tap) Release(ctx context.Context, r Release) (*Row, error) {
	p.beat(r.Beat)
	return p.door.Release(ctx, r)
}

// An acquisition whose reply comes later than the lease starts nothing: here
// the machine was suspended while the reply was on its way.
func TestLateAcquisitionStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		clock := newClock(1, time.Hour)
		a := startTask(t, s, "a", func(c *Config) {
			c.Clock = clock
			c.Store.(*door).net = func(op string) trip { return trip{after: time.Second} }
		})
		time.Sleep(1500 * time.Millisecond) // the read took one
		clock.slept.Add(int64(31 * time.Second))
		if m := a.term(t); m.Fence != 2 {
			t.Errorf("fence %d was launched a suspend after its lease began", m.Fence)
		}
		a.stop()
	})
}

// A row deleted by hand ends the term at the next heartbeat; the next term
// begins a lease later, and above every fence before.
func TestDeletedRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		a := startTask(t, s, "a")
		ta := a.term(t)
		b := startTask(t, s, "b")
		time.Sleep(time.Minute)
		s.once(func() (*Row, error) { s.row = nil; return nil, nil })
		deleted := time.Now()
		<-ta.Lost()
		if ta.Loss().Reason != LossDeleted || time.Since(deleted) > 5*time.Second {
			t.Errorf("%v after %v", ta.Loss(), time.Since(deleted))
		}
		died := time.Now()
		ta.Release()
		var next *Term
		select {
		case next = <-a.Terms():
		case next = <-b.Terms():
		}
		if next.Fence <= fenceJump || time.Since(died) < 25*time.Second {
			t.Errorf("fence %d after %v", next.Fence, time.Since(died))
		}
		a.stop()
		b.stop()
	})
}

// A row restored from a backup is taken over above what was remembered.
func TestRestoredRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		a := startTask(t, s, "a")
		ta := a.term(t)
		old := *s.row
		for range 5 {
			if _, err := ta.Claim(Claim{}); err != nil {
				t.Fatal(err)
			}
		}
		s.once(func() (*Row, error) { s.row = &old; return nil, nil })
		<-ta.Lost()
		if ta.Loss().Reason != LossRestored {
			t.Error(ta.Loss())
		}
		ta.Release()
		if m := a.term(t); m.Fence != 6+fenceJump {
			t.Errorf("fence %d", m.Fence)
		}
		a.stop()
	})
}

// A fence raised by an operator is adopted: the term goes on, above it.
func TestRaisedFenceIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		a := startTask(t, s, "a")
		ta := a.term(t)
		s.once(func() (*Row, error) { s.row.Fence = 500; return nil, nil })
		time.Sleep(time.Minute)
		if f, err := ta.Claim(Claim{}); f != 501 || err != nil {
			t.Errorf("claimed %d, %v", f, err)
		}
		a.stop()
	})
}

// A tick that is decided is refused, and the term goes on.
func TestDecidedTickIsRefused(t *testing.T) {
	for _, bare := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &simStore{bareCond: bare}
			a := startTask(t, s, "a")
			ta := a.term(t)
			if _, err := ta.Claim(Claim{Tick: "2026-01-02", Record: Record{Through: "2026-01-02"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := ta.Claim(Claim{Tick: "2026-01-02", Record: Record{Through: "2026-01-02"}}); !errors.Is(err, ErrDecided) {
				t.Errorf("claimed twice: %v", err)
			}
			if f, err := ta.Claim(Claim{Tick: "2026-01-03"}); err != nil || f != 3 {
				t.Errorf("fence %d, %v", f, err)
			}
			a.stop()
		})
	}
}

// Stop in the middle of an acquisition leaves no lease held, at any moment of
// it and whatever becomes of its replies.
func TestStopWhileCompetingLeavesNothingHeld(t *testing.T) {
	for ms := range 60 {
		for _, lost := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := &simStore{}
				n := 0
				a := startTask(t, s, "a", func(c *Config) {
					c.Store.(*door).net = func(op string) trip {
						n++
						return trip{before: 10 * time.Millisecond, after: 10 * time.Millisecond, lost: lost && op == "acquire" && n < 4}
					}
				})
				time.Sleep(time.Duration(ms) * time.Millisecond)
				a.Stop()
				if err := <-a.ran; err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if s.row != nil && !s.row.Free() {
					t.Errorf("stopped after %d ms: left held by %s", ms, s.row.Owner)
				}
			})
		}
	}
}

// A store that refuses for good ends an elector that it never served, and no
// other.
func TestRefusalIsFinalOnlyAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		denied := fmt.Errorf("%w: denied", ErrRefused)
		a := startTask(t, s, "a", func(c *Config) {
			c.Store.(*door).net = func(op string) trip {
				if op == "acquire" {
					return trip{err: denied}
				}
				return trip{}
			}
		})
		if err := <-a.ran; !errors.Is(err, ErrRefused) {
			t.Errorf("at the start: %v", err)
		}
		b := startTask(t, s, "b")
		tb := b.term(t)
		b.door.weather(func(string) trip { return trip{err: denied} })
		<-tb.Lost()
		tb.Release()
		time.Sleep(10 * time.Minute)
		select {
		case err := <-b.ran:
			t.Errorf("ended: %v", err)
		default:
		}
		b.stop()
	})
}

// A thousand standbys cost half a thousand reads a second, and a takeover a
// handful of failed writes.
func TestHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		a := startTask(t, s, "holder")
		ta := a.term(t)
		var mu sync.Mutex
		reads := 0
		var herd []*task
		for i := range 1000 {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			k := startTask(t, s, fmt.Sprint("s", i), func(c *Config) {
				c.Random = rng.Float64
				c.Store.(*door).net = func(op string) trip {
					mu.Lock()
					defer mu.Unlock()
					if op == "read" {
						reads++
					}
					return trip{before: 2 * time.Millisecond, after: 2 * time.Millisecond}
				}
			})
			herd = append(herd, k)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		reads = 0
		mu.Unlock()
		time.Sleep(10 * time.Second)
		mu.Lock()
		if reads > 5500 {
			t.Errorf("%d reads in 10 s", reads)
		}
		mu.Unlock()
		a.door.weather(func(string) trip { return trip{dropped: true} })
		<-ta.Lost()
		time.Sleep(10 * time.Second)
		s.mu.Lock()
		t.Logf("%d failed writes", s.refused)
		if s.refused > 20 {
			t.Errorf("%d failed writes at a takeover", s.refused)
		}
		if s.row.Fence != 2 {
			t.Errorf("not taken over: %+v", s.row)
		}
		s.mu.Unlock()
		a.stop()
		for _, k := range herd {
			k.stop()
		}
		time.Sleep(time.Second)
	})
}

// Whatever the network does to requests and replies, with clocks that drift by
// 1 % and tasks that are cut off, claim, release and stop at random: no two
// jobs are alive at once, and fences grow in the order of launches.
func TestRandomHistories(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		history(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func history(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 99))
		var mu sync.Mutex
		random := func() float64 { mu.Lock(); defer mu.Unlock(); return rng.Float64() }
		s := &simStore{bareCond: seed%3 == 0}
		var lives []life
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range 3 {
			bad := 0.05 + 0.3*random()
			cutFrom := time.Duration(random() * float64(8*time.Minute))
			cutFor := time.Duration(random() * float64(90*time.Second))
			start := time.Now()
			clock := newClock(0.99+0.02*random(), time.Duration(random()*float64(1000*time.Hour)))
			k := startTask(t, s, fmt.Sprint("t", i), func(c *Config) {
				c.Clock, c.Random = clock, random
				c.Lease = 30 * time.Second * time.Duration(1+int(3*random())) / 2
				c.Heartbeat = c.Lease / 6
				c.Store.(*door).net = func(string) trip {
					p := trip{before: time.Duration(random() * 2e7), after: time.Duration(random() * 2e7)}
					at := time.Since(start)
					if at > cutFrom && at < cutFrom+cutFor {
						p.dropped = random() < 0.5
						p.lost = true
						return p
					}
					if random() < bad {
						switch int(5 * random()) {
						case 0:
							p.dropped = true
						case 1:
							p.lost = true
						case 2:
							p.before = time.Duration(random() * 6e10)
						case 3:
							p.err = errLost
						case 4:
							p.again = time.Duration(random() * 6e10)
						}
					}
					return p
				}
			})
			wg.Go(func() {
				for {
					var m *Term
					select {
					case m = <-k.Terms():
					case <-ctx.Done():
						k.stop()
						return
					}
					ls := liveUnder(k, m, random)
					mu.Lock()
					lives = append(lives, ls...)
					mu.Unlock()
					m.Release()
				}
			})
		}
		time.Sleep(10 * time.Minute)
		cancel()
		wg.Wait()
		sort.Slice(lives, func(i, j int) bool { return lives[i].start.Before(lives[j].start) })
		if len(lives) == 0 {
			t.Error("nobody ever held the lease")
		}
		for i := 1; i < len(lives); i++ {
			if lives[i].start.Before(lives[i-1].end) || lives[i].fence <= lives[i-1].fence {
				t.Errorf("%v then %v", lives[i-1], lives[i])
			}
		}
		time.Sleep(3 * time.Minute) // late duplicates end
	})
}

// liveUnder runs jobs under a term, each to the very last instant allowed.
func liveUnder(k *task, m *Term, random func() float64) (lives []life) {
	until := (<-m.Beats()).ValidUntil
	fence := m.Fence
	for {
		if k.clock.Now() >= until {
			return lives
		}
		l := life{who: k.Owner(), fence: fence, start: time.Now()}
		end := time.NewTimer(time.Duration(random() * 6e10))
		killed := false
		for alive := true; alive; {
			deadline, stop := k.clock.Until(until)
			select {
			case b := <-m.Beats():
				until = b.ValidUntil
			case <-deadline:
				alive, killed = false, true
			case <-m.Lost():
				alive, killed = false, true
			case <-end.C:
				alive = false
			}
			stop()
		}
		l.end = time.Now()
		lives = append(lives, l)
		if killed || random() < 0.3 {
			return lives
		}
		f, err := m.Claim(Claim{})
		if err != nil {
			return lives
		}
		fence = f
		select {
		case b := <-m.Beats():
			until = b.ValidUntil
		default:
		}
	}
}

// A store that takes longer than a first attempt may, for whatever reason, can
// be acquired from and released to: later attempts are more patient.
func TestSlowStoreIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		slow := func(string) trip { return trip{before: 1500 * time.Millisecond, after: 1500 * time.Millisecond} }
		a := startTask(t, s, "a", func(c *Config) {
			c.Store.(*door).net = func(op string) trip {
				if op == "acquire" {
					return slow(op)
				}
				return trip{}
			}
		})
		ta := a.term(t)
		a.door.weather(slow)
		a.Stop()
		if !ta.Release() {
			t.Error("release not confirmed")
		}
		if err := <-a.ran; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
	})
}
