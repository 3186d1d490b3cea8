// Package recipes runs every code block of docs/FENCING.md, in the language that it
// is written in, and checks that what it says is fenced is. It has only tests.
package recipes
