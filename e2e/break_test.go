//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// break frees the lease of a dead holder without waiting for it to run out:
// fence + 1, and a task that stands by has it with its next poll. A holder that
// beats is left alone.
func TestBreakTheLeaseOfTheDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a, b := w.pair(nil)
	first := w.Life(1)
	o.Refused("alive", "break", "--yes")
	w.unchanged(first)

	a.Signal(syscall.SIGKILL)
	w.Dead(first)
	broken := o.Did("break", "--yes")
	if before, after := broken.Change.Before, broken.Change.After; before.Owner != a.Owner() || after.Owner != "" || after.Fence != before.Fence+1 {
		t.Errorf("from %+v to %+v", before, after)
	}
	second := w.Life(2)
	if second.Owner != b.Owner() || second.Fence < first.Fence+2 {
		t.Errorf("%v under %s follows %v", second, second.Owner, first)
	}
	w.within("from the break to the next job", second.Started.Sub(broken.Write.Applied), w.timing.Lease/2)
}

// Where the holder lives after all, its job is dead within a heartbeat of the
// break, and what it writes from then on carries a FENCE that is stale. The
// holder is a standby again.
func TestBreakWhileTheHolderLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a, b := w.pair(nil, "PROBE_ON_TERM", "ignore")
	first := w.Life(1)
	first.FreezeOnPurpose() // the break is the exception to one at a time
	broken := o.Did("break", "--yes", "--even-if-alive")
	dead := w.Dead(first)
	second := w.Life(2)
	if first.WriteFenced() || second.Fence <= broken.Write.After.Fence() {
		t.Errorf("%v follows %v, and the break's fence %d: the writes of the first are not stale", second, first, broken.Write.After.Fence())
	}
	refused := 0
	for _, c := range w.store.Find(Refused, a.Door, broken.Write.Applied) {
		if c.Applied < dead {
			refused++
		}
	}
	// The deadline's own kill would come some ten seconds after the last heartbeat.
	w.within("from the break to the death of the job", dead.Sub(broken.Write.Applied), w.timing.Heartbeat+5*time.Second)
	if refused > 1 || len(w.store.Find(Renew, a.Door, broken.Write.Applied)) > 0 {
		t.Errorf("the job survived the first heartbeat after the break (%d were refused)", refused)
	}
	lost := a.Logged("lease lost", 1)
	if reason := lost.Text("reason"); reason != "freed" && reason != "taken" {
		t.Errorf("the lease was lost because %q", reason)
	}
	if second.Owner != b.Owner() {
		t.Errorf("%v runs under %s", second, second.Owner)
	}
	w.During("the second job runs on", 3*w.timing.Heartbeat, func() bool {
		_, over := second.Ended()
		return !over && len(w.Lives()) == 2 && a.Running()
	})
}

// Where nobody else is there to take it, the holder loses the lease all the same:
// its job is dead within a heartbeat, before it has the lease again.
func TestBreakWithNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a := w.Start(Start{Name: "a", Env: deafToTerm, Status: []int{0, 128 + int(syscall.SIGKILL)}})
	first := w.Life(1)
	first.FreezeOnPurpose() // the lease leaves it while its job is alive: that is what a break is
	broken := o.Did("break", "--yes", "--even-if-alive")
	dead := w.Dead(first)
	w.within("from the break to the death of the job", dead.Sub(broken.Write.Applied), w.timing.Heartbeat+5*time.Second)
	if reason := a.Logged("lease lost", 1).Text("reason"); reason != "freed" {
		t.Errorf("the lease was lost because %q", reason)
	}
	second := w.Life(2)
	if second.Owner != a.Owner() || second.Fence < first.Fence+2 || second.Started < first.LastAlive() {
		t.Errorf("%v under %s follows %v", second, second.Owner, first)
	}
	w.signalProcess(second.PID, syscall.SIGKILL, "the deaf job")
}

