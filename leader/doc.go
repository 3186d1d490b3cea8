// Package leader elects one holder of a lease among many tasks, and tells the
// holder until when it may act.
//
// What it promises, and what not. Two holders never overlap as long as every
// task's clock ticks at the same rate within 1 % and a holder stops acting at
// the deadline it is given; whoever runs a job under a [Term] has to have it
// dead by then. It does not promise that a job which was frozen beside its
// agent writes nothing when it wakes: that is what the fencing token is for,
// which only grows, and which the stores that the job writes to compare.
//
// # The idea
//
// Only locally captured time counts, and only on a clock that counts suspended
// time. No two machines' clocks are ever compared. The holder counts its lease
// from the moment at which it *sent* the write that renewed it. A standby
// counts from the moment at which the *reply* that first showed it that write's
// beat *arrived*. The write was applied in between, so the holder always gives
// up first, however slow the network is.
//
// # The protocol
//
// The lease is one row. Every attempt to write it carries a beat of its own,
// a value that no other attempt ever used, and every write is conditional:
//
//  1. A standby reads the row every poll. It competes when the owner is empty,
//     or when it has watched the same beat for the row's own lease duration
//     times 1.021 (two clocks, each 1 % off). See [watch].
//  2. To acquire, it writes itself as the owner and one more than the fence it
//     read, on the condition that beat and fence are still those it read.
//  3. The holder renews on a heartbeat, on the condition that owner and fence
//     are its own and the stored beat is older than the new one. A claim is a
//     renewal that also raises the fence: each launch of the job has a fence of
//     its own. A release is a renewal that empties the owner.
//
// A write whose reply is lost may have been applied. When a later attempt fails
// its condition and the row shows the beat of an earlier attempt of the same
// write, that attempt had succeeded, and the lease counts from *its* send time.
//
// The row is never deleted, and the fence in it never falls. Should somebody
// delete or restore the row all the same, those who saw it go on a million
// above the highest fence they remember.
//
// # Choosing the numbers
//
// A fault is invisible if it is shorter than lease − heartbeat − loss grace −
// kill margin, 20 s at the defaults (30 s, 5 s, 4 s, 1 s). A longer lease
// survives longer faults; after a crash the job waits for it. A shorter
// heartbeat costs writes, each one write unit.
package leader
