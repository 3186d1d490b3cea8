//go:build linux

package torture

import (
	"sync"
	"time"

	"solojob/boottime"
)

// Ticks is the account of a world's ticks: what the row says was decided, and
// what the logs give as the reason where a tick did not run. The row is the
// truth: a line of the log may die with its task.
type Ticks struct {
	world *World

	mu      sync.Mutex
	done    map[string]int64 // recorded in the row as ended with 0, and the fence of that run
	starts  map[string]int   // lives
	claims  map[string]int
	told    map[string]bool // reported as missed or skipped
	decided []decision
	claimer string           // who claimed last
	term    int64            // the fence of the last acquisition
	ended   map[string]*Life // by tick, the life that said it ends with 0
}

// decision is a tick that a write of the row decided, and that did not run.
type decision struct {
	tick, owner string
	at          boottime.Instant
}

// telling is how long a line may take from its task to us: longer than chaos
// stops anything.
const telling = 30 * time.Second

// every is the distance of two ticks of the schedule, and of the epoch.
const (
	every    = 2 * time.Second
	schedule = "*/2 * * * * *"
)

// attempts is how often a run that is interrupted is started in all.
const attempts = 3

// early is how far in the store's future a tick may be claimed: a task's clock
// is believed if it is not wrong by more than two seconds, and the store's date
// has whole seconds.
const early = 3500 * time.Millisecond

func newTicks(w *World) *Ticks {
	return &Ticks{world: w, done: map[string]int64{}, starts: map[string]int{}, claims: map[string]int{}, told: map[string]bool{}, ended: map[string]*Life{}}
}

// written is called with the store's lock held, for each write of the row.
func (k *Ticks) written(kind Kind, before, after Row) {
	if k.world.kind.service() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if before.Through > after.Through || before.Tick > after.Tick {
		k.world.violate("ticks go back", "from %v to %v", before, after)
	}
	if after.State == "done" && before.State != "done" {
		k.done[after.Tick] = after.Fence
		k.world.count("ticks done")
	}
	k.interrupted(kind, before, after)
	if kind == Acquire {
		k.term = after.Fence
	}
	claimed := ""
	if kind == Claim {
		k.claimer = after.Owner
		claimed = after.Tick
		k.claimed(before, after)
	}
	if before.Through == "" || before.Schedule != after.Schedule {
		return // a new lease starts from now
	}
	from, to := instantOf(before.Through), instantOf(after.Through)
	for t := from.Truncate(every).Add(every); !t.After(to); t = t.Add(every) {
		if tick := stamp(t); tick != claimed {
			k.decided = append(k.decided, decision{tick, after.Owner, boottime.Now()})
		}
	}
}

// interrupted checks that a run which did not come to its end is started again,
// unless it had all its attempts: only its own task may write that it failed,
// and nobody may claim the next tick before.
func (k *Ticks) interrupted(kind Kind, before, after Row) {
	open := before.State == "running" || before.State == "interrupted"
	if !open || k.world.kind.atMostOnce || before.Attempt >= attempts {
		return
	}
	forgotten := kind == Claim && after.Tick != before.Tick
	disowned := after.State == "failed" && after.Tick == before.Tick && after.Owner != k.claimer
	if forgotten || disowned {
		k.world.violate("interrupted run forgotten", "from %v to %v", before, after)
	}
}

// claimed is about a tick that is to run.
func (k *Ticks) claimed(before, after Row) {
	w := k.world
	k.claims[after.Tick]++
	tick := instantOf(after.Tick)
	ahead := time.Until(tick)
	switch {
	case !tick.Equal(tick.Truncate(every)):
		w.violate("tick off schedule", "%s", after.Tick)
	case ahead > early:
		w.violate("tick of the future", "%s was claimed %v before it came", after.Tick, ahead)
	}
	if after.Tick != before.Tick {
		w.count("ticks run")
		if ahead < -every {
			w.count("ticks run late")
		}
		return
	}
	w.count("ticks run again")
	if w.kind.atMostOnce {
		w.violate("at most once", "%s was claimed again", after.Tick)
	}
	if k.done[after.Tick] > 0 {
		w.violate("tick twice", "%s was claimed again, though the row had it as done", after.Tick)
	}
	if l := k.ended[after.Tick]; l != nil && l.owner == after.Owner && l.fence >= k.term && !l.task.touched.Load() {
		w.violate("tick twice", "%s was claimed again by the very term in which %v had ended with 0", after.Tick, l)
	}
	if after.Attempt > attempts {
		w.violate("attempts", "%s has attempt %d", after.Tick, after.Attempt)
	}
}

// finish takes in that a job says it ends with 0. Where that reaches the row, the
// tick never runs again; where it does not, at-least-once may repeat it. But a
// task of which chaos touched no process knows it, while its term goes on.
func (k *Ticks) finish(l *Life) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended[l.tick] = l
}

// started is a life that begins.
func (k *Ticks) started(l *Life) {
	if l.tick == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.starts[l.tick]++
	w := k.world
	// The hello of a short run may be read after its end was written.
	if fence := k.done[l.tick]; fence > 0 && l.fence > fence {
		w.violate("tick twice", "%v runs %s, which the row has as done", l, l.tick)
	}
	if w.kind.atMostOnce && k.starts[l.tick] > 1 {
		w.violate("at most once", "%v is the second to run %s", l, l.tick)
	}
	if k.ended[l.tick] != nil {
		w.count("ticks repeated, their end unrecorded")
	}
}

// reported takes in a line that says that ticks do not run.
func (k *Ticks) reported(l line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	tick, err := time.Parse(time.RFC3339, l.Tick)
	if err != nil || l.Reason == "" {
		k.world.violate("log", "a line says neither which tick nor why: %+v", l)
		return
	}
	for range l.Count {
		k.told[stamp(tick)] = true
		tick = tick.Add(-every)
	}
}

// settle looks at the ticks that were decided some time ago: each ran, or there
// is a line that says why not, unless that may have died with its task.
func (k *Ticks) settle(ago time.Duration) {
	owners, before := k.world.owners(), boottime.Now().Add(-ago)
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.decided) > 0 && k.decided[0].at <= before {
		d := k.decided[0]
		k.decided = k.decided[1:]
		t := owners[d.owner]
		switch {
		case k.claims[d.tick] > 0:
			k.world.violate("tick decided twice", "%s ran, and was decided not to by %s", d.tick, d.owner)
		case k.told[d.tick]:
			k.world.count("ticks skipped or missed")
		case t == nil || t.hears != hearsPipe || t.killed.Load():
			k.world.count("ticks skipped or missed, the reason lost")
		default:
			k.world.violate("tick unaccounted for", "%s was decided by %s, did not run, and no line says why", d.tick, d.owner)
		}
	}
}

// stamp is how the row says an instant.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func instantOf(stamp string) time.Time {
	t, _ := time.Parse(time.RFC3339, stamp) // the row's own, which the product reads as well
	return t.UTC()
}
