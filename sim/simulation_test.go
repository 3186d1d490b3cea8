package sim

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds = flag.Int("sim.seeds", 60, "how many runs TestSimulation makes")
	first = flag.Uint64("sim.first", 1, "the seed of the first of them")
	seed  = flag.Uint64("sim.seed", 0, "make only the run of this seed, and print its history with -v")
	quiet = flag.Bool("sim.quiet", false, "do not look for a shorter history when a promise is broken")
	say   = flag.Bool("sim.say", false, "say which seed runs, to know which one ends in a panic")
	list  = flag.Bool("sim.list", false, "go on after a broken promise, and only list them")
)

// in runs a plan in a bubble of its own.
func in(t *testing.T, p *plan) (h *history) {
	synctest.Test(t, func(*testing.T) { h = simulate(p) })
	return h
}

// Whatever goes wrong with network, clocks, processes and deploys, the promises
// are kept, by what an observer sees who sees everything.
func TestSimulation(t *testing.T) {
	if *seed != 0 {
		p := newPlan(*seed)
		h := in(t, p)
		t.Logf("%s\n%s", p, h.tail(len(h.events)))
		if h.broken() {
			fail(t, p, h)
		}
		return
	}
	began := time.Now()
	var mu sync.Mutex
	faults, runs, fakeTime := map[string]int{}, 0, time.Duration(0)
	next := *first
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				mu.Lock()
				n := next
				next++
				done := n >= *first+uint64(*seeds) || t.Failed() && !*list
				mu.Unlock()
				if done {
					return
				}
				if *say {
					fmt.Println("running seed", n)
				}
				p := newPlan(n)
				h := in(t, p)
				mu.Lock()
				runs++
				fakeTime += p.horizon
				for k, v := range h.faults {
					faults[k] += v
				}
				switch {
				case h.broken() && *list:
					t.Errorf("seed %d: %s", n, h.violations[0])
				case h.broken() && !t.Failed():
					fail(t, p, h)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(&b, "%9d  %s\n", faults[k], k)
	}
	t.Logf("%d runs, %s of simulated time with faults, in %s\n%s", runs, fakeTime.Round(time.Minute), time.Since(began).Round(time.Second), &b)
}

// fail reports a broken promise, with the shortest history that can be found.
func fail(t *testing.T, p *plan, h *history) {
	t.Errorf("seed %d: %s\nonce more: go test ./sim -run 'TestSimulation$' -sim.seed=%d -v", p.seed, h.violations[0].what, p.seed)
	if *quiet {
		return
	}
	p, h = shorten(t, p, h)
	t.Logf("%s\n%s", p, h)
}

// shortening is how long to look for a shorter history.
const shortening = 20 * time.Second

// shorten leaves out of a plan whatever is not needed to break a promise.
func shorten(t *testing.T, p *plan, h *history) (*plan, *history) {
	until := time.Now().Add(shortening)
	try := func(change func(*plan)) bool {
		q := *p
		q.faults = slices.Clone(p.faults)
		change(&q)
		for range 2 { // what the runtime decides may hide it
			if time.Now().After(until) {
				return false
			}
			if g := in(t, &q); g.broken() {
				p, h = &q, g
				return true
			}
		}
		return false
	}
	if at := h.violations[0].at; at < p.horizon {
		try(func(q *plan) { q.horizon = at + time.Millisecond })
	}
	for size := len(p.faults) / 2; size > 0; size /= 2 {
		for i := 0; i+size <= len(p.faults); {
			if !try(func(q *plan) { q.faults = slices.Delete(q.faults, i, i+size) }) {
				i += size
			}
		}
	}
	for _, calmer := range []func(*plan){
		func(q *plan) { q.road = road{} },
		func(q *plan) { q.road.dropped, q.road.mute, q.road.failed = 0, 0, 0 },
		func(q *plan) { q.road.again, q.road.late = 0, 0 },
		func(q *plan) { q.road.stale, q.bare = 0, 0 },
		func(q *plan) { q.jobs.deaf, q.jobs.stuck, q.jobs.fails = 0, 0, 0 },
		func(q *plan) { q.settings = q.settings[:1] },
		func(q *plan) { q.tasks = 2 },
	} {
		try(calmer)
	}
	return p, h
}

// A seed is as good as the history that it repeats.
func TestSeedsRepeat(t *testing.T) {
	const tried = 10
	same := 0
	for n := range uint64(tried) {
		first, second := in(t, newPlan(n+1)), in(t, newPlan(n+1))
		if first.fingerprint() == second.fingerprint() {
			same++
		}
	}
	t.Logf("%d of %d seeds gave the same history twice, to the nanosecond", same, tried)
	if same < tried/2 {
		t.Errorf("only %d of %d", same, tried)
	}
}
