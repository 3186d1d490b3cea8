package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"solojob/boottime"
)

// Layout of the timeline, in columns.
const (
	widest    = 100 // no line is longer
	narrowest = 80
	timeWidth = 9 // "  12.34s "
	laneWidth = 10
	indent    = 3
)

// quiet is how long nothing may be printed while the demo goes on: after that
// a line says what is being waited for.
const quiet = time.Second

// timeline prints the chronicle as it is written: a lane for each task of the
// scene, and what happened beside it.
type timeline struct {
	out     io.Writer
	width   int // columns
	paint   painter
	begin   boottime.Instant
	last    boottime.Instant // the time printed last; never goes back
	printed time.Time        // when the last line was printed
	lanes   []string
	tasks   map[string]*lane
	holder  string
	free    bool // the last holder gave the lease back
	hint    string

	ended    boottime.Instant // when the last job ended by itself; 0 after the next launch
	fault    boottime.Instant // the last fault, until the next launch
	reported map[int]bool     // runs whose first stale write has been shown
}

// lane is what is known of one task.
type lane struct {
	looked, told, frozen, cut, stopped, killed, gone bool

	run    int // of the job that lives here; 0 if none
	fence  int64
	stale  bool             // its job was thawed after the lease had gone
	struck boottime.Instant // the last fault here
}

func newTimeline(o Options) *timeline {
	columns := widest
	if o.Columns > 0 {
		columns = min(max(o.Columns, narrowest), widest)
	}
	return &timeline{out: o.Out, width: columns, paint: painter(o.Colour), tasks: map[string]*lane{}, reported: map[int]bool{}}
}

// follow prints entries as they come. The channel is closed after the last.
func (t *timeline) follow(log *chronicle) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.prologue()
		for seen := 0; ; {
			entries, more := log.since(seen)
			seen += len(entries)
			for _, e := range entries {
				if e.Kind == Closed {
					return
				}
				t.show(e)
			}
			silence := time.NewTimer(time.Until(t.printed.Add(quiet)))
			select {
			case <-more:
			case <-silence.C:
				t.printed = time.Now()
				if t.hint != "" {
					t.row(boottime.Now(), t.hint, t.paint.dim)
				}
			}
			silence.Stop()
		}
	}()
	return done
}

func (t *timeline) prologue() {
	t.paragraph(0, "solojob demo: several tasks compete to run one job, which must never run twice at once. Whoever holds the "+
		"lease runs it, and every launch gets a number, FENCE, higher than all before. The job writes to a register ten times a "+
		"second and shows its FENCE; the register refuses one that is lower than it has seen. The processes, the signals and "+
		"DynamoDB's protocol are real; the table is in memory.")
	fmt.Fprintf(t.out, "\n%*s%s   the job runs in this task, with FENCE 2\n", indent, "", t.paint.job("JOB 2"))
	fmt.Fprintf(t.out, "%*s%s the task waits for the lease (%v here, 30s by default)\n", indent, "", t.paint.dim("standby"), lease)
}

// show prints one entry, if it is worth a line.
func (t *timeline) show(e Entry) {
	if t.begin == 0 {
		t.begin, t.last = e.At, e.At
	}
	if e.Kind == Opened {
		t.heading(e)
		return
	}
	l := t.tasks[e.Task]
	if l == nil {
		l = &lane{}
		t.tasks[e.Task] = l
	}
	text := t.tell(e, l)
	if text == "" || !slices.Contains(t.lanes, e.Task) {
		return
	}
	paint := t.paint.plain
	if directed[e.Kind] {
		paint = t.paint.bold
	}
	t.row(e.At, text, paint)
}

// directed are the things that the demo does to the tasks; they stand out from what
// follows.
var directed = map[Kind]bool{Stopped: true, Killed: true, Frozen: true, JobThawn: true, Thawed: true, Cut: true, Healed: true}

func (t *timeline) heading(e Entry) {
	title, text, _ := strings.Cut(e.Text, "\n")
	t.lanes, t.hint = e.Tasks, ""
	if !slices.Contains(t.lanes, t.holder) {
		t.holder, t.ended, t.fault = "", 0, 0
	}
	t.rule(title)
	t.paragraph(indent, text)
	head := fmt.Sprintf("%*s", timeWidth-2, "time") + "  "
	for _, name := range t.lanes {
		head += fmt.Sprintf("%-*s", laneWidth, "task "+name)
	}
	fmt.Fprintf(t.out, "\n%s\n", t.paint.bold(strings.TrimRight(head, " ")))
}

// rule prints a title across the page.
func (t *timeline) rule(title string) {
	line := "── " + title + " "
	fmt.Fprintf(t.out, "\n%s\n", t.paint.bold(line+strings.Repeat("─", t.width-visible(line))))
}

// row prints one line of the timeline, or more where the text is long.
func (t *timeline) row(at boottime.Instant, text string, paint func(string) string) {
	t.printed = time.Now()
	t.last = max(t.last, at)
	stamp := fmt.Sprintf("%*.2fs ", timeWidth-2, t.last.Sub(t.begin).Seconds())
	jobs := 0
	for _, name := range t.lanes {
		if l := t.tasks[name]; l != nil && l.run != 0 && !l.frozen && !l.stale {
			jobs++
		}
	}
	var lanes, plain strings.Builder
	for _, name := range t.lanes {
		word, shade := t.cell(name, jobs > 1)
		lanes.WriteString(shade(word) + strings.Repeat(" ", laneWidth-len(word)))
		plain.WriteString(strings.Repeat(" ", laneWidth))
	}
	for _, line := range wrap(text, t.width-timeWidth-plain.Len()) {
		fmt.Fprintf(t.out, "%s\n", strings.TrimRight(stamp+lanes.String()+paint(line), " "))
		stamp = strings.Repeat(" ", timeWidth)
	}
}

// cell is the state of a task in a word, and how to paint it.
func (t *timeline) cell(name string, overlap bool) (string, func(string) string) {
	l := t.tasks[name]
	fence := ""
	if l != nil && l.fence != 0 {
		fence = fmt.Sprintf(" %d", l.fence)
	}
	switch {
	case l == nil:
		return "", t.paint.dim
	case l.gone:
		return "gone", t.paint.dim
	case l.frozen && l.run != 0:
		return "frozen" + fence, t.paint.cold
	case l.frozen:
		return "frozen", t.paint.cold
	case l.run != 0 && l.stale:
		return "STALE" + fence, t.paint.alarm
	case l.run != 0 && overlap:
		return "JOB" + fence, t.paint.alarm
	case l.run != 0 && l.told:
		return "ending" + fence, t.paint.warn
	case l.run != 0:
		return "JOB" + fence, t.paint.job
	case l.cut:
		return "cut off", t.paint.warn
	case l.stopped:
		return "leaving", t.paint.dim
	case l.looked:
		return "standby", t.paint.dim
	default:
		return "starting", t.paint.dim
	}
}

// paragraph prints text of its own, indented.
func (t *timeline) paragraph(margin int, text string) {
	for _, line := range wrap(text, t.width-margin) {
		fmt.Fprintf(t.out, "%*s%s\n", margin, "", line)
	}
}

// wrap breaks text between words, so that no line exceeds n columns.
func wrap(text string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && visible(line)+1+visible(word) > n {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
