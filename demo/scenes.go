package demo

import (
	"context"
	"fmt"
	"slices"
)

// Numbers of the scenes, as in their headings.
const (
	sceneDeploy = iota + 1
	sceneCrash
	scenePause
	sceneCut
	sceneControl
)

// titles name the scenes, in the timeline and in the verdict.
var titles = map[int]string{
	sceneDeploy:  "A rolling deploy",
	sceneCrash:   "A crash",
	scenePause:   "A pause longer than the lease",
	sceneCut:     "A cut network",
	sceneControl: "Control: a TTL lock without FENCE",
}

// steady is how many writes of a job must have been accepted before the next
// thing happens to it: enough for a reader to see it at work.
const steady = 10

// stale is how many writes a thawed job is let try.
const stale = 3

// director causes what happens and waits for what must follow. It knows only
// the chronicle: it asks no task how it is.
type director struct {
	log  *chronicle
	cast *cast
}

// play stages every scene. Its error says what could not be shown.
func (d *director) play(ctx context.Context) error {
	for _, scene := range []func(context.Context) error{d.deploy, d.crash, d.pause, d.cutNetwork, d.control} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *director) deploy(ctx context.Context) error {
	d.open(sceneDeploy, []string{"A", "B", "C", "D"}, "Two tasks run version 1. Version 2 comes as ECS brings it: the new tasks start, then the old "+
		"ones are told to stop. The job must move without ever running twice.")
	if err := d.start(ctx, "A", "version 1"); err != nil {
		return err
	}
	if err := d.atWork(ctx, 0); err != nil {
		return err
	}
	for _, t := range []struct{ name, note string }{{"B", "version 1"}, {"C", "version 2"}, {"D", "version 2"}} {
		if err := d.start(ctx, t.name, t.note); err != nil {
			return err
		}
	}
	mark := d.mark()
	d.cast.stop("A", "SIGTERM: A is told to stop")
	d.cast.stop("B", "SIGTERM: B is told to stop")
	if err := d.atWork(ctx, mark); err != nil {
		return err
	}
	return d.wait(ctx, "tasks A and B to be gone", func(all []Entry) bool {
		return has(all, Gone, "A") && has(all, Gone, "B")
	})
}

func (d *director) crash(ctx context.Context) error {
	holder, _ := d.holder()
	d.open(sceneCrash, append(d.alive(), "E"), fmt.Sprintf("The agent of task %s is killed with SIGKILL. Its job must die with it, and nobody gives the "+
		"lease back: it has to run out before another task may have it.", holder))
	mark := d.mark()
	d.cast.kill(holder, "SIGKILL to the agent of "+holder)
	if err := d.start(ctx, "E", "a replacement"); err != nil {
		return err
	}
	d.hint("waiting: a lease of %v must run out first", lease)
	return d.atWork(ctx, mark)
}

func (d *director) pause(ctx context.Context) error {
	holder, run := d.holder()
	d.open(scenePause, d.alive(), fmt.Sprintf("Task %s is frozen whole: agent, supervisor and job get SIGSTOP, as in a long pause of the "+
		"machine. Another task takes over. Then the old job thaws first, and writes on as if nothing had been: only FENCE can stop that.", holder))
	mark := d.mark()
	d.cast.freeze(holder, "SIGSTOP to all of "+holder)
	d.hint("waiting: a lease of %v must run out first", lease)
	if err := d.atWork(ctx, mark); err != nil {
		return err
	}
	mark = d.mark()
	d.cast.thawJob(holder, fmt.Sprintf("SIGCONT to the old job of %s, alone", holder))
	if err := d.wait(ctx, "the thawed job to try to write", func(all []Entry) bool {
		tried := 0
		for _, e := range all[mark:] {
			if e.Run == run && (e.Kind == Refused || e.Kind == Accepted) {
				tried++
			}
		}
		return tried >= stale
	}); err != nil {
		return err
	}
	mark = d.mark()
	d.cast.thaw(holder, "SIGCONT to the rest of "+holder)
	return d.wait(ctx, "the thawed job to be killed, and its task to stand by", func(all []Entry) bool {
		return hasRun(all[mark:], Died, run) && has(all[mark:], Looked, holder)
	})
}

func (d *director) cutNetwork(ctx context.Context) error {
	holder, run := d.holder()
	d.open(sceneCut, d.alive(), fmt.Sprintf("Task %s loses its path to DynamoDB: connections are accepted and nothing comes back. Its job can "+
		"still write, so it must be dead before another task may take over.", holder))
	mark := d.mark()
	d.cast.cut(holder, "the path from "+holder+" to the lease is cut")
	d.hint("waiting: %s can't renew its lease of %v", holder, lease)
	if err := d.atWork(ctx, mark); err != nil {
		return err
	}
	d.cast.heal(holder, "the path from "+holder+" is whole again")
	return d.wait(ctx, "the task behind the cut to stand by", func(all []Entry) bool {
		return hasRun(all[mark:], Died, run) && has(all[mark:], Looked, holder)
	})
}

