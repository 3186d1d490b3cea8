//go:build linux

package torture

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"

	"solojob/boottime"
	"solojob/devstore"
)

const tableName = "solojob"

// Store is one table behind a lock: requests are applied one after another,
// and each must be one that the protocol allows on the row as it is.
type Store struct {
	world  *World
	engine *devstore.Store
	table  http.Handler
	closed chan struct{} // what is held goes away when the store closes

	mu      sync.Mutex
	last    devstore.Exchange // what the engine has just applied
	row     Row
	beatAt  boottime.Instant // when the row's beat was written
	holder  string           // the slot that acquired last
	fences  map[int64]grant  // each fence that was handed out
	history History
}

// grant is what a fence was handed out for.
type grant struct{ owner, tick string }

func newStore(w *World) (*Store, error) {
	s := &Store{world: w, closed: make(chan struct{}), fences: map[int64]grant{}}
	s.history.world = w
	var err error
	s.engine, err = devstore.Start(context.Background(), devstore.Options{
		Table:   tableName,
		Observe: func(x devstore.Exchange) { s.last = x }, // within apply, so under the lock
	})
	if err != nil {
		return nil, err
	}
	s.table, err = s.engine.Listen()
	return s, err
}

// close frees what is held, and ends the engine.
func (s *Store) close() {
	close(s.closed)
	s.engine.Close()
}

func (s *Store) current() (Row, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.row, s.holder
}

func (s *Store) granted(fence int64) (grant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.fences[fence]
	return g, ok
}

// Call is one request that reached a door.
type Call struct {
	door    *Door
	request Request
	body    []byte
	called  boottime.Instant

	// Set once it has been applied.
	applied  bool
	status   int
	reply    []byte
	before   Row
	recorded *operation // nil where the history does not care
}

// apply carries a request out, and judges it.
func (s *Store) apply(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(c.body))
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+c.request.op)
	answer := httptest.NewRecorder()
	s.table.ServeHTTP(answer, r)
	c.applied, c.status, c.reply = true, answer.Code, answer.Body.Bytes()
	if c.request.pk != s.world.name || c.request.sk != "lease" {
		return
	}
	c.before = s.row
	if c.request.op == "UpdateItem" {
		s.judge(c, boottime.Now())
	}
	s.history.add(c)
}

// judge is called with the lock held, at the instant at which the row changes.
func (s *Store) judge(c *Call, now boottime.Instant) {
	q, w := c.request, s.world
	kind, why := q.kind(), s.row.forbids(q)
	accepted := c.status == http.StatusOK
	switch {
	case accepted && why != "":
		w.violate("protocol", "a %s by %s was accepted, but %s; the row was %v", kind, c.door.name, why, s.row)
	case !accepted && why == "":
		w.violate("protocol", "a %s by %s was refused, but nothing forbids it; the row is %v", kind, c.door.name, s.row)
	}
	if !accepted {
		w.count("refused: " + string(kind))
		w.note(now, "store", "%s by %s refused: %s", kind, c.door.name, why)
		return
	}
	before, after := s.row, rowOf(s.last.Row)
	s.row = after
	if kind == Acquire || kind == Claim {
		g := grant{owner: after.Owner}
		if kind == Claim {
			g.tick = q.sets["tick"]
		}
		s.fences[after.Fence] = g
	}
	w.count("write: " + string(kind))
	w.note(now, "store", "%s by %s: %s", kind, c.door.name, difference(before, after))
	if after.Fence < before.Fence {
		w.violate("fence fell", "from %d to %d, by %s", before.Fence, after.Fence, c.door.name)
	}
	if n := size(s.last.Row); n >= 1024 {
		w.violate("size", "the lease item has %d bytes, and a heartbeat costs more than one write unit", n)
	}
	s.judgeMove(c, before, after, now)
	if before.Beat != after.Beat {
		s.beatAt = now
	}
	w.ticks.written(kind, before, after)
}

// judgeMove is about a lease that changes hands.
func (s *Store) judgeMove(c *Call, before, after Row, now boottime.Instant) {
	w := s.world
	if after.Owner != before.Owner && after.Owner != "" {
		s.holder = c.door.name
		w.count("terms")
		if before.Owner != "" {
			w.count("takeovers")
			if silent := now.Sub(s.beatAt); silent < lease {
				w.violate("early takeover", "by %s, %v after the last heartbeat", c.door.name, silent)
			}
		} else if before.There {
			w.count("handovers")
		}
	}
	if before.Owner != "" && after.Owner != before.Owner {
		for _, l := range w.recorder.living() {
			if l.owner == before.Owner && !l.task.excused() {
				w.violate("lease left a living job", "%s %s's lease while %v was alive", c.request.kind(), before.Owner, l)
			}
		}
	}
}

// difference is what a write changed, for the timeline.
func difference(before, after Row) string {
	if before.Owner == after.Owner && before.Fence == after.Fence && before.Tick == after.Tick && before.State == after.State {
		return fmt.Sprintf("beat %s through %s", after.Beat, after.Through)
	}
	return after.String()
}

// forever is the return of an operation of which its client never heard.
const forever = math.MaxInt64
