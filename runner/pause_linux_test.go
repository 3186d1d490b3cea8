package runner

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// deafTree is a job that ignores TERM, with descendants in and out of its group.
const deafTree = `trap '' TERM
	(trap '' TERM; while :; do sleep 0.05; done) &
	"$ESCAPE" role=escape xx &
	echo up; while :; do sleep 0.05; done`

// launchDeafTree starts it and waits until all of it is there.
func launchDeafTree(t *testing.T, a *agent, i instruction) (job int) {
	t.Helper()
	i.Do = "launch"
	i.Launch.Env = append(i.Launch.Env, "ESCAPE="+testBinary(t))
	a.order(i)
	job = a.expect("started").Pid
	a.awaitOutput("up")
	a.awaitOutput("escaped")
	return job
}

// expectDead waits until no process of the job is left.
func (a *agent) expectDead() {
	a.t.Helper()
	await(a.t, "all processes of the job are dead", func() bool { return len(a.jobProcesses()) == 0 })
}

// An agent that is stopped (SIGSTOP, or Ctrl-Z on a terminal) renews nothing:
// the supervisor kills the job before the deadline, by itself. The agent that
// wakes learns of it.
func TestAStoppedAgentCannotKeepTheJobAlive(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTSTP} {
		t.Run(sig.String(), func(t *testing.T) {
			// A group of its own, as a shell gives it: in an orphaned group TSTP is ignored.
			s := standard(shell(deafTree)...)
			s.Options.KillMargin = slowMargin
			a := startAgent(t, s, func(cmd *exec.Cmd) {
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			})
			launchDeafTree(t, a, instruction{For: 8 * time.Second, RenewEvery: 100 * time.Millisecond})
			send(t, a.pid, sig)
			await(t, "the agent is stopped", func() bool { return stateOf(a.pid) == 'T' })
			latest := boottime.Now().Add(8 * time.Second) // no renewal was later
			a.expectDead()
			if late := boottime.Now().Sub(latest); late > 0 {
				t.Errorf("the job was alive %v after its deadline", late)
			}
			send(t, a.pid, syscall.SIGCONT)
			if r := a.expect("done").Result; r.Reason != Deadline {
				t.Errorf("reported as %+v", r)
			}
			a.quit()
		})
	}
}

// A supervisor that is stopped while the agent renews is killed and replaced,
// with all of its job, and the next launch is served by another.
func TestAStoppedSupervisorIsReplaced(t *testing.T) {
	everyPlace(t, func(t *testing.T, start func(*testing.T, setup) *agent) {
		s := standard(shell(deafTree)...)
		s.Options.Heartbeat = 2 * time.Second
		a := start(t, s)
		launchDeafTree(t, a, instruction{For: time.Minute, RenewEvery: 300 * time.Millisecond})
		freeze(t, a.supervisor())
		r := a.expect("done").Result
		a.mustBeDead()
		if r.Reason != SupervisorSilent || !r.Launched || r.ExitStatus != 137 {
			t.Errorf("reported as %+v", r)
		}
		launchDeafTree(t, a, instruction{For: time.Minute, RenewEvery: 300 * time.Millisecond})
		a.order(instruction{Do: "kill", Reason: LeaseTaken})
		a.expect("done")
		a.quit()
	})
}

// The same without a single renewal, as when the store can't be reached: the
// agent notices all the same.
func TestAStoppedSupervisorIsNoticedWithoutRenewals(t *testing.T) {
	s := standard(shell(deafTree)...)
	s.Options.Heartbeat = 2 * time.Second
	a := startAgent(t, s)
	launchDeafTree(t, a, instruction{For: time.Hour})
	freeze(t, a.supervisor())
	if r := a.expect("done").Result; r.Reason != SupervisorSilent {
		t.Errorf("reported as %+v", r)
	}
	a.mustBeDead()
	a.quit()
}

// With a supervisor that is stopped, the agent kills the job before the
// deadline, even if it would have more patience for the supervisor.
func TestAStoppedSupervisorCannotKeepTheJobPastItsDeadline(t *testing.T) {
	s := standard(shell(deafTree)...)
	s.Options.Heartbeat = time.Hour
	s.Options.KillMargin = slowMargin
	a := startAgent(t, s)
	// Renewed until all of it is there, however slow the machine is.
	launchDeafTree(t, a, instruction{For: 8 * time.Second, RenewEvery: 100 * time.Millisecond})
	freeze(t, a.supervisor())
	a.order(instruction{Do: "stop-renewing"})
	e := a.expect("done")
	a.mustBeDead()
	if e.Result.Reason != Deadline {
		t.Errorf("reported as %+v", e.Result)
	}
	if late := e.At.Sub(e.Until); late >= 0 {
		t.Errorf("confirmed %v after the deadline", late)
	}
	a.quit()
}

