//go:build linux

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tree is how many processes a job has in the tests of sudden death.
const tree = 200

// firm is for sudden deaths: the job must be dead long before the deadline
// would have killed it.
var firm = Timing{
	Lease: 8 * time.Second, Heartbeat: time.Second, Poll: 500 * time.Millisecond,
	LossGrace: 1500 * time.Millisecond, KillMargin: time.Second, StopGrace: 10 * time.Second,
}

// atOnce is a generous bound for what must not wait for the deadline of firm,
// which comes no earlier than 6 s after a heartbeat.
const atOnce = 4 * time.Second

var ofTree = map[string]string{"PROBE_TREE": strconv.Itoa(tree - 1), "PROBE_ON_TERM": "ignore"}

// SIGKILL to the agent: the whole tree of its job dies at once, and another
// task takes over when the lease has run out.
func TestKilledAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, firm)
	a := w.Start(Start{Name: "a", Env: ofTree})
	first := w.Life(1)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	w.takeover(a, first, b)
}

// As PID 1 of a container the agent takes everything along when it is killed.
func TestKilledAgentAsPID1(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		skip(t, "a PID namespace needs root")
	}
	w := newWorld(t, firm)
	a := w.Start(Start{
		Name: "a", Env: ofTree, Status: []int{128 + 9},
		Wrap: []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"},
	})
	first := w.Life(1)
	a.PID = namespaceInit(t, first.PID)
	b := w.Start(Start{Name: "b"})
	b.Logged("standing by", 1)
	w.takeover(a, first, b)
}

// namespaceInit finds the process that is PID 1 for a process.
func namespaceInit(t *testing.T, pid int) int {
	t.Helper()
	for pid > 1 {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
				if fields := strings.Fields(ids); len(fields) > 1 && fields[len(fields)-1] == "1" {
					return pid
				}
			}
		}
		pid = parentOf(pid)
	}
	t.Fatal("the job is in no PID namespace of its own")
	return 0
}

// takeover kills the first agent and watches the second take over.
func (w *World) takeover(a *Agent, first *Life, b *Agent) {
	w.t.Helper()
	before := processesWith(w.mark())
	if len(before) < tree {
		w.t.Fatalf("the job has no tree: %d processes", len(before))
	}
	a.killed = true
	killed := w.signalProcess(a.PID, syscall.SIGKILL, "agent a")
	dead := w.Dead(first)
	w.within(fmt.Sprintf("death of a tree of %d after its agent's", tree), dead.Sub(killed), atOnce)

	second := w.Life(2)
	acquired := w.store.Find(Acquire, b.Door, 0)
	writes := append(w.store.Find(Acquire, a.Door, 0), w.store.Find(Renew, a.Door, 0)...)
	last := writes[len(writes)-1].Applied
	if waited := acquired[0].Applied.Sub(last); waited < w.timing.Lease {
		w.t.Errorf("taken over %v after the last heartbeat of a lease of %v", waited, w.timing.Lease)
	}
	w.within("takeover after SIGKILL", second.Started.Sub(killed), w.timing.Lease+w.timing.Poll+5*time.Second)
	if how := b.Logged("lease acquired", 1).Text("how"); how != "expired" {
		w.t.Errorf("the lease was acquired as %q, want expired", how)
	}
}

// SIGKILL to the supervisor: the agent sweeps the job's tree and launches again
// under a new FENCE, without giving up the lease.
func TestKilledSupervisor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, firm)
	a := w.Start(Start{Name: "a", Env: ofTree})
	first := w.Life(1)
	killed := w.signalProcess(a.Supervisor(first), syscall.SIGKILL, "a's supervisor")
	dead := w.Dead(first)
	w.within(fmt.Sprintf("death of a tree of %d after its supervisor's", tree), dead.Sub(killed), atOnce)
	second := w.Life(2)
	if second.Owner != first.Owner || second.Fence != first.Fence+1 {
		t.Errorf("%v follows %v, want the same owner and the next FENCE", second, first)
	}
	if acquired := len(w.store.Find(Acquire, nil, 0)); acquired != 1 || len(w.store.Find(Claim, a.Door, 0)) != 1 {
		t.Errorf("the lease was acquired %d times, want one claim under the first acquisition", acquired)
	}
	second.Exit(0, 0)
	if status := a.Ended(); status != 0 {
		t.Errorf("the agent ended with %d, its job with 0", status)
	}
}
