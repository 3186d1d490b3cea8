// Package fencedynamo fences a job's writes to DynamoDB.
//
// A [Guard] adds to a write of yours the two halves of a fence, and DynamoDB
// performs them with the write in one atomic step: a condition that refuses the
// write if the item shows a greater fence, and a change that stores our own. Both
// are values of the SDK's expression package, so they combine with the
// conditions and changes that you have already:
//
//	guard := fencedynamo.Guard{Fence: f}
//	expr, err := expression.NewBuilder().
//		WithCondition(guard.Condition().And(myCondition)).
//		WithUpdate(guard.Raise(expression.Set(expression.Name("total"), expression.Value(7)))).
//		Build()
//	...
//	_, err = db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
//		...,
//		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
//	})
//	if err = guard.Explain(err); errors.Is(err, fence.ErrStale) {
//		// A newer run has written. Stop.
//	}
//
// # What must be fenced
//
// Every write of the job. An item that is fenced in one place and written bare
// in another is not fenced. Where one run writes many items that belong
// together, each item can carry its own fence; but then a newer run protects
// only the items that it has written already. If a stale write to an item that
// the newer run has not touched yet would hurt, put one guard item into every
// write with TransactWriteItems ([Guard.TransactItem]), and write the guard item
// alone, first thing, when the job starts.
//
// # Deleting
//
// DeleteItem deletes the fence with the item, after which a stale PutItem finds
// nothing that refuses it. Mark a fenced item as deleted instead, or delete it in
// a transaction with a guard item that stays. The same holds for DynamoDB's TTL.
package fencedynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/fence"
)

// DefaultAttribute is the attribute that holds the fence of an item.
const DefaultAttribute = "fence"

// ErrUnexplained: a condition failed and the reply has no item, so whether the
// fence or your own condition refused the write is unknown. Set
// ReturnValuesOnConditionCheckFailure to ALL_OLD; where the item is missing even
// so (some stand-ins for DynamoDB never return it), use [Guard.ExplainByReading].
// It is also what a condition of your own that demands an existing item gives
// where there is none.
var ErrUnexplained = errors.New("a condition failed, and the reply has no item that shows why (set ReturnValuesOnConditionCheckFailure to ALL_OLD)")

// A Guard fences writes with the fence of one run. The zero Guard fences nothing;
// take Fence from [fence.FromEnv].
type Guard struct {
	// Fence is the fence of this run.
	Fence int64

	// Once accepts one write per item and run (stored < Fence) instead of many
	// (stored <= Fence). See package fence for which is right.
	Once bool

	// Attribute is the top-level attribute that holds the fence;
	// DefaultAttribute if empty.
	Attribute string
}

func (g Guard) attribute() string {
	if g.Attribute == "" {
		return DefaultAttribute
	}
	return g.Attribute
}

func (g Guard) name() expression.NameBuilder { return expression.NameNoDotSplit(g.attribute()) }

// Condition is true for an item on which no newer run has written. An item
// without a fence, or no item at all, satisfies it.
func (g Guard) Condition() expression.ConditionBuilder {
	mine := expression.Value(g.Fence)
	older := expression.LessThanEqual(g.name(), mine)
	if g.Once {
		older = expression.LessThan(g.name(), mine)
	}
	return expression.AttributeNotExists(g.name()).Or(older)
}

// Raise adds to an update the storing of our fence. A condition without it
// protects nothing: it is the raised fence that refuses the next stale write.
func (g Guard) Raise(update expression.UpdateBuilder) expression.UpdateBuilder {
	return update.Set(g.name(), expression.Value(g.Fence))
}

// Item returns a copy of item that carries our fence: what Raise is to
// UpdateItem, Item is to PutItem. The condition is still needed.
func (g Guard) Item(item map[string]types.AttributeValue) map[string]types.AttributeValue {
	fenced := maps.Clone(item)
	if fenced == nil {
		fenced = make(map[string]types.AttributeValue)
	}
	fenced[g.attribute()] = &types.AttributeValueMemberN{Value: strconv.FormatInt(g.Fence, 10)}
	return fenced
}

