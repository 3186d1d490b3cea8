//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"solojob/boottime"
)

// Many tasks with one key, started together, make one run, and all end with 0,
// none of them before it is done, whatever they were told to do while the lease
// is held.
func TestManyTasksRunAKeyOnce(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, attentive)
	ifHeld := []string{"wait", "skip", "fail"}
	tasks := make([]*Agent, rounds(8, 50))
	for i := range tasks {
		tasks[i] = w.Once(fmt.Sprintf("t%d", i), keyed("release-1", "SOLOJOB_IF_HELD", ifHeld[i%len(ifHeld)]))
	}
	life := w.Life(1)
	winner := w.AgentOf(life)
	others := w.Others(winner)
	for _, a := range others {
		w.Wait(a) // one by one: fifty starts take a while
	}
	w.During("nobody goes on before the run is done", 2*w.timing.Heartbeat, func() bool {
		for _, a := range tasks {
			if !a.Running() {
				return false
			}
		}
		return len(w.Lives()) == 1
	})
	life.Exit(0, 0)
	for _, a := range tasks {
		if status := a.Ended(); status != 0 {
			t.Errorf("agent %s ended with %d", a.Name, status)
		}
	}
	for _, a := range others {
		a.Logged("skipped", 1)
	}
	if runs := len(w.Lives()); runs != 1 {
		t.Errorf("%d runs", runs)
	}
	if key := w.Key("release-1"); key.text("state") != "done" || key.number("attempts") != 1 || key.Fence() < life.Fence {
		t.Errorf("the key's item says: %v", key)
	}
}

// A key whose run fails is tried by the next contender, three times in all: the
// fourth does not run it, and all fail with the job's status. A key whose
// attempts are used up is run again once it is forgotten, and one that is done
// is remembered for ever.
func TestAttemptsOfAKeyAreUsedUp(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, attentive)
	env := keyed("release-1", "SOLOJOB_MAX_ATTEMPTS", "3")
	var tasks []*Agent
	for i := range 5 {
		tasks = append(tasks, w.Once(fmt.Sprintf("t%d", i), env, 7))
	}
	for attempt := 1; attempt <= 3; attempt++ {
		life := w.Life(attempt)
		if got := life.Env("SOLOJOB_RUN_ATTEMPT"); got != strconv.Itoa(attempt) {
			t.Errorf("run %d is told that it is attempt %s", attempt, got)
		}
		life.Exit(7, 0)
	}
	tasks = append(tasks, w.Once("late", env, 7))
	ran := 0
	for _, a := range tasks {
		if status := a.Ended(); status != 7 {
			t.Errorf("agent %s ended with %d, the job with 7", a.Name, status)
		}
		a.readers.Wait()
		ran += len(a.Lines("job started"))
	}
	if runs := len(w.Lives()); runs != 3 || ran != 3 {
		t.Fatalf("%d runs, and %d are logged, want 3", runs, ran)
	}

	o := w.Operator("o")
	if got := o.Run("once", "--forget", "release-1"); got.Status != 0 || !strings.Contains(got.Out, "release-1") {
		t.Fatalf("the key can't be forgotten: %v", got)
	}
	again := w.Once("again", env)
	fourth := w.Life(4)
	if attempt := fourth.Env("SOLOJOB_RUN_ATTEMPT"); attempt != "1" {
		t.Errorf("after the key was forgotten, the run is told that it is attempt %s", attempt)
	}
	fourth.Exit(0, 0)
	again.Ended()

	for key, word := range map[string]string{"release-1": "done", "release-2": "never"} {
		if got := o.Run("once", "--forget", key); got.Status != 1 || !strings.Contains(got.Err, word) {
			t.Errorf("to forget %s: %v", key, got)
		}
	}
	w.Once("last", env).Ended()
	if runs := len(w.Lives()); runs != 4 {
		t.Errorf("a key that was done was run again after it was to be forgotten: %d runs", runs)
	}
}

