package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// killStrays kills every descendant of the test process. It reaps one by one:
// the agents are waited for by os/exec.
func killStrays() {
	for deadline := time.Now().Add(testPatience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		left := 0
		eachDescendant("/proc", os.Getpid(), func(pid, _ int) {
			left++
			unix.Kill(pid, unix.SIGKILL)
			unix.Wait4(pid, nil, unix.WNOHANG, nil)
		})
		if left == 0 {
			return
		}
	}
}

// settleIn makes the agent's surroundings what the test asked for.
func settleIn(s setup) error {
	if s.MountProc {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("making mounts private: %w", err)
		}
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return fmt.Errorf("mounting /proc: %w", err)
		}
	}
	if s.Processes > 0 {
		limit := syscall.Rlimit{Cur: uint64(s.Processes), Max: uint64(s.Processes)}
		if err := unix.Prlimit(0, unix.RLIMIT_NPROC, (*unix.Rlimit)(unsafe.Pointer(&limit)), nil); err != nil {
			return fmt.Errorf("RLIMIT_NPROC: %w", err)
		}
		if err := syscall.Setgid(lonelyUser); err != nil {
			return fmt.Errorf("setgid: %w", err)
		}
		if err := syscall.Setuid(lonelyUser); err != nil {
			return fmt.Errorf("setuid: %w", err)
		}
	}
	return nil
}

// lonelyUser has no other processes, so that its limit of them is ours alone.
const lonelyUser = 61017

// inPIDNamespace makes the agent PID 1.
func inPIDNamespace(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
}

// needPIDNamespace skips where none can be made.
func needPIDNamespace(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/bin/true")
	inPIDNamespace(cmd)
	if err := cmd.Run(); err != nil {
		t.Skipf("no PID namespace can be made here: %v", err)
	}
}

// everyPlace runs a test with the agent as an ordinary process and as PID 1.
func everyPlace(t *testing.T, test func(t *testing.T, start func(*testing.T, setup) *agent)) {
	t.Run("ordinary", func(t *testing.T) {
		test(t, func(t *testing.T, s setup) *agent { return startAgent(t, s) })
	})
	t.Run("PID 1", func(t *testing.T) {
		needPIDNamespace(t)
		test(t, func(t *testing.T, s setup) *agent {
			s.MountProc = true
			return startAgent(t, s, inPIDNamespace)
		})
	})
}

// playUnpleasantParent ignores and blocks every signal, has a file limit of
// its own and open files that are not close-on-exec, and becomes an agent.
func playUnpleasantParent() int {
	runtime.LockOSThread()
	signal.Ignore() // everything that Go knows
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		if sig == uintptr(unix.SIGCHLD) || sig == uintptr(unix.SIGURG) {
			continue // Go needs them until the exec; below
		}
		ignore(sig)
	}
	for range 10 {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil { // not close-on-exec
			return 97
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: strangeLimit, Max: 2 * strangeLimit}); err != nil {
		return 96
	}
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	ignore(uintptr(unix.SIGCHLD))
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return 95
	}
	err := syscall.Exec("/proc/self/exe", []string{os.Args[0], roleAgent}, os.Environ())
	fmt.Fprintln(os.Stderr, err)
	return 94
}

const strangeLimit = 345

func ignore(sig uintptr) {
	action := sigaction{handler: sigIgnore}
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(action.mask), 0, 0)
}

// playEscape is a process that does all it can to survive: twice forked, in a
// session of its own, and deaf. Its arguments: how many times still to fork.
func playEscape(args []string) int {
	signal.Ignore()
	if len(args) == 0 || args[0] == "" {
		fmt.Println("escaped")
		for {
			time.Sleep(time.Hour)
		}
	}
	_, err := syscall.ForkExec("/proc/self/exe", []string{os.Args[0], roleEscape, args[0][1:]}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if errors.Is(err, syscall.EAGAIN) {
		return 93
	}
	return 0
}

// playForkLoop forks without end and without a Go runtime in the children:
// at the limit each process tries again and again, and says so once.
func playForkLoop(ownSessions bool) int {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	pause := unix.Timespec{Nsec: int64(5 * time.Millisecond)} // leaves some CPU to others on the machine
	said := false
	message := []byte(limitReached)
	for {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && pid == 0 && ownSessions {
			unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
		}
		if errno != 0 && !said {
			said = true
			unix.RawSyscall(unix.SYS_WRITE, 1, uintptr(unsafe.Pointer(&message[0])), uintptr(len(message)))
		}
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	}
}

const limitReached = "limit reached\n"