// TransactItem is the raising of a guard item, to be put beside the user's own
// writes in one TransactWriteItems: all of them happen, or the fence refuses
// all. The guard item stands for whatever the transaction writes, so each
// transaction that writes it must name the same one. DynamoDB allows a
// transaction only one action per item: an item that you write anyway takes
// Condition and Raise instead.
func (g Guard) TransactItem(table string, key map[string]types.AttributeValue) (types.TransactWriteItem, error) {
	expr, err := expression.NewBuilder().
		WithCondition(g.Condition()).
		WithUpdate(g.Raise(expression.UpdateBuilder{})).
		Build()
	if err != nil {
		return types.TransactWriteItem{}, fmt.Errorf("build the fence's expression: %w", err)
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                           aws.String(table),
		Key:                                 key,
		ConditionExpression:                 expr.Condition(),
		UpdateExpression:                    expr.Update(),
		ExpressionAttributeNames:            expr.Names(),
		ExpressionAttributeValues:           expr.Values(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}, nil
}

// Explain turns the error of a fenced write into one that a job can act on:
// fence.ErrStale, fence.ErrAlreadyWritten, or [ErrUnexplained]. Every other error
// (nil, a timeout, a condition of your own that failed) is returned as it is.
func (g Guard) Explain(err error) error {
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		return g.explain(failed.Item, err)
	}
	var canceled *types.TransactionCanceledException
	if errors.As(err, &canceled) {
		return g.explainTransaction(canceled.CancellationReasons, err)
	}
	return err
}

func (g Guard) explain(item map[string]types.AttributeValue, err error) error {
	if len(item) == 0 {
		return fmt.Errorf("%w: %w", ErrUnexplained, err)
	}
	if verdict := g.Judge(item); verdict != nil {
		return fmt.Errorf("%w (%w)", verdict, err)
	}
	return err
}

// Reader is what [Guard.ExplainByReading] needs of a DynamoDB client.
type Reader interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

// ExplainByReading is [Guard.Explain] for a store that does not return the item
// with a failed condition: it then reads the item. DynamoDB does return it;
// minidyn (for PutItem) and dynalite do not.
func (g Guard) ExplainByReading(ctx context.Context, store Reader, table string, key map[string]types.AttributeValue, err error) error {
	explained := g.Explain(err)
	if !errors.Is(explained, ErrUnexplained) {
		return explained
	}
	found, readErr := store.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      aws.String(table),
		Key:            key,
		ConsistentRead: aws.Bool(true),
	})
	if readErr != nil {
		return fmt.Errorf("%w; reading it failed as well: %w", explained, readErr)
	}
	if len(found.Item) == 0 {
		return explained
	}
	return g.explain(found.Item, err)
}

// explainTransaction looks for the refusal of the fence among the reasons, one
// for each action of the transaction. DynamoDB names all that failed, so a
// verdict of stale is preferred to anything else.
func (g Guard) explainTransaction(reasons []types.CancellationReason, err error) error {
	explained := err
	for _, reason := range reasons {
		if aws.ToString(reason.Code) != conditionalCheckFailed {
			continue
		}
		verdict := g.explain(reason.Item, err)
		if errors.Is(verdict, fence.ErrStale) {
			return verdict
		}
		if explained == err {
			explained = verdict
		}
	}
	return explained
}

// conditionalCheckFailed is the code of a cancellation reason whose condition
// was false:
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
const conditionalCheckFailed = "ConditionalCheckFailed"

// Judge says what the fence of an item, read after a refusal, means for this
// run; nil if the fence did not refuse us. Since fences only grow, an item that
// is read later than the refusal may be used: who is stale stays stale. Judge is
// no check to be made before a write.
func (g Guard) Judge(item map[string]types.AttributeValue) error {
	attribute, found := item[g.attribute()]
	if !found {
		return nil
	}
	number, isNumber := attribute.(*types.AttributeValueMemberN)
	if !isNumber {
		return fmt.Errorf("attribute %q of the item is no number, so it can't be a fence: choose another attribute for the fence", g.attribute())
	}
	stored, err := strconv.ParseInt(number.Value, 10, 64)
	if err != nil {
		return fmt.Errorf("attribute %q of the item is %s, which is no fence: %w", g.attribute(), number.Value, err)
	}
	return fence.Judge(stored, g.Fence, g.Once)
}
