package sim

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"solojob/agent"
	"solojob/schedule"
)

const (
	// settled is the hour after which whatever has a bound has reached it.
	settled = 6
	// goroutineSlack is how many more goroutines there may be at the end of the day
	// than then: a request of each task may be under way.
	goroutineSlack = 4
	// heapSlack is how much more memory: less than a word for each of the runs.
	heapSlack = 32 << 10
)

// A day of a deployment, with a run every ten seconds, a heartbeat every five, a
// handover every twenty minutes and a network that loses some of it all, leaves
// nothing behind: after 24 hours the agents have as many goroutines, and as much
// memory, as after six.
func TestADayLeavesNothingBehind(t *testing.T) {
	p := &plan{
		seed: 1, profile: wild, tasks: 2, settings: []settings{standard}, handover: agent.HandoverIdle,
		schedule: "*/10 * * * * *", step: 10 * time.Second, rules: schedule.Rules{CatchUp: 1<<63 - 1, MaxAttempts: 3}, overlap: "skip",
		jobs: habits{length: 2 * time.Second, fails: 0.1, deaf: 0.1},
		road: road{dropped: 0.005, mute: 0.005, failed: 0.005, again: 0.01},
		// What comes after the day ends it.
		horizon: 24*time.Hour + time.Minute, calm: time.Minute, brief: true,
	}
	for at := 20 * time.Minute; at < 24*time.Hour; at += 20 * time.Minute {
		p.faults = append(p.faults, fault{at: at, kind: handOver, slot: holder})
	}
	var hours []leftover
	var h *history
	began := time.Now()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p)
		for hour := time.Duration(1); hour <= 24; hour++ {
			w.at(hour*time.Hour+25*time.Second, func() { hours = append(hours, w.leftover()) })
		}
		h = w.run()
	})
	if h.broken() {
		t.Fatalf("%s\n%s", h.violations[0].what, h)
	}
	var table strings.Builder
	for i, l := range hours {
		fmt.Fprintf(&table, "%4d h %6d runs %4d goroutines %8d bytes\n", i+1, l.runs, l.goroutines, l.heap)
	}
	t.Logf("in %v:\n%s", time.Since(began).Round(time.Second), &table)
	first, last := hours[settled-1], hours[len(hours)-1]
	if last.runs < 8000 {
		t.Errorf("%d runs in all: that was no day", last.runs)
	}
	if last.goroutines > first.goroutines+goroutineSlack || last.heap > first.heap+heapSlack {
		t.Errorf("after %d hours %d goroutines and %d bytes, after a day %d and %d:\n%s", settled, first.goroutines, first.heap, last.goroutines, last.heap, &table)
	}
}

// leftover is what is there at one time.
type leftover struct {
	runs       int
	goroutines int
	heap       int64
}

// leftover looks at everything in a quiet moment, without what the observer
// remembers.
func (w *world) leftover() leftover {
	var l leftover
	l.goroutines = runtime.NumGoroutine()
	for range 40 {
		time.Sleep(50 * time.Millisecond)
		l.goroutines = min(l.goroutines, runtime.NumGoroutine())
	}
	w.promises.mu.Lock()
	l.runs = w.promises.ran
	old := time.Now().Add(-10 * time.Minute).Unix()
	maps.DeleteFunc(w.promises.ticks.byTick, func(at int64, _ *tick) bool { return at < old })
	clear(w.promises.ticks.asked)
	w.promises.ticks.spells = nil
	w.promises.mu.Unlock()
	runtime.GC()
	runtime.GC() // what the first has found to be finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	l.heap = int64(m.HeapAlloc)
	return l
}
