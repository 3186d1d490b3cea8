package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"solojob/agent"
	"solojob/boottime"
	"solojob/config"
	"solojob/dynamo"
	"solojob/fence"
	"solojob/fence/fencedput"
	"solojob/fence/fencedynamo"
	"solojob/leader"
	"solojob/operator"
	"solojob/setup"
	"solojob/signals"
)

const stdinFD = 0

// operatorCommands are the commands that look at leases and ask of their
// holders.
func operatorCommands(caught signals.Caught) []*cobra.Command {
	connect := func(ctx context.Context) (operator.Table, error) {
		cfg, err := settings()
		if err != nil {
			return nil, err
		}
		client, err := connectAWS(ctx)
		if err != nil {
			return nil, err
		}
		return client.OperatorTable(cfg.Table), nil
	}
	style := operator.Style{Colour: term.IsTerminal(stdoutFD) && os.Getenv("NO_COLOR") == ""}
	if columns, _, err := term.GetSize(stdoutFD); err == nil {
		style.Columns = columns
	}
	return operator.Commands(connect, operator.Deps{
		Caller: caller,
		UntilStopped: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return untilStopped(ctx, caught)
		},
		Clock: boottime.Clock{}, Wall: time.Now, Random: rand.Reader,
		Style:    style,
		Terminal: term.IsTerminal(stdoutFD),
		Answers:  term.IsTerminal(stdinFD),
	})
}

// settings are those that a command without a job needs: it has no lease of its
// own, so none is asked for.
func settings() (*config.Config, error) {
	return config.Load(os.Environ(), config.Options{Local: true, CheckSchedule: checkSchedule})
}

// connectAWS connects as an agent does, bar its questions to the task metadata:
// an operator's shell is not in a task.
func connectAWS(ctx context.Context) (*dynamo.Client, error) {
	return dynamo.Connect(ctx)
}

// callerLimit bounds the question who we are: a name is worth little waiting.
const callerLimit = 2 * time.Second

// caller is who asks, as AWS knows them. A stand-in for DynamoDB knows nobody.
func caller(ctx context.Context) string {
	for _, endpoint := range []string{"AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"} {
		if os.Getenv(endpoint) != "" {
			return operator.LocalCaller(ctx)
		}
	}
	limited, cancel := context.WithTimeout(ctx, callerLimit)
	defer cancel()
	cfg, err := awsconfig.LoadDefaultConfig(limited)
	if err != nil {
		return operator.LocalCaller(ctx)
	}
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(limited, &sts.GetCallerIdentityInput{})
	if err != nil || who.Arn == nil {
		return operator.LocalCaller(ctx)
	}
	return *who.Arn
}

func setupCommands(caught signals.Caught) []*cobra.Command {
	return []*cobra.Command{
		{
			Use:     "init",
			Short:   "Create the table for the leases, and check it",
			Long:    "Create the table for the leases (on demand, protected from deletion), wait for it,\nand check it. A table that is there already is only checked.",
			Example: "  solojob init\n  SOLOJOB_TABLE=locks solojob init",
			Args:    cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return withSetup(cmd, caught, setup.Init)
			},
		},
		{
			Use:     "doctor",
			Short:   "Check what a task needs: region, credentials, table, permissions, clock",
			Long:    "Check what a task needs, a line for each thing and what to do about it. Nothing is\nchanged. It ends with 1 if something is wrong.",
			Example: "  SOLOJOB_LEASE=payment-sweep solojob doctor",
			Args:    cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return withSetup(cmd, caught, setup.Doctor)
			},
		},
	}
}

// withSetup calls one of the commands of package setup.
func withSetup(cmd *cobra.Command, caught signals.Caught, do func(context.Context, setup.Options, io.Writer) error) error {
	cfg, err := settings()
	if err != nil {
		return &exit{exitConfig, err}
	}
	ctx, cancel := untilStopped(cmd.Context(), caught)
	defer cancel()
	err = do(ctx, setup.Options{
		Table: cfg.Table, Lease: os.Getenv(config.Prefix + "LEASE"), StopGrace: cfg.StopGrace, Environ: os.Environ(),
		Connect: connectAWS, Now: time.Now,
	}, cmd.OutOrStdout())
	var fault *dynamo.SetupError
	switch {
	case errors.As(err, &fault):
		return &exit{exitConfig, err}
	case err != nil:
		return &exit{1, err}
	}
	return nil
}

// putCommand is `solojob put`.
func putCommand() *cobra.Command {
	var table, attribute string
	var once bool
	c := &cobra.Command{
		Use:   "put --table TABLE [--once] < ITEM.json",
		Short: "Write one item to a DynamoDB table, unless a newer run has: for jobs without an SDK",
		Long: `Write the item on standard input (one plain JSON object, keys included) to a
DynamoDB table, on the condition that no run with a higher FENCE has written it.
FENCE is that of the job which calls this.

It ends with 0 if the item is written, and with 79 if a newer run has it: then
the job must stop.`,
		Example: `  echo '{"pk": "2026-11-29", "total": 42}' | solojob put --table reports`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mine, err := fence.FromEnv()
			if err != nil {
				return &exit{exitConfig, err}
			}
			client, err := connectAWS(context.Background())
			if err != nil {
				return &exit{exitConfig, err}
			}
			defer client.Close()
			err = fencedput.Put(context.Background(), client.ForJobs(), fencedput.Options{
				Table: table, Item: cmd.InOrStdin(),
				Guard: fencedynamo.Guard{Fence: mine, Attribute: attribute, Once: once},
			})
			status := fencedput.ExitStatus(err)
			if status == agent.ExitOK {
				return nil // written, or written before by this very run
			}
			if status == 1 {
				err = client.Explain(table, err)
			}
			if errors.Is(err, leader.ErrRefused) {
				status = agent.ExitRefused
			}
			return &exit{status, err}
		},
	}
	c.Flags().StringVar(&table, "table", "", "the table to write to")
	c.Flags().StringVar(&attribute, "fence-attribute", fencedynamo.DefaultAttribute, "the attribute that holds the fence")
	c.Flags().BoolVar(&once, "once", false, "write at most once for each run")
	if err := c.MarkFlagRequired("table"); err != nil {
		panic(err) // the flag is defined above
	}
	return c
}
