package demo

import (
	"regexp"
	"unicode/utf8"
)

// painter colours text with ANSI escapes (ECMA-48, SGR), or leaves it alone.
type painter bool

func (p painter) sgr(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p painter) plain(s string) string { return s }
func (p painter) bold(s string) string  { return p.sgr("1", s) }
func (p painter) dim(s string) string   { return p.sgr("2", s) }
func (p painter) job(s string) string   { return p.sgr("1;32", s) } // green: as it should be
func (p painter) warn(s string) string  { return p.sgr("33", s) }   // yellow
func (p painter) cold(s string) string  { return p.sgr("36", s) }   // cyan
func (p painter) alarm(s string) string { return p.sgr("1;31", s) } // red: two at once, or a stale one

// visible is the number of columns that s takes.
func visible(s string) int { return utf8.RuneCountInString(escape.ReplaceAllString(s, "")) }

// escape is what painter adds.
var escape = regexp.MustCompile("\x1b\\[[0-9;]*m")
