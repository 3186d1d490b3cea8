//go:build unix

// Command job is the job that the benchmarks put under solojob, and beside it
// under nothing and under supercronic. Its first act is to read the clocks;
// then it tells the witness at the socket BENCH_JOB_SOCKET what it read:
//
//	start BOOT WALL PID FENCE NAME TICK
//	end BOOT
//
// in nanoseconds, "-" for what it does not have. All its descendants hold the
// connection too, so the kernel closes it when the last of them is dead. Its
// arguments mean nothing, so that it can stand in for a shell.
//
//	BENCH_JOB_NAME   its name, where no lease gives it one
//	BENCH_JOB_TREE   a number of descendants, in sessions of their own and deaf
//	                 to SIGTERM, started before it tells of its start
//	BENCH_JOB_DRAIN  a duration: it stays until SIGTERM, and for so long after
//	                 it; without, it ends at once
//
// It imports little, because what Go does before main is measured as well.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"solojob/boottime"
)

// statusBroken is the exit status when the job can't do what it is for.
const statusBroken = 99

func main() {
	boot, wall := boottime.Now(), time.Now()
	witness, err := dial(os.Getenv("BENCH_JOB_SOCKET"))
	if err != nil {
		broken("no witness", err)
	}
	told := make(chan os.Signal, 1)
	drain := os.Getenv("BENCH_JOB_DRAIN")
	if drain != "" {
		signal.Notify(told, syscall.SIGTERM)
	}
	if n, _ := strconv.Atoi(os.Getenv("BENCH_JOB_TREE")); n > 0 {
		if err := growTree(n, witness); err != nil {
			broken("no tree", err)
		}
	}
	tell(witness, "start %d %d %d %s %s %s\n", boot, wall.UnixNano(), os.Getpid(),
		variable("FENCE"), variable("SOLOJOB_RUN_LEASE", "BENCH_JOB_NAME"), variable("SOLOJOB_RUN_TICK"))
	if drain == "" {
		return
	}
	patience, err := time.ParseDuration(drain)
	if err != nil {
		broken("BENCH_JOB_DRAIN", err)
	}
	<-told
	time.Sleep(patience)
	tell(witness, "end %d\n", boottime.Now())
}

func broken(what string, err error) {
	fmt.Fprintf(os.Stderr, "job: %s: %v\n", what, err)
	os.Exit(statusBroken)
}

// variable is the first of the variables that is set.
func variable(names ...string) string {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return "-"
}

func dial(socket string) (int, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	return fd, syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket})
}

// tell writes one line. A witness that has gone wants no job.
func tell(witness int, format string, args ...any) {
	if _, err := syscall.Write(witness, fmt.Appendf(nil, format, args...)); err != nil {
		broken("the witness has gone", err)
	}
}

// growTree starts n descendants: shells in sessions of their own, each with up
// to twenty children. It returns when all are there.
func growTree(n, witness int) error {
	const family = 21
	const script = `trap "" TERM HUP; i=1; while [ $i -lt $1 ]; do sleep 100000 >&2 & i=$((i+1)); done; echo; exec sleep 100000 >&2`
	var ready [2]int
	if err := syscall.Pipe(ready[:]); err != nil {
		return err
	}
	families := 0
	for left := n; left > 0; left -= family {
		shell := []string{"/bin/sh", "-c", script, "family", strconv.Itoa(min(left, family))}
		_, err := syscall.ForkExec(shell[0], shell, &syscall.ProcAttr{
			Env:   os.Environ(),
			Files: []uintptr{0, uintptr(ready[1]), 2, uintptr(witness)},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			return err
		}
		families++
	}
	syscall.Close(ready[1])
	for got := 0; got < families; {
		n, err := syscall.Read(ready[0], make([]byte, families))
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("of %d families %d are there: %v", families, got, err)
		}
		got += n
	}
	return nil
}
