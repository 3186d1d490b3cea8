package operator_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"solojob/boottime"
	"solojob/leader"
	"solojob/operator"
)

// memory is a table whose one row is given anew for each read.
type memory struct {
	operator.Table // nil: what is not asked for here must not be asked for
	read           func(n int) (*operator.Lease, error)
	reads          int
}

func (m *memory) Lease(_ context.Context, k operator.Key) (*operator.Lease, error) {
	if k.Item == operator.OnceItem {
		return nil, nil
	}
	m.reads++
	l, err := m.read(m.reads)
	if l != nil {
		l.Key = k
	}
	return l, err
}

func (m *memory) Runs(context.Context, operator.Key) ([]operator.Run, error) { return nil, nil }

func heldFor(lease time.Duration, beat string) *operator.Lease {
	return &operator.Lease{Row: leader.Row{Owner: "t/1", Fence: 7, Beat: beat, Lease: lease, Since: "2026-01-02T03:00:00Z"}}
}

// The age of a heartbeat is what was seen of it, whatever the clocks of others
// say: a row that claims to be renewed in the year 2099 is silent if its beat
// stands still, and one whose dates are old is alive if it changes.
func TestHeartbeatsAreWatchedNotCompared(t *testing.T) {
	for _, c := range []struct {
		name  string
		lease time.Duration
		beat  func(n int) string
		state string
		says  string
		most  int // reads
	}{
		{"beats soon", 30 * time.Second, func(n int) string { return []string{"a", "b"}[min(n/4, 1)] }, "HELD", "just now", 6},
		{"beats late", 30 * time.Second, func(n int) string { return []string{"a", "b"}[min(n/40, 1)] }, "HELD", "just now", 42},
		{"stands still", 30 * time.Second, func(int) string { return "a" }, "SILENT", "none in 10s of watching", 44},
		{"short lease stands still", 3 * time.Second, func(int) string { return "a" }, "SILENT", "none in 1.5s of watching", 8},
		{"beats slowly", time.Hour, func(int) string { return "a" }, "HELD", "none in 12s of watching, but with a lease of 1h they may be up to 20m apart", 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := &fakeClock{}
			m := &memory{read: func(n int) (*operator.Lease, error) {
				l := heldFor(c.lease, c.beat(n))
				l.Date = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
				return l, nil
			}}
			r := terminal{table: m, clock: clock}.run("status", "t")
			if !strings.Contains(r.stdout, c.state) || !strings.Contains(r.stdout, c.says) || r.status != 0 {
				t.Errorf("no %s, %q in\n%s", c.state, c.says, r.screen)
			}
			if m.reads > c.most {
				t.Errorf("%d reads", m.reads)
			}
		})
	}
}

// A status that is watched shows the row anew until it is told to stop: a holder
// that falls silent, until when it is taken over, and that nobody has done so. A
// table that can't be read meanwhile is said, and waited for.
func TestStatusGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &memory{read: func(n int) (*operator.Lease, error) {
		switch {
		case n > 25:
			cancel()
		case n == 3 || n == 4:
			return nil, errors.New("no reply in time")
		}
		return heldFor(30*time.Second, []string{"a", "b"}[min(n/8, 1)]), nil
	}}
	r := terminal{table: m, context: ctx}.run("status", "t", "--watch", "--every", "2s")
	if r.status != 0 {
		t.Errorf("exit status %d", r.status)
	}
	left := strings.Join(strings.Fields(r.stdout), " ") // lines are broken where they have to be
	for _, says := range []string{
		"being watched for", "HELD", "none in 2.0s of watching", "just now", "2.0s ago", "10s ago", "SILENT", "the last one 12s ago", "takes over in about 18s",
		"its lease ran out 1.3s ago: no other task seems to be alive",
	} {
		_, after, found := strings.Cut(left, says)
		if !found {
			t.Fatalf("no %q in\n%s\nof\n%s", says, left, r.screen)
		}
		left = after
	}
	if strings.Contains(r.stdout, "can't be read") {
		t.Errorf("two faults in a row are made up for by a third attempt:\n%s", r.screen)
	}
}

