package health

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a test waits for what comes at once on an idle machine.
const patience = 30 * time.Second

// asContainer makes the test binary stand for a process in another container:
// its value is what that does.
const asContainer = "HEALTH_TEST_CONTAINER"

func TestMain(m *testing.M) {
	if os.Getenv(asContainer) != "" {
		go func() { // until the test ends, however it does
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	switch os.Getenv(asContainer) {
	case "serve":
		Serve(context.Background(), os.Args[1], announced(), slog.New(slog.DiscardHandler))
	case "squat":
		squat(os.Args[1])
	default:
		goleak.VerifyTestMain(m)
	}
}

// announced is the state of a healthy agent, which says on stdout when it can
// be asked: its own check is what it waits for.
func announced() func() error {
	go func() {
		for Check(context.Background(), os.Args[1]) != nil {
			time.Sleep(time.Millisecond)
		}
		io.WriteString(os.Stdout, "ready\n")
	}()
	return func() error { return nil }
}

// squat takes a name, whosever it is, and calls its owner healthy.
func squat(name string) {
	listener, err := net.Listen("unix", name)
	if err != nil {
		os.Exit(1)
	}
	io.WriteString(os.Stdout, "ready\n")
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		io.WriteString(conn, healthy)
		conn.Close()
	}
}

// startAgent serves until the test's end, or until the function it returns is called.
func startAgent(t *testing.T, lease string, state func() error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { Serve(ctx, lease, state, slog.New(slog.DiscardHandler)) })
	end = func() { cancel(); serving.Wait() }
	t.Cleanup(end)
	return end
}

func untilHealthy(t *testing.T, lease string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := Check(context.Background(), lease)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never healthy: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}

func isHealthy() error { return nil }

// The check hears what the agent says of itself, and fails when there is none:
// before it starts, and as soon as it has ended.
func TestCheckHearsTheAgent(t *testing.T) {
	lease := t.Name() + strings.Repeat(" with a long name", 100)
	if err := Check(context.Background(), lease); err == nil || !strings.Contains(err.Error(), "no agent") {
		t.Errorf("without an agent: %v", err)
	}
	state := make(chan error, 1)
	state <- nil
	end := startAgent(t, lease, func() error { s := <-state; state <- s; return s })
	untilHealthy(t, lease)
	<-state
	state <- errors.New("the agent is stuck")
	if err := Check(context.Background(), lease); err == nil || err.Error() != "the agent is stuck" {
		t.Errorf("a stuck agent: %v", err)
	}
	end()
	if err := Check(context.Background(), lease); err == nil || !strings.Contains(err.Error(), "no agent") {
		t.Errorf("an agent that has ended: %v", err)
	}
}

// An agent whose answer does not come is unhealthy, in time for the reason to
// be heard.
func TestAgentThatDoesNotAnswerIsUnhealthy(t *testing.T) {
	release := make(chan struct{})
	startAgent(t, t.Name(), func() error { <-release; return nil })
	defer close(release)
	deadline := time.Now().Add(patience)
	for {
		err := Check(context.Background(), t.Name())
		if err != nil && strings.Contains(err.Error(), "stuck") {
			break
		}
		if err == nil || time.Now().After(deadline) {
			t.Fatalf("got %v", err)
		}
	}
}

// Clients that connect and never read hold up no other.
func TestClientsThatDoNotListenHoldUpNobody(t *testing.T) {
	startAgent(t, t.Name(), isHealthy)
	untilHealthy(t, t.Name())
	name, err := address(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		conn, err := net.Dial("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	untilHealthy(t, t.Name())
}

// Two leases in one container are two agents, each with its own health.
func TestTwoLeasesInOneContainerDoNotCollide(t *testing.T) {
	startAgent(t, "a", isHealthy)
	startAgent(t, "b", func() error { return errors.New("b is ill") })
	untilHealthy(t, "a")
	deadline := time.Now().Add(patience)
	for {
		err := Check(context.Background(), "b")
		if err != nil && err.Error() == "b is ill" {
			return
		}
		if err == nil || time.Now().After(deadline) {
			t.Fatalf("b says %v", err)
		}
	}
}

// inContainer starts this program with a mount namespace of its own and this
// network: a second container of the same task.
func inContainer(t *testing.T, does, argument string) (end func()) {
	t.Helper()
	if os.Getuid() != 0 {
		if strings.EqualFold(os.Getenv("CI"), "true") {
			t.Fatal("this must not be skipped in CI: a mount namespace needs root")
		}
		t.Skip("a mount namespace needs root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, argument)
	c.Env = append(os.Environ(), asContainer+"="+does)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { in.Close(); c.Wait() })
	t.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the other container says %q (%v)", line, err)
	}
	return end
}

// Two agents of one lease in the containers of one task, which share a network,
// don't collide: each answers for its own container.
func TestTwoContainersOfATaskDoNotCollide(t *testing.T) {
	inContainer(t, "serve", t.Name())
	if err := Check(context.Background(), t.Name()); err == nil || !strings.Contains(err.Error(), "no agent") {
		t.Errorf("the other container's agent answers for this one: %v", err)
	}
	startAgent(t, t.Name(), isHealthy)
	untilHealthy(t, t.Name())
}

// Another container that has taken the agent's name can't make it look healthy.
// The agent says so in its log, and takes the name when it is free.
func TestAnotherContainersAnswerIsNotTrusted(t *testing.T) {
	name, err := address(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	end := inContainer(t, "squat", name)
	var log lines
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { Serve(ctx, t.Name(), isHealthy, slog.New(slog.NewTextHandler(&log, nil))) })
	defer func() { cancel(); serving.Wait() }()
	if err := Check(context.Background(), t.Name()); err == nil || !strings.Contains(err.Error(), "another container") {
		t.Errorf("the squatter's answer was taken: %v", err)
	}
	for deadline := time.Now().Add(patience); log.String() == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the agent logs nothing")
		}
	}
	end()
	untilHealthy(t, t.Name())
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("logged %d lines:\n%s", n, log.String())
	}
}

// A process that this PID namespace doesn't show is of another container.
func TestPeerWithoutAProcessIsNotTrusted(t *testing.T) {
	if err := trustPeer(0, os.Getuid()); err == nil {
		t.Error("process 0 was trusted")
	}
	if err := trustPeer(os.Getpid(), os.Getuid()); err != nil {
		t.Error(err)
	}
}

type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
