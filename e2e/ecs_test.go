//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"solojob/boottime"
	"solojob/ecs/ecstest"
)

// Task is a task on ECS: an agent in a container of its own (a mount namespace,
// by which the health check tells containers apart), and the endpoints of ECS.
type Task struct {
	*Agent
	ECS *ecstest.Task
}

// needContainers skips a test where tasks can't have containers of their own.
func (w *World) needContainers() {
	w.t.Helper()
	if os.Getuid() != 0 {
		skip(w.t, "a container of its own for each task (unshare --mount) needs root")
	}
}

// StartTask starts a task with a revision of the task definition.
func (w *World) StartTask(name string, revision int, env map[string]string) *Task {
	w.t.Helper()
	task, err := ecstest.Start(ecstest.Options{
		ID: fmt.Sprintf("%032x", boottime.Now()), Family: w.lease, Revision: strconv.Itoa(revision), Service: w.lease,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(task.Close) // after the world, whose agents may ask until their end
	all := maps.Clone(env)
	if all == nil {
		all = map[string]string{}
	}
	for _, kv := range task.Environ() {
		variable, value, _ := strings.Cut(kv, "=")
		all[variable] = value
	}
	return &Task{w.Start(Start{Name: name, Env: all, Wrap: []string{"unshare", "--mount", "--"}}), task}
}

// Healthy is what the task's health check finds, run in its container.
func (t *Task) Healthy() bool { return t.check() == nil }

func (t *Task) check() error {
	c := exec.Command("nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", t.PID), "--", built("solojob"), "health")
	c.Env = []string{t.world.mark(), "SOLOJOB_LEASE=" + t.world.lease}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Deployment is a service on ECS: its tasks, and what it does to replace them.
type Deployment struct {
	w        *World
	env      map[string]string
	desired  int
	tasks    []*Task
	revision map[string]int // of the tasks' owners
	launched int
}

// NewDeployment is a service without tasks.
func (w *World) NewDeployment(desired int, env map[string]string) *Deployment {
	w.needContainers()
	return &Deployment{w: w, env: env, desired: desired, revision: map[string]int{}}
}

// Deploy replaces the tasks as a rolling deploy with 100 and 200 percent does:
// it starts the new ones, waits until they are healthy, and sends the signal to
// stop to the old ones. It does not wait for their end.
//
// ECS takes two intervals of the health check, 10 s or more each, to call a
// task healthy. By then a revision has been announced, at the defaults after
// 5 s; that is what is waited for here in place of the time.
func (d *Deployment) Deploy(revision int) (old []*Task) {
	d.w.t.Helper()
	old, d.tasks = d.tasks, nil
	for range d.desired {
		d.launched++
		task := d.w.StartTask(fmt.Sprintf("%d.%d", revision, d.launched), revision, d.env)
		d.tasks = append(d.tasks, task)
	}
	for _, task := range d.tasks {
		d.w.Until("task "+task.Name+" is healthy", patience, task.Healthy)
		d.revision[task.Owner()] = revision
	}
	text := strconv.Itoa(revision)
	d.w.Until("revision "+text+" is announced", patience, func() bool { return d.w.Row().text("announced") == text })
	for _, task := range old {
		task.ECS.Stop()
		task.Signal(syscall.SIGTERM)
	}
	return old
}

// StopTimeout waits for the end of tasks that were told to stop, and kills as
// ECS does those that take longer.
func (d *Deployment) StopTimeout(tasks []*Task, stopTimeout time.Duration) {
	d.w.t.Helper()
	for _, task := range tasks {
		select {
		case <-task.exited:
			if status := task.Status(); status != 0 {
				d.w.t.Errorf("task %s ended with %d", task.Name, status)
			}
		case <-time.After(stopTimeout):
			task.Signal(syscall.SIGKILL)
			d.w.t.Errorf("task %s had to be killed %v after it was told to stop", task.Name, stopTimeout)
		}
	}
}

// RevisionOf is the revision under which a job was launched.
func (d *Deployment) RevisionOf(l *Life) int {
	d.w.t.Helper()
	d.w.Until(fmt.Sprintf("the task of %v is known", l), patience, func() bool {
		for _, task := range d.tasks {
			if task.Owner() == l.Owner {
				d.revision[l.Owner], _ = strconv.Atoi(strings.SplitN(task.Name, ".", 2)[0])
			}
		}
		return d.revision[l.Owner] != 0
	})
	return d.revision[l.Owner]
}
