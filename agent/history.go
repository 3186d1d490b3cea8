package agent

import (
	"context"
	"log/slog"
	"time"

	"solojob/leader"
	"solojob/runner"
	"solojob/schedule"
)

// What a history entry is about.
const (
	KindTick    = "tick"    // a run of a scheduled tick
	KindService = "service" // a run of a service
	KindOnce    = "once"    // a run in once mode
	KindRunNow  = "run-now" // an extra run that an operator asked for
	KindRequest = "request" // what else an operator asked for; no run
)

// StateStopped is the state of a service's run that was told to stop. The other
// states are those of a tick.
const StateStopped = "stopped"

// Entry is what the history keeps of a run.
type Entry struct {
	Fence    int64 // no other run of the lease has it
	Number   int   // counts the runs of a schedule; 0: nothing counts them but the fence
	Kind     string
	Tick     string // RFC 3339, "" for a run that belongs to none
	Attempt  int
	Owner    string
	Started  time.Time // zero if it never did, or nobody knows
	Ended    time.Time // zero if nobody knows, because its agent died or lost the lease
	Duration time.Duration
	ExitCode int
	State    string
	Why      string // why it ended, "" for by itself
	By       string // who asked, if somebody did
}

const (
	// historyRoom is how many entries wait for a slow store; a job that ends
	// more often than its history can be written loses entries, not heartbeats.
	historyRoom = 64
	// historyLimit bounds the writing of one entry, with all its retries.
	historyLimit = 10 * time.Second
	// historyFlush is how long the end of the agent waits for the last entries.
	historyFlush = time.Second
)

// historian writes entries in a goroutine of its own.
type historian struct {
	entries chan Entry
	cancel  context.CancelFunc
	ended   chan struct{}
	log     *slog.Logger
}

func newHistorian(write func(context.Context, Entry) error, log *slog.Logger) *historian {
	ctx, cancel := context.WithCancel(context.Background())
	h := &historian{entries: make(chan Entry, historyRoom), cancel: cancel, ended: make(chan struct{}), log: log}
	go func() {
		defer close(h.ended)
		for e := range h.entries {
			if write == nil {
				continue
			}
			limited, done := context.WithTimeout(ctx, historyLimit)
			if err := write(limited, e); err != nil {
				log.Warn("run is missing from the history", "error", err.Error(), "fence", e.Fence)
			}
			done()
		}
	}()
	return h
}

func (h *historian) add(e Entry) {
	select {
	case h.entries <- e:
	default:
		h.log.Warn("run is missing from the history", "error", "the store is too slow", "fence", e.Fence)
	}
}

// close waits for what is under way, for a while.
func (h *historian) close() {
	close(h.entries)
	patience := time.AfterFunc(historyFlush, h.cancel)
	<-h.ended
	patience.Stop()
	h.cancel()
}

// remember adds a run to the history.
func (a *Agent) remember(e Entry, r runner.Result) {
	e.Owner = a.Elector.Owner()
	e.Started, e.Ended = r.Started.Wall, r.Ended.Wall
	if e.Ended.IsZero() {
		e.Ended = a.Wall()
	}
	if !e.Started.IsZero() {
		e.Duration = r.Ended.Boot.Sub(r.Started.Boot)
	}
	switch {
	case e.Why != "":
	case r.ExecErr != nil:
		e.Why = r.ExecErr.Error()
	default:
		e.Why = string(r.Reason)
	}
	a.historian.add(e)
}

// rememberLost adds a run that was going on when its agent died, or lost the
// lease without being able to write down how it ended.
func (a *Agent) rememberLost(e Entry, before *leader.Row) {
	e.State, e.Why = schedule.StateInterrupted, "its agent died or lost the lease"
	if before != nil {
		e.Owner = before.Owner
		if since := before.Record.RunSince; since != nil {
			e.Started, _ = time.Parse(time.RFC3339, *since) // zero, so unknown, if it is damaged
		}
	}
	a.historian.add(e)
}
