//go:build linux

package torture

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"solojob/boottime"
	"solojob/internal/witness"
)

// Recorder is what the jobs report to, and the fenced register that they write
// to. It knows the lives of all jobs, from their first instruction to the
// moment at which the kernel closed the last copy of their connection.
type Recorder struct {
	world    *World
	listener *net.UnixListener

	mu       sync.Mutex
	lives    []*Life          // those that are not known to be over
	launched int64            // the highest FENCE of any launch
	launchAt boottime.Instant // when that was
	written  int64            // the highest FENCE that has written: what a fenced store remembers
	newest   boottime.Instant
}

// Life is one launch of the job, with all its descendants.
type Life struct {
	task    *Task
	owner   string
	tick    string
	attempt int
	fence   int64
	pid     int // as this process's namespace has it
	started boottime.Instant
	conn    *net.UnixConn
}

func newRecorder(w *World) (*Recorder, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(w.dir, "recorder"), Net: "unix"})
	if err != nil {
		return nil, err
	}
	r := &Recorder{world: w, listener: listener}
	w.goes.Go(r.accept)
	return r, nil
}

func (r *Recorder) socket() string { return r.listener.Addr().String() }

func (r *Recorder) accept() {
	for {
		conn, err := r.listener.AcceptUnix()
		if err != nil {
			return
		}
		r.world.goes.Go(func() { r.read(conn) })
	}
}

// close stops listening. Jobs that still live see their connection close, and
// end.
func (r *Recorder) close() {
	r.listener.Close()
	for _, l := range r.living() {
		l.conn.Close()
	}
}

// report is a line of a job; the actor's own type says what is in it.
type report struct {
	Event                    string
	At                       boottime.Instant
	Task, Lease, Owner, Tick string
	Fence                    int64
	Attempt, Code            int
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
		switch {
		case said.Event == "hello":
			life = r.begin(conn, said)
		case life == nil:
		case said.Event == "write":
			r.write(life)
		case said.Event == "end" && said.Code == 0 && life.tick != "":
			r.world.ticks.finish(life)
			fallthrough
		default:
			r.world.note(said.At, "job", "%v: %s %d", life, said.Event, said.Code)
		}
	}
	if life == nil {
		return
	}
	r.mu.Lock()
	r.lives = slices.DeleteFunc(r.lives, func(l *Life) bool { return l == life })
	r.mu.Unlock()
	r.world.note(boottime.Now(), "job", "%v is gone", life)
}

// begin records a new life, and judges it: not by what has been read of the
// others so far, but by what the kernel says of them now.
func (r *Recorder) begin(conn *net.UnixConn, said report) *Life {
	w := r.world
	l := &Life{
		task: w.taskNamed(said.Task), owner: said.Owner, tick: said.Tick, attempt: said.Attempt, fence: said.Fence,
		pid: witness.PeerPID(conn), started: said.At, conn: conn,
	}
	w.note(said.At, "job", "%v begins, under %s, tick %s, attempt %d", l, said.Owner, said.Tick, said.Attempt)
	w.count("launches")
	if l.task == nil || said.Lease != w.name {
		w.violate("harness", "%v belongs to no task", l)
		return nil
	}
	if g, ok := w.store.granted(l.fence); !ok || g.owner != l.owner || g.tick != l.tick {
		w.violate("FENCE not granted", "%v, owner %s, tick %q: the store gave its fence to %+v", l, l.owner, l.tick, g)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.lives {
		if other.dead() || l.dead() { // a hello that is read late says nothing of now
			continue
		}
		stale := other // of two, the one that should not be there
		if l.fence < other.fence {
			stale = l
		}
		if stale.task.excused() {
			w.count("excused overlaps")
		} else {
			w.violate("overlap", "%v began while %v was alive", l, other)
		}
	}
	if l.fence <= r.launched && l.started > r.launchAt && !l.task.excused() {
		w.violate("order of FENCE", "%v began after one with FENCE %d", l, r.launched)
	}
	w.ticks.started(l)
	if l.fence > r.launched {
		r.launched, r.launchAt = l.fence, l.started
	}
	r.lives = append(r.lives, l)
	return l
}

// write is one write to the register. It compares FENCE, as any store that is
// fenced does; who wrote is compared by when it was launched.
func (r *Recorder) write(l *Life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.fence < r.written {
		r.world.count("writes refused")
		return
	}
	r.world.count("writes accepted")
	if l.started < r.newest {
		r.world.violate("stale write accepted", "of %v, after one of a job that was launched later", l)
	}
	r.written, r.newest = l.fence, max(r.newest, l.started)
}

// living are the lives that are not over, by the kernel's word.
func (r *Recorder) living() []*Life {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.lives), func(l *Life) bool { return l.dead() })
}

func (l *Life) String() string {
	name := "no task"
	if l.task != nil {
		name = l.task.name
	}
	return fmt.Sprintf("job %d of %s (FENCE %d)", l.pid, name, l.fence)
}

// dead asks the kernel whether the last process of the tree is dead.
func (l *Life) dead() bool { return witness.Closed(l.conn) }
