//go:build unix

// Command probe is the job that the end-to-end tests put under solojob.
//
// It connects to the socket that PROBE_SOCKET names, says hello with its
// process id, arguments and environment, then says every few milliseconds that
// it is alive, and reports the signals that it gets. The kernel closes the
// connection when the last process that holds it dies, so the test sees the
// end of the whole tree, however it came. Everything else it does is asked of
// it over that connection, or by the variables below; its arguments mean
// nothing, so that a test may pass any.
//
//	PROBE_ON_TERM  exit (default): ends with 0 on SIGTERM; ignore; or a
//	               duration, for which it drains before it ends with 0
//	PROBE_FOR      a duration after which the job ends by itself with 0
//	PROBE_TREE     a number of descendants, in sessions of their own and deaf
//	               to SIGTERM, started before the hello
//	PROBE_STDIN    1: report each line of stdin
//	PROBE_MODE     be no job, but what comes before solojob. terminal: the shell
//	               on a terminal that runs the arguments in the foreground;
//	               twice: run them with every FENCE there twice
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"solojob/boottime"
)

// aliveEvery is how often a job says that it lives: fine enough to show an
// overlap of a single heartbeat of the shortest lease, cheap enough for twenty
// jobs on a small machine.
const aliveEvery = 20 * time.Millisecond

// statusBroken is the exit status when the probe itself can't work. No test
// asks for it.
const statusBroken = 99

func main() {
	switch os.Getenv("PROBE_MODE") {
	case "terminal":
		os.Exit(runOnTerminal(os.Args[1:]))
	case "twice":
		os.Exit(runWithTwoFences(os.Args[1:]))
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)

	conn, err := net.Dial("unix", os.Getenv("PROBE_SOCKET"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "probe: no recorder: %v\n", err)
		os.Exit(statusBroken)
	}
	p := &probe{conn: conn}
	if err := p.growTree(os.Getenv("PROBE_TREE")); err != nil {
		fmt.Fprintf(os.Stderr, "probe: no tree: %v\n", err)
		os.Exit(statusBroken)
	}
	p.hello()
	go p.sayAlive()
	go p.obey()
	if os.Getenv("PROBE_STDIN") == "1" {
		go p.readStdin()
	}
	if long := os.Getenv("PROBE_FOR"); long != "" {
		d, err := time.ParseDuration(long)
		if err != nil {
			p.end(statusBroken)
		}
		time.AfterFunc(d, func() { p.end(0) })
	}
	for s := range signals {
		p.say(event{Event: "signal", Name: signalName(s)})
		if s == syscall.SIGTERM {
			p.onTerm(os.Getenv("PROBE_ON_TERM"))
		}
	}
}

// event is one line to the recorder.
type event struct {
	Event   string           `json:"event"`
	At      boottime.Instant `json:"at"`
	PID     int              `json:"pid,omitempty"`
	Args    []string         `json:"args,omitempty"`
	Environ []string         `json:"environ,omitempty"`
	Name    string           `json:"name,omitempty"`
	Code    int              `json:"code,omitempty"`
}

// command is one line from the recorder.
type command struct {
	Do    string        `json:"do"`
	Code  int           `json:"code"`
	After time.Duration `json:"after"`
	Text  string        `json:"text"`
}

type probe struct {
	mu   sync.Mutex
	conn net.Conn
}

// say sends one event. When the recorder is gone the test is over, and so is
// the job.
func (p *probe) say(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.At = boottime.Now()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = p.conn.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(statusBroken)
	}
}

// hello tells the environment as the kernel has it: os.Environ drops a
// variable that is there twice.
func (p *probe) hello() {
	raw, err := os.ReadFile("/proc/self/environ")
	environ := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
	if err != nil {
		environ = os.Environ()
	}
	p.say(event{Event: "hello", PID: os.Getpid(), Args: os.Args[1:], Environ: environ})
}