// When the task that runs a key is killed half-way, another one runs it.
func TestKilledRunnerOfAKey(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, brisk)
	for i := range 3 {
		w.Once(fmt.Sprintf("t%d", i), keyed("release-1", "SOLOJOB_IF_HELD", "skip"))
	}
	first := w.Life(1)
	killed := w.AgentOf(first)
	others := w.Others(killed)
	w.Wait(others...)
	w.KillAll(killed, first)
	second := w.Life(2)
	if second.Env("SOLOJOB_RUN_ATTEMPT") != "2" || second.Fence <= first.Fence {
		t.Errorf("%v, attempt %s, follows %v", second, second.Env("SOLOJOB_RUN_ATTEMPT"), first)
	}
	for _, a := range others {
		if !a.Running() {
			t.Errorf("agent %s went on before the run was done", a.Name)
		}
	}
	second.Exit(0, 0)
	for _, a := range others {
		if status := a.Ended(); status != 0 {
			t.Errorf("agent %s ended with %d", a.Name, status)
		}
	}
	if runs := len(w.Lives()); runs != 2 {
		t.Errorf("%d runs", runs)
	}
}

// A run that was killed with its task has used up an attempt: when that was the
// last, nobody runs the key, and nobody goes on as if it were done.
func TestKilledRunsUseUpAttempts(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, brisk)
	env := keyed("release-1", "SOLOJOB_MAX_ATTEMPTS", "1")
	a := w.Once("a", env)
	first := w.Life(1)
	b := w.Once("b", env, 79)
	w.Wait(b)
	w.KillAll(a, first)
	if status := b.Ended(); status != 79 {
		t.Errorf("agent b ended with %d, after the last attempt was killed", status)
	}
	if runs := len(w.Lives()); runs != 1 {
		t.Errorf("%d runs, but one attempt is allowed", runs)
	}
}

// Runs of different keys exclude each other, and each key is run. Who waits for
// a key goes on when that is done, though another key's run has the lease; and a
// key that was done long ago, as in a rollback, is not run again.
func TestKeysTakeTurns(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, attentive)
	a := w.Once("a", keyed("release-1"))
	first := w.Life(1)
	b := w.Once("b", keyed("release-2"))
	w.Wait(b)
	w.During("one key is run at a time", 3*w.timing.Poll, func() bool { return len(w.Lives()) == 1 && b.Running() })
	first.Exit(0, 0)
	if status := a.Ended(); status != 0 {
		t.Errorf("agent a ended with %d", status)
	}
	second := w.Life(2)
	if second.Owner != b.Owner() {
		t.Errorf("%v runs under %s", second, second.Owner)
	}
	rollback := w.Once("rollback", keyed("release-1"))
	waits := w.Once("waits", keyed("release-2"))
	rollback.Logged("skipped", 1)
	if status := rollback.Ended(); status != 0 {
		t.Errorf("the rollback ended with %d", status)
	}
	w.Wait(waits)
	if _, over := second.Ended(); over || !waits.Running() {
		t.Errorf("the rollback waited for the other key's run, or who waits for that did not")
	}
	second.Exit(0, 0)
	for _, task := range []*Agent{b, waits} {
		if status := task.Ended(); status != 0 {
			t.Errorf("agent %s ended with %d", task.Name, status)
		}
	}
	if runs := len(w.Lives()); runs != 2 || w.Key("release-1").text("state") != "done" || w.Key("release-2").text("state") != "done" {
		t.Errorf("%d runs; %v; %v", runs, w.Key("release-1"), w.Key("release-2"))
	}
}

// ofResult tells the write of a key's result.
func ofResult(c *Call, key, state string) bool {
	return c.item() == keyPrefix+key && !isRead(c.Op) && bytes.Contains(c.Body, fmt.Appendf(nil, `{"S":%q}`, state))
}

