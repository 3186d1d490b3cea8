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
		Lease: 10 * time.Second, Heartbeat: 2 * time.Second, Poll: 500 * time.Millisecond,
		LossGrace: time.Second, KillMargin: time.Second, StopGrace: 10 * time.Second,
	}
	w := newWorld(t, timing)
	a := w.Start(Start{Name: "a"})
	w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	since := boottime.Now()
	w.Until("three heartbeats", patience, func() bool { return len(w.store.Find(Renew, a.Door, since)) >= 3 })
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
	// A machine too slow to answer an attempt in time has the holder try again.
	retries := len(a.Lines("renewal failed"))
	holder, wasted := 0, 0
	for _, c := range w.store.Calls() {
		if c.Door == a.Door && c.Applied >= since {
			holder++
			if c.Kind != Renew {
				wasted++
			}
		}
	}
	if most := int(took/timing.Heartbeat) + 2 + retries; holder > most || wasted > retries {
		t.Errorf("the holder sent %d requests in %v, %d of them no renewals; at most %d expected", holder, took, wasted, most)
	}
	t.Logf("in %v: %d requests by the holder, %d by the standby", took.Round(time.Millisecond), holder, len(reads))
	for _, c := range w.store.Find(Refused, b.Door, 0) {
		t.Errorf("the standby competed for a lease that was held: %s", c.Body)
	}
}
