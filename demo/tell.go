package demo

import (
	"fmt"
	"slices"
	"time"
)

// tell updates what the timeline knows by one entry, and puts it into words;
// none if the lanes say enough.
func (t *timeline) tell(e Entry, l *lane) string {
	switch e.Kind {
	case Noted:
		t.hint = e.Text
		return ""
	case Looked, Acquired, Released:
		return t.tellLease(e, l)
	case Launched, Told, Ended, Died:
		return t.tellJob(e, l)
	case Accepted, Refused:
		return t.tellWrite(e)
	default:
		return t.tellTask(e, l)
	}
}

// tellTask puts into words what the director did to a task.
func (t *timeline) tellTask(e Entry, l *lane) string {
	switch e.Kind {
	case Started:
		return fmt.Sprintf("%s starts (%s), pid %d", e.Task, e.Text, e.Pid)
	case Stopped:
		l.stopped = true
	case Killed:
		l.killed = true
		t.strike(e, l)
	case Frozen:
		l.frozen = true
		t.strike(e, l)
	case JobThawn:
		l.frozen, l.stale = false, true
	case Thawed:
		l.struck = e.At
		t.hint = ""
	case Cut:
		l.cut = true
		t.strike(e, l)
	case Healed:
		l.cut = false
		t.hint = ""
	case Gone:
		l.gone = true
		if !l.stopped {
			return "" // killed: that has been said; or the show is over
		}
		return fmt.Sprintf("%s is gone (%s)", e.Task, e.Text)
	}
	return e.Text
}

// strike keeps the time of a fault, from which what follows is measured.
func (t *timeline) strike(e Entry, l *lane) {
	l.struck = e.At
	if slices.Contains(t.lanes, e.Task) {
		t.fault = e.At
	}
}

// tellLease puts into words what happened to the row.
func (t *timeline) tellLease(e Entry, l *lane) string {
	switch e.Kind {
	case Looked:
		l.looked = true
		switch {
		case t.holder == "" || t.holder == e.Task:
			return ""
		case l.run != 0:
			return fmt.Sprintf("only now %s hears that %s has the lock", e.Task, t.holder)
		default:
			return e.Task + " stands by"
		}
	case Released:
		t.free = true
		return e.Task + " gives the lease back"
	}
	expired := t.holder != "" && !t.free && t.holder != e.Task
	t.holder, t.free = e.Task, false
	switch {
	case !expired:
		return ""
	case e.Fence == 0:
		return fmt.Sprintf("the lock has expired: %s takes it", e.Task)
	default:
		return fmt.Sprintf("the lease has run out: %s takes it over", e.Task)
	}
}

// tellJob puts into words what a job's connection showed.
func (t *timeline) tellJob(e Entry, l *lane) string {
	switch e.Kind {
	case Launched:
		l.run, l.fence, l.told, l.stale = e.Run, e.Fence, false, false
		text := fmt.Sprintf("%s's job starts", e.Task)
		switch {
		case t.ended != 0:
			text += fmt.Sprintf(" %s later", short(e.At.Sub(t.ended)))
		case t.fault != 0:
			text += fmt.Sprintf(", %s after the fault", short(e.At.Sub(t.fault)))
		}
		t.ended, t.fault, t.hint = 0, 0, ""
		if e.Fence != 0 {
			text += fmt.Sprintf(": FENCE %d", e.Fence)
		}
		return fmt.Sprintf("%s, pid %d", text, e.Pid)
	case Told:
		l.told = true
		if l.cut {
			return fmt.Sprintf("%s's job gets SIGTERM: the lease is slipping", e.Task)
		}
		return fmt.Sprintf("%s's job gets SIGTERM", e.Task)
	case Ended:
		t.ended = e.At
		return fmt.Sprintf("%s's job has done its last work", e.Task)
	default: // Died
		l.run = 0
		switch {
		case t.ended != 0:
			return ""
		case l.killed:
			return fmt.Sprintf("%s's job is dead, %s after its agent", e.Task, short(e.At.Sub(l.struck)))
		case l.stale:
			return fmt.Sprintf("%s's job is killed, %s after the thaw", e.Task, short(e.At.Sub(l.struck)))
		case l.gone:
			return ""
		case l.told:
			return fmt.Sprintf("%s's job is killed: it did not end in time", e.Task)
		default:
			return fmt.Sprintf("%s's job is killed", e.Task)
		}
	}
}

// tellWrite puts into words the first write of a run that came too late.
func (t *timeline) tellWrite(e Entry) string {
	if e.Task == t.holder || t.reported[e.Run] {
		return ""
	}
	t.reported[e.Run] = true
	switch {
	case e.Kind == Refused:
		return t.paint.job("REFUSED:") + fmt.Sprintf(" a write of %s with its old FENCE %d", e.Task, e.Fence)
	case e.Fence != 0:
		return t.paint.alarm("ACCEPTED:") + fmt.Sprintf(" a write of %s with its old FENCE %d", e.Task, e.Fence)
	default:
		return t.paint.alarm("ACCEPTED:") + fmt.Sprintf(" a write of %s, while %s has the lock", e.Task, t.holder)
	}
}

// short is a duration as a person would say it.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
