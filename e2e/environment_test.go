//go:build linux

package e2e

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A FENCE that is there before, even twice, is replaced: the job has exactly
// one. Of solojob's own settings it gets none, of its outputs the new ones, and
// of everything else all.
func TestEnvironmentOfTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	w.Start(Start{
		Name: "a",
		Wrap: []string{built("probe")},
		Env: map[string]string{
			"PROBE_MODE": "twice", "FENCE": "7777", "KEPT": "a value with = and  spaces", "SOLOJOB_LOG_LEVEL": "debug",
			"SOLOJOB_RUN_LEASE": "outer", "SOLOJOB_RUN_OWNER": "outer/0", "SOLOJOB_RUN_TICK": "2001-01-01T00:00:00Z",
		},
	})
	life := w.recorderLife(0)
	var fences, own []string
	for _, v := range life.Environ {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "FENCE":
			fences = append(fences, value)
		case strings.HasPrefix(name, "SOLOJOB_"):
			own = append(own, name)
		}
	}
	if want := strconv.FormatInt(w.Row().Fence(), 10); !slices.Equal(fences, []string{want}) {
		t.Errorf("the job has FENCE %q, the row %s", fences, want)
	}
	slices.Sort(own)
	if want := []string{"SOLOJOB_RUN_ATTEMPT", "SOLOJOB_RUN_LEASE", "SOLOJOB_RUN_OWNER"}; !slices.Equal(own, want) {
		t.Errorf("the job has %q, want %q", own, want)
	}
	if life.Lease != w.lease || life.Owner != w.Row().Owner() || life.Env("SOLOJOB_RUN_ATTEMPT") != "1" {
		t.Errorf("the job is told lease %q, owner %q, attempt %q", life.Lease, life.Owner, life.Env("SOLOJOB_RUN_ATTEMPT"))
	}
	for name, want := range map[string]string{"KEPT": "a value with = and  spaces", "AWS_REGION": "us-east-1", "HOME": w.dir} {
		if got := life.Env(name); got != want {
			t.Errorf("the job has %s=%q, want %q", name, got, want)
		}
	}
}

// recorderLife waits for a launch under any lease, counted from 0.
func (w *World) recorderLife(n int) *Life {
	w.t.Helper()
	w.Until("a job runs", patience, func() bool { return len(w.recorder.Lives()) > n })
	return w.recorder.Lives()[n]
}

// The job gets its arguments verbatim, with and without -- before the command.
func TestArgumentsArriveVerbatim(t *testing.T) {
	t.Parallel()
	arguments := []string{
		"two words", "", `"quoted"`, `it's`, "%s %d %%", "--", "--help", "-x", "--lease=other", "$HOME", "`id`",
		"*", `back\slash`, "tab\tand\nnewline", "ünï", secret, "--", "",
	}
	for _, c := range []struct {
		name  string
		front []string
	}{{"after --", []string{"--"}}, {"without --", nil}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			command := append(slices.Clone(c.front), built("probe"))
			w.Start(Start{Name: "a", Command: append(command, arguments...)})
			if life := w.Life(1); !slices.Equal(life.Args, arguments) {
				t.Errorf("the job got %q, want %q", life.Args, arguments)
			}
		})
	}
}

// A solojob as the job of a solojob starts from nothing: it is told its own
// lease, and nothing of the outer one's reaches it.
func TestSolojobInsideSolojob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brisk)
	script := `export SOLOJOB_LEASE=inner; exec "$0" run -- "$@"`
	w.Start(Start{Name: "a", Command: []string{"--", "/bin/sh", "-c", script, built("solojob"), built("probe"), secret}})
	life := w.recorderLife(0)
	if life.Lease != "inner" || life.Fence != 1 {
		t.Errorf("the inner job runs as %v", life)
	}
	inner, outer := w.store.Row("inner"), w.Row()
	if inner.Owner() != life.Owner || outer.Owner() == "" || outer.Owner() == inner.Owner() {
		t.Errorf("the inner lease is held by %q, the outer by %q, the job was told %q", inner.Owner(), outer.Owner(), life.Owner)
	}
	w.stopAll(patience)
	if owner := w.store.Row("inner").Owner(); owner != "" {
		t.Errorf("the inner lease is left held by %s", owner)
	}
}
