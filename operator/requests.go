package operator

import (
	"context"
	"fmt"
)

func (s *session) pause(ctx context.Context, lease string, noWait bool) command {
	by := s.signature(ctx)
	return command{
		name: "pause", key: Key{lease, ServiceItem}, done: "paused", request: true, noWait: noWait,
		plan: func(seen *Lease) (Change, string) {
			if seen.Requests.Paused {
				return nil, "is paused already, by " + who(seen.Requests.PausedBy) + ": nothing to do"
			}
			return SetPaused{Paused: true, By: by}, ""
		},
		then: func(after *Lease) string {
			if after.Record.Schedule == "" {
				return fmt.Sprintf("Its job is ended, and started again after `solojob resume %s`.", lease)
			}
			return fmt.Sprintf("A run that goes on may end; nothing is started until `solojob resume %s`, and ticks that come meanwhile count as skipped.", lease)
		},
	}
}

func (s *session) resume(ctx context.Context, lease string, noWait bool) command {
	by := s.signature(ctx)
	var asked *Lease // the pause that the operator wants to end is the one seen first
	return command{
		name: "resume", key: Key{lease, ServiceItem}, done: "resumed", request: true, noWait: noWait,
		plan: func(seen *Lease) (Change, string) {
			switch {
			case !seen.Requests.Paused:
				return nil, "is not paused: nothing to do"
			case asked != nil && seen.Requests.PausedBy != asked.Requests.PausedBy:
				return nil, "was paused again in this very moment, by " + who(seen.Requests.PausedBy) + ": nothing was done"
			}
			asked = seen
			return SetPaused{By: by, SeenBy: seen.Requests.PausedBy}, ""
		},
		then: func(after *Lease) string {
			if after.Record.Schedule == "" {
				return "The job is started again."
			}
			return "The next tick runs; those that came during the pause do not."
		},
	}
}

func (s *session) handover(ctx context.Context, lease string, now, noWait bool) command {
	by := s.signature(ctx)
	var asked *Lease // whom the operator has seen holding it
	return command{
		name: "handover", key: Key{lease, ServiceItem}, done: "asked to hand over", request: true, noWait: noWait,
		unread: "If its lease runs out, another task takes over all the same.",
		plan: func(seen *Lease) (Change, string) {
			r := seen.Requests
			switch {
			case seen.Free():
				return nil, "is free: there is nobody to hand it over"
			case asked != nil && asked.Owner != seen.Owner:
				return nil, fmt.Sprintf("has got another holder in this very moment, %s: nothing was done", task(seen.Owner))
			case r.Handover == seen.Owner && (r.HandoverNow || !now):
				return nil, "is asked to be handed over already, by " + who(r.HandoverBy) + ": nothing to do"
			case seen.Draining && !now:
				return nil, fmt.Sprintf("is being given up already, its holder %s is draining: nothing to do (--now would hurry it)", task(seen.Owner))
			}
			asked = seen
			return AskHandover{Owner: seen.Owner, Now: now, By: by}, ""
		},
		then: func(after *Lease) string {
			if now || after.Record.Schedule == "" { // a service's job would never be done
				return "It ends its job, gives the lease up, and a task that stands by takes it."
			}
			return "After its run it gives the lease up, and a task that stands by takes it."
		},
	}
}

// idBytes are the random bytes of a request for a run.
const idBytes = 4

func (s *session) runNow(ctx context.Context, lease string, noWait bool) (command, error) {
	id, err := s.unique(idBytes)
	if err != nil {
		return command{}, err
	}
	by := s.signature(ctx)
	return command{
		name: "run-now", key: Key{lease, ServiceItem}, done: "asked for one extra run", request: true, noWait: noWait,
		plan: func(seen *Lease) (Change, string) {
			r := seen.Requests
			switch {
			case seen.Record.Schedule == "":
				return nil, "has no schedule: its job runs for as long as the lease is held, so there is nothing to run now"
			case r.Paused:
				return nil, fmt.Sprintf("is paused, by %s: nothing is started before `solojob resume %s`", who(r.PausedBy), lease)
			case r.RunNow != "":
				return nil, "is asked for an extra run already, by " + who(r.RunBy) + ": nothing to do until that is taken up"
			}
			return AskRun{ID: id, By: by}, ""
		},
		then: func(after *Lease) string {
			if after.Job().State == JobRunning {
				return "A run goes on: SOLOJOB_OVERLAP says whether the extra one waits, replaces it, or is refused."
			}
			return "The run gets a FENCE of its own, and leaves the ticks alone."
		},
	}, nil
}

func (s *session) bump(ctx context.Context, k Key, to int64, noWait bool) command {
	signature := s.signature(ctx)
	return command{
		name: "fence bump", key: k, done: "fence raised", request: true, noWait: noWait,
		plan: func(seen *Lease) (Change, string) {
			if seen.Fence >= to {
				return nil, fmt.Sprintf("has fence %d: nothing to do for it to be at least %d", seen.Fence, to)
			}
			return RaiseFence{Seen: seen.Fence, To: to, By: fmt.Sprintf("fence %d raised by %s", seen.Fence, signature)}, ""
		},
		then: func(*Lease) string {
			return fmt.Sprintf("Every FENCE from now on is greater than %d.", to)
		},
	}
}
