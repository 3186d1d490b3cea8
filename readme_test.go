package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"solojob/config"
)

// The README's table of settings is the one that the code has.
func TestReadmeSettings(t *testing.T) {
	var table strings.Builder
	table.WriteString("| variable | default | accepted | meaning |\n| --- | --- | --- | --- |\n")
	for _, s := range config.Settings() {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", s.Name, s.Default, s.Accepts, s.Meaning)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "<!-- settings: the test TestReadmeSettings prints this table -->\n")
	got, _, found := strings.Cut(rest, "<!-- /settings -->")
	if !found || got != table.String() {
		t.Errorf("the table in README.md should be\n%s", table.String())
	}
}

// Every module that we require directly is explained.
func TestDependenciesAreExplained(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/DEPENDENCIES.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) != 2 || !strings.Contains(fields[0], ".") || !strings.HasPrefix(fields[1], "v") {
			continue // indirect ones have a comment behind them
		}
		if !strings.Contains(string(page), "`"+fields[0]+"`") {
			t.Errorf("docs/DEPENDENCIES.md says nothing of %s", fields[0])
		}
	}
}
