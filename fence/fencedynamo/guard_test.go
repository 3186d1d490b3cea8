package fencedynamo_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/fence"
	"solojob/fence/fencedynamo"
	"solojob/fence/internal/proof"
)

// One run may write an item many times; an older one never again.
func TestManyWritesPerRun(t *testing.T) {
	stores(t, func(t *testing.T, endpoint string) {
		db, name := client(endpoint), fresh(t)
		for i, f := range []int64{5, 5, 6, 6} {
			if err := write(t.Context(), db, fencedynamo.Guard{Fence: f}, name, i); err != nil {
				t.Fatalf("write %d, fence %d: %v", i, f, err)
			}
		}
		if err := write(t.Context(), db, fencedynamo.Guard{Fence: 5}, name, 9); !errors.Is(err, fence.ErrStale) {
			t.Fatalf("the older run's write: %v, want ErrStale", err)
		}
		mustHold(t, db, name, proof.State{Fence: 6, Value: 3})
	})
}

// With Once, a second attempt of the same run is refused as already written, an
// older run as stale, and a newer run is accepted.
func TestOneWritePerRun(t *testing.T) {
	stores(t, func(t *testing.T, endpoint string) {
		db, name := client(endpoint), fresh(t)
		steps := []struct {
			fence int64
			want  error
		}{{5, nil}, {5, fence.ErrAlreadyWritten}, {4, fence.ErrStale}, {6, nil}, {5, fence.ErrStale}}
		for i, step := range steps {
			err := write(t.Context(), db, fencedynamo.Guard{Fence: step.fence, Once: true}, name, i)
			if !errors.Is(err, step.want) {
				t.Fatalf("step %d, fence %d: %v, want %v", i, step.fence, err, step.want)
			}
		}
		mustHold(t, db, name, proof.State{Fence: 6, Value: 3})
	})
}

// The guard combines with a condition of the user's own, and only a refusal by
// the fence is called stale.
func TestOwnConditionIsNotCalledStale(t *testing.T) {
	db := client(minidyn(t))
	if err := write(t.Context(), db, fencedynamo.Guard{Fence: 5}, "own", 1); err != nil {
		t.Fatal(err)
	}
	conditional := func(f int64, expected int) error {
		guard := fencedynamo.Guard{Fence: f}
		expr, err := expression.NewBuilder().
			WithCondition(guard.Condition().And(expression.Name("value").Equal(expression.Value(expected)))).
			WithUpdate(guard.Raise(expression.Set(expression.Name("value"), expression.Value(expected+1)))).
			Build()
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: aws.String(table), Key: key("own"),
			ConditionExpression: expr.Condition(), UpdateExpression: expr.Update(),
			ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return guard.Explain(err)
	}
	var failed *types.ConditionalCheckFailedException
	if err := conditional(5, 7); !errors.As(err, &failed) || errors.Is(err, fence.ErrStale) {
		t.Fatalf("own condition false: %v, want just its ConditionalCheckFailedException", err)
	}
	if err := conditional(4, 1); !errors.Is(err, fence.ErrStale) {
		t.Fatalf("own condition true, fence stale: %v, want ErrStale", err)
	}
	if err := conditional(5, 1); err != nil {
		t.Fatalf("both true: %v", err)
	}
	mustHold(t, db, "own", proof.State{Fence: 5, Value: 2})
}

