package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"solojob/dynamo"
)

const (
	// madeWithin is how long a table may take to be made; some seconds are usual.
	madeWithin = 3 * time.Minute
	// lookEvery is how often it is asked for meanwhile.
	lookEvery = time.Second
)

// Init makes the table if there is none, waits until it can be used, and writes
// a line for each of its checks. A table that is there is never changed. The
// error says what failed, or how many things are wrong.
func Init(ctx context.Context, o Options, out io.Writer) error {
	client, err := o.Connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r := &report{out: out}
	created, err := ensure(ctx, client, o.Table)
	switch {
	case err != nil:
		return err
	case created:
		r.add(fine, "created", "table %q in %s", o.Table, client.Region())
	default:
		r.add(fine, "already there", "table %q in %s", o.Table, client.Region())
	}
	r.table(ctx, client, o.Table)
	return r.err()
}

// ensure makes the table unless it is there, and waits for it either way.
func ensure(ctx context.Context, client *dynamo.Client, name string) (created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, madeWithin)
	defer cancel()
	t, err := client.DescribeTable(ctx, name)
	if errors.Is(err, dynamo.ErrNoTable) {
		if created, err = client.CreateTable(ctx, name); errors.Is(err, dynamo.ErrDenied) {
			return false, fmt.Errorf("the table can't be made: %w: run `solojob init` as somebody who may dynamodb:CreateTable, or use the template in deploy/", err)
		}
		if err != nil {
			return false, fmt.Errorf("the table can't be made: %w", err)
		}
		t, err = client.DescribeTable(ctx, name)
	}
	for {
		switch {
		case err == nil && t.Active:
			return created, nil
		case errors.Is(err, dynamo.ErrDenied):
			return created, fmt.Errorf("the table can't be looked at: %w: allow yourself dynamodb:DescribeTable on it", err)
		case err != nil && !(created && errors.Is(err, dynamo.ErrNoTable)): // a new table may take a moment to show
			return created, fmt.Errorf("the table can't be looked at: %w", err)
		}
		select {
		case <-ctx.Done():
			return created, fmt.Errorf("table %q is not ready after %v: run `solojob init` again, which goes on waiting", name, madeWithin)
		case <-time.After(lookEvery):
		}
		t, err = client.DescribeTable(ctx, name)
	}
}

// table checks that a table can hold leases. It is usable unless it is known
// not to be.
func (r *report) table(ctx context.Context, client *dynamo.Client, name string) (usable bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	t, err := client.DescribeTable(ctx, name)
	switch {
	case errors.Is(err, dynamo.ErrNoTable):
		r.add(wrong, "table", "there is no table %q in %s: create it with `solojob init`, or set SOLOJOB_TABLE and AWS_REGION to where it is", name, client.Region())
		r.add(skipped, "keys, time to live", "there is no table")
		return false
	case errors.Is(err, dynamo.ErrDenied):
		r.add(skipped, "table, keys", "dynamodb:DescribeTable is not allowed, and an agent does without it")
	case errors.Is(err, dynamo.ErrUnsupported):
		r.add(skipped, "table, keys", "the endpoint does not know the call DescribeTable: it isn't AWS's")
	case err != nil:
		r.add(wrong, "table", "%v", err)
		r.add(skipped, "keys, time to live", "the table can't be looked at")
		return true
	default:
		r.described(t)
	}
	r.timeToLive(ctx, client, name)
	return t == nil || t.Active && t.HoldsLeases()
}

func (r *report) described(t *dynamo.Table) {
	if !t.Active {
		r.add(wrong, "table", "%s can't be used now: it is being made or deleted; look at it in the console, and wait", t.Name)
	} else {
		r.add(fine, "table", "%s", t.Name)
	}
	if !t.HoldsLeases() {
		has := t.Partition
		if t.Sort != "" {
			has += " and " + t.Sort
		}
		r.add(wrong, "keys", "the table has %s, and needs %s and %s: keys can't be changed, so create another table with `solojob init`, and set SOLOJOB_TABLE to it",
			has, dynamo.PartitionKey, dynamo.SortKey)
	} else {
		r.add(fine, "keys", "%s and %s", t.Partition, t.Sort)
	}
	if t.Protected {
		r.add(fine, "deletion protection", "on")
	} else {
		r.add(remark, "deletion protection", "off: whoever deletes the table stops every job; aws dynamodb update-table --table-name %s --deletion-protection-enabled", t.Name)
	}
	switch {
	case len(t.Replicas) == 0:
		r.add(fine, "replicas", "none")
	case t.Consistent:
		r.add(fine, "replicas", "in %s, strongly consistent", strings.Join(t.Replicas, ", "))
	default:
		r.add(wrong, "replicas", "in %s, eventually consistent: two Regions can hold one lease at once; use a table without replicas, or with multi-Region strong consistency", strings.Join(t.Replicas, ", "))
	}
}

func (r *report) timeToLive(ctx context.Context, client *dynamo.Client, name string) {
	const line = "time to live"
	attribute, err := client.TimeToLive(ctx, name)
	switch {
	case errors.Is(err, dynamo.ErrDenied):
		r.add(skipped, line, "dynamodb:DescribeTimeToLive is not allowed, and an agent does without it")
	case errors.Is(err, dynamo.ErrUnsupported):
		r.add(skipped, line, "the endpoint does not know the call DescribeTimeToLive: it isn't AWS's")
	case err != nil:
		r.add(skipped, line, "%v", err)
	case attribute != "":
		r.add(wrong, line, "on, by %q: DynamoDB may delete the lease, and FENCE would start anew; aws dynamodb update-time-to-live --table-name %s --time-to-live-specification Enabled=false,AttributeName=%s",
			attribute, name, attribute)
	default:
		r.add(fine, line, "off")
	}
}
