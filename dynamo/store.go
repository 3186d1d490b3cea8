package dynamo

import (
	"context"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"solojob/leader"
)

// LeaseItem is the sort key of the lease of a service or a schedule.
const LeaseItem = "lease"

// Store is one lease in a table: what [leader.Elector] needs of DynamoDB. Each
// method sends one request, and says of an error whether the write was refused
// (a *[leader.ConditionError]) or may have been applied (anything else).
type Store struct {
	client *Client
	table  string
	key    map[string]types.AttributeValue
	faults *faults
}

// Lease is the item sk of the lease called name in a table.
func (c *Client) Lease(table, name, sk string) *Store {
	return &Store{
		client: c, table: table,
		key: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: name},
			"sk": &types.AttributeValueMemberS{Value: sk},
		},
		faults: &faults{client: c, table: table},
	}
}

// Read gets the row. An eventually consistent read costs half of a consistent
// one.
func (s *Store) Read(ctx context.Context, consistent bool) (*leader.Row, error) {
	out, err := s.client.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: s.key, ConsistentRead: &consistent,
	})
	if err != nil {
		return nil, s.faults.explain(ctx, err)
	}
	s.faults.served()
	if len(out.Item) == 0 {
		return nil, nil
	}
	return dated(out.Item, out.ResultMetadata)
}

// Acquire writes a new holder into the row that was seen.
func (s *Store) Acquire(ctx context.Context, a leader.Acquisition) (*leader.Row, error) {
	u := newUpdate()
	u.setString("owner", a.Owner)
	u.setNumber("fence", a.Fence)
	u.setString("beat", a.Beat)
	u.setNumber("lease_ms", a.Lease.Milliseconds())
	u.setBool("draining", false)
	u.setString("handover", "")
	u.setString("since", leader.Stamp(a.Wall))
	u.setString("run_since", "")
	u.setString("renewed", leader.Stamp(a.Wall))
	if a.Revision != "" {
		u.setString("revision", a.Revision)
		u.setString("announced", a.Revision)
	}
	switch {
	case a.Seen == nil:
		u.where("attribute_not_exists(" + u.name("pk") + ")")
	case a.Seen.Beat == "": // a row that no agent wrote
		u.where("attribute_not_exists(" + u.name("beat") + ")")
	default:
		u.whereString("beat", "=", "seen", a.Seen.Beat)
		u.whereNumber("fence", "=", "seen_fence", a.Seen.Fence)
	}
	return s.update(ctx, u)
}

// Renew writes a heartbeat, or a claim.
func (s *Store) Renew(ctx context.Context, r leader.Renewal) (*leader.Row, error) {
	u := newUpdate()
	u.setString("beat", r.Beat)
	u.setBool("draining", r.Draining)
	u.setString("renewed", leader.Stamp(r.Wall))
	u.setRecord(r.Record)
	u.whereHeld(r.Owner, r.Fence, r.Beat)
	if r.Answered {
		u.setString("run_now", "")
	}
	if c := r.Claim; c != nil {
		u.setNumber("fence", r.Fence+1)
		u.setNumber("run_fence", r.Fence+1)
		if c.RunNow != "" {
			u.setString("run_now", "")
			u.whereString("run_now", "=", "asked", c.RunNow)
		}
		if c.Tick != "" {
			u.whereString("through", "<", "claimed", c.Tick)
		}
		if c.Again != nil {
			u.whereString("tick", "=", "again", c.Again.Tick)
			u.whereString("tick_state", "=", "again_state", c.Again.TickState)
			u.whereNumber("tick_attempt", "=", "again_attempt", int64(c.Again.Attempt))
		}
	}
	return s.update(ctx, u)
}

// Release empties the owner. The row stays, and its fence with it.
func (s *Store) Release(ctx context.Context, r leader.Release) (*leader.Row, error) {
	u := newUpdate()
	u.setString("owner", "")
	u.setString("beat", r.Beat)
	u.setBool("draining", false)
	u.setString("handover", "")
	u.whereHeld(r.Owner, r.Fence, r.Beat)
	return s.update(ctx, u)
}

// Announce writes the revision of a standby.
func (s *Store) Announce(ctx context.Context, holder, revision string) (*leader.Row, error) {
	u := newUpdate()
	u.setString("announced", revision)
	u.whereString("owner", "=", "holder", holder)
	return s.update(ctx, u)
}

func (s *Store) update(ctx context.Context, u *update) (*leader.Row, error) {
	out, err := s.client.api.UpdateItem(ctx, u.input(s.table, s.key))
	if err != nil {
		return nil, s.faults.explain(ctx, err)
	}
	s.faults.served()
	return dated(out.Attributes, out.ResultMetadata)
}

// dated parses an item and adds the store's own time of the reply.
func dated(item map[string]types.AttributeValue, m middleware.Metadata) (*leader.Row, error) {
	row, err := parseRow(item)
	if err != nil {
		return nil, err
	}
	if t, ok := awsmiddleware.GetServerTime(m); ok {
		row.Date = t
	}
	return row, nil
}
