// Package runner runs the job, and sees to it that the job is dead in time.
//
//	agent  ── control pipe ──►  supervisor  ──►  job
//	       ◄── report pipe ───
//
// The supervisor is this same program, started once more ([Supervise]). It
// launches the job in a session of its own and kills it at the deadline *by
// itself*: an agent that is stopped, starved or dead can't leave a job
// running. A supervisor that is stopped or dead is noticed by the agent, which
// kills it, sweeps away what is left of the job, and starts another. So either
// of the two is enough to end the job, and only if neither gets CPU time does
// it live on.
//
// The package knows nothing of leases: a run has a number (the fence, which it
// only carries) and a deadline, which the caller moves forward with
// [Run.Extend] for as long as it may.
//
// What the package rests on:
//
//   - Both processes are child subreapers (prctl(2), PR_SET_CHILD_SUBREAPER):
//     whatever a job's process does (double fork, setsid), it remains a
//     descendant of the supervisor, or if that is dead, of the agent.
//   - Only wait4(2) answering ECHILD confirms a death: a subreaper without
//     children has no descendants. Two empty looks at /proc do not, nor does
//     kill(-pgid, 0).
//   - Each process has one loop, on its main thread, that alone forks, kills
//     and reaps. So no process is killed after it was reaped and its pid may
//     be somebody else's, and PR_SET_PDEATHSIG, which is sent when the
//     *thread* that forked ends, means the process. os/exec is never used: its
//     Wait and a wait4(-1) beside it lose exit statuses to each other.
//   - Each loop sleeps in one poll(2), with a timerfd on CLOCK_BOOTTIME, and
//     reads its pipe empty before it judges a deadline: newer deadlines may be
//     queued in it.
//
// On systems other than Linux there are no subreapers: there the job's process
// group is killed, and a descendant that left the group is not seen.
package runner

import (
	"log/slog"
	"syscall"
	"time"

	"solojob/boottime"
)

// Reason says why a run ended other than by itself.
type Reason string

const (
	// ByItself: nobody asked the job to end.
	ByItself Reason = ""
	// Stopped: Run.Stop was called.
	Stopped Reason = "stopped"
	// Deadline: valid-until came near and was not extended.
	Deadline Reason = "deadline"
	// LeaseTaken is for callers that Kill because somebody else has the lease.
	LeaseTaken Reason = "lease taken"
	// TimedOut: the run took longer than Launch.Timeout.
	TimedOut Reason = "timeout"
	// SupervisorDied: the supervisor ended without a report.
	SupervisorDied Reason = "supervisor died"
	// SupervisorSilent: the supervisor did not acknowledge, and was killed.
	SupervisorSilent Reason = "supervisor silent"
	// AgentEnds: Host's body returned while the run was still going.
	AgentEnds Reason = "agent ends"
)

// Options are what is the same for every run of a process.
type Options struct {
	// Command is the job: its name and its arguments, handed on verbatim.
	Command []string
	// Path is the file that is executed, as Resolve found it.
	Path string
	// Stdin lets the job inherit our standard input; otherwise it reads
	// /dev/null. Standard output and error are always inherited, the
	// descriptors themselves and not pipes to them.
	Stdin bool
	// StopSignal asks the job to end; TERM if zero.
	StopSignal syscall.Signal
	// LossGrace is the time between that signal and KILL when the deadline
	// comes near; it lies before valid-until − KillMargin.
	LossGrace time.Duration
	// KillMargin is the time between KILL and valid-until: what it takes to
	// kill every process of the job.
	KillMargin time.Duration
	// Heartbeat is how often the caller extends. A supervisor that owes an
	// acknowledgement for two heartbeats is replaced.
	Heartbeat time.Duration
	// Log receives what happens to the supervisor (nothing about the job, whose
	// caller learns that from its Run). Its handler must not block.
	Log *slog.Logger
}

// Launch is one run.
type Launch struct {
	// Fence identifies the run in the log.
	Fence int64
	// ValidUntil is the instant before which the job must be dead. The job is
	// not started at all if its stop signal would be due already.
	ValidUntil boottime.Instant
	// Env is the job's complete environment.
	Env []string
	// Timeout bounds the run, from its start; 0 means no bound.
	Timeout time.Duration
	// StopGrace is the time between the stop signal and KILL after Timeout.
	StopGrace time.Duration
}

// Moment is one instant on both clocks: Boot to reckon with, Wall to show.
// Zero if what it dates did not happen.
type Moment struct {
	Boot boottime.Instant
	Wall time.Time
}

func now() Moment { return Moment{Boot: boottime.Now(), Wall: time.Now()} }

// Result is how a run ended.
type Result struct {
	// Launched says that the job was executed (or may have been, if the
	// supervisor died over it). If not, either ExecErr or Reason says why.
	Launched bool
	// ExecErr is an *ExecError if the job could not be executed.
	ExecErr error
	// ExitStatus is the main process's: 0–255, 128 + n if signal n ended it,
	// and ExecErr's status if it wasn't executed. It is 137 if the status was
	// lost with the supervisor.
	ExitStatus int
	// Signal is the one that ended the main process, if one did.
	Signal syscall.Signal
	// Started and Ended date the main process.
	Started, Ended Moment
	// Signalled says that we sent the main process the stop signal or KILL.
	Signalled bool
	// Reason is why; ByItself if nobody did anything.
	Reason Reason
}

// statusOf is the exit status that a shell would give for ws.
func statusOf(ws syscall.WaitStatus) (status int, sig syscall.Signal) {
	if ws.Signaled() {
		return 128 + int(ws.Signal()), ws.Signal()
	}
	return ws.ExitStatus(), 0
}

// statusLost stands in for an exit status that nobody can know any more: that
// of a process ended by KILL, as the job was.
const statusLost = 128 + int(syscall.SIGKILL)
