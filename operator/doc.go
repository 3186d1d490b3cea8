// Package operator is what a person asks about leases, and asks of them:
// `solojob status`, `history`, `handover`, `break`, `pause`, `resume`, `run-now`
// and `fence bump`. None of them needs an agent to be alive.
//
// # Looking
//
// Whether a holder is alive is found out as a standby does it: by watching its
// row until the beat changes. The age of a heartbeat is the time since a change
// was seen, on the local clock that counts suspended time; no two machines'
// clocks are compared. A holder whose beat does not change for longer than any
// heartbeat interval that its lease allows is called silent.
//
// Times of day (since when, how long a run has gone on, the next tick) are for
// people to read. They are told by the store's own clock, the date of its reply.
//
// # Asking
//
// A request is one conditional write to the row, with who asks. The conditions
// demand what the operator was shown, so that of two operators at once the
// second is refused, and told why, instead of undoing what the first did. The
// requests leave beat and fence alone, so the holder's renewals go on, and the
// holder finds the request in the reply to its next one. Two writes are not
// requests but acts: a break frees the row of a holder that is known to be dead,
// and a bump raises the fence. Repeating a command is always safe.
package operator
