//go:build linux

package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Groups are the cgroups of one slot: one with a quarter of a core, one with
// little memory. A field is empty where the machine offers no such thing.
type Groups struct {
	starved, narrow string
}

const (
	cgroupRoot = "/sys/fs/cgroup"
	// A quarter of a core, the smallest that Fargate has.
	quota, period = 25_000, 100_000
	// memory is room for a task and its job, and not for a job that devours.
	memory = 200 << 20
)

// newGroups makes what it may. The name is that of the directories.
func newGroups(name string) *Groups {
	g := &Groups{}
	if controllers, err := os.ReadFile(cgroupRoot + "/cgroup.controllers"); err == nil { // version 2
		if strings.Contains(string(controllers), "cpu") {
			_ = os.WriteFile(cgroupRoot+"/cgroup.subtree_control", []byte("+cpu +memory"), 0) // what fails shows below
		}
		g.starved = group(cgroupRoot, name+"-cpu", map[string]string{"cpu.max": fmt.Sprintf("%d %d", quota, period)})
		g.narrow = group(cgroupRoot, name+"-memory", map[string]string{"memory.max": fmt.Sprint(memory)})
		return g
	}
	g.starved = group(cgroupRoot+"/cpu", name, map[string]string{
		"cpu.cfs_period_us": fmt.Sprint(period), "cpu.cfs_quota_us": fmt.Sprint(quota)})
	g.narrow = group(cgroupRoot+"/memory", name, map[string]string{"memory.limit_in_bytes": fmt.Sprint(memory)})
	return g
}

// group makes one cgroup, or returns "".
func group(parent, name string, settings map[string]string) string {
	dir := filepath.Join(parent, name)
	if _, err := os.Stat(parent + "/cgroup.procs"); err != nil {
		return ""
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return ""
	}
	for file, value := range settings {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
			_ = os.Remove(dir)
			return ""
		}
	}
	return dir
}

// told is the number that a file of a cgroup has after a name, 0 if none has.
func (g *Groups) told(name string, files ...string) int {
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, line := range strings.Split(string(text), "\n") {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				n, _ := strconv.Atoi(value)
				return n
			}
		}
	}
	return 0
}

// kills is how often the kernel killed something for its memory.
func (g *Groups) kills() int {
	return g.told("oom_kill", g.narrow+"/memory.oom_control", g.narrow+"/memory.events")
}

// waits is in how many periods the quota of CPU was used up.
func (g *Groups) waits() int { return g.told("nr_throttled", g.starved+"/cpu.stat") }

func (g *Groups) close() {
	for _, dir := range []string{g.starved, g.narrow} {
		if dir != "" {
			_ = os.Remove(dir) // fails while a process is left, which is reported as such
		}
	}
}
