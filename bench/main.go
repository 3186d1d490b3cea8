//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options say how much is measured.
type options struct {
	only    []string
	rounds  int           // of everything that is repeated, but the next two
	kills   int           // of each size of tree
	ticks   int           // of a schedule
	abreast int           // leases at a time, where several can be measured at once
	idle    time.Duration // how long agents are watched that do nothing
	nice    int           // of this program, and so of all that it starts
	write   string        // the document, "" for none

	endurance time.Duration // how long agents are watched that do a lot
}

// part is one thing that is measured.
type part struct {
	name    string
	measure func(context.Context, *stage, options) ([]table, error)
}

// byHand is the part that is not measured unless it is asked for: it takes an
// hour.
const byHand = "endurance"

func parts() []part {
	return []part{
		{"start", starts}, {"handover", handovers}, {"takeover", takeovers}, {"kill", kills},
		{"size", size}, {"idle", idle}, {"ticks", ticks}, {byHand, endurance},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	usual := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == byHand })
	only := flags.String("only", strings.Join(usual, ","), "the `parts` to measure; "+byHand+" is one more, for by hand")
	flags.IntVar(&o.rounds, "n", 50, "rounds of each start, handover and takeover")
	flags.IntVar(&o.kills, "kills", 10, "rounds of each size of process tree")
	flags.IntVar(&o.ticks, "ticks", 1000, "ticks of each scheduler; a thousand take 34 minutes")
	flags.IntVar(&o.abreast, "abreast", 1, "schedules of each scheduler, and leases of handover and takeover, at the same time: faster, and less exact where cores are few")
	flags.DurationVar(&o.idle, "idle", 2*time.Minute, "how long idle agents are watched")
	flags.DurationVar(&o.endurance, "endurance", time.Hour, "how long busy agents are watched, by -only "+byHand)
	flags.IntVar(&o.nice, "nice", 0, "the nice `value` to run everything at; one below 0 (as root) where others use the machine")
	flags.StringVar(&o.write, "write", "", "the `file` whose tables are replaced, between <!-- bench:NAME --> and <!-- /bench:NAME -->")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.rounds < 1 || o.kills < 1 || o.ticks < 1 || o.abreast < 1 || o.idle <= 0 || o.endurance <= 0 {
		return o, errors.New("no arguments, and every number at least 1")
	}
	o.only = strings.Split(*only, ",")
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return o, fmt.Errorf("there is no part %q: there are %s", name, strings.Join(names, ", "))
		}
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if err := takePriority(o.nice); err != nil {
		return err
	}
	s, err := newStage(ctx)
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	show := func(t table) error {
		fmt.Print(t.markdown(), "\n")
		if o.write == "" {
			return nil
		}
		return rewrite(o.write, t) // at once: the next part may take half an hour
	}
	if err := show(machine(o)); err != nil {
		return err
	}
	for _, p := range parts() {
		if !slices.Contains(o.only, p.name) {
			continue
		}
		began, load := time.Now(), loadNow()
		measured, err := p.measure(ctx, s, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		for _, t := range measured {
			t.Note = strings.TrimSpace(t.Note + fmt.Sprintf(" Took %v; load average %s before, %s after.", time.Since(began).Round(time.Second), load, loadNow()))
			if err := show(t); err != nil {
				return err
			}
		}
	}
	return nil
}
