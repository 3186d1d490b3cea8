// Package fencedput is `solojob put`: one fenced write to DynamoDB for jobs that
// have no SDK, such as shell scripts.
//
//	jq -n --arg day "$DAY" --argjson total "$TOTAL" '{pk: $day, total: $total}' |
//		solojob put --table reports
//
// It earns its place beside the AWS CLI because the binary is in the container
// already, because it starts in milliseconds where the AWS CLI takes a second of
// CPU time, and because what makes the write safe (the condition, the raised
// fence, the meaning of a refusal) is not left to a script's quoting.
//
// It replaces a whole item and does nothing else. Updates of single attributes,
// transactions, sets and binary values are for the recipes in docs/FENCING.md.
package fencedput

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/fence"
	"solojob/fence/fencedynamo"
)

// maxInput bounds what is read as an item: DynamoDB takes at most 400 KB, and
// JSON can need up to six characters for one.
const maxInput = 6 * 400 << 10

// The exit statuses of `solojob put`, besides fence.ExitStale.
const (
	exitWritten = 0
	exitFailed  = 1
	exitUsage   = 78 // the item or FENCE is wrong: as for every configuration error
)

// ErrItem: the input is no item that can be put.
var ErrItem = errors.New("the item on standard input can't be put")

// Store is what this package needs of a DynamoDB client. The SDK's retries may be
// on: putting the same item twice under the same fence changes nothing.
type Store interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// Options says what to put, and where.
type Options struct {
	Table string
	Guard fencedynamo.Guard
	// Item is the item as one plain JSON object, keys included. Text becomes S,
	// a number N (digit for digit), true and false BOOL, null NULL, an array L,
	// an object M.
	Item io.Reader
}

// Put writes the item, or refuses: with fence.ErrStale if a newer run has written
// it, with fence.ErrAlreadyWritten if Guard.Once is set and this run has. An input
// that is no item is [ErrItem], and then nothing has been sent.
func Put(ctx context.Context, store Store, o Options) error {
	item, err := decode(o.Item)
	if err != nil {
		return err
	}
	attribute := o.Guard.Attribute
	if attribute == "" {
		attribute = fencedynamo.DefaultAttribute
	}
	if _, taken := item[attribute]; taken {
		return fmt.Errorf("%w: it has an attribute %q, which is where the fence is stored; leave it out, or choose another name for the fence's", ErrItem, attribute)
	}
	condition, err := expression.NewBuilder().WithCondition(o.Guard.Condition()).Build()
	if err != nil {
		return fmt.Errorf("build the fence's condition: %w", err)
	}
	_, err = store.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                           aws.String(o.Table),
		Item:                                o.Guard.Item(item),
		ConditionExpression:                 condition.Condition(),
		ExpressionAttributeNames:            condition.Names(),
		ExpressionAttributeValues:           condition.Values(),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	err = o.Guard.Explain(err)
	if errors.Is(err, fencedynamo.ErrUnexplained) && !o.Guard.Once {
		// Some stand-ins for DynamoDB don't show the item; but the fence is
		// the only condition, so nothing else can have refused.
		return fmt.Errorf("write refused: %w", fence.ErrStale)
	}
	return err
}

// ExitStatus is the status with which `solojob put` ends after err. A write that
// this run had made already is a success: the retry of a script whose first
// attempt went through.
func ExitStatus(err error) int {
	switch {
	case err == nil, errors.Is(err, fence.ErrAlreadyWritten):
		return exitWritten
	case errors.Is(err, fence.ErrStale):
		return fence.ExitStale
	case errors.Is(err, ErrItem), errors.Is(err, fence.ErrNotUnderSolojob), errors.Is(err, fence.ErrNotANumber):
		return exitUsage
	default:
		return exitFailed
	}
}

func decode(input io.Reader) (map[string]types.AttributeValue, error) {
	text, err := io.ReadAll(io.LimitReader(input, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("read the item from standard input: %w", err)
	}
	if len(text) > maxInput {
		return nil, fmt.Errorf("%w: it is larger than the 400 KB that DynamoDB takes", ErrItem)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float64 would change long numbers
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("%w: it must be one JSON object: %w", ErrItem, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: something follows the JSON object; one call puts one item", ErrItem)
	}
	if len(object) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrItem)
	}
	return attributes(object), nil
}

func attributes(object map[string]any) map[string]types.AttributeValue {
	item := make(map[string]types.AttributeValue, len(object))
	for name, value := range object {
		item[name] = attribute(value)
	}
	return item
}

// attribute converts what encoding/json decodes with UseNumber: no other types
// can come.
func attribute(value any) types.AttributeValue {
	switch v := value.(type) {
	case string:
		return &types.AttributeValueMemberS{Value: v}
	case json.Number:
		return &types.AttributeValueMemberN{Value: v.String()}
	case bool:
		return &types.AttributeValueMemberBOOL{Value: v}
	case []any:
		list := make([]types.AttributeValue, len(v))
		for i, element := range v {
			list[i] = attribute(element)
		}
		return &types.AttributeValueMemberL{Value: list}
	case map[string]any:
		return &types.AttributeValueMemberM{Value: attributes(v)}
	default:
		return &types.AttributeValueMemberNULL{Value: true}
	}
}
