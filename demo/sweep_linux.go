package demo

import (
	"bytes"
	"os"
	"strconv"
)

// marked finds the processes that have the given variable in their environment.
func marked(variable string) map[int]bool {
	found := map[int]bool{}
	processes, _ := os.ReadDir("/proc")
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile("/proc/" + p.Name() + "/environ") // fails for others' processes, and is empty for zombies
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if string(v) == variable {
				found[pid] = true
			}
		}
	}
	return found
}
