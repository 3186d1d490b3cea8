package leader

import (
	"testing"
	"testing/synctest"
	"time"
)

func revision(r string) setting { return func(c *Config) { c.Revision = r } }

// A standby of another revision announces itself once, after a heartbeat; one
// that was here before the holder's revision changed never does.
func TestRevisionIsAnnouncedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		announced := 0 // under the store's lock
		s.onWrite = func(op string, _ Row) {
			if op == "announce" {
				announced++
			}
		}
		a := startTask(t, s, "a", revision("1"))
		ta := a.term(t)
		old := startTask(t, s, "old", revision("1"))
		time.Sleep(time.Minute)
		b := startTask(t, s, "b", revision("2"))
		time.Sleep(4 * time.Second)
		if s.peek().Announced != "1" {
			t.Errorf("%q announced itself before it had lived for a heartbeat", s.peek().Announced)
		}
		time.Sleep(5 * time.Second)
		if s.peek().Announced != "2" {
			t.Errorf("announced: %q", s.peek().Announced)
		}
		a.Stop()
		ta.Release()
		b.term(t)
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if announced != 1 || s.row.Announced != "2" {
			t.Errorf("%d announcements, the last of %q", announced, s.row.Announced)
		}
		old.stop()
		b.stop()
		<-a.ran
	})
}

// A released lease goes to the revision that announced itself, though others
// look more often; when nobody of it takes it, the others do. An expired lease
// is anybody's.
func TestReleasedLeaseGoesToTheAnnouncedRevision(t *testing.T) {
	eager := func(c *Config) { c.Poll = 200 * time.Millisecond }
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		a := startTask(t, s, "a", revision("1"))
		ta := a.term(t)
		old := startTask(t, s, "old", revision("1"), func(c *Config) { c.Poll = time.Second })
		next := startTask(t, s, "new", revision("2"))
		time.Sleep(time.Minute)
		ta.Release()
		tn := next.term(t)
		if tn.How != Released || tn.Uninvited != "" {
			t.Errorf("%+v", tn)
		}
		// The new one crashes: its lease expires, and the quickest has it.
		quick := startTask(t, s, "quick", revision("1"), eager)
		time.Sleep(time.Minute)
		for _, k := range []*task{a, old, next} {
			k.stop()
			<-k.ran
		}
		tq := quick.term(t)
		if tq.How != Expired {
			t.Errorf("how %q", tq.How)
		}
		quick.stop()
	})
	synctest.Test(t, func(t *testing.T) {
		s := &simStore{}
		a := startTask(t, s, "a", revision("1"))
		ta := a.term(t)
		next := startTask(t, s, "new", revision("2"))
		time.Sleep(time.Minute)
		next.stop() // announced, and gone
		<-next.ran
		released := time.Now()
		ta.Release()
		again := a.term(t)
		if d := time.Since(released); d < holdBackPolls*2*time.Second || d > 15*time.Second || again.Uninvited != "2" {
			t.Errorf("taken back after %v, uninvited by %q", d, again.Uninvited)
		}
		a.stop()
	})
}
