package runner

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// A job that is told to stop gets the stop signal at once, may end by itself,
// and its own exit status is what counts.
func TestStopLetsTheJobEnd(t *testing.T) {
	a := startAgent(t, standard(shell(`trap 'echo stopping; exit 5' TERM; echo up; while :; do sleep 0.05; done`)...))
	a.launch()
	a.expect("started")
	a.awaitOutput("up")
	a.order(instruction{Do: "stop", For: time.Hour})
	r := a.expect("done").Result
	if r.ExitStatus != 5 || !r.Signalled || r.Reason != Stopped {
		t.Errorf("reported as %+v", r)
	}
	a.mustBeDead()
	a.quit()
}

// The stop signal is the one that was chosen.
func TestStopSignalCanBeChosen(t *testing.T) {
	s := standard(shell(`trap 'exit 6' QUIT; trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done`)...)
	s.Options.StopSignal = syscall.SIGQUIT
	a := startAgent(t, s)
	a.launch()
	a.expect("started")
	a.awaitOutput("up")
	a.order(instruction{Do: "stop", For: time.Hour})
	if r := a.expect("done").Result; r.ExitStatus != 6 {
		t.Errorf("reported as %+v", r)
	}
	a.quit()
}

// A job that ignores the stop signal is killed at killAt, not before; and a
// second Stop can bring that forward.
func TestStopKillsAtItsInstant(t *testing.T) {
	a := startAgent(t, standard(shell(`trap '' TERM; echo up; while :; do sleep 0.05; done`)...))
	a.launch()
	a.expect("started")
	a.awaitOutput("up")
	a.order(instruction{Do: "stop", For: time.Hour})
	const grace = 700 * time.Millisecond
	asked := boottime.Now()
	a.order(instruction{Do: "stop", For: grace})
	r := a.expect("done").Result
	if r.Signal != syscall.SIGKILL || !r.Signalled || r.Reason != Stopped {
		t.Errorf("reported as %+v", r)
	}
	if early := asked.Add(grace).Sub(r.Ended.Boot); early > 0 {
		t.Errorf("the job was killed %v too early", early)
	}
	a.mustBeDead()
	a.quit()
}

// A stopped (SIGSTOP) job gets to see the stop signal.
func TestAStoppedJobSeesTheStopSignal(t *testing.T) {
	a := startAgent(t, standard(shell(`trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done`)...))
	a.launch()
	job := a.expect("started").Pid
	a.awaitOutput("up")
	freeze(t, job)
	a.order(instruction{Do: "stop", For: time.Hour})
	if r := a.expect("done").Result; r.ExitStatus != 5 {
		t.Errorf("reported as %+v", r)
	}
	a.quit()
}

// Kill ends the job at once, also a stopped one, and the reason is reported.
func TestKillEndsTheJobAtOnce(t *testing.T) {
	a := startAgent(t, standard(shell(`trap '' TERM; echo up; while :; do sleep 0.05; done`)...))
	a.launch()
	job := a.expect("started").Pid
	a.awaitOutput("up")
	freeze(t, job)
	a.order(instruction{Do: "kill", Reason: LeaseTaken})
	r := a.expect("done").Result
	if r.Signal != syscall.SIGKILL || r.ExitStatus != 137 || r.Reason != LeaseTaken {
		t.Errorf("reported as %+v", r)
	}
	a.mustBeDead()
	a.quit()
}

// Without renewals the job gets the stop signal at valid-until − margin − grace,
// and is dead before valid-until; not a moment earlier than it must.
func TestDeadBeforeTheDeadlineWithoutRenewals(t *testing.T) {
	s := standard(shell(`trap 'echo stopping' TERM; echo up; while :; do sleep 0.05; done`)...)
	s.Options.KillMargin = slowMargin
	a := startAgent(t, s)
	a.order(instruction{Do: "launch", For: 8 * time.Second})
	a.expect("started")
	e := a.expect("done")
	if e.Result.Reason != Deadline || !e.Result.Signalled {
		t.Errorf("reported as %+v", e.Result)
	}
	if late := e.Result.Ended.Boot.Sub(e.Until); late >= 0 {
		t.Errorf("the job died %v after its deadline", late)
	}
	if early := e.Until.Add(-s.Options.KillMargin).Sub(e.Result.Ended.Boot); early > 0 {
		t.Errorf("the job was killed %v early", early)
	}
	if !strings.Contains(a.read(), "stopping") {
		t.Error("there was no stop signal before KILL")
	}
	a.mustBeDead()
	a.quit()
}

// With renewals it lives on, for many leases.
func TestRenewalsKeepTheJobAlive(t *testing.T) {
	a := startAgent(t, standard(shell(`sleep 1000`)...))
	// Without them it would be told to stop after 6.5 s.
	a.order(instruction{Do: "launch", For: 8 * time.Second, RenewEvery: 20 * time.Millisecond})
	job := a.expect("started").Pid
	select {
	case e := <-a.events:
		t.Fatalf("the agent said %+v", e)
	case <-time.After(10 * time.Second): // nothing happens: there is no event to wait for
	}
	if s := stateOf(job); s == 0 || s == 'Z' {
		t.Error("the job is gone")
	}
	a.order(instruction{Do: "kill", Reason: LeaseTaken})
	a.expect("done")
	a.quit()
}