// A holder that only seemed dead, frozen while its lease was broken, does not
// renew when it thaws: its job is dead within a heartbeat, and writes nothing
// that a fence would let pass.
func TestBreakWhileTheHolderIsFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a, b := w.pair(nil, "PROBE_ON_TERM", "ignore")
	first := w.Life(1)
	first.FreezeOnPurpose()
	w.signalProcess(a.PID, syscall.SIGSTOP, "agent a")
	broken := o.Did("break", "--yes")
	if broken.Change.Before.Owner != a.Owner() {
		t.Errorf("broken: %v", broken)
	}
	second := w.Life(2)
	if second.Owner != b.Owner() || first.WriteFenced() {
		t.Errorf("%v under %s follows %v", second, second.Owner, first)
	}
	thawed := w.signalProcess(a.PID, syscall.SIGCONT, "agent a")
	w.within("from the thaw to the death of the job", w.Dead(first).Sub(thawed), w.timing.Heartbeat+5*time.Second)
	a.Logged("lease lost", 1)
	w.During("the second job runs on", 2*w.timing.Heartbeat, func() bool { _, over := second.Ended(); return !over })
}

// The lease of once mode can be broken too: the task whose run is killed for
// that ends with 79, and who waits runs.
func TestBreakOnce(t *testing.T) {
	t.Parallel()
	w := newOnceWorld(t, attentive)
	o := w.Operator("o")
	a := w.Once("a", deafToTerm, 79)
	first := w.Life(1)
	first.FreezeOnPurpose()
	b := w.Once("b", nil)
	w.Wait(b)
	o.Did("break", "--yes", "--even-if-alive", "--once")
	if status := a.Ended(); status != 79 {
		t.Errorf("agent a ended with %d after its lease was broken", status)
	}
	w.Dead(first)
	second := w.Life(2)
	second.Exit(0, 0)
	if status := b.Ended(); status != 0 || second.Fence <= first.Fence+1 {
		t.Errorf("%v follows %v; agent b ended with %d", second, first, status)
	}
}

// A fence that an operator raises is adopted by the holder with its next
// heartbeat: its job runs on, and the next FENCE is greater. A fence is never
// lowered.
func TestFenceBumpIsAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	o := w.Operator("o")
	a := w.Start(Start{Name: "a"})
	first := w.Life(1)
	asked := o.Did("fence", "bump", "--to", "5000")
	var adopted *Call
	w.Until("the holder's heart beats on", patience, func() bool {
		for _, c := range w.store.Find(Renew, a.Door, asked.Write.Applied) {
			adopted = c
			return true
		}
		return false
	})
	w.actedAtOnce(a, asked.Write, "renewal", adopted.Applied)
	if adopted.After.Fence() != 5000 || len(a.Lines("lease lost")) > 0 {
		t.Errorf("the holder renews with fence %d", adopted.After.Fence())
	}
	o.Refused("5000", "fence", "bump", "--to", "4999")
	if _, over := first.Ended(); over || len(w.Lives()) != 1 {
		t.Errorf("the job was ended by the bump")
	}
	w.signalProcess(a.Supervisor(first), syscall.SIGKILL, "a's supervisor")
	if second := w.Life(2); second.Fence != 5001 || second.Owner != a.Owner() {
		t.Errorf("%v under %s follows a bump to 5000", second, second.Owner)
	}
}

// held starts a command whose write is held on its way, and returns when it is:
// open lets it through.
func (o *Operator) held(command ...string) (over <-chan said, open func()) {
	o.world.t.Helper()
	hold, came := make(chan struct{}), make(chan struct{}, 8)
	o.Door.Set(func(c *Call) Fault {
		if isRead(c.Op) {
			return Fault{}
		}
		came <- struct{}{}
		return Fault{Hold: hold}
	})
	over = o.Begin(o.asking(command)...)
	select {
	case <-came:
	case s := <-over:
		o.world.t.Fatalf("solojob %v wrote nothing: %v", command, s.Said)
	case <-time.After(patience):
		o.world.t.Fatalf("solojob %v writes nothing", command)
	}
	return over, func() { close(hold) }
}

