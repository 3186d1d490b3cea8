package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"solojob/config"
	"solojob/schedule"
)

func nextCommand() *cobra.Command {
	var count int
	c := &cobra.Command{
		Use:   "next [-n 5] [SPEC]",
		Short: "Print when a schedule comes due, in its zone and in UTC",
		Long: `Print when a schedule comes due, in its zone and in UTC, and what it says in words.

SPEC is SOLOJOB_SCHEDULE if it is not given, in the zone of SOLOJOB_TIMEZONE.`,
		Example: `  solojob next '0 3 * * 1-5'
  SOLOJOB_TIMEZONE=Europe/Berlin solojob next -n 3 '30 2 * * *'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 1 {
				return fmt.Errorf("next: -n %d: it takes 1 or more", count)
			}
			s, err := scheduleOf(args)
			if err != nil {
				return &exit{exitConfig, err}
			}
			err = printNext(cmd.OutOrStdout(), s, time.Now(), count)
			switch {
			case errors.Is(err, syscall.EPIPE): // who reads it has seen enough, as head does
				return nil
			case err != nil:
				return &exit{1, fmt.Errorf("next: the ticks can't be written: %w", err)}
			}
			return nil
		},
	}
	c.Flags().IntVarP(&count, "number", "n", 5, "how many ticks to print")
	return c
}

// scheduleOf is the schedule on the command line or in the environment.
func scheduleOf(args []string) (*schedule.Schedule, error) {
	environ := os.Environ()
	if len(args) == 1 {
		const variable = config.Prefix + "SCHEDULE="
		environ = slices.DeleteFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, variable) })
		environ = append(environ, variable+args[0])
	}
	cfg, err := config.Load(environ, config.Options{Local: true, CheckSchedule: checkSchedule})
	if err != nil {
		return nil, err
	}
	if cfg.Schedule == "" {
		return nil, errors.New("next: no schedule given: solojob next '0 3 * * *', or set SOLOJOB_SCHEDULE")
	}
	return schedule.Parse(cfg.Schedule, cfg.Location)
}

func checkSchedule(spec string, zone *time.Location) error {
	_, err := schedule.Parse(spec, zone)
	return err
}

func printNext(out io.Writer, s *schedule.Schedule, after time.Time, count int) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "%s\n", s.Words())
	for _, w := range s.Warnings() {
		fmt.Fprintf(t, "note: %s\n", w)
	}
	for range count {
		after = s.Next(after)
		if after.IsZero() {
			fmt.Fprintf(t, "never again\n")
			break
		}
		fmt.Fprintf(t, "%s\t%s\n", after.In(s.Zone()).Format("Mon 2006-01-02 15:04:05 MST"), after.UTC().Format(time.RFC3339))
	}
	return t.Flush()
}
