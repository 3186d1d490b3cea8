package proof

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"solojob/fence"
)

// The variables by which a test binary knows that it was started as a job, and
// which one.
const (
	jobVariable  = "FENCE_PROOF_JOB"
	waitVariable = "FENCE_PROOF_WAIT_AT"
)

// deadline bounds each wait for another process. Generous: machines are slow, and
// nothing is measured here.
const deadline = 3 * time.Minute

// A Job is the program of a writer: it makes one fenced write, and calls at with
// the name of each point at which a test may stop it.
type Job func(f int64, at func(point string)) error

// Main is for TestMain: it runs the tests, or, in a process that [Run] started,
// the job, which ends with status 0 or, if it is stale, fence.ExitStale.
func Main(m *testing.M, jobs map[string]Job) {
	name, isJob := os.LookupEnv(jobVariable)
	if !isJob {
		os.Exit(m.Run())
	}
	f, err := fence.FromEnv()
	if err == nil {
		err = jobs[name](f, waitAt(os.Getenv(waitVariable)))
	}
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, fence.ErrStale):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(fence.ExitStale)
	default:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// waitAt says when the job has come to the point, and waits there for a line on
// stdin. The line is only what gives the test time to stop the process: by when it
// is sent, SIGSTOP is what holds it.
func waitAt(point string) func(string) {
	input := bufio.NewReader(os.Stdin)
	return func(here string) {
		if here != point {
			return
		}
		fmt.Println(here)
		if _, err := input.ReadString('\n'); err != nil {
			os.Exit(2) // the test is gone
		}
	}
}

// Outcome is how a job ended.
type Outcome struct {
	Status int    // exit status
	Stderr string // its error, empty if none
}

// Run runs a job to its end in a process of its own.
func Run(t testing.TB, job string, f int64, env ...string) Outcome {
	t.Helper()
	started := start(t, job, f, env)
	return started.wait(t)
}

// RunStopped starts a job, stops its process with SIGSTOP when it has come to the
// point, calls meanwhile, wakes it with SIGCONT, and waits for its end.
func RunStopped(t testing.TB, job string, f int64, point string, meanwhile func(), env ...string) Outcome {
	t.Helper()
	started := start(t, job, f, append(slices.Clone(env), waitVariable+"="+point))
	line, err := started.output.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != point {
		t.Fatalf("the job said %q (%v) instead of %q: %s", line, err, point, started.errors.String())
	}
	started.stop(t)
	if _, err := io.WriteString(started.input, "\n"); err != nil {
		t.Fatalf("write to the stopped job: %v", err)
	}
	meanwhile()
	if err := started.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the job: %v", err)
	}
	return started.wait(t)
}

type process struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	errors  bytes.Buffer
	timer   *time.Timer
}

func start(t testing.TB, job string, f int64, env []string) *process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatalf("find the test binary: %v", err)
	}
	started := &process{command: exec.Command(binary)}
	started.command.Env = append(os.Environ(), env...)
	started.command.Env = append(started.command.Env, jobVariable+"="+job, fence.Variable+"="+strconv.FormatInt(f, 10))
	started.command.Stderr = &started.errors
	if started.input, err = started.command.StdinPipe(); err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	output, err := started.command.StdoutPipe()
	if err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	started.output = bufio.NewReader(output)
	if err := started.command.Start(); err != nil {
		t.Fatalf("start the job: %v", err)
	}
	// A job that hangs is killed, whereupon everything that waits for it fails.
	started.timer = time.AfterFunc(deadline, func() { _ = started.command.Process.Kill() })
	return started
}

// stop returns when the kernel confirms that no thread of the process runs.
func (p *process) stop(t testing.TB) {
	t.Helper()
	if err := p.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("stop the job: %v", err)
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.command.Process.Pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("the job did not stop: %v, status %#x", err, status)
		}
		return
	}
}

func (p *process) wait(t testing.TB) Outcome {
	t.Helper()
	_, _ = io.Copy(io.Discard, p.output) // Wait must not come before the last read
	err := p.command.Wait()
	p.timer.Stop()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("wait for the job: %v", err)
	}
	return Outcome{Status: p.command.ProcessState.ExitCode(), Stderr: strings.TrimSpace(p.errors.String())}
}
