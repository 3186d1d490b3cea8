package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"solojob/boottime"
)

// Kind says what an entry of the chronicle is about.
type Kind string

// What the director does.
const (
	Opened   Kind = "scene opened"     // Text: title, newline, what it is about
	Noted    Kind = "note"             // Text: for the reader alone
	Started  Kind = "task started"     // Pid: the agent's
	Stopped  Kind = "task stopped"     // told to stop, as ECS does: SIGTERM to the agent
	Killed   Kind = "agent killed"     // SIGKILL
	Frozen   Kind = "task frozen"      // SIGSTOP to agent, supervisor and job
	JobThawn Kind = "job thawed"       // SIGCONT to the job alone
	Thawed   Kind = "task thawed"      // SIGCONT to the rest
	Cut      Kind = "network cut"      // the task's path to the store of the lease
	Healed   Kind = "network healed"   //
	Gone     Kind = "task gone"        // the agent's process has ended; Text: how
	Closed   Kind = "chronicle closed" // the last entry
)

// What the jobs' connections show.
const (
	Launched Kind = "job launched" // its first statement; Run, Fence, Pid, Beside
	Told     Kind = "job told"     // it got SIGTERM
	Ended    Kind = "job ended"    // it says that it has done its last work
	Died     Kind = "job died"     // the kernel closed its connection
)

// What the store shows.
const (
	Looked   Kind = "task looked"   // first request of a task that started, thawed or was healed
	Acquired Kind = "lease taken"   // the row has a new owner
	Released Kind = "lease given"   // the row's owner is empty; Beside: the task's runs that still lived
	Accepted Kind = "write taken"   // by the register
	Refused  Kind = "write refused" // by the register, since its FENCE was old
)

// Entry is one thing that happened.
type Entry struct {
	At     boottime.Instant
	Scene  int
	Kind   Kind
	Task   string
	Run    int   // number of the job's process, in the order of their starts
	Fence  int64 // 0 where there is none: the control's
	Pid    int
	Ppid   int      // of a job: its supervisor
	Beside []int    // runs whose processes existed at that very instant
	Tasks  []string // of a scene: who is in it
	Text   string
}

// chronicle is what happened, in order. Entries are only added; whoever
// wants to know something reads them all.
type chronicle struct {
	mu      sync.Mutex
	entries []Entry
	scene   int
	more    chan struct{} // closed, and made anew, with each entry
}

func newChronicle() *chronicle { return &chronicle{more: make(chan struct{})} }

// add appends an entry, stamped with the present unless it has a time of its own.
func (c *chronicle) add(e Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.At == 0 {
		e.At = boottime.Now()
	}
	if e.Kind == Opened {
		c.scene++
	}
	e.Scene = c.scene
	c.entries = append(c.entries, e)
	close(c.more)
	c.more = make(chan struct{})
}

// close adds the entry that says that nothing more will come.
func (c *chronicle) close() { c.add(Entry{Kind: Closed}) }

// since returns the entries from the nth on, and a channel that is closed when
// there are more.
func (c *chronicle) since(n int) ([]Entry, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.entries[n:]), c.more
}

func (c *chronicle) all() []Entry {
	entries, _ := c.since(0)
	return entries
}

// patience is how long the director waits for anything before it gives the
// show up: many times what it takes on a busy machine.
const patience = 30 * time.Second

// await waits until the chronicle's entries satisfy ok. What is waited for is
// said in the error.
func (c *chronicle) await(ctx context.Context, what string, ok func([]Entry) bool) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		entries, more := c.since(0)
		if ok(entries) {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("waited %v in vain for %s", patience, what)
		}
	}
}
