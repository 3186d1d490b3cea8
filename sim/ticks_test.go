package sim

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"solojob/agent"
	"solojob/leader"
	"solojob/schedule"
)

// ticks judges runs on a schedule by promise P3: each tick is decided once. The
// observer demands that
//
//   - the row's through never goes back, and moves past a tick only after that
//     was claimed, or logged as missed or skipped;
//   - a tick is claimed once, and once more for each further attempt, of which
//     there are no more than allowed, none at all with at-most-once;
//   - a run that ended with 0 is not repeated, unless it could not be recorded;
//   - every reason that was logged is true;
//   - every tick that was claimed comes to an end that somebody wrote down;
//   - what was passed over in favour of a later tick was indeed followed by one.
//
// Its methods are called under the lock of the promises.
type ticks struct {
	w       *world
	byTick  map[int64]*tick
	begun   bool  // somebody has written through
	through int64 // of the row
	last    int64
	lost    map[*task]time.Time         // when it last logged that its lease is lost
	outside map[*task]time.Time         // the same, of those that have no other since
	asked   map[*leader.Claim]time.Time // since when a claim may have been wanted
	spells  []spell
	pauses  int // how often an operator paused or resumed
	drains  int // how often a task was told to stop, or to hand over: none counts as an attempt
}

// tick is what became of one.
type tick struct {
	claims []claim
	runs   []*job
	over   bool // a run ended with 0, or by itself
	done   *job // the run that ended with 0
	known  bool // the row has said so
	missed string
}

type claim struct {
	fence   int64
	attempt int
	at      time.Time
}

// early is how long before its time a tick may be claimed: a clock that is up
// to 2 s wrong is not corrected, and the store's dates have whole seconds.
const early = 3 * time.Second

func newTicks(w *world) *ticks {
	return &ticks{w: w, byTick: map[int64]*tick{}, lost: map[*task]time.Time{}, outside: map[*task]time.Time{}, asked: map[*leader.Claim]time.Time{}}
}

// forget is for a row that was deleted or restored: its ticks are, too.
func (k *ticks) forget() { k.byTick, k.begun = map[int64]*tick{}, false }

func (k *ticks) broken(promise, format string, args ...any) {
	k.w.history.violate(promise, format, args...)
}

func (k *ticks) of(unix int64) *tick {
	t := k.byTick[unix]
	if t == nil {
		t = &tick{}
		k.byTick[unix] = t
	}
	return t
}

// unix reads a time of the row; 0 if it is empty.
func unix(s string) int64 {
	if s == "" {
		return 0
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(fmt.Sprintf("the row has a time that is none: %q", s))
	}
	return t.Unix()
}

func clockTime(unix int64) string { return time.Unix(unix, 0).UTC().Format("2006-01-02 15:04:05") }

// wrote is called for every write that the store applies.
func (k *ticks) wrote(t *task, q request, before, after *leader.Row) {
	if before == nil {
		before = &leader.Row{}
	}
	was, is := unix(before.Record.Through), unix(after.Record.Through)
	if q.op == "claim" {
		from := k.asked[q.claim]
		switch {
		case q.claim.Tick != "":
			from = time.Unix(unix(q.claim.Tick), 0)
		case q.claim.RunNow != "":
			from = time.Time{} // whenever the operator asked: it waits its turn
		}
		k.begin(spell{t: t, fence: after.Fence, from: from})
		if q.claim.Tick != "" || q.claim.Again != nil { // not an extra run, or an operator's request
			k.claimed(t, q.claim.Again != nil, before, after)
		}
	}
	// A holder can't tell an old row from its own if somebody raised the fence of it.
	if q.op == "renew" && before.Record.Tick != after.Record.Tick && !k.w.promises.meddled {
		k.broken("P3", "a heartbeat changes the tick from %s %s to %s %s", before.Record.Tick, before.Record.TickState, after.Record.Tick, after.Record.TickState)
	}
	if is < was {
		k.broken("P3", "through goes back from %s to %s", clockTime(was), clockTime(is))
	}
	if ahead := time.Until(time.Unix(is, 0)); ahead > early {
		k.broken("P6", "%s decides ticks %s before their time", t.name, ahead)
	}
	step := int64(k.w.plan.step / time.Second)
	for at := was - was%step + step; k.begun && was > 0 && at <= is; at += step {
		if d := k.of(at); len(d.claims) == 0 && d.missed == "" {
			k.broken("P3", "the tick %s is passed over by %s: neither run, nor skipped, nor missed", clockTime(at), t.name)
		}
	}
	k.begun, k.through = k.begun || is > 0, is
	if r := after.Record; r.TickState == schedule.StateDone {
		d := k.of(unix(r.Tick))
		if d.done == nil && k.begun && !k.w.promises.meddled {
			k.broken("P3", "the tick %s is recorded as done, and no run of it ended with 0", r.Tick)
		}
		d.known = true
	}
}

