package sim

import (
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"solojob/leader"
)

// registers is of how many seeds the history is checked.
const registers = 20

// What the tasks see of the row, each by the replies that reach it, is one
// register, whatever the network loses, delays or delivers twice: every write was
// applied once, between its sending and its reply, exactly when its condition held.
// The observer of the other tests sees the store from inside; this one does not.
func TestTheRowIsARegister(t *testing.T) {
	operations, open := 0, 0
	for n := range registers {
		p := newPlan(uint64(n + 1))
		// By hand, which is past the register.
		p.faults = slices.DeleteFunc(p.faults, func(f fault) bool {
			return slices.Contains([]kind{deleteRow, restoreRow, breakLease, bumpFence}, f.kind)
		})
		var history []porcupine.Operation
		synctest.Test(t, func(*testing.T) {
			w := newWorld(p)
			w.register = &register{start: time.Now()}
			w.run()
			history = w.register.history()
		})
		operations += len(history)
		for _, o := range history {
			if o.Return == math.MaxInt64 {
				open++
			}
		}
		if result := porcupine.CheckOperationsTimeout(rowModel, history, 30*time.Second); result != porcupine.Ok {
			t.Fatalf("seed %d: the row is no register (%s), by %d operations", p.seed, result, len(history))
		}
	}
	t.Logf("%d operations, of which %d were applied and never answered", operations, open)
	if operations < 100*registers || open == 0 {
		t.Error("that is no test")
	}
}

// register keeps the operations on the row as their senders saw them.
type register struct {
	start time.Time
	mu    sync.Mutex
	deeds []*deed
}

// deed is one operation. All its fields are guarded by the register's lock.
type deed struct {
	register  *register
	task      int
	q         request
	call, ret int64
	known     bool    // an answer came that says what happened
	done      bool    // it was applied
	refused   bool    // the condition did not hold
	shown     *rowKey // the row in the answer, if there was one
	wrote     rowKey  // what the row was after it
}

// rowKey is the part of the row that conditions are about.
type rowKey struct {
	exists      bool
	owner, beat string
	fence       int64
}

func keyOf(r *leader.Row) rowKey {
	if r == nil {
		return rowKey{}
	}
	return rowKey{true, r.Owner, r.Beat, r.Fence}
}

// begin is called when a request leaves; nil for those that are not of the
// register: reads that may be old, and announcements, which change nothing here.
func (g *register) begin(q request) *deed {
	if g == nil || q.op == "read" || q.op == "announce" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	d := &deed{register: g, task: len(g.deeds), q: q, call: int64(time.Since(g.start))}
	g.deeds = append(g.deeds, d)
	return d
}

// applied is called by the store.
func (d *deed) applied(row *leader.Row) {
	if d == nil {
		return
	}
	d.register.mu.Lock()
	defer d.register.mu.Unlock()
	if !d.done { // a second time would be a write that nobody sent
		d.done, d.wrote = true, keyOf(row)
	}
}

// end is called when the sender goes on, with what it knows then.
func (d *deed) end(a answer) {
	if d == nil {
		return
	}
	d.register.mu.Lock()
	defer d.register.mu.Unlock()
	d.ret = int64(time.Since(d.register.start))
	var failed *leader.ConditionError
	switch {
	case a.err == nil:
		d.known = true
		key := keyOf(a.row)
		d.shown = &key
	case errors.As(a.err, &failed):
		d.known, d.refused = true, true
		if failed.Known {
			key := keyOf(failed.Row)
			d.shown = &key
		}
	}
}

// history is what a register has to explain. What was neither applied nor
// answered is nothing; what was applied and not answered has no end.
func (g *register) history() []porcupine.Operation {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []porcupine.Operation
	for _, d := range g.deeds {
		switch {
		case !d.known && !d.done:
			continue
		case !d.known:
			d.ret = math.MaxInt64
		}
		all = append(all, porcupine.Operation{ClientId: d.task, Input: d, Call: d.call, Return: d.ret})
	}
	return all
}

// rowModel is a register with the conditions of package leader.
var rowModel = porcupine.Model{
	Init: func() any { return rowKey{} },
	Step: func(state, input, _ any) (bool, any) {
		row, d := state.(rowKey), input.(*deed)
		switch {
		case d.q.beat == "": // a consistent read
			return *d.shown == row, row
		case d.refused:
			// Of a claim, the tick may be the reason.
			return (d.shown == nil || *d.shown == row) && (d.q.claim != nil || !d.holds(row)), row
		default:
			return d.holds(row) && (d.shown == nil || *d.shown == d.wrote), d.wrote
		}
	},
	Equal: func(a, b any) bool { return a == b },
}

// holds is the condition of a write.
func (d *deed) holds(row rowKey) bool {
	if d.q.op == "acquire" {
		if d.q.seen == nil {
			return !row.exists
		}
		return row.exists && row.beat == d.q.seen.Beat && row.fence == d.q.seen.Fence
	}
	return row.exists && row.owner == d.q.by && row.fence == d.q.fence && row.beat < d.q.beat
}
