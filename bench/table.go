//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
)

// table is one result.
type table struct {
	ID     string // the name of its markers in the document
	Header []string
	Rows   [][]string
	Note   string // one line about this measurement
}

// markdown is the table and its note.
func (t table) markdown() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.Header)
	rule := make([]string, len(t.Header))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	line(rule)
	for _, r := range t.Rows {
		line(r)
	}
	if t.Note != "" {
		fmt.Fprintf(&b, "\n_%s_\n", t.Note)
	}
	return b.String()
}

// rewrite puts a table between its markers in a document. If a marker is
// missing, it changes nothing.
func rewrite(file string, t table) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	document, err := replaced(string(raw), t)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(document), 0o644)
}

func replaced(document string, t table) (string, error) {
	opening, closing := "<!-- bench:"+t.ID+" -->\n", "<!-- /bench:"+t.ID+" -->"
	before, rest, opened := strings.Cut(document, opening)
	_, after, closed := strings.Cut(rest, closing)
	if !opened || !closed {
		return "", fmt.Errorf("there is no place for %s between %q and %q", t.ID, strings.TrimSpace(opening), closing)
	}
	return before + opening + t.markdown() + closing + after, nil
}
