package runner

import (
	"time"

	"solojob/boottime"
)

// Between two rounds of killing the killed need time to die, more than a
// second look at them needs. The pause doubles while nobody does: what is in
// uninterruptible sleep must not cost a CPU.
const (
	sweepPause    = 2 * time.Millisecond
	sweepPauseMax = 64 * time.Millisecond
)

// broom paces the rounds of killing everything below this process.
type broom struct {
	next  boottime.Instant // of the next round; zero before the first
	pause time.Duration
}

// sweep kills whatever is there, if a round is due. leader is the job's main
// process, or zero if that is unknown.
func (b *broom) sweep(leader int) {
	if boottime.Now() < b.next {
		return
	}
	killTree(procfs, leader)
	b.pause = min(max(2*b.pause, sweepPause), sweepPauseMax)
	b.next = boottime.Now().Add(b.pause)
}

// died tells that a process of ours has ended: there is progress.
func (b *broom) died() { b.pause = 0 }
