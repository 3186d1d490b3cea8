package fencedput_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/devstore"
	"solojob/fence"
	"solojob/fence/fencedput"
	"solojob/fence/fencedynamo"
)

const table = "reports"

func store(t *testing.T) *dynamodb.Client {
	t.Helper()
	served, err := devstore.Start(t.Context(), devstore.Options{Table: table})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(served.Close)
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(served.URL()),
		Region:       "eu-west-1",
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

func put(t *testing.T, db *dynamodb.Client, guard fencedynamo.Guard, item string) error {
	t.Helper()
	return fencedput.Put(t.Context(), db, fencedput.Options{Table: table, Guard: guard, Item: strings.NewReader(item)})
}

func stored(t *testing.T, db *dynamodb.Client) map[string]types.AttributeValue {
	t.Helper()
	found, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: aws.String(table), ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "a"}, "sk": &types.AttributeValueMemberS{Value: "b"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return found.Item
}

// A newer run replaces the item, the same run may, an older one is refused with
// the status of a lost lease and changes nothing.
func TestPutIsFenced(t *testing.T) {
	db := store(t)
	for _, step := range []struct {
		fence  int64
		item   string
		status int
	}{
		{5, `{"pk":"a","sk":"b","step":1}`, 0},
		{5, `{"pk":"a","sk":"b","step":2}`, 0},
		{4, `{"pk":"a","sk":"b","step":3}`, fence.ExitStale},
		{6, `{"pk":"a","sk":"b","step":4}`, 0},
		{5, `{"pk":"a","sk":"b","step":5}`, fence.ExitStale},
	} {
		err := put(t, db, fencedynamo.Guard{Fence: step.fence}, step.item)
		if status := fencedput.ExitStatus(err); status != step.status {
			t.Fatalf("fence %d, %s: status %d (%v), want %d", step.fence, step.item, status, err, step.status)
		}
	}
	item := stored(t, db)
	if step := item["step"].(*types.AttributeValueMemberN).Value; step != "4" {
		t.Fatalf("step %s is stored, want 4", step)
	}
	if f := item["fence"].(*types.AttributeValueMemberN).Value; f != "6" {
		t.Fatalf("fence %s is stored, want 6", f)
	}
}

// What is put is what was written down, digit for digit.
func TestItemArrivesVerbatim(t *testing.T) {
	db := store(t)
	input := `{"pk":"a","sk":"b","big":12345678901234567890123456789012345678,"small":1.10,"yes":true,"none":null,
		"list":["x",1,["y"]],"map":{"k":{"deep":false}},"text":"ünï\u0000 \"q\""}`
	if err := put(t, db, fencedynamo.Guard{Fence: 7, Attribute: "by"}, input); err != nil {
		t.Fatal(err)
	}
	want := map[string]types.AttributeValue{
		"pk": &types.AttributeValueMemberS{Value: "a"}, "sk": &types.AttributeValueMemberS{Value: "b"},
		"by":    &types.AttributeValueMemberN{Value: "7"},
		"big":   &types.AttributeValueMemberN{Value: "12345678901234567890123456789012345678"},
		"small": &types.AttributeValueMemberN{Value: "1.10"},
		"yes":   &types.AttributeValueMemberBOOL{Value: true},
		"none":  &types.AttributeValueMemberNULL{Value: true},
		"text":  &types.AttributeValueMemberS{Value: "ünï\x00 \"q\""},
		"list": &types.AttributeValueMemberL{Value: []types.AttributeValue{
			&types.AttributeValueMemberS{Value: "x"}, &types.AttributeValueMemberN{Value: "1"},
			&types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberS{Value: "y"}}},
		}},
		"map": &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{
			"k": &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{"deep": &types.AttributeValueMemberBOOL{Value: false}}},
		}},
	}
	got := stored(t, db)
	for name := range want {
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("%s: got %#v, want %#v", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d attributes are stored, want %d", len(got), len(want))
	}
}

// An input that is no item is refused before anything is sent, with a sentence.
func TestBadItems(t *testing.T) {
	for name, input := range map[string]string{
		"nothing": "", "an array": `[1]`, "text": `"x"`, "null": `null`, "an empty object": `{}`,
		"two objects": `{"pk":"a"}{"pk":"b"}`, "a comma too many": `{"pk":"a",}`,
		"the fence itself": `{"pk":"a","sk":"b","fence":99}`,
		"too much":         `{"pk":"` + strings.Repeat("a", 6*400<<10) + `"}`,
	} {
		err := put(t, nil, fencedynamo.Guard{Fence: 1}, input) // no client: sending would panic
		if !errors.Is(err, fencedput.ErrItem) || fencedput.ExitStatus(err) != 78 {
			t.Errorf("%s: %v (status %d), want ErrItem", name, err, fencedput.ExitStatus(err))
		}
	}
}

// A retry of the one write that a run may make is a success; a store that can't be
// reached is neither that nor stale.
func TestExitStatus(t *testing.T) {
	shown := &types.ConditionalCheckFailedException{Item: map[string]types.AttributeValue{"fence": &types.AttributeValueMemberN{Value: "5"}}}
	guard := fencedynamo.Guard{Fence: 5, Once: true}
	if status := fencedput.ExitStatus(guard.Explain(shown)); status != 0 {
		t.Errorf("already written by this run: status %d, want 0", status)
	}
	guard.Fence = 4
	if status := fencedput.ExitStatus(guard.Explain(shown)); status != fence.ExitStale {
		t.Errorf("once, stale: status %d, want %d", status, fence.ExitStale)
	}
	if status := fencedput.ExitStatus(errors.New("connection refused")); status != 1 {
		t.Errorf("unreachable: status %d, want 1", status)
	}
	if status := fencedput.ExitStatus(fence.ErrNotUnderSolojob); status != 78 {
		t.Errorf("no FENCE: status %d, want 78", status)
	}
}
