package runner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"solojob/boottime"
	"solojob/signals"
)

// The test binary plays every part: started with a role as its first argument
// it is an agent, a job or an unpleasant parent; as supervisor, Host starts it.
const (
	roleAgent    = "role=agent"
	roleParent   = "role=unpleasant-parent"
	roleEscape   = "role=escape"
	roleForkLoop = "role=fork-loop"
)

func init() { runtime.LockOSThread() } // as main does

func TestMain(m *testing.M) {
	Supervise()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleAgent:
			os.Exit(playAgent())
		case roleParent:
			os.Exit(playUnpleasantParent())
		case roleEscape:
			os.Exit(playEscape(os.Args[2:]))
		case roleForkLoop:
			os.Exit(playForkLoop(os.Args[2] == "in sessions of their own"))
		}
	}
	// Whatever a failing test leaves behind becomes ours, and is killed.
	if err := adoptOrphans(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// testPatience bounds every wait for something that must happen: generous, since
// the machine may be slow, loaded, and running under the race detector.
const testPatience = 60 * time.Second

// The agent's descriptors for the test: it is told what to do on one, and
// tells what happens on the other.
const (
	ordersFD = 3
	eventsFD = 4
)

// setup is what an agent is started with.
type setup struct {
	Options   Options
	MountProc bool // it is PID 1 of a namespace, and needs a /proc of its own
	Processes int  // RLIMIT_NPROC, under a user of its own; 0: none
}

// standard is a setup for tests in which nothing is late: its deadlines are
// far away for a slow machine, too.
func standard(command ...string) setup {
	return setup{Options: Options{
		Command:    command,
		LossGrace:  500 * time.Millisecond,
		KillMargin: time.Second,
		Heartbeat:  2 * time.Second,
	}}
}

// slowMargin is for tests that assert death before the deadline on whatever
// machine runs them.
const slowMargin = 2 * time.Second

const lease = 30 * time.Second

// instruction is one line from the test to the agent.
type instruction struct {
	Do         string
	Launch     Launch
	For        time.Duration // from now on
	RenewEvery time.Duration // with launch: extend by For, again and again
	Reason     Reason
	Signal     int
	Code       int
}

// event is one line from the agent to the test.
type event struct {
	What    string // ready, started, done, returned, failed
	Pid     int
	Result  Result
	ExecErr string
	Code    int
	Error   string
	At      boottime.Instant
	Until   boottime.Instant // with done: the last deadline
}

// playAgent is an agent as the lease's holder would be, but obeys the test.
func playAgent() int {
	caught := signals.Catch()
	orders := bufio.NewReader(os.NewFile(ordersFD, "orders"))
	events := json.NewEncoder(os.NewFile(eventsFD, "events"))
	var s setup
	line, err := orders.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 99
	}
	if err := settleIn(s); err != nil {
		events.Encode(event{What: "failed", Error: err.Error()})
		return 99
	}
	s.Options.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	code, err := Host(s.Options, func(h *Hosted) int {
		events.Encode(event{What: "ready", Pid: os.Getpid()})
		return obeyTest(h, orders, events, caught)
	})
	returned := event{What: "returned", Code: code}
	if err != nil {
		returned.Error = err.Error()
	} else if err := goleak.Find(goleak.IgnoreAnyFunction("os/signal.loop"), goleak.IgnoreAnyFunction("os/signal.signal_recv"), goleak.IgnoreAnyFunction("runtime.ensureSigM.func1")); err != nil {
		returned.Error = err.Error()
	}
	events.Encode(returned)
	return code
}

