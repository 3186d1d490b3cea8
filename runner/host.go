package runner

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// Host runs body with a supervisor at hand, and returns body's result.
//
// It must be called on the main goroutine, which main has locked to the main
// thread in an init: children are started from there. body runs in another
// goroutine, and only once the first supervisor is ready; after each run Host
// starts the next one, and it replaces one that dies or goes silent. While
// Host runs, nobody else in this process may start or wait for processes.
//
// When body returns while a run is not Done, the job is killed, and Host waits
// for its death for at most KillMargin. The waiting supervisor is ended too.
//
// The error says, in a sentence, what this machine lacks (such as /proc), or
// why no supervisor can be started; body then did not run.
func Host(opts Options, body func(h *Hosted) int) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if opts.StopSignal == 0 {
		opts.StopSignal = syscall.SIGTERM
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Heartbeat <= 0 || opts.KillMargin <= 0 {
		return 0, fmt.Errorf("heartbeat (%v) and kill margin (%v) must be longer than nothing", opts.Heartbeat, opts.KillMargin)
	}
	for _, prepare := range []func() error{checkSystem, adoptOrphans, sealDescriptors} {
		if err := prepare(); err != nil {
			return 0, err
		}
	}
	program, err := ownProgram()
	if err != nil {
		return 0, err
	}
	stdin := 0
	if !opts.Stdin {
		stdin, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, fmt.Errorf("/dev/null, the job's standard input, can't be opened: %w", err)
		}
		defer unix.Close(stdin)
	}
	reserveThreads(spareAgentThreads)
	sleeper, err := newSleeper()
	if err != nil {
		return 0, err
	}
	defer sleeper.close()
	h := &Hosted{opts: opts, wake: sleeper.wake}
	k := &keeper{opts: opts, host: h, sleeper: sleeper, program: program, stdin: stdin, body: body}
	return k.loop()
}

// Hosted launches runs, one at a time. Its methods may be called by any
// goroutine, and never block.
type Hosted struct {
	opts Options
	wake func()

	mu     sync.Mutex
	run    *Run // the one that is not Done
	closed bool // Host is about to return
}

// Launch starts a run and returns at once. The job is executed as soon as a
// supervisor is ready for it, or not at all if that would be too late: either
// way the run gets Done.
//
// Launching while an earlier run is not Done would be two jobs at once: it
// panics. After body has returned, the run is Done at once, not launched.
func (h *Hosted) Launch(l Launch) *Run {
	r := &Run{host: h, launch: l, started: make(chan struct{}), done: make(chan struct{})}
	r.want.validUntil = l.ValidUntil
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		r.result = Result{Reason: AgentEnds}
		close(r.done)
		return r
	case h.run != nil:
		panic("runner: a run was launched while an earlier one is not done")
	}
	h.run = r
	h.wake()
	return r
}

// Forward sends a signal to the job's process group. Without a job it does
// nothing.
func (h *Hosted) Forward(sig syscall.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run == nil || len(h.run.want.signals) >= maxForwarded {
		return
	}
	h.run.want.signals = append(h.run.want.signals, sig)
	h.wake()
}

// maxForwarded bounds the signals that wait to be passed on, as the kernel
// bounds pending ones.
const maxForwarded = 64

// Run is one launch of the job. Its methods may be called by any goroutine, as
// often as one likes, also after Done, and never block.
type Run struct {
	host    *Hosted
	launch  Launch
	started chan struct{}
	done    chan struct{}

	// Guarded by host.mu.
	want   wishes
	pid    int
	result Result // final once done is closed
}

// wishes are what the callers of a run ask for. Later ones replace earlier
// ones, so that they need no queue (but signals do).
type wishes struct {
	validUntil boottime.Instant
	stop       bool
	killAt     boottime.Instant // if stop
	kill       Reason           // if not empty
	signals    []syscall.Signal
}

// Started is closed when the job was executed. It stays open for ever if it
// never was: wait for Done as well.
func (r *Run) Started() <-chan struct{} { return r.started }

// Pid is the process id of the job's main process; 0 before Started.
func (r *Run) Pid() int {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	return r.pid
}

// Extend moves the deadline to validUntil. It never moves back: an earlier
// instant changes nothing. Nor does any, once the stop signal was sent because
// the old deadline came near, or once the old deadline has passed: whoever
// wakes from a long pause must not revive a job that others may have replaced.
func (r *Run) Extend(validUntil boottime.Instant) {
	r.wish(func(w *wishes) {
		if boottime.Now() < w.validUntil {
			w.validUntil = max(w.validUntil, validUntil)
		}
	})
}

// Stop sends the stop signal (and CONT, for a stopped job) now, and KILL at
// killAt, or when the deadline demands it, whichever is first. A later call
// sends no second signal, and can only bring killAt forward. A run that was
// not yet executed never will be.
func (r *Run) Stop(killAt boottime.Instant) {
	r.wish(func(w *wishes) {
		if !w.stop || killAt < w.killAt {
			w.stop, w.killAt = true, killAt
		}
	})
}

// Kill sends KILL now, and again until nobody is left. The first reason stays.
func (r *Run) Kill(reason Reason) {
	r.wish(func(w *wishes) {
		if w.kill == "" {
			w.kill = reason
		}
	})
}

func (r *Run) wish(change func(*wishes)) {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	change(&r.want)
	r.host.wake()
}

// Done is closed when every process of the run is confirmed dead (or none was
// ever started), and never otherwise: a process in uninterruptible sleep may
// leave it open past the deadline, and the caller must then not act as if the
// run were over.
func (r *Run) Done() <-chan struct{} { return r.done }

// Result is how the run ended. It is the zero Result before Done.
func (r *Run) Result() Result {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	return r.result
}

// current is the run that is not done, and what its callers want of it; the
// signals are taken, the rest is copied.
func (h *Hosted) current() (*Run, wishes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run == nil {
		return nil, wishes{}
	}
	w := h.run.want
	w.signals = slices.Clone(w.signals)
	h.run.want.signals = nil
	return h.run, w
}

// begun publishes that the job was executed.
func (h *Hosted) begun(r *Run, pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.pid = pid
	close(r.started)
}

// over publishes the end of a run.
func (h *Hosted) over(r *Run, result Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.result = result
	h.run = nil
	close(r.done)
}

// close refuses every further launch.
func (h *Hosted) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}
