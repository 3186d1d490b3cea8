package dynamo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"solojob/leader"
)

// Why a question about a table has no answer.
var (
	ErrNoTable     = errors.New("there is no such table")
	ErrDenied      = errors.New("access is denied")
	ErrUnsupported = errors.New("the endpoint does not know the call") // it isn't AWS's own
)

// Table is what DynamoDB tells about a table.
type Table struct {
	Name       string
	ARN        string
	Active     bool
	Partition  string // name and type of the key, such as "pk (S)"
	Sort       string // "" if there is none
	OnDemand   bool
	Protected  bool     // against deletion
	Replicas   []string // other Regions with a copy
	Consistent bool     // the replicas are strongly consistent
}

// The keys of a table that can hold leases, as [Table] describes them.
const (
	PartitionKey = "pk (S)"
	SortKey      = "sk (S)"
)

// HoldsLeases reports whether the table has the keys for it, as far as it tells.
func (t *Table) HoldsLeases() bool {
	return (t.Partition == PartitionKey || t.Partition == "pk") && (t.Sort == SortKey || t.Sort == "sk")
}

// Region is where the client's requests go.
func (c *Client) Region() string { return c.region }

// Credentials are those that requests are signed with now.
func (c *Client) Credentials(ctx context.Context) (aws.Credentials, error) {
	return c.other.Options().Credentials.Retrieve(ctx)
}

// DescribeTable asks for a table. The error may be [ErrNoTable], [ErrDenied] or
// [ErrUnsupported].
func (c *Client) DescribeTable(ctx context.Context, name string) (*Table, error) {
	out, err := c.other.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		return nil, c.answer(ctx, err, name)
	}
	if out.Table == nil {
		return nil, ErrUnsupported
	}
	t := &Table{
		Name: aws.ToString(out.Table.TableName), ARN: aws.ToString(out.Table.TableArn),
		Active:    out.Table.TableStatus == types.TableStatusActive || out.Table.TableStatus == types.TableStatusUpdating,
		Protected: aws.ToBool(out.Table.DeletionProtectionEnabled),
		OnDemand:  out.Table.BillingModeSummary != nil && out.Table.BillingModeSummary.BillingMode == types.BillingModePayPerRequest,
		// The first version of global tables (2017) knows only eventual consistency.
		Consistent: out.Table.MultiRegionConsistency == types.MultiRegionConsistencyStrong,
	}
	kinds := map[string]types.ScalarAttributeType{}
	for _, a := range out.Table.AttributeDefinitions {
		kinds[aws.ToString(a.AttributeName)] = a.AttributeType
	}
	for _, k := range out.Table.KeySchema {
		key := aws.ToString(k.AttributeName)
		if kind := kinds[key]; kind != "" { // not every stand-in for DynamoDB tells it
			key += fmt.Sprintf(" (%s)", kind)
		}
		if k.KeyType == types.KeyTypeHash {
			t.Partition = key
		} else {
			t.Sort = key
		}
	}
	for _, r := range out.Table.Replicas {
		if region := aws.ToString(r.RegionName); region != c.region {
			t.Replicas = append(t.Replicas, region)
		}
	}
	if aws.ToString(out.Table.GlobalTableVersion) == "2017.11.29" && len(t.Replicas) == 0 {
		t.Replicas = []string{"other Regions (version 2017.11.29)"}
	}
	return t, nil
}

// CreateTable makes a table that can hold leases: on demand, and protected
// against deletion. It returns while the table is being made. Created is false,
// and the error nil, for a table that is there already.
func (c *Client) CreateTable(ctx context.Context, name string) (created bool, err error) {
	_, err = c.other.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   &name,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("sk"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("sk"), KeyType: types.KeyTypeRange},
		},
		DeletionProtectionEnabled: aws.Bool(true),
	})
	var exists *types.ResourceInUseException
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &exists):
		return false, nil
	}
	return false, c.answer(ctx, err, name)
}

