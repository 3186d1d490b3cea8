package runner

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// waitForAll makes wait4 see children whatever signal announces their end.
const waitForAll = unix.WALL

// passes bounds one round of killTree: enough for the depth of any sane tree,
// and an end for one that grows as fast as it is killed (the next round follows).
const passes = 16

// killTree sends KILL to every descendant of this process, in passes over
// /proc until one finds nobody new. It reaps nobody in between: at the pids
// limit the dead keep the living from forking.
//
// Every group that a descendant is in gets the signal as a whole. That is what
// ends a fork loop: the kernel signals a group atomically, and refuses a fork
// to whoever has a signal pending. Only descendants can be in such a group,
// unless it is our own.
//
// One round is never proof of anything: go on until reap reports that none is left.
func killTree(procfs string, _ int) {
	self := os.Getpid()
	own := unix.Getpgrp()
	killed := make(map[int]bool)
	for range passes {
		groups := make(map[int]bool)
		fresh := false
		eachDescendant(procfs, self, func(pid, group int) {
			if killed[pid] {
				return
			}
			killed[pid], fresh = true, true
			// 0 and 1 are the groups of others: outside of our PID namespace,
			// and of its init.
			if group > 1 && group != own && !groups[group] {
				groups[group] = true
				unix.Kill(-group, unix.SIGKILL)
			}
			unix.Kill(pid, unix.SIGKILL)
		})
		if !fresh {
			return
		}
	}
}

// treeGone reports whether the run is over for sure, given what reap said.
func treeGone(none bool, _ int) bool { return none }

// eachDescendant visits the descendants of a process with their groups (zero
// if gone meanwhile), parents first. Each is visited before its children are looked up: a parent that was killed by then
// has no children any more (they are ours, for the next pass), and forks none.
func eachDescendant(procfs string, of int, visit func(pid, group int)) {
	children, err := childrenFromTasks(procfs, of)
	if errors.Is(err, fs.ErrNotExist) { // a kernel without CONFIG_PROC_CHILDREN
		eachDescendantByParent(procfs, of, visit)
		return
	}
	for len(children) > 0 {
		pid := children[0]
		group, _ := unix.Getpgid(pid)
		visit(pid, group)
		more, _ := childrenFromTasks(procfs, pid) // gone meanwhile: no children
		children = append(children[1:], more...)
	}
}

// childrenFromTasks reads /proc/PID/task/*/children (proc(5)): the children
// that each thread of the process has. The error tells a kernel without these files.
func childrenFromTasks(procfs string, pid int) ([]int, error) {
	tasks := procfs + "/" + strconv.Itoa(pid) + "/task"
	dir, err := os.Open(tasks)
	if err != nil {
		return nil, err
	}
	threads, _ := dir.Readdirnames(-1)
	dir.Close()
	var children []int
	var missing error
	for _, tid := range threads {
		list, err := os.ReadFile(tasks + "/" + tid + "/children")
		if err != nil {
			missing = err // or the thread has ended
			continue
		}
		missing = nil
		for field := range bytes.FieldsSeq(list) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, child)
			}
		}
	}
	if len(children) == 0 {
		return nil, missing
	}
	return children, nil
}

// eachDescendantByParent finds the descendants from every process's parent.
func eachDescendantByParent(procfs string, of int, visit func(pid, group int)) {
	dir, err := os.Open(procfs)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	children := make(map[int][]process)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent, p, ok := readProcess(procfs, pid); ok {
			children[parent] = append(children[parent], p)
		}
	}
	queue := children[of]
	for len(queue) > 0 {
		p := queue[0]
		visit(p.pid, p.group)
		queue = append(queue[1:], children[p.pid]...)
	}
}

type process struct{ pid, group int }

// readProcess reads a process's parent and group from /proc/PID/stat. The name
// before them stands in parentheses and may itself contain any: the last one
// closes it (proc(5)).
func readProcess(procfs string, pid int) (parent int, p process, ok bool) {
	stat, err := os.ReadFile(procfs + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, process{}, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // state, parent, group, …
	if len(fields) < 3 {
		return 0, process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return parent, process{pid, group}, err1 == nil && err2 == nil
}

// signalGroup sends a signal to the job's group. The caller has not reaped the
// group's leader, so the number is still the job's.
func signalGroup(leader int, sig syscall.Signal) { unix.Kill(-leader, sig) }
