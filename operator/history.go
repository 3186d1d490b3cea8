package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"solojob/schedule"
)

const (
	// lateAfter is how late a run may start without a remark.
	lateAfter = 10 * time.Second
	// widestTask leaves room for the bars beside the names of hosts.
	widestTask = 12
	// widestBar is the longest bar of the chart, in columns.
	widestBar = 40
)

// sortRuns puts runs into the order of their fences, which is that of time.
func sortRuns(runs []Run) {
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(a.Fence, b.Fence) })
}

// RenderHistory shows the last n runs of a lease, a line each, with a bar as
// long as the run took, and between them what ticks have no run.
func RenderHistory(v View, n int, s Style) string {
	runs := v.Runs[max(0, len(v.Runs)-n):]
	if len(runs) == 0 {
		return fmt.Sprintf("%s: no run is recorded yet\n", clean(v.Key.String()))
	}
	var b strings.Builder
	longest := time.Duration(1)
	for _, r := range runs {
		longest = max(longest, r.Duration)
	}
	title := plural(len(runs), "run")
	if len(runs) < len(v.Runs) {
		title = fmt.Sprintf("the last %s of %d", title, len(v.Runs))
	}
	fmt.Fprintf(&b, "%s  %s; the longest bar is %s\n\n", s.paint(strong, clean(v.Key.String())), title, span(longest))

	lines := v.chart(runs, longest, s)
	fmt.Fprintln(&b, lines[0])
	gaps := v.gaps(runs)
	for i, r := range runs {
		if gaps[i] != "" {
			fmt.Fprintln(&b, s.paint(notice, "   ·  "+gaps[i]))
		}
		fmt.Fprintln(&b, lines[i+1])
		if note := r.note(); note != "" {
			b.WriteString(s.indented(3, "└─ "+note))
		}
	}
	if gap := gaps[len(runs)]; gap != "" {
		fmt.Fprintln(&b, s.paint(notice, "   ·  "+gap))
	}
	if v.Job().State == JobRunning {
		b.WriteString(s.indented(0, "now: "+v.jobText()))
	}
	b.WriteString("\n" + s.indented(0, summary(runs)))
	return b.String()
}

// chart is the table of runs with their bars: one line for the titles, and one
// for each run.
func (v *View) chart(runs []Run, longest time.Duration, s Style) []string {
	first := "STARTED"
	for _, r := range runs {
		if r.Tick != "" {
			first = "TICK OR START"
		}
	}
	columns := []column{
		{title: first}, {title: "STATE"}, {title: "STATUS", right: true}, {title: "TRY", right: true},
		{title: "FENCE", right: true}, {title: "TASK"}, {title: "TOOK", right: true},
	}
	var rows [][]cell
	for _, r := range runs {
		try, status, took := "", "", ""
		if !r.lost() {
			status, took = fmt.Sprint(r.ExitCode), span(r.Duration)
		}
		if r.Attempt > 0 {
			try = fmt.Sprint(r.Attempt)
		}
		rows = append(rows, []cell{
			{cmp.Or(r.Tick, r.Started), ""}, {r.State, runColour(r.State)}, {status, ""}, {try, ""},
			{fmt.Sprint(r.Fence), ""}, {cut(holder(r.Owner, ""), widestTask), ""}, {took, ""},
		})
	}
	_, taken := measure(columns, rows)
	room := min(max(s.width()-taken-2, 1), widestBar)
	columns = append(columns, column{})
	for i, r := range runs {
		rows[i] = append(rows[i], cell{bar(r, longest, room), runColour(r.State)})
	}
	return s.table(columns, rows)
}

// lost reports whether nobody knows how long the run took, and how it ended: its
// agent died, or lost the lease.
func (r Run) lost() bool { return r.State == RunInterrupted && r.Ended == "" && r.ExitCode == 0 }

// bar is as long as a run took, and filled by how it ended.
func bar(r Run, longest time.Duration, room int) string {
	if r.lost() {
		return ""
	}
	fill := "▒"
	if r.State == RunDone {
		fill = "█"
	}
	return strings.Repeat(fill, max(1, int(r.Duration*time.Duration(room)/longest)))
}

