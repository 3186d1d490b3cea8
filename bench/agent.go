//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"solojob/boottime"
	"solojob/devstore"
)

// stage is where the benchmarks play: the programs, the store, the witness, and
// every process that was started, so that none is left.
type stage struct {
	dir     string
	store   *store
	witness *witness

	mu        sync.Mutex
	processes []*process
}

// newStage builds the programs and starts the store and the witness.
func newStage(ctx context.Context) (*stage, error) {
	dir, err := os.MkdirTemp("", "solojob-bench")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir}
	for name, pkg := range map[string]string{"solojob": "solojob", "job": "solojob/bench/job"} {
		if err := buildStripped(ctx, pkg, s.program(name)); err != nil {
			return s, err
		}
	}
	if s.witness, err = newWitness(filepath.Join(dir, "witness")); err != nil {
		return s, err
	}
	s.store, err = newStore(ctx)
	return s, err
}

// program is the path of something that was built.
func (s *stage) program(name string) string { return filepath.Join(s.dir, name) }

// close ends everything that was started, and removes what was written.
func (s *stage) close() {
	s.mu.Lock()
	processes := s.processes
	s.mu.Unlock()
	for _, p := range processes {
		p.signal(syscall.SIGKILL) // its supervisor then kills its job
	}
	for _, p := range processes {
		<-p.exited
	}
	if s.store != nil {
		s.store.close()
	}
	if s.witness != nil {
		s.witness.close()
	}
	os.RemoveAll(s.dir)
}

// buildStripped builds a program as it is released.
func buildStripped(ctx context.Context, pkg, to string, env ...string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags=nethttpomithttp2", "-gcflags=github.com/...=-l", "-ldflags=-s -w", "-o", to, pkg)
	build.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s can't be built: %w\n%s", pkg, err, out)
	}
	return nil
}

// process is a program that was started: an agent, or what it is compared with.
type process struct {
	cmd     *exec.Cmd
	log     string // the file that its stderr goes to
	started boottime.Instant
	exited  chan struct{}
	door    *devstore.Door // an agent's own way to the store
}

// start runs a program with nothing in its environment but PATH and env.
func (s *stage) start(env map[string]string, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), exited: make(chan struct{})}
	p.cmd.Dir = s.dir
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BENCH_JOB_SOCKET=" + s.program("witness")}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		p.cmd.Env = append(p.cmd.Env, name+"="+env[name])
	}
	// In a group of its own, so that Ctrl-C is for this program alone, which
	// then ends the others in their order; if it can't, the kernel does.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	log, err := os.CreateTemp(s.dir, filepath.Base(name)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.log = log.Name()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.started = boottime.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait() // its log says what there is to say
		close(p.exited)
	}()
	s.mu.Lock()
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	return p, nil
}

// agent starts an agent for a lease, with the settings and job variables given
// and a store that is so far away.
func (s *stage) agent(lease string, latency time.Duration, env map[string]string) (*process, error) {
	door, url, err := s.store.endpoint(latency)
	if err != nil {
		return nil, err
	}
	all := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
		"AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ENDPOINT_URL_DYNAMODB": url,
		"SOLOJOB_LEASE":             lease,
	}
	maps.Copy(all, env)
	p, err := s.start(all, s.program("solojob"), "run", "--", s.program("job"))
	if err == nil {
		p.door = door
	}
	return p, err
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// signal sends a signal; to a process that has ended it does nothing.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.exited:
	default:
		p.cmd.Process.Signal(sig) // an error means that it has just ended
	}
}

// forget removes a process that has ended, and its log.
func (s *stage) forget(p *process) {
	os.Remove(p.log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = slices.DeleteFunc(s.processes, func(q *process) bool { return p == q })
}

// stop tells a process to stop, and waits until it has.
func (p *process) stop(ctx context.Context) error {
	p.signal(syscall.SIGTERM)
	return wait(ctx, "an agent that was told to stop", p.exited)
}

// explain adds to an error what a process logged last.
func (p *process) explain(err error) error {
	if err == nil {
		return nil
	}
	const tail = 1000
	log, _ := os.ReadFile(p.log)
	if len(log) == 0 {
		return err
	}
	return errors.Join(err, fmt.Errorf("process %d logged: %s", p.pid(), log[max(0, len(log)-tail):]))
}
