package demo

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// undertaker is a process that outlives the demo by an instant: it learns which
// processes there are from its standard input, line by line (+pid, -pid), and
// when that ends, because the demo has ended, even by SIGKILL, it kills those that are left.
func undertaker() error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	charges := map[int]bool{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var sign byte
		var pid int
		if _, err := fmt.Sscanf(lines.Text(), "%c%d", &sign, &pid); err != nil || pid <= 1 {
			return fmt.Errorf("not a process: %q", lines.Text())
		}
		if sign == '+' {
			charges[pid] = true
		} else {
			delete(charges, pid)
		}
	}
	for pid := range charges {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	return nil
}

// charge is the demo's side of an undertaker.
type charge struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func hireUndertaker(self string) (*charge, error) {
	cmd := exec.Command(self, PartCommand, "undertaker")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C and a closed terminal are not its business
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &charge{cmd, in}, nil
}

// watch has a process killed should the demo die first. An error would mean
// that the undertaker is dead: then there is none.
func (c *charge) watch(pid int) { fmt.Fprintf(c.in, "+%d\n", pid) }

// forget is called once a process has been waited for: its number may be another's now.
func (c *charge) forget(pid int) { fmt.Fprintf(c.in, "-%d\n", pid) }

// dismiss ends the undertaker.
func (c *charge) dismiss() {
	c.in.Close()
	c.cmd.Wait()
}
