//go:build linux

package torture

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"solojob/boottime"
)

// Door is one slot's way to the store, at which its requests meet faults.
type Door struct {
	name   string
	store  *Store
	socket string
	server *http.Server
	late   sync.WaitGroup // what is applied after its client has gone

	mu     sync.Mutex
	random *rand.Rand
	faults []fault // chosen from at random; none if empty
}

// fault is what happens to one request.
type fault string

// What a network and a service in trouble do to a request.
const (
	faultless fault = "none"
	hang      fault = "hang"       // never applied, never answered
	reset     fault = "reset"      // not applied, the connection broken
	failure   fault = "500"        // not applied
	throttle  fault = "throttle"   // not applied
	expired   fault = "expired"    // not applied: credentials that are no longer good
	late      fault = "late"       // applied when the client has long given up
	lost      fault = "lost reply" // applied, then the connection breaks
	mute      fault = "mute"       // applied, never answered
	slow      fault = "slow"       // applied at once, answered much later
	repeated  fault = "repeated"   // applied and answered, and delivered once more later
)

// mixtures are what chaos sets a door to: one thing all the time, or anything.
var mixtures = [][]fault{
	{hang}, {reset}, {failure}, {throttle}, {lost}, {mute}, {slow}, {late}, {repeated},
	{faultless, hang, reset, failure, throttle, expired, late, lost, mute, slow, repeated},
	{faultless, faultless, late, repeated, lost},
	{faultless, faultless, faultless, hang, failure},
}

var answers = map[fault]struct {
	status int
	kind   string
}{
	failure:  {http.StatusInternalServerError, "com.amazonaws.dynamodb.v20120810#InternalServerError"},
	throttle: {http.StatusBadRequest, "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"},
	expired:  {http.StatusBadRequest, "com.amazon.coral.service#ExpiredTokenException"},
}

func newDoor(s *Store, name string, seed uint64) (*Door, error) {
	d := &Door{name: name, store: s, random: rand.New(rand.NewPCG(seed, 1)), socket: filepath.Join(s.world.dir, name)}
	listener, err := net.Listen("unix", d.socket)
	if err != nil {
		return nil, err
	}
	d.server = &http.Server{Handler: d}
	s.world.goes.Go(func() { _ = d.server.Serve(listener) }) // ends with close
	return d, nil
}

// close is called when the store has been closed, which frees what is held.
func (d *Door) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = d.server.Shutdown(ctx)
	d.late.Wait()
}

// set has each further request meet one of the faults.
func (d *Door) set(faults []fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = faults
}

// choose is the fault of one request, and how long what takes long does take:
// up to three leases.
func (d *Door) choose() (fault, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.faults) == 0 {
		return faultless, 0
	}
	return d.faults[d.random.IntN(len(d.faults))], time.Duration(d.random.Int64N(int64(3 * lease)))
}

// ServeHTTP lets one request in, through whatever fault is set.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	target := r.Header.Get("X-Amz-Target")
	op := target[strings.LastIndex(target, ".")+1:]
	c := &Call{door: d, request: parse(op, body), body: body, called: boottime.Now()}
	f, delay := d.choose()
	world := d.store.world
	if f != faultless {
		world.count("fault: store " + string(f))
		world.note(c.called, "torture", "%s meets a %s of %s", f, op, d.name)
	}
	switch f {
	case hang:
		d.await(r, nil)
	case reset:
		panic(http.ErrAbortHandler)
	case failure, throttle, expired:
		d.refuse(w, answers[f].status, answers[f].kind)
		return
	case late:
		d.later(c, delay)
		d.await(r, nil)
	}
	d.store.apply(c)
	switch f {
	case lost:
		panic(http.ErrAbortHandler)
	case mute:
		d.await(r, nil)
	case slow:
		d.await(r, time.After(delay))
	case repeated:
		again := *c
		again.called, again.recorded = boottime.Now(), nil
		d.later(&again, delay)
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(c.status)
	if _, err := w.Write(c.reply); err == nil && r.Context().Err() == nil {
		d.store.history.returned(c, boottime.Now())
	}
}

// later applies a request after a delay, whoever still waits for it.
func (d *Door) later(c *Call, delay time.Duration) {
	d.late.Go(func() {
		select {
		case <-time.After(delay):
			d.store.apply(c)
		case <-d.store.closed:
		}
	})
}

// await returns when the timer fires; it breaks the request off when the client
// has gone or the store closes.
func (d *Door) await(r *http.Request, timer <-chan time.Time) {
	select {
	case <-timer:
		return
	case <-r.Context().Done():
	case <-d.store.closed:
	}
	panic(http.ErrAbortHandler)
}

func (d *Door) refuse(w http.ResponseWriter, status int, kind string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amzn-Errortype", kind)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"__type":"` + kind + `","message":"made by the torture"}`))
}
