package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/leader"
)

// historySize is how many runs of a lease are kept: an item each, and the item
// of a run replaces that of the run whose number was so much lower.
const historySize = 100

// Run is what the history keeps of one run.
type Run struct {
	Fence    int64
	Number   int    // counts the runs of a schedule; 0: nothing counts them but the fence
	Kind     string // "tick", "service" or "run-now"
	Tick     string // RFC 3339, "" for none
	Attempt  int
	Owner    string
	Started  time.Time // zero if unknown
	Ended    time.Time // zero if nobody knows, because its agent died or lost the lease
	Duration time.Duration
	ExitCode int
	State    string
	Why      string
	By       string
}

// Record writes a run into the history of the lease: one write, which a stale
// leader can't make, because the item demands a higher fence than it has.
func (s *Store) Record(ctx context.Context, r Run) error {
	u := newUpdate()
	u.setNumber("fence", r.Fence)
	u.setNumber("number", int64(r.Number))
	u.setString("kind", r.Kind)
	u.setString("tick", r.Tick)
	u.setNumber("attempt", int64(r.Attempt))
	u.setString("owner", r.Owner)
	u.setString("started", stampOrEmpty(r.Started))
	u.setString("ended", stampOrEmpty(r.Ended))
	u.setNumber("duration_ms", r.Duration.Milliseconds())
	if !r.Ended.IsZero() {
		u.setNumber("exit_code", int64(r.ExitCode))
	}
	u.setString("state", r.State)
	u.setString("why", r.Why)
	u.setString("by", r.By)
	u.where(fmt.Sprintf("attribute_not_exists(%[1]s) OR %[1]s < :fence", u.name("fence")))
	number := int64(r.Number)
	if number == 0 {
		number = r.Fence
	}
	key := map[string]types.AttributeValue{
		"pk": s.key["pk"], "sk": text(fmt.Sprintf("%s%02d", s.runs(), number%historySize)),
	}
	request := u.input(s.table, key)
	backoff := firstRetry
	for {
		_, err := s.client.other.UpdateItem(ctx, request)
		var stale *types.ConditionalCheckFailedException
		switch {
		case err == nil:
			return nil
		case errors.As(err, &stale) && r.Ended.IsZero():
			return nil // who ran it could write it after all
		case errors.As(err, &stale):
			return fmt.Errorf("a run with a higher fence than %d is in its place", r.Fence)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the history can't be written: %w", rootCause(err))
		case <-time.After(backoff):
			backoff *= 2
		}
	}
}

// runs begins the sort keys of this lease's history. Once mode has a lease of its
// own under the same name, which counts its own fences.
func (s *Store) runs() string {
	if sk, ok := s.key["sk"].(*types.AttributeValueMemberS); ok && sk.Value == OnceItem {
		return onceRunPrefix
	}
	return runPrefix
}

// onceRunPrefix begins the sort keys of the runs of once mode.
const onceRunPrefix = "once-" + runPrefix

// firstRetry is the wait before the history is tried again; it doubles.
const firstRetry = 100 * time.Millisecond

func stampOrEmpty(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return leader.Stamp(t)
}
