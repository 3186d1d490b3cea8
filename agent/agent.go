// Package agent is where a term meets a run: it receives the terms that the
// elector wins, launches the job under them, carries the lease's deadlines to
// the job's supervisor, and gives the lease back when the job is dead.
//
// One file for each mode ([Agent.Service], [Agent.Cron]) says when the job is
// launched and what its end means. What they share is [Agent.attend]: from a
// launch to the confirmed death of everything that was launched.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"time"

	"solojob/boottime"
	"solojob/leader"
	"solojob/runner"
)

// Exit statuses of an agent, besides the job's own.
const (
	ExitOK      = 0   // told to stop, and did
	ExitRefused = 69  // the lease store refuses us for good (EX_UNAVAILABLE)
	ExitHeld    = 75  // once: somebody else holds the lease (EX_TEMPFAIL)
	ExitLost    = 79  // the lease was lost and the job killed, or could not be
	ExitTimeout = 124 // the job exceeded its run timeout, as timeout(1) says it
)

// Run is one launch of the job, a [*runner.Run].
type Run interface {
	Started() <-chan struct{}
	Pid() int
	Extend(validUntil boottime.Instant)
	Stop(killAt boottime.Instant)
	Kill(reason runner.Reason)
	Done() <-chan struct{}
	Result() runner.Result
}

// Options are what an agent is made of.
type Options struct {
	Elector *leader.Elector
	Launch  func(runner.Launch) Run
	Clock   leader.Clock
	Wall    func() time.Time

	// Stop delivers each request to stop: the first asks for it, the second
	// ends the job's patience, the third kills.
	Stop <-chan os.Signal

	Lease    string        // its name
	Poll     time.Duration // between the standbys' reads
	Revision string        // of the code, "" if unknown
	Handover string        // one of the Handover constants

	Environ []string // ours, of which the job gets all but our settings

	LossGrace  time.Duration // TERM → KILL when the lease is slipping
	KillMargin time.Duration // KILL → the end of the lease
	StopGrace  time.Duration // stop request → KILL
	Timeout    time.Duration // of a run, 0 for none

	// Busy are told when a run begins and when it has ended. They must not block.
	Busy []Busy

	// History keeps what became of a run. It may be nil, may block until its
	// context ends, and is called by one goroutine, off the heartbeat's path.
	History func(context.Context, Entry) error

	Log *slog.Logger // must not block
}

// Busy wants to know whether a run is going on.
type Busy interface {
	Begin()
	End()
}

// Agent runs one job under one lease. Use it for one mode, once.
type Agent struct {
	Options
	fence int64            // of the term's last launch
	until boottime.Instant // the deadline of the term
	stops int              // requests to stop so far
	asked os.Signal        // the first of them
	stop  boottime.Instant // when the first came
	quit  func()           // ends the elector, whatever it does

	wishes    wishes
	historian *historian

	// What a mode wants to know whatever the agent waits for; may be nil.
	onBeat func(leader.Beat)
	alarm  boottime.Timer
	onTick func()
}

// New returns an agent that does nothing yet.
func New(o Options) *Agent { return &Agent{Options: o} }

// compete runs the elector, and serve for each term that it wins, until serve
// says that it is the last, the agent is told to stop, or the store refuses us.
// It returns the exit status; the error, if any, is a sentence for the user.
func (a *Agent) compete(ctx context.Context, serve func(*leader.Term) (status int, last bool)) (int, error) {
	return a.competeOr(ctx, serve, waiting{})
}