// Kill reaches the job of a stopped supervisor without waiting two heartbeats.
func TestKillDespiteAStoppedSupervisor(t *testing.T) {
	s := standard(shell(deafTree)...)
	s.Options.Heartbeat = time.Hour
	a := startAgent(t, s)
	launchDeafTree(t, a, instruction{For: 2 * time.Hour})
	freeze(t, a.supervisor())
	a.order(instruction{Do: "kill", Reason: LeaseTaken})
	a.expect("done")
	a.mustBeDead()
	a.quit()
}

// A supervisor that was stopped past the deadlines that it knew, but not for
// two heartbeats, reads the newer ones first and leaves a healthy job alone.
func TestASupervisorThatWakesReadsBeforeItJudges(t *testing.T) {
	s := standard(shell(`sleep 1000`)...)
	s.Options.Heartbeat = time.Hour // its patience is not what is tested
	a := startAgent(t, s)
	a.order(instruction{Do: "launch", For: 8 * time.Second})
	job := a.expect("started").Pid
	known := boottime.Now().Add(8 * time.Second)
	supervisor := a.supervisor()
	freeze(t, supervisor)
	a.order(instruction{Do: "extend", For: time.Hour})
	await(t, "the renewal is in the pipe", func() bool { return queued(t, supervisor) > 0 })
	if boottime.Now() > known.Add(-1500*time.Millisecond) {
		t.Skip("this machine is too slow at the moment: the old deadline passed before the new one was sent")
	}
	await(t, "the old deadline is past", func() bool { return boottime.Now() > known })
	send(t, supervisor, syscall.SIGCONT)
	await(t, "the renewal is read", func() bool { return queued(t, supervisor) == 0 })
	a.order(instruction{Do: "forward", Signal: int(syscall.SIGCONT)}) // comes after whatever it did
	await(t, "the signal is read", func() bool { return queued(t, supervisor) == 0 })
	select {
	case e := <-a.events:
		t.Fatalf("the agent said %+v", e)
	case <-time.After(500 * time.Millisecond): // nothing happens: there is no event to wait for
	}
	if s := stateOf(job); s == 0 || s == 'Z' {
		t.Error("the job was killed")
	}
	a.order(instruction{Do: "kill", Reason: LeaseTaken})
	a.expect("done")
	a.quit()
}

// SIGKILL to the supervisor: the whole tree of the job is dead before the run
// is over, and another supervisor serves the next launch.
func TestAKilledSupervisorTakesTheJobAlong(t *testing.T) {
	everyPlace(t, func(t *testing.T, start func(*testing.T, setup) *agent) {
		a := start(t, standard(shell(deafTree)...))
		for range 3 {
			launchDeafTree(t, a, instruction{For: lease})
			first := a.supervisor()
			send(t, first, syscall.SIGKILL)
			r := a.expect("done").Result
			a.mustBeDead()
			if r.Reason != SupervisorDied || !r.Launched || r.ExitStatus != 137 || r.Started.Boot == 0 {
				t.Errorf("reported as %+v", r)
			}
		}
		a.quit()
	})
}

// A waiting supervisor that dies is replaced before anybody notices.
func TestAKilledWaitingSupervisorIsReplaced(t *testing.T) {
	a := startAgent(t, standard(shell(`exit 3`)...))
	for range 3 {
		first := a.supervisor()
		send(t, first, syscall.SIGKILL)
		await(t, "there is another supervisor", func() bool { return a.supervisor() != first })
		if r := a.runToEnd().Result; r.ExitStatus != 3 || r.Reason != ByItself {
			t.Errorf("reported as %+v", r)
		}
	}
	a.quit()
}

// SIGKILL to the agent: the supervisor kills the whole tree at once, and ends.
func TestAKilledAgentTakesTheJobAlong(t *testing.T) {
	everyPlace(t, func(t *testing.T, start func(*testing.T, setup) *agent) {
		a := start(t, standard(shell(deafTree)...))
		launchDeafTree(t, a, instruction{For: time.Hour})
		supervisor := a.supervisor()
		send(t, a.pid, syscall.SIGKILL)
		a.expectDead()
		await(t, "the supervisor has ended", func() bool { s := stateOf(supervisor); return s == 0 || s == 'Z' })
	})
}

// A waiting supervisor ends with its agent.
func TestAWaitingSupervisorEndsWithItsAgent(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		a := startAgent(t, standard(shell(`exit 3`)...))
		supervisor := a.supervisor()
		if stopped {
			freeze(t, supervisor)
		}
		send(t, a.pid, syscall.SIGKILL)
		await(t, "the supervisor has ended", func() bool { s := stateOf(supervisor); return s == 0 || s == 'Z' })
	}
}

// SIGSTOP to the supervisor, then SIGKILL to the agent: CONT at its agent's
// death wakes the supervisor, and the job is dead.
func TestAStoppedSupervisorWakesWhenTheAgentDies(t *testing.T) {
	a := startAgent(t, standard(shell(deafTree)...))
	launchDeafTree(t, a, instruction{For: time.Hour})
	freeze(t, a.supervisor())
	send(t, a.pid, syscall.SIGKILL)
	a.expectDead()
}

