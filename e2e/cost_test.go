//go:build linux

package e2e

import (
	"bytes"
	"testing"
	"time"

	"solojob/boottime"
)

// What agents cost: a standby one read of half the price in each poll, a holder
// one write in each heartbeat, and nothing else.
func TestRequestsOfAgents(t *testing.T) {
	t.Parallel()
	timing := Timing{
		Lease: 10 * time.Second, Heartbeat: time.Second, Poll: 500 * time.Millisecond,
		LossGrace: time.Second, KillMargin: time.Second, StopGrace: 10 * time.Second,
	}
	w := newWorld(t, timing)
	a := w.Start(Start{Name: "a"})
	w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	since := boottime.Now()
	w.Until("six heartbeats", patience, func() bool { return len(w.store.Find(Renew, a.Door, since)) >= 6 })
	took := boottime.Now().Sub(since)

	reads := w.store.Find(Read, b.Door, since)
	for _, c := range reads {
		if bytes.Contains(c.Body, []byte(`"ConsistentRead":true`)) {
			t.Errorf("the standby reads at full price: %s", c.Body)
		}
	}
	// Jitter is 10 %; the first and the last poll may lie at the ends.
	if most := int(took/(timing.Poll*9/10)) + 2; len(reads) > most {
		t.Errorf("the standby read %d times in %v, at most %d expected", len(reads), took, most)
	}
	if least := int(took/(timing.Poll*11/10)) / 2; len(reads) < least {
		t.Errorf("the standby read only %d times in %v", len(reads), took)
	}
	holder := 0
	for _, c := range w.store.Calls() {
		if c.Door == a.Door && c.Applied >= since {
			holder++
			if c.Kind != Renew {
				t.Errorf("the undisturbed holder sent a %s", c.Kind)
			}
		}
	}
	if most := int(took/timing.Heartbeat) + 2; holder > most {
		t.Errorf("the holder sent %d requests in %v, at most %d expected", holder, took, most)
	}
	t.Logf("in %v: %d requests by the holder, %d by the standby", took.Round(time.Millisecond), holder, len(reads))
	for _, c := range w.store.Find(Refused, nil, 0) {
		t.Errorf("a write of %s was refused", c.Door.Name)
	}
}