func (p *probe) sayAlive() {
	for {
		time.Sleep(aliveEvery)
		p.say(event{Event: "alive"})
	}
}

func (p *probe) end(code int) {
	p.say(event{Event: "end", Code: code})
	os.Exit(code)
}

func (p *probe) onTerm(how string) {
	if how == "ignore" {
		return
	}
	drain := time.Duration(0)
	if how != "" && how != "exit" {
		var err error
		if drain, err = time.ParseDuration(how); err != nil {
			p.end(statusBroken)
		}
	}
	time.AfterFunc(drain, func() { p.end(0) })
}

// obey does what the test asks for.
func (p *probe) obey() {
	lines := json.NewDecoder(p.conn)
	for {
		var c command
		if err := lines.Decode(&c); err != nil {
			return
		}
		switch c.Do {
		case "exit":
			time.AfterFunc(c.After, func() { p.end(c.Code) })
		case "print":
			if _, err := os.Stdout.WriteString(c.Text); err != nil {
				p.end(statusBroken)
			}
			p.say(event{Event: "printed"})
		}
	}
}

func (p *probe) readStdin() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		p.say(event{Event: "stdin", Name: lines.Text()})
	}
}

// growTree starts n descendants: shells in sessions of their own, each with up
// to twenty children, none of which heeds SIGTERM. All of them hold the
// recorder's connection. It returns when all are there.
func (p *probe) growTree(count string) error {
	if count == "" {
		return nil
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	held, err := p.conn.(*net.UnixConn).File()
	if err != nil {
		return err
	}
	defer held.Close()
	ready, readyWrite, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	const family = 21 // a shell and its twenty children
	const script = `trap "" TERM HUP; i=1; while [ $i -lt $1 ]; do sleep 100000 >&2 & i=$((i+1)); done; echo; exec sleep 100000 >&2`
	families := 0
	for left := n; left > 0; left -= family {
		shell := []string{"/bin/sh", "-c", script, "family", strconv.Itoa(min(left, family))}
		_, err := syscall.ForkExec(shell[0], shell, &syscall.ProcAttr{
			Env:   os.Environ(),
			Files: []uintptr{0, readyWrite.Fd(), 2, held.Fd()},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			return err
		}
		families++
	}
	readyWrite.Close()
	lines := bufio.NewReader(ready)
	for range families {
		if _, err := lines.ReadString('\n'); err != nil {
			return err
		}
	}
	return nil
}

// runOnTerminal does what a shell does: it starts the command in a process
// group of its own in the terminal's foreground, and stays when it stops.
func runOnTerminal(command []string) int {
	pid, err := syscall.ForkExec(command[0], command, &syscall.ProcAttr{
		Env:   withoutMode(os.Environ()),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Foreground: true, Ctty: 0},
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "probe: no command: %v\n", err)
		return statusBroken
	}
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err == syscall.EINTR {
			continue
		} else if err != nil {
			return statusBroken
		}
		if status.Exited() {
			return status.ExitStatus()
		}
		if status.Signaled() {
			return 128 + int(status.Signal())
		}
	}
}

// runWithTwoFences does what no shell does, but a careless launcher may.
func runWithTwoFences(command []string) int {
	environ := withoutMode(os.Environ())
	err := syscall.Exec(command[0], command, append(environ, "FENCE=8888"))
	fmt.Fprintf(os.Stderr, "probe: no command: %v\n", err)
	return statusBroken
}

func withoutMode(environ []string) []string {
	var kept []string
	for _, v := range environ {
		if !strings.HasPrefix(v, "PROBE_MODE=") {
			kept = append(kept, v)
		}
	}
	return kept
}

func signalName(s os.Signal) string {
	names := map[os.Signal]string{
		syscall.SIGTERM: "TERM", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGHUP: "HUP",
		syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2", syscall.SIGWINCH: "WINCH",
	}
	return names[s]
}
