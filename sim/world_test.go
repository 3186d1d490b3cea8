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

// target is whom a fault hits; nil for nobody.
func (w *world) target(slot int) *task {
	if slot == holder {
		row := w.store.now()
		if row == nil || row.Owner == "" {
			return nil
		}
		if t := w.byOwner(row.Owner); t != nil && !t.isGone() {
			return t
		}
		return nil
	}
	live := w.live()
	if len(live) == 0 {
		return nil
	}
	return live[slot%len(live)]
}

// strike makes a planned fault happen.
func (w *world) strike(f fault) {
	if f.slot == everyone {
		w.history.count(string(f.kind) + " for everyone")
		w.history.add("world", "%s for everyone, %s", f.kind, f.length.Round(time.Millisecond))
		for _, t := range w.live() {
			t.door.change(f.kind, true)
			w.lasting(f.length, func() { t.door.change(f.kind, false) })
		}
		return
	}
	t := w.target(f.slot)
	switch f.kind {
	case deleteRow:
		w.history.count(string(f.kind))
		w.history.add("world", "row deleted: %s", show(w.store.now()))
		w.store.remove()
		return
	case restoreRow:
		w.history.count(string(f.kind))
		w.store.restore(stream(w.plan.seed, "backup"))
		w.history.add("world", "row restored: %s", show(w.store.now()))
		return
	case scaleOut:
		if len(w.live()) < most {
			w.history.count(string(f.kind))
			w.start()
		}
		return
	case deploy:
		w.deploy(f)
		return
	case pause, handOver, runNow, breakLease, bumpFence:
		w.operate(f)
		return
	}
	if t == nil {
		return
	}
	switch f.kind {
	case crashAgent, crashTask:
		w.history.count(string(f.kind))
		w.history.add(t.name, "%s", f.kind)
		t.die()
		w.end(t)
		w.replace(t, f.amount)
	case crashGuard:
		w.crashGuard(t)
	case freezeTask, freezeAgent, freezeGuard:
		w.freeze(t, f.kind, f.length)
	case freezeAtSend, freezeAtLaunch, freezeAcquire:
		t.mu.Lock()
		t.armed[f.kind] = f.length
		t.mu.Unlock()
	case stopTask:
		w.history.count(string(f.kind))
		w.tell(t)
		w.replace(t, f.amount)
		if f.length > w.plan.longest().lease { // again
			w.at(f.amount/2, t.signal)
		}
	case stepClock:
		w.history.count(string(f.kind))
		w.history.add(t.name, "time of day jumps by %s", f.amount.Round(time.Second))
		t.mu.Lock()
		t.wallOff += f.amount
		t.mu.Unlock()
	default: // the weather
		w.history.count(string(f.kind))
		w.history.add(t.name, "%s, %s", f.kind, f.length.Round(time.Millisecond))
		t.door.change(f.kind, true)
		w.lasting(f.length, func() { t.door.change(f.kind, false) })
	}
}

// lasting has the end of a fault happen after a while, or when all faults end.
func (w *world) lasting(length time.Duration, end func()) {
	w.mu.Lock()
	w.undone++
	n := w.undone
	w.undo[n] = end
	w.mu.Unlock()
	w.at(length, func() { w.endFault(n) })
}

func (w *world) endFault(n int) {
	w.mu.Lock()
	end := w.undo[n]
	delete(w.undo, n)
	w.mu.Unlock()
	if end != nil {
		end()
	}
}

// tell has the platform stop a task: a signal, and after a while KILL.
func (w *world) tell(t *task) {
	w.history.add(t.name, "told to stop")
	t.signal()
	w.at(t.settings.stopGrace+stopTimeout, func() {
		if !t.isGone() {
			w.history.add(t.name, "does not end: killed")
			w.history.count("task killed for not stopping")
			t.die()
			w.end(t)
		}
	})
}

// deploy starts new tasks, and then stops the old ones.
func (w *world) deploy(f fault) {
	old := w.live()
	if len(old) > most/2 {
		return
	}
	w.history.count(string(f.kind))
	w.revision++
	w.history.add("world", "deploy of revision %d", w.revision)
	for i := range old {
		w.at(time.Duration(i)*f.amount/8, func() { w.start() })
	}
	for i, t := range old {
		w.at(f.length/3+time.Duration(i)*f.amount/4, func() {
			if !t.isGone() && !t.isTold() {
				w.tell(t)
			}
		})
	}
}

