package ecs

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// watchEvery is how often a task's desired status is looked at. The signal to
// stop normally comes at the same time; where it is lost or late, five seconds
// of a grace of 25 are well spent, and the endpoint's limit of 40 requests a
// second (per task, on EC2) is far.
const watchEvery = 5 * time.Second

// Watcher learns from the metadata that the task is being stopped: a second
// way beside the signal, which an init or a shell in between may swallow.
// All methods may be called from any goroutine, never wait for the network
// (but [Watcher.Close]), and do nothing on a nil Watcher.
type Watcher struct {
	url     string
	client  *http.Client
	every   time.Duration
	stopped chan struct{}
	wanted  *switchboard
	ended   chan struct{}
	cancel  context.CancelFunc
}

// NewWatcher returns a Watcher that asks nothing yet; nil outside ECS.
func NewWatcher(environ []string) *Watcher { return newWatcher(environ, watchEvery) }

func newWatcher(environ []string, every time.Duration) *Watcher {
	uri := lookup(environ, MetadataVariable)
	if uri == "" {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watcher{
		url: uri + "/task", client: newClient(), every: every,
		stopped: make(chan struct{}), wanted: newSwitchboard(),
		ended: make(chan struct{}), cancel: cancel,
	}
	go w.watch(ctx)
	return w
}

// Begin has the Watcher look, at once and then every few seconds: a run goes
// on.
func (w *Watcher) Begin() {
	if w != nil {
		w.wanted.set(true)
	}
}

// End has the Watcher rest: the run is over.
func (w *Watcher) End() {
	if w != nil {
		w.wanted.set(false)
	}
}

// Stopped is closed once ECS was seen to want the task stopped. A nil Watcher's
// blocks for ever.
func (w *Watcher) Stopped() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.stopped
}

// Close ends the Watcher and returns when nothing of it runs any more. It may
// be called once.
func (w *Watcher) Close() {
	if w != nil {
		w.cancel()
		<-w.ended
	}
}

func (w *Watcher) watch(ctx context.Context) {
	defer close(w.ended)
	var next <-chan time.Time // when to look again, nil while resting
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wanted.changed:
		case <-next:
		}
		next = nil
		if !w.wanted.on() {
			continue
		}
		if reply, err := ask(ctx, w.client, w.url); err == nil && reply.DesiredStatus == StatusStopped {
			close(w.stopped)
			return
		}
		next = time.After(w.every)
	}
}

// switchboard is a wish that anybody may set at any time and one goroutine
// follows. Only the latest counts.
type switchboard struct {
	changed chan struct{}
	mu      sync.Mutex
	wish    bool
}

func newSwitchboard() *switchboard { return &switchboard{changed: make(chan struct{}, 1)} }

func (s *switchboard) set(wish bool) {
	s.mu.Lock()
	s.wish = wish
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default: // the goroutine has yet to see an earlier change
	}
}

func (s *switchboard) on() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wish
}
