package fencedynamo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/truora/minidyn/server"

	"solojob/fence/fencedynamo"
	"solojob/fence/internal/proof"
)

// The variables that tell a job in a process of its own what to write.
const (
	endpointVariable = "FENCE_TEST_ENDPOINT"
	registerVariable = "FENCE_TEST_REGISTER"
)

const table = "registers"

func TestMain(m *testing.M) {
	proof.Main(m, map[string]proof.Job{"fenced": fencedJob, "transaction": transactionJob})
}

func client(endpoint string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "eu-west-1",
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		// minidyn sends no checksums, of which the SDK would warn at each reply.
		DisableValidateResponseChecksum: true,
	})
}

func minidyn(t testing.TB) string {
	t.Helper()
	served := httptest.NewServer(server.NewServer())
	t.Cleanup(served.Close)
	createTable(t, served.URL)
	return served.URL
}

// stores are the stand-ins for DynamoDB that a test runs against. dynalite returns
// no item with a failed condition.
func stores(t *testing.T, test func(t *testing.T, endpoint string)) {
	t.Run("minidyn", func(t *testing.T) { test(t, minidyn(t)) })
	t.Run("dynalite", func(t *testing.T) {
		endpoint := proof.Need(t, proof.Dynalite)
		createTable(t, endpoint)
		test(t, endpoint)
	})
}

func createTable(t testing.TB, endpoint string) {
	t.Helper()
	db := client(endpoint)
	_, err := db.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:            aws.String(table),
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	})
	var exists *types.ResourceInUseException
	if err != nil && !errors.As(err, &exists) {
		t.Fatalf("create the table: %v", err)
	}
	// dynalite, like DynamoDB, takes a while; minidyn names no status.
	for {
		described, err := db.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String(table)})
		if err != nil {
			t.Fatalf("describe the table: %v", err)
		}
		if described.Table.TableStatus != types.TableStatusCreating {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// fresh names a register that no test has written, in a server that may outlive
// the tests.
func fresh(t testing.TB) string {
	return fmt.Sprintf("%s-%x", t.Name(), time.Now().UnixNano())
}

func key(register string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: register}}
}

// write is the recipe of the package comment: one fenced UpdateItem.
func write(ctx context.Context, db *dynamodb.Client, guard fencedynamo.Guard, register string, value int) error {
	expr, err := expression.NewBuilder().
		WithCondition(guard.Condition()).
		WithUpdate(guard.Raise(expression.Set(expression.Name("value"), expression.Value(value)))).
		Build()
	if err != nil {
		return err
	}
	_, err = db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                           aws.String(table),
		Key:                                 key(register),
		ConditionExpression:                 expr.Condition(),
		UpdateExpression:                    expr.Update(),
		ExpressionAttributeNames:            expr.Names(),
		ExpressionAttributeValues:           expr.Values(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return guard.ExplainByReading(ctx, db, table, key(register), err)
}

func read(ctx context.Context, db *dynamodb.Client, register string) (proof.State, error) {
	found, err := db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(table), Key: key(register), ConsistentRead: aws.Bool(true),
	})
	if err != nil || len(found.Item) == 0 {
		return proof.State{}, err
	}
	fenced, err := number(found.Item[fencedynamo.DefaultAttribute])
	if err != nil {
		return proof.State{}, err
	}
	value, err := number(found.Item["value"])
	return proof.State{Fence: int64(fenced), Value: value}, err
}

func number(attribute types.AttributeValue) (int, error) {
	n, ok := attribute.(*types.AttributeValueMemberN)
	if !ok {
		return 0, fmt.Errorf("%#v is no number", attribute)
	}
	return strconv.Atoi(n.Value)
}

// mustHold fails unless the register holds just this.
func mustHold(t *testing.T, db *dynamodb.Client, register string, want proof.State) {
	t.Helper()
	if got, err := read(t.Context(), db, register); err != nil || got != want {
		t.Fatalf("the register holds %+v (%v), want %+v", got, err, want)
	}
}

// fencedJob reads a register, and then writes its own fence into it as the value.
func fencedJob(f int64, at func(string)) error {
	db, register := client(os.Getenv(endpointVariable)), os.Getenv(registerVariable)
	if _, err := read(context.Background(), db, register); err != nil {
		return err
	}
	at("between read and write")
	return write(context.Background(), db, fencedynamo.Guard{Fence: f}, register, int(f))
}

// transactionJob writes two items under a guard item.
func transactionJob(f int64, at func(string)) error {
	db := client(os.Getenv(endpointVariable))
	if _, err := read(context.Background(), db, "first"); err != nil {
		return err
	}
	at("between read and write")
	return transact(context.Background(), db, fencedynamo.Guard{Fence: f}, "guard", f)
}
