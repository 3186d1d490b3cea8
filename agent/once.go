package agent

import (
	"context"
	"errors"
	"time"

	"solojob/leader"
	"solojob/runner"
	"solojob/schedule"
)

// What once mode does when somebody else holds the lease and renews it.
const (
	IfHeldWait = "wait" // until the lease is free, or Once.Wait is over
	IfHeldSkip = "skip" // end with 0
	IfHeldFail = "fail" // end with ExitHeld
)

// Once is what [Agent.Once] needs beyond the agent's options.
type Once struct {
	IfHeld string        // one of the IfHeld constants; with a key it is IfHeldWait
	Wait   time.Duration // how long to wait for the lease, 0 for no limit

	Key         Key // nil: every invocation runs the job
	MaxAttempts int // of all contenders for the key together
}

// Key is the item of a once-key: what runs at most once successfully, ever.
type Key interface {
	// Read returns the key's state; a key that was never begun has the zero one.
	Read(ctx context.Context) (KeyState, error)
	// Begin raises the key's fence to fence, and returns the state that the same
	// step found. It is [ErrStaleFence] if the key has a higher one.
	Begin(ctx context.Context, fence int64) (KeyState, error)
	// Count writes that another attempt begins, the how-manieth it is and whose,
	// if the key's fence is still fence.
	Count(ctx context.Context, fence int64, attempt int, owner string) error
	// End writes how the attempt ended, if the key's fence is still fence.
	End(ctx context.Context, fence int64, done bool, exitCode int) error
}

// KeyState is what is known of a once-key.
type KeyState struct {
	Done     bool // a run ended with 0
	Attempts int  // begun so far
	Failed   bool // the last attempt ended, and not with 0
	ExitCode int  // of the last attempt that ended
}

// ErrStaleFence is what a write to a key returns when a later holder has it.
var ErrStaleFence = errors.New("a later holder has begun this key")

// Once competes for the lease, runs the job once, releases, and ends with the
// job's status.
func (a *Agent) Once(ctx context.Context, o Once) (int, error) {
	w := &onceRun{Agent: a, Once: o}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait := waiting{held: w.held, must: true}
	if o.Wait > 0 {
		patience, stop := a.Clock.Until(a.Clock.Now().Add(o.Wait))
		defer stop()
		wait.patience = patience
	}
	if o.Key != nil {
		decided, watched := make(chan int), make(chan struct{})
		go func() {
			defer close(watched)
			w.watchKey(ctx, decided)
		}()
		defer func() { cancel(); <-watched }()
		wait.decided = decided
	}
	return a.competeOr(ctx, w.serve, wait)
}

// waiting is what may end a competition before the lease is won. Its zero value
// is that nothing does.
type waiting struct {
	held     func(holder string) (status int, over bool)
	patience <-chan struct{}
	decided  <-chan int // an exit status
	must     bool       // a stop before the run is a failure: what comes after it must not go on
}

// onceRun is one invocation in once mode.
type onceRun struct {
	*Agent
	Once
	tries int // of the key, ours included
}

// watchKey tells a waiter when the key is decided: it need not wait for the
// lease then, which may be busy with another key.
func (o *onceRun) watchKey(ctx context.Context, decided chan<- int) {
	for {
		limited, done := context.WithTimeout(ctx, o.attempt())
		state, err := o.Key.Read(limited)
		done()
		if err == nil && (state.Done || state.Failed && state.Attempts >= o.MaxAttempts) {
			select {
			case decided <- o.conclude(state):
			case <-ctx.Done():
			}
			return
		}
		again, stop := o.Clock.Until(o.Clock.Now().Add(o.Poll))
		select {
		case <-again:
			stop()
		case <-ctx.Done():
			stop()
			return
		}
	}
}

// serve runs the job under the one term that is needed.
func (o *onceRun) serve(term *leader.Term) (status int, last bool) {
	o.fence, o.tries = term.Fence, 1
	if o.Key != nil {
		if status, over := o.begin(term); over {
			o.release(term)
			return status, true
		}
	}
	if !o.ready(term) {
		o.release(term)
		return o.stoppedBy(), o.stops > 0 // if the lease was lost before the launch, compete again
	}
	since := leader.Stamp(o.Wall())
	term.Note(leader.Record{RunSince: &since}, true)
	run := o.launch("", o.tries)
	if !o.watchman(term, run, true).attend() {
		return exitUnkillable, true
	}
	result := run.Result()
	status = exitStatus(result)
	if isLost(term) || result.Reason != runner.ByItself && result.Reason != runner.Stopped && result.Reason != runner.TimedOut {
		status = ExitLost
	}
	if o.Key != nil && status != ExitLost {
		status = o.end(term, status)
	}
	o.remember(Entry{Fence: o.fence, Kind: KindOnce, Attempt: o.tries, State: onceState(result), ExitCode: status}, result)
	o.release(term)
	return status, true
}

