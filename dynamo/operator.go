package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"solojob/leader"
	"solojob/operator"
)

// runPrefix begins the sort key of every item of a lease's history.
const runPrefix = "run#"

// OperatorTable is a table as [operator.Table] needs it. Besides what an agent
// may do it takes dynamodb:Query, and dynamodb:Scan to list every lease.
type OperatorTable struct {
	client *Client
	name   string
}

// OperatorTable is the table called name for the operator's commands.
func (c *Client) OperatorTable(name string) *OperatorTable {
	return &OperatorTable{client: c, name: name}
}

func (t *OperatorTable) key(k operator.Key) map[string]types.AttributeValue {
	return t.client.Lease(t.name, k.Name, k.Item).key
}

// Leases lists every lease item. The store reads every item of the table for
// it, those of the history as well.
func (t *OperatorTable) Leases(ctx context.Context) ([]operator.Lease, error) {
	pages := dynamodb.NewScanPaginator(t.client.api, &dynamodb.ScanInput{
		TableName: &t.name, ConsistentRead: aws.Bool(true),
		FilterExpression:         aws.String("#sk = :lease OR #sk = :once"),
		ExpressionAttributeNames: map[string]string{"#sk": "sk"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":lease": text(operator.ServiceItem), ":once": text(operator.OnceItem),
		},
	})
	var all []operator.Lease
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, t.explain(ctx, err, "dynamodb:Scan", "; or name the lease, which needs no Scan")
		}
		for _, item := range page.Items {
			p := parser{item: item}
			all = append(all, operatorLease(operator.Key{Name: p.text("pk"), Item: p.text("sk")}, item, page.ResultMetadata))
		}
	}
	return all, nil
}

// Lease reads one item, consistently.
func (t *OperatorTable) Lease(ctx context.Context, k operator.Key) (*operator.Lease, error) {
	out, err := t.client.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &t.name, Key: t.key(k), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, t.explain(ctx, err, "dynamodb:GetItem", "")
	}
	if len(out.Item) == 0 {
		return nil, nil
	}
	l := operatorLease(k, out.Item, out.ResultMetadata)
	return &l, nil
}

// Runs reads the history of a lease.
func (t *OperatorTable) Runs(ctx context.Context, k operator.Key) ([]operator.Run, error) {
	pages := dynamodb.NewQueryPaginator(t.client.api, &dynamodb.QueryInput{
		TableName: &t.name, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:   aws.String("#pk = :lease AND begins_with(#sk, :run)"),
		ExpressionAttributeNames: map[string]string{"#pk": "pk", "#sk": "sk"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":lease": text(k.Name), ":run": text(t.client.Lease(t.name, k.Name, k.Item).runs()),
		},
	})
	var all []operator.Run
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, t.explain(ctx, err, "dynamodb:Query", "")
		}
		for _, item := range page.Items {
			all = append(all, operatorRun(item))
		}
	}
	return all, nil
}

