//go:build linux

package torture

import (
	"os/exec"
	"syscall"
	"testing"
)

// Whatever the torture looks for and does not find, it hits nobody else: not the
// children of the kernel, and no process without its mark.
func TestOnlyOursAreSignalled(t *testing.T) {
	if found := below(0); found != nil {
		t.Errorf("below nothing there are %d processes", len(found))
	}
	for _, marked := range []bool{false, true} {
		bystander := exec.Command("sleep", "1000")
		if marked {
			bystander.Env = []string{markPrefix() + "test"}
		}
		if err := bystander.Start(); err != nil {
			t.Fatal(err)
		}
		p, ok := look(bystander.Process.Pid)
		if !ok {
			t.Fatal("a process that was started is not there")
		}
		ended := make(chan error, 1)
		go func() { ended <- bystander.Wait() }()
		p.signal(syscall.SIGTERM)
		if !marked { // had it been hit, it would end by that, and not by this
			_ = bystander.Process.Kill()
		}
		<-ended
		want := syscall.SIGKILL
		if marked {
			want = syscall.SIGTERM
		}
		if got := bystander.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != want {
			t.Errorf("marked %v: a process was ended by %v, want %v", marked, got, want)
		}
	}
}
