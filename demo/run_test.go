package demo

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// As it is built and called by a user: the demo tells the whole story, finds
// every promise kept, and leaves no process behind, however it ends.
func TestTheDemoAsBuilt(t *testing.T) {
	if testing.Short() {
		t.Skip("the demo takes half a minute")
	}
	binary := filepath.Join(t.TempDir(), "solojob")
	if out, err := exec.Command("go", "build", "-o", binary, "solojob").CombinedOutput(); err != nil {
		t.Fatalf("solojob can't be built: %v\n%s", err, out)
	}

	// In a pipe: plain, every scene in its place, and a good end.
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		printed, err := show(t, binary, "", 0)
		if err != nil {
			t.Fatalf("the demo ended with %v, after:\n%s", err, printed)
		}
		if strings.Contains(printed, "\x1b") {
			t.Error("there are escapes in a pipe")
		}
		at := 0
		for _, want := range []string{
			titles[sceneDeploy], "FENCE 1", "gives the lease back", "FENCE 2",
			titles[sceneCrash], "SIGKILL", "FENCE 3",
			titles[scenePause], "SIGSTOP", "FENCE 4", "REFUSED",
			titles[sceneCut], "the lease is slipping", "FENCE 5",
			titles[sceneControl], "ACCEPTED", "Verdict", "KEPT",
		} {
			i := strings.Index(printed[at:], want)
			if i < 0 {
				t.Fatalf("%q is missing, or too early, in:\n%s", want, printed)
			}
			at += i
		}
	})

	// Ctrl-C, while a task is frozen, and before any stands.
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		for _, cue := range []string{"SIGSTOP to all of", "A starts (version 1)"} {
			printed, err := show(t, binary, cue, syscall.SIGINT)
			if err == nil || !strings.Contains(printed, "Interrupted.") {
				t.Errorf("interrupted at %q it ended with %v, after:\n%s", cue, err, printed)
			}
		}
	})

	// SIGKILL, while a task is frozen: nothing in the demo can clean up then.
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS != "linux" {
			t.Skip("only Linux shows what is left behind, in /proc")
		}
		_, err := show(t, binary, "SIGSTOP to all of", syscall.SIGKILL)
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Errorf("the demo ended with %v", err)
		}
	})
}

// show runs the demo until it ends, or until a line contains the cue: then it
// gets the signal. It returns what was printed and how it ended, and fails the test if
// any process is there afterwards.
func show(t *testing.T, binary, cue string, signal syscall.Signal) (string, error) {
	t.Helper()
	mark := "STORY=" + rand.Text() // every process of the demo inherits it
	cmd := exec.Command(binary, "demo")
	cmd.Env = append(os.Environ(), mark, "SOLOJOB_LEASE=somebody-elses", "AWS_PROFILE=somebody-elses", "FENCE=99")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		printed.WriteString(lines.Text() + "\n")
		if cue != "" && strings.Contains(lines.Text(), cue) {
			if runtime.GOOS == "linux" && len(marked(mark)) < 2 {
				t.Error("the demo's processes can't be found: this test would prove nothing")
			}
			cmd.Process.Signal(signal)
			cue = ""
		}
	}
	err = cmd.Wait()
	if complaint.Len() > 0 {
		t.Logf("on stderr: %s", &complaint)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(sweepEvery) {
		left := marked(mark)
		if len(left) == 0 {
			return printed.String(), err
		}
		if time.Now().After(deadline) {
			t.Errorf("these processes are left behind: %v", left)
			return printed.String(), err
		}
	}
}
