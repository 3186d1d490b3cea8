package demo

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// statement is what a job says over its connection: one line of JSON.
type statement struct {
	Kind  Kind // Launched, Told or Ended
	At    boottime.Instant
	Task  string
	Fence int64
	Pid   int
	Ppid  int
}

// recorder listens to the jobs. A job lives, for the demo, from its first
// statement until the kernel closes its connection: that happens when the process dies,
// however it dies, before its parent can learn of it, and it doesn't happen
// while the process is frozen.
type recorder struct {
	log      *chronicle
	listener *net.UnixListener
	tidy     func() // removes what the listener left in the file system
	readers  sync.WaitGroup

	mu   sync.Mutex
	runs []*liveRun // all that ever were; a run's number is its index + 1
}

type liveRun struct {
	statement
	id   int
	conn *net.UnixConn
	died chan struct{} // closed once its death is in the chronicle
}

// listen starts a recorder on a socket of its own.
func listen(log *chronicle) (*recorder, error) {
	l, tidy, err := listenUnix()
	if err != nil {
		return nil, err
	}
	r := &recorder{log: log, listener: l, tidy: tidy}
	r.readers.Go(func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return // closed
			}
			r.readers.Go(func() { r.attend(conn) })
		}
	})
	return r, nil
}

// address is what jobs dial.
func (r *recorder) address() string { return r.listener.Addr().String() }

// close ends every connection, which ends the jobs that still live, and returns
// when nothing of the recorder runs any more.
func (r *recorder) close() {
	r.listener.Close()
	r.mu.Lock()
	for _, run := range r.runs {
		run.conn.Close()
	}
	r.mu.Unlock()
	r.readers.Wait()
	r.tidy()
}

// introduction bounds the wait for a job's first line, which it sends at once.
const introduction = 5 * time.Second

// attend listens to one job until it is dead.
func (r *recorder) attend(conn *net.UnixConn) {
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(introduction))
	lines := bufio.NewScanner(conn)
	var first statement
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &first) != nil || first.Kind != Launched {
		return
	}
	conn.SetReadDeadline(time.Time{})
	run := r.welcome(conn, first)
	defer close(run.died)
	fmt.Fprintln(conn, run.id) // it works only from here on
	for lines.Scan() {
		var s statement
		if json.Unmarshal(lines.Bytes(), &s) == nil {
			r.log.add(Entry{At: s.At, Kind: s.Kind, Task: first.Task, Run: run.id, Fence: first.Fence})
		}
	}
	r.log.add(Entry{Kind: Died, Task: first.Task, Run: run.id, Fence: first.Fence})
}

// welcome enters a new run in the chronicle, together with the runs whose
// processes exist at the same instant: this one waits for its welcome meanwhile,
// so each of them does overlap with it. As an overlap of two runs begins with
// the start of the later one, none can be missed (a frozen one apart, which
// is seen here and counts once it is thawed).
func (r *recorder) welcome(conn *net.UnixConn, first statement) *liveRun {
	r.mu.Lock()
	run := &liveRun{statement: first, id: len(r.runs) + 1, conn: conn, died: make(chan struct{})}
	var beside []int
	var dead []*liveRun
	for _, other := range r.runs {
		if other.lives() {
			beside = append(beside, other.id)
		} else {
			dead = append(dead, other)
		}
	}
	r.runs = append(r.runs, run)
	r.mu.Unlock()
	for _, other := range dead {
		<-other.died // its reader is about to say so; the order in the chronicle is then the true one
	}
	r.log.add(Entry{
		At: first.At, Kind: Launched, Task: first.Task, Run: run.id, Fence: first.Fence,
		Pid: first.Pid, Ppid: first.Ppid, Beside: beside,
	})
	return run
}

// living are the runs of a task (of any, if empty) whose processes exist now.
func (r *recorder) living(task string) []*liveRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	var living []*liveRun
	for _, run := range r.runs {
		if (task == "" || run.Task == task) && run.lives() {
			living = append(living, run)
		}
	}
	return living
}

// lives asks the kernel whether the run's process still holds its end of the
// connection.
func (r *liveRun) lives() bool {
	raw, err := r.conn.SyscallConn()
	if err != nil {
		return false
	}
	hungUp := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		for {
			_, err := unix.Poll(fds, 0)
			if err == unix.EINTR {
				continue
			}
			hungUp = err != nil || fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
			return
		}
	})
	return err == nil && !hungUp // an error: the reader saw the end, and has closed our side
}
