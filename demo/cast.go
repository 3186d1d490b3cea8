package demo

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"solojob/devstore"
)

// cast is the tasks of the demo and the processes that they are made of.
type cast struct {
	self       string
	mark       string // in the environment of each of them
	log        *chronicle
	store      *devstore.Store
	witness    *witness
	recorder   *recorder
	undertaker *charge
	tasks      []*task // the director's goroutine alone changes it
}

// task is what ECS calls so: one agent, its supervisor and its job, with a
// network path to the store of its own.
type task struct {
	name   string
	door   *devstore.Door
	cmd    *exec.Cmd
	gone   chan struct{} // closed when the agent has been waited for
	output *tail
	frozen []int // processes stopped by freeze, the agent apart

	control bool // its agent doesn't take the job with it
}

func assemble(self string, log *chronicle, store *devstore.Store, w *witness, r *recorder) (*cast, error) {
	undertaker, err := hireUndertaker(self)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.living = r.living
	w.mu.Unlock()
	return &cast{self: self, mark: rand.Text(), log: log, store: store, witness: w, recorder: r, undertaker: undertaker}, nil
}

// startSolojob starts a task whose entry point is `solojob run -- <the job>`.
func (c *cast) startSolojob(name, note string) error {
	return c.start(name, note, []string{"run", "--", c.self, PartCommand, "job"}, []string{
		"SOLOJOB_TABLE=" + leaseTable,
		"SOLOJOB_LEASE=" + leaseName,
		"SOLOJOB_LEASE_DURATION=" + lease.String(),
		"SOLOJOB_HEARTBEAT=" + heartbeat.String(),
		"SOLOJOB_POLL=" + poll.String(),
		"SOLOJOB_LOSS_GRACE=" + lossGrace.String(),
		"SOLOJOB_KILL_MARGIN=" + killMargin.String(),
		"SOLOJOB_STOP_GRACE=" + stopGrace.String(),
	})
}

// startControl starts a task of the control: the same job under a TTL lock.
func (c *cast) startControl(name, note string) error {
	if err := c.start(name, note, []string{PartCommand, "ttl-lock"}, nil); err != nil {
		return err
	}
	c.task(name).control = true
	return nil
}

func (c *cast) start(name, note string, args, settings []string) error {
	door, err := c.store.Listen()
	if err != nil {
		return err
	}
	c.witness.introduce(door, name)
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("task %s can't be given an output: %w", name, err)
	}
	defer write.Close()
	t := &task{name: name, door: door, cmd: exec.Command(c.self, args...), gone: make(chan struct{}), output: newTail(read)}
	t.cmd.Env = append(c.environment(name, door), settings...)
	t.cmd.Stdout, t.cmd.Stderr = write, write
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo, which ends them all
	if err := t.cmd.Start(); err != nil {
		t.output.close()
		return fmt.Errorf("task %s can't be started: %w", name, err)
	}
	c.undertaker.watch(t.cmd.Process.Pid)
	c.tasks = append(c.tasks, t)
	c.log.add(Entry{Kind: Started, Task: name, Pid: t.cmd.Process.Pid, Text: note})
	go func() {
		defer close(t.gone)
		t.cmd.Wait()
		c.undertaker.forget(t.cmd.Process.Pid)
		c.log.add(Entry{Kind: Gone, Task: name, Text: t.cmd.ProcessState.String()})
	}()
	return nil
}

// environment is that of this process, without anything that would make a task
// talk to AWS, or to believe that it is in ECS.
func (c *cast) environment(name string, door *devstore.Door) []string {
	var env []string
	for _, v := range os.Environ() {
		if !foreign(v) {
			env = append(env, v)
		}
	}
	return append(env,
		"AWS_ENDPOINT_URL_DYNAMODB="+door.URL(), "AWS_REGION=us-east-1",
		"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local",
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
		envTask+"="+name, envRecorder+"="+c.recorder.address(), envRegister+"="+c.store.URL(),
		envMark+"="+c.mark, envLock+"="+door.URL(), envSelf+"="+c.self)
}

func foreign(variable string) bool {
	for _, prefix := range []string{"AWS_", "SOLOJOB_", "ECS_", "DEMO_", "FENCE="} {
		if strings.HasPrefix(variable, prefix) {
			return true
		}
	}
	return false
}

