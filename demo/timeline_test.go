package demo

import (
	"bytes"
	"strings"
	"testing"
)

// render prints the good chronicle, with the longest pids that there are.
func render(o Options) string {
	var out bytes.Buffer
	o.Out = &out
	t := newTimeline(o)
	t.prologue()
	for _, e := range illustrated() {
		t.show(e)
	}
	judge(good().chronicle()).print(t)
	return out.String()
}

// illustrated is the good chronicle with the texts that the director adds.
func illustrated() []Entry {
	entries := good().chronicle()
	tasks := [][]string{{"A", "B", "C", "D"}, {"C", "D", "E"}, {"D", "E"}, {"D", "E"}, {"X", "Y"}}
	for i := range entries {
		e := &entries[i]
		e.Pid = 4194304 // the highest that Linux gives (proc(5), pid_max)
		switch e.Kind {
		case Opened:
			e.Tasks = tasks[e.Scene-1]
			e.Text = "1  " + titles[e.Scene] + "\n" + strings.Repeat("what this scene is about ", 9)
		case Stopped, Killed, Frozen, JobThawn, Thawed, Cut:
			e.Text = "something happens to task " + e.Task
		}
	}
	return entries
}

// In a pipe there are no escapes; on a terminal there are, and without them
// the text is the same.
func TestColourIsOnlyPaint(t *testing.T) {
	plain, coloured := render(Options{}), render(Options{Colour: true})
	if strings.Contains(plain, "\x1b") {
		t.Error("there are escapes in a pipe")
	}
	if !strings.Contains(coloured, "\x1b[") {
		t.Error("there is no colour on a terminal")
	}
	if stripped := escape.ReplaceAllString(coloured, ""); stripped != plain {
		t.Errorf("without its colours the timeline differs:\n%s\n%s", stripped, plain)
	}
}

// No line is wider than the terminal, nor than 100 columns, nor ends in blanks.
func TestLinesFit(t *testing.T) {
	for columns, limit := range map[int]int{0: 100, 250: 100, 92: 92, 80: 80, 20: 80} {
		for line := range strings.Lines(render(Options{Columns: columns, Colour: true})) {
			line = escape.ReplaceAllString(strings.TrimSuffix(line, "\n"), "")
			if visible(line) > limit {
				t.Errorf("on %d columns this line has %d:\n%s", columns, visible(line), line)
			}
			if strings.TrimRight(line, " ") != line {
				t.Errorf("blanks at the end of %q", line)
			}
		}
	}
}

// The lanes say where the job is, and the words say why.
func TestTheTimelineTellsTheStory(t *testing.T) {
	text := render(Options{})
	at := 0
	for _, want := range []string{
		"JOB 1                                   A's job starts: FENCE 1, pid 4194304",
		"ending 1                                A's job gets SIGTERM",
		"A gives the lease back",
		"JOB 2               C's job starts 400 ms later: FENCE 2",
		"C's job is dead, 100 ms after its agent",
		"the lease has run out: D takes it over",
		"frozen 3            something happens to task D",
		"frozen 3  JOB 4     E's job starts, 200 ms after the fault: FENCE 4",
		"STALE 3   JOB 4     REFUSED: a write of D with its old FENCE 3",
		"D's job is killed, 100 ms after the thaw",
		"ending 4  E's job gets SIGTERM: the lease is slipping",
		"cut off   E's job is killed: it did not end in time",
		"JOB       JOB       ACCEPTED: a write of X, while Y has the lock",
		"KEPT:",
	} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or too early, in:\n%s", want, text)
		}
		at += i
	}
}