// A PutItem is fenced by Condition and Item, in an attribute of the user's choice.
func TestPutUnderAnotherAttribute(t *testing.T) {
	db := client(minidyn(t))
	put := func(f int64) error {
		guard := fencedynamo.Guard{Fence: f, Attribute: "written.by"} // a dot must not mean a path
		expr, err := expression.NewBuilder().WithCondition(guard.Condition()).Build()
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.PutItem(t.Context(), &dynamodb.PutItemInput{
			TableName: aws.String(table), Item: guard.Item(key("put")),
			ConditionExpression:      expr.Condition(),
			ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return guard.ExplainByReading(t.Context(), db, table, key("put"), err)
	}
	for _, step := range []struct {
		fence int64
		want  error
	}{{5, nil}, {4, fence.ErrStale}, {6, nil}, {5, fence.ErrStale}} {
		if err := put(step.fence); !errors.Is(err, step.want) {
			t.Fatalf("fence %d: %v, want %v", step.fence, err, step.want)
		}
	}
}

// Item leaves the caller's map alone.
func TestItemCopies(t *testing.T) {
	mine := key("copied")
	if fenced := (fencedynamo.Guard{Fence: 1}).Item(mine); len(mine) != 1 || len(fenced) != 2 {
		t.Fatalf("mine %v, fenced %v", mine, fenced)
	}
	if fenced := (fencedynamo.Guard{Fence: 1}).Item(nil); len(fenced) != 1 {
		t.Fatalf("fenced %v", fenced)
	}
}

// Errors that are no refusal come back as they are, and a refusal that shows no
// item is never called stale, nor passed over.
func TestExplainGuessesNothing(t *testing.T) {
	guard := fencedynamo.Guard{Fence: 5}
	if err := guard.Explain(nil); err != nil {
		t.Fatalf("Explain(nil) = %v", err)
	}
	other := errors.New("connection reset")
	if err := guard.Explain(other); err != other {
		t.Fatalf("Explain(other) = %v", err)
	}
	bare := &types.ConditionalCheckFailedException{}
	err := guard.Explain(bare)
	if !errors.Is(err, fencedynamo.ErrUnexplained) || errors.Is(err, fence.ErrStale) || !errors.As(err, &bare) {
		t.Fatalf("Explain(no item) = %v", err)
	}
	conflict := &types.TransactionCanceledException{CancellationReasons: []types.CancellationReason{{Code: aws.String("TransactionConflict")}}}
	if err := guard.Explain(conflict); err != conflict {
		t.Fatalf("Explain(conflict) = %v", err)
	}
	damaged := &types.ConditionalCheckFailedException{Item: map[string]types.AttributeValue{"fence": &types.AttributeValueMemberS{Value: "6"}}}
	if err := guard.Explain(damaged); errors.Is(err, fence.ErrStale) || err == nil {
		t.Fatalf("Explain(a fence that is text) = %v", err)
	}
}

// transact writes two items that carry no fence under a guard item that does.
func transact(ctx context.Context, db *dynamodb.Client, guard fencedynamo.Guard, guarded string, value int64) error {
	raise, err := guard.TransactItem(table, key(guarded))
	if err != nil {
		return err
	}
	writes := []types.TransactWriteItem{raise}
	for _, name := range []string{"first", "second"} {
		item := key(name)
		item["fence"] = &types.AttributeValueMemberN{Value: "0"}
		item["value"] = &types.AttributeValueMemberN{Value: strconv.FormatInt(value, 10)}
		writes = append(writes, types.TransactWriteItem{Put: &types.Put{TableName: aws.String(table), Item: item}})
	}
	_, err = db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: writes})
	return guard.Explain(err)
}

func mustShowWriter(t *testing.T, db *dynamodb.Client, name string, want int) {
	t.Helper()
	if got, err := read(t.Context(), db, name); err != nil || got.Value != want {
		t.Fatalf("%s holds %+v (%v), want value %d", name, got, err, want)
	}
}

// A transaction of a stale run changes nothing at all. (dynalite has no
// transactions.)
func TestTransactionIsAllOrNothing(t *testing.T) {
	db := client(minidyn(t))
	for _, step := range []struct {
		fence int64
		want  error
	}{{5, nil}, {5, nil}, {4, fence.ErrStale}, {6, nil}, {5, fence.ErrStale}} {
		if err := transact(t.Context(), db, fencedynamo.Guard{Fence: step.fence}, "all", step.fence); !errors.Is(err, step.want) {
			t.Fatalf("fence %d: %v, want %v", step.fence, err, step.want)
		}
	}
	for _, item := range []string{"first", "second"} {
		mustShowWriter(t, db, item, 6)
	}
	if err := transact(t.Context(), db, fencedynamo.Guard{Fence: 6, Once: true}, "all", 99); !errors.Is(err, fence.ErrAlreadyWritten) {
		t.Fatalf("once, again: %v, want ErrAlreadyWritten", err)
	}
}