// asks is called when a claim is sent, by each of its attempts.
func (k *ticks) asks(t *task, c *leader.Claim) {
	if _, again := k.asked[c]; again {
		return
	}
	// It may have waited for another write, which began after the reply before it.
	k.asked[c] = t.replyBeforeLast()
}

func (k *ticks) claimed(t *task, again bool, before, after *leader.Row) {
	at, attempt := unix(after.Record.Tick), after.Record.Attempt
	d := k.of(at)
	switch {
	case again && k.w.plan.rules.AtMostOnce:
		k.broken("P3", "the tick %s is claimed again, with at-most-once", clockTime(at))
	case again && before.Record.TickState != schedule.StateRunning && before.Record.TickState != schedule.StateInterrupted:
		k.broken("P3", "the tick %s is claimed again, and is %s", clockTime(at), before.Record.TickState)
	case !again && len(d.claims) > 0:
		k.broken("P3", "the tick %s is claimed twice", clockTime(at))
	case attempt > max(1, k.w.plan.rules.MaxAttempts):
		k.broken("P3", "attempt %d at the tick %s", attempt, clockTime(at))
	}
	if ahead := time.Until(time.Unix(at, 0)); ahead > early {
		k.broken("P6", "%s claims the tick %s %s before its time", t.name, clockTime(at), ahead)
	}
	d.claims = append(d.claims, claim{after.Fence, attempt, time.Now()})
	k.last = max(k.last, at)
}

// spell is a run as its agent sees it: from when it was wanted, since its claim
// may take its time, to the report of its end.
type spell struct {
	t     *task
	fence int64
	from  time.Time
	job   *job // nil until it is executed
}

// recent is how many of them are remembered: those that may have overlapped a
// tick that is logged now.
const recent = 30

func (k *ticks) begin(s spell) {
	if len(k.spells) == recent {
		k.spells = append(k.spells[:0], k.spells[1:]...)
	}
	k.spells = append(k.spells, s)
}

// ran is called when any job begins.
func (k *ticks) ran(j *job) {
	j.began = time.Now()
	for i := range k.spells {
		if s := &k.spells[i]; s.t == j.t && s.fence == j.fence {
			s.job = j
		}
	}
}

// executed is called when a job for a tick begins.
func (k *ticks) executed(j *job) {
	d := k.of(unix(j.tick))
	claimed := false
	for _, c := range d.claims {
		claimed = claimed || c.fence == j.fence
	}
	if !claimed && !k.w.promises.meddled && k.w.plan.before == 0 {
		k.broken("P3", "a job runs for the tick %s, which was not claimed with fence %d", j.tick, j.fence)
	}
	d.runs = append(d.runs, j)
	most := max(1, k.w.plan.rules.MaxAttempts) + k.drains
	switch {
	case k.w.plan.rules.AtMostOnce && len(d.runs) > 1:
		k.broken("P3", "the tick %s runs a second time, with at-most-once", j.tick)
	case len(d.runs) > most:
		k.broken("P3", "the tick %s runs %d times, and there were %d reasons to drain a run", j.tick, len(d.runs), k.drains)
	case d.known:
		k.broken("P3", "the tick %s runs again, although the row said that it was done", j.tick)
	case d.done != nil && !k.couldNotRecord(d.done):
		k.broken("P3", "the tick %s runs again, although %s could have recorded that it was done", j.tick, d.done.t.name)
	}
}

// couldNotRecord reports whether the task of a run that ended with 0 had no
// chance to write that down.
func (k *ticks) couldNotRecord(j *job) bool {
	return j.t.isDead() || k.lost[j.t].After(j.began) || j.t.clock.read() >= k.w.promises.limits[j.t]
}

