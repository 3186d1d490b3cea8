//go:build linux

package e2e

import (
	"strconv"
	"testing"
	"time"

	"solojob/boottime"
)

// slowStart is how late a run may start after its tick on a machine that keeps
// up. Where an ordinary run, in a task that leads already, was later, the
// machine is starved, and a tick that a handover delayed past the next one is no
// fault.
const slowStart = 400 * time.Millisecond

// Deploys in a row, each of three tasks that replace three, with a job of 0.3 s
// every second: no tick runs twice and none is missed, and each deploy moves the
// job once, to the new revision. Then a rollback, alike.
func TestDeploysMoveTheJobOnce(t *testing.T) {
	w := newWorld(t, brisk)
	d := w.NewDeployment(3, map[string]string{"SOLOJOB_SCHEDULE": "@every 1s", "PROBE_FOR": "300ms"})
	d.Deploy(1)
	w.Life(2)
	revisions := []int{}
	for n := range rounds(3, 20) {
		revisions = append(revisions, n+2)
	}
	revisions = append(revisions, 1) // the rollback
	for _, revision := range revisions {
		before := boottime.Now()
		old := d.Deploy(revision)
		w.Until("the new revision leads", patience, func() bool { return w.Row().text("revision") == strconv.Itoa(revision) })
		d.StopTimeout(old, patience)
		w.Life(len(w.Lives()) + 2)
		changes := w.store.Find(Acquire, nil, before)
		if len(changes) != 1 {
			t.Errorf("the deploy of revision %d changed the leader %d times", revision, len(changes))
		}
		for _, c := range changes {
			if got := c.After.text("revision"); got != strconv.Itoa(revision) {
				t.Errorf("the deploy of revision %d made one of revision %s lead", revision, got)
			}
		}
	}
	checkTicks(t, w.Lives(), time.Second)
}

// checkTicks checks that runs were of ticks that follow each other.
func checkTicks(t *testing.T, lives []*Life, every time.Duration) {
	t.Helper()
	starved := time.Duration(0)
	missed := 0
	wall, boot := time.Now(), boottime.Now()
	for i, l := range lives {
		tick := tickOf(t, l)
		if i == 0 {
			continue
		}
		before := lives[i-1]
		gap := tick.Sub(tickOf(t, before))
		if gap <= 0 {
			t.Errorf("%v ran tick %v after %v had run %v", l, tick, before, tickOf(t, before))
		}
		if gap > every {
			t.Logf("%d ticks before %v were missed", gap/every-1, tick)
			missed++
		}
		if l.Owner == before.Owner {
			starved = max(starved, wall.Add(l.Started.Sub(boot)).Sub(tick))
		}
	}
	switch {
	case missed == 0:
	case starved > slowStart:
		t.Logf("ticks were missed on a machine that started runs %v late", starved)
	default:
		t.Errorf("ticks were missed in %d places, and ordinary runs were at most %v late", missed, starved)
	}
}

// A deploy while a long run goes on: the run finishes in the old task, which was
// told to stop, unsignalled, and the next tick runs on the new revision.
func TestDeployDuringALongRun(t *testing.T) {
	timing := brisk
	timing.StopGrace = time.Minute
	w := newWorld(t, timing)
	d := w.NewDeployment(3, map[string]string{"SOLOJOB_SCHEDULE": "@every 2s"})
	d.Deploy(1)
	first := w.Life(1)
	long := 4 * time.Second
	if full() {
		long = 20 * time.Second
	}
	old := d.Deploy(2)
	w.During("the run goes on", long, func() bool { _, over := first.Ended(); return !over })
	if _, got := first.Signalled("TERM"); got {
		t.Errorf("%v was told to end", first)
	}
	first.Exit(0, 0)
	d.StopTimeout(old, patience)
	second := w.Life(2)
	second.Exit(0, 0)
	if d.RevisionOf(first) != 1 || d.RevisionOf(second) != 2 {
		t.Errorf("%v ran on revision %d, %v on %d", first, d.RevisionOf(first), second, d.RevisionOf(second))
	}
	if second.Env("SOLOJOB_RUN_ATTEMPT") != "1" || !tickOf(t, second).After(tickOf(t, first)) {
		t.Errorf("%v, tick %v, attempt %s follows %v, tick %v",
			second, tickOf(t, second), second.Env("SOLOJOB_RUN_ATTEMPT"), first, tickOf(t, first))
	}
}

// With SOLOJOB_HANDOVER=never, as for blue/green, the job stays with the old
// revision, whose tasks are there, however long the new ones are.
func TestDeployThatMustNotMoveTheJob(t *testing.T) {
	w := newWorld(t, brisk)
	w.needContainers()
	env := map[string]string{"SOLOJOB_SCHEDULE": "@every 1s", "PROBE_FOR": "100ms", "SOLOJOB_HANDOVER": "never"}
	blue := w.StartTask("blue", 1, env)
	w.Life(1)
	green := w.StartTask("green", 2, env)
	green.Logged("revision announced", 1)
	runs := len(w.Lives())
	w.Life(runs + 4)
	for _, l := range w.Lives() {
		if l.Owner != blue.Owner() {
			t.Errorf("%v ran in the green task", l)
		}
	}
}
