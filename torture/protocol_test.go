//go:build linux

package torture

import (
	"fmt"
	"strconv"
)

// Kind is what a write means to do to the lease.
type Kind string

// The kinds of writes. Other is what operators do.
const (
	Acquire Kind = "acquire"
	Renew   Kind = "renew"
	Claim   Kind = "claim"
	Release Kind = "release"
	Other   Kind = "other"
)

func (q Request) kind() Kind {
	owner, setsOwner := q.sets["owner"]
	switch {
	case setsOwner && owner != "":
		return Acquire
	case setsOwner:
		return Release
	case q.sets["fence"] != "":
		return Claim
	case q.sets["beat"] != "":
		return Renew
	default:
		return Other
	}
}

// vanishedStep is by how much the fence rises above the highest that an agent
// remembers, where the row shows less.
const vanishedStep = 1_000_000

// forbids says why the protocol does not allow a write on a row as it is, ""
// if it does. It is written down once more here, from the design and not from
// the code: a write of the product that has fewer conditions than this is found
// when the store accepts it, one that has more when the store refuses it.
func (r Row) forbids(q Request) string {
	if q.strange != "" {
		return "it can't be understood: " + q.strange
	}
	fence, _ := strconv.ParseInt(q.sets["fence"], 10, 64)
	switch q.kind() {
	case Acquire:
		return r.forbidsAcquiring(q, fence)
	case Renew, Release:
		return r.forbidsHolding(q)
	case Claim:
		if why := r.forbidsHolding(q); why != "" {
			return why
		}
		if fence != r.Fence+1 {
			return fmt.Sprintf("a claim with the fence %d", fence)
		}
		return r.forbidsTick(q)
	default:
		return ""
	}
}

func (r Row) forbidsAcquiring(q Request, fence int64) string {
	if !r.There {
		if _, absent := q.demands("pk", "absent"); !absent {
			return "there is no row"
		}
		return ""
	}
	if beat, ok := q.demands("beat", "="); !ok || beat != r.Beat {
		return "it was not this beat that was seen"
	}
	if seen, ok := q.demands("fence", "="); !ok || seen != fmt.Sprint(r.Fence) {
		return "it was not this fence that was seen"
	}
	if fence != r.Fence+1 && fence < vanishedStep {
		return fmt.Sprintf("an acquisition with the fence %d", fence)
	}
	return ""
}

// forbidsHolding is for what only the holder may write.
func (r Row) forbidsHolding(q Request) string {
	owner, named := q.demands("owner", "=")
	fence, fenced := q.demands("fence", "=")
	beat, beaten := q.demands("beat", "<")
	switch {
	case !named || r.Owner == "" || owner != r.Owner:
		return "the lease is not the writer's"
	case !fenced || fence != fmt.Sprint(r.Fence):
		return "it is not the writer's fence"
	case !beaten || beat != q.sets["beat"] || beat <= r.Beat:
		return "its beat is not newer"
	}
	return ""
}

// forbidsTick is for a claim that names a tick.
func (r Row) forbidsTick(q Request) string {
	tick, named := q.sets["tick"]
	if !named {
		return ""
	}
	if through, ok := q.demands("through", "<"); ok {
		if through != tick || r.Through >= tick {
			return "the tick is decided"
		}
		return ""
	}
	again, ok := q.demands("tick", "=")
	state, hasState := q.demands("tick_state", "=")
	attempt, hasAttempt := q.demands("tick_attempt", "=")
	switch {
	case !ok || !hasState || !hasAttempt || again != tick:
		return "a tick is claimed without a condition"
	case again != r.Tick || state != r.State || attempt != fmt.Sprint(r.Attempt):
		return "it was not this attempt that was seen"
	case r.State != "running" && r.State != "interrupted":
		return "the tick's run was not interrupted"
	}
	return ""
}
