//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"solojob/boottime"
	"solojob/internal/witness"
)

// Recorder is what the jobs report to. It knows the lives of all jobs of a
// test: from their first words to the moment at which the kernel closed the
// last copy of their connection. Both are witnessed here, not by any agent.
type Recorder struct {
	world    *World
	listener *net.UnixListener
	readers  sync.WaitGroup

	mu       sync.Mutex
	lives    []*Life
	overlaps []string
	highest  map[string]int64 // of each lease, the highest fence: what a fenced resource remembers
}

// Life is one launch of the job, with all its descendants.
type Life struct {
	Lease   string
	Owner   string
	Fence   int64
	PID     int // as the test's own PID namespace has it
	Args    []string
	Environ []string
	Started boottime.Instant // by the job's own reading of the clock that all share

	recorder *Recorder
	conn     *net.UnixConn
	ended    chan struct{} // closed when the last process of the tree is dead

	// Guarded by recorder.mu.
	lastAlive boottime.Instant
	endedAt   boottime.Instant
	signals   []Signal
	stdin     []string
	printed   int
	finished  bool // it ended by itself, with 0
	frozen    bool // a test froze it on purpose: it may overlap with a successor
}

// Signal is one signal that a job reported.
type Signal struct {
	Name string
	At   boottime.Instant
}