func obeyTest(h *Hosted, orders *bufio.Reader, events *json.Encoder, caught signals.Caught) int {
	instructions := make(chan instruction)
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		defer close(instructions)
		for {
			line, err := orders.ReadBytes('\n')
			var i instruction
			if err != nil || json.Unmarshal(line, &i) != nil {
				return
			}
			instructions <- i
			if i.Do == "quit" {
				return
			}
		}
	}()
	var run *Run
	var started, done <-chan struct{}
	var renew <-chan time.Time
	var ticker *time.Ticker
	var term time.Duration
	var until boottime.Instant
	for {
		select {
		case <-renew:
			until = boottime.Now().Add(term)
			run.Extend(until)
		case <-started:
			started = nil
			events.Encode(event{What: "started", Pid: run.Pid(), At: boottime.Now()})
		case <-done:
			done, renew = nil, nil
			r := run.Result()
			e := event{What: "done", Result: r, At: boottime.Now(), Until: until}
			if r.ExecErr != nil {
				e.ExecErr = r.ExecErr.Error()
				e.Result.ExecErr = nil
			}
			select {
			case <-started:
				started = nil
				events.Encode(event{What: "started", Pid: run.Pid()})
			default:
			}
			events.Encode(e)
		case sig := <-caught.Stop:
			events.Encode(event{What: "signal", Code: int(sig.(syscall.Signal))})
		case sig := <-caught.Pass:
			h.Forward(sig.(syscall.Signal))
		case i, ok := <-instructions:
			if !ok {
				return 98
			}
			switch i.Do {
			case "launch":
				term = i.For
				until = boottime.Now().Add(term)
				i.Launch.ValidUntil = until
				run = h.Launch(i.Launch)
				started, done = run.Started(), run.Done()
				if ticker != nil {
					ticker.Stop()
				}
				if i.RenewEvery > 0 {
					ticker = time.NewTicker(i.RenewEvery)
					defer ticker.Stop()
					renew = ticker.C
				}
			case "extend":
				until = boottime.Now().Add(i.For)
				run.Extend(until)
			case "stop":
				run.Stop(boottime.Now().Add(i.For))
			case "kill":
				run.Kill(i.Reason)
			case "forward":
				h.Forward(syscall.Signal(i.Signal))
			case "stop-renewing":
				renew = nil
			case "quit":
				<-readerDone
				return i.Code
			}
		}
	}
}

// agent is an agent process as the test sees it.
type agent struct {
	t      *testing.T
	cmd    *exec.Cmd
	orders *os.File
	events chan event
	output string // path of its, and the job's, stdout and stderr
	tag    string // in the environment of the job and all its descendants
	pid    int
	runs   int // launched so far
	waited chan struct{}
}

// startAgent starts an agent and waits until it is ready.
func startAgent(t *testing.T, s setup, how ...func(*exec.Cmd)) *agent {
	t.Helper()
	a := startAgentUnready(t, s, how...)
	a.pid = a.cmd.Process.Pid
	a.expect("ready")
	return a
}

func startAgentUnready(t *testing.T, s setup, how ...func(*exec.Cmd)) *agent {
	t.Helper()
	if s.Options.Path == "" {
		path, err := Resolve(s.Options.Command)
		if err != nil {
			t.Fatal(err)
		}
		s.Options.Path = path
	}
	a := &agent{
		t:      t,
		output: filepath.Join(t.TempDir(), "output"),
		tag:    fmt.Sprintf("RUNNER_TEST_TAG=%s-%d", t.Name(), boottime.Now()),
		events: make(chan event, 100),
		waited: make(chan struct{}),
	}
	output, err := os.Create(a.output)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	ordersR, ordersW := osPipe(t)
	eventsR, eventsW := osPipe(t)
	a.orders = ordersW
	a.cmd = exec.Command("/proc/self/exe", roleAgent)
	if runtime.GOOS != "linux" {
		a.cmd.Path, _ = os.Executable()
	}
	a.cmd.Stdout, a.cmd.Stderr = output, output
	a.cmd.ExtraFiles = []*os.File{ordersR, eventsW}
	for _, change := range how {
		change(a.cmd)
	}
	if err := a.cmd.Start(); err != nil {
		ordersW.Close()
		t.Fatal(err)
	}
	ordersR.Close()
	eventsW.Close()
	go func() {
		defer close(a.events)
		defer eventsR.Close()
		decoder := json.NewDecoder(eventsR)
		for {
			var e event
			if decoder.Decode(&e) != nil {
				return
			}
			a.events <- e
		}
	}()
	go func() {
		defer close(a.waited)
		a.cmd.Wait()
	}()
	t.Cleanup(a.cleanUp)
	a.write(s)
	return a
}

func osPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// cleanUp ends whatever is left of the agent, its supervisor and its job.
func (a *agent) cleanUp() {
	a.orders.Close()
	a.cmd.Process.Kill() // not by pid, which is somebody else's if it was waited for
	<-a.waited
	killStrays()
	if a.t.Failed() {
		a.t.Logf("output of agent and job:\n%s", a.read())
	}
	for range a.events { // its reader ends at end-of-file
	}
}

func (a *agent) write(v any) {
	a.t.Helper()
	line, err := json.Marshal(v)
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.orders.Write(append(line, '\n')); err != nil {
		a.t.Errorf("the agent takes no orders: %v", err)
	}
}

