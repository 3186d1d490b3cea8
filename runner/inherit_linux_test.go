package runner

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unpleasantParent starts the agent from a parent that ignores and blocks all
// signals, has a file limit of its own, and leaks open files.
func unpleasantParent(cmd *exec.Cmd) { cmd.Args = []string{cmd.Path, roleParent} }

// The job sees default dispositions and an empty mask, whatever its agent's
// parent has ignored and blocked.
func TestTheJobSeesNoInheritedSignalState(t *testing.T) {
	a := startAgent(t, standard("/bin/cat", "/proc/self/status"), unpleasantParent)
	a.runToEnd()
	status := a.read()
	for _, set := range []string{"SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd"} {
		if got := statusField(t, status, set); strings.Trim(got, "0") != "" {
			t.Errorf("the job starts with %s %s", set, got)
		}
	}
	a.quit()
}

func statusField(t *testing.T, status, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + `:\s*(\S+)`).FindStringSubmatch(status)
	if m == nil {
		t.Fatalf("no %s in %q", name, status)
	}
	return m[1]
}

// The parent of these tests is as unpleasant as it says: without the agent's
// care, a program started from it would see all of it.
func TestTheUnpleasantParentIsUnpleasant(t *testing.T) {
	a := startAgent(t, standard(shell(`exec sleep 1000`)...), unpleasantParent)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.pid))
	if err != nil {
		t.Fatal(err)
	}
	// HUP, INT, TSTP, TTIN, TTOU remain ignored in a Go program (and so would
	// they in what it starts); all others are caught by its runtime.
	if got := statusField(t, string(status), "SigIgn"); got == strings.Repeat("0", 16) {
		t.Error("the agent ignores no signal")
	}
	if got := statusField(t, string(status), "SigBlk"); got == strings.Repeat("0", 16) {
		t.Error("the agent blocks no signal")
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.pid))
	if err != nil || len(files) < 15 {
		t.Errorf("the agent has only %d files open (%v)", len(files), err)
	}
	a.quit()
}

// An agent whose parent has blocked and ignored signals still hears TERM.
func TestTheAgentHearsTermWhateverItInherited(t *testing.T) {
	a := startAgent(t, standard("/bin/true"), unpleasantParent)
	send(t, a.pid, syscall.SIGTERM)
	if e := a.expect("signal"); syscall.Signal(e.Code) != syscall.SIGTERM {
		t.Errorf("it heard %v", syscall.Signal(e.Code))
	}
	a.quit()
}

// The job sees standard input, output and error, and no other open file.
func TestTheJobSeesNoStrayDescriptors(t *testing.T) {
	a := startAgent(t, standard("/bin/ls", "/proc/self/fd"), unpleasantParent)
	a.runToEnd()
	got := strings.Fields(a.read())
	if want := []string{"0", "1", "2", "3"}; !slices.Equal(got, want) { // 3 is ls's own, on the directory
		t.Errorf("the job has open %v, want %v", got, want)
	}
	a.quit()
}

// The job has the file limit that the agent was started with, soft and hard,
// although Go raises the agent's and the supervisor's own.
func TestTheJobHasTheContainersFileLimit(t *testing.T) {
	a := startAgent(t, standard(shell(`echo soft $(ulimit -Sn) hard $(ulimit -Hn)`)...), unpleasantParent)
	a.runToEnd()
	if want := fmt.Sprintf("soft %d hard %d\n", strangeLimit, 2*strangeLimit); a.read() != want {
		t.Errorf("the job sees %q, want %q", a.read(), want)
	}
	var own unix.Rlimit
	if err := unix.Prlimit(a.pid, unix.RLIMIT_NOFILE, nil, &own); err != nil || own.Cur <= strangeLimit {
		t.Errorf("the agent's own limit is %d (%v), not raised: this test proves nothing", own.Cur, err)
	}
	a.quit()
}

// Arguments and environment arrive byte for byte, and nothing is added.
func TestArgumentsAndEnvironmentArriveVerbatim(t *testing.T) {
	command := []string{"/bin/sh", "-c", `for a; do printf '<%s>' "$a"; done; echo; exec cat /proc/self/environ`, "sh",
		"two words", "", "--", "-x", "100%s%d", `q"u'o\te`, "new\nline", "café", "$HOME", "*"}
	a := startAgent(t, standard(command...))
	a.runToEnd("FENCE=7", "EMPTY=", "SPACES= a b ")
	args, env, _ := strings.Cut(a.read(), ">\n")
	var want strings.Builder
	for _, arg := range command[4:] {
		want.WriteString("<" + arg + ">")
	}
	if args+">" != want.String() {
		t.Errorf("arguments arrived as %q, want %q", args+">", want.String())
	}
	got := strings.Split(strings.TrimSuffix(env, "\x00"), "\x00")
	// (That bytes which aren't UTF-8 pass, TestFramesSurviveAPipeThatIsTooSmall
	// shows: the JSON by which a test talks to its agent would spoil them.)
	got = slices.DeleteFunc(got, func(v string) bool {
		return v == a.tag || strings.HasPrefix(v, "PATH=") || strings.HasPrefix(v, "PWD=")
	})
	slices.Sort(got)
	if wantEnv := []string{"EMPTY=", "FENCE=7", "SPACES= a b "}; !slices.Equal(got, wantEnv) {
		t.Errorf("the environment is %q, want %q", got, wantEnv)
	}
	a.quit()
}

