//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Row is the lease item as the wire has it: attribute → type → value. A row
// that does not exist is nil.
type Row map[string]map[string]any

func (r Row) text(name string) string {
	s, _ := r[name]["S"].(string)
	return s
}

func (r Row) number(name string) int64 {
	n, _ := r[name]["N"].(string)
	i, _ := strconv.ParseInt(n, 10, 64)
	return i
}

// Owner is the holder, empty when the lease is free (or the row is not there).
func (r Row) Owner() string { return r.text("owner") }

// Fence is the fencing token.
func (r Row) Fence() int64 { return r.number("fence") }

// Beat is the mark of the last write.
func (r Row) Beat() string { return r.text("beat") }

// size is what DynamoDB counts: names and values in UTF-8; numbers are counted
// by their text, which is never less than the real rule gives.
func (r Row) size() int {
	n := 0
	for name, typed := range r {
		n += len(name)
		for _, value := range typed {
			n += len(fmt.Sprint(value))
		}
	}
	return n
}

// forbidden are the names that somebody's table could have a DynamoDB TTL on.
func (r Row) forbidden() []string {
	var names []string
	for name := range r {
		plain := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
		if plain == "ttl" || strings.HasPrefix(plain, "expir") || plain == "timetolive" {
			names = append(names, name)
		}
	}
	return names
}

func (r Row) equal(other Row) bool {
	a, _ := json.Marshal(r)
	b, _ := json.Marshal(other)
	return string(a) == string(b)
}

// changes are the attributes that a write gave new values, for the story.
func (r Row) changes(before Row) Row {
	if r == nil || before == nil {
		return r
	}
	changed := Row{}
	for name, typed := range r {
		if fmt.Sprint(typed) != fmt.Sprint(before[name]) {
			changed[name] = typed
		}
	}
	return changed
}

func (r Row) String() string {
	if r == nil {
		return "no row"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		for _, value := range r[name] {
			parts = append(parts, fmt.Sprintf("%s=%v", name, value))
		}
	}
	return strings.Join(parts, " ")
}
