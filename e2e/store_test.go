//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	minidyn "github.com/truora/minidyn/server"

	"solojob/boottime"
)

// Kind is what a request does to the lease, told by its effect on the row and
// not by how it is written down.
type Kind string

// The kinds of requests. Refused is a write whose condition does not hold.
const (
	Read    Kind = "read"
	Acquire Kind = "acquire"
	Renew   Kind = "renew"
	Claim   Kind = "claim"
	Release Kind = "release"
	Refused Kind = "refused"
	Other   Kind = "other"
)

// Call is one request that reached a door of the store.
type Call struct {
	Door    *Door
	Op      string
	Body    []byte
	Arrived boottime.Instant
	// Foreseen is what the request would do if it were applied on arrival.
	Foreseen Kind

	// Set once it has been applied, under the store's lock.
	Kind          Kind
	Applied       boottime.Instant // zero while it is not
	Status        int
	Reply         []byte
	Before, After Row // of the lease item
}

// Write reports whether the call changed the lease.
func (c *Call) Write() bool {
	return c.Kind == Acquire || c.Kind == Renew || c.Kind == Claim || c.Kind == Release
}

// Store is one table behind a lock: requests are applied one after another,
// and each is kept, with the row before and after it.
type Store struct {
	world  *World
	closed chan struct{} // what is held goes away when the store closes

	mu       sync.Mutex
	table    http.Handler
	rows     map[string]Row // the lease items as the table has them, so that a request costs no reads but its own
	calls    []*Call
	problems []string
	doors    []*Door
}

// tableName is the table that agents use when they are not told another.
const tableName = "solojob"

func newStore(w *World) (*Store, error) {
	table, err := newTable()
	if err != nil {
		return nil, err
	}
	return &Store{world: w, table: table, rows: map[string]Row{}, closed: make(chan struct{})}, nil
}

// newTable is an empty table with the keys of the contract.
func newTable() (http.Handler, error) {
	server := minidyn.NewServer()
	status, reply := ask(server, "CreateTable", map[string]any{
		"TableName":   tableName,
		"BillingMode": "PAY_PER_REQUEST",
		"AttributeDefinitions": []any{
			map[string]any{"AttributeName": "pk", "AttributeType": "S"},
			map[string]any{"AttributeName": "sk", "AttributeType": "S"},
		},
		"KeySchema": []any{
			map[string]any{"AttributeName": "pk", "KeyType": "HASH"},
			map[string]any{"AttributeName": "sk", "KeyType": "RANGE"},
		},
	})
	if status != http.StatusOK {
		return nil, fmt.Errorf("the table can't be created: %d %s", status, reply)
	}
	return server, nil
}

// ask sends one request to a table in this process.
func ask(table http.Handler, op string, input any) (int, []byte) {
	body, ok := input.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(input); err != nil {
			return 0, []byte(err.Error())
		}
	}
	request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	request.Header.Set("Content-Type", "application/x-amz-json-1.0")
	reply := httptest.NewRecorder()
	table.ServeHTTP(reply, request)
	return reply.Code, reply.Body.Bytes()
}

func leaseKey(lease string) map[string]any {
	return map[string]any{"pk": map[string]any{"S": lease}, "sk": map[string]any{"S": "lease"}}
}

func rowIn(table http.Handler, lease string) Row {
	_, reply := ask(table, "GetItem", map[string]any{"TableName": tableName, "Key": leaseKey(lease)})
	var out struct{ Item Row }
	_ = json.Unmarshal(reply, &out)
	return out.Item
}

// Row is the lease item as it stands.
func (s *Store) Row(lease string) Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[lease]
}

// Delete removes the lease item, as a person with a console might.
func (s *Store) Delete(t *testing.T, lease string) boottime.Instant {
	t.Helper()
	return s.tamper(t, lease, "DeleteItem", map[string]any{"TableName": tableName, "Key": leaseKey(lease)})
}

// Restore puts back an older state of the lease item, as from a backup.
func (s *Store) Restore(t *testing.T, row Row) boottime.Instant {
	t.Helper()
	return s.tamper(t, row.text("pk"), "PutItem", map[string]any{"TableName": tableName, "Item": row})
}

func (s *Store) tamper(t *testing.T, lease, op string, input any) boottime.Instant {
	t.Helper()
	s.mu.Lock()
	status, reply := ask(s.table, op, input)
	s.rows[lease] = rowIn(s.table, lease)
	at := boottime.Now()
	s.mu.Unlock()
	if status != http.StatusOK {
		t.Fatalf("%s by hand: %d %s", op, status, reply)
	}
	s.world.note(at, "test", "%s by hand", op)
	return at
}

