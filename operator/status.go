package operator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"solojob/schedule"
)

// labelWidth is that of the longest label in the details of a lease.
const labelWidth = 9

// stateColour is green for what is as it should be, and red for what a person
// has to look at.
func stateColour(s State) string {
	return map[State]string{Held: good, Draining: notice, Free: notice, Silent: bad, Vanished: bad, Damaged: bad}[s]
}

// runColour is the colour of a run's state.
func runColour(state string) string {
	switch state {
	case RunDone:
		return good
	case RunStopped:
		return ""
	case RunInterrupted, schedule.StateRunning:
		return notice
	default:
		return bad
	}
}

// RenderDetails shows one lease item with everything that is known of it, and
// what to do about what is wrong.
func RenderDetails(v View, s Style) string {
	var b strings.Builder
	state := v.State()
	fmt.Fprintf(&b, "%s  %s\n", s.paint(strong, clean(v.Key.String())), s.paint(stateColour(state), strings.ToUpper(string(state))))
	line := func(label, colour, text string) {
		if text != "" {
			b.WriteString(s.labelled(label, labelWidth, colour, text))
		}
	}
	switch state {
	case Damaged:
	case Vanished: // what else stands in the row says nothing
		line("fence", "", fmt.Sprint(v.Fence))
	default:
		line("holder", "", v.Owner)
		line("revision", "", v.revisionText())
		line("fence", "", fmt.Sprint(v.Fence))
		if !v.Free() && v.Since != "" {
			line("since", "", v.Since+", "+ago(v.Now, v.Since))
		}
		colour := ""
		if state == Silent {
			colour = bad
		}
		line("heartbeat", colour, v.heartbeatText())
		line("job", "", v.jobText())
		if r := v.LastRun(); r != nil {
			line("last run", runColour(r.State), v.runText(*r))
		}
		line("next tick", "", v.nextText())
		line("schedule", "", v.scheduleText())
		for _, a := range v.Asked() {
			line("asked", notice, a)
		}
		line("changed", "", v.ChangedBy)
	}
	for _, a := range v.advice() {
		for i, l := range strings.Split(strings.TrimSuffix(s.indented(4, a), "\n"), "\n") {
			if i == 0 {
				l = "  ! " + l[4:]
			}
			b.WriteString(s.paint(stateColour(state), l) + "\n")
		}
	}
	return b.String()
}

func (v *View) revisionText() string {
	if v.Announced != "" && v.Announced != v.Revision {
		return fmt.Sprintf("%s; %s has announced itself", v.Revision, v.Announced)
	}
	return v.Revision
}

func (v *View) heartbeatText() string {
	h := v.Heartbeat
	switch {
	case v.unheld():
		return ""
	case !v.Watched:
		return fmt.Sprintf("not watched; the lease lasts %s", setting(v.Row.Lease))
	case h.Silent && !h.Changed:
		return fmt.Sprintf("none in %s of watching; the lease lasts %s", span(h.Age), setting(v.Row.Lease))
	case h.Silent:
		return fmt.Sprintf("the last one %s ago; the lease lasts %s", span(h.Age), setting(v.Row.Lease))
	case h.Changed:
		return fmt.Sprintf("%s; the lease lasts %s", justNow(h.Age), setting(v.Row.Lease))
	case h.Age < time.Second:
		return "being watched for"
	default:
		return fmt.Sprintf("none in %s of watching, but with a lease of %s they may be up to %s apart",
			span(h.Age), setting(v.Row.Lease), setting(v.Row.Lease/slowestBeat))
	}
}

// justNow is an age that is known to a watch period.
func justNow(age time.Duration) string {
	if age < time.Second {
		return "just now"
	}
	return span(age) + " ago"
}

