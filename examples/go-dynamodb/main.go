// This is a scheduled job in Go, fenced in DynamoDB: it writes two items for each
// tick, in one transaction with a guard item. The guard is raised first thing,
// before the work, so that from then on no older run can write anything, not even an
// item that this run has not reached yet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/fence"
	"solojob/fence/fencedynamo"
)

const table = "example-reports"

func main() {
	create := flag.Bool("create-table", false, "create the job's table, and do nothing else")
	flag.Parse()
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	db := dynamodb.NewFromConfig(cfg)
	if *create {
		err = createTable(ctx, db)
	} else {
		err = report(ctx, db)
	}
	switch {
	case errors.Is(err, fence.ErrStale):
		log.Print(err)
		os.Exit(fence.ExitStale)
	case err != nil:
		log.Fatal(err)
	}
}

// report is the job: raise the guard, work, write.
func report(ctx context.Context, db *dynamodb.Client) error {
	f, err := fence.FromEnv()
	if err != nil {
		return err
	}
	guard := fencedynamo.Guard{Fence: f}
	if err := transact(ctx, db, guard); err != nil {
		return err
	}
	tick := os.Getenv("SOLOJOB_RUN_TICK") // the scheduled time; empty if run by hand
	if tick == "" {
		tick = time.Now().UTC().Format(time.RFC3339)
	}
	written := time.Now().UTC().Format(time.RFC3339Nano) // stands for the work
	if err := transact(ctx, db, guard, item("report#"+tick, f, written), item("latest", f, tick)); err != nil {
		return err
	}
	fmt.Printf("report of %s written by the run with fence %d\n", tick, f)
	return nil
}

// transact puts the items, and raises the guard, in one step.
func transact(ctx context.Context, db *dynamodb.Client, guard fencedynamo.Guard, items ...map[string]types.AttributeValue) error {
	raise, err := guard.TransactItem(table, map[string]types.AttributeValue{"pk": text("guard")})
	if err != nil {
		return err
	}
	writes := []types.TransactWriteItem{raise}
	for _, put := range items {
		writes = append(writes, types.TransactWriteItem{Put: &types.Put{TableName: aws.String(table), Item: put}})
	}
	_, err = db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: writes})
	return guard.Explain(err)
}

// item shows which run wrote it, for people to see; what refuses a stale run is the
// guard.
func item(key string, f int64, content string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"pk":      text(key),
		"content": text(content),
		"writer":  &types.AttributeValueMemberN{Value: strconv.FormatInt(f, 10)},
	}
}

func text(value string) types.AttributeValue { return &types.AttributeValueMemberS{Value: value} }

func createTable(ctx context.Context, db *dynamodb.Client) error {
	_, err := db.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:            aws.String(table),
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
	})
	var exists *types.ResourceInUseException
	if errors.As(err, &exists) {
		return nil
	}
	if err != nil {
		return err
	}
	created := dynamodb.NewTableExistsWaiter(db)
	return created.Wait(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(table)}, time.Minute)
}
