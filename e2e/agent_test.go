//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"solojob/boottime"
)

// Agent is one process of the built binary, in a directory of its own, with a
// door of its own to the store.
type Agent struct {
	Name string
	Door *Door
	PID  int // of the agent itself

	world    *World
	cmd      *exec.Cmd
	exited   chan struct{}
	readers  sync.WaitGroup
	killed   bool  // the test killed it: it had no chance to release anything
	statuses []int // with which it may end

	mu     sync.Mutex
	lines  []Line
	raw    []string // what is no JSON object
	stdout bytes.Buffer
}

// Line is one line of an agent's log.
type Line struct {
	At     boottime.Instant // when the test read it
	Msg    string
	Fields map[string]any
}

// Text is a field of the line as text, "" where there is none.
func (l Line) Text(field string) string {
	if v, ok := l.Fields[field]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// Start is how an agent is started. The zero value runs the probe in service
// mode with the settings of the world.
type Start struct {
	Name    string
	Timing  *Timing           // other than the world's
	Env     map[string]string // added or replaced; an empty value removes
	Environ []string          // added as it is, even what is there already
	Wrap    []string          // a command in front of the binary, such as unshare
	Options []string          // of solojob run
	Command []string          // instead of "--" and the probe
	Stdin   *os.File
	Stderr  *os.File // instead of the pipe that is read as the log
	Attr    *syscall.SysProcAttr
	Status  []int // with which it may end; 0 by default
}

// arguments are the command line of solojob.
func (s Start) arguments() []string {
	command := s.Command
	if command == nil {
		command = []string{"--", built("probe"), secret}
	}
	return slices.Concat([]string{built("solojob"), "run"}, s.Options, command)
}

// Agents starts n agents called a, b, c…
func (w *World) Agents(n int) []*Agent {
	w.t.Helper()
	agents := make([]*Agent, n)
	for i := range agents {
		agents[i] = w.Start(Start{Name: string(rune('a' + i))})
	}
	return agents
}

// Start starts one agent.
func (w *World) Start(s Start) *Agent {
	w.t.Helper()
	return w.StartThrough(nil, s)
}

// StartThrough starts one agent whose requests meet a fault from the first.
func (w *World) StartThrough(fault func(*Call) Fault, s Start) *Agent {
	w.t.Helper()
	door, err := w.store.newDoor(s.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	if fault != nil {
		door.Set(fault)
	}
	a := &Agent{Name: s.Name, Door: door, world: w, exited: make(chan struct{}), statuses: s.Status}
	if s.Status == nil {
		a.statuses = []int{0}
	}
	argv := append(slices.Clone(s.Wrap), s.arguments()...)
	a.cmd = exec.Command(argv[0], argv[1:]...)
	a.cmd.Dir = w.dir
	a.cmd.Env = w.environ(door, s)
	if s.Stdin != nil {
		a.cmd.Stdin = s.Stdin
	}
	a.cmd.SysProcAttr = s.Attr
	if err := a.start(s.Stderr); err != nil {
		w.t.Fatalf("agent %s can't be started: %v", s.Name, err)
	}
	a.PID = a.cmd.Process.Pid
	w.note(boottime.Now(), "test", "agent %s is process %d", a.Name, a.PID)
	w.mu.Lock()
	w.agents = append(w.agents, a)
	w.mu.Unlock()
	return a
}

// environ is a container's environment: nothing of the machine's own but PATH.
func (w *World) environ(door *Door, s Start) []string {
	timing := w.timing
	if s.Timing != nil {
		timing = *s.Timing
	}
	env := map[string]string{
		"PATH":                      os.Getenv("PATH"),
		"HOME":                      w.dir,
		"AWS_REGION":                "us-east-1",
		"AWS_ACCESS_KEY_ID":         "test",
		"AWS_SECRET_ACCESS_KEY":     "test",
		"AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ENDPOINT_URL_DYNAMODB": door.URL(),
		"SOLOJOB_LEASE":             w.lease,
		"SOLOJOB_LEASE_DURATION":    timing.Lease.String(),
		"SOLOJOB_HEARTBEAT":         timing.Heartbeat.String(),
		"SOLOJOB_POLL":              timing.Poll.String(),
		"SOLOJOB_LOSS_GRACE":        timing.LossGrace.String(),
		"SOLOJOB_KILL_MARGIN":       timing.KillMargin.String(),
		"SOLOJOB_STOP_GRACE":        timing.StopGrace.String(),
		"SOLOJOB_LOG_FORMAT":        "json",
		"PROBE_SOCKET":              w.recorder.Socket(),
	}
	maps.Copy(env, s.Env)
	environ := []string{w.mark()}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if env[name] != "" {
			environ = append(environ, name+"="+env[name])
		}
	}
	return append(environ, s.Environ...)
}

// start launches the process and reads what it writes. The pipes are the
// test's own, so that a job which outlives its agent is still heard.
func (a *Agent) start(stderr *os.File) error {
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	a.cmd.Stdout = outWrite
	defer outWrite.Close()
	a.readers.Go(func() { a.readStdout(outRead) })
	if stderr == nil {
		errRead, errWrite, err := os.Pipe()
		if err != nil {
			return err
		}
		defer errWrite.Close()
		stderr = errWrite
		a.readers.Go(func() { a.readLog(errRead) })
	}
	a.cmd.Stderr = stderr
	if err := a.cmd.Start(); err != nil {
		return err
	}
	a.readers.Go(func() {
		_ = a.cmd.Wait() // its status is in ProcessState
		a.world.note(boottime.Now(), a.Name, "ended with %d", a.cmd.ProcessState.ExitCode())
		close(a.exited)
		a.world.changed()
	})
	return nil
}

func (a *Agent) readStdout(from *os.File) {
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		a.mu.Lock()
		a.stdout.Write(buffer[:n])
		a.mu.Unlock()
		if err != nil {
			return
		}
		a.world.changed()
	}
}

