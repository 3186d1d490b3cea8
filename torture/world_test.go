//go:build linux

package torture

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"solojob/boottime"
)

// The settings of all leases. Between the hits a lease must be able to run out,
// and to be renewed, many times a minute; the kill margin is the default.
const (
	lease      = 3 * time.Second
	heartbeat  = 500 * time.Millisecond
	poll       = 300 * time.Millisecond
	lossGrace  = 400 * time.Millisecond
	killMargin = time.Second
	stopGrace  = 2500 * time.Millisecond
)

// patience is how long the torture waits for what should come soon. It is only
// ever used up when something is broken, so it is made for the slowest machine.
const patience = 40 * time.Second

// worldKind is what kind of job a world has.
type worldKind struct {
	name       string
	slots      int
	settings   []string
	atMostOnce bool
}

var worldKinds = []worldKind{
	{name: "svc", slots: 5},
	{name: "cron", slots: 4, settings: []string{"SOLOJOB_SCHEDULE=" + schedule, fmt.Sprintf("SOLOJOB_MAX_ATTEMPTS=%d", attempts)}},
	{name: "amo", slots: 4, atMostOnce: true, settings: []string{
		"SOLOJOB_SCHEDULE=" + schedule, "SOLOJOB_GUARANTEE=at-most-once", "SOLOJOB_OVERLAP=queue"}},
}

func (k worldKind) service() bool { return k.mode() == "service" }

func (k worldKind) mode() string {
	if len(k.settings) == 0 {
		return "service"
	}
	return "cron"
}

// World is one lease: its slots, its store, and the witnesses.
type World struct {
	*Timeline

	kind       worldKind
	name       string
	dir        string
	namespaces bool
	store      *Store
	recorder   *Recorder
	ticks      *Ticks
	slots      []*Slot
	goes       sync.WaitGroup // every goroutine of the world

	emptying chan struct{} // closed when no task is to be started any more

	mu    sync.Mutex
	tasks map[string]*Task
}

func newWorld(kind worldKind, seed uint64, namespaces bool, broken func()) (*World, error) {
	dir, err := os.MkdirTemp("", "torture")
	if err != nil {
		return nil, err
	}
	w := &World{
		Timeline: newTimeline(broken), kind: kind, name: kind.name, dir: dir, namespaces: namespaces,
		emptying: make(chan struct{}), tasks: map[string]*Task{},
	}
	w.ticks = newTicks(w)
	if w.store, err = newStore(w); err != nil {
		return nil, err
	}
	if w.recorder, err = newRecorder(w); err != nil {
		return nil, err
	}
	for n := range kind.slots {
		s, err := newSlot(w, n, seed)
		if err != nil {
			return nil, err
		}
		w.slots = append(w.slots, s)
	}
	return w, nil
}

func (w *World) start() {
	for _, s := range w.slots {
		w.goes.Go(s.run)
	}
}

func (w *World) isEmptying() bool {
	select {
	case <-w.emptying:
		return true
	default:
		return false
	}
}

func (w *World) enrol(t *Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks[t.name] = t
}

func (w *World) taskNamed(name string) *Task {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tasks[name]
}

// owners are the tasks by the name under which each competes, where its log
// has said so.
func (w *World) owners() map[string]*Task {
	w.mu.Lock()
	defer w.mu.Unlock()
	owners := map[string]*Task{}
	for _, t := range w.tasks {
		t.mu.Lock()
		owners[t.owner] = t
		t.mu.Unlock()
	}
	delete(owners, "")
	return owners
}

// mark is in the environment of every process of the world but the supervisors'.
func (w *World) mark() string { return markPrefix() + w.name }

// until waits for a condition, and returns how long that took, or false.
func until(limit time.Duration, holds func() bool) (time.Duration, bool) {
	began := boottime.Now()
	for !holds() {
		if boottime.Now().Sub(began) > limit {
			return limit, false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return boottime.Now().Sub(began), true
}

// recovery is how soon a job must run again when nothing is wrong any more:
// the longest wait for a lease, a poll, the next tick, and what a slot and a
// busy machine take to start a task.
const recovery = lease*1021/1000 + poll + every + 20*time.Second

// recover checks, when chaos has ended, that the job runs again.
func (w *World) recover() {
	before := w.total("launches")
	took, ok := until(recovery, func() bool {
		if !w.kind.service() {
			return w.total("launches") > before
		}
		row, _ := w.store.current()
		living := w.recorder.living()
		return row.Owner != "" && slices.ContainsFunc(living, func(l *Life) bool { return l.owner == row.Owner })
	})
	if !ok {
		row, holder := w.store.current()
		w.violate("progress", "%v after the end of the chaos no job runs; the row, last acquired by %s, is %v", recovery, holder, row)
	}
	w.note(boottime.Now(), "torture", "a job runs %v after the end of the chaos", took)
}

// stop tells all tasks to stop, and checks what they leave.
func (w *World) stop() {
	close(w.emptying)
	for _, s := range w.slots {
		if t := s.current(); t != nil {
			t.tellToStop()
		}
	}
	for _, s := range w.slots {
		t := s.current()
		if t == nil {
			continue
		}
		select {
		case <-t.exited:
		case <-time.After(patience):
			w.violate("does not stop", "task %s is still there %v after SIGTERM", t.name, patience)
			t.killAll()
			<-t.exited
		}
	}
	if row, _ := w.store.current(); row.Owner != "" && len(w.broke()) == 0 {
		w.violate("lease left held", "all have stopped, and the row is %v", row)
	}
	for _, s := range w.slots {
		s.vacate()
	}
	w.leftOver()
	w.store.close()
	for _, s := range w.slots {
		s.door.close()
	}
	w.recorder.close()
	w.goes.Wait()
	w.store.history.finish()
	w.ticks.settle(0)
	for _, s := range w.slots {
		s.network.close()
		w.add("killed for memory", s.groups.kills())
		w.add("periods without CPU", s.groups.waits())
		s.groups.close()
	}
	os.RemoveAll(w.dir)
}

// tellToStop is what ECS does.
func (t *Task) tellToStop() {
	until(patience, func() bool { return t.ended() || t.up() })
	t.slot.world.note(boottime.Now(), "torture", "TERM to %s", t.name)
	t.self.signal(syscall.SIGTERM)
}

// leftOver waits until no process of this world is left, and kills what stays.
func (w *World) leftOver() {
	var left []Process
	_, gone := until(patience/4, func() bool {
		left = marked(w.mark())
		return len(left) == 0
	})
	if gone {
		return
	}
	w.violate("left running", "%d processes, such as %d (%s)", len(left), left[0].pid, commandLine(left[0].pid))
	for _, p := range left {
		p.signal(syscall.SIGKILL)
	}
}
