package demo

import (
	"syscall"
	"time"
)

// sweep waits until every process that bears the demo's mark is gone, kills
// those that don't go by themselves, and returns how many those were.
//
// The jobs are known on every system, by their connections. Whatever else the
// tasks left behind is found where the system shows the environment of processes.
func (c *cast) sweep() (left int) {
	deadline := time.Now().Add(dissolution)
	counted := map[int]bool{}
	for {
		remaining := marked(envMark + "=" + c.mark)
		for _, run := range c.recorder.living("") {
			remaining[run.Pid] = true
		}
		if len(remaining) == 0 || time.Now().After(deadline.Add(dissolution)) {
			return len(counted)
		}
		if time.Now().After(deadline) {
			for pid := range remaining {
				counted[pid] = true
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(sweepEvery)
	}
}

// sweepEvery is the time between two looks at the process table.
const sweepEvery = 20 * time.Millisecond
