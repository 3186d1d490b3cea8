package witness

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Closed reports whether the last copy of the connection's other end is
// closed. A process closes its files before its parent can learn of its
// death, so this is never late for who goes by wait4.
func Closed(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	closed := false
	err = raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		for {
			n, err := unix.Poll(look, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			closed = n > 0 && look[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
			return
		}
	})
	return closed || err != nil
}

// PeerPID is the process that made the connection, as this side's PID namespace
// counts; 0 if the kernel doesn't say.
func PeerPID(conn *net.UnixConn) int {
	pid := 0
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				pid = int(cred.Pid)
			}
		})
	}
	return pid
}
