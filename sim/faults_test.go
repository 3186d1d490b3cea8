package sim

import (
	"time"

	"solojob/agent"
	"solojob/leader"
)

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
	if w.plan.handover == agent.HandoverNow {
		for range old {
			w.promises.drained()
		}
	}
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
