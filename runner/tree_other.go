//go:build !linux

package runner

import (
	"errors"
	"syscall"
)

const waitForAll = 0

// killTree kills the job's process group: all that can be found without subreapers.
func killTree(_ string, leader int) {
	if leader > 0 {
		syscall.Kill(-leader, syscall.SIGKILL)
	}
}

// treeGone reports whether the job's group is empty. (That a process is a
// zombie which somebody else must reap can't be told from its being alive.)
func treeGone(none bool, leader int) bool {
	return none && (leader == 0 || errors.Is(syscall.Kill(-leader, 0), syscall.ESRCH))
}

// signalGroup sends a signal to the job's group. The caller has not reaped the
// group's leader, so the number is still the job's.
func signalGroup(leader int, sig syscall.Signal) { syscall.Kill(-leader, sig) }
