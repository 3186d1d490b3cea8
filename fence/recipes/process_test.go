package recipes_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"solojob/fence"
)

// limit bounds one run of one program, and each wait for one: the AWS CLI alone can
// take ten seconds on a loaded machine.
const limit = 2 * time.Minute

// pollEvery is how often a store is asked whether something has happened in it.
const pollEvery = 50 * time.Millisecond

// withFence is the environment of a job: this machine's without what would lead
// it elsewhere, plus env, plus FENCE if it is not empty.
func withFence(env []string, f string) []string {
	var all []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name != fence.Variable && !strings.HasPrefix(name, "AWS_") && !strings.HasPrefix(name, "SOLOJOB_") {
			all = append(all, variable)
		}
	}
	all = append(all, env...)
	if f != "" {
		all = append(all, fence.Variable+"="+f)
	}
	return all
}

// process is a program that was started, in a process group of its own.
type process struct {
	command *exec.Cmd
	said    lockedBuffer
	ended   chan error // gets what Wait returned, once
}

func start(t *testing.T, folder string, env []string, command ...string) *process {
	t.Helper()
	started := &process{command: exec.Command(command[0], command[1:]...), ended: make(chan error, 1)}
	started.command.Dir = folder
	started.command.Env = env
	started.command.Stdout, started.command.Stderr = &started.said, &started.said
	started.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := started.command.Start(); err != nil {
		t.Fatal(err)
	}
	// Wait returns when the output ends too, with the last process of the group.
	go func() { started.ended <- started.command.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-started.command.Process.Pid, syscall.SIGKILL) })
	return started
}

// output is all that the program has said so far.
func (p *process) output() string { return p.said.String() }

// terminate sends SIGTERM to the program and what it has started.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-p.command.Process.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
}

// wait returns the exit status of the program, -1 if a signal ended it.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err // for who waits again
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return p.command.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("%q has not ended after %s:\n%s", p.command.Args, limit, p.output())
		return 0
	}
}

// eventually waits for something that p is to bring about.
func eventually(t *testing.T, p *process, what string, happened func() bool) {
	t.Helper()
	for until := time.Now().Add(limit); !happened(); time.Sleep(pollEvery) {
		select {
		case err := <-p.ended:
			t.Fatalf("waiting until %s: it has ended (%v):\n%s", what, err, p.output())
		default:
		}
		if time.Now().After(until) {
			t.Fatalf("waiting until %s: it has not after %s:\n%s", what, limit, p.output())
		}
	}
}

// lockedBuffer is written by a process and read by a test.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
