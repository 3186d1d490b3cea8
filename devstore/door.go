package devstore

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// Door is one listener of a store. Cutting it is what a cut network looks like
// to those who use it: connections are accepted and nothing ever comes back.
type Door struct {
	store    *Store
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup // one for each connection that the server works on
	gone     chan struct{}  // closed when the listener has been given up

	cut   bool // guarded by store.apply: no request is applied in the middle of a Cut
	mu    sync.Mutex
	conns map[*conn]struct{}
}

func newDoor(s *Store, l net.Listener) *Door {
	d := &Door{store: s, listener: l, gone: make(chan struct{}), conns: map[*conn]struct{}{}}
	d.server = newServer(d)
	go func() {
		defer close(d.gone)
		d.server.Serve(gate{l, d}) // always ends with an error that says nothing new: Close was called
	}()
	return d
}

// URL is the endpoint behind this door, for AWS_ENDPOINT_URL_DYNAMODB.
func (d *Door) URL() string { return "http://" + d.listener.Addr().String() }

// Cut stops everything that passes the door, without a word to either side:
// connections are still accepted, but no request is applied and no reply
// leaves. When it returns, nothing more of what came through the door is
// applied, now or after Heal.
func (d *Door) Cut() {
	d.store.apply.Lock()
	defer d.store.apply.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = true
	for c := range d.conns {
		c.dead.Store(true)
	}
}

// Heal lets new connections through again. Those that were open at any time
// during the cut are closed; what was sent through them is lost.
func (d *Door) Heal() {
	d.store.apply.Lock()
	defer d.store.apply.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = false
	for c := range d.conns {
		if c.dead.Load() {
			c.Conn.Close() // wakes its reader, which leaves the map
		}
	}
}

// Close closes the door and returns when none of its connections is served any
// more. It may be called more than once.
func (d *Door) Close() {
	d.server.Close()
	<-d.gone
	d.mu.Lock()
	for c := range d.conns {
		c.Conn.Close() // the server forgets one that it accepted while it was being closed
	}
	d.mu.Unlock()
	d.serving.Wait()
}

// connState counts the connections that are being served: http.Server.Close
// closes them without waiting for their goroutines.
func (d *Door) connState(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		d.serving.Add(1)
	case http.StateClosed, http.StateHijacked:
		d.serving.Done()
	}
}

// gate hands the server connections that a cut can silence.
type gate struct {
	net.Listener
	door *Door
}

func (g gate) Accept() (net.Conn, error) {
	raw, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, door: g.door}
	g.door.store.apply.Lock()
	defer g.door.store.apply.Unlock()
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	c.dead.Store(g.door.cut)
	g.door.conns[c] = struct{}{}
	return c, nil
}

// conn is a connection that, once dead, swallows what is sent in either
// direction until it is closed.
type conn struct {
	net.Conn
	door *Door
	dead atomic.Bool
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.dead.Load() {
			return n, err
		}
	}
}

func (c *conn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	c.door.mu.Lock()
	delete(c.door.conns, c)
	c.door.mu.Unlock()
	return c.Conn.Close()
}
