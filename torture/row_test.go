//go:build linux

package torture

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"solojob/devstore"
)

// Row is what the protocol needs to know of a lease item. It can be compared.
type Row struct {
	There             bool
	Owner, Beat       string
	Fence             int64
	Schedule, Through string
	Tick, State       string
	Attempt           int64
}

func rowOf(item devstore.Item) Row {
	text := func(name string) string { s, _ := item[name]["S"].(string); return s }
	number := func(name string) int64 {
		s, _ := item[name]["N"].(string)
		n, _ := strconv.ParseInt(s, 10, 64)
		return n
	}
	return Row{
		There: item != nil, Owner: text("owner"), Beat: text("beat"), Fence: number("fence"),
		Schedule: text("schedule"), Through: text("through"),
		Tick: text("tick"), State: text("tick_state"), Attempt: number("tick_attempt"),
	}
}

// with is the row after a write, which sets attributes to values as text.
func (r Row) with(sets map[string]string) Row {
	r.There = true
	for name, value := range sets {
		switch name {
		case "owner":
			r.Owner = value
		case "beat":
			r.Beat = value
		case "fence":
			r.Fence, _ = strconv.ParseInt(value, 10, 64)
		case "schedule":
			r.Schedule = value
		case "through":
			r.Through = value
		case "tick":
			r.Tick = value
		case "tick_state":
			r.State = value
		case "tick_attempt":
			r.Attempt, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return r
}

func (r Row) String() string {
	if !r.There {
		return "no row"
	}
	return fmt.Sprintf("owner=%s fence=%d beat=%s through=%s tick=%s %s %d", r.Owner, r.Fence, r.Beat, r.Through, r.Tick, r.State, r.Attempt)
}

// size is what DynamoDB counts: names and values in UTF-8; numbers are counted
// by their text, which is never less than the real rule gives.
func size(item devstore.Item) int {
	n := 0
	for name, typed := range item {
		n += len(name)
		for _, value := range typed {
			n += len(fmt.Sprint(value))
		}
	}
	return n
}

// Request is one request, as far as the protocol cares.
type Request struct {
	op         string
	pk, sk     string
	consistent bool
	sets       map[string]string // attribute → value as text
	conditions []condition
	strange    string // what could not be read of it
}

// condition is one of those that are joined by AND. The operator is =, < or
// absent.
type condition struct{ attribute, operator, value string }

func parse(op string, body []byte) Request {
	var in struct {
		Key                       devstore.Item
		ConsistentRead            bool
		UpdateExpression          string
		ConditionExpression       string
		ExpressionAttributeNames  map[string]string
		ExpressionAttributeValues map[string]map[string]any
	}
	q := Request{op: op, sets: map[string]string{}}
	if err := json.Unmarshal(body, &in); err != nil {
		q.strange = err.Error()
		return q
	}
	q.pk, _ = in.Key["pk"]["S"].(string)
	q.sk, _ = in.Key["sk"]["S"].(string)
	q.consistent = in.ConsistentRead
	value := func(alias string) string {
		for _, v := range in.ExpressionAttributeValues[alias] {
			return fmt.Sprint(v)
		}
		q.strange = "no value " + alias
		return ""
	}
	for _, set := range split(strings.TrimPrefix(in.UpdateExpression, "SET "), ", ") {
		name, alias, ok := strings.Cut(set, " = ")
		if !ok {
			q.strange = set
			continue
		}
		q.sets[in.ExpressionAttributeNames[name]] = value(alias)
	}
	for _, text := range split(in.ConditionExpression, " AND ") {
		words := strings.Fields(text)
		switch {
		case len(words) == 3 && (words[1] == "=" || words[1] == "<"):
			q.conditions = append(q.conditions, condition{in.ExpressionAttributeNames[words[0]], words[1], value(words[2])})
		case strings.HasPrefix(text, "attribute_not_exists("):
			name := strings.TrimSuffix(strings.TrimPrefix(text, "attribute_not_exists("), ")")
			q.conditions = append(q.conditions, condition{in.ExpressionAttributeNames[name], "absent", ""})
		default:
			q.strange = text
		}
	}
	return q
}

func split(text, separator string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, separator)
}

// demands is the value that a condition compares an attribute with.
func (q Request) demands(attribute, operator string) (string, bool) {
	for _, c := range q.conditions {
		if c.attribute == attribute && c.operator == operator {
			return c.value, true
		}
	}
	return "", false
}
