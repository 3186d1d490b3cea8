package demo

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"solojob/boottime"
)

// script is a chronicle in the making; each line happens 100 ms after the one
// before it.
type script []Entry

func (s script) chronicle() []Entry {
	scene := 0
	entries := slices.Clone(s)
	for i := range entries {
		if entries[i].Kind == Opened {
			scene++
		}
		entries[i].Scene = scene
		if entries[i].At == 0 {
			entries[i].At = boottime.Instant((time.Duration(i) + 1) * 100 * time.Millisecond)
		}
	}
	return entries
}

// good is a chronicle in which everything is as it should be.
func good() script {
	return script{
		{Kind: Opened}, // a rolling deploy
		{Kind: Acquired, Task: "A", Fence: 1},
		{Kind: Launched, Task: "A", Run: 1, Fence: 1},
		{Kind: Accepted, Task: "A", Run: 1, Fence: 1},
		{Kind: Stopped, Task: "A"},
		{Kind: Told, Task: "A", Run: 1, Fence: 1},
		{Kind: Ended, Task: "A", Run: 1, Fence: 1},
		{Kind: Died, Task: "A", Run: 1, Fence: 1},
		{Kind: Released, Task: "A"},
		{Kind: Acquired, Task: "C", Fence: 2},
		{Kind: Launched, Task: "C", Run: 2, Fence: 2},
		{Kind: Accepted, Task: "C", Run: 2, Fence: 2},
		{Kind: Opened}, // a crash
		{Kind: Killed, Task: "C"},
		{Kind: Died, Task: "C", Run: 2, Fence: 2},
		{Kind: Acquired, Task: "D", Fence: 3},
		{Kind: Launched, Task: "D", Run: 3, Fence: 3},
		{Kind: Accepted, Task: "D", Run: 3, Fence: 3},
		{Kind: Opened}, // a pause
		{Kind: Frozen, Task: "D"},
		{Kind: Acquired, Task: "E", Fence: 4},
		{Kind: Launched, Task: "E", Run: 4, Fence: 4, Beside: []int{3}},
		{Kind: Accepted, Task: "E", Run: 4, Fence: 4},
		{Kind: JobThawn, Task: "D"},
		{Kind: Refused, Task: "D", Run: 3, Fence: 3},
		{Kind: Thawed, Task: "D"},
		{Kind: Died, Task: "D", Run: 3, Fence: 3},
		{Kind: Opened}, // a cut
		{Kind: Cut, Task: "E"},
		{Kind: Told, Task: "E", Run: 4, Fence: 4},
		{Kind: Died, Task: "E", Run: 4, Fence: 4},
		{Kind: Acquired, Task: "D", Fence: 5},
		{Kind: Launched, Task: "D", Run: 5, Fence: 5},
		{Kind: Accepted, Task: "D", Run: 5, Fence: 5},
		{Kind: Opened}, // the control
		{Kind: Killed, Task: "D"},
		{Kind: Died, Task: "D", Run: 5, Fence: 5},
		{Kind: Acquired, Task: "X"},
		{Kind: Launched, Task: "X", Run: 6},
		{Kind: Accepted, Task: "X", Run: 6},
		{Kind: Cut, Task: "X"},
		{Kind: Acquired, Task: "Y"},
		{Kind: Launched, Task: "Y", Run: 7, Beside: []int{6}},
		{Kind: Accepted, Task: "X", Run: 6},
		{Kind: Died, Task: "X", Run: 6},
		{Kind: Closed},
	}
}

// find is the place of an entry in a script.
func (s script) find(k Kind, run int, task string) int {
	return slices.IndexFunc(s, func(e Entry) bool {
		return e.Kind == k && e.Run == run && (task == "" || e.Task == task)
	})
}

// A chronicle in which everything is as it should be is found to be so, with
// the times that follow from it.
func TestAGoodChronicleHasNothingWrong(t *testing.T) {
	v := judge(good().chronicle())
	if len(v.problems()) > 0 {
		t.Fatalf("found wrong: %s", strings.Join(v.problems(), "; "))
	}
	if v.First != 1 || v.Last != 5 {
		t.Errorf("FENCE from %d to %d", v.First, v.Last)
	}
	for _, c := range []struct {
		scene, runs, overlaps, stale, let int
		move                              Move
	}{
		{sceneDeploy, 2, 0, 0, 0, Move{"A", "C", Released, 400 * time.Millisecond, 0}},
		{sceneCrash, 1, 0, 0, 0, Move{"C", "D", Killed, 300 * time.Millisecond, 100 * time.Millisecond}},
		{scenePause, 1, 0, 1, 0, Move{"D", "E", Frozen, 200 * time.Millisecond, 0}},
		{sceneCut, 1, 0, 0, 0, Move{"E", "D", Cut, 400 * time.Millisecond, 200 * time.Millisecond}},
		{sceneControl, 2, 1, 1, 1, Move{"X", "Y", Cut, 200 * time.Millisecond, 0}},
	} {
		s := v.Scenes[c.scene]
		if s.Runs != c.runs || len(s.Overlaps) != c.overlaps || s.Stale != c.stale || s.Let != c.let {
			t.Errorf("scene %d: %+v", c.scene, s)
		}
		if len(s.Moves) != 1 || s.Moves[0] != c.move {
			t.Errorf("scene %d: moves %+v, want %+v", c.scene, s.Moves, c.move)
		}
	}
	want := Thaw{Task: "D", Alone: 200 * time.Millisecond, Then: 100 * time.Millisecond}
	if thaws := v.Scenes[scenePause].Thaws; len(thaws) != 1 || thaws[0] != want {
		t.Errorf("thaws %+v, want %+v", thaws, want)
	}
	if o := v.Scenes[sceneControl].Overlaps; len(o) != 1 || o[0] != (Overlap{"X", "Y", 200 * time.Millisecond}) {
		t.Errorf("the control overlapped as %+v", o)
	}
}

