package sim

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	mutations     = flag.Bool("sim.mutations", false, "run TestMutations, which takes minutes")
	mutationSeeds = flag.Int("sim.mutation-seeds", 5000, "how many runs a mistake of the protocol may survive")
	mutationOnly  = flag.String("sim.mutation", "", "try only the mistakes whose name matches")
)

// mistake is a change of the source that breaks the protocol.
type mistake struct {
	name    string
	patches []patch
}

// patch replaces text, which has to be there once, in one file.
type patch struct{ file, from, to string }

func one(name, file, from, to string) mistake { return mistake{name, []patch{{file, from, to}}} }

// What is kept by the store's conditions is in the simulated store.
var mistakes = []mistake{
	one("the deadline counts from the reply",
		"leader/settle.go", "e.applied(r.row, op.sent[r.beat])", "e.applied(r.row, r.arrived)"),
	one("a recognised attempt counts from its recognition",
		"leader/settle.go", "e.applied(row, sent)", "_ = sent; e.applied(row, arrived)"),
	one("two attempts share a beat",
		"leader/operation.go", "beat = e.beats.next()", `for beat = range op.sent { break }; if beat == "" { beat = e.beats.next() }`),
	one("no order of beats in the renewal",
		"sim/store_test.go", "&& d.row.Beat < beat", ""),
	one("a takeover on the owner alone",
		"sim/store_test.go", "return d.row.Beat == seen.Beat && d.row.Fence == seen.Fence", "return d.row.Owner == seen.Owner"),
	one("a short wait: both clocks are believed",
		"leader/watch.go", "driftFactor = 1.021", "driftFactor = 1.0"),
	one("one's own lease duration for the wait",
		"leader/settle.go", "	e.watch.see(row, arrived, e.highest)\n	if row != nil {\n", "	if row != nil {\n		row.Lease = e.cfg.Lease\n	}\n	e.watch.see(row, arrived, e.highest)\n	if row != nil {\n"),
	{"a beat is timed from the sending of the read", []patch{
		{"leader/settle.go", "	recheck := e.op != nil && e.op.kind != opRead\n", "	recheck := e.op != nil && e.op.kind != opRead\n	if e.op != nil {\n		arrived = e.op.first\n	}\n"},
	}},
	one("a vanished row is timed from when it was last seen",
		"leader/watch.go", "w.gone, w.since = true, arrived", "w.gone = true"),
	one("the release is not conditional",
		"sim/store_test.go", "	return d.do(ctx, request{op: \"release\", beat: r.Beat, by: r.Owner, fence: r.Fence}, func() (*leader.Row, error) {\n		if !d.isHeld(r.Owner, r.Fence, r.Beat) {", "	return d.do(ctx, request{op: \"release\", beat: r.Beat, by: r.Owner, fence: r.Fence}, func() (*leader.Row, error) {\n		if d.row == nil {"),
	one("the release deletes the row",
		"sim/store_test.go", "		row.Requests.Handover, row.Requests.HandoverNow = \"\", false\n		d.row = &row\n", "		d.row = nil\n"),
	one("a release before the death of the job",
		"agent/attend.go", "			w.drain(w.term, sig)\n			w.stopRun()\n", "			w.drain(w.term, sig)\n			w.stopRun()\n			w.dead = true\n"),
	one("a lost reply is a lost lease",
		"leader/settle.go", `		e.cfg.Log.Warn("renewal failed"`, "		e.lose(Loss{Reason: LossExpired})\n		return\n		e.cfg.Log.Warn(\"renewal failed\""),
	one("a lost reply is never recognised",
		"leader/settle.go", "if sent, ours := op.sent[row.Beat]; ours {", "if sent, ours := op.sent[row.Beat]; ours && sent == 0 {"),
	{"no check after an acquisition that came late", []patch{
		{"leader/elector.go", "if e.stopping || e.cfg.Clock.Now() >= e.validUntil {", "if e.stopping {"},
		{"leader/elector.go", "if e.state == holding && e.cfg.Clock.Now() >= e.validUntil {", "if e.state == holding && e.taken && e.cfg.Clock.Now() >= e.validUntil {"},
		{"agent/agent.go", "if a.Clock.Now() < a.launchBy() {", "if a.until != 0 {"},
		{"sim/job_test.go", "	r.judge()\n	if r.stopping || r.killing {", "	if r.stopping || r.killing {"},
	}},
	one("a deadline that is later than the lease's",
		"agent/attend.go", "w.run.Extend(b.ValidUntil)", "w.run.Extend(b.ValidUntil.Add(3 * time.Second))"),
	one("no fence above those that are remembered",
		"leader/elector.go", "if stored < e.highest {", "if stored > e.highest {"),
	one("a claim that does not raise the fence",
		"sim/store_test.go", "			row.Fence++\n			row.RunFence", "			row.RunFence"),
	one("a launch without a claim",
		"agent/service.go", "(first || s.claim(s.term, leader.Claim{}) == nil)", "(first || s.fence > 0)"),
	one("ticks by one's own time of day",
		"agent/clock.go", "skew.Abs() <= maxSkew {\n", "skew != 0 {\n"),
	{"launching after a release that timed out", []patch{
		{"leader/elector.go", "max(e.validUntil, e.cfg.Clock.Now().Add(e.cfg.Heartbeat))", "e.cfg.Clock.Now().Add(e.cfg.Heartbeat)"},
		{"agent/agent.go", "		term.Release()\n", "		if !term.Release() && !isLost(term) && a.Clock.Now() < a.launchBy() {\n			a.launch(\"\", 1)\n		}\n"},
	}},
	one("through runs over a tick that is due",
		"agent/ticks.go", "now.After(c.through) && (next.IsZero() || next.After(now))", "now.After(c.through) && next.After(c.through)"),
	one("ticks are decided after the lease is lost",
		"agent/ticks.go", "	c.looked = now\n	if !c.valid() {", "	c.looked = now\n	if c.until == 0 {"),
	one("the end of a run is not written before the release",
		"agent/cronrun.go", "	c.record()\n	if !interrupted", "	if !interrupted"),
	one("an interrupted run counts as failed",
		"agent/cronrun.go", "	default:\n		return schedule.StateInterrupted", "	default:\n		return schedule.StateFailed"),
	one("a heartbeat writes the tick of before the claim",
		"agent/cron.go", "if !c.decided || c.claiming {", "if !c.decided {"),
	one("a lowered row is taken for free",
		"leader/watch.go", "w.since, w.lowered = arrived, row.Fence < highest", "w.since, w.lowered = arrived, false"),
}

