package operator_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"solojob/dynamo"
	"solojob/leader"
	"solojob/operator"
)

var nightly = operator.Key{Name: "nightly", Item: operator.ServiceItem}

// typist is a person whose commands really race with others.
func typist(s *store, name string) terminal {
	return terminal{table: s, caller: name, random: rand.Reader}
}

// meanwhile is a table where something happens between what the operator reads
// and what the operator writes.
func meanwhile(s *store, happens func()) *observed {
	var once sync.Once
	o := &observed{Table: s, clock: &fakeClock{}}
	o.before = func() { once.Do(happens) }
	return o
}

// Of two operators at once the second is refused, and told what the first did;
// it never undoes it.
func TestTwoOperatorsDoNotUndoEachOther(t *testing.T) {
	onEachServer(t, func(t *testing.T, url string) { twoOperators(t, newStore(t, url)) })
}

func twoOperators(t *testing.T, s *store) {
	paused := held.with(item{"paused": true, "paused_by": alice})
	for _, c := range []struct {
		name   string
		row    item
		first  func()
		second []string
		says   string
		keeps  func(l operator.Lease) bool
	}{
		{
			name: "pause and pause", row: held, second: []string{"pause", "nightly"},
			first: func() { typist(s, "carol").run("pause", "nightly", "--no-wait") },
			says:  "paused already, by carol",
			keeps: func(l operator.Lease) bool {
				return l.Requests.Paused && strings.HasPrefix(l.Requests.PausedBy, "carol ")
			},
		},
		{
			name: "a new pause and a resume of the old one", row: paused, second: []string{"resume", "nightly"},
			first: func() {
				typist(s, "carol").run("resume", "nightly", "--no-wait")
				typist(s, "carol").run("pause", "nightly", "--no-wait")
			},
			says: "paused again in this very moment, by carol",
			keeps: func(l operator.Lease) bool {
				return l.Requests.Paused && strings.HasPrefix(l.Requests.PausedBy, "carol ")
			},
		},
		{
			name: "resume and resume", row: paused, second: []string{"resume", "nightly"},
			first: func() { typist(s, "carol").run("resume", "nightly", "--no-wait") },
			says:  "not paused", keeps: func(l operator.Lease) bool { return !l.Requests.Paused },
		},
		{
			name: "handover at once and after the run", row: running, second: []string{"handover", "nightly"},
			first: func() { typist(s, "carol").run("handover", "nightly", "--now", "--no-wait") },
			says:  "asked to be handed over already, by carol",
			keeps: func(l operator.Lease) bool { return l.Requests.HandoverNow },
		},
		{
			name: "a takeover and a handover", row: running, second: []string{"handover", "nightly", "--now"},
			first: func() { s.put(running.with(item{"owner": "other/1", "beat": "1-1", "fence": 42})) },
			says:  "another holder in this very moment, other",
			keeps: func(l operator.Lease) bool { return l.Requests.Handover == "" },
		},
		{
			name: "run and run", row: held, second: []string{"run-now", "nightly"},
			first: func() { typist(s, "carol").run("run-now", "nightly", "--no-wait") },
			says:  "asked for an extra run already, by carol",
			keeps: func(l operator.Lease) bool { return strings.HasPrefix(l.Requests.RunBy, "carol ") },
		},
		{
			name: "pause and run", row: held, second: []string{"run-now", "nightly"},
			first: func() { typist(s, "carol").run("pause", "nightly", "--no-wait") },
			says:  "is paused, by carol",
			keeps: func(l operator.Lease) bool { return l.Requests.Paused && l.Requests.RunNow == "" },
		},
		{
			name: "bump and lower bump", row: held, second: []string{"fence", "bump", "nightly", "--to", "500"},
			first: func() { typist(s, "carol").run("fence", "bump", "nightly", "--to", "1000", "--no-wait") },
			says:  "has fence 1000", keeps: func(l operator.Lease) bool { return l.Fence == 1000 },
		},
		{
			name: "a claim and a bump", row: held, second: []string{"fence", "bump", "nightly", "--to", "500"},
			first: func() { s.put(held.with(item{"fence": 42})) },
			says:  "changed in this very moment", keeps: func(l operator.Lease) bool { return l.Fence == 42 },
		},
		{
			name: "break and break", row: running, second: []string{"break", "nightly", "--yes"},
			first: func() { typist(s, "carol").run("break", "nightly", "--yes", "--even-if-alive") },
			says:  "is free", keeps: func(l operator.Lease) bool { return l.Free() && l.Fence == 42 },
		},
		{
			name: "a takeover and a break", row: running, second: []string{"break", "nightly", "--yes"},
			first: func() { s.put(running.with(item{"owner": "other/1", "beat": "1-1", "fence": 42})) },
			says:  "nothing was done", keeps: func(l operator.Lease) bool { return l.Owner == "other/1" && l.Fence == 42 },
		},
		{
			name: "a heartbeat and a break", row: running, second: []string{"break", "nightly", "--yes"},
			first: func() { s.put(running.with(item{"beat": "9a1b2c3d4e5f6071-0000000000000778"})) },
			says:  "is alive", keeps: func(l operator.Lease) bool { return l.Owner == anOwner && l.Fence == 41 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.put(c.row)
			o := meanwhile(s, c.first)
			r := terminal{table: o, clock: o.clock, caller: "bob"}.run(c.second...)
			if r.status != operator.ExitRefused || !strings.Contains(r.screen, c.says) {
				t.Errorf("exit status %d, want %d, and %q in\n%s", r.status, operator.ExitRefused, c.says, r.screen)
			}
			if l := s.get(nightly); !c.keeps(l) {
				t.Errorf("the row is %+v", l)
			}
		})
	}
}

