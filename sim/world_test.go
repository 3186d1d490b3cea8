package sim

import (
	"slices"
	"sync"
	"time"

	"solojob/leader"
	"solojob/schedule"
)

// world is one run: the store, the tasks, the platform that starts and stops
// them, and the observer.
type world struct {
	plan     *plan
	history  *history
	promises *promises
	store    *store
	register *register      // what the tasks saw of the row; nil if nobody looks
	left     sync.WaitGroup // agents that have not returned

	mu       sync.Mutex
	tasks    []*task
	started  int // tasks so far; as revision, only by the director
	revision int // of the code that is deployed
	due      []action
	poke     chan struct{} // due has changed
	calm     bool          // the faults are over
	undo     map[int]func()
	undone   int
}

// action is something that the world does at its time.
type action struct {
	at time.Time
	do func()
}

// calmLeases is how many of the longest leases a run goes on after its last
// fault: a message that is two leases late may renew the lease of a task that
// is dead; and a process may outlive KILL for two leases.
const calmLeases = 7

// patience is what a task told to stop may take, in a good network, beyond its
// stop grace and what its job takes to die.
const patience = 30 * time.Second

// simulate runs a plan in a bubble of synctest, and returns its history.
func simulate(p *plan) *history { return newWorld(p).run() }

// newWorld is a world in which nothing has happened yet.
func newWorld(p *plan) *world {
	w := &world{plan: p, history: newHistory(), poke: make(chan struct{}, 1), undo: map[int]func(){}}
	w.promises = newPromises(w)
	w.store = &store{w: w}
	w.history.brief = p.brief
	if p.before > 0 {
		w.store.row = oldRow(p)
	}
	for i := range p.tasks {
		w.at(between(stream(p.seed, "begin"), 0, time.Duration(i)*2*time.Second), func() { w.start() })
	}
	for _, f := range p.faults {
		if f.at < p.horizon {
			w.at(f.at, func() { w.strike(f) })
		}
	}
	return w
}

// run lets it all happen.
func (w *world) run() *history {
	p := w.plan
	w.direct(time.Now().Add(p.horizon))
	w.settle()
	calm := time.Now()
	length := p.calm
	if length == 0 {
		length = calmLeases*p.longest().lease + time.Minute
	}
	w.direct(calm.Add(length))
	if !w.history.broken() && p.calm == 0 {
		w.promises.afterCalm(calm)
	}
	w.shutDown()
	return w.history
}

// oldRow is a lease that nobody has held for long.
func oldRow(p *plan) *leader.Row {
	s, err := schedule.Parse(p.schedule, time.UTC)
	if err != nil {
		panic(err)
	}
	then := time.Now().Add(-p.before).UTC().Format(time.RFC3339)
	return &leader.Row{Fence: 41, Beat: "old-1", Lease: p.settings[0].lease, Record: leader.Record{
		Schedule: s.String(), Through: then, Tick: then, TickState: schedule.StateDone, Attempt: 1,
	}}
}

// at plans an action.
func (w *world) at(after time.Duration, do func()) {
	w.mu.Lock()
	w.due = append(w.due, action{time.Now().Add(after), do})
	w.mu.Unlock()
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// direct does what is due, one after another, until a time.
func (w *world) direct(until time.Time) {
	for !w.history.broken() {
		w.mu.Lock()
		slices.SortStableFunc(w.due, func(a, b action) int { return a.at.Compare(b.at) })
		next := action{at: until}
		if len(w.due) > 0 && w.due[0].at.Before(until) {
			next = w.due[0]
		}
		wait := time.Until(next.at)
		if wait <= 0 && next.do != nil {
			w.due = w.due[1:]
		}
		w.mu.Unlock()
		switch {
		case wait <= 0 && next.do == nil:
			return
		case wait <= 0:
			next.do()
		default:
			timer := time.NewTimer(min(wait, time.Minute)) // to notice a broken promise
			select {
			case <-timer.C:
			case <-w.poke:
				timer.Stop()
			}
		}
	}
}

func (w *world) add(t *task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tasks = append(w.tasks, t)
}

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// live are the tasks that run and were not told to stop, by age.
func (w *world) live() []*task {
	w.mu.Lock()
	tasks := slices.Clone(w.tasks)
	w.mu.Unlock()
	return slices.DeleteFunc(tasks, func(t *task) bool { return t.isGone() || t.isTold() })
}

// all are the tasks that ever were.
func (w *world) all() []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.tasks)
}

// byOwner is the task that calls itself so in the row; nil if there is none.
func (w *world) byOwner(owner string) *task {
	for _, t := range w.all() {
		if t.owner == owner {
			return t
		}
	}
	return nil
}

// most is how many tasks there may be at once.
const most = 8

// settle ends all faults, and sees to it that there are tasks.
func (w *world) settle() {
	w.history.add("world", "all faults end")
	w.mu.Lock()
	w.calm = true
	last := w.undone
	w.mu.Unlock()
	for n := range last {
		w.endFault(n + 1)
	}
	for _, t := range w.live() {
		t.mu.Lock()
		clear(t.armed)
		t.mu.Unlock()
	}
	for len(w.live()) < w.plan.tasks {
		w.start()
	}
}

// shutDown stops every task, and waits for everything that is under way.
func (w *world) shutDown() {
	broken := w.history.broken()
	if !broken {
		for _, t := range w.live() {
			w.history.add(t.name, "told to stop, for good")
			t.signal()
		}
		s := w.plan.longest()
		time.Sleep(s.stopGrace + patience)
		if stuck := w.jobsStuck(); stuck {
			time.Sleep(2 * s.lease)
		}
		for _, t := range w.all() {
			if !t.isGone() {
				w.history.violate("ends", "%s was told to stop and does not end", t.name)
			}
		}
		if row := w.store.now(); row != nil && row.Owner != "" && !w.history.broken() {
			if t := w.byOwner(row.Owner); t == nil || !t.isDead() {
				w.history.violate("P4", "every task has ended, and the lease is still held: %s", show(row))
			}
		}
	}
	for _, t := range w.all() {
		if !t.isGone() {
			t.die()
		}
	}
	w.left.Wait()
	w.store.travelling.Wait()
	for _, t := range w.all() {
		if r := t.lastRun(); r != nil {
			r.abandoned()
			<-r.done
		}
	}
}

func (w *world) jobsStuck() bool {
	for _, t := range w.all() {
		if r := t.lastRun(); r != nil && r.job.nature.stuck && !isClosed(r.job.dead) {
			return true
		}
	}
	return false
}
