package agent

import (
	"context"

	"solojob/leader"
	"solojob/runner"
)

// Service runs the job for as long as this task holds the lease. When the job
// ends by itself, the lease is released and the job's exit status is ours, as
// a container's would be. When the lease is lost, the job is killed and the
// task is a standby again.
func (a *Agent) Service(ctx context.Context) (int, error) {
	return a.compete(ctx, a.serviceTerm)
}

// serviceTerm is one term in service mode.
func (a *Agent) serviceTerm(term *leader.Term) (status int, last bool) {
	a.fence = term.Fence
	for {
		if !a.ready(term) {
			term.Release()
			return ExitOK, a.stops > 0
		}
		run := a.launch("", 1)
		if !a.watchman(term, run, false).attend() {
			return exitUnkillable, true
		}
		result := run.Result()
		over := result.Reason == runner.ByItself || result.Reason == runner.TimedOut
		if over || a.stops > 0 || isLost(term) {
			term.Release()
			return exitStatus(result), over || a.stops > 0
		}
		// The lease is still ours: the supervisor died, or the store came back
		// after the job had been told to end.
		if err := a.claim(term, leader.Claim{}); err != nil {
			term.Release()
			return ExitOK, a.stops > 0
		}
	}
}

// exitStatus is ours for a run that was the last.
func exitStatus(r runner.Result) int {
	switch {
	case r.Reason == runner.TimedOut:
		return ExitTimeout
	case !r.Launched && r.ExecErr == nil:
		return ExitOK
	default:
		return r.ExitStatus
	}
}
