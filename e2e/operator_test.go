//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"solojob/boottime"
)

// Operator is a person at a shell, with a door of their own to the store.
type Operator struct {
	Name string
	Door *Door

	world *World
}

// Said is what a command came to.
type Said struct {
	Status   int
	Out, Err string
	// Change is the JSON form of a command that changes something.
	Change struct {
		Command       string
		Done          bool
		Refused       string
		Before, After *Shown
		Read          *bool `json:"read_by_holder"`
	}
	// Write is the one write that was applied, nil if there was none.
	Write *Call
}

func (s Said) String() string { return fmt.Sprintf("status %d, %s%s", s.Status, s.Out, s.Err) }

// Shown is a lease as an operator is shown it.
type Shown struct {
	Item, State, Owner string
	Fence              int64
	Paused             bool
	Job                struct{ State string }
	Heartbeat          *struct {
		Seen, Silent bool
		Takeover     *int64 `json:"takeover_in_ms"`
	}
	LastRun *Ran `json:"last_run"`
}

// Ran is a run as the history shows it.
type Ran struct {
	Tick, Kind, State, Owner, Why, By string
	Started, Ended                    string
	ExitCode                          int `json:"exit_code"`
	Attempt                           int
	Fence                             int64
}

// Operator opens a shell.
func (w *World) Operator(name string) *Operator {
	w.t.Helper()
	door, err := w.store.newDoor(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return &Operator{Name: name, Door: door, world: w}
}

// Run runs one command to its end.
func (o *Operator) Run(args ...string) Said {
	o.world.t.Helper()
	return (<-o.Begin(args...)).check(o.world.t)
}

// Ask runs a command that changes the world's lease, to its end.
func (o *Operator) Ask(command ...string) Said {
	o.world.t.Helper()
	return o.Run(o.asking(command)...)
}

func (o *Operator) asking(command []string) []string {
	return append(command, o.world.lease, "--json")
}

// said is what a command came to, before it is judged.
type said struct {
	Said
	args   []string
	writes []*Call // that reached the store
	err    error
}

// Begin runs one command, and delivers what it came to.
func (o *Operator) Begin(args ...string) <-chan said {
	w := o.world
	over := make(chan said, 1)
	cmd := exec.CommandContext(w.t.Context(), built("solojob"), args...)
	cmd.Env = append(w.environ(o.Door, Start{}), "USER="+o.Name)
	cmd.Dir = w.dir
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	began := boottime.Now()
	w.note(began, o.Name, "solojob %s", strings.Join(args, " "))
	go func() {
		err := cmd.Run()
		s := said{args: args}
		s.Status, s.Out, s.Err = cmd.ProcessState.ExitCode(), out.String(), stderr.String()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			s.err = err
		}
		for _, c := range w.store.Calls() {
			if c.Door == o.Door && c.Applied >= began && !isRead(c.Op) {
				s.writes = append(s.writes, c)
				if c.Status == 200 {
					s.Write = c
				}
			}
		}
		_ = json.Unmarshal([]byte(s.Out), &s.Change) // not every command has it
		w.note(boottime.Now(), o.Name, "%s: status %d: %s%s", args[0], s.Status, s.Out, s.Err)
		over <- s
	}()
	return over
}

// check checks what holds of every command: what it changes, it changes by one
// conditional write, and it says what was there before and after.
func (s said) check(t *testing.T) Said {
	t.Helper()
	if s.err != nil {
		t.Fatalf("solojob %v can't be run: %v", s.args, s.err)
	}
	if len(s.writes) > 1 {
		t.Errorf("solojob %v wrote %d times", s.args, len(s.writes))
	}
	for _, c := range s.writes {
		if c.Op != "UpdateItem" || !strings.Contains(string(c.Body), `"ConditionExpression"`) {
			t.Errorf("solojob %v wrote by %s, want one conditional update: %s", s.args, c.Op, c.Body)
		}
	}
	change := s.Change
	switch {
	case change.Command == "":
	case (s.Status == 0) != change.Done || change.Done != (s.Write != nil) || change.Done != (change.Refused == ""):
		t.Errorf("solojob %v ended with %d, having written: %v; it says %s", s.args, s.Status, s.Write != nil, s.Out)
	case change.Done && (change.Before == nil || change.After == nil):
		t.Errorf("solojob %v does not say what was there before and after: %s", s.args, s.Out)
	}
	return s.Said
}

// Did runs a command that must succeed.
func (o *Operator) Did(command ...string) Said {
	o.world.t.Helper()
	s := o.Ask(command...)
	if s.Status != 0 || s.Write == nil {
		o.world.t.Fatalf("solojob %v failed: %v", command, s)
	}
	return s
}

// Refused runs a command that must change nothing, and say why.
func (o *Operator) Refused(reason string, command ...string) {
	o.world.t.Helper()
	s := o.Ask(command...)
	if s.Status != 1 || s.Write != nil || !strings.Contains(s.Err, reason) {
		o.world.t.Errorf("solojob %v: want a refusal that says %q, and got: %v", command, reason, s)
	}
}

// Status is the world's lease as `solojob status` shows it.
func (o *Operator) Status() *Shown {
	o.world.t.Helper()
	s := o.Run("status", o.world.lease, "--json")
	var document struct{ Leases []*Shown }
	if err := json.Unmarshal([]byte(s.Out), &document); err != nil || s.Status != 0 || len(document.Leases) == 0 {
		o.world.t.Fatalf("no status: %v", s)
	}
	return document.Leases[0]
}

// History are the runs as `solojob history` shows them.
func (o *Operator) History() []Ran {
	o.world.t.Helper()
	s := o.Run("history", o.world.lease, "--json", "-n", "100")
	var document struct{ Runs []Ran }
	if err := json.Unmarshal([]byte(s.Out), &document); err != nil || s.Status != 0 {
		o.world.t.Fatalf("no history: %v", s)
	}
	return document.Runs
}

// Recorded waits until the history has a run that fits.
func (o *Operator) Recorded(what string, fits func(Ran) bool) Ran {
	o.world.t.Helper()
	deadline := time.Now().Add(patience / 3)
	for {
		runs := o.History()
		for _, r := range runs {
			if fits(r) {
				return r
			}
		}
		if time.Now().After(deadline) {
			o.world.t.Fatalf("the history does not have %s: %+v", what, runs)
		}
	}
}

// actedAtOnce checks that a holder did something by the first heartbeat that
// told it of a request: no second one came between, but for one by which it says
// that it is draining.
func (w *World) actedAtOnce(a *Agent, request *Call, what string, at boottime.Instant) {
	w.t.Helper()
	beats := 0
	for _, c := range w.store.Find(Renew, a.Door, request.Applied) {
		if c.Applied < at && c.After["draining"]["BOOL"] != true {
			beats++
		}
	}
	w.t.Logf("%s: %v after it was asked for, %d heartbeats", what, at.Sub(request.Applied).Round(time.Millisecond), beats)
	most := 1 + len(a.Lines("renewal failed")) // a reply that came too late tells the holder nothing
	if beats > most || at < request.Applied {
		w.t.Errorf("%s: %v after it was asked for, with %d heartbeats between, want at most %d", what, at.Sub(request.Applied), beats, most)
	}
}
