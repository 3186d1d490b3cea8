//go:build linux

package e2e

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal: what a person types goes into the
// first file, the second is the terminal that programs see (pty(7)).
func openTerminal(t *testing.T) (person, terminal *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		skip(t, "no pseudo-terminals here: "+err.Error())
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return person, terminal
}

// onTerminal starts an agent the way a shell on a terminal does.
func (w *World) onTerminal(name string, terminal *os.File, env map[string]string) *Agent {
	w.t.Helper()
	env["PROBE_MODE"] = "terminal"
	a := w.Start(Start{
		Name: name, Wrap: []string{built("probe")}, Env: env, Stdin: terminal,
		Attr: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0},
	})
	shell := a.PID
	w.Until("the shell on the terminal has started the agent", patience, func() bool {
		children := spare(w.t, shell, 0)
		if len(children) == 1 {
			a.PID = children[0]
		}
		return len(children) == 1
	})
	return a
}

func typed(t *testing.T, person *os.File, keys string) {
	t.Helper()
	if _, err := person.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// stateOf is the letter by which /proc tells a process's state: T is stopped.
func stateOf(pid int) string {
	var id int
	var name, state string
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		_, _ = fmt.Sscan(string(stat), &id, &name, &state)
	}
	return state
}

// Ctrl-Z on a terminal stops the agent; past the deadline the job is dead, and
// another task may take over. Brought back, the agent stands by.
func TestCtrlZ(t *testing.T) {
	t.Parallel()
	person, terminal := openTerminal(t)
	w := newWorld(t, brisk)
	a := w.onTerminal("a", terminal, map[string]string{"PROBE_ON_TERM": "ignore"})
	first := w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	typed(t, person, "\x1a")
	w.Until("the agent is stopped", patience, func() bool { return stateOf(a.PID) == "T" })
	if state := stateOf(first.PID); state == "T" {
		t.Errorf("the job was stopped along with its agent")
	}
	w.diesInTime(first, a)
	w.Life(2)
	w.standsBy(a, w.signalProcess(a.PID, syscall.SIGCONT, "agent a"))
}

// On a terminal the job can read what is typed, and Ctrl-C means stop.
func TestCtrlC(t *testing.T) {
	t.Parallel()
	person, terminal := openTerminal(t)
	w := newWorld(t, calm)
	a := w.onTerminal("a", terminal, map[string]string{"PROBE_STDIN": "1"})
	life := w.Life(1)
	typed(t, person, "hello job\n")
	w.Until("the job reads what is typed", patience, func() bool { return slices.Contains(life.Stdin(), "hello job") })
	typed(t, person, "\x03")
	w.Dead(life)
	if status := a.Ended(); status != 0 {
		t.Errorf("the agent ended with %d", status)
	}
	if _, got := life.Signalled("TERM"); !got {
		t.Errorf("the job got no SIGTERM")
	}
}
