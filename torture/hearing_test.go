//go:build linux

package torture

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"

	"solojob/boottime"
)

// hearing is what a task's stderr is.
type hearing string

const (
	hearsPipe   hearing = "is read"
	hearsFull   hearing = "is on a full disk"
	hearsClosed hearing = "is closed"
	hearsBroken hearing = "is a pipe without a reader"
	hearsStuck  hearing = "is a pipe that nobody reads"
)

// hearings are weighted: what is read tells what happened.
var hearings = []hearing{hearsPipe, hearsPipe, hearsPipe, hearsPipe, hearsPipe, hearsPipe, hearsFull, hearsClosed, hearsBroken, hearsStuck}

// hear sets stderr. The function that it returns is called when the process
// has been started, or could not be.
func (t *Task) hear() (after func(), err error) {
	switch t.hears {
	case hearsFull:
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		t.cmd.Stderr = full
		return func() { full.Close() }, nil
	case hearsClosed:
		return func() {}, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t.cmd.Stderr = write
	switch t.hears {
	case hearsBroken:
		return func() { read.Close(); write.Close() }, nil
	case hearsStuck:
		t.stuck = read
		return func() { write.Close() }, nil
	default:
		t.slot.world.goes.Go(func() { t.read(read) })
		return func() { write.Close() }, nil
	}
}

func (t *Task) read(from *os.File) {
	defer from.Close()
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadString('\n')
		if text = strings.TrimSuffix(text, "\n"); text != "" {
			t.logged(text)
		}
		if err != nil {
			return
		}
	}
}

// line is what the torture understands of a line of the log.
type line struct {
	Msg, Owner, Tick, How, Reason string
	Count                         int
	Fence                         int64
}

func (t *Task) logged(text string) {
	w := t.slot.world
	w.note(boottime.Now(), t.name, "%s", shorten(text))
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil || l.Msg == "" {
		// What can't even start says so in plain sentences.
		if !strings.HasPrefix(text, "solojob: ") && !strings.HasPrefix(text, "actor: ") {
			w.violate("log", "task %s wrote what is no line of its log: %s", t.name, text)
		}
		return
	}
	if l.Owner != "" {
		t.mu.Lock()
		t.owner = l.Owner
		t.mu.Unlock()
	}
	switch l.Msg {
	case "tick missed", "tick skipped":
		w.ticks.reported(l)
	case "log lines dropped":
		t.killed.Store(true) // as good as: its words are incomplete
	}
	if l.Msg == "tick missed" || l.Msg == "tick skipped" || l.Msg == "lease lost" {
		w.count("log: " + l.Msg)
	}
}

// shorten leaves out of a line what the timeline says anyway.
func shorten(text string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(text), &fields) != nil {
		return text
	}
	for _, name := range []string{"time", "lease", "owner"} {
		delete(fields, name)
	}
	short, err := json.Marshal(fields)
	if err != nil {
		return text
	}
	return string(short)
}