// However many ask for a run at once, one request is written and the others are
// refused.
func TestOneOfManyRequestsIsWritten(t *testing.T) {
	onEachServer(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		s.put(held)
		outcomes := make([]outcome, 8)
		var wg sync.WaitGroup
		for i := range outcomes {
			wg.Go(func() { outcomes[i] = typist(s, fmt.Sprint("operator ", i)).run("run-now", "nightly", "--no-wait") })
		}
		wg.Wait()
		written := 0
		for i, r := range outcomes {
			switch {
			case r.status == 0:
				written++
				if by := s.get(nightly).Requests.RunBy; !strings.HasPrefix(by, fmt.Sprintf("operator %d ", i)) {
					t.Errorf("operator %d was told that it is done, but the row names %q", i, by)
				}
			case r.status != operator.ExitRefused:
				t.Errorf("exit status %d: %s", r.status, r.screen)
			}
		}
		if written != 1 {
			t.Errorf("%d requests were written", written)
		}
	})
}

// A holder's renewals go on whatever is asked, and the reply to the next one
// carries the request; a fence that was raised is adopted.
func TestRequestsReachTheHolderWithItsNextRenewal(t *testing.T) {
	onEachServer(t, func(t *testing.T, url string) { reachTheHolder(t, newStore(t, url)) })
}

func reachTheHolder(t *testing.T, s *store) {
	for _, c := range []struct {
		args  []string
		row   item
		asked func(r *leader.Row) bool
	}{
		{[]string{"pause"}, held, func(r *leader.Row) bool { return r.Requests.Paused && strings.HasPrefix(r.Requests.PausedBy, "bob ") }},
		{[]string{"resume"}, held.with(item{"paused": true, "paused_by": alice}), func(r *leader.Row) bool { return !r.Requests.Paused }},
		{[]string{"handover"}, held, func(r *leader.Row) bool { return r.Requests.Handover == anOwner && !r.Requests.HandoverNow }},
		{[]string{"handover", "--now"}, held, func(r *leader.Row) bool { return r.Requests.Handover == anOwner && r.Requests.HandoverNow }},
		{[]string{"run-now"}, held, func(r *leader.Row) bool { return len(r.Requests.RunNow) == 8 }},
		{[]string{"fence", "bump", "--to", "99"}, held, func(r *leader.Row) bool { return r.Fence == 99 }},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			s.put(c.row)
			if r := typist(s, "bob").run(append(c.args, "nightly", "--no-wait")...); r.status != 0 {
				t.Fatalf("exit status %d: %s", r.status, r.screen)
			}
			holder := agentStore(t, s)
			renewal := leader.Renewal{Owner: anOwner, Fence: 41, Beat: "9a1b2c3d4e5f6071-0000000000000778", Wall: begin}
			row, err := holder.Renew(t.Context(), renewal)
			var refused *leader.ConditionError
			if errors.As(err, &refused) { // by the fence alone: the elector adopts what it reads
				if row, err = holder.Read(t.Context(), true); err == nil {
					renewal.Fence = row.Fence
					row, err = holder.Renew(t.Context(), renewal)
				}
			}
			if err != nil || row.Owner != anOwner || !c.asked(row) {
				t.Errorf("the holder was told %+v, %v", row, err)
			}
		})
	}
}

