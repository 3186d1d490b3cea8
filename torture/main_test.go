//go:build linux

package torture

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"solojob/internal/precedence"
)

// built is the directory of the programs that TestMain builds.
var built string

// TestMain builds solojob, with a wall clock that can be set, and the actor.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "torture") // short: sockets have short names
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture: no directory for the programs:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	if err := buildAll(); err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		return 1
	}
	// The CPU that the torture takes away it takes away on purpose.
	precedence.Take()
	return m.Run()
}

func buildAll() error {
	overlay, err := wallOverlay(built)
	if err != nil {
		return err
	}
	if err := build("solojob", "solojob", "-overlay", overlay); err != nil {
		return err
	}
	return build("actor", "solojob/torture/actor")
}

// build builds without the race detector even when the tests have it: what
// users run is what is tortured.
func build(name, pkg string, flags ...string) error {
	args := append([]string{"build", "-o", filepath.Join(built, name)}, flags...)
	c := exec.CommandContext(context.Background(), "go", append(args, pkg)...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s can't be built: %w\n%s", pkg, err, out)
	}
	return nil
}

func program(name string) string { return filepath.Join(built, name) }

// wallVariable names the file from which the tortured binary reads by how much
// its wall clock is wrong.
const wallVariable = "TORTURE_WALL"

// wallSource is the wall clock that the tortured binary has instead of
// time.Now. It is laid over the source at build time: the product has no hook.
const wallSource = `package main

import (
	"os"
	"strings"
	"time"
)

func torturedWall() time.Time {
	text, _ := os.ReadFile(os.Getenv("` + wallVariable + `"))
	wrong, _ := time.ParseDuration(strings.TrimSpace(string(text)))
	return time.Now().Add(wrong)
}
`

// wallOverlay writes the overlay for go build -overlay: run.go, where the wall
// clock is handed to the elector and the agent, and the clock itself.
func wallOverlay(dir string) (string, error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(root, "run.go"))
	if err != nil {
		return "", err
	}
	const injected, users = "Wall: time.Now,", 2
	if n := strings.Count(string(source), injected); n != users {
		return "", fmt.Errorf("run.go has %d times %q, not %d: where is the wall clock injected now?", n, injected, users)
	}
	changed := strings.ReplaceAll(string(source), injected, "Wall: torturedWall,")
	if !strings.Contains(changed, "time.") { // the import would be unused
		changed += "\nvar _ time.Time\n"
	}
	files := map[string]string{"run.go": changed, "torture_wall.go": wallSource}
	replace := map[string]string{}
	for name, text := range files {
		laid := filepath.Join(dir, name)
		if err := os.WriteFile(laid, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = laid
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}
