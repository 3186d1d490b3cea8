//go:build linux

package torture

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Network is a network namespace with nothing but its loopback interface. No
// process needs to live in it: the descriptor keeps it. A Network without one
// is the machine's own, where root is lacking.
type Network struct {
	space    int // descriptor of the namespace, -1 for the machine's own
	socket   int // a socket in it, through which its interface is switched
	listener *os.File
	url      string
}

// onThread runs do on a thread of its own, which ends with it: what do does to
// the thread's namespace is gone afterwards.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: so the thread ends, too
		done <- do()
	}()
	return <-done
}

// newNetwork makes a namespace if it may, and listens on its loopback address.
func newNetwork(own bool) (*Network, error) {
	n := &Network{space: -1, socket: -1}
	err := onThread(func() error {
		if own {
			if err := n.unshare(); err != nil {
				return err
			}
		}
		return n.listen()
	})
	return n, err
}

func (n *Network) unshare() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("no network namespace: %w", err)
	}
	var err error
	if n.space, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if n.socket, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	return n.set(true)
}

func (n *Network) listen() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	n.url = "http://" + listener.Addr().String()
	n.listener, err = listener.(*net.TCPListener).File()
	return err
}

// set switches the loopback interface: down, nothing at all gets through.
func (n *Network) set(up bool) error {
	if n.socket < 0 {
		return nil
	}
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	flags := uint16(0)
	if up {
		flags = unix.IFF_UP | unix.IFF_RUNNING
	}
	request.SetUint16(flags)
	return unix.IoctlIfreq(n.socket, unix.SIOCSIFFLAGS, request)
}

// start starts a command in the namespace.
func (n *Network) start(c *exec.Cmd) error {
	if n.space < 0 {
		return c.Start()
	}
	return onThread(func() error {
		if err := unix.Setns(n.space, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return c.Start()
	})
}

func (n *Network) close() {
	if n.listener != nil {
		n.listener.Close()
	}
	if n.space >= 0 {
		unix.Close(n.socket)
		unix.Close(n.space)
	}
}

// mayNamespace reports whether this process may make namespaces; why not, if not.
func mayNamespace() error {
	n, err := newNetwork(true)
	n.close()
	if err != nil {
		return err
	}
	// The actor as the first process of a PID namespace, with a /proc of its own.
	c := exec.Command(program("actor"), "enter", "-proc", "--", "/bin/true")
	c.SysProcAttr = ownPIDs()
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("no PID namespace: %w %s", err, out)
	}
	return nil
}
