package health

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountNamespace names the container: the containers of a task may share their
// network (awsvpc, host) and their processes (pidMode), but each has a mount
// namespace of its own, and its number is unique on the machine while it lives.
const mountNamespace = "/proc/self/ns/mnt"

// address is where the agent of a lease answers in this container. The lease is
// in it for agents that run in one container, such as a solojob inside a job,
// and as a digest, since these names have room for 107 bytes.
func address(lease string) (string, error) {
	container, err := os.Readlink(mountNamespace)
	if err != nil {
		return "", fmt.Errorf("this container can't be told from others: %w", err)
	}
	digest := sha256.Sum256([]byte(lease))
	return fmt.Sprintf("@solojob-health/%s/%x", container, digest[:8]), nil // the @ stands for the abstract names' zero byte
}

func listen(lease string) (net.Listener, error) {
	name, err := address(lease)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", name)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("another process answers for this container and lease: is there a second agent? %w", err)
	}
	return listener, err
}

func dial(ctx context.Context, lease string) (net.Conn, error) {
	name, err := address(lease)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", name)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, errors.New("no agent for this lease runs in this container: is SOLOJOB_LEASE set in the container's environment, and the same for the check?")
	}
	if err != nil {
		return nil, fmt.Errorf("the agent is stuck: it takes no connection: %w", err)
	}
	if err := trust(conn.(*net.UnixConn)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// trust is nil for a connection to a process of this container. Anybody who
// shares the network could have taken the name.
func trust(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("it can't be told who answers: %w", failed)
	}
	return trustPeer(int(peer.Pid), int(peer.Uid))
}

func trustPeer(pid, uid int) error {
	ours, err := os.Readlink(mountNamespace)
	if err != nil {
		return err
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	switch {
	case pid == 0 || errors.Is(err, os.ErrNotExist): // a process that our PID namespace doesn't show, or that has ended
		return errors.New("who answers is no process of this container: another one has taken the agent's name")
	case err == nil && theirs != ours, err != nil && uid != os.Getuid():
		return fmt.Errorf("who answers, process %d, belongs to another container: it has taken the agent's name", pid)
	}
	// Where the agent's namespace may not be looked at (proc(5), PTRACE_MODE_READ),
	// as when the binary is not readable, being the same user has to do.
	return nil
}
