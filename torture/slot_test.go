//go:build linux

package torture

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"solojob/boottime"
)

// Slot is a place for a task, as a service of ECS keeps it filled: a network,
// a forwarder in it, and one task after another.
type Slot struct {
	name    string
	world   *World
	random  *rand.Rand // of the slot's own loop
	door    *Door
	network *Network
	groups  *Groups
	ownPIDs bool // each task is the first process of a PID namespace
	wall    string

	// ailing counts what chaos has done to the slot and not yet undone.
	ailing atomic.Int32

	mu        sync.Mutex
	task      *Task // the current one
	tasks     int
	forwarder Process // zero between two
	closing   bool    // nothing is started any more
}

func newSlot(w *World, n int, seed uint64) (*Slot, error) {
	s := &Slot{
		name:  fmt.Sprintf("%s%d", w.name, n),
		world: w, random: rand.New(rand.NewPCG(seed, uint64(n))),
		ownPIDs: w.namespaces && n%2 == 0, groups: &Groups{},
	}
	s.wall = filepath.Join(w.dir, s.name+".wall")
	var err error
	if s.network, err = newNetwork(w.namespaces); err != nil {
		return nil, err
	}
	if w.namespaces {
		s.groups = newGroups(fmt.Sprintf("torture-%d-%s", os.Getpid(), s.name))
	}
	s.door, err = newDoor(w.store, s.name, seed+uint64(n))
	return s, err
}

// run keeps the slot filled until the world stops.
func (s *Slot) run() {
	s.world.goes.Go(s.forward)
	for {
		t := s.start()
		if t == nil {
			return
		}
		<-t.exited
		select {
		case <-time.After(time.Duration(s.random.IntN(1500)) * time.Millisecond):
		case <-s.world.emptying:
		}
	}
}

// forward keeps the forwarder running.
func (s *Slot) forward() {
	for {
		c := exec.Command(program("actor"), "forward", s.door.socket)
		c.ExtraFiles = []*os.File{s.network.listener} // descriptor 3
		s.mu.Lock()
		if s.closing {
			s.mu.Unlock()
			return
		}
		if err := s.network.start(c); err != nil {
			s.mu.Unlock()
			s.world.violate("harness", "no forwarder for %s: %v", s.name, err)
			return
		}
		s.forwarder, _ = look(c.Process.Pid)
		s.mu.Unlock()
		_ = c.Wait() // killed by chaos, or at the end
	}
}

// current is the task that is running, or nil.
func (s *Slot) current() *Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.task == nil || s.task.ended() {
		return nil
	}
	return s.task
}

// forwarding is the forwarder's process.
func (s *Slot) forwarding() Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forwarder
}

// vacate ends the slot's own loops; its task has ended.
func (s *Slot) vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.forwarder.signal(syscall.SIGKILL)
}

// start starts the next task, or returns nil if there is to be none.
func (s *Slot) start() *Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.world.isEmptying() {
		return nil
	}
	s.tasks++
	t := &Task{
		name: fmt.Sprintf("%s.%d", s.name, s.tasks), slot: s,
		hears: hearings[s.random.IntN(len(hearings))], exited: make(chan struct{}),
	}
	if err := t.start(s.random); err != nil {
		s.world.violate("harness", "task %s can't be started: %v", t.name, err)
		return nil
	}
	s.task = t
	s.world.enrol(t)
	return t
}

// environ is a container's environment.
func (s *Slot) environ(t *Task) []string {
	w := s.world
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir,
		"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_ENDPOINT_URL_DYNAMODB=" + s.network.url,
		"SOLOJOB_TABLE=" + tableName, "SOLOJOB_LEASE=" + w.name,
		"SOLOJOB_LEASE_DURATION=" + lease.String(), "SOLOJOB_HEARTBEAT=" + heartbeat.String(),
		"SOLOJOB_POLL=" + poll.String(), "SOLOJOB_LOSS_GRACE=" + lossGrace.String(),
		"SOLOJOB_KILL_MARGIN=" + killMargin.String(), "SOLOJOB_STOP_GRACE=" + stopGrace.String(),
		"SOLOJOB_LOG_FORMAT=json",
		wallVariable + "=" + s.wall,
		"TORTURE_RECORDER=" + w.recorder.socket(), taskVariable + t.name, w.mark(),
		"TORTURE_JOB=" + w.kind.mode(),
	}
	return append(env, w.kind.settings...)
}