func newRecorder(w *World) (*Recorder, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(w.dir, "recorder"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	r := &Recorder{world: w, listener: listener, highest: map[string]int64{}}
	r.readers.Go(r.accept)
	return r, nil
}

// Socket is where jobs find the recorder.
func (r *Recorder) Socket() string { return r.listener.Addr().String() }

func (r *Recorder) accept() {
	for {
		conn, err := r.listener.AcceptUnix()
		if err != nil {
			return
		}
		r.readers.Go(func() { r.read(conn) })
	}
}

// close stops listening and waits for the readers. Jobs that still live see
// their connection close, and end.
func (r *Recorder) close() {
	r.listener.Close()
	for _, l := range r.Lives() {
		l.conn.Close()
	}
	r.readers.Wait()
}

// report is a line from a probe; the probe's own type says what is in it.
type report struct {
	Event   string
	At      boottime.Instant
	PID     int
	Args    []string
	Environ []string
	Name    string
	Code    int
}

func (r *Recorder) read(conn *net.UnixConn) {
	defer conn.Close()
	lines := json.NewDecoder(conn)
	var life *Life
	for {
		var said report
		if err := lines.Decode(&said); err != nil {
			break
		}
		if said.Event == "hello" {
			life = r.begin(conn, said)
			continue
		}
		if life != nil {
			life.heard(said)
		}
	}
	if life != nil {
		life.end()
	}
}

// begin records a new life, and whether another of the same lease goes on: not
// by what has been read of it so far, but by what the kernel says now.
func (r *Recorder) begin(conn *net.UnixConn, said report) *Life {
	l := &Life{
		PID: witness.PeerPID(conn), Args: said.Args, Environ: said.Environ, Started: said.At, lastAlive: said.At,
		recorder: r, conn: conn, ended: make(chan struct{}),
	}
	l.Lease, l.Owner = l.Env("SOLOJOB_RUN_LEASE"), l.Env("SOLOJOB_RUN_OWNER")
	l.Fence, _ = strconv.ParseInt(l.Env("FENCE"), 10, 64)

	r.mu.Lock()
	for _, other := range r.lives {
		if other.Lease == l.Lease && !other.frozen && !other.dead() {
			r.overlaps = append(r.overlaps, fmt.Sprintf("%v began while %v was alive", l, other))
		}
	}
	r.lives = append(r.lives, l)
	r.highest[l.Lease] = max(r.highest[l.Lease], l.Fence)
	r.mu.Unlock()
	r.world.note(said.At, "job", "%v begins, under %s", l, l.Owner)
	return l
}

// dead asks the kernel whether the last process of the tree is dead.
func (l *Life) dead() bool { return witness.Closed(l.conn) }

func (l *Life) heard(said report) {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	l.lastAlive = max(l.lastAlive, said.At)
	switch said.Event {
	case "alive":
		return
	case "signal":
		l.signals = append(l.signals, Signal{said.Name, said.At})
	case "stdin":
		l.stdin = append(l.stdin, said.Name)
	case "printed":
		l.printed++
	case "end":
		l.finished = said.Code == 0
	}
	l.recorder.world.note(said.At, "job", "%v: %s %s %d", l, said.Event, said.Name, said.Code)
}

func (l *Life) end() {
	l.recorder.mu.Lock()
	l.endedAt = boottime.Now()
	l.recorder.mu.Unlock()
	l.recorder.world.note(l.endedAt, "job", "%v is gone", l)
	close(l.ended)
	l.recorder.world.changed()
}

func (l *Life) String() string {
	return fmt.Sprintf("job %d (lease %s, FENCE %d)", l.PID, l.Lease, l.Fence)
}

// Env is a variable of the job's environment, the first where there are more.
func (l *Life) Env(name string) string {
	for _, v := range l.Environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// Ended reports whether the whole tree is dead, and since when.
func (l *Life) Ended() (boottime.Instant, bool) {
	select {
	case <-l.ended:
		return l.endedAt, true
	default:
		return 0, false
	}
}

// Signalled reports whether and when the job first got a signal.
func (l *Life) Signalled(name string) (boottime.Instant, bool) {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	for _, s := range l.signals {
		if s.Name == name {
			return s.At, true
		}
	}
	return 0, false
}

// Finished reports whether the job ended by itself, with 0.
func (l *Life) Finished() bool {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	return l.finished
}

// LastAlive is when the job last said that it lives, by its own clock.
func (l *Life) LastAlive() boottime.Instant {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	return l.lastAlive
}

// Stdin is what the job has read so far.
func (l *Life) Stdin() []string {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	return slices.Clone(l.stdin)
}

// Printed is how many texts the job has written out to the last byte.
func (l *Life) Printed() int {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	return l.printed
}

// FreezeOnPurpose tells the recorder that a test stops this job's processes
// and its keepers at once: the one case in which a successor may start while
// the job exists, frozen.
func (l *Life) FreezeOnPurpose() {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	l.frozen = true
}

// Exit has the job end by itself.
func (l *Life) Exit(code int, after time.Duration) {
	l.ask(map[string]any{"do": "exit", "code": code, "after": after})
}

// Print has the job write a text to its stdout.
func (l *Life) Print(text string) { l.ask(map[string]any{"do": "print", "text": text}) }

func (l *Life) ask(command map[string]any) {
	line, err := json.Marshal(command)
	if err == nil {
		_, err = l.conn.Write(append(line, '\n'))
	}
	if err != nil {
		l.recorder.world.note(boottime.Now(), "test", "%v can't be asked: %v", l, err)
	}
}

// WriteFenced does what the job would do with a resource that checks fences:
// it is refused when a higher fence has been seen.
func (l *Life) WriteFenced() bool {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	return l.Fence >= l.recorder.highest[l.Lease]
}

// Lives are all lives so far, in the order of their first words.
func (r *Recorder) Lives() []*Life {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lives)
}

// living are the lives of one owner's jobs that are not over.
func (r *Recorder) living(owner string) []*Life {
	r.mu.Lock()
	defer r.mu.Unlock()
	var living []*Life
	for _, l := range r.lives {
		if l.Owner == owner && !l.frozen && !l.dead() {
			living = append(living, l)
		}
	}
	return living
}

// problems are what the lives say against the promises: overlaps as seen when
// a life began and by the jobs' own clocks, and fences that did not grow.
func (r *Recorder) problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	problems := slices.Clone(r.overlaps)
	byStart := slices.Clone(r.lives)
	slices.SortStableFunc(byStart, func(a, b *Life) int { return int(a.Started - b.Started) })
	for i, later := range byStart {
		for _, earlier := range byStart[:i] {
			if earlier.Lease != later.Lease {
				continue
			}
			if earlier.lastAlive > later.Started && !earlier.frozen {
				problems = append(problems, fmt.Sprintf("%v still lived %v after %v had begun",
					earlier, earlier.lastAlive.Sub(later.Started), later))
			}
			if earlier.Fence >= later.Fence {
				problems = append(problems, fmt.Sprintf("%v began after %v, with a FENCE that is not higher", later, earlier))
			}
		}
		if later.Fence <= 0 || later.Lease == "" || later.Owner == "" {
			problems = append(problems, fmt.Sprintf("%v has no FENCE, lease or owner in its environment", later))
		}
	}
	return problems
}
