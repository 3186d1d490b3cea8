//go:build linux

package e2e

import (
	"syscall"
	"testing"
	"time"

	"solojob/ecs/ecstest"
)

// A task whose signal to stop is lost on the way still learns, while its job
// runs, that ECS wants it stopped: it drains, and another task takes over.
func TestLostStopSignalIsMadeUpFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	w.needContainers()
	a := w.StartTask("a", 1, nil)
	first := w.Life(1)
	b := w.StartTask("b", 1, nil)
	b.Logged("standing by", 1)
	a.ECS.Stop()
	a.Logged("draining", 1)
	if status := a.Ended(); status != 0 {
		t.Errorf("the task ended with %d", status)
	}
	if _, got := first.Signalled("TERM"); !got {
		t.Errorf("%v was not told to end", first)
	}
	if second := w.Life(2); second.Owner != b.Owner() {
		t.Errorf("%v runs under %s", second, second.Owner)
	}
}

// ECS says that a task is to stop by a signal and in the metadata, which is one
// request and not two: a run that would end by itself within the grace is not
// signalled, whichever comes first.
func TestSignalAndMetadataAreOneRequest(t *testing.T) {
	t.Parallel()
	for name, signalFirst := range map[string]bool{"the signal first": true, "the metadata first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timing := brisk
			timing.StopGrace = time.Minute
			w := newWorld(t, timing)
			w.needContainers()
			a := w.StartTask("a", 1, map[string]string{"SOLOJOB_SCHEDULE": "@every 2s"})
			run := w.Life(1)
			if signalFirst {
				a.Signal(syscall.SIGTERM)
				a.Logged("draining", 1)
				a.ECS.Stop()
			} else {
				a.ECS.Stop()
				a.Logged("draining", 1)
				a.Signal(syscall.SIGTERM)
			}
			// Longer than the metadata is left unread.
			w.During("the run goes on", 7*time.Second, func() bool { _, over := run.Ended(); return !over })
			if _, got := run.Signalled("TERM"); got {
				t.Errorf("%v was told to end", run)
			}
			run.Exit(0, 0)
			if status := a.Ended(); status != 0 {
				t.Errorf("the task ended with %d", status)
			}
		})
	}
}

// With SOLOJOB_TASK_PROTECTION=on a task is protected while a scheduled run goes
// on, and not any more when it is over; a refusal keeps no run from running.
func TestRunIsProtected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	w.needContainers()
	a := w.StartTask("a", 1, map[string]string{"SOLOJOB_SCHEDULE": "@every 2s", "SOLOJOB_TASK_PROTECTION": "on"})
	first := w.Life(1)
	w.Until("the task is protected", patience, a.ECS.Protected)
	a.ECS.Refuse(200, ecstest.DeploymentBlocked)
	first.Exit(0, 0)
	second := w.Life(2)
	a.Logged("task protection failed", 1)
	a.ECS.Refuse(0, "")
	a.Signal(syscall.SIGTERM)
	second.Exit(0, 0)
	a.Ended()
	if a.ECS.Protected() {
		t.Error("the task has ended, and is still protected")
	}
}