func TestStatusWaitsForTheTable(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &memory{read: func(n int) (*operator.Lease, error) {
		switch {
		case n > 12:
			cancel()
		case n > 1 && n < 11:
			return nil, errors.New("no reply in time")
		}
		return heldFor(30*time.Second, "a"), nil
	}}
	r := terminal{table: m, context: ctx}.run("status", "t", "--watch")
	if n := strings.Count(r.stdout, "The table can't be read: no reply in time."); n != 3 || r.status != 0 {
		t.Errorf("said %d times, want 3, exit status %d:\n%s", n, r.status, r.screen)
	}
}

// Every command line that can't be meant is refused with a sentence, and nothing
// is asked of the table.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"history"}, {"pause"}, {"resume", "a", "b"}, {"break"}, {"break", "a"}, {"break", "a", "--json"}, {"handover", ""},
		{"run-now"}, {"fence"}, {"fence", "bump", "a"}, {"fence", "bump", "--to", "5"}, {"fence", "bump", "a", "--to", "0"},
		{"fence", "bump", "a", "--to", "9000000000000001"}, {"status", "a", "b"}, {"status", "--every", "1ms"},
		{"history", "a", "-n", "0"}, {"history", "a", "-n", "101"}, {"status", "--nonsense"},
	} {
		r := terminal{}.run(args...)
		if r.status != operator.ExitUsage || !strings.HasPrefix(r.screen, "solojob: ") || strings.Count(r.screen, "\n") != 1 {
			t.Errorf("%q: exit status %d: %s", args, r.status, r.screen)
		}
	}
}

// The help of each command teaches it by an example.
func TestHelpHasExamples(t *testing.T) {
	for _, name := range []string{"status", "history", "handover", "break", "pause", "resume", "run-now", "fence", "fence bump"} {
		r := terminal{}.run(append(strings.Fields(name), "--help")...)
		if r.status != 0 || !strings.Contains(r.screen, "Examples:\n  solojob "+name) {
			t.Errorf("%s: exit status %d:\n%s", name, r.status, r.screen)
		}
		for line := range strings.Lines(r.screen) {
			if len(line) > 101 {
				t.Errorf("%s: %d columns: %s", name, len(line), line)
			}
		}
	}
}

// A wrong answer, and none, break nothing.
func TestBreakIsConfirmed(t *testing.T) {
	for _, answer := range []string{"y", "yes", "nightly2", " "} {
		clock := &fakeClock{}
		m := &memory{read: func(int) (*operator.Lease, error) { return heldFor(time.Second, "a"), nil }}
		r := terminal{table: m, clock: clock, answer: answer}.run("break", "nightly")
		if r.status != operator.ExitRefused || !strings.Contains(r.screen, "not confirmed, so nothing was done") {
			t.Errorf("%q: exit status %d: %s", answer, r.status, r.screen)
		}
	}
}

// Somebody who is told to stop before answering breaks nothing, and waits for
// nobody's answer.
func TestBreakIsStoppedWhileItAsks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	keys, keyboard := io.Pipe()
	defer keyboard.Close()
	m := &memory{read: func(int) (*operator.Lease, error) { return heldFor(time.Second, "a"), nil }}
	asked := readerFunc(func(b []byte) (int, error) {
		cancel()
		return keys.Read(b)
	})
	r := terminal{table: m, context: ctx, keys: asked}.run("break", "nightly")
	if r.status != operator.ExitRefused || !strings.Contains(r.screen, "told to stop") {
		t.Errorf("exit status %d: %s", r.status, r.screen)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// A store that refuses us ends a command at once, with a status of its own.
func TestRefusingTable(t *testing.T) {
	m := &memory{read: func(int) (*operator.Lease, error) { return nil, leader.ErrRefused }}
	clock := &fakeClock{}
	if r := (terminal{table: m, clock: clock}).run("pause", "t"); r.status != operator.ExitUnavailable || m.reads != 1 || clock.Now() != boottime.Instant(0) {
		t.Errorf("exit status %d after %d reads: %s", r.status, m.reads, r.screen)
	}
}