// control shows what the same fault does to the lock that people usually build.
func (d *director) control(ctx context.Context) error {
	d.open(sceneControl, []string{"X", "Y"}, fmt.Sprintf("The same cut and the same job, under the lock that is usually built: a row that expires "+
		"%v after its last renewal, by the wall clock, and no FENCE. This is what solojob is there to prevent.", ttl))
	if err := d.clear(ctx); err != nil {
		return err
	}
	mark := d.mark()
	if err := d.cast.startControl("X", "TTL lock"); err != nil {
		return err
	}
	if err := d.atWork(ctx, mark); err != nil {
		return err
	}
	_, run := d.holder()
	if err := d.cast.startControl("Y", "TTL lock"); err != nil {
		return err
	}
	if err := d.wait(ctx, "task Y to stand by", func(all []Entry) bool { return has(all, Looked, "Y") }); err != nil {
		return err
	}
	mark = d.mark()
	d.cast.cut("X", "the path from X to the lock is cut")
	d.hint("waiting: the lock expires after %v", ttl)
	if err := d.atWork(ctx, mark); err != nil {
		return err
	}
	d.cast.heal("X", "the path from X is whole again")
	return d.wait(ctx, "task X to learn that it has lost the lock", func(all []Entry) bool {
		return hasRun(all[mark:], Died, run)
	})
}

// clear ends the tasks of the scenes before, and their job.
func (d *director) clear(ctx context.Context) error {
	_, run := d.holder()
	tasks := d.alive()
	for _, name := range tasks {
		d.cast.kill(name, "")
	}
	return d.wait(ctx, "the tasks of the scenes before to be gone", func(all []Entry) bool {
		return hasRun(all, Died, run) && !slices.ContainsFunc(tasks, func(t string) bool { return !has(all, Gone, t) })
	})
}

// open begins a scene.
func (d *director) open(scene int, tasks []string, text string) {
	d.log.add(Entry{Kind: Opened, Tasks: tasks, Text: fmt.Sprintf("%d  %s\n%s", scene, titles[scene], text)})
}

// alive are the tasks that have started and are not gone, in that order.
func (d *director) alive() []string {
	var alive []string
	for _, e := range d.log.all() {
		switch e.Kind {
		case Started:
			alive = append(alive, e.Task)
		case Gone:
			alive = slices.DeleteFunc(alive, func(t string) bool { return t == e.Task })
		}
	}
	return alive
}

// hint says what the reader is waiting for, while nothing happens.
func (d *director) hint(format string, v ...any) {
	d.log.add(Entry{Kind: Noted, Text: fmt.Sprintf(format, v...)})
}

// mark is a place in the chronicle: now.
func (d *director) mark() int { return len(d.log.all()) }

// holder is the task whose job was launched last, and that run.
func (d *director) holder() (string, int) {
	all := d.log.all()
	for _, e := range slices.Backward(all) {
		if e.Kind == Launched {
			return e.Task, e.Run
		}
	}
	return "", 0
}

// start starts a task and waits until it competes for the lease.
func (d *director) start(ctx context.Context, name, note string) error {
	if err := d.cast.startSolojob(name, note); err != nil {
		return err
	}
	return d.wait(ctx, "task "+name+" to look at the lease", func(all []Entry) bool { return has(all, Looked, name) })
}

// atWork waits for a job that was launched after the mark and has written
// steadily.
func (d *director) atWork(ctx context.Context, mark int) error {
	return d.wait(ctx, "the next job to write", func(all []Entry) bool {
		writes := map[int]int{}
		for _, e := range all[mark:] {
			switch {
			case e.Kind == Launched:
				writes[e.Run] = 0
			case e.Kind == Accepted:
				if n, launched := writes[e.Run]; launched {
					writes[e.Run] = n + 1
				}
			}
			if writes[e.Run] >= steady {
				return true
			}
		}
		return false
	})
}

// wait waits for ok, and no longer than a task ends by itself: none has a
// reason to.
func (d *director) wait(ctx context.Context, what string, ok func([]Entry) bool) error {
	var deserter error
	err := d.log.await(ctx, what, func(all []Entry) bool {
		deserter = deserted(all)
		return deserter != nil || ok(all)
	})
	if err == nil {
		err = deserter
	}
	return err
}

// deserted is an error if a task is gone that was neither told to stop nor killed.
func deserted(all []Entry) error {
	expected := map[string]bool{}
	for _, e := range all {
		switch e.Kind {
		case Stopped, Killed:
			expected[e.Task] = true
		case Gone:
			if !expected[e.Task] {
				return fmt.Errorf("task %s ended by itself (%s)", e.Task, e.Text)
			}
		}
	}
	return nil
}

func has(entries []Entry, k Kind, task string) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool { return e.Kind == k && e.Task == task })
}

func hasRun(entries []Entry, k Kind, run int) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool { return e.Kind == k && e.Run == run })
}
