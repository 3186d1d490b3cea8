package demo

import (
	"crypto/rand"
	"net"
)

// listenUnix listens on a name in the abstract namespace (unix(7)): the demo
// also runs in a container without a directory that it could write to.
func listenUnix() (*net.UnixListener, func(), error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@solojob-demo-" + rand.Text(), Net: "unix"})
	return l, func() {}, err
}
