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
	"time"
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

// signal sends a signal if it is still the same process, and one of ours:
// whatever goes wrong here, nobody else on the machine may be hit.
func (p Process) signal(s syscall.Signal) {
	if now, ok := look(p.pid); ok && p.pid > 1 && now.started == p.started && p.ours() {
		_ = syscall.Kill(p.pid, s) // it may end just now
	}
}

// ours reports whether a process executes one of the programs that were built
// for this torture, or has its mark.
func (p Process) ours() bool {
	if p.runs(program("solojob")) || p.runs(program("actor")) {
		return true
	}
	environ := p.environ()
	for tries := 0; len(environ) == 1 && tries < 20; tries++ { // it is just executing a program
		time.Sleep(time.Millisecond)
		environ = p.environ()
	}
	return slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, markPrefix()) })
}

// markPrefix begins the mark of each world of this process.
func markPrefix() string { return fmt.Sprintf("TORTURE_WORLD=%d-", os.Getpid()) }

// environ is one empty text if the process ends just now.
func (p Process) environ() []string {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	return strings.Split(string(environ), "\x00")
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

// below are the descendants of a process, parents first. A process that was
// never found has none: the kernel's own have the parent 0.
func below(pid int) []Process {
	if pid <= 1 {
		return nil
	}
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
	return slices.DeleteFunc(all(), func(p Process) bool { return !slices.Contains(p.environ(), variable) })
}

// executing are the processes of a program.
func executing(path string) []Process {
	return slices.DeleteFunc(all(), func(p Process) bool { return !p.runs(path) })
}

func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}
