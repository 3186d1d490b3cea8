//go:build !linux

package runner

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const procfs = ""

// ownProgram is what to execute to get this program again.
func ownProgram() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("the path of this program can't be found, and its supervisor not be started: %w", err)
	}
	return path, nil
}

func checkSystem() error { return nil }

// adoptOrphans can't be done here: a descendant that leaves the job's group is lost.
func adoptOrphans() error { return nil }

func nameProcess(string) {}

func supervisorAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func jobAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// sealDescriptors marks everything beyond standard error close-on-exec.
func sealDescriptors() error {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return fmt.Errorf("inherited file descriptors can't be listed: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("inherited file descriptors can't be listed: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

func forgetProgram() {}

// cleanSignals has nothing to do: what is inherited can't be changed here
// without libc.
func cleanSignals() error { return nil }
