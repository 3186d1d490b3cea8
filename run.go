package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"solojob/agent"
	"solojob/boottime"
	"solojob/config"
	"solojob/dynamo"
	"solojob/ecs"
	"solojob/health"
	"solojob/leader"
	"solojob/logqueue"
	"solojob/runner"
	"solojob/schedule"
	"solojob/signals"
)

const stderrFD = 2

// logFlush is how long the end of the program waits for a log that nobody
// reads.
const logFlush = 200 * time.Millisecond

func runCommand(caught signals.Caught) *cobra.Command {
	r := &run{caught: caught}
	c := &cobra.Command{
		Use:   "run [--local] [--] COMMAND [ARGUMENT…]",
		Short: "Run COMMAND in the one task that holds the lease",
		Long: `Run COMMAND in the one task that holds the lease; in all others, stand by.

Everything is set by environment variables (see README.md); SOLOJOB_LEASE is
the one that is required. Options after COMMAND are COMMAND's own.`,
		Example: `  SOLOJOB_LEASE=poller solojob run -- python worker.py
  SOLOJOB_LEASE=report SOLOJOB_SCHEDULE='0 3 * * *' solojob run -- ./report.sh
  solojob run --local -- sh -c 'echo "my token is $FENCE"; sleep 60'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("run: no command given: solojob run -- COMMAND [ARGUMENT…]")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return r.main(args) },
	}
	c.Flags().BoolVar(&r.local, "local", false, "use a private store in this process, for a laptop without AWS")
	c.Flags().SetInterspersed(false)
	return c
}

// run is the command `solojob run`, and `solojob once`.
type run struct {
	caught signals.Caught
	local  bool
	once   bool
}

// main runs the command in the task that holds the lease.
func (r *run) main(command []string) error {
	cfg, err := config.Load(os.Environ(), config.Options{
		Local:         r.local,
		Once:          r.once,
		Terminal:      term.IsTerminal(stderrFD),
		CheckSchedule: checkSchedule,
	})
	if err != nil {
		return &exit{exitConfig, err}
	}
	if r.local && ecs.On(os.Environ()) {
		return &exit{exitConfig, errors.New("--local is refused on ECS: with a private store in each task, every task would be a leader; remove it, and set SOLOJOB_TABLE")}
	}
	path, err := runner.Resolve(command)
	if err != nil {
		return execError(err)
	}
	lines := openLog(cfg)
	defer closeLog(lines)
	log := slog.New(lines.Handler())

	here, err := r.whereabouts(cfg, log)
	if err != nil || here == nil {
		return err
	}
	defer here.close()
	return r.host(cfg, command, path, here, log)
}

// host starts the first supervisor, and then the agent.
func (r *run) host(cfg *config.Config, command []string, path string, here *whereabouts, log *slog.Logger) error {
	electorConfig := r.elector(cfg, here)
	log = log.With("owner", electorConfig.Owner())
	electorConfig.Log = log
	here.announce(log, cfg)

	monitor := health.NewMonitor()
	electorConfig.Store = healthyStore{here.store, monitor}
	electorConfig.Alive = monitor.Loop("elector", stuckAfter(cfg)).Beat
	answering, stopAnswering := context.WithCancel(context.Background())
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		health.Serve(answering, cfg.Lease, monitor.State, healthLog(log))
	}()
	defer func() { stopAnswering(); <-answered }()

	var failure error
	status, err := runner.Host(runner.Options{
		Command: command, Path: path,
		Stdin:      cfg.Mode != config.ModeCron,
		StopSignal: unix.SignalNum("SIG" + cfg.StopSignal),
		LossGrace:  cfg.LossGrace,
		KillMargin: cfg.KillMargin,
		Heartbeat:  cfg.Heartbeat,
		Log:        log,
	}, func(h *runner.Hosted) (status int) {
		watcher := ecs.NewWatcher(os.Environ())
		defer watcher.Close()
		busy := []agent.Busy{watcher}
		if cfg.TaskProtection == "on" && cfg.Mode == config.ModeCron {
			protection := ecs.NewProtection(os.Environ(), log)
			defer protection.Close()
			busy = append(busy, protection)
		}
		router := newRouter(r.caught, watcher, cfg.StopOnWinch == "on", h)
		defer router.close()
		status, failure = serve(cfg, here.store, agent.New(agent.Options{
			Elector: leader.NewElector(electorConfig),
			Launch:  func(l runner.Launch) agent.Run { return h.Launch(l) },
			Clock:   boottime.Clock{}, Wall: time.Now,
			Stop:  router.stop,
			Lease: cfg.Lease, Poll: cfg.Poll, Revision: electorConfig.Revision, Handover: cfg.Handover,
			Environ:   os.Environ(),
			LossGrace: cfg.LossGrace, KillMargin: cfg.KillMargin, StopGrace: cfg.StopGrace, Timeout: cfg.Timeout,
			Busy:    busy,
			History: func(ctx context.Context, e agent.Entry) error { return here.store.Record(ctx, dynamo.Run(e)) },
			Log:     log,
		}))
		return status
	})
	if err != nil {
		return &exit{exitConfig, err}
	}
	return &exit{status, failure}
}

// serve runs the agent in its mode.
func serve(cfg *config.Config, store *dynamo.Store, a *agent.Agent) (int, error) {
	switch cfg.Mode {
	case config.ModeOnce:
		once := agent.Once{IfHeld: cfg.IfHeld, Wait: cfg.Wait, MaxAttempts: cfg.MaxAttempts}
		if cfg.OnceKey != "" {
			once.Key = onceKey{store, cfg.OnceKey}
		}
		return a.Once(context.Background(), once)
	case config.ModeCron:
		ticks, err := schedule.Parse(cfg.Schedule, cfg.Location)
		if err != nil {
			return exitConfig, err
		}
		return a.Cron(context.Background(), agent.Cron{
			Schedule: ticks,
			Rules:    schedule.Rules{CatchUp: cfg.CatchUp, AtMostOnce: cfg.Guarantee == config.AtMostOnce, MaxAttempts: cfg.MaxAttempts},
			Overlap:  cfg.Overlap,
		})
	default:
		return a.Service(context.Background())
	}
}

// healthLog is where the health check's own troubles go. Outside ECS several
// agents on one machine are what people try first, and only one can answer.
func healthLog(log *slog.Logger) *slog.Logger {
	if ecs.On(os.Environ()) {
		return log
	}
	return slog.New(slog.DiscardHandler)
}

// elector is the configuration of the elector but for its store and its log.
func (r *run) elector(cfg *config.Config, here *whereabouts) leader.Config {
	nonce := make([]byte, 8)
	rand.Read(nonce) // never fails
	return leader.Config{
		Clock: boottime.Clock{},
		Name:  here.name, Nonce: hex.EncodeToString(nonce),
		Lease: cfg.LeaseDuration, Heartbeat: cfg.Heartbeat, Poll: cfg.Poll,
		Revision: here.revision, FenceFloor: cfg.FenceFloor,
		Wall: time.Now, Random: mathrand.Float64,
	}
}

// healthyStore tells the health check that the row has been read.
type healthyStore struct {
	*dynamo.Store
	monitor *health.Monitor
}

func (s healthyStore) Read(ctx context.Context, consistent bool) (*leader.Row, error) {
	row, err := s.Store.Read(ctx, consistent)
	if err == nil {
		s.monitor.RowRead()
	}
	return row, err
}

// stuckAfter is how long the elector's loop may take before the health check
// fails. It goes round with every poll or heartbeat.
func stuckAfter(cfg *config.Config) time.Duration {
	return max(30*time.Second, 3*cfg.Poll, 3*cfg.Heartbeat)
}

// execError is the end of a program whose job can't be executed.
func execError(err error) error {
	var e *runner.ExecError
	if errors.As(err, &e) {
		return &exit{e.Status, err}
	}
	return &exit{exitConfig, err}
}

// openLog is the log on stderr, which never makes anybody wait.
func openLog(cfg *config.Config) *logqueue.Queue {
	return logqueue.New(stderrFD, func(w io.Writer) slog.Handler {
		options := &slog.HandlerOptions{Level: cfg.LogLevel}
		var h slog.Handler = slog.NewJSONHandler(w, options)
		if cfg.LogFormat == config.LogText {
			h = slog.NewTextHandler(w, options)
		}
		return h.WithAttrs([]slog.Attr{slog.String("lease", cfg.Lease)}) // of the queue's own lines, too
	})
}

func closeLog(lines *logqueue.Queue) {
	flush, cancel := context.WithTimeout(context.Background(), logFlush)
	defer cancel()
	lines.Close(flush)
}

// router brings every way of being told to stop onto one channel, and the
// signals that are the job's to the job.
type router struct {
	stop        chan os.Signal
	quit, ended chan struct{}
}

// stopRoom is how many requests to stop wait: more than anybody acts on.
const stopRoom = 16

func newRouter(caught signals.Caught, watcher *ecs.Watcher, stopOnWinch bool, h *runner.Hosted) *router {
	r := &router{stop: make(chan os.Signal, stopRoom), quit: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		// ECS says that the task is to stop by a signal and in the metadata, in
		// either order and seconds apart. The two are one request: a second one
		// would end the job's patience.
		stopped, told := watcher.Stopped(), false
		ask := func(s os.Signal) {
			stopped = nil
			if told {
				told = false
				return
			}
			r.ask(s)
		}
		for {
			select {
			case s := <-caught.Stop:
				ask(s)
			case s := <-caught.Pass:
				if s == syscall.SIGWINCH && stopOnWinch {
					ask(s)
				} else {
					h.Forward(s.(syscall.Signal))
				}
			case <-stopped:
				ask(syscall.SIGTERM)
				told = true
			case <-r.quit:
				return
			}
		}
	}()
	return r
}

func (r *router) ask(s os.Signal) {
	select {
	case r.stop <- s:
	default: // a job that ignored so many is past asking
	}
}

func (r *router) close() {
	close(r.quit)
	<-r.ended
}
