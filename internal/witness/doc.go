// Package witness asks the kernel about the process at the other end of a
// connection. It is for tests: a job connects with its first instruction, all
// its descendants inherit the connection, and so the kernel knows when the last
// of them is dead, whatever any agent believes.
package witness
