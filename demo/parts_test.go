package demo

import (
	"context"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"solojob/devstore"
)

// TestMain lets the test binary be the processes of the demo.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == PartCommand {
		os.Exit(Part(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// stage is what the parts of a demo need around them.
type stage struct {
	log      *chronicle
	store    *devstore.Store
	recorder *recorder
	self     string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{log: newChronicle()}
	w := newWitness(s.log)
	var err error
	if s.store, err = devstore.Start(context.Background(), devstore.Options{Table: registerTable, Observe: w.saw}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.store.Close)
	if s.recorder, err = listen(s.log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.recorder.close)
	if s.self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	return s
}

// job starts the demo's job as a process of its own. It is dead at the end of the test.
func (s *stage) job(t *testing.T, task, fence string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(s.self, PartCommand, "job")
	cmd.Env = append(os.Environ(), envTask+"="+task, envRecorder+"="+s.recorder.address(), envRegister+"="+s.store.URL(), "FENCE="+fence)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

// await waits for an entry.
func (s *stage) await(t *testing.T, k Kind, run int) Entry {
	t.Helper()
	var found Entry
	err := s.log.await(t.Context(), string(k), func(all []Entry) bool {
		i := slices.IndexFunc(all, func(e Entry) bool { return e.Kind == k && e.Run == run })
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Whoever has waited for a job's process finds that the recorder knows of its
// death: no successor can be launched so soon that a dead job would be
// taken for a living one.
func TestADeathIsKnownBeforeTheParentLearnsOfIt(t *testing.T) {
	s := newStage(t)
	for run := 1; run <= 10; run++ {
		cmd := s.job(t, "A", "1")
		s.await(t, Accepted, run)
		if living := s.recorder.living("A"); len(living) != 1 {
			t.Fatalf("%d jobs are alive, instead of one", len(living))
		}
		cmd.Process.Kill()
		cmd.Wait()
		if living := s.recorder.living(""); len(living) != 0 {
			t.Fatalf("the job with pid %d is dead and counts as alive", cmd.Process.Pid)
		}
	}
}

// A job that was frozen is alive, and one that starts beside it is seen to.
func TestAFrozenJobIsAlive(t *testing.T) {
	s := newStage(t)
	first := s.job(t, "A", "1")
	s.await(t, Accepted, 1)
	first.Process.Signal(syscall.SIGSTOP)
	s.job(t, "B", "2")
	if e := s.await(t, Launched, 2); !slices.Equal(e.Beside, []int{1}) {
		t.Errorf("the second job starts beside %v, instead of the first", e.Beside)
	}
	first.Process.Kill()
	s.await(t, Died, 1)
	s.job(t, "C", "3")
	if e := s.await(t, Launched, 3); !slices.Equal(e.Beside, []int{2}) {
		t.Errorf("the third job starts beside %v, instead of the second", e.Beside)
	}
}

// A job that is told to stop finishes its work, says so, and ends with success.
func TestAJobThatIsToldToStopEndsByItself(t *testing.T) {
	s := newStage(t)
	cmd := s.job(t, "A", "1")
	s.await(t, Accepted, 1)
	cmd.Process.Signal(syscall.SIGTERM)
	told, ended, died := s.await(t, Told, 1), s.await(t, Ended, 1), s.await(t, Died, 1)
	if !told.At.Before(ended.At) || died.At.Before(ended.At) {
		t.Errorf("told at %d, ended at %d, dead at %d", told.At, ended.At, died.At)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the job ended with %v", err)
	}
}

// The register refuses a FENCE that is lower than one it has seen, takes an
// equal or a higher one, and takes everything from a job that has none.
func TestTheRegisterRefusesAnOldFence(t *testing.T) {
	s := newStage(t)
	for run, c := range []struct {
		fence string
		want  Kind
	}{{"9", Accepted}, {"10", Accepted}, {"9", Refused}, {"10", Accepted}, {"", Accepted}} {
		cmd := s.job(t, "A", c.fence)
		e := s.await(t, c.want, run+1)
		cmd.Process.Kill()
		cmd.Wait()
		if e.Task != "A" {
			t.Errorf("the write of task A is put down to %q", e.Task)
		}
	}
}

// A job doesn't outlive the demo, whatever became of its agent.
func TestAJobEndsWithTheDemo(t *testing.T) {
	s := newStage(t)
	cmd := s.job(t, "A", "1")
	s.await(t, Accepted, 1)
	s.recorder.close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the job takes the end of the demo for a success")
		}
	case <-time.After(patience):
		t.Fatal("the job lives on")
	}
}

// The undertaker kills what it was charged with when its input ends, and
// spares what it was told to forget.
func TestTheUndertakerKillsWhatIsLeft(t *testing.T) {
	s := newStage(t)
	charged := s.job(t, "A", "1")
	s.await(t, Accepted, 1) // so that this one is the first run
	forgotten := s.job(t, "B", "1")
	s.await(t, Accepted, 2)
	charged.Process.Signal(syscall.SIGSTOP) // even then
	u, err := hireUndertaker(s.self)
	if err != nil {
		t.Fatal(err)
	}
	u.watch(charged.Process.Pid)
	u.watch(forgotten.Process.Pid)
	u.forget(forgotten.Process.Pid)
	u.dismiss()
	s.await(t, Died, 1)
	charged.Wait()
	if living := s.recorder.living("B"); len(living) != 1 {
		t.Error("the undertaker killed what it was told to forget")
	}
}

// Every process that bears the demo's mark is found, whoever its parent is.
func TestMarkedProcessesAreFound(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the environment of processes in /proc")
	}
	cmd := exec.Command("sleep", "60")
	cmd.Env = append(os.Environ(), "DEMO_MARK=unmistakable")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found := marked("DEMO_MARK=unmistakable")
	cmd.Process.Kill()
	cmd.Wait()
	if !found[cmd.Process.Pid] || len(found) != 1 {
		t.Errorf("found %v, instead of %d alone", found, cmd.Process.Pid)
	}
	if left := marked("DEMO_MARK=unmistakable"); len(left) != 0 {
		t.Errorf("found %v after its death", left)
	}
}

// A task that ends by itself ends the wait for what it should have done.
func TestADeserterEndsTheWait(t *testing.T) {
	log := newChronicle()
	d := &director{log: log}
	for _, e := range []Entry{{Kind: Stopped, Task: "A"}, {Kind: Gone, Task: "A"}, {Kind: Gone, Task: "B", Text: "exit status 78"}} {
		log.add(e)
	}
	if err := d.wait(t.Context(), "a miracle", func([]Entry) bool { return false }); err == nil || err.Error() != "task B ended by itself (exit status 78)" {
		t.Errorf("the wait ends with %v", err)
	}
}

// When nobody reads the timeline any more, the demo is told to end.
func TestATornPageEndsTheDemo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	r, w := io.Pipe()
	r.Close()
	(&page{Writer: w, torn: cancel}).Write([]byte("anyone?"))
	if ctx.Err() == nil {
		t.Error("the demo plays on to nobody")
	}
}