// launch starts the job with a lease that is renewed for as long as the agent lives.
func (a *agent) launch(env ...string) {
	a.t.Helper()
	a.order(instruction{Do: "launch", For: lease, RenewEvery: 2 * time.Second, Launch: Launch{Env: env}})
}

// order sends an instruction; a launch gets a usable environment with the tag.
func (a *agent) order(i instruction) {
	a.t.Helper()
	if i.Do == "launch" {
		a.runs++
		i.Launch.Env = append([]string{a.tag, "PATH=" + os.Getenv("PATH")}, i.Launch.Env...)
	}
	a.write(i)
}

// expect waits for the next event, which must be of this kind.
func (a *agent) expect(what string) event {
	a.t.Helper()
	select {
	case e, ok := <-a.events:
		switch {
		case !ok:
			a.t.Fatalf("the agent ended before it said %q", what)
		case e.What != what:
			a.t.Fatalf("the agent said %+v, not %q", e, what)
		}
		return e
	case <-time.After(testPatience):
		a.t.Fatalf("the agent did not say %q", what)
	}
	return event{}
}

// quit ends the agent and checks that Host returns what its body did, having
// left no goroutine behind.
func (a *agent) quit() {
	a.t.Helper()
	a.write(instruction{Do: "quit", Code: 17})
	e := a.expect("returned")
	if e.Error != "" {
		a.t.Errorf("after Host returned: %s", e.Error)
	}
	<-a.waited
	if code := a.cmd.ProcessState.ExitCode(); code != 17 {
		a.t.Errorf("the agent exited with %d, not with what body returned", code)
	}
}

// runToEnd launches the job and returns its end.
func (a *agent) runToEnd(env ...string) event {
	a.t.Helper()
	a.launch(env...)
	a.expect("started")
	return a.expect("done")
}

// read is what agent and job have written.
func (a *agent) read() string {
	out, err := os.ReadFile(a.output)
	if err != nil {
		a.t.Error(err)
	}
	return string(out)
}

// awaitOutput waits until the job has written something, once in each run.
func (a *agent) awaitOutput(text string) {
	a.t.Helper()
	await(a.t, fmt.Sprintf("the job writes %q", text), func() bool { return strings.Count(a.read(), text) >= a.runs })
}

// jobProcesses are the living processes of the job.
func (a *agent) jobProcesses() []int { return processesWith(a.tag) }

// processesWith finds the living processes with a string in their environment.
func processesWith(tag string) []int {
	var found []int
	for _, pid := range allProcesses() {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err == nil && slices.Contains(strings.Split(string(env), "\x00"), tag) && stateOf(pid) != 'Z' {
			found = append(found, pid)
		}
	}
	return found
}

func allProcesses() []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stateOf is the state letter of a process (proc(5)); 0 if it is gone.
func stateOf(pid int) byte {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) == 0 {
		return 0
	}
	return fields[0][0]
}

// supervisor waits until the agent has one, and returns its pid.
func (a *agent) supervisor() int {
	a.t.Helper()
	var found int
	await(a.t, "the agent has a supervisor", func() bool {
		for _, pid := range allProcesses() {
			cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			if err != nil || string(cmdline) != supervisorName+"\x00" {
				continue
			}
			if parent, _, ok := readProcess("/proc", pid); ok && parent == a.pid {
				found = pid
				return true
			}
		}
		return false
	})
	return found
}

// await waits for a condition of the world outside.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(testPatience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// mustBeDead fails the test if a process of the job is alive at this moment.
func (a *agent) mustBeDead() {
	a.t.Helper()
	if left := a.jobProcesses(); len(left) > 0 {
		for _, pid := range left {
			cmdline, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			a.t.Logf("pid %d, state %c: %q", pid, stateOf(pid), cmdline)
		}
		a.t.Fatalf("processes of the job are alive: %v", left)
	}
}

// send signals a process.
func send(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("signal %v to %d: %v", sig, pid, err)
	}
}

// freeze stops processes and waits until the kernel has.
func freeze(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		send(t, pid, syscall.SIGSTOP)
	}
	for _, pid := range pids {
		await(t, "the process is stopped, or has ended", func() bool { s := stateOf(pid); return s == 'T' || s == 'Z' || s == 0 })
	}
}

// testBinary is the path of this program.
func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// shell is the command line of a script.
func shell(script string) []string { return []string{"/bin/sh", "-c", script} }