func agentStore(t *testing.T, s *store) *dynamo.Store {
	t.Helper()
	client, err := dynamo.ConnectLocal(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client.Lease(s.table, "nightly", operator.ServiceItem)
}

// After a break the old holder, if it is alive after all, can neither renew nor
// claim nor release; the next one has a higher fence than it ever had; and its
// acquisition needs no waiting.
func TestBreakEndsTheOldHolder(t *testing.T) {
	onEachServer(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		s.put(running.with(item{"handover": anOwner, "handover_by": alice}))
		o := &observed{Table: s, clock: &fakeClock{}}
		if r := (terminal{table: o, clock: o.clock, caller: "bob", random: rand.Reader}).run("break", "nightly", "--yes"); r.status != 0 {
			t.Fatalf("exit status %d: %s", r.status, r.screen)
		}
		l := s.get(nightly)
		if !l.Free() || l.Fence != 42 || l.Draining || l.Requests.Handover != "" || !strings.HasPrefix(l.Beat, "op-") || !strings.HasPrefix(l.ChangedBy, "broken by bob ") {
			t.Errorf("the row is %+v", l)
		}
		holder := agentStore(t, s)
		for _, fence := range []int64{41, 42} { // it may adopt the fence that it reads
			renewal := leader.Renewal{Owner: anOwner, Fence: fence, Beat: "9a1b2c3d4e5f6071-0000000000000778", Wall: begin}
			_, renewed := holder.Renew(t.Context(), renewal)
			renewal.Claim = &leader.Claim{}
			_, claimed := holder.Renew(t.Context(), renewal)
			_, released := holder.Release(t.Context(), leader.Release{Owner: anOwner, Fence: fence, Beat: renewal.Beat})
			for _, err := range []error{renewed, claimed, released} {
				var refused *leader.ConditionError
				if !errors.As(err, &refused) {
					t.Errorf("the old holder was not refused: %v", err)
				}
			}
		}
		row, err := holder.Acquire(t.Context(), leader.Acquisition{
			Owner: "next/1", Fence: l.Fence + 1, Beat: "1-1", Lease: time.Second, Wall: begin, Seen: &l.Row,
		})
		if err != nil || row.Owner != "next/1" || row.Fence != 43 {
			t.Errorf("the next holder: %+v, %v", row, err)
		}
	})
}

// faulty is a table whose writes get no answer, whether they were applied or not.
type faulty struct {
	operator.Table
	applied bool
}

func (f faulty) Write(ctx context.Context, k operator.Key, c operator.Change) (*operator.Lease, error) {
	if f.applied {
		if _, err := f.Table.Write(ctx, k, c); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no reply in time")
}

// A reply that is lost does not make a command lie: what the row says decides.
func TestLostReplies(t *testing.T) {
	onEachServer(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		for _, args := range [][]string{
			{"pause", "nightly"}, {"handover", "nightly", "--now"}, {"run-now", "nightly"},
			{"fence", "bump", "nightly", "--to", "50"}, {"break", "nightly", "--yes"},
		} {
			for _, applied := range []bool{true, false} {
				s.put(held)
				o := &observed{Table: faulty{s, applied}, clock: &fakeClock{}}
				r := terminal{table: o, clock: o.clock, caller: "bob", random: rand.Reader}.run(args...)
				if applied != (r.status == 0) || !applied && (r.status != operator.ExitUnavailable || !strings.Contains(r.screen, "not written")) {
					t.Errorf("%v, applied %v: exit status %d\n%s", args, applied, r.status, r.screen)
				}
			}
		}
	})
}
