//go:build linux

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Nothing that a test starts outlives it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A quantile is a value that was measured: at least the given part of the
// sample does not exceed it, and of fifty values the 99th percentile is the
// largest.
func TestQuantilesAreMeasuredValues(t *testing.T) {
	var hundred, fifty sample
	for i := 100; i >= 1; i-- {
		hundred = append(hundred, time.Duration(i))
		if i <= 50 {
			fifty = append(fifty, time.Duration(i))
		}
	}
	for _, c := range []struct {
		of   sample
		q    float64
		want time.Duration
	}{
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0, 1},
		{fifty, 0.5, 25}, {fifty, 0.99, 50}, {sample{7}, 0.5, 7}, {nil, 0.5, 0},
	} {
		if got := c.of.quantile(c.q); got != c.want {
			t.Errorf("quantile %v of %d values is %d; want %d", c.q, len(c.of), got, c.want)
		}
	}
	if hundred[0] != 100 {
		t.Error("the sample was reordered")
	}
}

// Times are written with enough digits to compare, and with a unit.
func TestSpansReadWell(t *testing.T) {
	for d, want := range map[time.Duration]string{
		30630 * time.Millisecond:  "30.6 s",
		2346 * time.Millisecond:   "2.35 s",
		234567 * time.Microsecond: "235 ms",
		23456 * time.Microsecond:  "23.5 ms",
		2346 * time.Microsecond:   "2.35 ms",
		-346 * time.Microsecond:   "-0.35 ms",
	} {
		if got := span(d); got != want {
			t.Errorf("%d ns is written %q; want %q", d, got, want)
		}
	}
}

// A table replaces what is between its markers, and nothing else; without
// markers it refuses, and says what is missing.
func TestTablesReplaceOnlyWhatIsBetweenTheirMarkers(t *testing.T) {
	made := table{ID: "size", Header: []string{"binary", "MB"}, Rows: [][]string{{"amd64", "12"}}, Note: "Today."}
	const document = "before\n<!-- bench:size -->\nold\n<!-- /bench:size -->\n<!-- bench:idle -->\nkept\n<!-- /bench:idle -->\n"
	const want = "before\n<!-- bench:size -->\n| binary | MB |\n| --- | ---: |\n| amd64 | 12 |\n\n_Today._\n<!-- /bench:size -->\n<!-- bench:idle -->\nkept\n<!-- /bench:idle -->\n"
	got, err := replaced(document, made)
	if err != nil || got != want {
		t.Errorf("%v, and the document is\n%s", err, got)
	}
	if again, err := replaced(got, made); err != nil || again != want {
		t.Errorf("the second time: %v, and the document is\n%s", err, again)
	}
	if _, err := replaced("<!-- bench:size -->\nno end", made); err == nil || !strings.Contains(err.Error(), "/bench:size") {
		t.Errorf("without an end the error is: %v", err)
	}
}

// Each table that can be made has its place in the document.
func TestTheDocumentHasAPlaceForEachTable(t *testing.T) {
	document, err := os.ReadFile("../docs/BENCHMARKS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"machine", "start", "handover", "takeover", "kill", "size", "memory", "idle", "ticks", "endurance"} {
		if _, err := replaced(string(document), table{ID: id, Header: []string{""}}); err != nil {
			t.Error(err)
		}
	}
}

// A wrong command line is refused before anything is started.
func TestWrongFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-only", "nothing"}, {"-n", "0"}, {"-idle", "0s"}, {"-endurance", "0s"}, {"stray"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
	o, err := parse([]string{"-only", "size,kill", "-n", "7"})
	if err != nil || len(o.only) != 2 || o.rounds != 7 {
		t.Errorf("%+v, %v", o, err)
	}
}

// A process's descendants are found, and its memory and CPU time can be read.
func TestProcessesAreSeenThroughProc(t *testing.T) {
	shell := exec.Command("/bin/sh", "-c", "sleep 1000 & echo; wait")
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // the sleep is there
		t.Fatal(err)
	}
	found, err := descendants(shell.Process.Pid)
	defer func() {
		for _, pid := range found {
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill()
			}
		}
		shell.Process.Kill()
		shell.Wait()
	}()
	if err != nil || len(found) != 1 {
		t.Errorf("the shell's descendants are %v, %v; want its sleep", found, err)
	}
	if m, err := memoryOf(shell.Process.Pid); err != nil || m.rss < m.pss || m.pss <= 0 || m.threads != "1" {
		t.Errorf("the shell's memory is %+v, %v", m, err)
	}
	if cpu, err := cpuTime(os.Getpid()); err != nil || cpu <= 0 {
		t.Errorf("this process has used %v of CPU time, %v", cpu, err)
	}
}

// The benchmark of a move works from end to end, at its smallest: a program
// that nobody runs for months still runs.
func TestAHandoverIsMeasured(t *testing.T) {
	s, err := newStage(t.Context())
	if s != nil {
		defer s.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	o := options{rounds: 2, abreast: 2}
	for name, measure := range map[string]func() ([]table, error){
		"start":    func() ([]table, error) { return starts(t.Context(), s, o) },
		"takeover": func() ([]table, error) { return takeovers(t.Context(), s, o) },
	} {
		tables, err := measure()
		if err != nil || len(tables) != 1 || tables[0].ID != name || tables[0].Rows[0][1] != "2" {
			t.Errorf("%s: %+v, %v", name, tables, err)
		}
	}
}

// Busy agents keep their descriptors and leave no zombies, for a few seconds;
// `go run ./bench -only endurance` watches for an hour, and memory too.
func TestBusyAgentsLeaveNothingOver(t *testing.T) {
	s, err := newStage(t.Context())
	if s != nil {
		defer s.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	tables, err := endurance(t.Context(), s, options{endurance: 8 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	// Of supervisors there is one for each run, and a look may find it starting.
	if note := tables[0].Note; strings.Contains(note, "holder's descriptors") || strings.Contains(note, "standby's descriptors") ||
		strings.Contains(note, "zombies") || len(tables[0].Rows) != periods {
		t.Errorf("%s\n%s", note, tables[0].markdown())
	}
}

// What rises is named, and what swings is not.
func TestWhatRisesIsNamed(t *testing.T) {
	before := [2]look{{agentRSS: 20e6, agentFDs: 20, agentThreads: 24, supervisorRSS: 9e6}, {agentRSS: 20e6}}
	swung, leaked := before, before
	swung[0].agentRSS, swung[0].agentFDs, swung[0].supervisorRSS = 24e6, 22, 13e6
	if got := verdict(before, swung); got != nothingRose {
		t.Errorf("of what swings it says: %s", got)
	}
	leaked[0].agentFDs, leaked[1].agentRSS, leaked[1].zombies = 80, 40e6, 1
	for _, what := range []string{"the holder's descriptors from 20 to 80", "the standby's memory", "the standby's zombies from 0 to 1"} {
		if got := verdict(before, leaked); !strings.Contains(got, what) {
			t.Errorf("it does not name %q: %s", what, got)
		}
	}
}
