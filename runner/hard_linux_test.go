package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Jobs that are hard to kill are dead, all of them, before the run is Done:
// killed by the supervisor, and killed by the agent when the supervisor is gone.
func TestHardToKill(t *testing.T) {
	jobs := []struct {
		name   string
		script string
	}{
		{"a shell that passes no signals on", `sleep 1000; echo never`},
		{"twice forked, in sessions of their own, deaf", `for i in 1 2 3; do "$ESCAPE" role=escape xx & done; wait; exec sleep 1000`},
		{"stopped", `trap '' TERM; (kill -STOP $$; kill -STOP 0) & while :; do sleep 0.05; done`},
		{"a chain that forks and ends", `link() { (link) & exit 0; }; (link) & exec sleep 1000`},
		{"a chain whose links have sessions of their own", `command -v setsid >/dev/null || S=; export LINK='${S-setsid} /bin/sh -c "$LINK" & exit 0'; ${S-setsid} /bin/sh -c "$LINK" & exec sleep 1000`},
		{"a deep tree", `deep() { if [ $1 -gt 0 ]; then (deep $(($1-1))) & wait; else sleep 1000; fi; }; trap '' TERM; deep 40`},
	}
	everyPlace(t, func(t *testing.T, start func(*testing.T, setup) *agent) {
		for _, job := range jobs {
			for _, how := range []string{"by the supervisor", "by the agent"} {
				t.Run(job.name+", "+how, func(t *testing.T) {
					a := start(t, standard(shell(`echo up; `+job.script)...))
					a.launch("ESCAPE=" + testBinary(t))
					a.expect("started")
					a.awaitOutput("up")
					if strings.Contains(job.script, "escape") {
						await(t, "all have escaped", func() bool { return strings.Count(a.read(), "escaped") == 3 })
					}
					if how == "by the agent" {
						send(t, a.supervisor(), syscall.SIGKILL)
					} else {
						a.order(instruction{Do: "kill", Reason: LeaseTaken})
					}
					a.expect("done")
					a.mustBeDead()
					a.quit()
				})
			}
		}
	})
}

// A tree of a thousand processes is dead before the run is Done, whoever has
// to kill it; half of them are in groups and sessions of their own.
func TestATreeOfAThousand(t *testing.T) {
	// Where setsid(1) is missing, all are in one group: weaker, but no reason to fail.
	script := `
		trap '' TERM
		command -v setsid >/dev/null && S=setsid
		i=0; while [ $i -lt 100 ]; do
			$S /bin/sh -c 'trap "" TERM; for j in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; wait' &
			i=$((i+1))
		done
		wait`
	for _, how := range []string{"by the supervisor", "by the agent", "by the supervisor without an agent"} {
		t.Run(how, func(t *testing.T) {
			a := startAgent(t, standard(shell(script)...))
			a.launch()
			a.expect("started")
			await(t, "a thousand processes are alive", func() bool { return len(a.jobProcesses()) > 1000 })
			began := time.Now()
			switch how {
			case "by the supervisor":
				a.order(instruction{Do: "kill", Reason: LeaseTaken})
				a.expect("done")
				a.mustBeDead()
			case "by the agent":
				send(t, a.supervisor(), syscall.SIGKILL)
				a.expect("done")
				a.mustBeDead()
			default:
				send(t, a.pid, syscall.SIGKILL)
				a.expectDead()
			}
			t.Logf("dead after %v", time.Since(began))
		})
	}
}

// A job that forks without end, up to the limit of processes, is dead before
// the run is Done; neither agent nor supervisor needs to make a thread for it.
func TestAForkLoopAtTheProcessLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the limit is that of a user who has no other processes")
	}
	for _, bomb := range []string{"in one group", "in sessions of their own"} {
		for _, how := range []string{"by the supervisor", "by the agent"} {
			t.Run(bomb+", "+how, func(t *testing.T) {
				s := standard("/proc/self/exe", roleForkLoop, bomb)
				s.Processes = 300
				a := startAgent(t, s)
				for range 2 { // the second shows that the next launch is served
					a.launch()
					a.expect("started")
					a.awaitOutput(limitReached)
					if how == "by the agent" {
						send(t, a.supervisor(), syscall.SIGKILL)
					} else {
						a.order(instruction{Do: "kill", Reason: LeaseTaken})
					}
					a.expect("done")
					a.mustBeDead()
				}
				a.quit()
			})
		}
	}
}

// Descendants are found through /proc/*/task/*/children where the kernel has
// these files, and through each process's parent where it hasn't, whatever the
// processes are called.
func TestDescendantsAreFoundWithAndWithoutChildrenFiles(t *testing.T) {
	parents := map[int]int{2: 1, 10: 2, 11: 10, 12: 10, 13: 11, 14: 13, 20: 2, 21: 20}
	want := []int{11, 12, 13, 14}
	for _, withChildren := range []bool{true, false} {
		root := t.TempDir()
		for pid, parent := range parents {
			dir := filepath.Join(root, strconv.Itoa(pid))
			// Children belong to threads: spread them over two.
			var lists [2][]string
			for child, p := range parents {
				if p == pid {
					lists[child%2] = append(lists[child%2], strconv.Itoa(child))
				}
			}
			for i, list := range lists {
				task := filepath.Join(dir, "task", strconv.Itoa(pid+1000*i))
				mustWrite(t, filepath.Join(task, "stat"), "")
				if withChildren {
					mustWrite(t, filepath.Join(task, "children"), strings.Join(list, " ")+" ")
				}
			}
			mustWrite(t, filepath.Join(dir, "stat"), fmt.Sprintf("%d (a) S 1 (b) R %d %d 0 0", pid, parent, pid))
		}
		mustWrite(t, filepath.Join(root, "meminfo"), "")
		var got []int
		eachDescendant(root, 10, func(pid, _ int) { got = append(got, pid) })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("with children files %v: %v, want %v", withChildren, got, want)
		}
	}
}

func mustWrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A process that exists but whose children can't be read is not mistaken for
// one on a kernel without such files.
func TestAChildlessProcessIsNotAKernelWithoutChildrenFiles(t *testing.T) {
	root := t.TempDir()
	mustWrite(t, filepath.Join(root, "10", "task", "10", "children"), "")
	if children, err := childrenFromTasks(root, 10); err != nil || len(children) > 0 {
		t.Errorf("%v, %v", children, err)
	}
}
