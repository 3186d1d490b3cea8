package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// largestFence leaves room to count in, and keeps FENCE exact in languages
// whose numbers are doubles (2^53 = 9,007,199,254,740,992).
const largestFence = 9_000_000_000_000_000

const (
	// defaultRuns is how many runs of the history fit on a screen.
	defaultRuns = 30
	// defaultEvery is how often a status that refreshes itself reads the rows.
	defaultEvery = 2 * time.Second
	// leastEvery keeps a slip of the unit from hammering the table.
	leastEvery = 200 * time.Millisecond
	// completionLimit bounds what a shell waits for to complete a name.
	completionLimit = 2 * time.Second
)

// Commands returns the operator's commands, to be added to the root command.
// Connect finds the table as the agent does. An error that has an ExitStatus
// method says what to end with; all others are errors of the command line, or
// connect's own. What deps leaves out has a default.
func Commands(connect func(context.Context) (Table, error), deps Deps) []*cobra.Command {
	c := &commands{connect: connect, deps: deps.withDefaults()}
	return []*cobra.Command{
		c.status(), c.history(), c.handover(), c.breakLease(), c.pause(), c.resume(), c.runNow(), c.fence(),
	}
}

type commands struct {
	connect func(context.Context) (Table, error)
	deps    Deps
}

// leaseCommand is a command on one lease, with what all of them have.
func (c *commands) leaseCommand(use, short, long, example string, run func(ctx context.Context, s *session, cmd *cobra.Command, lease string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("%s: name one lease: %s", cmd.Name(), cmd.UseLine())
			}
			return nil
		},
		ValidArgsFunction: c.complete,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.session(cmd, func(ctx context.Context, s *session) error { return run(ctx, s, cmd, args[0]) })
	}
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// session connects and carries out one command.
func (c *commands) session(cmd *cobra.Command, run func(context.Context, *session) error) error {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := c.deps.UntilStopped(ctx)
	defer cancel()
	table, err := c.connect(ctx)
	if err != nil {
		return err
	}
	s := &session{Deps: c.deps, table: table, out: cmd.OutOrStdout(), note: cmd.ErrOrStderr(), json: flag(cmd, "json")}
	err = run(ctx, s)
	if err != nil && ctx.Err() != nil {
		return refused("%s: told to stop", cmd.Name())
	}
	return err
}

// complete completes the name of a lease.
func (c *commands) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionLimit)
	defer cancel()
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	table, err := c.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	leases, _ := table.Leases(ctx)
	var names []string
	for _, l := range leases {
		names = append(names, l.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func flag(cmd *cobra.Command, name string) bool {
	set, err := cmd.Flags().GetBool(name)
	return err == nil && set
}

// itemFlag lets a command act on the once item.
func itemFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("once", false, "the lease of runs in once mode, instead of the service's")
	return cmd
}

func item(cmd *cobra.Command, lease string) Key {
	if flag(cmd, "once") {
		return Key{lease, OnceItem}
	}
	return Key{lease, ServiceItem}
}

// requestFlags are those of a command whose request the holder has to read.
func requestFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("no-wait", false, "do not wait until the holder has read it")
	return cmd
}

func (c *commands) status() *cobra.Command {
	var o lookOptions
	cmd := c.leaseCommand("status [LEASE]", "Show who holds the leases, and how they are",
		`Show every lease of the table, or one in detail: who holds it, since when, with
which fence, whether the holder is alive, what the job does, how the last run
ended, and when the next one is due.

Whether a holder is alive is found out by watching its row for a moment: a
heartbeat every few seconds. One that does not beat is called silent.`,
		`  solojob status
  solojob status nightly-report
  solojob status --watch
  solojob status nightly-report --json | jq '.leases[0].state'`,
		nil)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 1 || len(args) == 1 && args[0] == "":
			return errors.New("status: name one lease, or none for all: solojob status [LEASE]")
		case o.every < leastEvery:
			return fmt.Errorf("status: --every %s is too often: at least %s", o.every, leastEvery)
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		return c.session(cmd, func(ctx context.Context, s *session) error { return s.status(ctx, name, o) })
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on, and show it anew, until Ctrl-C")
	cmd.Flags().DurationVar(&o.every, "every", defaultEvery, "how often, with --watch")
	cmd.Flags().BoolVarP(&o.quick, "quick", "q", false, "do not watch for heartbeats")
	return cmd
}

func (c *commands) history() *cobra.Command {
	var n int
	cmd := c.leaseCommand("history LEASE", "Show the last runs, and how long they took",
		fmt.Sprintf(`Show the last runs of a lease, a line each: what started it, how it ended, in
which task, with which fence, and a bar as long as it took. Between the runs
stands which ticks of the schedule have none: they were skipped or missed, or
their task died.

The last %d runs are kept.`, HistoryLength),
		`  solojob history nightly-report
  solojob history nightly-report -n 100
  solojob history --once migrate
  solojob history nightly-report --json | jq '.runs[] | select(.state != "done")'`,
		func(ctx context.Context, s *session, cmd *cobra.Command, lease string) error {
			return s.showHistory(ctx, item(cmd, lease), n)
		})
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if n < 1 || n > HistoryLength {
			return fmt.Errorf("history: -n %d is not between 1 and %d", n, HistoryLength)
		}
		return args(cmd, given)
	}
	cmd.Flags().IntVarP(&n, "runs", "n", defaultRuns, "how many runs")
	return itemFlag(cmd)
}

