package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/LICENCES.md lists every licence text of every module that is linked into
// the binary, as it stands in the module's source now. A text that is new or has
// changed must be read by somebody before it is listed.
func TestLicencesAreListed(t *testing.T) {
	texts := map[string]bool{}
	for _, target := range []string{"linux/amd64", "linux/arm64", "darwin/arm64"} {
		for _, p := range linkedPackages(t, target) {
			found := licencesOf(t, p)
			if len(found) == 0 {
				t.Errorf("%s is linked and has no licence: it may not be", p.path)
			}
			for _, line := range found {
				texts[line] = true
			}
		}
	}
	var lines []string
	for line := range texts {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	want := "| module | licence | file | SHA-256, first half |\n| --- | --- | --- | --- |\n" + strings.Join(lines, "")
	page, err := os.ReadFile("docs/LICENCES.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- licences: the test TestLicencesAreListed prints this table -->\n")
	if got, _, found := strings.Cut(rest, "<!-- /licences -->"); !found || got != want {
		t.Errorf("the table in docs/LICENCES.md should be\n%s", want)
	}
}

// linkedPackage is a package of somebody else's.
type linkedPackage struct{ path, dir, module, root string }

// linkedPackages are those that the released binary of a target has in it.
func linkedPackages(t *testing.T, target string) []linkedPackage {
	t.Helper()
	system, arch, _ := strings.Cut(target, "/")
	list := exec.Command("go", "list", "-deps", "-tags=nethttpomithttp2",
		"-f", "{{with .Module}}{{if not .Main}}{{$.ImportPath}}\t{{$.Dir}}\t{{.Path}}\t{{.Dir}}{{end}}{{end}}", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("the packages of %s can't be listed: %v", target, err)
	}
	var all []linkedPackage
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) == 4 {
			all = append(all, linkedPackage{f[0], f[1], f[2], f[3]})
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s links nothing of anybody's", target)
	}
	return all
}

// licenceFile is what a text that binds whoever passes the code on is called.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)(\.txt|\.md)?$`)

// licencesOf are the lines of the table for what stands in a package's folder
// and those above it.
func licencesOf(t *testing.T, p linkedPackage) []string {
	t.Helper()
	var lines []string
	for dir := p.dir; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() || !licenceFile.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			inModule, err := filepath.Rel(p.root, filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | `%.16x` |\n", p.module, licenceOf(e.Name(), string(text)), inModule, sha256.Sum256(text)))
		}
		if dir == p.root {
			return lines
		}
	}
}

// licenceOf names a text by its SPDX identifier, or says that somebody must
// read it.
func licenceOf(name, text string) string {
	text = strings.Join(strings.Fields(text), " ")
	switch upper := strings.ToUpper(name); {
	case strings.HasPrefix(upper, "NOTICE"), strings.HasPrefix(upper, "PATENTS"):
		return strings.ToLower(upper[:strings.IndexByte(upper+".", '.')])
	case strings.Contains(text, "Apache License Version 2.0, January 2004"):
		return "Apache-2.0"
	case strings.Contains(text, "Permission is hereby granted, free of charge, to any person obtaining a copy"):
		return "MIT"
	case strings.Contains(text, "Redistribution and use in source and binary forms") && strings.Contains(text, "Neither the name of"):
		return "BSD-3-Clause"
	}
	return "UNKNOWN: read it, and name it in licenceOf"
}