// note is what else there is to say of a run.
func (r Run) note() string {
	var parts []string
	if r.explained() {
		parts = append(parts, r.Why)
	}
	switch r.Kind {
	case "run-now":
		parts = append(parts, r.name())
	case requestKind:
		parts = append(parts, r.name()+": "+r.Why)
	}
	if r.By != "" {
		parts = append(parts, "asked for by "+r.By)
	}
	tick, ok := instant(r.Tick)
	if started, known := instant(r.Started); ok && known && started.Sub(tick) > lateAfter {
		parts = append(parts, "started "+span(started.Sub(tick))+" late")
	}
	return strings.Join(parts, "; ")
}

// gaps says, before each run and after the last, how many ticks of the schedule
// have no run in between; "" where there are none, or nothing is known.
func (v *View) gaps(runs []Run) []string {
	gaps := make([]string, len(runs)+1)
	s := v.Schedule()
	if s == nil {
		return gaps
	}
	var last time.Time // the tick of the run before, zero if it is none of this schedule
	var earlier Run
	for i, r := range runs {
		tick, ok := instant(r.Tick)
		if !ok {
			continue
		}
		if !v.overwritten(earlier, r) {
			gaps[i] = gap(s, last, tick.Add(-time.Second), "without a run on record")
		}
		last, earlier = time.Time{}, r
		if s.Next(tick.Add(-time.Second)).Equal(tick) {
			last = tick
		}
	}
	through, ok := instant(v.Record.Through)
	if !ok {
		return gaps
	}
	until := through
	if j := v.Job(); j.Tick != "" {
		if tick, ok := instant(j.Tick); ok {
			until = tick.Add(-time.Second)
		}
	}
	gaps[len(runs)] = gap(s, last, until, "without a run on record")
	if open := gap(s, through, v.Now, "not decided yet"); open != "" && (v.Free() || v.State() == Silent) {
		gaps[len(runs)] = strings.TrimPrefix(gaps[len(runs)]+"; "+open, "; ")
	}
	return gaps
}

// overwritten reports whether a run between two may have been on record once: its
// place is taken by a later one.
func (v *View) overwritten(earlier, later Run) bool {
	if earlier.Number > 0 {
		return later.Number != earlier.Number+1
	}
	low, high := earlier.Fence, later.Fence
	for _, r := range v.Runs {
		// The highest fence below high that shares the place of r.
		below := high - 1 - ((high-1-r.Fence)%HistoryLength+HistoryLength)%HistoryLength
		if below > low && below < r.Fence {
			return true
		}
	}
	return false
}

// gap tells of the ticks after one instant and up to another.
func gap(s *schedule.Schedule, after, until time.Time, what string) string {
	if after.IsZero() || !until.After(after) {
		return ""
	}
	latest, count, exact := s.Latest(after, until)
	switch {
	case count == 0:
		return ""
	case count == 1:
		return fmt.Sprintf("1 tick %s: %s", what, latest.Format(time.RFC3339))
	}
	number := fmt.Sprint(count)
	if !exact {
		number = "more than " + number
	}
	return fmt.Sprintf("%s ticks %s: %s to %s", number, what, s.Next(after).Format(time.RFC3339), latest.Format(time.RFC3339))
}

// summary counts how runs ended, and says how long they took.
func summary(runs []Run) string {
	counts := map[string]int{}
	var took []time.Duration
	total := 0
	for _, r := range runs {
		if r.Kind == requestKind {
			continue
		}
		counts[r.State]++
		total++
		if !r.lost() {
			took = append(took, r.Duration)
		}
	}
	if total == 0 {
		return "No runs yet."
	}
	slices.Sort(took)
	var parts []string
	for _, state := range []string{RunDone, RunFailed, RunInterrupted, RunStopped} {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	text := fmt.Sprintf("%s: %s.", plural(total, "run"), strings.Join(parts, ", "))
	if len(took) > 0 {
		text += fmt.Sprintf(" Half of them took at most %s, the longest %s.", span(took[(len(took)-1)/2]), span(took[len(took)-1]))
	}
	return text
}