// onceState is how the run ended, as the history says it.
func onceState(r runner.Result) string {
	switch {
	case r.Launched && r.ExitStatus == 0 && r.Reason != runner.TimedOut:
		return schedule.StateDone
	case r.Reason == runner.ByItself || r.Reason == runner.TimedOut:
		return schedule.StateFailed
	default:
		return schedule.StateInterrupted
	}
}

// keyRetry is the wait between two attempts at the key's item.
const keyRetry = 200 * time.Millisecond

// onKey does something to the key's item until it succeeds, finds a later holder,
// or the term ends.
func (o *onceRun) onKey(term *leader.Term, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		came := make(chan error, 1)
		limited, done := context.WithTimeout(ctx, o.attempt())
		go func() { came <- do(limited) }()
		var err error
		for waiting := true; waiting; {
			select {
			case err = <-came:
				waiting = false
			case b := <-term.Beats():
				o.beat(b)
			case <-term.Lost():
				cancel()
				<-came
				done()
				return term.Loss()
			}
		}
		done()
		if err == nil || errors.Is(err, ErrStaleFence) {
			return err
		}
		o.Log.Warn("key can't be reached", "error", err.Error(), "fence", o.fence)
		again, stop := o.Clock.Until(o.Clock.Now().Add(keyRetry))
		select {
		case <-again:
		case <-term.Lost():
		}
		stop()
	}
}

// attempt is the time limit of one request for the key's item.
func (o *onceRun) attempt() time.Duration { return max(o.Poll, time.Second) }

// begin makes this holder the key's, and reports whether there is nothing left
// to run, and with which status that ends. The fence is raised first: a holder
// before us that is not dead yet can't record a success that we did not see.
func (o *onceRun) begin(term *leader.Term) (status int, over bool) {
	var state KeyState
	err := o.onKey(term, func(ctx context.Context) (err error) {
		state, err = o.Key.Begin(ctx, o.fence)
		return err
	})
	// Nobody else runs it now, so an attempt whose end is not recorded is over.
	if err == nil && (state.Done || state.Attempts >= o.MaxAttempts) {
		return o.conclude(state), true
	}
	o.tries = state.Attempts + 1
	if err == nil {
		err = o.onKey(term, func(ctx context.Context) error {
			return o.Key.Count(ctx, o.fence, o.tries, o.Elector.Owner())
		})
	}
	if err != nil {
		o.Log.Error("the key is not ours", "error", err.Error(), "fence", o.fence)
		return ExitLost, true
	}
	return 0, false
}

// end records the result, and reports success only if it is recorded.
func (o *onceRun) end(term *leader.Term, status int) int {
	err := o.onKey(term, func(ctx context.Context) error { return o.Key.End(ctx, o.fence, status == 0, status) })
	if err != nil {
		o.Log.Error("the key's result is not recorded", "error", err.Error(), "exit_code", status, "fence", o.fence)
		return ExitLost
	}
	return status
}

// conclude is the exit status for a key that is decided.
func (o *onceRun) conclude(state KeyState) int {
	if state.Done {
		o.Log.Info("skipped", "reason", "the key is done")
		return ExitOK
	}
	o.Log.Error("the key's attempts are used up: solojob once --forget allows more", "attempts", state.Attempts, "exit_code", state.ExitCode)
	if state.ExitCode == 0 { // none was recorded
		return ExitLost
	}
	return state.ExitCode
}

// held decides what to do about a holder that is alive.
func (o *onceRun) held(holder string) (status int, over bool) {
	switch {
	case o.Key != nil:
		return 0, false
	case o.IfHeld == IfHeldSkip:
		o.Log.Info("skipped", "holder", holder)
		return ExitOK, true
	case o.IfHeld == IfHeldFail:
		o.Log.Warn("lease is held", "holder", holder)
		return ExitHeld, true
	}
	return 0, false
}
