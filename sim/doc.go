// Package sim is a deterministic simulation of a whole deployment: the real
// elector and the real agent, as they are shipped, in many tasks with bad clocks,
// around one store with a bad network, in fake time. It has tests only.
//
// # What is real and what is not
//
// Packages leader, agent and schedule run unchanged. Around them, all of it
// made for the purpose:
//
//   - the store: one row, read and written atomically, behind a network that
//     delays, loses, repeats and reorders requests and replies, and a server that
//     throttles, fails, refuses, shows old rows to eventually consistent reads,
//     and may keep the row that failed a condition to itself;
//   - the clocks: each task has its own, up to 1 % fast or slow, beside a time
//     of day that is wrong and jumps;
//   - the processes: the supervisor, which kills the job at the deadline by
//     itself; the job, whose death takes time; and what stops or ends any of them;
//   - the platform: it starts new tasks, tells old ones to stop, and kills them
//     if they don't; and somebody who deletes the row by hand.
//
// # What is checked
//
// An observer that sees everything at once, which nobody in the real world can,
// judges each event as it happens by the promises. See the type promises.
//
// # Seeds
//
// A run is made from its seed alone: what goes wrong, when and to whom is decided
// before it begins, and each task draws its network's and its jobs' behaviour from
// a stream of its own. The one thing that a seed does not fix is what the Go
// runtime decides: which of several channels that are ready a select takes, and
// the order of goroutines that wake in the same nanosecond. So a seed repeats its
// history nearly always, not always; TestSeedsRepeat says how often.
//
//	go test ./sim -sim.seeds=10000        as many runs
//	go test ./sim -sim.seed=17 -v         this one, with its history
//	go test ./sim -run TestMutations -sim.mutations -v
package sim