func (v *View) jobText() string {
	j := v.Job()
	var text string
	switch {
	case j.State == JobNone && v.Record.TickState == schedule.StateRunning && v.Item == ServiceItem:
		text = "none; the run of tick " + v.Record.Tick + " was cut short"
	case j.State == JobRunning:
		text = "running"
		if j.Tick != "" {
			text += " tick " + j.Tick
		}
		if j.Attempt > 1 {
			text += fmt.Sprintf(", attempt %d", j.Attempt)
		}
		if a := ago(v.Now, j.Since); a != "" {
			text += ", started " + a
		} else if a := ago(v.Now, j.Tick); a != "" {
			text += ", which came " + a
		}
		if v.State() == Silent {
			text += ", when last heard of"
		}
	default:
		text = j.State
	}
	if v.Requests.Paused {
		by := "paused by " + who(v.Requests.PausedBy)
		if text == JobPaused {
			return by
		}
		text += "; " + by
	}
	return text
}

// outcome is how a run ended: "done", "failed with status 3".
func (r Run) outcome() string {
	if r.ExitCode != 0 {
		return fmt.Sprintf("%s with status %d", r.State, r.ExitCode)
	}
	return r.State
}

// explained reports whether Why says more than State.
func (r Run) explained() bool { return r.State != RunDone && r.Why != "" && r.Why != r.State }

// name is what started a run: its tick, or what else it was.
func (r Run) name() string {
	switch {
	case r.Tick != "":
		return "tick " + r.Tick
	case r.Kind == "run-now":
		return "an extra run"
	case r.Kind == "service" || r.Kind == "":
		return "the service"
	default:
		return r.Kind
	}
}

func (v *View) runText(r Run) string {
	text := r.name() + " " + r.outcome()
	if r.Ended != "" {
		text += fmt.Sprintf(" after %s, %s; fence %d", span(r.Duration), ago(v.Now, r.Ended), r.Fence)
	}
	if r.explained() {
		text += ": " + r.Why
	}
	return text
}

func (v *View) nextText() string {
	next := v.NextTick()
	if next.IsZero() {
		return ""
	}
	text := fmt.Sprintf("%s, in %s", next.Format(time.RFC3339), span(next.Sub(v.Now)))
	if zone := v.Schedule().Zone(); zone != time.UTC {
		text += next.In(zone).Format(" (15:04:05 ") + zone.String() + ")"
	}
	if v.Requests.Paused {
		text += ", which will be skipped while the lease is paused"
	}
	return text
}

func (v *View) scheduleText() string {
	if v.Record.Schedule == "" || v.Item != ServiceItem {
		return ""
	}
	if s := v.Schedule(); s != nil {
		return s.Words() + ": " + v.Record.Schedule
	}
	return v.Record.Schedule + ", which this version can't read"
}

// aheadTolerance is how far into the future ticks may be decided before it is
// worth a word: the store's date has whole seconds, and replies take a while.
const aheadTolerance = 5 * time.Second

// advice is what to know, and to do, about a lease that is not as it should be.
func (v *View) advice() []string {
	var all []string
	say := func(format string, a ...any) { all = append(all, fmt.Sprintf(format, a...)) }
	h := v.Heartbeat
	switch v.State() {
	case Damaged:
		say("%s.", v.Damage)
	case Vanished:
		say("Nobody holds it: the row has no beat, so it counts as absent. The next task makes it anew, above fence %d.", v.Fence)
	case Free:
		say("Nobody holds it. A task that stands by takes it with its next poll, within seconds; if this lasts, no task is alive.")
	case Silent:
		if h.Takeover > 0 {
			say("The holder is dead, frozen, or cut off from the table. A task that stands by takes over in about %s.", span(h.Takeover))
		} else {
			say("The holder is dead, frozen, or cut off from the table, and its lease ran out %s ago: no other task seems to be alive to take over.", span(-h.Takeover))
		}
		say("If you know that it is dead: `solojob break %s` frees the lease now.", v.argument())
	case Draining:
		say("The holder is stopping. It gives the lease up when its job has ended.")
	}
	if v.Requests.Paused && v.State() != Damaged {
		say("Nothing is started until `solojob resume %s`.", v.argument())
	}
	if through, ok := instant(v.Record.Through); ok && v.Schedule() != nil && through.Sub(v.Now) > aheadTolerance {
		say("Some task's clock was wrong: the ticks up to %s are decided already, so none runs before.", v.Record.Through)
	}
	return all
}

