//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// secret is among the arguments of every job, and in no log.
const secret = "do-not-log-me"

// markName marks, in the environment, every process that a world has started,
// however deep, so that none can be left behind unnoticed.
const markName = "E2E_WORLD"

// close ends the world and checks what must hold whatever the test did:
//
//   - no two jobs of a lease were alive at once, by the kernel's word when one
//     began and by the jobs' own clocks; FENCE grew with each launch;
//   - the lease never left an owner whose job was alive;
//   - nothing was deleted, the item stayed under 1 KB, no attribute is one that
//     a table's TTL could act on, the fence never fell;
//   - every agent that is told to stop ends, with 0 unless the test says
//     otherwise, and holds no lease afterwards;
//   - every line of the log is a JSON object with lease and owner, and none
//     shows the job's arguments;
//   - nothing is left running.
func (w *World) close() {
	patience := patience
	if w.t.Failed() {
		patience /= 5 // what is broken is known, and need not be waited for again
	}
	problems := w.stopAll(patience)
	for _, l := range w.recorder.Lives() {
		select {
		case <-l.ended:
		case <-time.After(patience):
			problems = append(problems, fmt.Sprintf("%v outlives all agents", l))
		}
	}
	problems = append(problems, w.leftOver()...)

	owner := w.Row().Owner()
	for _, a := range w.agents {
		a.readers.Wait()
		problems = append(problems, a.logProblems()...)
		if owner != "" && a.Owner() == owner && !a.killed {
			problems = append(problems, fmt.Sprintf("agent %s ended, and the lease is still held in its name", a.Name))
		}
	}
	close(w.store.closed)
	for _, d := range w.store.doors {
		d.close()
	}
	w.recorder.close()
	problems = append(problems, w.recorder.problems()...)
	problems = append(problems, w.store.problems...)
	os.RemoveAll(w.dir)

	for _, p := range problems {
		w.t.Error(p)
	}
	if w.t.Failed() {
		w.t.Logf("what happened, in seconds:\n%s", w.story())
	}
}

// stopAll tells every agent that still runs to stop, as ECS would.
func (w *World) stopAll(patience time.Duration) []string {
	var problems []string
	for _, a := range w.agents {
		a.Signal(syscall.SIGTERM)
	}
	for _, a := range w.agents {
		select {
		case <-a.exited:
		case <-time.After(patience):
			problems = append(problems, fmt.Sprintf("agent %s does not end %v after SIGTERM", a.Name, patience))
			a.killed = true
			a.Signal(syscall.SIGKILL)
			<-a.exited
		}
		if code := a.Status(); !a.killed && !slices.Contains(a.statuses, code) && !a.jobWasTooYoung() {
			problems = append(problems, fmt.Sprintf("agent %s ended with %d, want %v", a.Name, code, a.statuses))
		}
	}
	return problems
}

// jobWasTooYoung reports whether the agent's job was ended by its SIGTERM, which
// the probe allows only in the milliseconds before it has a handler: an agent
// that took over while all were told to stop.
func (a *Agent) jobWasTooYoung() bool {
	if a.Status() != 128+int(syscall.SIGTERM) {
		return false
	}
	exited := a.Lines("job exited")
	return len(exited) > 0 && exited[len(exited)-1].Text("signal") != ""
}

// leftOver waits until no process of this world is left, and kills what stays.
func (w *World) leftOver() []string {
	mark := w.mark()
	deadline := time.Now().Add(patience / 3)
	for {
		left := processesWith(mark)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			problem := fmt.Sprintf("%d processes are left running, such as %d (%s)", len(left), left[0], commandLine(left[0]))
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return []string{problem}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *World) mark() string { return fmt.Sprintf("%s=%d-%d", markName, os.Getpid(), w.number) }

// processesWith lists the living processes with a variable in their environment.
func processesWith(variable string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []int
	for _, file := range files {
		environ, err := os.ReadFile(file) // empty for a zombie
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), variable) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/environ", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}
