//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"solojob/boottime"
	"solojob/devstore"
)

// tableName is the default of SOLOJOB_TABLE.
const tableName = "solojob"

// store is the table that all agents of a run share, with what it has seen of
// them.
type store struct {
	*devstore.Store
	fronts []*http.Server
	served sync.WaitGroup

	mu     sync.Mutex
	writes map[string][]write // by lease
	counts map[*devstore.Door]counts
	wake   chan struct{} // closed and replaced at each request
}

// write is a write to a lease item that was applied.
type write struct {
	at    boottime.Instant
	owner string
	fence string
}

// counts are the requests that came through one door.
type counts struct{ reads, writes, refused int }

func newStore(ctx context.Context) (*store, error) {
	s := &store{writes: map[string][]write{}, counts: map[*devstore.Door]counts{}, wake: make(chan struct{})}
	var err error
	s.Store, err = devstore.Start(ctx, devstore.Options{Table: tableName, Observe: s.observe})
	return s, err
}

func (s *store) observe(x devstore.Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts[x.Door]
	switch {
	case x.Status != http.StatusOK:
		c.refused++
	case x.Operation == "GetItem":
		c.reads++
	default:
		c.writes++
	}
	s.counts[x.Door] = c
	if text(x.Row, "sk") == "lease" {
		lease := text(x.Row, "pk")
		s.writes[lease] = append(s.writes[lease], write{x.At, text(x.Row, "owner"), text(x.Row, "fence")})
	}
	close(s.wake)
	s.wake = make(chan struct{})
}

// text is an attribute that is a string or a number, "" where there is none.
func text(row devstore.Item, attribute string) string {
	for _, v := range row[attribute] {
		return fmt.Sprint(v)
	}
	return ""
}

// endpoint opens a door of one agent's own. With a latency, each request waits
// so long before it is applied.
func (s *store) endpoint(latency time.Duration) (*devstore.Door, string, error) {
	door, err := s.Listen()
	if err != nil || latency == 0 {
		return door, door.URL(), err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	front := &http.Server{
		ReadHeaderTimeout: patience,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(latency)
			door.ServeHTTP(w, r)
		}),
	}
	s.mu.Lock()
	s.fronts = append(s.fronts, front)
	s.mu.Unlock()
	s.served.Go(func() { front.Serve(l) }) // ends with Close
	return door, "http://" + l.Addr().String(), nil
}

func (s *store) close() {
	s.mu.Lock()
	fronts := s.fronts
	s.mu.Unlock()
	for _, f := range fronts {
		f.Close()
	}
	s.served.Wait()
	s.Close()
}

// requests are those that came through a door so far.
func (s *store) requests(d *devstore.Door) counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[d]
}

// untilRead waits until an agent has read the row n times.
func (s *store) untilRead(ctx context.Context, d *devstore.Door, n int) error {
	late := time.After(patience)
	for {
		s.mu.Lock()
		wake, reads := s.wake, s.counts[d].reads
		s.mu.Unlock()
		if reads >= n {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return errors.New("an agent does not read the row")
		}
	}
}

// fenced is when the write that handed out a fence was applied: an acquisition
// or a claim.
func (s *store) fenced(lease string, fence int64) (boottime.Instant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes[lease] {
		if w.fence == fmt.Sprint(fence) {
			return w.at, nil
		}
	}
	return 0, fmt.Errorf("nobody wrote FENCE %d into the lease %s", fence, lease)
}

// before is the last write to a lease before the one that handed out a fence: a
// release, or the last heartbeat of a holder that fell silent.
func (s *store) before(lease string, fence int64) (write, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range s.writes[lease] {
		if w.fence == fmt.Sprint(fence) && i > 0 {
			return s.writes[lease][i-1], nil
		}
	}
	return write{}, fmt.Errorf("nobody held the lease %s before FENCE %d", lease, fence)
}