// A run's success is reported only when it is recorded: until then its task
// neither ends nor gives up the lease, and nobody else goes on.
func TestSuccessIsRecordedBeforeItIsReported(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, attentive)
	var tried atomic.Int64
	a := w.StartThrough(func(c *Call) Fault {
		if ofResult(c, "release-1", "done") {
			tried.Add(1)
			return throttled
		}
		return Fault{}
	}, Start{Name: "a", Wrap: viaOnce, Env: keyed("release-1")})
	life := w.Life(1)
	b := w.Once("b", keyed("release-1"))
	w.Wait(b)
	life.Exit(0, 0)
	w.Dead(life)
	w.Until("the result was tried to be written a few times", patience, func() bool { return tried.Load() >= 5 })
	if owner := w.Item(onceItem).Owner(); !a.Running() || !b.Running() || owner != a.Owner() {
		t.Errorf("a result that is not recorded was acted upon (a runs: %v, b runs: %v, the owner is %q)", a.Running(), b.Running(), owner)
	}
	a.Door.Set(nil)
	for _, task := range []*Agent{a, b} {
		if status := task.Ended(); status != 0 {
			t.Errorf("agent %s ended with %d", task.Name, status)
		}
	}
	if key := w.Key("release-1"); len(w.Lives()) != 1 || key.text("state") != "done" {
		t.Errorf("%d runs; %v", len(w.Lives()), key)
	}
}

// A runner that was fenced out can't record its success, however late its write
// arrives: it ends with 79, and the key is done when the next run is.
func TestFencedOutRunnerRecordsNothing(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, brisk)
	hold := make(chan struct{})
	var silent atomic.Bool
	a := w.StartThrough(func(c *Call) Fault {
		switch {
		case ofResult(c, "release-1", "done"):
			silent.Store(true)
			return Fault{Hold: hold}
		case silent.Load():
			return hang
		}
		return Fault{}
	}, Start{Name: "a", Wrap: viaOnce, Env: keyed("release-1"), Status: []int{79}})
	a.killed = true // it can't release
	first := w.Life(1)
	b := w.Once("b", keyed("release-1"))
	w.Wait(b)
	first.Exit(0, 0)
	if status := a.Ended(); status != 79 {
		t.Errorf("agent a ended with %d, and its success was not recorded", status)
	}
	second := w.Life(2)
	since := boottime.Now()
	close(hold)
	late := func() (arrived, applied int) {
		for _, c := range w.store.Calls() {
			if c.Door == a.Door && c.Applied >= since && ofResult(c, "release-1", "done") {
				arrived++
				if c.Status == 200 {
					applied++
				}
			}
		}
		return arrived, applied
	}
	w.Until("the late result arrives", patience, func() bool { arrived, _ := late(); return arrived > 0 })
	if _, applied := late(); applied > 0 || w.Key("release-1").text("state") == "done" {
		t.Errorf("a result was recorded by a runner that %v had fenced out: %v", second, w.Key("release-1"))
	}
	if !b.Running() || second.Owner != b.Owner() || second.Env("SOLOJOB_RUN_ATTEMPT") != "2" {
		t.Errorf("%v, attempt %s, under %s", second, second.Env("SOLOJOB_RUN_ATTEMPT"), second.Owner)
	}
	second.Exit(0, 0)
	if status := b.Ended(); status != 0 {
		t.Errorf("agent b ended with %d", status)
	}
	if key := w.Key("release-1"); key.text("state") != "done" || key.Fence() != second.Fence {
		t.Errorf("the key's item says: %v", key)
	}
}

// A task that is told to stop while it waits for a key does not end as if the
// key were done: what follows it in a shell would go on.
func TestStoppedWaiterOfAKeyDoesNotGoOn(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, attentive)
	a := w.Once("a", keyed("release-1"))
	life := w.Life(1)
	b := w.Once("b", keyed("release-1"))
	w.Wait(b)
	b.Signal(syscall.SIGTERM)
	if status := b.Ended(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("a task that was told to stop before the key was done ended with %d", status)
	}
	b.statuses = []int{128 + int(syscall.SIGTERM)}
	life.Exit(0, 0)
	if status := a.Ended(); status != 0 {
		t.Errorf("agent a ended with %d", status)
	}
}
