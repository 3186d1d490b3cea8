// Package setup is the way to a working deployment: [Init] makes the table, and
// [Doctor] checks everything that a task needs, one line each, with what to do.
package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"solojob/dynamo"
	"solojob/ecs"
	"solojob/leader"
)

// Options are what the commands are told. Lease, StopGrace and Environ are the
// doctor's alone.
type Options struct {
	Table     string // a name, or an ARN
	Lease     string // "" checks with a name of the doctor's own
	StopGrace time.Duration
	Environ   []string // the process's own

	// Connect finds region, credentials and endpoint.
	Connect func(context.Context) (*dynamo.Client, error)
	Now     func() time.Time // the wall clock
}

const (
	// askTimeout bounds each request to DynamoDB, all tries included.
	askTimeout = 10 * time.Second
	// usualStopTimeout is what ECS gives a container between the signal to stop
	// and the kill, unless the task definition says otherwise.
	usualStopTimeout = 30 * time.Second
	// longestStopTimeout is the most that Fargate allows.
	longestStopTimeout = 120 * time.Second
	// stopMargin is what an agent needs between the kill of its job and its own
	// end: the release of the lease, with retries.
	stopMargin = 5 * time.Second
	// smallSkew is what the agent's scheduler ignores, largeSkew what is a fault
	// of the machine. At five minutes AWS refuses signatures.
	smallSkew = 2 * time.Second
	largeSkew = time.Minute
	// doctorLease stands for a lease where none is set.
	doctorLease = "solojob-doctor"
)

// verdict is how a line begins.
type verdict string

const (
	fine    verdict = "ok"
	wrong   verdict = "WRONG"
	remark  verdict = "note"
	skipped verdict = "-" // not checked
)

// report is the lines so far.
type report struct {
	out    io.Writer
	wrongs int
	failed error // of the first line that can't be written
}

// line widths, for columns.
const lineFormat = "%-5s  %-19s  %s\n"

func (r *report) add(v verdict, name, format string, args ...any) {
	if v == wrong {
		r.wrongs++
	}
	text := fmt.Sprintf(format, args...)
	if v == skipped {
		text = "not checked: " + text
	}
	// What others say may have line breaks.
	if _, err := fmt.Fprintf(r.out, lineFormat, v, name, strings.Join(strings.Fields(text), " ")); err != nil && r.failed == nil {
		r.failed = err
	}
}

// err sums the lines up.
func (r *report) err() error {
	switch {
	case r.failed != nil:
		return fmt.Errorf("the report can't be written: %w", r.failed)
	case r.wrongs == 1:
		return errors.New("1 thing is wrong")
	case r.wrongs > 0:
		return fmt.Errorf("%d things are wrong", r.wrongs)
	}
	return nil
}

// Doctor checks what a task needs, and writes a line for each check. It changes
// nothing. The error says how many things are wrong; what can't be checked, for
// want of a permission or because the endpoint isn't AWS's, is not.
func Doctor(ctx context.Context, o Options, out io.Writer) error {
	r := &report{out: out}
	client, err := o.Connect(ctx)
	if err != nil {
		r.add(wrong, "AWS configuration", "%v", err)
		r.add(skipped, "table", "it needs region, credentials and endpoint")
	} else {
		defer client.Close()
		r.add(fine, "region", "%s", client.Region())
		r.credentials(ctx, client, o)
		usable := r.table(ctx, client, o.Table)
		r.requests(ctx, client, o, usable)
	}
	r.task(ctx, o)
	return r.err()
}

func (r *report) credentials(ctx context.Context, client *dynamo.Client, o Options) {
	const name = "credentials"
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := client.Credentials(ctx)
	if err != nil {
		r.add(wrong, name, "%v", err)
		return
	}
	switch c.Source {
	case "CredentialsEndpointProvider":
		r.add(fine, name, "of the task role")
	case "EnvConfigCredentials":
		r.add(fine, name, "from AWS_ACCESS_KEY_ID in the environment")
	case "EC2RoleProvider":
		if ecs.On(o.Environ) {
			r.add(remark, name, "of the machine's role, which every task on it has: give the task a role of its own (taskRoleArn)")
			return
		}
		r.add(fine, name, "of the machine's role")
	default:
		r.add(fine, name, "from %s", c.Source)
	}
}