// Every promise that is broken, and every scene that fails to show what it is
// there for, is found and named.
func TestBrokenChroniclesAreFound(t *testing.T) {
	drop := func(k Kind, run int, task string) func(script) script {
		return func(s script) script { i := s.find(k, run, task); return slices.Delete(s, i, i+1) }
	}
	insert := func(before Kind, run int, e Entry) func(script) script {
		return func(s script) script { return slices.Insert(s, s.find(before, run, ""), e) }
	}
	change := func(k Kind, run int, f func(*Entry)) func(script) script {
		return func(s script) script { f(&s[s.find(k, run, "")]); return s }
	}
	move := func(k Kind, run int, task string, before Kind, beforeRun int) func(script) script {
		return func(s script) script {
			i := s.find(k, run, task)
			e := s[i]
			s = slices.Delete(s, i, i+1)
			return slices.Insert(s, s.find(before, beforeRun, ""), e)
		}
	}
	for _, c := range []struct {
		name string
		harm func(script) script
		want string
	}{
		{"two jobs at once in a handover", change(Launched, 2, func(e *Entry) { e.Beside = []int{1} }), "tasks A and C were alive at once"},
		{"two jobs at once after a crash", change(Launched, 3, func(e *Entry) { e.Beside = []int{2} }), "tasks C and D were alive at once"},
		{"two jobs at once behind a cut", change(Launched, 5, func(e *Entry) { e.Beside = []int{4} }), "tasks E and D were alive at once"},
		{"a third job beside a thawed one", insert(Thawed, 0, Entry{Kind: Launched, Task: "F", Run: 9, Fence: 9, Beside: []int{3, 4}}), "tasks D and F were alive at once"},
		{"two jobs of one task", insert(Stopped, 0, Entry{Kind: Launched, Task: "A", Run: 9, Fence: 2, Beside: []int{1}}), "tasks A and A were alive at once"},
		{"a FENCE twice", change(Launched, 2, func(e *Entry) { e.Fence = 1 }), "FENCE did not grow"},
		{"a FENCE that falls", change(Launched, 4, func(e *Entry) { e.Fence = 2 }), "FENCE did not grow"},
		{"a release before death", change(Released, 0, func(e *Entry) { e.Beside = []int{1} }), "gave the lease back while its job was alive"},
		{"a stale write accepted", change(Refused, 3, func(e *Entry) { e.Kind = Accepted }), "took 1 stale writes"},
		{"a register that goes back", insert(Killed, 0, Entry{Kind: Accepted, Task: "C", Run: 2, Fence: 1}), "took a write with FENCE 1 after one with 2"},
		{"no handover", drop(Released, 0, "A"), "nothing explains it"},
		{"a takeover for no reason", drop(Killed, 0, "C"), "nothing explains it"},
		{"a job that outlives its crashed agent's successor", move(Died, 2, "", Accepted, 3), "was not dead when the new one started"},
		{"a job that is dead late behind the cut", move(Died, 4, "", Accepted, 5), "was not dead when the new one started"},
		{"no stale write tried", drop(Refused, 3, ""), "no stale write was tried"},
		{"a thaw that didn't happen", drop(JobThawn, 0, "D"), "no stale write was tried"},
		{"a thawed job that is never killed", drop(Died, 3, ""), "outlived the thaw of its agent"},
		{"no takeover in the pause", drop(Launched, 4, ""), "no task took over during the pause"},
		{"a control that doesn't overlap", change(Launched, 7, func(e *Entry) { e.Beside = nil }), "the TTL lock did not overlap"},
		{"a control without damage", func(s script) script { return slices.Delete(s, len(s)-3, len(s)-2) }, "the TTL lock did not overlap"},
		{"nothing at all", func(script) script { return nil }, "no lease was handed over"},
	} {
		v := judge(c.harm(good()).chronicle())
		if !strings.Contains(strings.Join(v.Wrong, "\n"), c.want) {
			t.Errorf("%s: want %q among the findings:\n%s", c.name, c.want, strings.Join(v.Wrong, "\n"))
		}
	}
}

// What is left of the tasks when the show is over is a broken promise, too.
func TestProcessesLeftBehindAreAProblem(t *testing.T) {
	v := judge(good().chronicle())
	v.Left = 2
	if p := v.problems(); len(p) != 1 || !strings.Contains(p[0], "agents: 2") {
		t.Errorf("problems: %q", p)
	}
}

// The verdict's page says what is wrong, and says that all is well only if it is.
func TestTheVerdictSaysWhatIsWrong(t *testing.T) {
	var out bytes.Buffer
	v := judge(good().chronicle())
	v.print(newTimeline(Options{Out: &out}))
	if s := out.String(); !strings.Contains(s, "KEPT") || strings.Contains(s, "BROKEN") {
		t.Errorf("a good verdict says:\n%s", s)
	}
	out.Reset()
	v.Left = 1
	v.print(newTimeline(Options{Out: &out}))
	if s := out.String(); strings.Contains(s, "KEPT") || !strings.Contains(s, "BROKEN: processes that outlived") {
		t.Errorf("a bad verdict says:\n%s", s)
	}
}
