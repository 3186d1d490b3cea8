//go:build linux

package torture

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Process is one process that /proc shows. The time at which it started tells
// it from another that was given the same number.
type Process struct {
	pid, parent int
	started     string
}

func ownPIDs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
}

// look reads one process; false if it is not there, or a zombie.
func look(pid int) (Process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, false
	}
	// Field 2, the name, may contain anything; the state follows the last parenthesis.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, parent, started = 0, 1, 19
	if len(fields) <= started || fields[state] == "Z" || fields[state] == "X" {
		return Process{}, false
	}
	p := Process{pid: pid, started: fields[started]}
	p.parent, _ = strconv.Atoi(fields[parent])
	return p, true
}

// signal sends a signal if it is still the same process.
func (p Process) signal(s syscall.Signal) {
	if now, ok := look(p.pid); ok && now.started == p.started {
		_ = syscall.Kill(p.pid, s) // it may end just now
	}
}

// all are the processes of the machine.
func all() []Process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var found []Process
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if p, ok := look(pid); ok {
			found = append(found, p)
		}
	}
	return found
}

// below are the descendants of a process, parents first.
func below(pid int) []Process {
	everything := all()
	var found []Process
	for parents := []int{pid}; len(parents) > 0; parents = parents[1:] {
		for _, p := range everything {
			if p.parent == parents[0] {
				found = append(found, p)
				parents = append(parents, p.pid)
			}
		}
	}
	return found
}

// runs reports whether a process executes the program.
func (p Process) runs(path string) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid))
	return err == nil && exe == path
}

// marked are the processes with a variable in their environment.
func marked(variable string) []Process {
	return slices.DeleteFunc(all(), func(p Process) bool {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid)) // empty if it ends just now
		return !slices.Contains(strings.Split(string(environ), "\x00"), variable)
	})
}

// executing are the processes of a program.
func executing(path string) []Process {
	return slices.DeleteFunc(all(), func(p Process) bool { return !p.runs(path) })
}

func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}
