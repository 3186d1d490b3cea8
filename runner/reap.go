package runner

import (
	"errors"
	"syscall"
)

// reap collects every child that has ended and hands it to each. It reports
// true if no child is left, which for a subreaper means that no descendant is.
//
// It must run on the loop that also kills: a pid that was reaped may already
// be another process's.
func reap(each func(pid int, ws syscall.WaitStatus)) (none bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|waitForAll, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			return true
		case err != nil || pid == 0:
			return false
		case ws.Exited() || ws.Signaled():
			each(pid, ws)
		}
	}
}
