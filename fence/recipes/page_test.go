package recipes_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

const page = "../../docs/FENCING.md"

// block is one fenced code block of the page. Its mode is what the comment above
// it says: `<!-- ci: fenced dynamodb -->`. The store is the second word.
type block struct {
	line     int
	language string
	mode     string // setup, fenced, idempotent, or at most once
	store    string // dynamodb, postgresql, s3, or http
	needs    string // what must be at hand beyond the tool itself
	text     string
}

func (b block) name() string {
	return fmt.Sprintf("line %d, %s, %s %s", b.line, b.language, b.mode, b.store)
}

// modes are the comments that the runner understands.
var modes = map[string]block{
	"setup dynamodb":                  {mode: "setup", store: "dynamodb"},
	"setup postgresql":                {mode: "setup", store: "postgresql"},
	"fenced dynamodb":                 {mode: "fenced", store: "dynamodb"},
	"fenced postgresql":               {mode: "fenced", store: "postgresql"},
	"fenced s3":                       {mode: "fenced", store: "s3"},
	"fenced s3 if aws has --if-match": {mode: "fenced", store: "s3", needs: "--if-match"},
	"fenced http":                     {mode: "fenced", store: "http"},
	"idempotent http":                 {mode: "idempotent", store: "http"},
	"at most once postgresql":         {mode: "at most once", store: "postgresql"},
}

// blocks reads the page. A code block without a comment that says how CI runs it
// is an error: it would be one that nobody has run.
func blocks(t *testing.T) []block {
	t.Helper()
	file, err := os.Open(page)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var found []block
	var current *block
	var text strings.Builder
	var before string // the last line above that was not empty
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		switch {
		case current != nil && line == "```":
			current.text = text.String()
			found = append(found, *current)
			current, before = nil, ""
		case current != nil:
			text.WriteString(line + "\n")
		case strings.HasPrefix(line, "```"):
			comment, isComment := strings.CutPrefix(before, "<!-- ci: ")
			mode, known := modes[strings.TrimSuffix(comment, " -->")]
			if !isComment || !known {
				t.Errorf("%s:%d: the line above this block must say how CI runs it, as in <!-- ci: fenced dynamodb -->, not %q", page, number, before)
			}
			mode.line, mode.language = number, strings.TrimPrefix(line, "```")
			current = &mode
			text.Reset()
		case strings.TrimSpace(line) != "":
			before = line
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if current != nil {
		t.Fatalf("%s:%d: this block has no end", page, current.line)
	}
	return found
}