// died is called when a job for a tick is dead.
func (k *ticks) died(j *job) {
	d := k.of(unix(j.tick))
	switch {
	case j.status == 0:
		d.done, d.over = j, true
	case j.byItself:
		d.over = true
	}
}

// logged is called for a line that says that ticks are not run.
func (k *ticks) logged(t *task, message string, attrs map[string]slog.Value) {
	latest, count, reason := unix(attrs["tick"].String()), attrs["count"].Int64(), attrs["reason"].String()
	if since, out := k.outside[t]; out && since.Before(time.Now()) {
		k.broken("P3", "%s decides ticks, and has lost the lease at %s: %s", t.name, since.Format("15:04:05.000"), message)
	}
	step := int64(k.w.plan.step / time.Second)
	for i := range count {
		at := latest - i*step
		k.of(at).missed = reason
		k.check(t, at, reason)
	}
	if _, more := attrs["or_more"]; more { // up to what is decided already
		for at := latest - count*step; at > k.through && len(k.of(at).claims) == 0; at -= step {
			k.of(at).missed = reason
		}
	}
}

// check judges whether a reason is true.
func (k *ticks) check(t *task, at int64, reason string) {
	d, rules := k.of(at), k.w.plan.rules
	wrong := func(why string) {
		k.broken("P3", "%s logs that the tick %s is not run: %s; but %s", t.name, clockTime(at), reason, why)
	}
	switch reason {
	case schedule.ReasonSuperseded:
		if d.over && len(d.claims) > 0 && !k.w.promises.meddled {
			wrong("it was run")
		}
	case schedule.ReasonTooOld:
		if age := time.Since(time.Unix(at, 0)); age < rules.CatchUp-early {
			wrong(fmt.Sprintf("it is only %s old", age))
		}
	case schedule.ReasonAttempts:
		if n := len(d.claims); (n == 0 || d.claims[n-1].attempt < rules.MaxAttempts) && !k.w.promises.meddled {
			wrong(fmt.Sprintf("there were %d claims", n))
		}
	case schedule.ReasonAtMostOnce:
		if !rules.AtMostOnce {
			wrong("that was not asked for")
		}
	default:
		if strings.HasPrefix(reason, "paused by operator") {
			if k.pauses == 0 {
				wrong("nobody paused")
			}
			return
		}
		// the last run goes on
		if !k.ranAt(t, at) {
			wrong("none did")
		}
	}
}

// ranAt reports whether a task had a run at a tick's time, as its clock shows it.
func (k *ticks) ranAt(t *task, at int64) bool {
	when := time.Unix(at, 0)
	return slices.ContainsFunc(k.spells, func(s spell) bool {
		ended := s.job != nil && !s.job.told.IsZero() && s.job.told.Before(when.Add(-early))
		return s.t == t && s.from.Before(when.Add(early)) && !ended
	})
}

// afterCalm is called when all must be well again.
func (k *ticks) afterCalm(row *leader.Row) {
	if row == nil {
		k.broken("progress", "there is no row")
		return
	}
	s := k.w.plan.longest()
	slack := 2*k.w.plan.step + 3*k.w.plan.jobs.length + s.stopGrace + 30*time.Second
	if behind := time.Since(time.Unix(unix(row.Record.Through), 0)); behind > slack {
		k.broken("P3", "nothing was decided for %s: %s", behind, show(row))
	}
	if age := time.Since(time.Unix(k.last, 0)); age > slack+k.w.plan.step {
		k.broken("progress", "no tick was claimed for %s: %s", age, show(row))
	}
	for at, d := range k.byTick {
		recent := time.Since(time.Unix(at, 0)) < slack
		switch {
		case recent:
		case len(d.claims) > 0 && !d.over && !d.known && d.missed == "" && k.w.plan.overlap != agent.OverlapReplace:
			k.broken("P3", "the tick %s was claimed %d times, came to no end, and nobody says so", clockTime(at), len(d.claims))
		case d.missed == schedule.ReasonSuperseded && at >= k.last:
			k.broken("P3", "the tick %s was passed over for a later one, and none ran", clockTime(at))
		}
	}
}
