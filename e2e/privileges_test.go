//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stranger is a user who owns nothing and has no entry anywhere.
const stranger = "61018"

// Without any capability, with no way to gain one, on a root file system that
// can't be written to, as root and as a user without a name: a job is launched,
// killed by the agent when its supervisor is gone, launched again, and stopped.
func TestNoCapabilityIsNeeded(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skip(t, "taking away what root has needs root")
	}
	for _, program := range []string{"unshare", "mount", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, fmt.Sprintf("%s is not installed (util-linux, mount)", program))
		}
	}
	for name, who := range map[string]string{
		"root":         "",
		"another user": "--reuid=" + stranger + " --regid=" + stranger + " --clear-groups ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, brisk)
			w.letIn(filepath.Dir(built("solojob")), w.dir)
			if err := os.Chmod(w.recorder.Socket(), 0o777); err != nil {
				t.Fatal(err)
			}
			const prepare = `mount -o remount,bind,ro / && exec setpriv %s--no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all -- "$@"`
			a := w.Start(Start{
				Name: "a", Env: map[string]string{"PROBE_TREE": "5", "PROBE_ON_TERM": "ignore"}, Status: []int{3},
				Wrap: []string{"unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", fmt.Sprintf(prepare, who), "sh"},
			})
			first := w.Life(1)
			a.PID = namespaceInit(t, first.PID)
			for who, pid := range map[string]int{"the agent": a.PID, "the supervisor": parentOf(first.PID), "the job": first.PID} {
				w.powerless(who, pid, name == "root")
			}
			w.signalProcess(a.Supervisor(first), syscall.SIGKILL, "a's supervisor")
			w.Dead(first)
			second := w.Life(2)
			if second.Owner != first.Owner || second.Fence != first.Fence+1 {
				t.Errorf("%v follows %v, want the same owner and the next FENCE", second, first)
			}
			w.signalProcess(a.PID, syscall.SIGTERM, "agent a")
			second.Exit(3, 0)
			if status := a.Ended(); status != 3 {
				t.Errorf("the agent ended with %d, its job with 3", status)
			}
			if owner := w.Row().Owner(); owner != "" {
				t.Errorf("the lease was not released: %s", owner)
			}
		})
	}
}

// A job that runs as a user whom the agent may not signal (root without CAP_KILL
// here, any user under a job that gained another's id) can't be killed. The lease
// is kept for as long as it lives, also by a task that is told to stop; the
// container's end takes the job along, and only then does another task take over.
func TestJobThatMayNotBeKilledKeepsTheLease(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skip(t, "a job of another user needs root")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		skip(t, "setpriv is not installed (util-linux)")
	}
	timing := brisk
	timing.StopGrace = time.Second
	w := newWorld(t, timing)
	w.letIn(filepath.Dir(built("solojob")), w.dir)
	if err := os.Chmod(w.recorder.Socket(), 0o777); err != nil {
		t.Fatal(err)
	}
	a := w.Start(Start{
		Name: "a", Status: []int{128 + 9},
		Wrap:    []string{"unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "setpriv", "--bounding-set=-kill", "--inh-caps=-kill", "--"},
		Command: []string{"--", "setpriv", "--reuid=" + stranger, "--regid=" + stranger, "--clear-groups", built("probe"), secret},
	})
	first := w.Life(1)
	a.PID = namespaceInit(t, first.PID)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)

	told := w.signalProcess(a.PID, syscall.SIGTERM, "agent a")
	kept := func() bool { _, over := first.Ended(); return !over && w.Row().Owner() == first.Owner }
	w.During("the job lives, and the lease is its task's", timing.Lease+2*timing.Poll, kept)
	if renewed := w.store.Find(Renew, a.Door, told); len(renewed) < 2 {
		t.Errorf("the lease was renewed %d times since the task was told to stop", len(renewed))
	}
	a.killed = true
	w.signalProcess(a.PID, syscall.SIGKILL, "the container of agent a")
	w.Dead(first)
	if second := w.Life(2); second.Owner != b.Owner() || second.Fence <= first.Fence {
		t.Errorf("%v follows %v", second, first)
	}
}

// letIn opens the folders of the test to users who are not root.
func (w *World) letIn(dirs ...string) {
	w.t.Helper()
	for _, dir := range dirs {
		if err := os.Chmod(dir, 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
}

// powerless checks what the kernel says of a process.
func (w *World) powerless(who string, pid int, root bool) {
	w.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		w.t.Fatal(err)
	}
	uid := stranger
	if root {
		uid = "0"
	}
	const none = "0000000000000000"
	for field, want := range map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1",
		"Uid": strings.Join([]string{uid, uid, uid, uid}, "\t"),
	} {
		if !strings.Contains(string(raw), field+":\t"+want+"\n") {
			w.t.Errorf("%s is not what it should be, of which %s %s is a part:\n%s", who, field, want, raw)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) { // proc(5): the fifth field is the place, the sixth the options
		if f := strings.Fields(line); len(f) > 5 && f[4] == "/" && !strings.HasPrefix(f[5], "ro") {
			w.t.Errorf("%s can write to the root file system: %s", who, line)
		}
	}
}
