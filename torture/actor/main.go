//go:build linux

// Command actor plays the parts around solojob in the torture: the container
// that a task is put into, the network before it, and the job under it.
//
//	actor enter OPTIONS -- COMMAND   becomes the command, in the surroundings that the options say
//	actor forward SOCKET             carries connections from the listener in descriptor 3 to a unix socket
//	actor job                        is the job, told what to do by its environment (job.go)
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// statusBroken is the exit status of an actor that can't play its part.
const statusBroken = 99

func main() {
	if len(os.Args) < 2 {
		fail("which part?")
	}
	switch os.Args[1] {
	case "enter":
		enter(os.Args[2:])
	case "forward":
		forward(os.Args[2])
	case "job":
		job()
	}
	fail("there is no part %q", os.Args[1])
}

// enter prepares this process and becomes the command, so that the command has
// the process id that the torture knows.
func enter(args []string) {
	options := flag.NewFlagSet("enter", flag.ExitOnError)
	proc := options.Bool("proc", false, "mount a /proc of this PID namespace")
	groups := options.String("cgroups", "", "directories of cgroups to join, separated by commas")
	closed := options.Bool("closed", false, "close stderr")
	_ = options.Parse(args) // ends the process on an error
	command := options.Args()
	for _, dir := range strings.FieldsFunc(*groups, func(r rune) bool { return r == ',' }) {
		// 0 is the writer itself, whatever its namespace counts.
		if err := os.WriteFile(dir+"/cgroup.procs", []byte("0"), 0); err != nil {
			fail("cgroup: %v", err)
		}
	}
	if *proc {
		// The mounts are a copy, but what is mounted here would still be
		// propagated to the original.
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			fail("mounts can't be made private: %v", err)
		}
		if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			fail("/proc: %v", err)
		}
	}
	if *closed {
		_ = syscall.Close(2)
	}
	err := syscall.Exec(command[0], command, os.Environ())
	fail("%s: %v", command[0], err)
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "actor: "+format+"\n", args...)
	os.Exit(statusBroken)
}
