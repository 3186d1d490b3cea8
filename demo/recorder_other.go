//go:build !linux

package demo

import (
	"net"
	"os"
	"path/filepath"
)

// listenUnix listens on a socket in a temporary directory.
func listenUnix() (*net.UnixListener, func(), error) {
	dir, err := os.MkdirTemp("", "solojob-")
	if err != nil {
		return nil, nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "demo"), Net: "unix"})
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return l, func() { os.RemoveAll(dir) }, nil
}
