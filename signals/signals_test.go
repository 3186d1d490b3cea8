package signals

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// The test binary plays the process that catches, and the parent that ignores.
const (
	roleCatch   = "role=catch"
	roleIgnore  = "role=ignore-then-catch"
	roleDiscard = "role=discard"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleCatch:
			play(Catch())
		case roleIgnore:
			signal.Ignore(syscall.SIGHUP, syscall.SIGINT) // as nohup does, and a shell for a command in the background
			err := syscall.Exec(os.Args[0], []string{os.Args[0], roleCatch}, os.Environ())
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		case roleDiscard:
			Discard()
			play(Caught{})
		}
	}
	os.Exit(m.Run())
}

// play prints each signal that arrives, until standard input ends.
func play(c Caught) {
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadByte()
		close(ended)
	}()
	for {
		select {
		case sig := <-c.Stop:
			fmt.Println("stop", int(sig.(syscall.Signal)))
		case sig := <-c.Pass:
			fmt.Println("pass", int(sig.(syscall.Signal)))
		case <-ended:
			fmt.Println("ended")
			os.Exit(0)
		}
	}
}

// catcher is such a process. next is its next line.
type catcher struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	end   func()
}

func start(t *testing.T, role string) *catcher {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, role)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &catcher{t: t, cmd: cmd, lines: make(chan string, 1000), end: func() { stdin.Close() }}
	scanned := make(chan struct{})
	go func() {
		defer close(scanned)
		defer close(c.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			c.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-scanned
		cmd.Wait()
	})
	c.expect("ready")
	return c
}

func (c *catcher) expect(want string) {
	c.t.Helper()
	select {
	case got := <-c.lines:
		if got != want {
			c.t.Fatalf("the process said %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		c.t.Fatalf("the process did not say %q", want)
	}
}

func (c *catcher) send(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// Every signal that means stop, and every one that is the job's, arrives on its
// channel, and PIPE ends nothing.
func TestSignalsArriveOnTheirChannels(t *testing.T) {
	c := start(t, roleCatch)
	c.send(syscall.SIGPIPE)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		c.send(sig)
		c.expect(fmt.Sprintf("stop %d", int(sig)))
	}
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH} {
		c.send(sig)
		c.expect(fmt.Sprintf("pass %d", int(sig)))
	}
	c.end()
	c.expect("ended")
}

// Under nohup, and in the background of a shell, HUP and INT stay ignored; TERM
// still means stop.
func TestIgnoredHangupStaysIgnored(t *testing.T) {
	c := start(t, roleIgnore)
	c.send(syscall.SIGHUP)
	c.send(syscall.SIGINT)
	c.send(syscall.SIGTERM)
	c.expect(fmt.Sprintf("stop %d", int(syscall.SIGTERM)))
	c.end()
	c.expect("ended")
}

// A process that discards is deaf to all of them.
func TestDiscardMakesDeaf(t *testing.T) {
	c := start(t, roleDiscard)
	for _, sig := range []syscall.Signal{
		syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGPIPE,
	} {
		c.send(sig)
	}
	c.end()
	c.expect("ended")
}
