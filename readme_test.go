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
