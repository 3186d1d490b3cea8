// Package signals takes the process's signals over, and does so early.
//
// As PID 1 of a container a process has no default dispositions: the kernel
// drops a TERM for which no handler is installed yet (pid_namespaces(7)). So
// [Catch] is main's first act, and this package imports nothing of weight.
package signals

import (
	"os"
	"os/signal"
	"syscall"
)

// Caught is what the agent receives once Catch was called.
type Caught struct {
	// Stop carries TERM, INT, QUIT and HUP: each means "stop", the second
	// "now", the third "kill". It has room for more than anybody acts on, so
	// that no request to stop is lost while the receiver is busy.
	Stop <-chan os.Signal
	// Pass carries USR1, USR2 and WINCH, which are the job's. It is a channel
	// of its own: a terminal that is being resized sends WINCH in bursts, and
	// those must not crowd out a TERM.
	Pass <-chan os.Signal
}

// room is how many signals wait for a receiver; what comes beyond is dropped,
// as the kernel itself drops a signal that is already pending.
const room = 16

var (
	stops  = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP}
	passed = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}
)

// Catch installs the agent's handlers. Call it once, as main's first act.
//
// HUP and INT stay ignored if the process was started with them ignored: that
// is how nohup(1), and a shell that starts a command in the background, say
// that it shall outlive the terminal.
//
// PIPE is caught and discarded: the default would end the process at the first
// line that it writes to a stderr whose reader has gone.
func Catch() Caught {
	stop := make(chan os.Signal, room)
	for _, sig := range stops {
		if !signal.Ignored(sig) {
			signal.Notify(stop, sig)
		}
	}
	pass := make(chan os.Signal, room)
	signal.Notify(pass, passed...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return Caught{Stop: stop, Pass: pass}
}

// Discard makes the process deaf to every signal that Catch knows. It is for
// the supervisor, which only its agent may stop.
//
// The signals are caught and thrown away, not ignored: an ignored one would
// still be ignored in the job (execve(2)), a caught one is back at its default.
func Discard() {
	deaf := make(chan os.Signal, 1)
	signal.Notify(deaf, stops...)
	signal.Notify(deaf, passed...)
	signal.Notify(deaf, syscall.SIGPIPE)
}
