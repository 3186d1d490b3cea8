// Package fence is what a job needs to make its writes safe against an older
// run of itself.
//
// solojob starts a job with a number in FENCE that is greater than that of every
// run before it. A run can be stopped at any point (a paused machine, a lost
// network) and wake up after its successor has begun. No lease can prevent that
// last write from being sent; only the store can refuse it. So the store keeps
// the highest fence that has written, and each write carries its own:
//
//	stored <= mine: apply the write and store mine, in ONE atomic step
//	stored >  mine: refuse; a newer run owns the data
//
// Checking first and writing after is not a fence, however short the time
// between: the stop may fall exactly there. The guard must be compared, and
// raised, in the same atomic step as the write itself: the same UpdateItem, the
// same transaction, the same compare-and-swap.
//
// # Many writes per run, or one
//
// Accept stored <= mine where a run writes a resource many times. A write that
// is retried after a lost reply may then be applied twice, so it must be one
// that can be (set a value, put an item), not one that can't (add 1).
//
// Accept only stored < mine where a run makes exactly one write, or one
// transaction: it can't be applied twice, since the first time raises the fence
// to ours. A refusal that shows our own fence then means that an earlier attempt
// of this run went through ([ErrAlreadyWritten]), which is a success whose reply
// was lost. Note that stored < mine refuses a run's second, different write too.
//
// # Copying it
//
// The module has no public address, so the packages are made to be copied: this
// file needs only the standard library, and each store has one more file that
// needs only this one and the store's own client (fencepgx also needs fencesql,
// whose only import is database/sql). Nobody who writes to PostgreSQL gets the
// AWS SDK.
//
//	fencedynamo  DynamoDB: a condition and an update for the SDK's expression package
//	fencesql     PostgreSQL and SQLite through database/sql
//	fencepgx     PostgreSQL through pgx
//	fences3      S3: a pointer object that is swapped with If-Match
package fence

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Variable is the environment variable in which solojob hands a job its fence.
const Variable = "FENCE"

// ExitStale is the status with which a job may end when it finds that it is
// stale. It is the status that solojob itself uses for a lost lease, so that
// both ways to learn of the same thing look alike in the task's exit code.
const ExitStale = 79

var (
	// ErrNotUnderSolojob: FENCE is not set, so nothing would be fenced.
	ErrNotUnderSolojob = errors.New("FENCE is not set: this program must be started by solojob, which sets it; to try it by hand, run it with FENCE=1")

	// ErrNotANumber: FENCE is set to something that solojob never writes.
	ErrNotANumber = errors.New("FENCE must be a whole number from 1 to 9223372036854775807, without sign, spaces or leading zeros")

	// ErrStale: a newer run has written. The run that sees it must stop, and
	// must not retry: no later attempt of it can succeed.
	ErrStale = errors.New("a newer run has taken over")

	// ErrAlreadyWritten: a write that is accepted once per run was already made
	// by this run. After a timeout it means that the write went through.
	ErrAlreadyWritten = errors.New("this run has already made this write")
)

// FromEnv returns the fence of this run. Its errors match [ErrNotUnderSolojob]
// and [ErrNotANumber]; a job should end on either of them, since without a fence
// of its own it can't be told from a stale run.
func FromEnv() (int64, error) {
	value, set := os.LookupEnv(Variable)
	if !set {
		return 0, ErrNotUnderSolojob
	}
	return Parse(value)
}

// Parse reads a fence as solojob writes it. Anything else is refused, even if a
// lenient reader could make sense of it: a fence that two programs read
// differently protects neither.
func Parse(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != value {
		return 0, fmt.Errorf("FENCE is %q: %w", value, ErrNotANumber)
	}
	return n, nil
}

// StaleError says which fence was refused, and because of which. It matches
// [ErrStale].
type StaleError struct {
	Mine   int64 // the fence of the run that was refused
	Stored int64 // the fence found in the store, greater than Mine
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("write refused: this run has fence %d, and a run with fence %d has written since; stop, and write nothing more", e.Mine, e.Stored)
}

func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Judge says what a refusal means, given the fence that the store showed with
// it: a [StaleError], [ErrAlreadyWritten] (only if the write is accepted once per
// run), or nil if the fence was not the reason. It explains a refusal that has
// already been made; it is not a check to be made before a write.
func Judge(stored, mine int64, once bool) error {
	switch {
	case stored > mine:
		return &StaleError{Mine: mine, Stored: stored}
	case once && stored == mine:
		return ErrAlreadyWritten
	default:
		return nil
	}
}