// With Stdin the job reads the agent's own standard input, without it
// /dev/null: never something that could block for ever unnoticed.
func TestStandardInput(t *testing.T) {
	for _, inherit := range []bool{true, false} {
		t.Run(fmt.Sprintf("inherited %v", inherit), func(t *testing.T) {
			s := standard(shell(`readlink /proc/self/fd/0; cat`)...)
			s.Options.Stdin = inherit
			a := startAgent(t, s, func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader("what was typed\n") })
			a.runToEnd()
			if got := strings.Contains(a.read(), "what was typed"); got != inherit {
				t.Errorf("the job read %q", a.read())
			}
			if got := strings.HasPrefix(a.read(), "/dev/null"); got == inherit {
				t.Errorf("the job read %q", a.read())
			}
			a.quit()
		})
	}
}

// The job's output is the agent's own descriptor, in the same mode: a line of
// 1 MiB passes whole, and a job that ends leaves nothing in between. O_NONBLOCK
// is never set on it.
func TestOutputIsTheContainersOwn(t *testing.T) {
	s := standard(shell(`head -c 1048576 /dev/zero | tr '\0' x; echo; echo to stderr >&2; cat /proc/self/fdinfo/1`)...)
	r, w := osPipe(t)
	defer r.Close()
	content := make(chan string)
	go func() {
		var all strings.Builder
		buf := make([]byte, 1<<10) // slowly
		for {
			n, err := r.Read(buf)
			all.Write(buf[:n])
			if err != nil {
				content <- all.String()
				return
			}
		}
	}()
	flagsBefore, err := unix.FcntlInt(w.Fd(), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, s, func(cmd *exec.Cmd) { cmd.Stdout = w })
	a.runToEnd()
	flagsAfter, err := unix.FcntlInt(w.Fd(), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	a.quit()
	w.Close()
	got := <-content
	if !strings.HasPrefix(got, strings.Repeat("x", 1<<20)+"\n") {
		t.Errorf("a line of 1 MiB arrived changed (%d bytes in all)", len(got))
	}
	if flagsAfter != flagsBefore {
		t.Errorf("the flags of the job's output changed from %#o to %#o", flagsBefore, flagsAfter)
	}
	if !strings.Contains(a.read(), "to stderr") {
		t.Error("stderr did not arrive")
	}
}

// A stderr that nobody reads any more ends neither agent nor supervisor.
func TestAClosedStderrEndsNobody(t *testing.T) {
	r, w := osPipe(t)
	a := startAgent(t, standard(shell(`sleep 1000`)...), func(cmd *exec.Cmd) { cmd.Stderr = w })
	w.Close()
	r.Close()
	a.launch()
	a.expect("started")
	supervisor := a.supervisor()
	send(t, supervisor, syscall.SIGKILL) // the agent logs that
	a.expect("done")
	if r := a.supervisor(); r == supervisor {
		t.Error("the same supervisor is still there")
	}
	a.quit()
}

// The job is the leader of a session and a group of its own; so is the
// supervisor, apart from the agent.
func TestSessionsAreApart(t *testing.T) {
	a := startAgent(t, standard(shell(`exec sleep 1000`)...))
	a.launch()
	job, supervisor := a.expect("started").Pid, a.supervisor()
	for _, pid := range []int{job, supervisor} {
		sid, err1 := unix.Getsid(pid)
		pgid, err2 := unix.Getpgid(pid)
		if err1 != nil || err2 != nil || sid != pid || pgid != pid {
			t.Errorf("process %d is in session %d, group %d (%v, %v)", pid, sid, pgid, err1, err2)
		}
	}
	a.order(instruction{Do: "kill", Reason: LeaseTaken})
	a.expect("done")
	a.quit()
}

// The supervisor is deaf to every signal that would stop the agent or that is
// the job's: only its agent ends it.
func TestTheSupervisorIsDeaf(t *testing.T) {
	a := startAgent(t, standard(shell(`echo up; exec sleep 1000`)...))
	a.launch()
	a.expect("started")
	a.awaitOutput("up")
	supervisor := a.supervisor()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGPIPE} {
		send(t, supervisor, sig)
	}
	a.order(instruction{Do: "stop", For: time.Hour})
	if r := a.expect("done").Result; r.Reason != Stopped || r.Signal != syscall.SIGTERM {
		t.Errorf("reported as %+v", r)
	}
	a.quit()
}

// Without /proc, or with that of another PID namespace, Host refuses, with a
// sentence, before body runs.
func TestHostRefusesAForeignProc(t *testing.T) {
	needPIDNamespace(t)
	a := startAgentUnready(t, standard("/bin/true"), inPIDNamespace) // but no /proc of its own
	e := a.expect("returned")
	if !strings.Contains(e.Error, "/proc") {
		t.Errorf("it said %q", e.Error)
	}
	<-a.waited
}

// On a terminal the job can read what is typed, and Ctrl-C reaches the agent
// alone: the job is told to stop by it, not by the terminal.
func TestOnATerminal(t *testing.T) {
	terminal, slave := openTerminal(t)
	s := standard(shell(`trap 'echo job got INT' INT; read line; echo "read: $line"; while :; do sleep 0.05; done`)...)
	s.Options.Stdin = true
	a := startAgent(t, s, func(cmd *exec.Cmd) {
		cmd.Stdin = slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	})
	a.launch()
	a.expect("started")
	if _, err := terminal.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	a.awaitOutput("read: hello")
	if _, err := terminal.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if e := a.expect("signal"); syscall.Signal(e.Code) != syscall.SIGINT {
		t.Errorf("the agent got %v", syscall.Signal(e.Code))
	}
	a.order(instruction{Do: "stop", For: time.Hour})
	a.expect("done")
	if strings.Contains(a.read(), "job got INT") {
		t.Error("Ctrl-C reached the job")
	}
	a.quit()
}

// openTerminal makes a pseudo-terminal (pty(7)).
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}
