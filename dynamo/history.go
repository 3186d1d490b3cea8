package dynamo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// historySize is how many runs of a lease are kept: an item each, and the item
// of a run replaces that of the run whose fence was so much lower.
const historySize = 100

// runItems begins the sort keys of the runs.
const runItems = "run#"

// Run is what the history keeps of one run.
type Run struct {
	Fence    int64
	Kind     string // "tick", "service" or "run-now"
	Tick     string // RFC 3339, "" for none
	Attempt  int
	Owner    string
	Started  time.Time // zero if unknown
	Ended    time.Time
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
	u.setString("kind", r.Kind)
	u.setString("tick", r.Tick)
	u.setNumber("attempt", int64(r.Attempt))
	u.setString("owner", r.Owner)
	u.setString("started", stampOrEmpty(r.Started))
	u.setString("ended", stampOrEmpty(r.Ended))
	u.setNumber("duration_ms", r.Duration.Milliseconds())
	u.setNumber("exit_code", int64(r.ExitCode))
	u.setString("state", r.State)
	u.setString("why", r.Why)
	u.setString("by", r.By)
	condition := fmt.Sprintf("attribute_not_exists(%s) OR %s < %s", u.name("fence"), u.name("fence"), ":fence")
	key := map[string]types.AttributeValue{
		"pk": s.key["pk"], "sk": text(fmt.Sprintf("%s%02d", runItems, r.Fence%historySize)),
	}
	expression := u.expression()
	backoff := firstRetry
	for {
		_, err := s.client.other.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &s.table, Key: key,
			UpdateExpression: &expression, ConditionExpression: &condition,
			ExpressionAttributeNames: u.names, ExpressionAttributeValues: u.values,
		})
		var stale *types.ConditionalCheckFailedException
		switch {
		case err == nil:
			return nil
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

// firstRetry is the wait before the history is tried again; it doubles.
const firstRetry = 100 * time.Millisecond

func stampOrEmpty(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return stamp(t)
}

// Runs returns the history of the lease, the latest run first.
func (s *Store) Runs(ctx context.Context) ([]Run, error) {
	names := map[string]string{"#pk": "pk", "#sk": "sk"}
	condition := "#pk = :pk AND begins_with(#sk, :runs)"
	var runs []Run
	var from map[string]types.AttributeValue
	for {
		out, err := s.client.other.Query(ctx, &dynamodb.QueryInput{
			TableName: &s.table, KeyConditionExpression: &condition, ExpressionAttributeNames: names,
			ExpressionAttributeValues: map[string]types.AttributeValue{":pk": s.key["pk"], ":runs": text(runItems)},
			ExclusiveStartKey:         from,
		})
		if err != nil {
			return nil, s.faults.sentence(ctx, err)
		}
		for _, item := range out.Items {
			run, err := parseRun(item)
			if err != nil {
				return nil, err
			}
			runs = append(runs, run)
		}
		if from = out.LastEvaluatedKey; len(from) == 0 {
			break
		}
	}
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Compare(b.Fence, a.Fence) })
	return runs, nil
}

func parseRun(item map[string]types.AttributeValue) (Run, error) {
	p := parser{item: item}
	r := Run{
		Fence: p.number("fence"), Kind: p.text("kind"), Tick: p.text("tick"), Attempt: int(p.number("attempt")),
		Owner: p.text("owner"), Started: p.time("started"), Ended: p.time("ended"),
		Duration: time.Duration(p.number("duration_ms")) * time.Millisecond,
		ExitCode: int(p.number("exit_code")), State: p.text("state"), Why: p.text("why"), By: p.text("by"),
	}
	return r, p.err("a run of the history")
}
