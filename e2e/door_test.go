//go:build linux

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"solojob/boottime"
)

// Door is one agent's own way to the store: a listener of its own, so that a
// fault meets that agent alone.
type Door struct {
	Name string

	store *Store
	addr  string

	mu     sync.Mutex
	server *http.Server
	fault  func(*Call) Fault
	seen   atomic.Int64
}

// Fault is what happens to one request. The zero Fault is none.
type Fault struct {
	// Hang: never applied, never answered.
	Hang bool
	// Reset: not applied, the connection broken.
	Reset bool
	// Status and Error: not applied, answered with this.
	Status int
	Error  string
	// Hold: applied only once this is closed, whether or not anyone still
	// waits for the answer.
	Hold <-chan struct{}
	// LoseReply: applied, then the connection breaks.
	LoseReply bool
	// Mute: applied, never answered.
	Mute bool
	// ReplyAfter: applied at once, answered so much later.
	ReplyAfter time.Duration
}

// The answers of a DynamoDB in trouble.
var (
	serverError = Fault{Status: http.StatusInternalServerError, Error: "com.amazonaws.dynamodb.v20120810#InternalServerError"}
	throttled   = Fault{Status: http.StatusBadRequest, Error: "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}
	denied      = Fault{Status: http.StatusBadRequest, Error: "com.amazon.coral.service#AccessDeniedException"}
	conflict    = Fault{Status: http.StatusBadRequest, Error: "com.amazonaws.dynamodb.v20120810#TransactionConflictException"}
	expired     = Fault{Status: http.StatusBadRequest, Error: "com.amazon.coral.service#ExpiredTokenException"}
	hang        = Fault{Hang: true}
	reset       = Fault{Reset: true}
)

// always is a fault for each request.
func always(f Fault) func(*Call) Fault { return func(*Call) Fault { return f } }

// newDoor opens a door at a loopback address of its own, so that its port stays
// its own while it refuses connections.
func (s *Store) newDoor(name string) (*Door, error) {
	s.mu.Lock()
	n := len(s.doors) + 1
	s.mu.Unlock()
	host := fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%250, 1+s.world.number%250, n)
	listener, err := net.Listen("tcp", host+":0")
	if err != nil {
		return nil, err
	}
	d := &Door{Name: name, store: s, addr: listener.Addr().String()}
	d.serve(listener)
	s.mu.Lock()
	s.doors = append(s.doors, d)
	s.mu.Unlock()
	return d, nil
}

// URL is the endpoint for this door's agent.
func (d *Door) URL() string { return "http://" + d.addr }

// Requests is how many requests have arrived, applied or not.
func (d *Door) Requests() int64 { return d.seen.Load() }

func (d *Door) serve(listener net.Listener) {
	server := &http.Server{Handler: d}
	d.mu.Lock()
	d.server = server
	d.mu.Unlock()
	go server.Serve(listener) // ends with the server's Close
}

// Set has each further request meet a fault; nil takes all faults away. What
// was hung or held stays so.
func (d *Door) Set(fault func(*Call) Fault) {
	d.mu.Lock()
	d.fault = fault
	d.mu.Unlock()
	state := "faults begin"
	if fault == nil {
		state = "faults end"
	}
	d.store.world.note(boottime.Now(), "test", "door %s: %s", d.Name, state)
}

// Refuse closes the door: connections break, new ones are refused.
func (d *Door) Refuse() {
	d.mu.Lock()
	server := d.server
	d.mu.Unlock()
	server.Close()
	d.store.world.note(boottime.Now(), "test", "door %s refuses", d.Name)
}

// Open opens the door again, at the address that it had.
func (d *Door) Open() error {
	listener, err := net.Listen("tcp", d.addr)
	if err != nil {
		return err
	}
	d.serve(listener)
	d.store.world.note(boottime.Now(), "test", "door %s opens", d.Name)
	return nil
}

// close waits for the requests that are being served; the store must have been
// closed before, which frees what is held.
func (d *Door) close() {
	d.mu.Lock()
	server := d.server
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = server.Shutdown(ctx)
}

// ServeHTTP lets one request in, through whatever fault is set.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	d.seen.Add(1)
	target := r.Header.Get("X-Amz-Target")
	c := &Call{Door: d, Op: target[strings.LastIndex(target, ".")+1:], Body: body, Arrived: boottime.Now()}
	d.mu.Lock()
	choose := d.fault
	d.mu.Unlock()
	fault := Fault{}
	if choose != nil {
		c.Foreseen = d.store.foresee(c)
		fault = choose(c)
	}
	if fault.Hang {
		d.wait(r, nil)
	}
	if fault.Reset {
		breakOff(w)
	}
	if fault.Status != 0 {
		text := fmt.Sprintf(`{"__type":%q,"message":"made by a test"}`, fault.Error)
		answer(w, fault.Status, []byte(text), fault.Error)
		return
	}
	if fault.Hold != nil {
		select {
		case <-fault.Hold:
		case <-d.store.closed:
			panic(http.ErrAbortHandler)
		}
	}
	d.store.apply(c)
	if fault.LoseReply {
		breakOff(w)
	}
	if fault.Mute {
		d.wait(r, nil)
	}
	if fault.ReplyAfter > 0 {
		d.wait(r, time.After(fault.ReplyAfter))
	}
	answer(w, c.Status, c.Reply, "")
}

// wait returns when the timer fires; it breaks the request off when the client
// has gone or the store closes.
func (d *Door) wait(r *http.Request, timer <-chan time.Time) {
	select {
	case <-timer:
		return
	case <-r.Context().Done():
	case <-d.store.closed:
	}
	panic(http.ErrAbortHandler)
}

// breakOff resets the connection, the way a dying load balancer does.
func breakOff(w http.ResponseWriter) {
	if hijacker, ok := w.(http.Hijacker); ok {
		if conn, _, err := hijacker.Hijack(); err == nil {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			conn.Close()
		}
	}
	panic(http.ErrAbortHandler)
}

func answer(w http.ResponseWriter, status int, body []byte, errorType string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amz-Crc32", checksum(body))
	w.Header().Set("X-Amzn-RequestId", "E2E")
	if errorType != "" {
		w.Header().Set("X-Amzn-Errortype", errorType)
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
