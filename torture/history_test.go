//go:build linux

package torture

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"solojob/boottime"
	"solojob/devstore"
)

// History is what the agents' side saw of the lease: each write and consistent
// read with the instants of its call and its return, and what came back. The
// order in which the store applied them is not in it: porcupine must find one,
// in which each does what the protocol says (Row.forbids) and the replies are
// those that were seen. A request whose client never heard of it returns at the
// end of time. What was never applied is left out, and a request that was
// delivered twice is in it twice.
//
// It is checked piece by piece, each from the row as it was before the first
// of its requests was applied, so that the search ends.
type History struct {
	world *World

	mu         sync.Mutex
	operations []*operation
	checks     sync.WaitGroup
}

type operation struct {
	client   string
	request  Request
	before   Row // of the store: the start of the piece that begins here
	call     int64
	returned int64
	result   outcome // of the store; unknown to the client while it has not returned
}

// outcome is what a reply says.
type outcome struct {
	unknown  bool
	accepted bool
	row      Row
}

const (
	// piece is how many operations are checked together.
	piece = 150
	// settling is how many more there must be before a piece is checked: its
	// replies have come by then, or never count.
	settling = 50
	// searching is how long porcupine may look for an order.
	searching = 30 * time.Second
)

// add is called with the store's lock held, when a request has been applied.
func (h *History) add(c *Call) {
	if c.request.op == "GetItem" && !c.request.consistent {
		return // it may be as old as it likes
	}
	var reply struct{ Item, Attributes devstore.Item }
	_ = json.Unmarshal(c.reply, &reply) // a refusal without a row leaves none
	o := &operation{client: c.door.name, request: c.request, before: c.before, call: int64(c.called), returned: forever}
	o.result = outcome{accepted: c.status == http.StatusOK, row: rowOf(reply.Item)}
	if o.result.accepted && c.request.op == "UpdateItem" {
		o.result.row = rowOf(reply.Attributes)
	}
	c.recorded = o
	h.mu.Lock()
	h.operations = append(h.operations, o)
	var ready []*operation
	if len(h.operations) >= piece+settling {
		ready = slices.Clone(h.operations[:piece])
		h.operations = slices.Clone(h.operations[piece:])
	}
	h.mu.Unlock()
	if ready != nil {
		h.check(ready)
	}
}

// returned notes that the client has the reply.
func (h *History) returned(c *Call, at boottime.Instant) {
	if c.recorded == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.recorded.returned = int64(at)
}

// finish checks what is left, and waits for all checks.
func (h *History) finish() {
	h.mu.Lock()
	rest := h.operations
	h.operations = nil
	h.mu.Unlock()
	if len(rest) > 0 {
		h.check(rest)
	}
	h.checks.Wait()
}

// check looks for an order of a piece, in the background.
func (h *History) check(part []*operation) {
	h.mu.Lock()
	operations := make([]porcupine.Operation, len(part))
	for i, o := range part {
		result := o.result
		result.unknown = o.returned == forever
		operations[i] = porcupine.Operation{Input: o.request, Output: result, Call: o.call, Return: o.returned}
	}
	h.mu.Unlock()
	h.checks.Go(func() {
		switch porcupine.CheckOperationsTimeout(model(part[0].before), operations, searching) {
		case porcupine.Ok:
			h.world.count("history: pieces checked")
		case porcupine.Unknown:
			h.world.count("history: pieces too hard")
		default:
			h.world.violate("history", "these operations have no order that the protocol allows, from %v:\n%s", part[0].before, describe(operations))
		}
	})
}

// model is the lease as the protocol has it.
func model(start Row) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(state, input, output any) (bool, any) {
			row, q, seen := state.(Row), input.(Request), output.(outcome)
			if q.op == "GetItem" {
				return seen.unknown || seen.row == row, row
			}
			allowed, after := row.forbids(q) == "", row
			if allowed {
				after = row.with(q.sets)
			}
			if seen.unknown {
				return true, after
			}
			return seen.accepted == allowed && seen.row == after, after
		},
	}
}

func describe(operations []porcupine.Operation) string {
	var b strings.Builder
	for _, o := range operations {
		q, seen := o.Input.(Request), o.Output.(outcome)
		fmt.Fprintf(&b, "  %d–%d %s %v %v: unknown %v accepted %v %v\n", o.Call, o.Return, q.kind(), q.conditions, q.sets, seen.unknown, seen.accepted, seen.row)
	}
	return b.String()
}
