//go:build linux

package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"solojob/boottime"
)

// Timeline is what happened in one world, and how often. It keeps the last
// part of the story alone, since a night is long.
type Timeline struct {
	mu         sync.Mutex
	began      boottime.Instant
	notes      []note
	counts     map[string]int
	violations []string
	broken     func() // called at the first violation
}

type note struct {
	at        boottime.Instant
	who, what string
}

const (
	// kept is how many notes are enough for the seconds that matter.
	kept = 20_000
	// told is how long before the end the story begins that a failure prints.
	told = 15 * time.Second
	// enough violations are printed: the later ones follow from the first.
	enough = 12
)

func newTimeline(broken func()) *Timeline {
	return &Timeline{began: boottime.Now(), counts: map[string]int{}, broken: broken}
}

func (l *Timeline) note(at boottime.Instant, who, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.notes) > 2*kept {
		l.notes = slices.Delete(l.notes, 0, kept)
	}
	l.notes = append(l.notes, note{at, who, fmt.Sprintf(format, args...)})
}

func (l *Timeline) count(what string) { l.add(what, 1) }

func (l *Timeline) add(what string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what] += n
}

// violate records a broken promise. The first ends the torture, so that the
// story ends with it.
func (l *Timeline) violate(what, format string, args ...any) {
	text := what + ": " + fmt.Sprintf(format, args...)
	l.note(boottime.Now(), "BROKEN", "%s", text)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts["broken: "+what]++
	l.violations = append(l.violations, fmt.Sprintf("at %.3f s: %s", boottime.Now().Sub(l.began).Seconds(), text))
	l.broken()
}

// broke are the broken promises, at most enough of them.
func (l *Timeline) broke() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.violations[:min(len(l.violations), enough)])
}

func (l *Timeline) total(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[what]
}

// group are the counts whose names begin with a word, as one line.
func (l *Timeline) group(word string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(l.counts)) {
		if rest, ok := strings.CutPrefix(name, word); ok {
			parts = append(parts, fmt.Sprintf("%s %d", rest, l.counts[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// story is the timeline from some seconds before the first violation.
func (l *Timeline) story() string {
	l.mu.Lock()
	notes := slices.Clone(l.notes)
	l.mu.Unlock()
	slices.SortStableFunc(notes, func(a, b note) int { return int(a.at - b.at) })
	first := slices.IndexFunc(notes, func(n note) bool { return n.who == "BROKEN" })
	if first < 0 {
		first = len(notes) - 1
	}
	var b strings.Builder
	for _, n := range notes {
		if from := notes[first].at.Add(-told); n.at < from || n.at > notes[first].at.Add(told) {
			continue
		}
		fmt.Fprintf(&b, "%9.3f  %-8s %s\n", n.at.Sub(l.began).Seconds(), n.who, n.what)
	}
	return b.String()
}
