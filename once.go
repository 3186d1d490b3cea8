package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"solojob/agent"
	"solojob/config"
	"solojob/dynamo"
	"solojob/leader"
	"solojob/signals"
)

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
	here, err := r.whereabouts(cfg, slog.New(slog.DiscardHandler))
	if err != nil || here == nil {
		return err
	}
	defer here.close()
	ctx, cancel := untilStopped(context.Background(), r.caught)
	defer cancel()
	before, err := here.store.ForgetKey(ctx, key)
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
