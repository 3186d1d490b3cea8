package demo

import (
	"fmt"
	"time"
)

// print puts a verdict into words, on the page of a timeline.
func (v *Verdict) print(t *timeline) {
	t.rule("Verdict")
	t.paragraph(indent, "No agent was asked. A job counts from its first statement until the kernel closes the connection that it "+
		"holds, which happens when the process dies, and not while it is frozen. The writes are those that the store saw. "+
		"\"Moved\" is the time from the old job's last work (scene 1), or from the fault, to the new job's first statement. "+
		"All tasks were on this machine.")
	fmt.Fprintln(t.out)
	t.table("", "jobs", "alive", "moved", "", "stale writes", t.paint.bold)
	t.table("", "run", "at once", "within", "tried", "accepted", t.paint.bold)
	for n := sceneDeploy; n <= sceneControl; n++ {
		v.printScene(t, n)
	}
	fmt.Fprintln(t.out)
	v.explain(t)
	fmt.Fprintln(t.out)
	wrong := v.problems()
	for _, w := range wrong {
		t.paragraph(indent, t.paint.alarm("BROKEN:")+" "+w+".")
	}
	if len(wrong) == 0 {
		t.paragraph(indent, fmt.Sprintf("%s under solojob, never two jobs at once; FENCE only grew, from %d to %d; no stale write was "+
			"accepted; no process is left. It took %s.", t.paint.job("KEPT:"), v.First, v.Last, short(v.Took)))
	}
}

// table prints one line of the verdict's table.
func (t *timeline) table(title, run, once, within, tried, accepted string, paint func(string) string) {
	line := fmt.Sprintf("%-36s%5s  %-9s%8s", title, run, once, within)
	if tried == "" {
		line += fmt.Sprintf("%17s", accepted) // a heading over both columns
	} else {
		line += fmt.Sprintf("%7s%10s", tried, accepted)
	}
	fmt.Fprintf(t.out, "%*s%s\n", indent, "", paint(line))
}

func (v *Verdict) printScene(t *timeline, n int) {
	s := v.Scenes[n]
	once, within, paint := "1", "-", t.paint.plain
	if len(s.Thaws) > 0 {
		once = "1 *"
	}
	if len(s.Overlaps) > 0 {
		once = "2"
	}
	if len(s.Moves) > 0 {
		within = short(s.Moves[0].Gap)
	}
	if len(s.Overlaps) > 0 || s.Let > 0 {
		paint = t.paint.alarm
	}
	t.table(fmt.Sprintf("%d  %s", n, titles[n]), fmt.Sprint(s.Runs), once, within, fmt.Sprint(s.Stale), fmt.Sprint(s.Let), paint)
}

// explain says what the numbers leave out.
func (v *Verdict) explain(t *timeline) {
	for n := sceneDeploy; n <= sceneControl; n++ {
		for _, m := range v.Scenes[n].Moves {
			if m.How == Killed {
				t.paragraph(indent, fmt.Sprintf("Scene %d: the job was dead %s after its agent.", n, short(m.Dead)))
			}
			if m.How == Cut && m.Dead > 0 {
				t.paragraph(indent, fmt.Sprintf("Scene %d: the old job was dead %s before the new one started.", n, short(m.Gap-m.Dead)))
			}
		}
		for _, o := range v.Scenes[n].Overlaps {
			t.paragraph(indent, fmt.Sprintf("Scene %d: two jobs ran at once for %s.", n, short(o.For)))
		}
	}
	for _, th := range v.Scenes[scenePause].Thaws {
		t.paragraph(indent, fmt.Sprintf("* Not counted: the frozen job, which the demo let run alone for %s, "+
			"so that its stale write could be seen to fail. %s after its agent and supervisor thawed it was dead.", short(th.Alone), short(th.Then)))
	}
}

// excuse says that the machine was too busy, if it was: then what failed may
// work at the next try.
func (t *timeline) excuse(held time.Duration) {
	if held > starved {
		t.paragraph(indent, fmt.Sprintf("This machine is very busy: the demo itself was kept from running for %s at a time, "+
			"and a lease of %v leaves little room for that. Try again when less is going on.", short(held), lease))
	}
}