// A launch that comes later than the stop signal would be due executes nothing.
func TestALaunchThatIsTooLateExecutesNothing(t *testing.T) {
	a := startAgent(t, standard(shell(`echo executed`)...))
	for _, left := range []time.Duration{-time.Hour, 0, 1400 * time.Millisecond} { // margin + grace are 1.5 s
		a.order(instruction{Do: "launch", For: left})
		r := a.expect("done").Result
		if r.Launched || r.Reason != Deadline {
			t.Errorf("with %v left: %+v", left, r)
		}
	}
	if strings.Contains(a.read(), "executed") {
		t.Error("the job was executed")
	}
	a.quit()
}

// A launch that the supervisor reads too late, because the whole task was
// frozen just then, executes nothing either: the deadline is judged once more
// right before the execution.
func TestALaunchThatIsReadTooLateExecutesNothing(t *testing.T) {
	a := startAgent(t, standard(shell(`echo executed; sleep 1000`)...))
	supervisor := a.supervisor()
	freeze(t, supervisor)
	a.order(instruction{Do: "launch", For: 8 * time.Second})
	late := boottime.Now().Add(8 * time.Second)
	await(t, "the launch is in the pipe", func() bool { return queued(t, supervisor) > 0 })
	freeze(t, a.pid)
	await(t, "the deadline is past", func() bool { return boottime.Now() > late })
	send(t, supervisor, syscall.SIGCONT)
	await(t, "the supervisor has judged and ended", func() bool { return stateOf(supervisor) == 'Z' })
	send(t, a.pid, syscall.SIGCONT)
	r := a.expect("done").Result
	if r.Launched || r.Reason != Deadline {
		t.Errorf("reported as %+v", r)
	}
	if strings.Contains(a.read(), "executed") {
		t.Error("the job was executed")
	}
	a.quit()
}

// A run that was stopped before it was executed never is.
func TestStopBeforeLaunchExecutesNothing(t *testing.T) {
	a := startAgent(t, standard(shell(`echo executed; sleep 1000`)...))
	supervisor := a.supervisor()
	freeze(t, supervisor)
	a.order(instruction{Do: "launch", For: lease})
	var launch int
	await(t, "the launch is in the pipe", func() bool { launch = queued(t, supervisor); return launch > 0 })
	a.order(instruction{Do: "stop", For: time.Hour})
	await(t, "the stop is in the pipe", func() bool { return queued(t, supervisor) > launch })
	send(t, supervisor, syscall.SIGCONT)
	r := a.expect("done").Result
	if r.Launched || r.Reason != Stopped {
		t.Errorf("reported as %+v", r)
	}
	if strings.Contains(a.read(), "executed") {
		t.Error("the job was executed")
	}
	a.quit()
}

// queued is how much waits in the control pipe of a supervisor.
func queued(t *testing.T, supervisor int) int {
	t.Helper()
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", supervisor, controlFD), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A run that exceeds its timeout is stopped, then killed, and says so.
func TestTimeoutEndsTheRun(t *testing.T) {
	a := startAgent(t, standard(shell(`trap 'echo stopping' TERM; echo up; while :; do sleep 0.05; done`)...))
	a.order(instruction{Do: "launch", For: lease, RenewEvery: time.Second, Launch: Launch{
		Timeout:   4 * time.Second,
		StopGrace: 500 * time.Millisecond,
	}})
	a.expect("started")
	r := a.expect("done").Result
	if r.Reason != TimedOut || r.Signal != syscall.SIGKILL {
		t.Errorf("reported as %+v", r)
	}
	if ran := r.Ended.Boot.Sub(r.Started.Boot); ran < 4500*time.Millisecond {
		t.Errorf("the job was killed after %v", ran)
	}
	if !strings.Contains(a.read(), "stopping") {
		t.Error("there was no stop signal before KILL")
	}
	a.quit()
}

// Signals that are passed on reach the whole group of the job.
func TestForwardedSignalsReachTheGroup(t *testing.T) {
	a := startAgent(t, standard(shell(`
		trap 'echo main got it' USR1
		(trap 'echo child got it' USR1; echo child up; while :; do sleep 0.05; done) &
		echo main up; while :; do sleep 0.05; done`)...))
	a.launch()
	a.expect("started")
	a.awaitOutput("main up")
	a.awaitOutput("child up")
	send(t, a.pid, syscall.SIGUSR1)
	a.awaitOutput("main got it")
	a.awaitOutput("child got it")
	a.order(instruction{Do: "kill", Reason: LeaseTaken})
	a.expect("done")
	a.quit()
}

// When body returns while a job runs, the job is killed before Host returns.
func TestHostReturnsOnlyAfterTheJobIsDead(t *testing.T) {
	a := startAgent(t, standard(shell(`trap '' TERM; (trap '' TERM; sleep 1000) & echo up; while :; do sleep 0.05; done`)...))
	a.launch()
	a.expect("started")
	a.awaitOutput("up")
	a.write(instruction{Do: "quit", Code: 17})
	a.expect("returned")
	a.mustBeDead()
}