func (c *commands) handover() *cobra.Command {
	var now bool
	cmd := c.leaseCommand("handover LEASE", "Ask the holder to give the lease to another task",
		`Ask the holder to give the lease up in order, so that another task takes it:
after the run that goes on, or with --now after ending it. On a schedule nothing
is lost: a run that is ended counts as interrupted.`,
		`  solojob handover nightly-report
  solojob handover nightly-report --now`,
		func(ctx context.Context, s *session, cmd *cobra.Command, lease string) error {
			return s.carryOut(ctx, s.handover(ctx, lease, now, flag(cmd, "no-wait")))
		})
	cmd.Flags().BoolVar(&now, "now", false, "end the run that goes on, instead of waiting for its end")
	return requestFlags(cmd)
}

func (c *commands) breakLease() *cobra.Command {
	var o breakOptions
	cmd := c.leaseCommand("break LEASE", "Free the lease of a holder that is known to be dead",
		`Free the lease of a holder that is known to be dead, without waiting until it
runs out. If the holder is alive after all, two jobs run at the same time until
it notices. So its row is watched first, and a holder that beats is left alone;
and you are asked to type the name of the lease.

Without this command a standby takes over by itself once the lease has run out.
For a holder that is alive, handover --now is right.`,
		`  solojob break nightly-report
  solojob break nightly-report --yes`,
		func(ctx context.Context, s *session, cmd *cobra.Command, lease string) error {
			if !o.yes && (s.json || !s.Answers) {
				return errors.New("break: it asks before it acts, and nobody is there to answer: add --yes if you are sure")
			}
			return s.breakLease(ctx, item(cmd, lease), o, cmd.InOrStdin())
		})
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&o.evenIfAlive, "even-if-alive", false, "do not watch first, and break it even if the holder beats")
	return itemFlag(cmd)
}

func (c *commands) pause() *cobra.Command {
	return requestFlags(c.leaseCommand("pause LEASE", "Have the holder keep the lease and start nothing",
		`Have whoever holds the lease keep it and start nothing, until it is resumed. On a
schedule a run that goes on ends by itself, and the ticks that come meanwhile
count as skipped. The job of a service is ended.`,
		`  solojob pause nightly-report`,
		func(ctx context.Context, s *session, cmd *cobra.Command, lease string) error {
			return s.carryOut(ctx, s.pause(ctx, lease, flag(cmd, "no-wait")))
		}))
}

func (c *commands) resume() *cobra.Command {
	return requestFlags(c.leaseCommand("resume LEASE", "End a pause",
		`End a pause. On a schedule the next tick runs; those that came during the pause do
not. The job of a service is started again.`,
		`  solojob resume nightly-report`,
		func(ctx context.Context, s *session, cmd *cobra.Command, lease string) error {
			return s.carryOut(ctx, s.resume(ctx, lease, flag(cmd, "no-wait")))
		}))
}

func (c *commands) runNow() *cobra.Command {
	return requestFlags(c.leaseCommand("run-now LEASE", "Run the job of a schedule once, now",
		`Have the holder run the job of a schedule once more, with a FENCE of its own. The
schedule goes on as if nothing had been. If a run goes on, SOLOJOB_OVERLAP says
what happens: with skip the request is refused, which the holder's log says.`,
		`  solojob run-now nightly-report && solojob history nightly-report`,
		func(ctx context.Context, s *session, cmd *cobra.Command, lease string) error {
			plan, err := s.runNow(ctx, lease, flag(cmd, "no-wait"))
			if err != nil {
				return err
			}
			return s.carryOut(ctx, plan)
		}))
}

func (c *commands) fence() *cobra.Command {
	group := &cobra.Command{
		Use: "fence", Short: "Raise the fence of a lease",
		Example: `  solojob fence bump nightly-report --to 20000`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("fence: say what to do: solojob fence bump LEASE --to N")
		},
	}
	var to int64
	cmd := c.leaseCommand("bump LEASE --to N", "Raise the fence above what was handed out",
		`Raise the fence of a lease, after its table was restored from a backup: above
every FENCE that was handed out since that backup. A fence never goes down again,
so do not raise it further than you need to. The holder, if there is one, goes on.`,
		`  solojob fence bump nightly-report --to 20000`,
		func(ctx context.Context, s *session, cmd *cobra.Command, lease string) error {
			return s.carryOut(ctx, s.bump(ctx, item(cmd, lease), to, flag(cmd, "no-wait")))
		})
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return err
		}
		if to < 1 || to > largestFence {
			return fmt.Errorf("fence bump: --to is needed, a whole number from 1 to %d", largestFence)
		}
		return nil
	}
	cmd.Flags().Int64Var(&to, "to", 0, "the fence to have")
	group.AddCommand(requestFlags(itemFlag(cmd)))
	return group
}
