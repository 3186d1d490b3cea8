package runner

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// Every exit status of the job reaches the caller unchanged, while orphans of
// the job are being reaped, as PID 1 and not.
func TestEveryExitStatusIsReported(t *testing.T) {
	everyPlace(t, func(t *testing.T, start func(*testing.T, setup) *agent) {
		// In each run one orphan ends about when the job does, and one lives on.
		a := start(t, standard(shell(`(: & sleep 100 &); exit $STATUS`)...))
		for status := range 256 {
			e := a.runToEnd(fmt.Sprintf("STATUS=%d", status))
			r := e.Result
			if !r.Launched || r.ExitStatus != status || r.Signal != 0 || r.Signalled || r.Reason != ByItself {
				t.Fatalf("a job that exited with %d was reported as %+v", status, r)
			}
		}
		a.mustBeDead()
		a.quit()
	})
}

// A job that a signal ends is reported as 128 + the signal's number, for every
// signal that can.
func TestEveryFatalSignalIsReported(t *testing.T) {
	harmless := map[syscall.Signal]bool{
		syscall.SIGCHLD: true, syscall.SIGCONT: true, syscall.SIGSTOP: true, syscall.SIGTSTP: true,
		syscall.SIGTTIN: true, syscall.SIGTTOU: true, syscall.SIGURG: true, syscall.SIGWINCH: true,
	}
	everyPlace(t, func(t *testing.T, start func(*testing.T, setup) *agent) {
		a := start(t, standard(shell(`ulimit -c 0; kill -$SIGNAL $$; sleep 100`)...))
		for sig := syscall.Signal(1); sig <= lastSignal; sig++ {
			if harmless[sig] || sig == 32 || sig == 33 { // the C library's own
				continue
			}
			r := a.runToEnd(fmt.Sprintf("SIGNAL=%d", int(sig))).Result
			if r.ExitStatus != 128+int(sig) || r.Signal != sig || r.Signalled || r.Reason != ByItself {
				t.Errorf("a job that signal %d ended was reported as %+v", int(sig), r)
			}
		}
		a.quit()
	})
}

// The job's own status is not lost among two thousand orphans that end at the
// same time.
func TestStatusAmongTwoThousandOrphans(t *testing.T) {
	everyPlace(t, func(t *testing.T, start func(*testing.T, setup) *agent) {
		a := start(t, standard(shell(`
			(i=0; while [ $i -lt 2000 ]; do i=$((i+1)); : & done)
			exit 42`)...))
		if r := a.runToEnd().Result; r.ExitStatus != 42 || r.Signal != 0 {
			t.Fatalf("the job exited with 42, and was reported as %+v", r)
		}
		a.quit()
	})
}

// A descendant that holds the job's output open, or merely lives on, is killed
// when the main process ends, and delays nothing.
func TestLeftOversAreKilledWhenTheMainProcessEnds(t *testing.T) {
	everyPlace(t, func(t *testing.T, start func(*testing.T, setup) *agent) {
		a := start(t, standard(shell(`(trap '' TERM HUP; sleep 1000) & sleep 1001 & echo up; exit 7`)...))
		e := a.runToEnd()
		a.mustBeDead()
		if e.Result.ExitStatus != 7 || e.Result.Signalled || e.Result.Reason != ByItself {
			t.Errorf("reported as %+v", e.Result)
		}
		a.quit()
	})
}

// A job that can't be executed any more when it is launched is a result, with
// a sentence, and the next launch is served.
func TestExecutionFailureIsAResult(t *testing.T) {
	s := standard("gone")
	s.Options.Path = "/nonexistent/gone"
	a := startAgent(t, s)
	for range 2 {
		a.launch()
		e := a.expect("done")
		if e.Result.Launched || e.Result.ExitStatus != StatusNotFound || !strings.Contains(e.ExecErr, "there is no such file") {
			t.Errorf("reported as %+v, %q", e.Result, e.ExecErr)
		}
	}
	a.quit()
}

// Arguments and environment that the kernel refuses are a result, too.
func TestTooLongAnEnvironmentIsAResult(t *testing.T) {
	a := startAgent(t, standard("/bin/true"))
	a.launch("LONG=" + strings.Repeat("x", 200<<10)) // MAX_ARG_STRLEN is 128 KiB
	e := a.expect("done")
	if e.Result.Launched || e.Result.ExitStatus != StatusNotExecutable || !strings.Contains(e.ExecErr, "too long") {
		t.Errorf("reported as %+v, %q", e.Result, e.ExecErr)
	}
	a.quit()
}
