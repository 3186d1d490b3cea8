package runner

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const procfs = "/proc"

// ownProgram is what to execute to get this program again, even if its file
// was replaced or removed meanwhile.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// checkSystem tells what this machine lacks, in a sentence.
func checkSystem() error {
	self, err := os.Readlink(procfs + "/self")
	if err != nil {
		return fmt.Errorf("/proc is not mounted (%w): the processes of the job can't be found without it; run with a proc file system at /proc", err)
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("/proc belongs to another PID namespace (there this process is %s, here %d): mount one of this namespace at /proc", self, os.Getpid())
	}
	return nil
}

// adoptOrphans makes this process a child subreaper.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("orphans can't be adopted (PR_SET_CHILD_SUBREAPER): %w", err)
	}
	return nil
}

// nameProcess sets what ps and top show instead of "exe".
func nameProcess(name string) {
	if p, err := unix.BytePtrFromString(name); err == nil {
		unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(p)), 0, 0, 0)
	}
}

// supervisorAttributes put the supervisor into a session of its own, so that
// neither Ctrl-Z nor a signal to the agent's group reaches it. CONT at the
// agent's death wakes a stopped one, which then reads end-of-file.
func supervisorAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGCONT}
}

// jobAttributes put the job into a session of its own. KILL at the
// supervisor's death is quicker than the agent's sweep, which follows.
func jobAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// sealDescriptors marks everything beyond standard error close-on-exec,
// whatever we inherited.
func sealDescriptors() error {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	// CLOSE_RANGE_CLOEXEC needs Linux 5.11; Fargate runs 5.10.
	names, err := readNames(procfs + "/self/fd")
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

func readNames(path string) ([]string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// sigaction is the kernel's struct sigaction (not libc's), on amd64, arm64,
// 386 and arm alike.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const (
	lastSignal = 64
	sigDefault = 0
	sigIgnore  = 1
)

// cleanSignals makes what this thread starts begin with an empty mask and
// default dispositions, whatever we inherited. Caught signals are at their
// default after execve(2) anyway; ignored ones are not, and Go leaves some
// alone (TSTP, TTIN, TTOU, CONT, 32–34). The mask is the forking thread's:
// Go saves it right before a fork and restores it in the child.
func cleanSignals() error {
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		var action sigaction
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&action)), unsafe.Sizeof(action.mask), 0, 0)
		if errno != 0 || action.handler != sigIgnore {
			continue
		}
		action = sigaction{handler: sigDefault}
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0); errno != 0 {
			return fmt.Errorf("the inherited disposition of signal %d can't be reset: %w", sig, errno)
		}
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, new(unix.Sigset_t), nil); err != nil {
		return fmt.Errorf("the inherited signal mask can't be cleared: %w", err)
	}
	return nil
}
