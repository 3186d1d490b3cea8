//go:build linux

package torture

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"solojob/boottime"
)

var (
	duration = flag.Duration("duration", 20*time.Second, "how long the torture goes on")
	seed     = flag.Uint64("seed", 0, "the plan of faults; 0 for a random one")
)

// ending is what the torture needs beyond its duration.
const ending = 3 * patience

// TestTorture maltreats real processes in three worlds: a service, a schedule
// that runs at least once, and one that runs at most once.
func TestTorture(t *testing.T) {
	defer goleak.VerifyNone(t)
	if deadline, limited := t.Deadline(); limited && time.Until(deadline) < *duration+ending {
		t.Fatalf("a torture of %v would be cut off: give -timeout as well (0 for none)", *duration)
	}
	plan := *seed
	if plan == 0 {
		plan = rand.Uint64()
	}
	t.Logf("seed %d", plan)
	namespaces := false
	if os.Geteuid() != 0 {
		t.Log("without root: no namespaces, no cgroups, no cut of the network")
	} else if err := mayNamespace(); err != nil {
		t.Logf("without namespaces: %v", err)
	} else {
		namespaces = true
	}
	torment(t, plan, namespaces)
}

func torment(t *testing.T, plan uint64, namespaces bool) {
	ctx, cancel := context.WithTimeout(t.Context(), *duration)
	defer cancel()
	began := boottime.Now()
	var worlds []*World
	for i, kind := range worldKinds {
		w, err := newWorld(kind, plan+uint64(i)*1000, namespaces, cancel)
		if err != nil {
			t.Fatalf("no world: %v", err)
		}
		worlds = append(worlds, w)
	}
	inEach := func(do func(i int, w *World)) {
		var all sync.WaitGroup
		for i, w := range worlds {
			all.Go(func() { do(i, w) })
		}
		all.Wait()
	}
	var gaps sync.WaitGroup
	longest := make([]time.Duration, len(worlds))
	for i, w := range worlds {
		w.start()
		gaps.Go(func() { longest[i] = w.watchProgress(ctx) })
	}
	inEach(func(i int, w *World) {
		chaos := &Chaos{world: w, random: rand.New(rand.NewPCG(plan, uint64(i))), taken: map[string]bool{}}
		chaos.run(ctx)
	})
	took := boottime.Now().Sub(began)
	gaps.Wait()
	inEach(func(_ int, w *World) {
		if len(w.broke()) == 0 {
			w.recover()
		}
	})
	inEach(func(_ int, w *World) { w.stop() })
	checkNothingRuns(t)

	t.Log(table(plan, took, namespaces, worlds, longest))
	for _, w := range worlds {
		for _, violation := range w.broke() {
			t.Errorf("%s: %s", w.name, violation)
		}
		if len(w.broke()) > 0 {
			t.Logf("the world %s, seed %d, in seconds:\n%s", w.name, plan, w.story())
		}
	}
	checkThatItHurt(t, worlds)
}

// watchProgress measures for how long, at most, no job of a service ran although
// a task was healthy, and has the ticks accounted for meanwhile.
func (w *World) watchProgress(ctx context.Context) (longest time.Duration) {
	const look = 20 * time.Millisecond
	since := boottime.Now()
	settling := time.NewTicker(telling / 10)
	defer settling.Stop()
	for {
		select {
		case <-ctx.Done():
			return longest
		case <-settling.C:
			w.ticks.settle(telling)
		case <-time.After(look):
		}
		if !w.kind.service() || !w.healthy() || len(w.recorder.living()) > 0 {
			since = boottime.Now()
		}
		longest = max(longest, boottime.Now().Sub(since))
	}
}

// healthy reports whether a task that has had time to start is in no trouble.
func (w *World) healthy() bool {
	for _, s := range w.slots {
		if t := s.current(); t != nil && s.ailing.Load() == 0 && boottime.Now().Sub(t.began) > time.Second {
			return true
		}
	}
	return false
}

// checkNothingRuns looks for what has no mark in its environment: supervisors.
func checkNothingRuns(t *testing.T) {
	var left []Process
	_, gone := until(patience/4, func() bool {
		left = executing(program("solojob"))
		return len(left) == 0
	})
	if !gone {
		t.Errorf("%d processes of solojob are left running, such as %d", len(left), left[0].pid)
		signalEach(left, syscall.SIGKILL)
	}
}

// checkThatItHurt fails a torture in which nothing happened: a harness that is
// broken must not pass for a product that is not.
func checkThatItHurt(t *testing.T, worlds []*World) {
	if t.Failed() || *duration < 15*time.Second {
		return
	}
	for _, w := range worlds {
		for _, what := range []string{"launches", "terms", "writes accepted"} {
			if w.total(what) == 0 {
				t.Errorf("%s: no %s in all that time", w.name, what)
			}
		}
	}
}

// table is the result for people.
func table(plan uint64, took time.Duration, namespaces bool, worlds []*World, longest []time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%v of torture, seed %d, namespaces: %v\n", took.Round(time.Millisecond), plan, namespaces)
	row := func(name string, cell func(i int, w *World) string) {
		fmt.Fprintf(&b, "%-42s", name)
		for i, w := range worlds {
			fmt.Fprintf(&b, "%10s", cell(i, w))
		}
		b.WriteByte('\n')
	}
	row("", func(_ int, w *World) string { return w.name })
	for _, name := range []string{
		"tasks", "launches", "terms", "takeovers", "handovers",
		"ticks run", "ticks run late", "ticks run again", "ticks done", "ticks skipped or missed",
		"ticks skipped or missed, the reason lost", "ticks repeated, their end unrecorded",
		"writes accepted", "writes refused", "excused overlaps", "killed for memory", "periods without CPU", "history: pieces checked", "history: pieces too hard",
	} {
		row(name, func(_ int, w *World) string { return fmt.Sprint(w.total(name)) })
	}
	row("longest without a job, a task healthy", func(i int, w *World) string {
		if !w.kind.service() {
			return "-"
		}
		return longest[i].Round(10 * time.Millisecond).String()
	})
	for _, name := range promises {
		row(name, func(_ int, w *World) string { return fmt.Sprint(w.total("broken: " + name)) })
	}
	for _, w := range worlds {
		for _, group := range []string{"fault: ", "write: ", "refused: ", "status: ", "log: "} {
			fmt.Fprintf(&b, "%s, %s%s\n", w.name, group, w.group(group))
		}
	}
	return b.String()
}

// promises are what can be broken, by the names under which it is counted.
var promises = []string{
	"overlap", "order of FENCE", "FENCE not granted", "fence fell", "stale write accepted",
	"lease left a living job", "early takeover", "protocol", "history", "size",
	"ticks go back", "interrupted run forgotten", "tick twice", "at most once", "attempts", "tick decided twice", "tick unaccounted for",
	"tick off schedule", "tick of the future",
	"lease left held", "does not stop", "left running", "progress", "exit status", "log", "harness",
}
