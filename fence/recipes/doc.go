// Package recipes runs every code block of docs/FENCING.md, in the language that it
// is written in, and checks that what it says is fenced is; and it runs the jobs in
// examples/, by hand and as their page says. It has only tests.
package recipes
