package operator_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"solojob/operator"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	a, b := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s, line %d:\n got %q\nwant %q\n(go test ./operator -update writes the files anew)", path, i+1, a[i], b[i])
		}
	}
	t.Fatalf("%s: %d lines, want %d", path, len(a), len(b))
}

const (
	aTask   = "0f3c1a2b4c5d6e7f8091a2b3c4d5e6f7"
	anOwner = aTask + "/9a1b2c3d4e5f6071"
)

// held is a lease on a schedule whose job is idle.
var held = item{
	"pk": "nightly", "sk": "lease", "owner": anOwner, "fence": 41, "beat": "9a1b2c3d4e5f6071-0000000000000777",
	"lease_ms": 30000, "draining": false, "revision": "42", "announced": "42",
	"schedule": "CRON_TZ=Europe/Berlin 0 0 * * * *", "through": "2026-01-02T03:04:00Z",
	"tick": "2026-01-02T03:00:00Z", "tick_state": "done", "tick_attempt": 1, "exit_code": 0,
	"since": "2026-01-01T22:13:14Z", "renewed": "2026-01-02T03:04:02Z", "handover": "",
}

// service is a lease without a schedule, whose job runs as long as it is held.
var service = func() item {
	s := held.with(item{"pk": "nightly"})
	for _, name := range []string{"schedule", "through", "tick", "tick_state", "tick_attempt", "exit_code"} {
		delete(s, name)
	}
	return s
}()

// running is held while a run goes on.
var running = held.with(item{"tick_state": "running"})

const alice = "alice@laptop 2026-01-02T02:59:00Z"

// state is a lease in one of the states that it can be in.
type state struct {
	name  string
	items []item
	alive bool // its holder beats
}

// states are in an order in which each may follow the one before in one table.
func states() []state {
	return []state{
		{name: "none"},
		{name: "free", items: []item{held.with(item{"owner": ""})}},
		{name: "held", items: []item{held}, alive: true},
		{name: "service", items: []item{service}, alive: true},
		{name: "running", items: []item{running}, alive: true},
		{name: "launching", items: []item{running.with(item{"run_since": "2026-01-02T03:00:07Z", "tick_attempt": 2})}, alive: true},
		{name: "draining", items: []item{running.with(item{"draining": true})}, alive: true},
		{name: "silent", items: []item{running.with(item{"lease_ms": 6000})}},
		{name: "paused", items: []item{held.with(item{"paused": true, "paused_by": alice})}, alive: true},
		{name: "asked", items: []item{running.with(item{
			"handover": anOwner, "handover_now": false, "handover_by": alice, "run_now": "00c0ffee", "run_by": alice,
		})}, alive: true},
		{name: "damaged", items: []item{held.with(item{"fence": "41"})}},
		{name: "vanished", items: []item{{"pk": "nightly", "sk": "lease", "fence": 41, "owner": anOwner, "lease_ms": 30000}}},
		{name: "full", items: append(fullHistory(), held.with(item{"fence": 240, "revision": "43", "announced": "44"})), alive: true},
	}
}

// fullHistory is a hundred runs: hourly ticks of which one failed, one was
// interrupted and repeated, three have no run, and an operator's; and one that is
// left from a hundred fences before.
func fullHistory() []item {
	var all []item
	tick := time.Date(2025, 12, 28, 23, 0, 0, 0, time.UTC)
	for fence := 141; fence <= 240; fence++ {
		i := item{
			"pk": "nightly", "sk": fmt.Sprintf("run#%02d", fence%100), "fence": fence, "kind": "tick",
			"attempt": 1, "owner": anOwner, "exit_code": 0, "state": "done", "why": "it ended by itself", "by": "",
		}
		took := time.Duration(100+fence*37%90) * time.Second
		start := tick
		switch fence {
		case 150: // taken by an acquisition, so an older run is left in its place
			i["fence"] = 50
			start = time.Date(2025, 12, 20, 3, 0, 0, 0, time.UTC)
			i["tick"] = stamp(start)
		case 220:
			i["state"], i["exit_code"], i["why"] = "failed", 3, "it ended by itself"
		case 223:
			i["state"], i["exit_code"], i["why"] = "interrupted", 143, "the task was told to stop"
			took = 20 * time.Second
		case 224:
			i["attempt"] = 2
			tick = tick.Add(-time.Hour)
			start = tick.Add(95 * time.Second)
		case 228:
			tick = tick.Add(3 * time.Hour)
			start = tick
		case 231:
			i["kind"], i["by"] = "run-now", alice
			start = start.Add(-17 * time.Minute)
			tick = tick.Add(-time.Hour)
		case 233:
			i["state"], i["exit_code"], i["why"] = "failed", 124, "it took longer than its timeout of 15m"
			took = 15 * time.Minute
		}
		if i["tick"] == nil {
			i["tick"] = stamp(tick)
		}
		if i["kind"] == "run-now" {
			i["tick"] = ""
		}
		i["started"], i["ended"], i["duration_ms"] = stamp(start), stamp(start.Add(took)), int(took.Milliseconds())
		all = append(all, i)
		tick = tick.Add(time.Hour)
	}
	return all
}

func stamp(t time.Time) string { return t.Format(time.RFC3339) }

// watched is the table as a person meets it whose holder beats if it is alive.
func (st state) watched(s *store) *observed {
	s.put(st.items[max(0, len(st.items)-1):]...) // the lease; its history never changes
	o := &observed{Table: s, clock: &fakeClock{}}
	if st.alive {
		o.beat = func(n int) {
			s.call("UpdateItem", object{
				"Key":                       item{"pk": "nightly", "sk": "lease"}.wire(),
				"UpdateExpression":          "SET beat = :b",
				"ExpressionAttributeValues": item{":b": fmt.Sprintf("9a1b2c3d4e5f6071-%016d", 777+n)}.wire(),
			})
		}
	}
	return o
}

