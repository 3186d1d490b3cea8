package dynamo

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/leader"
)

// maxLease is the longest lease that a row may carry: a damaged one must not
// keep the standbys waiting for years without a word.
const maxLease = 24 * time.Hour

// maxFence is the largest fence that a row may carry: exact in every JSON parser,
// and so far from the end of the int64 that no fence after it can be a negative
// one. No lease that is used as it is meant comes near it.
const maxFence = 1 << 53

// parseRow reads the lease item. A row whose attributes are missing, of another
// type or out of range is an error that names them all: nobody may act on a
// guess of what it meant.
func parseRow(item map[string]types.AttributeValue) (*leader.Row, error) {
	p := parser{item: item}
	row := &leader.Row{
		Owner:     p.text("owner"),
		Fence:     p.number("fence"),
		Beat:      p.text("beat"),
		Lease:     time.Duration(min(p.number("lease_ms"), int64(maxLease/time.Millisecond)+1)) * time.Millisecond,
		Draining:  p.flag("draining"),
		Revision:  p.text("revision"),
		Announced: p.text("announced"),
		Since:     p.text("since"),
		Requests: leader.Requests{
			Paused: p.flag("paused"), PausedBy: p.text("paused_by"),
			Handover: p.text("handover"), HandoverNow: p.flag("handover_now"), HandoverBy: p.text("handover_by"),
			RunNow: p.text("run_now"), RunBy: p.text("run_by"),
		},
		Record: leader.Record{
			Schedule:  p.text("schedule"),
			Through:   p.text("through"),
			Tick:      p.text("tick"),
			TickState: p.text("tick_state"),
			Attempt:   int(p.number("tick_attempt")),
			Runs:      int(p.number("runs")),
		},
		RunFence: p.number("run_fence"),
	}
	if since := p.text("run_since"); since != "" {
		row.Record.RunSince = &since
	}
	if _, ok := item["exit_code"]; ok {
		code := int(p.number("exit_code"))
		row.Record.ExitCode = &code
	}
	if row.Fence > maxFence {
		p.fault("fence", fmt.Sprintf("is greater than %d, the largest that there may be", maxFence))
	}
	if row.Beat != "" {
		if _, ok := item["fence"]; !ok {
			p.fault("fence", "is missing")
		}
		if row.Owner != "" && (row.Lease <= 0 || row.Lease > maxLease) {
			p.fault("lease_ms", fmt.Sprintf("is not between 1 and %d", maxLease.Milliseconds()))
		}
	}
	if err := p.err("the lease's row"); err != nil {
		return nil, fmt.Errorf("%w; correct it by hand, or delete the attribute \"beat\" to have it made anew above its fence", err)
	}
	return row, nil
}

type parser struct {
	item   map[string]types.AttributeValue
	faults []string
}

// err is every fault of the item, nil for none.
func (p *parser) err(what string) error {
	if len(p.faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s is damaged: %s", what, strings.Join(p.faults, ", "))
}

func (p *parser) fault(name, what string) {
	p.faults = append(p.faults, fmt.Sprintf("%q %s", name, what))
}

func (p *parser) text(name string) string {
	switch v := p.item[name].(type) {
	case nil:
	case *types.AttributeValueMemberS:
		return v.Value
	default:
		p.fault(name, "is not a string")
	}
	return ""
}

func (p *parser) number(name string) int64 {
	switch v := p.item[name].(type) {
	case nil:
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err == nil && n >= 0 {
			return n
		}
		p.fault(name, "is not a whole number from 0 to 9223372036854775807")
	default:
		p.fault(name, "is not a number")
	}
	return 0
}

func (p *parser) flag(name string) bool {
	switch v := p.item[name].(type) {
	case nil:
	case *types.AttributeValueMemberBOOL:
		return v.Value
	default:
		p.fault(name, "is not a boolean")
	}
	return false
}

// update builds one UpdateItem. Every attribute goes through an alias: several
// are reserved words, and a word may become one.
type update struct {
	sets, conditions []string
	names            map[string]string
	values           map[string]types.AttributeValue
}

func newUpdate() *update {
	return &update{names: map[string]string{}, values: map[string]types.AttributeValue{}}
}

func (u *update) expression() string { return "SET " + strings.Join(u.sets, ", ") }
func (u *update) condition() string  { return strings.Join(u.conditions, " AND ") }

// input is the request. It asks for the item after the write, and for the item
// as it is if a condition fails.
func (u *update) input(table string, key map[string]types.AttributeValue) *dynamodb.UpdateItemInput {
	expression, condition := u.expression(), u.condition()
	return &dynamodb.UpdateItemInput{
		TableName: &table, Key: key,
		UpdateExpression:          &expression,
		ConditionExpression:       &condition,
		ExpressionAttributeNames:  u.names,
		ExpressionAttributeValues: u.values,
		ReturnValues:              types.ReturnValueAllNew,

		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

func (u *update) name(attribute string) string {
	alias := "#" + attribute
	u.names[alias] = attribute
	return alias
}

func (u *update) value(as string, v types.AttributeValue) string {
	alias := ":" + as
	u.values[alias] = v
	return alias
}

func (u *update) set(attribute string, v types.AttributeValue) {
	u.sets = append(u.sets, u.name(attribute)+" = "+u.value(attribute, v))
}

func (u *update) setString(attribute, v string) { u.set(attribute, text(v)) }
func (u *update) setBool(attribute string, v bool) {
	u.set(attribute, &types.AttributeValueMemberBOOL{Value: v})
}
func (u *update) setNumber(attribute string, v int64) { u.set(attribute, number(v)) }

func (u *update) setRecord(r leader.Record) {
	for _, f := range []struct{ attribute, value string }{
		{"schedule", r.Schedule}, {"through", r.Through}, {"tick", r.Tick}, {"tick_state", r.TickState},
	} {
		if f.value != "" {
			u.setString(f.attribute, f.value)
		}
	}
	if r.Tick != "" {
		u.setNumber("tick_attempt", int64(r.Attempt))
	}
	if r.Runs > 0 {
		u.setNumber("runs", int64(r.Runs))
	}
	if r.RunSince != nil {
		u.setString("run_since", *r.RunSince)
	}
	if r.ExitCode != nil {
		u.setNumber("exit_code", int64(*r.ExitCode))
	}
}

func (u *update) where(condition string) { u.conditions = append(u.conditions, condition) }

func (u *update) whereString(attribute, operator, as, v string) {
	u.where(u.name(attribute) + " " + operator + " " + u.value(as, text(v)))
}

func (u *update) whereNumber(attribute, operator, as string, v int64) {
	u.where(u.name(attribute) + " " + operator + " " + u.value(as, number(v)))
}

// whereHeld is the holder's condition. The comparison of the beats keeps a
// duplicate of an old renewal from bringing back a beat that a standby has
// already timed.
func (u *update) whereHeld(owner string, fence int64, beat string) {
	u.whereString("owner", "=", "me", owner)
	u.whereNumber("fence", "=", "mine", fence)
	u.whereString("beat", "<", "beat", beat)
}

func text(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }

func number(v int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(v, 10)}
}
