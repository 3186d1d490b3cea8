// Package demo is `solojob demo`: the promises of solojob, shown on this machine
// in under a minute, to somebody who has never seen it.
//
// Everything in it is real. The tasks are processes, each the same binary run as
// `solojob run -- <job>`; the store answers DynamoDB's protocol; the faults are
// SIGKILL, SIGSTOP and a listener that goes silent. Each job keeps a connection to the demo
// as long as it lives and writes, with its FENCE, to a register that refuses a
// FENCE lower than one it has seen.
//
// What happened is kept in one chronicle, from three witnesses: the jobs'
// connections (the kernel closes one when its process dies, and not when it is
// frozen), the store (which sees every write, in order), and the demo itself (for the
// faults it causes). The timeline, the director that waits for things to
// happen, and the verdict all read that chronicle; nobody reads the agents' logs.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"solojob/devstore"
)

// PartCommand is the hidden command under which the binary must call Part, with
// the arguments that follow it: the demo runs itself in other parts.
const PartCommand = "demo-part"

// Options says how the demo runs.
type Options struct {
	// Out is where the timeline and the verdict go.
	Out io.Writer
	// Columns is the width of the terminal, where Out is one; 0 means 100.
	// The timeline takes no more than that, and no fewer than 80.
	Columns int
	// Colour paints it with ANSI escapes.
	Colour bool
	// Self is the path of this binary; it must know the commands `run` and
	// PartCommand.
	Self string
}

// ErrBroken says that a promise was broken, or that a scene did not show what
// it is there for. The verdict on Out says which.
var ErrBroken = errors.New("the demo did not show what it promises")

// The settings that the demo gives its tasks: short, so that it is over soon,
// and no shorter, so that it also works on a busy machine with two cores.
const (
	lease      = 4 * time.Second
	heartbeat  = 600 * time.Millisecond
	poll       = 300 * time.Millisecond
	lossGrace  = 500 * time.Millisecond
	killMargin = 400 * time.Millisecond
	stopGrace  = 10 * time.Second
	// ttl is the control's: what it shows depends on it as little as on the lease.
	ttl = 2 * time.Second
)

// Names in the store.
const (
	leaseTable    = "solojob"   // solojob's own
	leaseName     = "demo"      // SOLOJOB_LEASE
	registerTable = "register"  // what the jobs write to
	lockTable     = "ttl-locks" // the control's
	leaseKey      = "lease"     // sk of the row that is the lease
	lockKey       = "lock"      // sk of the control's
)

// Run shows the demo and returns nil when every promise held and every scene
// showed what it should, an error that wraps ErrBroken when not,
// context.Canceled when it was interrupted, and another error when it could not
// be staged or nobody reads what it writes. In every case all processes that it
// started are gone when it returns.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.Out = &page{Writer: o.Out, torn: cancel}
	log := newChronicle()
	witness := newWitness(log)
	store, err := devstore.Start(ctx, devstore.Options{Table: leaseTable, Observe: witness.saw})
	if err != nil {
		return fmt.Errorf("the demo can't have a store: %w", err)
	}
	defer store.Close()
	for _, table := range []string{registerTable, lockTable} {
		if err := store.CreateTable(table); err != nil {
			return fmt.Errorf("the demo can't have a store: %w", err)
		}
	}
	recorder, err := listen(log)
	if err != nil {
		return fmt.Errorf("the demo can't listen to its jobs: %w", err)
	}
	defer recorder.close()
	cast, err := assemble(o.Self, log, store, witness, recorder)
	if err != nil {
		return fmt.Errorf("the demo can't start its processes: %w", err)
	}

	pulse := feelPulse()
	timeline := newTimeline(o)
	stopped := timeline.follow(log)
	staged := (&director{log: log, cast: cast}).play(ctx)
	left := cast.dismiss()
	log.close()
	<-stopped
	held := pulse.stop()

	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(o.Out, "\nInterrupted. Every process of the demo is gone.\n")
		return context.Cause(ctx)
	case staged != nil:
		timeline.excuse(held)
		cast.printLogs(o.Out)
		return fmt.Errorf("%w: %w", ErrBroken, staged)
	}
	v := judge(log.all())
	v.Left = left
	v.print(timeline)
	if len(v.problems()) > 0 {
		timeline.excuse(held)
		cast.printLogs(o.Out)
		return ErrBroken
	}
	return nil
}

// page is where the demo writes; it ends the demo when nobody reads any more.
type page struct {
	io.Writer
	torn context.CancelCauseFunc
}

func (p *page) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	if err != nil {
		p.torn(fmt.Errorf("the demo can't write what happens: %w", err))
	}
	return n, err
}