func (c *cast) task(name string) *task {
	for _, t := range c.tasks {
		if t.name == name {
			return t
		}
	}
	panic("demo: no task is called " + name) // the script is wrong
}

// stop tells a task to stop, as ECS does.
func (c *cast) stop(name, note string) {
	c.log.add(Entry{Kind: Stopped, Task: name, Text: note})
	c.task(name).cmd.Process.Signal(syscall.SIGTERM)
}

// kill ends a task's agent without a warning.
func (c *cast) kill(name, note string) {
	c.log.add(Entry{Kind: Killed, Task: name, Text: note})
	c.task(name).cmd.Process.Kill()
}

// freeze stops all of a task: first the agent and the supervisor, so that
// neither can react to what befalls the job.
func (c *cast) freeze(name, note string) {
	t := c.task(name)
	t.cmd.Process.Signal(syscall.SIGSTOP)
	for _, run := range c.recorder.living(name) {
		if run.Ppid != t.cmd.Process.Pid {
			t.frozen = append(t.frozen, run.Ppid) // the supervisor
		}
		t.frozen = append(t.frozen, run.Pid)
	}
	for _, pid := range t.frozen {
		c.undertaker.watch(pid)
		syscall.Kill(pid, syscall.SIGSTOP)
	}
	c.log.add(Entry{Kind: Frozen, Task: name, Text: note})
}

// thawJob lets a frozen task's job go on, alone.
func (c *cast) thawJob(name, note string) {
	c.log.add(Entry{Kind: JobThawn, Task: name, Text: note})
	for _, run := range c.recorder.living(name) {
		syscall.Kill(run.Pid, syscall.SIGCONT)
	}
}

// thaw lets the rest of a frozen task go on.
func (c *cast) thaw(name, note string) {
	t := c.task(name)
	c.witness.expect(t.door)
	c.log.add(Entry{Kind: Thawed, Task: name, Text: note})
	for _, pid := range t.frozen {
		syscall.Kill(pid, syscall.SIGCONT)
		c.undertaker.forget(pid)
	}
	t.frozen = nil
	t.cmd.Process.Signal(syscall.SIGCONT)
}

// cut silences a task's path to the store of the lease.
func (c *cast) cut(name, note string) {
	t := c.task(name)
	t.door.Cut()
	c.witness.expect(t.door)
	c.log.add(Entry{Kind: Cut, Task: name, Text: note})
}

func (c *cast) heal(name, note string) {
	c.log.add(Entry{Kind: Healed, Task: name, Text: note})
	c.task(name).door.Heal()
}

// dissolution is how long the processes of killed agents get to end by
// themselves, before they are killed one by one and count as left behind.
const dissolution = 10 * time.Second

// dismiss kills every agent and waits until nothing that belonged to the
// tasks is left. It returns the number of processes that had outlived their agents.
func (c *cast) dismiss() (left int) {
	for _, t := range c.tasks {
		t.cmd.Process.Kill() // ends a stopped process, too
		for _, pid := range t.frozen {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, t := range c.tasks {
		<-t.gone
		if t.control {
			for _, run := range c.recorder.living(t.name) {
				syscall.Kill(run.Pid, syscall.SIGKILL)
			}
		}
	}
	left = c.sweep()
	c.undertaker.dismiss()
	for _, t := range c.tasks {
		t.output.close()
	}
	return left
}

// printLogs shows what the tasks printed last: only for somebody who has to find out why
// the demo failed.
func (c *cast) printLogs(out io.Writer) {
	for _, t := range c.tasks {
		fmt.Fprintf(out, "\nThe last that task %s printed:\n%s", t.name, t.output)
	}
}

// tail keeps the end of what a task prints.
type tail struct {
	read *os.File
	done chan struct{}
	mu   sync.Mutex
	kept []byte
}

// tailSize is enough for the last dozen lines of a log.
const tailSize = 2 << 10

func newTail(read *os.File) *tail {
	t := &tail{read: read, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		io.Copy(t, read)
	}()
	return t
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*tailSize {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-tailSize:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := string(t.kept)
	if over := len(kept) - tailSize; over > 0 {
		_, kept, _ = strings.Cut(kept[over:], "\n") // from the start of a line
	}
	return kept
}

// close stops reading, even if somebody still holds the other end.
func (t *tail) close() {
	t.read.Close()
	<-t.done
}