// competeOr is compete for a mode that may end before it wins a term.
func (a *Agent) competeOr(ctx context.Context, serve func(*leader.Term) (status int, last bool), wait waiting) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.quit = cancel
	a.historian = newHistorian(a.History, a.Log)
	defer a.historian.close()
	ran := make(chan error, 1)
	go func() { ran <- a.Elector.Run(ctx) }()
	end := func(status int, err error) (int, error) {
		a.Elector.Stop()
		<-ran
		return status, err
	}
	for {
		select {
		case term := <-a.Elector.Terms():
			a.wishes.newTerm(term)
			status, last := serve(term)
			if !last {
				continue
			}
			if status == exitUnkillable {
				cancel() // the lease is left as it is
				status = ExitLost
			}
			return end(status, nil)
		case s := <-a.Stop:
			a.ask(s)
			if wait.must {
				return end(a.stoppedBy(), nil)
			}
			return end(ExitOK, nil)
		case holder := <-a.Elector.Held():
			if wait.held == nil {
				continue
			}
			if status, over := wait.held(holder); over {
				return end(status, nil)
			}
		case <-wait.patience:
			return end(ExitHeld, errors.New("the lease was held by somebody else for as long as SOLOJOB_WAIT allows"))
		case status := <-wait.decided:
			return end(status, nil)
		case err := <-ran:
			if errors.Is(err, leader.ErrRefused) {
				return ExitRefused, err
			}
			return ExitOK, nil
		}
	}
}

// exitUnkillable is a serve function's way to say that processes of the job may
// still be alive: the agent ends, and does not release. In a container the
// kernel then kills the rest.
const exitUnkillable = -1

// ask counts a request to stop.
func (a *Agent) ask(s os.Signal) {
	if a.stops == 0 {
		a.stop, a.asked = a.Clock.Now(), s
	}
	a.stops++
}

// stoppedBy is the exit status of a program that a signal ended before it had
// done what it was started for.
func (a *Agent) stoppedBy() int {
	if s, ok := a.asked.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return ExitLost
}

// beat takes in an applied write of the lease.
func (a *Agent) beat(b leader.Beat) {
	a.until = b.ValidUntil
	a.wishes.hear(b.Row)
	if a.onBeat != nil {
		a.onBeat(b)
	}
}

// launchBy is the instant from which the job would be told to end again at
// once, so that nothing is launched any more.
func (a *Agent) launchBy() boottime.Instant {
	return a.until.Add(-a.KillMargin - a.LossGrace)
}

// ready waits until the lease is valid for long enough to launch under it. It
// returns false if the term is lost or the agent was told to stop before.
func (a *Agent) ready(term *leader.Term) bool {
	for a.stops == 0 {
		select {
		case b := <-term.Beats():
			a.beat(b)
			continue
		case <-term.Lost():
			return false
		case s := <-a.Stop:
			a.drain(term, s)
			continue
		default:
		}
		if a.Clock.Now() < a.launchBy() {
			return true
		}
		select {
		case b := <-term.Beats():
			a.beat(b)
		case <-term.Lost():
			return false
		case s := <-a.Stop:
			a.drain(term, s)
		}
	}
	return false
}

// claim asks for the right to launch. The error is that of [leader.Term.Claim],
// or errStopping if the agent was told to stop and the store did not answer
// within the loss grace: a claim that was applied is better known than dropped.
func (a *Agent) claim(term *leader.Term, c leader.Claim) error {
	type result struct {
		fence int64
		err   error
	}
	came := make(chan result, 1)
	go func() {
		fence, err := term.Claim(c)
		came <- result{fence, err}
	}()
	var patience boottime.Timer
	defer patience.Stop()
	for {
		select {
		case r := <-came:
			if r.err == nil {
				a.fence = r.fence
			}
			return r.err
		case b := <-term.Beats():
			a.beat(b)
		case s := <-a.Stop:
			a.drain(term, s)
			patience.Set(a.Clock, a.stop.Add(a.LossGrace))
		case <-patience.C():
			return errStopping // the release drops the claim
		}
	}
}

var errStopping = errors.New("told to stop")

// release gives the lease up, when everything of the job is dead. A store that
// does not answer is asked again until the lease runs out; another request to
// stop ends that.
func (a *Agent) release(term *leader.Term) {
	released := make(chan struct{})
	go func() {
		defer close(released)
		term.Release()
	}()
	for {
		select {
		case <-released:
			return
		case s := <-a.Stop:
			a.ask(s)
			a.Elector.Stop()
			if a.stops > 1 {
				a.quit()
			}
		}
	}
}

// drain takes in a request to stop while a term is held.
func (a *Agent) drain(term *leader.Term, s os.Signal) {
	a.ask(s)
	if a.stops == 1 {
		a.Log.Info("draining", "fence", a.fence)
		a.Elector.Stop()
		term.Drain()
	}
}
