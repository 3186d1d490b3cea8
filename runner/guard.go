package runner

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// guard is a supervisor process as its agent sees it.
type guard struct {
	pid     int
	started boottime.Instant
	ready   bool // it said so
	killed  bool // by us
	reaped  bool // its pid may be somebody else's
	control outbox
	report  inbox

	acked    int64 // the last frame that it acknowledged
	lastSent boottime.Instant
	owed     time.Duration    // how long it has owed an acknowledgement, while we were awake
	looked   boottime.Instant // when owed was last added up
}

// startGuard starts a supervisor. Call it on the main thread only.
func startGuard(program string, stdin int) (*guard, error) {
	controlR, controlW, err := pipe()
	if err != nil {
		return nil, err
	}
	defer unix.Close(controlR)
	reportR, reportW, err := pipe()
	if err != nil {
		unix.Close(controlW)
		return nil, err
	}
	defer unix.Close(reportW)
	pid, err := syscall.ForkExec(program, []string{supervisorName}, &syscall.ProcAttr{
		Env:   supervisorEnv(),
		Files: []uintptr{uintptr(stdin), 1, 2, controlFD: uintptr(controlR), reportFD: uintptr(reportW)},
		Sys:   supervisorAttributes(),
	})
	if err != nil {
		unix.Close(controlW)
		unix.Close(reportR)
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return &guard{
		pid:     pid,
		started: boottime.Now(),
		control: outbox{fd: controlW},
		report:  inbox{fd: reportR},
	}, nil
}

// send queues a frame; the keeper flushes.
func (g *guard) send(now boottime.Instant, k kind, body []byte) {
	if !g.owes() {
		g.owed, g.looked = 0, now
	}
	g.control.put(k, body)
	g.lastSent = now
}

// heard takes down an acknowledgement. Any one is a sign of life, even if a
// newer frame is still unanswered.
func (g *guard) heard(seq int64) {
	g.acked = max(g.acked, seq)
	g.owed = 0
}

func (g *guard) owes() bool { return g.control.seq > g.acked }

// looks is into how many parts patience is divided, to be counted one by one.
const looks = 8

// silent reports whether the supervisor has owed an acknowledgement for as
// long as patience. Only time in which we ourselves were awake counts: if the
// whole task was frozen, the supervisor was too, and must get the chance to answer.
func (g *guard) silent(now boottime.Instant, patience time.Duration) bool {
	if !g.owes() {
		return false
	}
	g.owed += min(now.Sub(g.looked), patience/looks)
	g.looked = now
	return g.owed >= patience
}

// nextLook is when to call silent again, or to send something that demands an
// acknowledgement.
func (g *guard) nextLook(now boottime.Instant, patience time.Duration) boottime.Instant {
	if g.owes() {
		return now.Add(patience / looks)
	}
	return g.lastSent.Add(patience / 2)
}

// kill ends the supervisor.
func (g *guard) kill() {
	g.killed = true
	if !g.reaped {
		unix.Kill(g.pid, unix.SIGKILL)
	}
}

func (g *guard) close() {
	unix.Close(g.control.fd)
	unix.Close(g.report.fd)
}
