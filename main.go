// Solojob runs a job in exactly one place: the task that holds a lease in
// DynamoDB launches it, with a fencing token in FENCE, and the job is dead
// before any other task may hold the lease.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	_ "time/tzdata" // time zones: the binary is copied into images that have none

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // and no CA certificates
	"golang.org/x/term"

	"solojob/agent"
	"solojob/config"
	"solojob/demo"
	"solojob/devstore"
	"solojob/health"
	"solojob/runner"
	"solojob/signals"
)

// init keeps the main goroutine on the main thread: children are forked from
// there, because the signal that they get when their parent dies belongs to the
// thread that forked them (PR_SET_PDEATHSIG in prctl(2)).
func init() { runtime.LockOSThread() }

// exitConfig is the exit status for a configuration error (EX_CONFIG).
const exitConfig = 78

// defaultTable is the table that solojob dev creates, the default of
// SOLOJOB_TABLE.
const defaultTable = "solojob"

func main() {
	caught := signals.Catch()
	runner.Supervise()
	os.Exit(execute(caught))
}

// exit is an error that ends the program with a status of its own. Its text may
// be empty: then all was said.
type exit struct {
	status int
	err    error
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// ExitStatus is what the program ends with.
func (e *exit) ExitStatus() int { return e.status }

func (e *exit) Unwrap() error { return e.err }

func execute(caught signals.Caught) int {
	root := &cobra.Command{
		Use:           "solojob",
		Short:         "Run a job in exactly one place",
		Long:          "solojob is the ENTRYPOINT of a container that runs in several tasks.\nOne of them holds a lease in DynamoDB and runs the job; the others stand by.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(caught), onceCommand(caught), nextCommand(), demoCommand(caught), demoPart(), devCommand(caught), healthCommand(), versionCommand())
	root.AddCommand(operatorCommands(caught)...)
	root.AddCommand(setupCommands(caught)...)
	root.AddCommand(putCommand())
	err := root.Execute()
	if err == nil {
		return agent.ExitOK
	}
	status := exitConfig // a wrong command line
	var e interface{ ExitStatus() int }
	if errors.As(err, &e) {
		status = e.ExitStatus()
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(os.Stderr, "solojob: %s\n", strings.ReplaceAll(text, "\n", "\nsolojob: "))
	}
	return status
}

func demoCommand(caught signals.Caught) *cobra.Command {
	return &cobra.Command{
		Use:     "demo",
		Short:   "Show it all on this machine: a deploy, a crash, a pause, a cut network",
		Example: "  solojob demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			ctx, cancel := untilStopped(cmd.Context(), caught)
			defer cancel()
			o := demo.Options{Out: os.Stdout, Self: self, Colour: term.IsTerminal(stdoutFD) && os.Getenv("NO_COLOR") == ""}
			if columns, _, err := term.GetSize(stdoutFD); err == nil {
				o.Columns = columns
			}
			err = demo.Run(ctx, o)
			switch {
			case errors.Is(err, context.Canceled):
				return &exit{status: exitInterrupted} // the demo has said so
			case err != nil:
				return &exit{1, err}
			}
			return nil
		},
	}
}

const stdoutFD = 1

// exitInterrupted is how a shell reports a command that Ctrl-C ended.
const exitInterrupted = 130

// demoPart is the demo's own way to run itself in other parts.
func demoPart() *cobra.Command {
	return &cobra.Command{
		Use:                demo.PartCommand,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return &exit{status: demo.Part(args)} },
	}
}

func healthCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "health",
		Short:   "Answer a container's health check: 0 while the agent in this container lives",
		Example: `  "healthCheck": {"command": ["CMD", "/solojob", "health"]}`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, cancel := context.WithTimeout(context.Background(), healthLimit)
			defer cancel()
			if err := health.Check(ctx, os.Getenv(config.Prefix+"LEASE")); err != nil {
				return &exit{1, err}
			}
			return nil
		},
	}
}

// healthLimit is below the 5 s that ECS allows a health check by default.
const healthLimit = 3 * time.Second

func devCommand(caught signals.Caught) *cobra.Command {
	var addr string
	c := &cobra.Command{
		Use:   "dev",
		Short: "Serve an in-memory DynamoDB endpoint for trying solojob in several terminals",
		Example: `  solojob dev
  solojob dev --addr 127.0.0.1:8000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := untilStopped(cmd.Context(), caught)
			defer cancel()
			return devstore.Serve(ctx, devstore.Options{Addr: addr, Table: defaultTable}, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&addr, "addr", "127.0.0.1:8000", "loopback address to listen on")
	return c
}

// untilStopped is a context that ends at the first request to stop.
func untilStopped(ctx context.Context, caught signals.Caught) (context.Context, context.CancelFunc) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-caught.Stop:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "solojob %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version is the module's version, or the commit that the binary was built
// from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = s.Value
		}
	}
	return v
}