// requests sends what an agent sends, in a way that changes nothing. To a table
// that is of no use it sends a read, for the clock's sake.
func (r *report) requests(ctx context.Context, client *dynamo.Client, o Options, usable bool) {
	lease := o.Lease
	if lease == "" {
		lease = doctorLease
		r.add(remark, "lease", "SOLOJOB_LEASE is not set: a policy that allows one lease alone will deny %q", lease)
	} else {
		r.add(fine, "lease", "%s", lease)
	}
	read, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	before := o.Now()
	date, err := client.ProbeRead(read, o.Table, lease)
	after := o.Now()
	switch {
	case !usable:
		r.add(skipped, "read, writes", "the table is of no use")
	case err != nil && date.IsZero():
		r.request("read", fmt.Errorf("%w: give the task a way to DynamoDB (in a VPC, a gateway endpoint for it or a NAT gateway), and let its security group use it", err))
		r.add(skipped, "writes", "there is no way to DynamoDB")
	default:
		r.request("read", err)
		write, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		for _, p := range client.ProbeWrites(write, o.Table, lease) {
			r.request(p.Write, p.Err)
		}
		if err == nil && o.Lease != "" {
			r.ticks(ctx, client, o, date)
		}
	}
	r.clock(before, date, after)
}

// ticks looks for ticks that are decided before their time: none of them will run.
func (r *report) ticks(ctx context.Context, client *dynamo.Client, o Options, date time.Time) {
	const name = "ticks"
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	row, err := client.Lease(o.Table, o.Lease, dynamo.LeaseItem).Read(ctx, true)
	switch {
	case err != nil:
		r.add(wrong, name, "%v", err)
		return
	case row == nil || row.Record.Through == "":
		return // no schedule yet
	}
	through, err := time.Parse(time.RFC3339, row.Record.Through)
	switch ahead := through.Sub(date); {
	case err != nil:
		r.add(wrong, name, "the row's through is %.40q, which is no time like 2026-01-02T03:04:05Z: correct it by hand", row.Record.Through)
	case !date.IsZero() && ahead > smallSkew+time.Second:
		r.add(wrong, name, "those up to %s are decided already, %v ahead of DynamoDB's clock: none runs before. Some task's clock was wrong, or the row was changed by hand: set its attribute through to the present", row.Record.Through, ahead.Round(time.Second))
	default:
		r.add(fine, name, "decided up to %s", row.Record.Through)
	}
}

func (r *report) request(name string, err error) {
	if err != nil {
		r.add(wrong, name, "%s", strings.TrimPrefix(err.Error(), leader.ErrRefused.Error()+": "))
		return
	}
	r.add(fine, name, "allowed")
}

// clock compares this machine's clock with the service's, whose dates leave out
// the parts of a second.
func (r *report) clock(before, date, after time.Time) {
	const name = "clock"
	if date.IsZero() {
		r.add(skipped, name, "the replies have no date")
		return
	}
	skew, direction := before.Sub(date.Add(time.Second)), "ahead of"
	if behind := date.Sub(after); behind > 0 {
		skew, direction = behind, "behind"
	}
	switch {
	case skew <= smallSkew:
		r.add(fine, name, "within %v of DynamoDB's", smallSkew)
	case skew <= largeSkew:
		r.add(remark, name, "%v %s DynamoDB's: schedules are kept by DynamoDB's; set up time synchronisation", skew.Round(time.Second), direction)
	default:
		r.add(wrong, name, "%v %s DynamoDB's: set up time synchronisation (from five minutes on AWS refuses every request)", skew.Round(time.Second), direction)
	}
}

// task checks what ECS gives the task.
func (r *report) task(ctx context.Context, o Options) {
	m, err := ecs.Detect(ctx, o.Environ)
	switch {
	case err != nil:
		r.add(wrong, "task metadata", "%v: without it a deploy does not move the job by itself; on EC2 update the ECS agent (1.39.0 or later)", err)
	case m == nil && ecs.On(o.Environ):
		r.add(wrong, "task metadata", "%s is not set: use Fargate platform version 1.4.0 or later, or on EC2 ECS agent 1.39.0 or later", ecs.MetadataVariable)
	case m == nil:
		r.add(skipped, "task metadata", "this is not a task on ECS")
	case m.Service == "":
		r.add(remark, "task metadata", "task %s of %s:%s on cluster %s: no service is named, so nothing starts it again", m.TaskID, m.Family, m.Revision, m.Cluster)
	default:
		r.add(fine, "task metadata", "task %s of %s:%s in service %s on cluster %s", m.TaskID, m.Family, m.Revision, m.Service, m.Cluster)
	}
	r.stopGrace(o.StopGrace, m)
}

func (r *report) stopGrace(grace time.Duration, m *ecs.Metadata) {
	const name = "stop grace"
	needs := grace + stopMargin
	switch {
	case m != nil && m.LaunchType == "FARGATE" && needs > longestStopTimeout:
		r.add(wrong, name, "SOLOJOB_STOP_GRACE is %v, and Fargate kills after %v at most: set it to %v or less", grace, longestStopTimeout, longestStopTimeout-stopMargin)
	case needs > usualStopTimeout:
		r.add(remark, name, "SOLOJOB_STOP_GRACE is %v, and ECS kills after %v unless the container's stopTimeout says otherwise: set that to %.0f or more", grace, usualStopTimeout, needs.Seconds())
	default:
		r.add(fine, name, "%v, within the %v that ECS gives by default", grace, usualStopTimeout)
	}
}