func (a *Agent) readLog(from *os.File) {
	defer from.Close()
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadString('\n')
		if text = strings.TrimSuffix(text, "\n"); text != "" {
			a.logged(text)
		}
		if err != nil {
			return
		}
	}
}

func (a *Agent) logged(text string) {
	at := boottime.Now()
	var fields map[string]any
	numbers := json.NewDecoder(strings.NewReader(text))
	numbers.UseNumber()
	err := numbers.Decode(&fields)
	a.mu.Lock()
	if err != nil {
		a.raw = append(a.raw, text)
	} else {
		msg, _ := fields["msg"].(string)
		a.lines = append(a.lines, Line{at, msg, fields})
	}
	a.mu.Unlock()
	a.world.note(at, a.Name, "%s", text)
}

// Signal sends a signal to the agent alone.
func (a *Agent) Signal(s syscall.Signal) {
	select {
	case <-a.exited:
	default:
		a.world.note(boottime.Now(), "test", "%v to agent %s", s, a.Name)
		if s == syscall.SIGKILL {
			a.killed = true
		}
		_ = syscall.Kill(a.PID, s)
	}
}

// Status is the exit status, as a shell would show it; -1 while it runs.
func (a *Agent) Status() int {
	select {
	case <-a.exited:
	default:
		return -1
	}
	if status, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return a.cmd.ProcessState.ExitCode()
}

// Ended waits for the agent's end, and tells its status.
func (a *Agent) Ended() int {
	a.world.t.Helper()
	a.world.Until("agent "+a.Name+" ends", patience, func() bool { return a.Status() >= 0 })
	return a.Status()
}

// Running reports whether the agent has not ended.
func (a *Agent) Running() bool { return a.Status() < 0 }

// Stdout is what agent and job have written to stdout.
func (a *Agent) Stdout() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stdout.String()
}

// Lines are the log lines with a message.
func (a *Agent) Lines(msg string) []Line {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []Line
	for _, l := range a.lines {
		if l.Msg == msg {
			found = append(found, l)
		}
	}
	return found
}

// Logged waits for the n-th line with a message, counted from 1.
func (a *Agent) Logged(msg string, n int) Line {
	a.world.t.Helper()
	a.world.Until(fmt.Sprintf("agent %s logs %q (%d)", a.Name, msg, n), patience, func() bool { return len(a.Lines(msg)) >= n })
	return a.Lines(msg)[n-1]
}

// Owner is the name under which the agent competes, "" before its first line.
func (a *Agent) Owner() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.lines {
		if owner := l.Text("owner"); owner != "" {
			return owner
		}
	}
	return ""
}

// logProblems are the lines that break the contract of the log.
func (a *Agent) logProblems() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var problems []string
	problem := func(line string, why string) {
		problems = append(problems, fmt.Sprintf("agent %s logged what %s: %s", a.Name, why, line))
	}
	for _, text := range a.raw {
		if !strings.HasPrefix(text, "unshare: ") { // it has a word to say when it is killed
			problem(text, "is no JSON object")
		}
	}
	for _, l := range a.lines {
		text, _ := json.Marshal(l.Fields)
		if l.Msg == "" || l.Text("lease") == "" || l.Text("owner") == "" {
			problem(string(text), "lacks msg, lease or owner")
		}
		if strings.Contains(string(text), secret) {
			problem(string(text), "shows the job's arguments")
		}
	}
	return problems
}

// Supervisor is the process between the agent and a job.
func (a *Agent) Supervisor(l *Life) int {
	a.world.t.Helper()
	supervisor := 0
	a.world.Until(fmt.Sprintf("%v has a supervisor under agent %s", l, a.Name), patience, func() bool {
		supervisor = parentOf(l.PID)
		return supervisor > 0 && parentOf(supervisor) == a.PID
	})
	return supervisor
}

// parentOf reads the parent's process id; 0 if there is no such process.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// signalProcess sends a signal to one process of the world.
func (w *World) signalProcess(pid int, s syscall.Signal, who string) boottime.Instant {
	w.t.Helper()
	w.note(boottime.Now(), "test", "%v to %s (%d)", s, who, pid)
	if err := syscall.Kill(pid, s); err != nil {
		w.t.Fatalf("%v to %s (%d): %v", s, who, pid, err)
	}
	return boottime.Now()
}

// within fails the test when something took longer than a generous bound, and
// logs the time it took.
func (w *World) within(what string, took, bound time.Duration) {
	w.t.Helper()
	w.t.Logf("%s: %v", what, took.Round(time.Millisecond))
	if took > bound {
		w.t.Errorf("%s took %v, more than %v", what, took, bound)
	}
}
