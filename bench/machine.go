//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine says where the numbers come from.
func machine(o options) table {
	return table{
		ID:     "machine",
		Header: []string{"", "measured here"},
		Rows: [][]string{
			{"when", time.Now().UTC().Format("2006-01-02 15:04 UTC")},
			{"processor", fmt.Sprintf("%d × %s", runtime.NumCPU(), procLine("/proc/cpuinfo", "model name"))},
			{"memory", procLine("/proc/meminfo", "MemTotal")},
			{"kernel", kernel()},
			{"Go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
			{"load average at the start", loadNow()},
			{"nice value of everything measured", fmt.Sprint(o.nice)},
		},
	}
}

// takePriority gives all threads a nice value (on Linux it is a thread's), which
// what they start inherits.
func takePriority(nice int) error {
	if nice == 0 {
		return nil
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil {
				return fmt.Errorf("nice value %d: %w", nice, err)
			}
		}
	}
	return nil
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "?"
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// loadNow is the load average of the last minute (proc(5), loadavg): how many
// processes wanted a core.
func loadNow() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	one, _, _ := strings.Cut(string(raw), " ")
	return one
}

// procLine is what follows "name:" in a file of /proc, "?" if nothing does.
func procLine(file, name string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "?"
	}
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return "?"
}
