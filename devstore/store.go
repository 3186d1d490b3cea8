// Package devstore is a DynamoDB endpoint in memory, for laptops, the demo and
// tests. It is not DynamoDB and must never hold a lease that matters: it keeps
// nothing on disk, checks no signature, and anyone who can reach the port can
// write. Therefore it listens on loopback addresses alone.
//
// The engine is github.com/truora/minidyn. What would disturb a client of it is
// mended at this package's edge: every request is applied alone, from its first
// byte to its last (minidyn reads rows after it has let go of its lock); replies
// carry the checksum that the AWS SDK warns about when it is missing; unknown
// operations and panics are answered in DynamoDB's own form; and tables say that
// they are ACTIVE, which waiters wait for. What remains different: an update whose
// *expression* is wrong may be half applied, no capacity is counted, and there
// are no calls for backups, streams, or time to live.
package devstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/truora/minidyn/server"
)

// Options says what Start starts. The zero value is ready for use.
type Options struct {
	// Addr is the address to listen on, "127.0.0.1:0" when empty. Start
	// refuses one that is not on the loopback interface.
	Addr string
	// Table is created, with the string keys pk and sk that a lease table
	// has. Empty creates none.
	Table string
	// Observe, where set, is called with every request that was answered, in
	// the order in which the requests were applied, and before the reply is
	// sent. The store stands still meanwhile: it must return soon and must
	// not call the store.
	Observe func(Exchange)
}

// Store is a running endpoint. Its methods may be called from any goroutine.
type Store struct {
	engine  http.Handler
	observe func(Exchange)
	main    *Door
	unwatch func() bool // ends the watch on Start's context

	apply sync.Mutex // held while a request is applied, and to cut a door

	mu     sync.Mutex // guards what follows
	doors  []*Door
	closed bool
}

// Start listens, creates the table, and serves until Close is called or ctx is
// done. The error names the address when it is taken or isn't a loopback one.
func Start(ctx context.Context, o Options) (*Store, error) {
	if o.Addr == "" {
		o.Addr = anyLoopbackPort
	}
	if err := loopbackOnly(o.Addr); err != nil {
		return nil, err
	}
	s := &Store{engine: server.NewServer(), observe: o.Observe}
	if o.Table != "" {
		if err := s.CreateTable(o.Table); err != nil {
			return nil, err
		}
	}
	door, err := s.listen(o.Addr)
	if err != nil {
		return nil, err
	}
	s.main = door
	s.unwatch = context.AfterFunc(ctx, s.shut)
	return s, nil
}

// anyLoopbackPort lets the kernel choose a free port that only this machine
// can reach.
const anyLoopbackPort = "127.0.0.1:0"

// loopbackOnly refuses an address that other machines could reach.
func loopbackOnly(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("the store can't listen on %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("the store can't listen on %q: it has no access control, so only a loopback address such as 127.0.0.1 is allowed", addr)
	}
	return nil
}

// URL is the endpoint of the store, for AWS_ENDPOINT_URL_DYNAMODB.
func (s *Store) URL() string { return s.main.URL() }

// Listen opens one more door to the same store, on a loopback port of its own,
// that can be cut without touching the others. Close closes it as well.
func (s *Store) Listen() (*Door, error) { return s.listen(anyLoopbackPort) }

// Close closes every door and returns when nothing of the store runs any more.
// It may be called more than once.
func (s *Store) Close() {
	s.unwatch()
	s.shut()
}

func (s *Store) shut() {
	s.mu.Lock()
	s.closed = true
	doors := s.doors
	s.mu.Unlock()
	for _, d := range doors {
		d.Close()
	}
}

var errClosed = errors.New("the store has been closed")

func (s *Store) listen(addr string) (*Door, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("the store can't listen on %q: %w", addr, err)
	}
	d := newDoor(s, l)
	s.doors = append(s.doors, d)
	return d, nil
}

// CreateTable makes a table with the key schema of a lease table.
func (s *Store) CreateTable(name string) error {
	_, err := s.Call("CreateTable", map[string]any{
		"TableName":   name,
		"BillingMode": "PAY_PER_REQUEST",
		"AttributeDefinitions": []map[string]string{
			{"AttributeName": "pk", "AttributeType": "S"},
			{"AttributeName": "sk", "AttributeType": "S"},
		},
		"KeySchema": []map[string]string{
			{"AttributeName": "pk", "KeyType": "HASH"},
			{"AttributeName": "sk", "KeyType": "RANGE"},
		},
	})
	if err != nil {
		return fmt.Errorf("the table %q can't be created: %w", name, err)
	}
	return nil
}

// headerTimeout bounds how long a client may take to send a request's header;
// everyone is on this machine.
const headerTimeout = 10 * time.Second

func newServer(d *Door) *http.Server {
	return &http.Server{Handler: d, ReadHeaderTimeout: headerTimeout, ConnState: d.connState}
}
