package runner

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"solojob/boottime"
	"solojob/signals"
)

// Supervise turns the process into a supervisor if that is what it was started
// as, and then never returns; in every other process it returns at once. Call
// it in main before anything of weight, on the main goroutine, which main has
// locked to the main thread in an init.
//
// A supervisor serves one run: it waits for a launch, sees the job through,
// reports its end and exits. It writes nothing to standard error, where it
// could block; what there is to say it tells its agent.
func Supervise() {
	if len(os.Args) == 0 || os.Args[0] != supervisorName {
		return
	}
	runtime.LockOSThread()
	signals.Discard()
	os.Exit(supervise())
}

// The supervisor's exit statuses, for the agent's log.
const (
	supervisorDone   = 0
	supervisorFailed = 70 // EX_SOFTWARE of sysexits.h
)

func supervise() int {
	nameProcess("solojob-super")
	for _, prepare := range []func() error{adoptOrphans, sealDescriptors, cleanSignals} {
		if prepare() != nil {
			return supervisorFailed
		}
	}
	reserveThreads(spareSupervisorThreads)
	sleeper, err := newSleeper()
	if err != nil {
		return supervisorFailed
	}
	s := &supervisor{
		sleeper: sleeper,
		control: inbox{fd: controlFD},
		report:  outbox{fd: reportFD},
	}
	forgetProgram()
	s.report.put(frameReady, nil)
	s.loop()
	return supervisorDone
}

// supervisor owns the job.
type supervisor struct {
	sleeper *sleeper
	control inbox
	report  outbox
	acked   int64 // sequence number that was acknowledged last
	heard   int64 // sequence number that was acted upon last

	order    *order // once the launch came
	limits   limits
	main     int  // pid of the job's main process, which is also its group; zero before
	reaped   bool // main has ended: its pid may be somebody else's
	ending   ending
	finished bool // the ending is on its way
	broom    broom
}

// loop runs until the ending is delivered, or until there is nobody to deliver
// it to and no job left.
func (s *supervisor) loop() {
	for {
		// The order matters. After a pause of any length: first what the agent
		// had to say meanwhile, then who has ended, and only then the clock.
		s.control.empty(s.obey)
		none := reap(s.note)
		switch {
		case s.control.eof && s.order == nil:
			return // nothing was ever started
		case s.control.eof:
			s.do(s.limits.kill(AgentEnds))
		}
		if s.order != nil && !s.finished {
			if s.main == 0 {
				s.launch()
				none = false
			} else {
				s.watch(none)
			}
		}
		if s.heard > s.acked && !s.report.full() {
			s.report.put(frameAck, putInt(nil, s.heard))
			s.acked = s.heard
		}
		s.report.flush()
		if s.finished && (!s.report.full() || s.report.gone || s.control.eof) {
			return
		}
		s.sleeper.sleep(s.next(), s.control.poll(), s.report.poll())
	}
}

// obey acts on one message of the agent. What it does not understand it does
// not act on at all.
func (s *supervisor) obey(f frame) bool {
	switch f.kind {
	case frameLaunch:
		o, ok := decodeOrder(&f.body)
		if !ok || s.order != nil {
			return false
		}
		s.order = &o
		s.limits = limits{
			validUntil: o.validUntil,
			grace:      o.grace,
			margin:     o.margin,
			timeout:    o.timeout,
			stopGrace:  o.stopGrace,
		}
	case frameExtend:
		validUntil := boottime.Instant(f.body.int())
		if !f.body.whole() {
			return false
		}
		s.limits.extend(validUntil)
	case frameStop:
		killAt := boottime.Instant(f.body.int())
		if !f.body.whole() {
			return false
		}
		s.do(s.limits.stop(Stopped, killAt))
	case frameKill:
		reason := Reason(f.body.string())
		if !f.body.whole() {
			return false
		}
		s.do(s.limits.kill(reason))
	case frameForward:
		sig := syscall.Signal(f.body.int())
		if !f.body.whole() {
			return false
		}
		if s.alive() {
			signalGroup(s.main, sig)
		}
	default:
		return false
	}
	s.heard = f.seq
	return true
}

// alive reports whether the main process was started and not yet reaped: only
// then is its pid its own.
func (s *supervisor) alive() bool { return s.main > 0 && !s.reaped }

// launch executes the job, unless it was told to stop or the deadline is too
// near by now. It comes right after the control pipe was read empty.
func (s *supervisor) launch() {
	s.limits.judge(boottime.Now())
	if s.limits.stopping || s.limits.killing {
		s.ending.reason = s.limits.reason
		s.finish()
		return
	}
	pid, err := syscall.ForkExec(s.order.path, s.order.command, &syscall.ProcAttr{
		Env:   s.order.env,
		Files: []uintptr{0, 1, 2},
		Sys:   jobAttributes(),
	})
	if err != nil {
		if !errors.As(err, &s.ending.errno) {
			s.ending.errno = syscall.EINVAL // an argument with a zero byte, which never reached the kernel
		}
		s.finish()
		return
	}
	s.main = pid
	s.ending.launched = true
	s.ending.started = now()
	s.limits.started = s.ending.started.Boot
	s.report.put(frameStarted, putMoment(putInt(nil, int64(pid)), s.ending.started))
	// Back to the loop without a sleep: a freeze between the judgement and the
	// execution must show at once.
	s.sleeper.wake()
}

// watch applies the limits to the running job, and ends the run when nobody is left.
func (s *supervisor) watch(none bool) {
	s.do(s.limits.judge(boottime.Now()))
	if s.reaped && treeGone(none, s.main) {
		s.finish()
		return
	}
	if s.limits.killing || s.reaped {
		s.broom.sweep(s.main)
	}
}

// do carries a verdict out.
func (s *supervisor) do(v verdict) {
	if v == letRun || !s.alive() {
		return // nothing to do, or nobody to do it to: watch sweeps up the rest
	}
	s.ending.signalled = true
	switch v {
	case sendStop:
		// CONT after it, so that a stopped job gets to see it.
		signalGroup(s.main, s.order.stopSignal)
		signalGroup(s.main, syscall.SIGCONT)
	case sendKill:
		signalGroup(s.main, syscall.SIGKILL)
	}
}

// note takes down what ended. Of the job's orphans it only matters that they did.
func (s *supervisor) note(pid int, ws syscall.WaitStatus) {
	s.broom.died()
	if pid != s.main || s.reaped {
		return
	}
	s.reaped = true
	s.ending.status = ws
	s.ending.ended = now()
	s.ending.reason = s.limits.reason
}

func (s *supervisor) finish() {
	s.finished = true
	s.report.put(frameDead, s.ending.encode())
}

// next is when to wake at the latest.
func (s *supervisor) next() boottime.Instant {
	switch {
	case s.order == nil || s.finished:
		return 0
	case s.limits.killing || s.reaped:
		return s.broom.next
	}
	return s.limits.next()
}