// replace has the platform start a task in the place of one that is gone, if
// too few are left then.
func (w *world) replace(gone *task, after time.Duration) {
	w.at(after, func() {
		if len(w.live()) < w.plan.tasks {
			w.start()
		}
	})
}

// end is what the kernel does when a container's first process has ended.
func (w *world) end(t *task) {
	if r := t.lastRun(); r != nil {
		r.abandoned()
	}
}

// crashGuard kills a supervisor, and with it the job's main process.
func (w *world) crashGuard(t *task) {
	t.mu.Lock()
	run, stopped := t.run, t.stopped
	t.mu.Unlock()
	if run == nil || stopped || !isClosed(run.started) || isClosed(run.job.dead) {
		return
	}
	w.history.count(string(crashGuard))
	w.history.add(t.name, "%s", crashGuard)
	run.replace("supervisor died")
}

// freeze stops processes of a task for a while. One stop at a time: an agent
// and a supervisor that are stopped separately are beyond what is promised.
func (w *world) freeze(t *task, k kind, length time.Duration) {
	t.mu.Lock()
	if t.stopped || t.dead {
		t.mu.Unlock()
		return
	}
	gates := []*gate{&t.agentGate, &t.guardGate, &t.jobGate}
	switch k {
	case freezeAgent:
		gates = gates[:1]
	case freezeGuard:
		gates = gates[1:2]
	}
	t.stopped, t.frozen = true, len(gates) == 3
	for _, g := range gates {
		g.close()
	}
	run := t.run
	t.mu.Unlock()
	w.history.count(string(k))
	w.history.add(t.name, "%s for %s", k, length.Round(time.Millisecond))
	if len(gates) == 3 {
		w.promises.froze(t)
	}
	if k == freezeGuard && run != nil {
		// The agent replaces a supervisor that does not answer for two heartbeats.
		w.at(2*t.settings.heartbeat, func() {
			t.mu.Lock()
			still := t.stopped
			t.mu.Unlock()
			if still && length > 2*t.settings.heartbeat && !isClosed(run.report) {
				w.history.add(t.name, "the supervisor is silent: replaced")
				run.replace("supervisor silent")
			}
		})
	}
	w.lasting(length, func() {
		w.history.add(t.name, "thawed")
		t.mu.Lock()
		whole := t.frozen
		t.stopped, t.frozen = false, false
		t.mu.Unlock()
		if whole {
			w.promises.thawed(t)
		}
		for _, g := range gates {
			g.open()
		}
	})
}

// operate is an operator's command, as package operator writes it into the row.
func (w *world) operate(f fault) {
	by := "operator " + f.at.Round(time.Millisecond).String()
	w.store.request(func(row *leader.Row) bool {
		q := &row.Requests
		switch f.kind {
		case pause:
			q.Paused, q.PausedBy = true, by
			w.promises.paused(true)
			w.lasting(f.length, func() {
				w.store.request(func(row *leader.Row) bool {
					w.history.add("world", "resumed")
					row.Requests.Paused, row.Requests.PausedBy = false, ""
					w.promises.paused(false)
					return true
				})
			})
		case handOver:
			if row.Owner == "" {
				return false
			}
			w.promises.drained()
			q.Handover, q.HandoverNow, q.HandoverBy = row.Owner, f.length > f.amount, by
		case runNow:
			if q.RunNow != "" {
				return false
			}
			q.RunNow, q.RunBy = by, by
		case breakLease:
			if t := w.byOwner(row.Owner); t == nil || !t.isDead() {
				return false
			}
			row.Owner, row.Draining, row.Beat = "", false, "op-"+by
			row.Fence++
			q.Handover = ""
		case bumpFence:
			row.Fence += 1 + int64(f.amount/time.Second)
		}
		w.history.count(string(f.kind))
		w.history.add("world", "%s: %s", f.kind, show(row))
		return true
	})
}

// crashFrom is a job that takes its own task down.
func (w *world) crashFrom(t *task) {
	w.history.add(t.name, "the job kills its own task")
	w.history.count("task killed by its own job")
	t.die()
	w.end(t)
	w.replace(t, 5*time.Second)
}

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
