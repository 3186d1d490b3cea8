//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// outcome is how a run ended that was not to get anywhere.
type outcome struct {
	status int
	stderr string
}

// runToEnd runs solojob until it ends by itself.
func (w *World) runToEnd(door *Door, s Start) outcome {
	w.t.Helper()
	argv := s.arguments()
	cmd := exec.CommandContext(w.t.Context(), argv[0], argv[1:]...)
	cmd.Env = w.environ(door, s)
	cmd.Dir = w.dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Run()
	if !stuck.Stop() {
		w.t.Fatalf("solojob did not end by itself; it said:\n%s", stderr.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	w.t.Logf("status %d: %s", cmd.ProcessState.ExitCode(), stderr.String())
	return outcome{cmd.ProcessState.ExitCode(), stderr.String()}
}

// complaints are the lines of an outcome that are no mere information.
func (o outcome) complaints() []string {
	var lines []string
	for line := range strings.Lines(o.stderr) {
		var logged struct{ Level string }
		if json.Unmarshal([]byte(line), &logged) == nil && (logged.Level == "INFO" || logged.Level == "DEBUG") {
			continue
		}
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func (w *World) door(fault func(*Call) Fault) *Door {
	w.t.Helper()
	d, err := w.store.newDoor("start")
	if err != nil {
		w.t.Fatal(err)
	}
	d.Set(fault)
	return d
}

// What makes a start hopeless ends it with 69 or 78 and one sentence that says
// what to do. No job is started.
func TestHopelessStarts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		env    map[string]string
		fault  func(*Call) Fault
		status []int
		says   []string // each must be in the sentence, in any case
	}{
		{"no such table", map[string]string{"SOLOJOB_TABLE": "elsewhere"}, nil, []int{69}, []string{"elsewhere", "solojob init"}},
		{"access denied", nil, always(denied), []int{69}, []string{"denied", "dynamodb:"}},
		{"no region", map[string]string{"AWS_REGION": ""}, nil, []int{78}, []string{"AWS_REGION"}},
		{"no credentials", map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, nil, []int{69, 78}, []string{"credentials"}},
		{"bad endpoint", map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "127.0.0.1:8000"}, nil, []int{69, 78}, []string{"AWS_ENDPOINT_URL"}},
		{"endpoint that is no URL", map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": "http://[::1"}, nil, []int{69, 78}, []string{"AWS_ENDPOINT_URL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			got := w.runToEnd(w.door(c.fault), Start{Env: c.env})
			if !slices.Contains(c.status, got.status) {
				t.Errorf("ended with %d, want %v", got.status, c.status)
			}
			complaints := got.complaints()
			if len(complaints) != 1 {
				t.Errorf("%d lines of complaint, want one sentence", len(complaints))
			}
			for _, word := range c.says {
				if !strings.Contains(strings.ToLower(got.stderr), strings.ToLower(word)) {
					t.Errorf("the sentence does not mention %q", word)
				}
			}
			if len(w.recorder.Lives()) > 0 {
				t.Errorf("a job was started")
			}
		})
	}
}

// Twelve wrong settings are twelve lines, each with the variable's name, and
// nothing is asked of the store.
func TestTwelveWrongSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	door := w.door(nil)
	wrong := map[string]string{
		"SOLOJOB_TABEL":          "jobs", // and the nearest known name must be named
		"SOLOJOB_LEASE_DURATION": "half a minute",
		"SOLOJOB_HEARTBEAT":      "-1s",
		"SOLOJOB_POLL":           "2",
		"SOLOJOB_LOSS_GRACE":     "4sec",
		"SOLOJOB_KILL_MARGIN":    "x",
		"SOLOJOB_STOP_GRACE":     "never",
		"SOLOJOB_TIMEZONE":       "Mars/Olympus",
		"SOLOJOB_MODE":           "twice",
		"SOLOJOB_FENCE_FLOOR":    "minus one",
		"SOLOJOB_LOG_LEVEL":      "loud",
	}
	got := w.runToEnd(door, Start{Env: wrong, Environ: []string{"SOLOJOB_LOG_FORMAT="}})
	if got.status != 78 {
		t.Errorf("ended with %d, want 78", got.status)
	}
	wrong["SOLOJOB_LOG_FORMAT"] = ""
	for name := range wrong {
		lines := 0
		for line := range strings.Lines(got.stderr) {
			// The value of a name that we don't know may be a secret.
			shows := name == "SOLOJOB_TABEL" || strings.Contains(line, wrong[name])
			if strings.Contains(line, name) && shows {
				lines++
			}
		}
		if lines != 1 {
			t.Errorf("%s=%q has %d lines", name, wrong[name], lines)
		}
	}
	if !strings.Contains(got.stderr, "SOLOJOB_TABLE") {
		t.Errorf("SOLOJOB_TABEL does not make it think of SOLOJOB_TABLE")
	}
	if door.Requests() > 0 {
		t.Errorf("%d requests were sent all the same", door.Requests())
	}
}

// A command that can't be run is noticed before the agent competes.
func TestCommandsThatCannotRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(w.dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, command string
		status        []int
		says          string
	}{
		{"absent", "no-such-command", []int{127}, "no-such-command"},
		{"absent path", "/no/such/command", []int{127}, "/no/such/command"},
		{"not executable", write("plain", "#!/bin/sh\n", 0o644), []int{126}, "executable"},
		{"a directory", w.dir, []int{126}, "directory"},
		// Shells differ on a missing interpreter: bash says 126, dash 127.
		{"carriage return in the shebang", write("windows", "#!/bin/sh\r\nexit 0\r\n", 0o755), []int{126, 127}, "CRLF"},
		{"missing interpreter", write("lost", "#!/no/such/interpreter\n", 0o755), []int{126, 127}, "/no/such/interpreter"},
	} {
		t.Run(c.name, func(t *testing.T) {
			door := w.door(nil)
			got := w.runToEnd(door, Start{Command: []string{"--", c.command}})
			if !slices.Contains(c.status, got.status) {
				t.Errorf("ended with %d, want %v", got.status, c.status)
			}
			if !strings.Contains(got.stderr, c.says) {
				t.Errorf("the sentence does not mention %q", c.says)
			}
			for _, call := range w.store.Calls() {
				if call.Door == door && call.Write() {
					t.Errorf("it competed all the same: %s", call.Kind)
				}
			}
		})
	}
}