// TimeToLive is the attribute by which DynamoDB deletes the table's items, ""
// when it deletes none. The errors are those of [Client.DescribeTable].
func (c *Client) TimeToLive(ctx context.Context, name string) (attribute string, err error) {
	out, err := c.other.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &name})
	if err != nil {
		return "", c.answer(ctx, err, name)
	}
	if out.TimeToLiveDescription == nil {
		return "", ErrUnsupported
	}
	switch out.TimeToLiveDescription.TimeToLiveStatus {
	case types.TimeToLiveStatusEnabled, types.TimeToLiveStatusEnabling:
		return aws.ToString(out.TimeToLiveDescription.AttributeName), nil
	}
	return "", nil
}

// probeItem is the item that dry runs are about: under the lease's own partition
// key, since a policy may allow that alone, and never there.
const probeItem = "doctor"

// probeLease is any duration: it is never written.
const probeLease = time.Minute

// ProbeRead reads an item under the lease's key that does not exist. The time
// is that of the service's own clock at the reply, zero if it sent none.
func (c *Client) ProbeRead(ctx context.Context, table, lease string) (time.Time, error) {
	s := c.Lease(table, lease, probeItem)
	consistent := true
	out, err := c.other.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: s.key, ConsistentRead: &consistent})
	if err != nil {
		return dateOf(err), s.faults.sentence(ctx, err)
	}
	date, _ := awsmiddleware.GetServerTime(out.ResultMetadata)
	return date, nil
}

// Probe is what a dry run of one of the elector's writes came to.
type Probe struct {
	Write string // acquire, renew, claim or release
	Err   error  // nil if it is allowed
}

// ProbeWrites sends each of the elector's writes once, about an item that does
// not exist and with a condition that only an item can meet which holds the
// random beat of this very call: nothing is changed, and DynamoDB itself checks
// permissions, table and expressions.
func (c *Client) ProbeWrites(ctx context.Context, table, lease string) []Probe {
	s := c.Lease(table, lease, probeItem)
	never := rand.Text()
	renewal := leader.Renewal{Owner: never, Fence: 1, Beat: never, Wall: time.Unix(0, 0)}
	claim := renewal
	claim.Claim = &leader.Claim{Tick: "2006-01-02T15:04:05Z"}
	var probes []Probe
	for _, write := range []struct {
		name string
		send func() (*leader.Row, error)
	}{
		{"acquire", func() (*leader.Row, error) {
			return s.Acquire(ctx, leader.Acquisition{
				Owner: never, Fence: 2, Beat: never, Lease: probeLease, Wall: time.Unix(0, 0),
				Seen: &leader.Row{Beat: never, Fence: 1},
			})
		}},
		{"renew", func() (*leader.Row, error) { return s.Renew(ctx, renewal) }},
		{"claim", func() (*leader.Row, error) { return s.Renew(ctx, claim) }},
		{"release", func() (*leader.Row, error) {
			return s.Release(ctx, leader.Release{Owner: never, Fence: 1, Beat: never})
		}},
	} {
		_, err := write.send()
		var refused *leader.ConditionError
		switch {
		case err == nil:
			err = errors.New("the endpoint wrote what its condition forbade: it can't hold leases")
		case errors.As(err, &refused):
			err = nil // allowed, and as was meant, not done
		}
		probes = append(probes, Probe{write.name, err})
	}
	return probes
}

// answer says what an error means for a question about a table.
func (c *Client) answer(ctx context.Context, err error, table string) error {
	var api smithy.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode() {
		case "ResourceNotFoundException", "TableNotFoundException":
			return fmt.Errorf("%w: %q in %s", ErrNoTable, table, c.region)
		case "AccessDeniedException":
			return fmt.Errorf("%w: %s", ErrDenied, api.ErrorMessage())
		case "UnknownOperationException", "UnknownOperation":
			return ErrUnsupported
		}
	}
	var garbled *smithy.DeserializationError
	if errors.As(err, &garbled) {
		return fmt.Errorf("%w: %w", ErrUnsupported, rootCause(err))
	}
	return (&faults{client: c, table: table}).sentence(ctx, err)
}
