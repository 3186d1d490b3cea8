//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"solojob/boottime"
)

// What a lease has besides its own item: the lease of once mode, and the items
// of the once-keys.
const (
	onceItem  = "once"
	keyPrefix = "once#"
)

// Item is an item of the world's lease as it stands, told by its sort key.
func (w *World) Item(sk string) Row {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	_, reply := ask(w.store.table, "GetItem", map[string]any{"TableName": tableName, "Key": map[string]any{
		"pk": map[string]any{"S": w.lease}, "sk": map[string]any{"S": sk},
	}})
	var out struct{ Item Row }
	_ = json.Unmarshal(reply, &out)
	return out.Item
}

// Key is the item of a once-key.
func (w *World) Key(name string) Row { return w.Item(keyPrefix + name) }

// item is the sort key of the one item that a call is about, "" if there is none.
func (c *Call) item() string {
	var in struct{ Key Row }
	_ = json.Unmarshal(c.Body, &in)
	return in.Key.text("sk")
}

// written is the item after a write that was applied, if the reply tells it.
func (c *Call) written() Row {
	var out struct{ Attributes Row }
	_ = json.Unmarshal(c.Reply, &out)
	return out.Attributes
}

// Writes are the applied writes to an item, in their order.
func (w *World) Writes(sk string, since boottime.Instant) []*Call {
	var found []*Call
	for _, c := range w.store.Calls() {
		if !isRead(c.Op) && c.Status == 200 && c.Applied >= since && c.item() == sk {
			found = append(found, c)
		}
	}
	return found
}

// newOnceWorld is a world in which, at the end, the invariants of the lease are
// checked of the once item too, and those of keys: a fence never falls, the
// lease never leaves an owner whose job is alive, and a key that is done was
// done by a run that is over, and stays done.
func newOnceWorld(t *testing.T, timing Timing) *World {
	t.Helper()
	var w *World
	t.Cleanup(func() { // after the world's own end
		if w == nil {
			return
		}
		problems := w.onceProblems()
		for _, p := range problems {
			t.Error(p)
		}
		if len(problems) > 0 {
			t.Logf("what happened, in seconds:\n%s", w.story())
		}
	})
	w = newWorld(t, timing)
	return w
}

func (w *World) onceProblems() []string {
	var problems []string
	last := map[string]Row{}
	for _, c := range w.store.Calls() {
		sk := c.item()
		if isRead(c.Op) || c.Status != 200 || sk != onceItem && !strings.HasPrefix(sk, keyPrefix) {
			continue
		}
		before, after := last[sk], c.written()
		last[sk] = after
		problem := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%s of %s by %s: ", c.Op, sk, c.Door.Name)+fmt.Sprintf(format, args...))
		}
		if after.Fence() < before.Fence() {
			problem("the fence fell from %d to %d", before.Fence(), after.Fence())
		}
		if size := after.size(); sk == onceItem && size >= 1024 {
			problem("the item has %d bytes, and a heartbeat costs more than one write unit", size)
		}
		if before.text("state") == "done" && after.text("state") != "done" {
			problem("a key that was done is %q", after.text("state"))
		}
		left := sk == onceItem && before.Owner() != after.Owner()
		done := sk != onceItem && after.text("state") == "done" && before.text("state") != "done"
		for _, l := range w.Lives() {
			if l.LastAlive() <= c.Applied || l.Started > c.Applied || l.frozen {
				continue
			}
			if left && l.Owner == before.Owner() || done && l.Fence == after.Fence() {
				problem("%v was alive %v later", l, l.LastAlive().Sub(c.Applied))
			}
		}
	}
	for _, a := range w.agents {
		if owner := w.Item(onceItem).Owner(); owner != "" && owner == a.Owner() && !a.killed {
			problems = append(problems, fmt.Sprintf("agent %s ended, and the once item is still held in its name", a.Name))
		}
	}
	return problems
}

// viaOnce makes the command line one of solojob once.
var viaOnce = []string{"/bin/sh", "-c", `self=$1; shift 2; exec "$self" once "$@"`, "once"}

// Once starts a task with solojob once, to end with one of the statuses, 0 by
// default.
func (w *World) Once(name string, env map[string]string, status ...int) *Agent {
	w.t.Helper()
	return w.Start(Start{Name: name, Env: env, Wrap: viaOnce, Status: status})
}

// keyed are the variables of a task with a once-key, and others.
func keyed(key string, more ...string) map[string]string {
	env := map[string]string{"SOLOJOB_ONCE_KEY": key}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

// Wait waits until all of some agents log that they stand by.
func (w *World) Wait(agents ...*Agent) {
	w.t.Helper()
	w.Until("the others stand by", patience, func() bool {
		return !slices.ContainsFunc(agents, func(a *Agent) bool { return len(a.Lines("standing by")) == 0 })
	})
}

// KillAll ends an agent, its supervisor and its job at once, as the end of a
// machine would.
func (w *World) KillAll(a *Agent, l *Life) {
	w.t.Helper()
	supervisor := a.Supervisor(l)
	a.killed = true
	w.note(boottime.Now(), "test", "SIGKILL to agent %s, its supervisor and its job", a.Name)
	for _, pid := range []int{a.PID, supervisor, l.PID} {
		kill(pid)
	}
}
