//go:build linux

package e2e

import (
	"net"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// A task that can't reach the store never turns healthy, so that a deploy of
// it fails instead of replacing the tasks that work.
func TestTaskWithoutAStoreIsNeverHealthy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	w.needContainers()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	task := w.StartTask("a", 1, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://" + silent.Addr().String()})
	w.Until("the agent logs that the row can't be read", patience, func() bool { return len(task.Lines("lease can't be read")) > 0 })
	w.During("the task is not healthy", 3*w.timing.Lease/2, func() bool { return !task.Healthy() && task.Running() })
}

// While the store is away for longer than the lease, both tasks stay healthy and
// none ends; the job is dead in time; and when the store is back, one task leads
// within a lease.
func TestStoreIsAwayForLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	w.needContainers()
	tasks := []*Task{w.StartTask("a", 1, nil), w.StartTask("b", 1, nil)}
	first := w.Life(1)
	for _, task := range tasks {
		w.Until("task "+task.Name+" is healthy", patience, task.Healthy)
	}
	cut := boottime.Now()
	for _, task := range tasks {
		task.Door.Set(always(hang))
	}
	away := 3 * w.timing.Lease
	for boottime.Now().Sub(cut) < away {
		for _, task := range tasks {
			if err := task.check(); err != nil || !task.Running() {
				t.Fatalf("task %s, %v after the store went away: %v", task.Name, boottime.Now().Sub(cut), err)
			}
		}
		time.Sleep(w.timing.Poll)
	}
	dead, over := first.Ended()
	beats := w.store.Find(Renew, nil, 0)
	lastSent := first.Started
	for _, c := range beats {
		lastSent = max(lastSent, c.Applied)
	}
	if !over || dead.Sub(lastSent) > w.timing.Lease {
		t.Errorf("%v was dead %v after the last heartbeat had been applied", first, dead.Sub(lastSent))
	}
	back := boottime.Now()
	for _, task := range tasks {
		task.Door.Set(nil)
	}
	second := w.Life(2)
	w.within("from the store's return to the next job's start", second.Started.Sub(back), w.timing.Lease+patience/2)
	w.During("one job runs", w.timing.Lease, func() bool { return len(w.Lives()) == 2 })
}

// An agent that is stopped does not look healthy.
func TestStuckAgentIsUnhealthy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	w.needContainers()
	task := w.StartTask("a", 1, nil)
	w.Until("the task is healthy", patience, task.Healthy)
	w.signalProcess(task.PID, syscall.SIGSTOP, "the agent")
	w.Until("the task is unhealthy", patience, func() bool { return !task.Healthy() })
	w.signalProcess(task.PID, syscall.SIGCONT, "the agent")
	w.Until("the task is healthy again", patience, task.Healthy)
}
