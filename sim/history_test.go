package sim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is one line of a history.
type event struct {
	at   time.Duration // since the start of the run
	who  string
	what string
}

func (e event) String() string {
	return fmt.Sprintf("%12s  %-8s %s", e.at.Round(time.Millisecond/10), e.who, e.what)
}

// history is what happened in one run, in order, and how often each fault struck.
type history struct {
	start time.Time
	brief bool // only the end is kept

	mu         sync.Mutex
	events     []event
	faults     map[string]int
	violations []event
}

func newHistory() *history {
	return &history{start: time.Now(), faults: map[string]int{}}
}

func (h *history) add(who, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.brief && len(h.events) >= 2*shown {
		h.events = append(h.events[:0], h.events[shown:]...)
	}
	h.events = append(h.events, event{time.Since(h.start), who, fmt.Sprintf(format, args...)})
}

// count counts a fault that struck.
func (h *history) count(fault string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[fault]++
}

// violate records a broken promise. The first one is what counts: after it the
// observer's own view may be off.
func (h *history) violate(promise, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := event{time.Since(h.start), "BROKEN", promise + ": " + fmt.Sprintf(format, args...)}
	h.violations = append(h.violations, e)
	h.events = append(h.events, e)
}

func (h *history) broken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.violations) > 0
}

// shown is how many events before a broken promise tell enough.
const shown = 120

func (h *history) String() string { return h.tail(shown) }

// tail is the last part of the sequence that led to the first broken promise,
// or of all if none was broken.
func (h *history) tail(shown int) string {
	end := len(h.events)
	for i, e := range h.events {
		if e.who == "BROKEN" {
			end = i + 1
			break
		}
	}
	var b strings.Builder
	for _, e := range h.events[max(0, end-shown):end] {
		b.WriteString(e.String() + "\n")
	}
	return b.String()
}

// fingerprint is equal for equal histories. Events of the same instant count in
// any order: they are as good as simultaneous.
func (h *history) fingerprint() uint64 {
	lines := make([]string, len(h.events))
	for i, e := range h.events {
		lines[i] = fmt.Sprintf("%020d %s %s", e.at, e.who, e.what)
	}
	slices.Sort(lines)
	sum := fnv.New64a()
	for _, l := range lines {
		sum.Write([]byte(l))
	}
	return sum.Sum64()
}