// leaseOf finds the lease that a request is about, wherever its key stands.
func leaseOf(body []byte) string {
	var in any
	_ = json.Unmarshal(body, &in)
	var find func(any) string
	find = func(v any) string {
		switch v := v.(type) {
		case map[string]any:
			if pk, ok := v["pk"].(map[string]any); ok {
				name, _ := pk["S"].(string)
				return name
			}
			for _, inner := range v {
				if name := find(inner); name != "" {
					return name
				}
			}
		case []any:
			for _, inner := range v {
				if name := find(inner); name != "" {
					return name
				}
			}
		}
		return ""
	}
	return find(in)
}

func isRead(op string) bool {
	return op == "GetItem" || op == "Query" || op == "Scan" || strings.HasPrefix(op, "Describe") ||
		op == "BatchGetItem" || op == "TransactGetItems"
}

// foresee tells what a request would do now, on a copy.
func (s *Store) foresee(c *Call) Kind {
	if isRead(c.Op) {
		return Read
	}
	lease := leaseOf(c.Body)
	before := s.Row(lease)
	scratch, err := newTable()
	if err != nil {
		return Other
	}
	if before != nil {
		ask(scratch, "PutItem", map[string]any{"TableName": tableName, "Item": before})
	}
	status, _ := ask(scratch, c.Op, c.Body)
	return kindOf(status, before, rowIn(scratch, lease))
}

func kindOf(status int, before, after Row) Kind {
	switch {
	case status != http.StatusOK:
		return Refused
	case before.equal(after):
		return Other
	case before.Owner() != after.Owner() && after.Owner() != "":
		return Acquire
	case before.Owner() != after.Owner():
		return Release
	case after.Owner() != "" && after.Fence() != before.Fence():
		return Claim
	case after.Owner() != "":
		return Renew
	}
	return Other
}

// apply carries a request out, and checks what no request may ever do.
func (s *Store) apply(c *Call) {
	lease := leaseOf(c.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Before, c.After = s.rows[lease], s.rows[lease]
	c.Status, c.Reply = ask(s.table, c.Op, c.Body)
	c.Kind = Read
	if !isRead(c.Op) {
		if c.Status == http.StatusOK {
			c.After = rowIn(s.table, lease)
			s.rows[lease] = c.After
		}
		c.Kind = kindOf(c.Status, c.Before, c.After)
	}
	c.Applied = boottime.Now()
	s.calls = append(s.calls, c)
	s.check(c, lease)
	if c.Kind != Read || c.Status != http.StatusOK {
		s.world.note(c.Applied, "store", "%s of %s (%d): %v", c.Kind, c.Door.Name, c.Status, c.After.changes(c.Before))
	}
	s.world.changed()
}

// check is called with the lock held, at the instant at which the row changed.
func (s *Store) check(c *Call, lease string) {
	problem := func(format string, args ...any) {
		s.problems = append(s.problems, fmt.Sprintf("%s by %s: ", c.Kind, c.Door.Name)+fmt.Sprintf(format, args...))
	}
	if strings.Contains(c.Op, "Delete") || c.Op == "BatchWriteItem" || bytes.Contains(c.Body, []byte(`"Delete"`)) {
		problem("%s: nothing may ever be deleted", c.Op)
	}
	if names := c.After.forbidden(); len(names) > 0 {
		problem("attributes %v: a table with TTL on them would delete the row", names)
	}
	if size := c.After.size(); size >= 1024 {
		problem("the lease item has %d bytes, and a heartbeat costs more than one write unit", size)
	}
	if c.Before != nil && c.After.Fence() < c.Before.Fence() {
		problem("the fence fell from %d to %d", c.Before.Fence(), c.After.Fence())
	}
	if former := c.Before.Owner(); former != "" && former != c.After.Owner() {
		for _, l := range s.world.recorder.living(former) {
			if l.Lease == lease {
				problem("the lease left %s while %v was alive", former, l)
			}
		}
	}
}

// Calls are the requests that were applied so far, in their order.
func (s *Store) Calls() []*Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Find returns the applied calls of a kind that came through a door (any door,
// for nil) at or after an instant.
func (s *Store) Find(kind Kind, door *Door, since boottime.Instant) []*Call {
	var found []*Call
	for _, c := range s.Calls() {
		if c.Kind == kind && (door == nil || c.Door == door) && c.Applied >= since {
			found = append(found, c)
		}
	}
	return found
}

// Replay delivers a request once more, as a network that duplicates would.
func (s *Store) Replay(c *Call) *Call {
	again := &Call{Door: c.Door, Op: c.Op, Body: c.Body, Arrived: boottime.Now()}
	s.apply(again)
	return again
}

// checksum is the header by which the SDK checks a reply; minidyn has none.
func checksum(body []byte) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10)
}
