package agent

import (
	"time"

	"solojob/boottime"
	"solojob/leader"
)

// When a holder hands the lease to tasks of another revision that announced
// itself, besides when it is told to stop.
const (
	HandoverIdle  = "idle"  // between two runs
	HandoverNever = "never" // it does not
	HandoverNow   = "now"   // at once, ending the run or the service
)

// drainNotice is what a standby needs to learn that the holder drains, in
// excess of its poll: the holder's own write, and the standby's jitter.
const drainNotice = 1.2

// wishes are what the row asks of this holder.
type wishes struct {
	leader.Requests
	announced string // the revision that announced itself last

	tried   map[string]bool  // revisions that had their chance; kept over terms
	why     string           // of the handover under way, "" for none
	yieldAt boottime.Instant // when the standbys know of it
}

// newTerm forgets what the last term was asked. A revision whose invitation
// nobody followed, so that we hold the lease again, is not invited once more:
// a release that crashes in a loop must not move the lease back and forth.
func (w *wishes) newTerm(term *leader.Term) {
	tried := w.tried
	if tried == nil {
		tried = map[string]bool{}
	}
	if term.Uninvited != "" {
		tried[term.Uninvited] = true
	}
	*w = wishes{tried: tried}
	w.hear(term.Row)
}

func (w *wishes) hear(row *leader.Row) {
	w.Requests, w.announced = row.Requests, row.Announced
}

// handover reports whether this holder is to hand over, why, and whether at
// once.
func (a *Agent) handover() (why string, now bool) {
	w := &a.wishes
	switch {
	case w.Handover != "" && w.Handover == a.Elector.Owner():
		return "asked for by " + by(w.HandoverBy), w.HandoverNow
	case a.Revision != "" && w.announced != "" && w.announced != a.Revision && !w.tried[w.announced] && a.Handover != HandoverNever:
		return "revision " + w.announced + " is here", a.Handover == HandoverNow
	}
	return "", false
}

// yield begins a handover that is asked for, and reports whether it is time to
// release: the standbys look at a draining holder's row often, but first they
// have to see that it is one.
func (a *Agent) yield(term *leader.Term) bool {
	why, now := a.handover()
	if why == "" {
		return false
	}
	w := &a.wishes
	if w.why == "" {
		w.why = why
		w.yieldAt = a.Clock.Now().Add(time.Duration(float64(a.Poll) * drainNotice))
		term.Drain()
		a.Log.Info("handing over", "reason", why, "fence", a.fence)
	}
	return now || a.Clock.Now() >= w.yieldAt
}

// by names who asked for something.
func by(who string) string {
	if who == "" {
		return "an operator"
	}
	return who
}