// Write applies a change.
func (t *OperatorTable) Write(ctx context.Context, k operator.Key, c operator.Change) (*operator.Lease, error) {
	u := newUpdate()
	u.where("attribute_exists(" + u.name("beat") + ")")
	switch c := c.(type) {
	case operator.SetPaused:
		u.setBool("paused", c.Paused)
		u.setString("paused_by", c.By)
		if c.Paused {
			u.whereUnset("paused", "not_paused", &types.AttributeValueMemberBOOL{})
		} else {
			u.where(u.name("paused") + " = " + u.value("was_paused", &types.AttributeValueMemberBOOL{Value: true}))
			u.whereSeen("paused_by", c.SeenBy)
		}
	case operator.AskHandover:
		u.setString("handover", c.Owner)
		u.setBool("handover_now", c.Now)
		u.setString("handover_by", c.By)
		u.where(u.name("owner") + " = :handover")
		fresh := fmt.Sprintf("attribute_not_exists(%[1]s) OR %[1]s <> :handover", u.name("handover"))
		if c.Now {
			fresh += fmt.Sprintf(" OR attribute_not_exists(%[1]s) OR %[1]s = %[2]s",
				u.name("handover_now"), u.value("not_now", &types.AttributeValueMemberBOOL{}))
		}
		u.where("(" + fresh + ")")
	case operator.AskRun:
		u.setString("run_now", c.ID)
		u.setString("run_by", c.By)
		u.whereUnset("run_now", "none", text(""))
		u.whereUnset("paused", "not_paused", &types.AttributeValueMemberBOOL{})
	case operator.Break:
		u.setString("owner", "")
		u.setNumber("fence", c.SeenFence+1)
		u.setString("beat", c.Beat)
		u.setBool("draining", false)
		u.setString("handover", "")
		u.setString("changed_by", c.By)
		u.whereString("beat", "=", "seen", c.SeenBeat)
		u.whereNumber("fence", "=", "seen_fence", c.SeenFence)
	case operator.RaiseFence:
		u.setNumber("fence", c.To)
		u.setString("changed_by", c.By)
		u.whereNumber("fence", "=", "seen_fence", c.Seen)
		u.where(u.name("fence") + " < :fence")
	default:
		return nil, fmt.Errorf("a change of type %T is not known here", c)
	}
	out, err := t.client.api.UpdateItem(ctx, u.input(t.name, t.key(k)))
	if err != nil {
		return nil, t.explain(ctx, err, "dynamodb:UpdateItem", "")
	}
	l := operatorLease(k, out.Attributes, out.ResultMetadata)
	return &l, nil
}

// whereUnset demands that an attribute was never written, or has the value that
// stands for that: attributes are not removed.
func (u *update) whereUnset(attribute, as string, unset types.AttributeValue) {
	u.where(fmt.Sprintf("(attribute_not_exists(%[1]s) OR %[1]s = %[2]s)", u.name(attribute), u.value(as, unset)))
}

// whereSeen demands that a text is still what was seen; "" if there was none.
func (u *update) whereSeen(attribute, seen string) {
	if seen == "" {
		u.whereUnset(attribute, "seen", text(""))
		return
	}
	u.whereString(attribute, "=", "seen", seen)
}

// operatorLease reads an item for people: one that is damaged is shown as such.
func operatorLease(k operator.Key, item map[string]types.AttributeValue, m middleware.Metadata) operator.Lease {
	row, err := dated(item, m)
	if err != nil {
		return operator.Lease{Key: k, Damage: err.Error()}
	}
	p := parser{item: item}
	_, launching := item["run_since"]
	return operator.Lease{Key: k, Row: *row, RunSince: p.text("run_since"), Launching: launching, ChangedBy: p.text("changed_by")}
}

// operatorRun reads an item of the history. It decides nothing, so what is
// damaged is left out.
func operatorRun(item map[string]types.AttributeValue) operator.Run {
	p := parser{item: item}
	return operator.Run{
		Fence: p.number("fence"), Number: p.number("number"), Tick: p.text("tick"), Kind: p.text("kind"), Attempt: int(p.number("attempt")),
		Owner: p.text("owner"), Started: p.text("started"), Ended: p.text("ended"),
		Duration: time.Duration(p.number("duration_ms")) * time.Millisecond,
		ExitCode: int(p.number("exit_code")), State: p.text("state"), Why: p.text("why"), By: p.text("by"),
	}
}

// explain is faults.explain for a person who may lack a permission of theirs,
// not of the task's.
func (t *OperatorTable) explain(ctx context.Context, err error, action, instead string) error {
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorCode() == "AccessDeniedException" {
		return fmt.Errorf("%w: you are not allowed %s on table %q (%s): have it added to your role%s",
			leader.ErrRefused, action, t.name, api.ErrorMessage(), instead)
	}
	f := faults{client: t.client, table: t.name}
	return f.explain(ctx, err)
}