// What the mistakes replace is there, so that whoever changes it is told at once,
// and not by the long run.
func TestMistakesCanBeMade(t *testing.T) {
	for _, m := range mistakes {
		for _, p := range m.patches {
			text, err := os.ReadFile(filepath.Join("..", p.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), p.from); n != 1 {
				t.Errorf("%s: %s has %d times: %s", m.name, p.file, n, p.from)
			}
		}
	}
}

// A simulation that can't see the mistakes that one makes proves nothing: each
// of these is caught, within so many seeds.
func TestMutations(t *testing.T) {
	if !*mutations {
		t.Skip("takes minutes: pass -sim.mutations")
	}
	only := regexp.MustCompile(*mutationOnly)
	for _, m := range mistakes {
		if !only.MatchString(m.name) {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			dir := t.TempDir()
			copyModule(t, dir)
			for _, p := range m.patches {
				apply(t, filepath.Join(dir, p.file), p)
			}
			began := time.Now()
			caught, how := hunt(t, dir)
			if caught == 0 {
				t.Fatalf("not caught by %d seeds\n%s", *mutationSeeds, how)
			}
			t.Logf("caught by seed %d, after %s: %s", caught, time.Since(began).Round(time.Second), how)
		})
	}
}

// parts is what the simulation needs of the module.
var parts = []string{"go.mod", "go.sum", "boottime", "leader", "agent", "runner", "schedule", "signals", "sim"}

func copyModule(t *testing.T, to string) {
	t.Helper()
	for _, part := range parts {
		err := filepath.WalkDir(filepath.Join("..", part), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			target := filepath.Join(to, strings.TrimPrefix(path, ".."))
			if d.IsDir() {
				return os.MkdirAll(target, 0o755)
			}
			if strings.HasSuffix(path, "_test.go") && part != "sim" {
				return nil
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(target, content, 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func apply(t *testing.T, file string, p patch) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(content), p.from); n != 1 {
		t.Fatalf("%s has %d times: %s", p.file, n, p.from)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(content), p.from, p.to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

var firstBroken = regexp.MustCompile(`seed (\d+): (.*)`)

// hunt runs the simulation in a directory, one seed after another, until one
// breaks a promise. A mistake that ends in a panic or a deadlock is caught, too.
func hunt(t *testing.T, dir string) (seed int, how string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	binary := filepath.Join(dir, "sim.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", binary, "./sim")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(ctx, binary, "-test.run=TestSimulation$", "-test.v", "-sim.quiet", "-sim.say", fmt.Sprint("-sim.seeds=", *mutationSeeds))
	run.Dir = filepath.Join(dir, "sim")
	run.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, err := run.CombinedOutput()
	if err == nil {
		return 0, ""
	}
	if m := firstBroken.FindStringSubmatch(string(out)); m != nil {
		seed, _ = strconv.Atoi(m[1])
		return seed, m[2]
	}
	if at := strings.LastIndex(string(out), "running seed "); at >= 0 {
		fmt.Sscanf(string(out)[at:], "running seed %d", &seed)
	}
	text := string(out)
	if at := strings.Index(text, "panic:"); at >= 0 {
		text = text[at:]
	}
	first, _, _ := strings.Cut(text, "\n")
	return seed, first
}
