//go:build linux

package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"solojob/internal/precedence"
)

// builtDir is the environment variable in which TestMain leaves the directory
// of the built programs, for the tests of this one process.
const builtDir = "E2E_BUILT"

// TestMain builds solojob and the probe once, without the race detector even
// when the tests have it: what users run is what is tested.
func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "solojob-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: no directory for the programs:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	for _, program := range []struct{ name, pkg string }{{"solojob", "solojob"}, {"probe", "solojob/e2e/probe"}} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, program.name), program.pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "e2e: %s cannot be built: %v\n%s", program.pkg, err, out)
			return 1
		}
	}
	os.Setenv(builtDir, dir)
	// A store that gets no CPU for a second proves nothing about solojob.
	precedence.Take()
	if err := waitTogether(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

// atATime is how many tests run at once, unless -parallel says otherwise: these
// wait for leases most of their time, so there may be more than there are cores.
const atATime = "5"

func waitTogether() error {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if chosen {
		return nil
	}
	return flag.Set("test.parallel", atATime)
}

// built is the path of one of the programs that TestMain built.
func built(name string) string { return filepath.Join(os.Getenv(builtDir), name) }

// full reports whether the long variants are asked for.
func full() bool { return os.Getenv("E2E_FULL") != "" }

// rounds is how often a test repeats what it varies: few by default, many in
// the long variant.
func rounds(few, many int) int {
	if full() {
		return many
	}
	return few
}

// skip skips a test for want of something that the machine must give. Where
// continuous integration installs it, the want is a failure.
func skip(t *testing.T, why string) {
	t.Helper()
	if strings.EqualFold(os.Getenv("CI"), "true") {
		t.Fatalf("this must not be skipped in CI: %s", why)
	}
	t.Skip(why)
}