// Agent and supervisor are both stopped, in either order, and woken in either
// order, after the deadline: the job is killed as soon as either wakes. As
// long as both are stopped nobody can kill it; only its fence protects.
func TestWhoeverWakesFirstKillsTheJob(t *testing.T) {
	for _, firstToWake := range []string{"agent", "supervisor", "both"} {
		t.Run(firstToWake, func(t *testing.T) {
			a := startAgent(t, standard(shell(deafTree)...))
			launchDeafTree(t, a, instruction{For: 6 * time.Second, RenewEvery: 100 * time.Millisecond})
			supervisor := a.supervisor()
			freeze(t, a.pid, supervisor)
			past := boottime.Now().Add(6 * time.Second)
			await(t, "the deadline is past", func() bool { return boottime.Now() > past })
			if firstToWake != "supervisor" {
				send(t, a.pid, syscall.SIGCONT)
			}
			if firstToWake != "agent" {
				send(t, supervisor, syscall.SIGCONT)
			}
			a.expectDead()
			send(t, a.pid, syscall.SIGCONT)
			a.expect("done")
			a.quit()
		})
	}
}

// The whole task is frozen past the deadline and thawed, the job first: it is
// killed before the agent does anything else.
func TestAfterAThawTheJobIsKilled(t *testing.T) {
	a := startAgent(t, standard(shell(deafTree)...))
	launchDeafTree(t, a, instruction{For: 6 * time.Second, RenewEvery: 100 * time.Millisecond})
	supervisor := a.supervisor()
	freeze(t, a.pid, supervisor)
	job := a.jobProcesses()
	for _, pid := range job { // not waited for: one in vfork(2) stops only after its child's exec
		send(t, pid, syscall.SIGSTOP)
	}
	past := boottime.Now().Add(6 * time.Second)
	await(t, "the deadline is past", func() bool { return boottime.Now() > past })
	for _, pid := range append(job, supervisor, a.pid) {
		send(t, pid, syscall.SIGCONT)
	}
	if r := a.expect("done").Result; r.Reason != Deadline {
		t.Errorf("reported as %+v", r)
	}
	a.mustBeDead()
	a.quit()
}

// A freeze of the whole task that ends well before the deadline costs nothing,
// however many heartbeats it took.
func TestAShortFreezeOfTheWholeTaskIsInvisible(t *testing.T) {
	s := standard(shell(`while :; do sleep 0.05; done`)...)
	s.Options.Heartbeat = 2 * time.Second
	a := startAgent(t, s)
	a.order(instruction{Do: "launch", For: time.Hour, RenewEvery: 100 * time.Millisecond})
	job := a.expect("started").Pid
	supervisor := a.supervisor()
	freeze(t, supervisor, a.pid) // the supervisor first: so that it owes acknowledgements
	thaw := boottime.Now().Add(3 * s.Options.Heartbeat)
	await(t, "three heartbeats have passed", func() bool { return boottime.Now() > thaw })
	send(t, a.pid, syscall.SIGCONT) // the agent first: so that it could become impatient
	send(t, supervisor, syscall.SIGCONT)
	select {
	case e := <-a.events:
		t.Fatalf("the agent said %+v", e)
	case <-time.After(time.Second): // nothing happens: there is no event to wait for
	}
	if now := a.supervisor(); now != supervisor {
		t.Error("the supervisor was replaced")
	}
	a.order(instruction{Do: "kill", Reason: LeaseTaken})
	if e := a.expect("done"); e.Result.Reason != LeaseTaken {
		t.Errorf("pid %d reported as %+v", job, e.Result)
	}
	a.quit()
}

// SIGKILL to agent and supervisor, in either order: the job's main process dies
// with the supervisor. (Its descendants only where PID 1's end takes them
// along, as in a container.)
func TestBothKilled(t *testing.T) {
	for _, order := range []string{"agent first", "supervisor first"} {
		t.Run(order, func(t *testing.T) {
			a := startAgent(t, standard(shell(`trap '' TERM; echo up; while :; do sleep 0.05; done`)...))
			a.launch()
			job := a.expect("started").Pid
			a.awaitOutput("up")
			both := []int{a.pid, a.supervisor()}
			if strings.HasPrefix(order, "supervisor") {
				both[0], both[1] = both[1], both[0]
			}
			send(t, both[0], syscall.SIGKILL)
			send(t, both[1], syscall.SIGKILL)
			await(t, "the job is dead", func() bool { s := stateOf(job); return s == 0 || s == 'Z' })
		})
	}
	t.Run("in a container", func(t *testing.T) {
		needPIDNamespace(t)
		s := standard(shell(deafTree)...)
		s.MountProc = true
		a := startAgent(t, s, inPIDNamespace)
		launchDeafTree(t, a, instruction{For: time.Hour})
		send(t, a.supervisor(), syscall.SIGKILL)
		send(t, a.pid, syscall.SIGKILL)
		a.expectDead()
	})
}
