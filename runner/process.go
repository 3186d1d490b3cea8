package runner

import (
	"os"
	"runtime"
	"sync"
)

// supervisorName is argv[0] of the supervisor: how it knows what it is, and
// how people recognise it.
const supervisorName = "solojob-supervisor"

// The supervisor's descriptors beyond the job's own three.
const (
	controlFD = 3
	reportFD  = 4
)

// spareThreads is how many threads a process of ours makes beforehand: when
// the container has reached its pids limit, which a job may cause, no thread
// can be made, and Go aborts a program that needs one. The supervisor has one
// loop and one goroutine for signals; the agent also has its caller's body.
const (
	spareSupervisorThreads = 6
	spareAgentThreads      = 16
)

// reserveThreads makes n threads and lets them idle; Go keeps them.
func reserveThreads(n int) {
	release := make(chan struct{})
	var locked, ended sync.WaitGroup
	for range n {
		locked.Add(1)
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			<-release
		})
	}
	locked.Wait()
	close(release)
	ended.Wait()
}

// supervisorEnv is the supervisor's own environment, not the job's. It is
// small and none of the user's: GOGC and the like are meant for the job. Two
// Ps, because one is held by the loop in poll(2), and signals need another.
func supervisorEnv() []string {
	env := []string{"GOMAXPROCS=2"}
	if dir, ok := os.LookupEnv("GOCOVERDIR"); ok { // a build for coverage complains without
		env = append(env, "GOCOVERDIR="+dir)
	}
	return env
}