// argument is how a command names the lease.
func (k Key) argument() string {
	if k.Item == OnceItem {
		return "--once " + k.Name
	}
	return k.Name
}

// shortTask is how many columns of a holder's name the overview shows: the first
// group of a task's id is enough to tell it from others.
const shortTask = 8

// RenderOverview shows several leases as one table, and below it what is wrong.
func RenderOverview(views []View, s Style) string {
	columns := []column{
		{title: "LEASE", least: 12}, {title: "STATE"}, {title: "HOLDER", least: shortTask + 1}, {title: "FENCE", right: true},
		{title: "SINCE", right: true}, {title: "BEAT", right: true}, {title: "JOB"}, {title: "LAST RUN"}, {title: "NEXT", right: true},
	}
	var rows [][]cell
	var notes []string
	for _, v := range views {
		state := v.State()
		row := []cell{
			{v.Key.String(), ""}, {string(state), stateColour(state)}, {"", ""}, {"", ""},
			{"", ""}, v.beatCell(), {v.jobCell(), ""}, v.lastCell(), {"", ""},
		}
		if state != Damaged {
			row[3].text = fmt.Sprint(v.Fence)
		}
		if !v.unheld() {
			row[2].text = holder(v.Owner, v.Revision)
		}
		if t, ok := instant(v.Since); ok && !v.unheld() {
			row[4].text = span(v.Now.Sub(t))
		}
		if next := v.NextTick(); !next.IsZero() {
			row[8].text = span(next.Sub(v.Now))
		}
		rows = append(rows, row)
		if state == Silent || state == Damaged || state == Vanished {
			notes = append(notes, v.Key.String()+": "+strings.Join(v.advice(), " "))
		}
	}
	var b strings.Builder
	for _, line := range s.table(columns, rows) {
		b.WriteString(line + "\n")
	}
	for _, n := range notes {
		b.WriteString("\n" + s.indented(0, n))
	}
	return b.String()
}

// holder is an owner in few columns, with the revision of its code.
func holder(owner, revision string) string {
	name := task(owner)
	if len(name) == 32 && strings.Trim(name, "0123456789abcdef") == "" { // an ECS task's id
		name = name[:shortTask]
	}
	if owner != "" && revision != "" {
		name += " r" + revision
	}
	return name
}

func (v *View) beatCell() cell {
	h := v.Heartbeat
	switch {
	case v.unheld() || !v.Watched:
		return cell{}
	case h.Silent:
		return cell{">" + span(h.Age), bad}
	case h.Age < time.Second && !h.Changed:
		return cell{"…", ""} // the watch has just begun
	case !h.Changed:
		return cell{">" + span(h.Age), ""}
	case h.Age < time.Second:
		return cell{"<1s", ""}
	default:
		return cell{span(h.Age), ""}
	}
}

func (v *View) jobCell() string {
	j := v.Job()
	switch t, ok := instant(j.Since); {
	case j.State == JobNone:
		return ""
	case j.State == JobRunning && ok:
		return "running " + span(v.Now.Sub(t))
	default:
		return j.State
	}
}

func (v *View) lastCell() cell {
	r := v.LastRun()
	if r == nil {
		return cell{}
	}
	text := r.State
	if r.ExitCode != 0 {
		text += fmt.Sprintf(" %d", r.ExitCode)
	}
	when := r.Ended
	if when == "" {
		when = r.Tick
	}
	if t, ok := instant(when); ok {
		text += ", " + span(v.Now.Sub(t))
	}
	return cell{text, runColour(r.State)}
}

// sortKeys puts leases into the order of their names.
func sortKeys(leases []*Lease) {
	slices.SortFunc(leases, func(a, b *Lease) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Item, b.Item))
	})
}