// taskVariable marks each process of a task but the supervisors.
const taskVariable = "TORTURE_TASK="

// Task is one process of the built binary, and what hangs on it.
type Task struct {
	name   string
	slot   *Slot
	hears  hearing
	stuck  *os.File // the end of the pipe that nobody reads
	cmd    *exec.Cmd
	self   Process
	began  boottime.Instant
	exited chan struct{}

	// killed: chaos killed the agent, or what it depends on; its last words
	// may be lost.
	killed atomic.Bool
	// touched: chaos did something to its processes, or gave it less than it
	// needs; it may not know how its job ended.
	touched atomic.Bool

	mu     sync.Mutex
	excuse excuse
	owner  string // by its log
}

// excuse is the time in which neither the agent nor its supervisor can act,
// because chaos has stopped both.
type excuse struct {
	on    bool
	until boottime.Instant // when they have had time to act
}

// thawing is how long a task that was stopped as a whole may take to kill its
// job: the margin that it is given for that, twice.
const thawing = 2 * killMargin

func (t *Task) stopped(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.excuse = excuse{on, boottime.Now().Add(thawing)}
}

// excused reports whether the task's job may overlap with its successor.
func (t *Task) excused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.excuse.on || boottime.Now() < t.excuse.until
}

func (t *Task) ended() bool {
	select {
	case <-t.exited:
		return true
	default:
		return false
	}
}

// start starts the process, in surroundings that are chosen anew each time.
func (t *Task) start(random *rand.Rand) error {
	s := t.slot
	args := []string{"enter"}
	var groups string
	env := s.environ(t)
	switch n := random.IntN(10); {
	case n < 2 && s.groups.starved != "":
		groups = s.groups.starved
		env = append(env, "TORTURE_BUSY=1")
		s.world.count("fault: starved task")
	case n < 4 && s.groups.narrow != "":
		groups = s.groups.narrow
		env = append(env, "TORTURE_HUNGRY=1")
		s.world.count("fault: hungry task")
	}
	if groups != "" {
		args = append(args, "-cgroups", groups)
		t.touched.Store(true)
	}
	if s.ownPIDs {
		args = append(args, "-proc")
	}
	if t.hears == hearsClosed {
		args = append(args, "-closed")
	}
	args = append(args, "--", program("solojob"), "run", "--", program("actor"), "job")
	t.cmd = exec.Command(program("actor"), args...)
	t.cmd.Dir, t.cmd.Env = s.world.dir, env
	if s.ownPIDs {
		t.cmd.SysProcAttr = ownPIDs()
	}
	after, err := t.hear()
	if err != nil {
		return err
	}
	err = s.network.start(t.cmd)
	after()
	if err != nil {
		return err
	}
	t.began = boottime.Now()
	if t.self, _ = look(t.cmd.Process.Pid); t.self.pid == 0 {
		t.self.pid = t.cmd.Process.Pid // it has ended already; no signal fits it
	}
	s.world.count("tasks")
	s.world.note(t.began, "torture", "task %s is process %d, stderr %s %s", t.name, t.self.pid, t.hears, filepath.Base(groups))
	s.world.goes.Go(t.wait)
	return nil
}

func (t *Task) wait() {
	_ = t.cmd.Wait() // its status is in ProcessState
	status := t.cmd.ProcessState.ExitCode()
	if ws, ok := t.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		status = 128 + int(ws.Signal())
		t.killed.Store(true) // by the kernel, if not by chaos
	}
	if t.stuck != nil {
		t.stuck.Close()
	}
	t.slot.world.note(boottime.Now(), t.name, "ended with %d", status)
	t.slot.world.count(fmt.Sprintf("status: %d", status))
	if reason := badStatus(status); reason != "" {
		t.slot.world.violate("exit status", "task %s ended with %d: %s", t.name, status, reason)
	}
	close(t.exited)
}

// badStatus says why a task may not end so. A job's own statuses are 0, 3 and
// 4; a job that is killed, 128 and the signal's number.
func badStatus(status int) string {
	switch status {
	case 0, 3, 4, 128 + int(syscall.SIGTERM):
		return ""
	case 128 + int(syscall.SIGKILL):
		return "" // the agent by chaos or the kernel, or its job
	case 69:
		return "" // it was refused at its start
	case 79:
		return "" // its job would not die in time: the kernel ends the rest, or a violation says so
	case 99:
		return "the actor could not play its part"
	default:
		return "neither a job's status nor one that chaos can cause"
	}
}
