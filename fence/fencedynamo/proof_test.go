package fencedynamo_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/truora/minidyn/server"

	"solojob/fence"
	"solojob/fence/fencedynamo"
	"solojob/fence/internal/proof"
)

// A run that is stopped between its read and its write, while its successor
// writes, is refused when it wakes, and learns why.
func TestStoppedWriterIsRefused(t *testing.T) {
	stores(t, func(t *testing.T, endpoint string) {
		name := fresh(t)
		env := []string{endpointVariable + "=" + endpoint, registerVariable + "=" + name}
		outcome := proof.RunStopped(t, "fenced", 1, "between read and write", func() {
			if successor := proof.Run(t, "fenced", 2, env...); successor.Status != 0 {
				t.Fatalf("the successor failed: %+v", successor)
			}
		}, env...)
		if outcome.Status != fence.ExitStale {
			t.Fatalf("the stale run ended with %+v, want status %d", outcome, fence.ExitStale)
		}
		mustHold(t, client(endpoint), name, proof.State{Fence: 2, Value: 2})
	})
}

// The same for a transaction: nothing of what the stale run wanted to write is
// there. (dynalite has no transactions.)
func TestStoppedTransactionIsRefused(t *testing.T) {
	endpoint := minidyn(t)
	env := endpointVariable + "=" + endpoint
	outcome := proof.RunStopped(t, "transaction", 1, "between read and write", func() {
		if successor := proof.Run(t, "transaction", 2, env); successor.Status != 0 {
			t.Fatalf("the successor failed: %+v", successor)
		}
	}, env)
	if outcome.Status != fence.ExitStale {
		t.Fatalf("the stale run ended with %+v, want status %d", outcome, fence.ExitStale)
	}
	for _, item := range []string{"first", "second"} {
		mustShowWriter(t, client(endpoint), item, 2)
	}
}

// register is a recipe in an in-process DynamoDB, one item per seed.
type register struct {
	db     *dynamodb.Client
	name   string
	fenced bool
}

func (r register) Read() (proof.State, error) { return read(context.Background(), r.db, r.name) }

// Write reads first, as most jobs do, and then writes with the fence; or, in the
// wrong recipe, compares what it read and writes without one.
func (r register) Write(_ int, mine proof.State, before func() bool) error {
	if !before() {
		return proof.ErrCrashed
	}
	found, err := r.Read()
	if err != nil {
		return err
	}
	if !r.fenced {
		if refusal := fence.Judge(found.Fence, mine.Fence, false); refusal != nil {
			return refusal
		}
	}
	if !before() {
		return proof.ErrCrashed
	}
	if r.fenced {
		return write(context.Background(), r.db, fencedynamo.Guard{Fence: mine.Fence}, r.name, mine.Value)
	}
	_, err = r.db.PutItem(context.Background(), &dynamodb.PutItemInput{
		TableName: aws.String(table),
		Item: fencedynamo.Guard{Fence: mine.Fence}.Item(map[string]types.AttributeValue{
			"pk":    &types.AttributeValueMemberS{Value: r.name},
			"value": &types.AttributeValueMemberN{Value: strconv.Itoa(mine.Value)},
		}),
	})
	return err
}

// direct hands requests to a server without a network in between.
type direct struct{ handler http.Handler }

func (d direct) Do(request *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	d.handler.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}

func registers(t *testing.T, fenced bool) func(uint64) proof.Recipe {
	t.Helper()
	db := client("http://minidyn.invalid")
	inProcess := dynamodb.New(db.Options(), func(o *dynamodb.Options) { o.HTTPClient = direct{server.NewServer()} })
	_, err := inProcess.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:            aws.String(table),
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatalf("create the table: %v", err)
	}
	return func(seed uint64) proof.Recipe {
		return register{db: inProcess, name: strconv.FormatUint(seed, 10), fenced: fenced}
	}
}

// In a thousand random interleavings of writers and a crash, the item behaves as
// one register that only ever accepts the highest fence.
func TestFencedItemHoldsInEveryInterleaving(t *testing.T) {
	if violations := proof.Violations(t, registers(t, true)); len(violations) > 0 {
		t.Fatalf("%d of %d interleavings are wrong; the first:\n%s", len(violations), proof.Interleavings, violations[0])
	}
}

// The wrong recipe (read, compare, write) fails the same test.
func TestReadCompareWriteIsCaught(t *testing.T) {
	violation := proof.FirstViolation(t, registers(t, false))
	if violation == "" {
		t.Fatalf("no interleaving of %d shows what is wrong with a check before a write", proof.Interleavings)
	}
	t.Logf("the first that is wrong:\n%s", violation)
}