// transcript is what each of some commands prints, each given the same table.
func (st state) transcript(s *store, p terminal, commands ...[]string) string {
	var b strings.Builder
	s.put(st.items...)
	for _, args := range commands {
		o := st.watched(s)
		p.table, p.clock = o, o.clock
		r := p.run(args...)
		fmt.Fprintf(&b, "$ solojob %s\n%s", strings.Join(args, " "), r.screen)
		if r.status != 0 {
			fmt.Fprintf(&b, "[exit status %d]\n", r.status)
		}
		b.WriteString("\n")
	}
	return b.String()
}

var commands = [][]string{
	{"status", "nightly"}, {"status"}, {"status", "nightly", "--quick"}, {"history", "nightly"},
	{"handover", "nightly"}, {"handover", "nightly", "--now"}, {"break", "nightly"}, {"break", "nightly", "--even-if-alive"},
	{"pause", "nightly"}, {"resume", "nightly"}, {"run-now", "nightly"}, {"run-now", "nightly", "--no-wait"},
	{"fence", "bump", "nightly", "--to", "5000"}, {"fence", "bump", "nightly", "--to", "40"},
}

// Every command says, against a lease in every state, what it saw and did, on
// lines of at most a hundred columns; the same against two different servers.
func TestEveryCommandInEveryState(t *testing.T) {
	onEachServer(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		for _, st := range states() {
			t.Run(st.name, func(t *testing.T) {
				got := st.transcript(s, terminal{caller: "bob@desk", answer: "nightly"}, commands...)
				golden(t, st.name, got)
				for _, line := range strings.Split(got, "\n") {
					if n := utf8.RuneCountInString(line); n > 100 && !strings.HasPrefix(line, "solojob: ") {
						t.Errorf("%d columns: %s", n, line)
					}
				}
			})
		}
	})
}

// With --json every command prints one document, with the same facts.
func TestJSON(t *testing.T) {
	onEachServer(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		for _, st := range states() {
			t.Run(st.name, func(t *testing.T) {
				commands := [][]string{{"status", "nightly", "--json"}}
				switch st.name {
				case "full":
					commands = append(commands, []string{"history", "nightly", "-n", "2", "--json"})
				case "silent":
					commands = append(commands, []string{"break", "nightly", "--yes", "--json"}, []string{"pause", "nightly", "--json"})
				case "held":
					commands = append(commands,
						[]string{"pause", "nightly", "--json"}, []string{"resume", "nightly", "--json"},
						[]string{"run-now", "nightly", "--json"}, []string{"handover", "nightly", "--json"},
						[]string{"fence", "bump", "nightly", "--to", "50", "--json"}, []string{"break", "nightly", "--yes", "--json"},
						[]string{"break", "nightly", "--json"})
				case "none":
					commands = append(commands, []string{"history", "nightly", "--json"}, []string{"pause", "nightly", "--json"})
				}
				golden(t, "json-"+st.name, st.transcript(s, terminal{caller: "bob@desk"}, commands...))
			})
		}
	})
}

// Several leases are one table, each in its state, with what is wrong below it.
func TestOverview(t *testing.T) {
	onEachServer(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		for _, st := range states() {
			for _, i := range st.items {
				if i["sk"] == "lease" {
					s.put(i.with(item{"pk": st.name}))
				}
			}
		}
		s.put(held.with(item{"pk": "migrate", "sk": "once", "schedule": ""}))
		n := 0
		o := &observed{Table: s, clock: &fakeClock{}, beat: func(int) {
			n++
			for _, st := range states() {
				if st.alive {
					s.call("UpdateItem", object{
						"Key":                       item{"pk": st.name, "sk": "lease"}.wire(),
						"UpdateExpression":          "SET beat = :b",
						"ExpressionAttributeValues": item{":b": fmt.Sprintf("9a1b2c3d4e5f6071-%016d", 777+n)}.wire(),
					})
				}
			}
		}}
		for name, style := range map[string]operator.Style{"overview": {}, "overview-80": {Columns: 80}, "overview-colour": {Colour: true}} {
			o.clock, o.beats = &fakeClock{}, 0
			r := terminal{table: o, clock: o.clock, style: style}.run("status")
			golden(t, name, r.screen)
		}
	})
}

// The runs of once mode are a history of their own, and whoever asks for the
// other one is told.
func TestHistoryOfOnceMode(t *testing.T) {
	onEachServer(t, func(t *testing.T, url string) {
		s := newStore(t, url)
		s.put(held.with(item{"pk": "migrate", "sk": "once", "schedule": ""}))
		s.put(item{
			"pk": "migrate", "sk": "once-run#41", "fence": 41, "kind": "once", "attempt": 1, "state": "done", "exit_code": 0, "owner": "old/2",
			"started": "2026-10-17T01:12:00Z", "ended": "2026-10-17T01:12:04Z", "duration_ms": 4000,
		})
		for args, want := range map[string]string{
			"history --once migrate": "migrate (once)  1 run; the longest bar is 4.0s",
			"history migrate":        `the lease "migrate" is that of runs in once mode: say --once`,
		} {
			r := terminal{table: s, clock: &fakeClock{}}.run(strings.Fields(args)...)
			if !strings.Contains(r.screen, want) {
				t.Errorf("%s: %s\nwant %s", args, r.screen, want)
			}
		}
	})
}
