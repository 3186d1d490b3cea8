package runner

import (
	"testing"
	"time"

	"solojob/boottime"
)

func at(d time.Duration) boottime.Instant { return boottime.Instant(time.Hour).Add(d) }

func limitsUntil(validUntil time.Duration) *limits {
	return &limits{validUntil: at(validUntil), grace: 4 * time.Second, margin: time.Second, started: at(0)}
}

// The stop signal is due at valid-until − margin − grace and KILL at
// valid-until − margin, to the nanosecond, and never earlier.
func TestSignalsAreDueAtTheDeadline(t *testing.T) {
	l := limitsUntil(30 * time.Second)
	for _, step := range []struct {
		now  time.Duration
		want verdict
	}{
		{0, letRun},
		{25*time.Second - 1, letRun},
		{25 * time.Second, sendStop},
		{25*time.Second + 1, letRun},
		{29*time.Second - 1, letRun},
		{29 * time.Second, sendKill},
		{40 * time.Second, letRun}, // once is enough: the sweep goes on by itself
	} {
		if got := l.judge(at(step.now)); got != step.want {
			t.Errorf("at %v: %v, want %v", step.now, got, step.want)
		}
	}
	if l.reason != Deadline {
		t.Errorf("reason %q", l.reason)
	}
}

// A pause past the whole deadline ends in KILL at once, without a grace.
func TestAfterAPausePastTheDeadlineThereIsNoGrace(t *testing.T) {
	if got := limitsUntil(30 * time.Second).judge(at(29 * time.Second)); got != sendKill {
		t.Errorf("%v, want KILL", got)
	}
}

// A renewal that comes after the stop signal does not lengthen the grace: the
// run is over.
func TestARenewalDoesNotReviveARunThatWasToldToStop(t *testing.T) {
	l := limitsUntil(30 * time.Second)
	l.judge(at(25 * time.Second))
	l.extend(at(100 * time.Second))
	if got := l.judge(at(29 * time.Second)); got != sendKill {
		t.Errorf("%v, want KILL", got)
	}
}

// A deadline only moves forward: a late message changes nothing.
func TestDeadlinesDoNotMoveBack(t *testing.T) {
	l := limitsUntil(30 * time.Second)
	l.extend(at(20 * time.Second))
	if got := l.judge(at(24 * time.Second)); got != letRun {
		t.Errorf("%v, want none", got)
	}
}

// An agent that wakes after its deadline can't revive the run, even if it
// renews before it looks at the clock.
func TestExtendAfterTheDeadlineChangesNothing(t *testing.T) {
	h := &Hosted{wake: func() {}}
	past := boottime.Now()
	r := h.Launch(Launch{ValidUntil: past})
	r.Extend(past.Add(time.Hour))
	if _, want := h.current(); want.validUntil != past {
		t.Errorf("the deadline moved by %v", want.validUntil.Sub(past))
	}
}

// KILL comes at the earliest of all that demand it, whatever the order of the
// calls; the stop signal is sent once.
func TestStopCanOnlyBringKillForward(t *testing.T) {
	for _, c := range []struct {
		name   string
		stops  []time.Duration // kill-at of each call
		until  time.Duration
		killAt time.Duration
		reason Reason
	}{
		{"one", []time.Duration{10 * time.Second}, 100 * time.Second, 10 * time.Second, Stopped},
		{"later is ignored", []time.Duration{10 * time.Second, 20 * time.Second}, 100 * time.Second, 10 * time.Second, Stopped},
		{"earlier counts", []time.Duration{20 * time.Second, 10 * time.Second}, 100 * time.Second, 10 * time.Second, Stopped},
		{"the deadline is nearer", []time.Duration{20 * time.Second}, 15 * time.Second, 14 * time.Second, Deadline},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := limitsUntil(c.until)
			for i, killAt := range c.stops {
				want := letRun
				if i == 0 {
					want = sendStop
				}
				if got := l.stop(Stopped, at(killAt)); got != want {
					t.Errorf("call %d: %v, want %v", i, got, want)
				}
			}
			if got := l.judge(at(c.killAt - 1)); got != letRun {
				t.Errorf("just before: %v", got)
			}
			if got := l.judge(at(c.killAt)); got != sendKill || l.reason != c.reason {
				t.Errorf("then: %v because %q", got, l.reason)
			}
		})
	}
}

// A run that exceeds its timeout gets the stop signal, and KILL after its grace.
func TestTimeoutStopsThenKills(t *testing.T) {
	l := limitsUntil(time.Hour)
	l.timeout, l.stopGrace = time.Minute, 10*time.Second
	for _, step := range []struct {
		now  time.Duration
		want verdict
	}{
		{time.Minute - 1, letRun},
		{time.Minute, sendStop},
		{70*time.Second - 1, letRun},
		{70 * time.Second, sendKill},
	} {
		if got := l.judge(at(step.now)); got != step.want {
			t.Errorf("at %v: %v, want %v", step.now, got, step.want)
		}
	}
	if l.reason != TimedOut {
		t.Errorf("reason %q", l.reason)
	}
}

// At no instant does judge change its mind without next having announced it:
// the supervisor sleeps until then.
func TestNextAnnouncesEveryVerdict(t *testing.T) {
	l := limitsUntil(30 * time.Second)
	l.timeout, l.stopGrace = 10*time.Second, 3*time.Second
	for verdicts := 0; verdicts < 2; verdicts++ {
		next := l.next()
		if got := l.judge(next - 1); got != letRun {
			t.Fatalf("before the announced instant: %v", got)
		}
		if got := l.judge(next); got == letRun {
			t.Fatal("nothing at the announced instant")
		}
	}
	if next := l.next(); next != 0 {
		t.Errorf("after KILL an instant is announced: %v", next)
	}
}

// Only time in which the agent itself was awake counts as the supervisor's
// silence: after a freeze of the whole task it gets the chance to answer.
func TestAFreezeOfTheWholeTaskIsNotSilence(t *testing.T) {
	const patience = 8 * time.Second
	g := &guard{}
	g.send(at(0), frameExtend, nil)
	if g.silent(at(time.Hour), patience) {
		t.Fatal("silent at the first look after an hour's freeze")
	}
	for i := 1; i < looks-1; i++ {
		if g.silent(at(time.Hour+time.Duration(i)*time.Second), patience) {
			t.Fatalf("silent after %d s awake", i+1)
		}
	}
	if !g.silent(at(time.Hour+looks*time.Second), patience) {
		t.Error("not silent after all of its patience awake")
	}
}

// Any acknowledgement is a sign of life, and a supervisor that owes none is never silent.
func TestAnAcknowledgementEndsTheSilence(t *testing.T) {
	const patience = 8 * time.Second
	g := &guard{}
	if g.silent(at(time.Hour), patience) {
		t.Error("silent without owing anything")
	}
	g.send(at(0), frameExtend, nil)
	g.send(at(0), frameExtend, nil)
	for i := range 100 {
		if g.silent(at(time.Duration(i)*time.Second), patience) {
			t.Fatalf("silent at %d s", i)
		}
		if i%4 == 0 {
			g.heard(1) // the first of two: the second is still owed
		}
	}
}
