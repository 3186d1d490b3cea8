package demo

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// print puts a verdict into words.
func (v *Verdict) print(out io.Writer, colour bool) {
	t := newTimeline(out, colour)
	line := "── Verdict "
	fmt.Fprintf(out, "\n%s\n", t.paint.bold(line+strings.Repeat("─", width-utf8.RuneCountInString(line))))
	t.paragraph(indent, "Measured by the connection that every job holds, which the kernel closes when the process dies and "+
		"not before, and by the store, which saw every write. No agent was asked.")
	fmt.Fprintf(out, "\n%*s%s\n", indent, "", t.paint.bold(fmt.Sprintf("%-38s%6s%13s%18s%20s", "", "jobs", "alive", "the job moved", "stale writes")))
	fmt.Fprintf(out, "%*s%s\n", indent, "", t.paint.bold(fmt.Sprintf("%-38s%6s%13s%18s%10s%10s", "scene", "run", "at once", "within", "tried", "accepted")))
	for n := sceneDeploy; n <= sceneControl; n++ {
		v.printScene(out, t.paint, n)
	}
	fmt.Fprintln(out)
	v.explain(t)
	fmt.Fprintln(out)
	wrong := v.problems()
	for _, w := range wrong {
		t.paragraph(indent, t.paint.alarm("BROKEN:")+" "+w+".")
	}
	if len(wrong) == 0 {
		t.paragraph(indent, fmt.Sprintf("%s Under solojob never two at once; FENCE grew from %d to %d; no stale write was accepted; no process is left. It took %s.",
			t.paint.job("KEPT:"), v.First, v.Last, short(v.Took)))
	}
}

func (v *Verdict) printScene(out io.Writer, paint painter, n int) {
	s := v.Scenes[n]
	within := "-"
	if len(s.Moves) > 0 {
		within = short(s.Moves[0].Gap)
	}
	once := 1
	if len(s.Overlaps) > 0 {
		once = 2
	}
	shade := paint.plain
	if once > 1 || s.Let > 0 {
		shade = paint.alarm
	}
	note := ""
	if len(s.Thaws) > 0 {
		note = "*"
	}
	fmt.Fprintf(out, "%*s%s\n", indent, "", strings.TrimRight(
		fmt.Sprintf("%d  %-35s%6d", n, titles[n], s.Runs)+
			shade(fmt.Sprintf("%12d%-1s", once, note))+
			fmt.Sprintf("%18s%10d", within, s.Stale)+
			shade(fmt.Sprintf("%10d", s.Let)), " "))
}

// explain says what the numbers leave out.
func (v *Verdict) explain(t *timeline) {
	for n := sceneDeploy; n <= sceneControl; n++ {
		for _, m := range v.Scenes[n].Moves {
			if m.How == Killed {
				t.paragraph(indent, fmt.Sprintf("%d: the job was dead %s after its agent.", n, short(m.Dead)))
			}
			if m.How == Cut && m.Dead > 0 {
				t.paragraph(indent, fmt.Sprintf("%d: the old job was dead %s before the new one started.", n, short(m.Gap-m.Dead)))
			}
		}
		for _, o := range v.Scenes[n].Overlaps {
			t.paragraph(indent, fmt.Sprintf("%d: two jobs ran at once for %s.", n, short(o.For)))
		}
	}
	for _, th := range v.Scenes[scenePause].Thaws {
		t.paragraph(indent, fmt.Sprintf("* Not counted: the frozen job, which the demo let run alone for %s, "+
			"so that its stale write could be seen to fail. %s after its agent and supervisor thawed it was dead.", short(th.Alone), short(th.Then)))
	}
}
