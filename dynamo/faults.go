package dynamo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"solojob/leader"
)

// unreachableFor is how long an endpoint that was set by hand, and at which
// nothing listens, is tried at the start before it is called wrong.
const unreachableFor = 5 * time.Second

// faults tells apart what DynamoDB's errors mean for a lease.
type faults struct {
	client   *Client
	table    string
	answered atomic.Bool  // DynamoDB has served a request
	refused  atomic.Int64 // wall time (ns) of the first refused connection
}

func (f *faults) served() { f.answered.Store(true) }

// explain turns an error of the SDK into a *[leader.ConditionError], an error
// that is [leader.ErrRefused], or one that says nothing about whether a write
// was applied.
func (f *faults) explain(ctx context.Context, err error) error {
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		f.served()
		if len(failed.Item) == 0 {
			return &leader.ConditionError{} // no row, or a server that returns none
		}
		row, damage := parseRow(failed.Item)
		if damage != nil {
			return damage
		}
		row.Date = dateOf(err)
		return &leader.ConditionError{Known: true, Row: row}
	}
	if late(ctx, err) {
		// Other idle connections may lead down the same hole.
		f.client.transport.CloseIdleConnections()
	}
	return f.sentence(ctx, err)
}

// dateOf is the service's clock in the reply that an error came with, zero if
// unknown.
func dateOf(err error) time.Time {
	var reply *awshttp.ResponseError
	if !errors.As(err, &reply) || reply.Response == nil {
		return time.Time{}
	}
	date, err := http.ParseTime(reply.Response.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}

// Explain says what an error of a job's own write to a table means to a person;
// one by which the table is out of reach for good is [leader.ErrRefused].
func (c *Client) Explain(table string, err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	if api.ErrorCode() == "ResourceNotFoundException" {
		return fmt.Errorf("%w: there is no table %q in %s", leader.ErrRefused, table, c.region)
	}
	return fmt.Errorf("DynamoDB answered %s: %s", api.ErrorCode(), api.ErrorMessage())
}

func late(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
}

// sentence says what an error means to a person.
func (f *faults) sentence(ctx context.Context, err error) error {
	if late(ctx, err) {
		return fmt.Errorf("no reply in time: %w", rootCause(err))
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		if s := f.refusal(api); s != "" {
			return fmt.Errorf("%w: %s", leader.ErrRefused, s)
		}
		return fmt.Errorf("DynamoDB answered %s: %s", api.ErrorCode(), api.ErrorMessage())
	}
	if f.nobodyListens(err) {
		return fmt.Errorf("%w: nothing answers at the endpoint %s (%v): correct AWS_ENDPOINT_URL_DYNAMODB (or AWS_ENDPOINT_URL), or start what should listen there",
			leader.ErrRefused, f.client.endpoint, rootCause(err))
	}
	return fmt.Errorf("no reply: %w", rootCause(err))
}

// refusal is what to do about an answer that no retry changes, "" for others.
func (f *faults) refusal(api smithy.APIError) string {
	switch api.ErrorCode() {
	case "ResourceNotFoundException":
		return fmt.Sprintf("there is no table %q in %s: create it with `solojob init`, or set SOLOJOB_TABLE and AWS_REGION to where it is", f.table, f.client.region)
	case "AccessDeniedException", "UnrecognizedClientException", "InvalidClientTokenId", "MissingAuthenticationToken", "ExpiredTokenException":
		return fmt.Sprintf("access to table %q is denied (%s): allow the task role dynamodb:GetItem and dynamodb:UpdateItem on it, and check that its credentials are current", f.table, api.ErrorMessage())
	case "ValidationException":
		if !strings.Contains(strings.ToLower(api.ErrorMessage()), "key") {
			return ""
		}
		return fmt.Sprintf("table %q can't hold leases (%s): it needs the keys pk (string, partition) and sk (string, sort); create one with `solojob init`", f.table, api.ErrorMessage())
	}
	return ""
}

// nobodyListens reports whether an endpoint that was set by hand has turned out
// to be wrong. AWS's own endpoints are waited for, however long they are away.
func (f *faults) nobodyListens(err error) bool {
	var dns *net.DNSError
	if f.client.endpoint == "" || f.answered.Load() ||
		!errors.Is(err, syscall.ECONNREFUSED) && !(errors.As(err, &dns) && dns.IsNotFound) {
		return false
	}
	now := time.Now()
	f.refused.CompareAndSwap(0, now.UnixNano())
	return now.Sub(time.Unix(0, f.refused.Load())) >= unreachableFor
}
