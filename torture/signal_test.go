//go:build linux

package torture

import (
	"slices"
	"syscall"
	"time"

	"solojob/boottime"
)

// part finds one part of a task, or several, among the processes below it.
type part func(t *Task, tree []Process) []Process

func theAgent(t *Task, _ []Process) []Process { return []Process{t.self} }

// theSupervisor is each child of the agent that executes its program: the one
// with the job, and its successor.
func theSupervisor(t *Task, tree []Process) []Process {
	return slices.DeleteFunc(slices.Clone(tree), func(p Process) bool {
		return p.parent != t.self.pid || !p.runs(program("solojob"))
	})
}

func theJob(_ *Task, tree []Process) []Process {
	return slices.DeleteFunc(slices.Clone(tree), func(p Process) bool { return !p.runs(program("actor")) })
}

// aDescendant is each process that is neither supervisor nor job.
func aDescendant(_ *Task, tree []Process) []Process {
	return slices.DeleteFunc(slices.Clone(tree), func(p Process) bool {
		return p.runs(program("actor")) || p.runs(program("solojob"))
	})
}

func (t *Task) find(parts ...part) []Process {
	tree := below(t.self.pid)
	var found []Process
	for _, p := range parts {
		found = append(found, p(t, tree)...)
	}
	return found
}

func signalEach(processes []Process, s syscall.Signal) {
	for _, p := range processes {
		p.signal(s)
	}
}

func kill(which part) func(*Chaos, *Slot) func() {
	return func(_ *Chaos, s *Slot) func() {
		if t := s.current(); t != nil {
			victims := t.find(which)
			if slices.Contains(victims, t.self) {
				t.killed.Store(true)
			}
			signalEach(victims, syscall.SIGKILL)
		}
		return nil
	}
}

// killTask is a machine that loses its power: everything at once, as far as a
// loop of kills can do that.
func killTask(_ *Chaos, s *Slot) func() {
	if t := s.current(); t != nil {
		t.killAll()
	}
	return nil
}

// killAll freezes everything first, so that nothing acts on the death of the
// rest. What was started all the same is killed by its mark: outside a PID
// namespace nobody else would do it when both keepers are dead.
func (t *Task) killAll() {
	t.killed.Store(true)
	t.stopped(true)
	everything := t.freeze()
	signalEach(everything, syscall.SIGKILL)
	until(patience, func() bool {
		left := marked(taskVariable + t.name)
		signalEach(left, syscall.SIGKILL)
		return len(left) == 0
	})
	t.stopped(false)
}

func freeze(which ...part) func(*Chaos, *Slot) func() {
	return func(_ *Chaos, s *Slot) func() {
		t := s.current()
		if t == nil {
			return nil
		}
		victims := t.find(which...)
		signalEach(victims, syscall.SIGSTOP)
		return func() { signalEach(victims, syscall.SIGCONT) }
	}
}

// freeze stops the whole task, and returns what it stopped: it looks again
// until nothing has been started meanwhile.
func (t *Task) freeze() []Process {
	var frozen []Process
	for {
		news := slices.DeleteFunc(append([]Process{t.self}, below(t.self.pid)...), func(p Process) bool {
			return slices.ContainsFunc(frozen, func(f Process) bool { return f.pid == p.pid && f.started == p.started })
		})
		if len(news) == 0 {
			return frozen
		}
		signalEach(news, syscall.SIGSTOP)
		frozen = append(frozen, news...)
	}
}

// freezeTask is the one thing that P1 does not cover: neither the agent nor its
// supervisor can act. The job may wake up before them: then it writes with a
// FENCE that may be stale.
func freezeTask(c *Chaos, s *Slot) func() {
	t := s.current()
	if t == nil {
		return nil
	}
	t.touched.Store(true)
	t.stopped(true)
	frozen := t.freeze()
	c.random.Shuffle(len(frozen), func(i, j int) { frozen[i], frozen[j] = frozen[j], frozen[i] })
	var ahead time.Duration // by which the job wakes up first
	if c.random.IntN(2) == 0 {
		ahead = time.Duration(c.random.IntN(400)) * time.Millisecond
	}
	return func() {
		if ahead > 0 {
			signalEach(theJob(t, frozen), syscall.SIGCONT)
			time.Sleep(ahead)
		}
		signalEach(frozen, syscall.SIGCONT)
		t.stopped(false)
	}
}

func freezeAll(c *Chaos, _ *Slot) func() {
	var thaw []func()
	for _, s := range c.world.slots {
		s.ailing.Add(1)
		if undo := freezeTask(c, s); undo != nil {
			thaw = append(thaw, undo)
		}
	}
	return func() {
		for _, undo := range thaw {
			undo()
		}
		for _, s := range c.world.slots {
			s.ailing.Add(-1)
		}
	}
}

// stopOneKillOther takes away both keepers. A supervisor that is stopped wakes
// up when its agent dies, and does its part: that is covered by P1. An agent
// does not when its supervisor dies: that is excused.
func stopOneKillOther(one, other part) func(*Chaos, *Slot) func() {
	return func(_ *Chaos, s *Slot) func() {
		t := s.current()
		if t == nil {
			return nil
		}
		stopped, killed := t.find(one), t.find(other)
		agentStops := slices.Contains(stopped, t.self)
		if agentStops {
			t.stopped(true)
		} else {
			t.killed.Store(true)
		}
		signalEach(stopped, syscall.SIGSTOP)
		signalEach(killed, syscall.SIGKILL)
		return func() {
			if agentStops { // the others have been woken by their agent's death, or are dead
				signalEach(stopped, syscall.SIGCONT)
				t.stopped(false)
			}
		}
	}
}

// up reports whether the agent has its handlers: it has started a supervisor.
// Before that a SIGTERM ends the runtime of Go, with a status of its own.
func (t *Task) up() bool { return len(t.find(theSupervisor)) > 0 }

func deploy(_ *Chaos, s *Slot) func() {
	if t := s.current(); t != nil && t.up() {
		t.self.signal(syscall.SIGTERM)
	}
	return nil
}

// deployTwice is somebody who presses Ctrl-C until it helps.
func deployTwice(c *Chaos, s *Slot) func() {
	t := s.current()
	if t == nil || !t.up() {
		return nil
	}
	pause := time.Duration(c.random.IntN(500)) * time.Millisecond
	t.self.signal(syscall.SIGTERM)
	c.doing.Go(func() {
		for range 2 {
			time.Sleep(pause)
			t.slot.world.note(boottime.Now(), "torture", "TERM again to %s", t.name)
			t.self.signal(syscall.SIGTERM)
		}
	})
	return nil
}
