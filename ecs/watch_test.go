package ecs

import (
	"testing"
	"time"

	"solojob/ecs/ecstest"
)

// A task that ECS wants stopped is told so by the metadata while a run goes on.
func TestWatcherSeesThatTheTaskIsStopped(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	w := newWatcher(task.Environ(), time.Millisecond)
	defer w.Close()
	w.Begin()
	until(t, "the watcher has looked twice", func() bool { return task.Asked("/task") >= 2 })
	select {
	case <-w.Stopped():
		t.Fatal("the task is to be stopped, said the watcher, and it is not")
	default:
	}
	task.Stop()
	select {
	case <-w.Stopped():
	case <-time.After(patience):
		t.Fatal("the watcher does not see it")
	}
}

// Between runs nothing is asked; the next run's first look comes at once.
func TestWatcherRestsBetweenRuns(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	w := newWatcher(task.Environ(), time.Hour)
	defer w.Close()
	w.Begin()
	until(t, "the watcher has looked", func() bool { return task.Asked("/task") == 1 })
	w.End()
	task.Stop()
	w.Begin()
	select {
	case <-w.Stopped():
	case <-time.After(patience):
		t.Fatal("the watcher waits for an hour to look again")
	}
	if n := task.Asked("/task"); n != 2 {
		t.Errorf("the watcher has looked %d times, want once in each run", n)
	}
}

// An endpoint that hangs delays nobody, not even the end.
func TestWatcherEndsWhileTheEndpointHangs(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	task.Silence(true)
	w := newWatcher(task.Environ(), time.Millisecond)
	w.Begin()
	until(t, "the watcher looks", func() bool { return task.Asked("/task") > 0 })
	w.End()
	w.Begin()
	w.Close()
}
