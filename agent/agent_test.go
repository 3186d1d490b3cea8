package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"solojob/boottime"
)

// The job's environment is ours, without our settings and with one FENCE.
func TestJobEnvironment(t *testing.T) {
	inherited := []string{"PATH=/bin", "FENCE=7", "FENCED=yes", "SOLOJOB_LEASE=outer", "SOLOJOB_RUN_TICK=old", "EMPTY=", "FENCE=8"}
	got := jobEnviron(inherited, 42, "sweep", "task/1", "2026-01-02T03:04:00Z", 2)
	want := []string{
		"PATH=/bin", "FENCED=yes", "EMPTY=", "FENCE=42", "SOLOJOB_RUN_LEASE=sweep", "SOLOJOB_RUN_OWNER=task/1",
		"SOLOJOB_RUN_ATTEMPT=2", "SOLOJOB_RUN_TICK=2026-01-02T03:04:00Z",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if service := jobEnviron(inherited, 1, "l", "o", "", 1); slices.ContainsFunc(service, func(kv string) bool { return strings.HasPrefix(kv, "SOLOJOB_RUN_TICK=") }) {
		t.Error("a service's job has a tick")
	}
}

// handClock is a local clock that is set by hand.
type handClock struct{ at boottime.Instant }

func (c *handClock) Now() boottime.Instant                            { return c.at }
func (c *handClock) Until(boottime.Instant) (<-chan struct{}, func()) { return nil, func() {} }

// Ticks follow this task's clock unless the store shows it to be wrong by more
// than two seconds; then they follow the store's, and a step of the wrong clock
// has no effect. A reply without a date changes nothing of what is known.
func TestTickClock(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	local, wall := &handClock{}, noon.Add(1500*time.Millisecond)
	c := tickClock{local: local, wall: func() time.Time { return wall }}

	if c.set(noon, local.at); !c.now().Equal(wall) {
		t.Errorf("a clock within the tolerance was corrected to %v", c.now())
	}
	wall = noon.Add(time.Hour)
	if !c.set(noon, local.at) || !c.now().Equal(noon.Add(halfSecond)) {
		t.Errorf("a clock an hour fast: %v", c.now())
	}
	if c.set(time.Time{}, local.at) || !c.now().Equal(noon.Add(halfSecond)) {
		t.Errorf("a reply without a date: %v", c.now())
	}
	local.at = local.at.Add(10 * time.Second)
	wall = noon.Add(-time.Hour) // it is set back
	if !c.now().Equal(noon.Add(halfSecond + 10*time.Second)) {
		t.Errorf("a step between two heartbeats moved the ticks to %v", c.now())
	}
	if !c.stepped() {
		t.Error("the step was not noticed")
	}
	wall = noon.Add(10 * time.Second)
	if !c.set(noon.Add(10*time.Second), local.at) || c.skew != 0 {
		t.Errorf("a clock that is right again is still corrected by %v", c.skew)
	}
	if at := c.instant(noon.Add(15 * time.Second)); at.Sub(local.at) != 5*time.Second {
		t.Errorf("five seconds later is in %v", at.Sub(local.at))
	}
}

// A reply that was held up, by the network or because this task was frozen,
// says what time it was, not what time it is: it neither sets a clock back that
// is right, nor takes the correction from one that is wrong, nor vouches for a
// clock that was set meanwhile.
func TestHeldUpReply(t *testing.T) {
	const held = time.Minute
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name         string
		before, then time.Duration // how wrong the clock is when the store is asked, and when the reply is read
	}{
		{"a clock that is right", 0, 0},
		{"a clock that is a little wrong", -1500 * time.Millisecond, -1500 * time.Millisecond},
		{"a clock that is wrong", time.Hour, time.Hour},
		{"a clock that is wrong by less than the reply was held up", 30 * time.Second, 30 * time.Second},
		{"a clock that is set", 0, time.Hour},
		{"a clock that is set by less than the reply was held up", 0, 30 * time.Second},
		{"a clock that is put right", time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			local, off := &handClock{}, c.before
			wall := func() time.Time { return noon.Add(time.Duration(local.at) + off) }
			clock := tickClock{local: local, wall: wall}
			clock.set(noon, local.at) // the acquisition's
			asked := local.at
			local.at, off = local.at.Add(held), c.then
			clock.set(noon, asked)
			if wrong := clock.now().Sub(noon.Add(held)); wrong.Abs() > maxSkew {
				t.Errorf("the ticks' clock is wrong by %v", wrong)
			}
		})
	}
}
