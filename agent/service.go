package agent

import (
	"context"

	"solojob/leader"
	"solojob/runner"
	"solojob/schedule"
)

// Service runs the job for as long as this task holds the lease. When the job
// ends by itself, the lease is released and the job's exit status is ours, as
// a container's would be. When the lease is lost, the job is killed and the
// task is a standby again.
func (a *Agent) Service(ctx context.Context) (int, error) {
	return a.compete(ctx, func(term *leader.Term) (int, bool) {
		return (&serviceTerm{Agent: a, term: term}).serve()
	})
}

// serviceTerm is one term in service mode.
type serviceTerm struct {
	*Agent
	term *leader.Term
	run  Run // the run going on, nil between runs
}

func (s *serviceTerm) serve() (status int, last bool) {
	s.fence, s.onBeat = s.term.Fence, s.heard
	defer func() { s.onBeat = nil }()
	s.findLost()
	for first := true; s.resumed() && (first || s.claim(s.term, leader.Claim{}) == nil) && s.ready(s.term); first = false {
		since := leader.Stamp(s.Wall())
		s.term.Note(leader.Record{RunSince: &since}, false)
		run := s.launch("", 1)
		s.run = run
		dead := s.watchman(s.term, run, false).attend()
		s.run = nil
		s.term.Note(leader.Record{RunSince: new(string)}, false)
		if !dead {
			return exitUnkillable, true
		}
		result := run.Result()
		s.remember(s.entry(result), result)
		over := result.Reason == runner.ByItself || result.Reason == runner.TimedOut
		if over || s.stops > 0 {
			s.release(s.term)
			return exitStatus(result), true
		}
		// Otherwise the lease may still be ours: the supervisor died, the store
		// came back after the job had been told to end, or the lease is paused.
		if why, _ := s.handoverOfService(); why != "" || isLost(s.term) {
			break
		}
	}
	s.release(s.term)
	return ExitOK, s.stops > 0
}

// findLost enters the run into the history that was going on when the last
// holder fell silent.
func (s *serviceTerm) findLost() {
	before := s.term.Before
	if s.term.How == leader.Expired && before != nil && before.Record.RunSince != nil {
		s.rememberLost(Entry{Fence: before.Fence, Kind: KindService, Attempt: 1}, before)
	}
}

// heard takes in what operators ask, with each heartbeat.
func (s *serviceTerm) heard(leader.Beat) {
	if s.wishes.RunNow != "" {
		s.Log.Warn("request to run now is refused: the job of a service runs all the time", "by", by(s.wishes.RunBy))
		s.term.Answer()
	}
	if s.run == nil {
		return
	}
	if why, _ := s.handoverOfService(); why != "" || s.wishes.Paused {
		if why != "" {
			s.yield(s.term)
		}
		s.run.Stop(s.Clock.Now().Add(s.StopGrace))
	}
}

// handoverOfService is handover, but the job of a service is ended for another
// revision only if the user chose so: it would never be idle.
func (s *serviceTerm) handoverOfService() (why string, now bool) {
	why, now = s.handover()
	if !now && s.wishes.Handover != s.Elector.Owner() {
		return "", false
	}
	return why, now
}

// resumed waits until the lease is not paused, and returns false if the term
// ends before, or is to be handed over.
func (s *serviceTerm) resumed() bool {
	for said := false; s.wishes.Paused && s.stops == 0; said = true {
		if !said {
			s.Log.Info("paused", "by", by(s.wishes.PausedBy), "fence", s.fence)
		}
		select {
		case b := <-s.term.Beats():
			s.beat(b)
		case <-s.term.Lost():
			return false
		case sig := <-s.Stop:
			s.drain(s.term, sig)
		}
		if why, _ := s.handoverOfService(); why != "" {
			return false
		}
	}
	return s.stops == 0
}

// entry is the run in the history, with who asked for its end.
func (s *serviceTerm) entry(r runner.Result) Entry {
	e := Entry{Fence: s.fence, Kind: KindService, Attempt: 1, State: serviceState(r), ExitCode: exitStatus(r)}
	if r.Reason != runner.Stopped || s.stops > 0 {
		return e
	}
	switch {
	case s.wishes.Handover == s.Elector.Owner():
		e.Why, e.By = "handed over", by(s.wishes.HandoverBy)
	case s.wishes.Paused:
		e.Why, e.By = "paused", by(s.wishes.PausedBy)
	}
	return e
}

// serviceState is how a run of a service ended, as the history says it.
func serviceState(r runner.Result) string {
	switch {
	case r.Reason == runner.Stopped:
		return StateStopped
	case r.Reason != runner.ByItself && r.Reason != runner.TimedOut:
		return schedule.StateInterrupted
	case r.ExitStatus == 0:
		return schedule.StateDone
	default:
		return schedule.StateFailed
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
