package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is every problem of a configuration: each is one line of its text.
type Error struct {
	Problems []Problem
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Problem is one thing that is wrong.
type Problem struct {
	Variable string // its full name; empty if no single one is to blame
	Value    string // as it is set; empty if it is not, or if it isn't ours to show
	Wrong    string // what is wrong with it, a clause after "NAME=value: "
	Accepted string // what is accepted; may be empty
	Do       string // what to do about it, a sentence without its full stop; may be empty
}

// String returns the problem as one line, whatever the value contains.
func (p Problem) String() string {
	var b strings.Builder
	if p.Variable != "" {
		b.WriteString(printable(p.Variable))
		if p.Value != "" {
			b.WriteString("=" + shortened(p.Value))
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Wrong + ".")
	if p.Accepted != "" {
		b.WriteString(" Accepted: " + p.Accepted + ".")
	}
	if p.Do != "" {
		b.WriteString(" " + p.Do)
		if !strings.HasSuffix(p.Do, "?") {
			b.WriteString(".")
		}
	}
	return b.String()
}

// longestShown is the number of bytes of a value that a line shows: enough to
// recognise it, too little to bury the rest of the line.
const longestShown = 100

func shortened(value string) string {
	if len(value) <= longestShown {
		return strconv.Quote(value)
	}
	cut := longestShown
	for cut > 0 && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return fmt.Sprintf("%q… (%d bytes)", value[:cut], len(value))
}

// printable returns a name as it is when it is plain, and quoted when a line
// could be broken or disguised by it.
func printable(name string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if len(name) <= longestShown && !strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return name
	}
	return shortened(name)
}

// report gathers problems, at most one for each variable: the first one found
// is the one to correct.
type report struct {
	problems []Problem
}

func (r *report) add(p Problem) {
	if p.Variable == "" || !r.has(p.Variable) {
		r.problems = append(r.problems, p)
	}
}

func (r *report) has(variable string) bool {
	return slices.ContainsFunc(r.problems, func(p Problem) bool { return p.Variable == variable })
}

// err returns all problems in the order of the documentation, unknown names
// last, or nil.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	known := table()
	place := func(p Problem) int {
		i := slices.IndexFunc(known, func(s setting) bool { return Prefix+s.name == p.Variable })
		if i < 0 {
			return len(known)
		}
		return i
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		if d := place(a) - place(b); d != 0 {
			return d
		}
		return strings.Compare(a.Variable, b.Variable)
	})
	return &Error{Problems: r.problems}
}

// oneLine returns the text of an error of somebody else's as part of a line.
func oneLine(err error) string {
	return strings.TrimRight(strings.Join(strings.Fields(err.Error()), " "), ".")
}
