package deploy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// fault is a place in a document, and what the API would not accept there.
type fault struct{ place, what string }

func (f fault) String() string { return f.place + ": " + f.what }

// conform lists what in value is not of the SDK's type: a field that it does
// not have under exactly this name, another kind of value, a constant that it
// does not know. Encoding/json alone would let names of another case pass. named
// maps a Go field to its name in the document. A value that CloudFormation
// computes is not looked into.
func conform(place string, value any, t reflect.Type, named func(string) string) []fault {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if computed(value) {
		return nil
	}
	wrong := func(want string) []fault {
		return []fault{{place, fmt.Sprintf("has %T where %s is wanted", value, want)}}
	}
	switch t.Kind() {
	case reflect.Struct:
		object, ok := value.(map[string]any)
		if !ok {
			return wrong("an object (" + t.Name() + ")")
		}
		fields := map[string]reflect.Type{}
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				fields[named(f.Name)] = f.Type
			}
		}
		var faults []fault
		for _, name := range slices.Sorted(maps.Keys(object)) {
			field, known := fields[name]
			if !known {
				faults = append(faults, fault{place, fmt.Sprintf("%s has no field %q", t.Name(), name)})
				continue
			}
			faults = append(faults, conform(place+"."+name, object[name], field, named)...)
		}
		return faults
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			return wrong("a list")
		}
		var faults []fault
		for i, element := range list {
			faults = append(faults, conform(fmt.Sprintf("%s[%d]", place, i), element, t.Elem(), named)...)
		}
		return faults
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			return wrong("an object")
		}
		var faults []fault
		for name, element := range object {
			faults = append(faults, conform(place+"."+name, element, t.Elem(), named)...)
		}
		return faults
	case reflect.String:
		text, ok := value.(string)
		if !ok {
			return wrong("a string")
		}
		if known := constants(t); known != nil && !slices.Contains(known, text) {
			return []fault{{place, fmt.Sprintf("%q is none of %s", text, strings.Join(known, ", "))}}
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return wrong("true or false")
		}
	case reflect.Int32, reflect.Int64:
		switch n := value.(type) {
		case int:
		case float64:
			if n != float64(int64(n)) {
				return wrong("a whole number")
			}
		default:
			return wrong("a number")
		}
	default:
		return []fault{{place, "is of a kind that this test does not know: " + t.String()}}
	}
	return nil
}

// constants are the values of an enumeration of the SDK, nil for other strings.
func constants(t reflect.Type) []string {
	values := reflect.Zero(t).MethodByName("Values")
	if !values.IsValid() {
		return nil
	}
	var known []string
	list := values.Call(nil)[0]
	for i := range list.Len() {
		known = append(known, list.Index(i).String())
	}
	return known
}

// computed reports whether a value is a call of one of CloudFormation's
// functions.
func computed(value any) bool {
	object, ok := value.(map[string]any)
	if !ok || len(object) != 1 {
		return false
	}
	for name := range object {
		return name == "Ref" || strings.HasPrefix(name, "Fn::")
	}
	return false
}
