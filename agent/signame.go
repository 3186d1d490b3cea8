package agent

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName is the name that people know a signal by, such as SIGKILL.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return s.String()
}
