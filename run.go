package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"solojob/agent"
	"solojob/boottime"
	"solojob/config"
	"solojob/devstore"
	"solojob/dynamo"
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

func onceCommand(caught signals.Caught) *cobra.Command {
	r := &run{caught: caught, once: true}
	var forget string
	c := &cobra.Command{
		Use:   "once [--local] [--] COMMAND [ARGUMENT…]",
		Short: "Run COMMAND once, in one task at a time, and end with its status",
		Long: `Run COMMAND once, in one task at a time, and end with its exit status.

For scheduled tasks, deploy steps and shells. It does not wait for the lease of
a service or schedule with the same name, but for other invocations of once.
With SOLOJOB_ONCE_KEY, COMMAND runs at most once successfully for that key,
ever, and every invocation ends when that is done.`,
		Example: `  SOLOJOB_LEASE=shop SOLOJOB_ONCE_KEY=$GIT_SHA solojob once -- ./migrate.sh
  SOLOJOB_LEASE=shop SOLOJOB_IF_HELD=skip solojob once -- ./cleanup.sh
  SOLOJOB_LEASE=shop solojob once --forget "$GIT_SHA"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && forget == "" {
				return errors.New("once: no command given: solojob once -- COMMAND [ARGUMENT…]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if forget != "" {
				return r.forget(cmd.OutOrStdout(), forget)
			}
			return r.main(args)
		},
	}
	c.Flags().BoolVar(&r.local, "local", false, "use a private store in this process, for a laptop without AWS")
	c.Flags().StringVar(&forget, "forget", "", "allow a once-key whose attempts are used up as many again")
	c.Flags().SetInterspersed(false)
	return c
}

// forget is `solojob once --forget KEY`.
func (r *run) forget(out io.Writer, key string) error {
	cfg, err := config.Load(os.Environ(), config.Options{Local: r.local, Once: true})
	if err != nil {
		return &exit{exitConfig, err}
	}
	store, closeStore, err := r.store(cfg)
	if err != nil || store == nil {
		return err
	}
	defer closeStore()
	ctx, cancel := untilStopped(context.Background(), r.caught)
	defer cancel()
	before, err := store.ForgetKey(ctx, key)
	switch {
	case errors.Is(err, dynamo.ErrKeyDone):
		return &exit{1, fmt.Errorf("key %q: %w", key, err)}
	case err != nil:
		return &exit{agent.ExitRefused, err}
	case before.State == "":
		return &exit{1, fmt.Errorf("key %q was never begun", key)}
	}
	_, err = fmt.Fprintf(out, "key %q: was %s after %d attempts (exit status %d); the next invocation tries again\n", key, before.State, before.Attempts, before.ExitCode)
	return err
}

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
	if r.local && onECS(os.Environ()) {
		return &exit{exitConfig, errors.New("--local is refused on ECS: with a private store in each task, every task would be a leader; remove it, and set SOLOJOB_TABLE")}
	}
	path, err := runner.Resolve(command)
	if err != nil {
		return execError(err)
	}
	log := logqueue.New(stderrFD, func(w io.Writer) slog.Handler {
		options := &slog.HandlerOptions{Level: cfg.LogLevel}
		if cfg.LogFormat == config.LogText {
			return slog.NewTextHandler(w, options)
		}
		return slog.NewJSONHandler(w, options)
	})
	defer func() {
		flush, cancel := context.WithTimeout(context.Background(), logFlush)
		defer cancel()
		log.Close(flush)
	}()

	store, closeStore, err := r.store(cfg)
	if err != nil || store == nil {
		return err
	}
	defer closeStore()
	elector, logger := newElector(cfg, store, slog.New(log.Handler()))
	var failure error
	status, err := runner.Host(runner.Options{
		Command: command, Path: path,
		Stdin:      cfg.Mode != config.ModeCron,
		StopSignal: unix.SignalNum("SIG" + cfg.StopSignal),
		LossGrace:  cfg.LossGrace,
		KillMargin: cfg.KillMargin,
		Heartbeat:  cfg.Heartbeat,
		Log:        logger,
	}, func(h *runner.Hosted) int {
		defer r.pass(h)()
		var status int
		status, failure = serve(cfg, store, agent.New(agent.Options{
			Elector: elector,
			Launch:  func(l runner.Launch) agent.Run { return h.Launch(l) },
			Clock:   boottime.Clock{}, Wall: time.Now,
			Stop:     r.caught.Stop,
			Revision: cfg.Revision, Handover: cfg.Handover,
			Lease: cfg.Lease, Poll: cfg.Poll, Environ: os.Environ(),
			LossGrace: cfg.LossGrace, KillMargin: cfg.KillMargin, StopGrace: cfg.StopGrace,
			Timeout: cfg.Timeout,
			History: func(ctx context.Context, e agent.Entry) error { return store.Record(ctx, dynamo.Run(e)) },
			Log:     logger,
		}))
		return status
	})
	if err != nil {
		return &exit{exitConfig, err}
	}
	return &exit{status, failure}
}

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

// execError is the end of a program whose job can't be executed.
func execError(err error) error {
	var e *runner.ExecError
	if errors.As(err, &e) {
		return &exit{e.Status, err}
	}
	return &exit{exitConfig, err}
}

// store connects to the lease's store. It returns none, and no error, if it was
// told to stop meanwhile.
func (r *run) store(cfg *config.Config) (*dynamo.Store, func(), error) {
	ctx, cancel := context.WithCancel(context.Background())
	if r.local {
		s, err := devstore.Start(ctx, devstore.Options{Table: cfg.Table})
		if err != nil {
			cancel()
			return nil, nil, err
		}
		client, err := dynamo.ConnectLocal(ctx, s.URL())
		if err != nil {
			cancel()
			return nil, nil, err
		}
		return client.Lease(cfg.Table, cfg.Lease, leaseItem(cfg)), func() { client.Close(); s.Close(); cancel() }, nil
	}
	type result struct {
		client *dynamo.Client
		err    error
	}
	connected := make(chan result, 1)
	go func() { // the search for credentials may take a while
		client, err := dynamo.Connect(ctx)
		connected <- result{client, err}
	}()
	select {
	case c := <-connected:
		if c.err != nil {
			cancel()
			return nil, nil, &exit{exitConfig, c.err}
		}
		return c.client.Lease(cfg.Table, cfg.Lease, leaseItem(cfg)), func() { c.client.Close(); cancel() }, nil
	case <-r.caught.Stop:
		cancel()
		<-connected
		return nil, nil, nil
	}
}

// leaseItem is which of a name's two leases is competed for: a step before a
// service must not wait for the service.
func leaseItem(cfg *config.Config) string {
	if cfg.Mode == config.ModeOnce {
		return dynamo.OnceItem
	}
	return dynamo.LeaseItem
}

// onceKey is a once-key in the table.
type onceKey struct {
	store *dynamo.Store
	name  string
}

func (k onceKey) Read(ctx context.Context) (agent.KeyState, error) {
	s, err := k.store.ReadKey(ctx, k.name)
	return keyState(s), err
}

func (k onceKey) Begin(ctx context.Context, fence int64) (agent.KeyState, error) {
	s, err := k.store.BeginKey(ctx, k.name, fence)
	return keyState(s), stale(err)
}

func (k onceKey) Count(ctx context.Context, fence int64, attempt int, owner string) error {
	return stale(k.store.CountKey(ctx, k.name, fence, attempt, owner))
}

func (k onceKey) End(ctx context.Context, fence int64, done bool, exitCode int) error {
	return stale(k.store.EndKey(ctx, k.name, fence, done, exitCode))
}

func keyState(k dynamo.Key) agent.KeyState {
	return agent.KeyState{Done: k.State == dynamo.KeyDone, Failed: k.State == dynamo.KeyFailed, Attempts: k.Attempts, ExitCode: k.ExitCode}
}

func stale(err error) error {
	var failed *leader.ConditionError
	if errors.As(err, &failed) {
		return agent.ErrStaleFence
	}
	return err
}

// pass hands the signals that are the job's on to it, until the function that
// it returns is called.
func (r *run) pass(h *runner.Hosted) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case s := <-r.caught.Pass:
				h.Forward(s.(syscall.Signal))
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

func newElector(cfg *config.Config, store leader.Store, log *slog.Logger) (*leader.Elector, *slog.Logger) {
	nonce := make([]byte, 8)
	rand.Read(nonce) // never fails
	e := leader.Config{
		Store: store, Clock: boottime.Clock{},
		Name: hostName(), Nonce: hex.EncodeToString(nonce),
		Lease: cfg.LeaseDuration, Heartbeat: cfg.Heartbeat, Poll: cfg.Poll,
		Revision: cfg.Revision, FenceFloor: cfg.FenceFloor,
		Wall: time.Now, Random: mathrand.Float64,
	}
	e.Log = log.With("lease", cfg.Lease, "owner", e.Owner())
	return leader.NewElector(e), e.Log
}

// hostName is how people find this process: the task's id on ECS, and
// elsewhere the host's name.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown-host"
	}
	return name
}

// onECS reports whether the environment is that of an ECS task.
func onECS(environ []string) bool {
	for _, kv := range environ {
		if strings.HasPrefix(kv, "ECS_CONTAINER_METADATA_URI") || strings.HasPrefix(kv, "AWS_EXECUTION_ENV=AWS_ECS") {
			return true
		}
	}
	return false
}