// Of two operators at once the second, whose request is held up on its way, does
// not undo what the first has done meanwhile: it is refused, and says why.
func TestTwoOperatorsDontUndoEachOther(t *testing.T) {
	t.Parallel()
	type world struct {
		*World
		a, b *Agent
		o    *Operator
	}
	for _, c := range []struct {
		name    string
		before  func(w world)
		command []string       // is held up
		between func(w world)  // what happens meanwhile
		holds   func(Row) bool // of the row afterwards
	}{
		{
			"resume, and the lease was paused again",
			func(w world) { w.o.Did("pause", "--no-wait") },
			[]string{"resume", "--no-wait"},
			func(w world) {
				w.o.Did("resume", "--no-wait")
				w.o.Did("pause", "--no-wait")
			},
			func(r Row) bool { return r["paused"]["BOOL"] == true },
		},
		{
			"handover, and another task has the lease",
			func(world) {},
			[]string{"handover", "--now", "--no-wait"},
			func(w world) { w.o.Did("handover", "--now", "--no-wait"); w.Life(2) },
			func(r Row) bool { return r.text("handover") == "" },
		},
		{
			"break, and another task has the lease",
			func(world) {},
			[]string{"break", "--yes", "--even-if-alive"},
			func(w world) { w.o.Did("handover", "--now", "--no-wait"); w.Life(2) },
			func(r Row) bool { return r.Owner() != "" },
		},
		{
			"fence bump, and the fence is higher",
			func(world) {},
			[]string{"fence", "bump", "--to", "500", "--no-wait"},
			func(w world) { w.o.Did("fence", "bump", "--to", "900", "--no-wait") },
			func(r Row) bool { return r.Fence() == 900 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := world{World: newWorld(t, attentive)}
			w.o = w.Operator("o")
			late := w.Operator("late")
			w.a, w.b = w.pair(nil)
			w.Life(1)
			c.before(w)
			over, open := late.held(c.command...)
			time.Sleep(1100 * time.Millisecond) // what operators sign with has whole seconds, and these have one name
			c.between(w)
			runs, since := len(w.Lives()), boottime.Now()
			open()
			s := (<-over).check(t)
			if s.Status == 0 || s.Write != nil || s.Change.Refused == "" { // on a slow machine it gave up waiting
				t.Errorf("the late command came through: %v", s)
			}
			w.Until("two heartbeats", patience, func() bool {
				return len(w.store.Find(Renew, w.a.Door, since))+len(w.store.Find(Renew, w.b.Door, since)) >= 2
			})
			if row := w.Row(); !c.holds(row) || len(w.Lives()) != runs {
				t.Errorf("the late command changed something (%d more runs): %v", len(w.Lives())-runs, row)
			}
		})
	}
}

// The same command by several operators in the same moment is carried out once;
// different ones are all carried out.
func TestOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, attentive)
	a := w.Start(Start{Name: "a", Env: scheduled(farOff())})
	w.Until("the schedule is in the row", patience, func() bool { return w.Row().text("schedule") != "" })
	var operators []*Operator
	for i := range 3 {
		operators = append(operators, w.Operator(fmt.Sprintf("o%d", i)))
	}
	together := func(commands ...[]string) (done, refused int) {
		var all []<-chan said
		for i, o := range operators {
			all = append(all, o.Begin(o.asking(commands[i%len(commands)])...))
		}
		for _, over := range all {
			if s := (<-over).check(t); s.Status == 0 {
				done++
			} else if s.Status == 1 && strings.Contains(s.Err, "already") {
				refused++
			} else {
				t.Errorf("%v", s)
			}
		}
		return done, refused
	}

	first := func() *Life { return w.Lives()[0] }
	if done, refused := together([]string{"run-now", "--no-wait"}); done < 1 || done+refused != len(operators) {
		t.Errorf("%d of three requests were accepted, %d refused", done, refused)
	} else {
		// A request that came when the first was taken up met the run: it was refused by the holder.
		w.Life(1)
		w.During("one extra run", 2*w.timing.Heartbeat, func() bool { return len(w.Lives()) == 1 })
	}
	if done, _ := together([]string{"pause", "--no-wait"}, []string{"handover", "--no-wait"}, []string{"fence", "bump", "--to", "700", "--no-wait"}); done != 3 {
		t.Errorf("%d of three different requests were accepted", done)
	}
	if row := w.Row(); row["paused"]["BOOL"] != true || row.text("handover") != a.Owner() || row.Fence() != 700 {
		t.Errorf("one request undid another: %v", row)
	}
	if _, over := first().Ended(); over {
		t.Errorf("the extra run was ended")
	}
	first().Exit(0, 0)
}
