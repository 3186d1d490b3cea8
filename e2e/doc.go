// Package e2e tests the built binary from the outside, as its users meet it:
// real processes, real signals, and the DynamoDB wire protocol on a socket of
// its own for each agent.
//
// Nothing of solojob is linked in. What the tests know is what a user can
// know: the environment variables, the row in the table, the log lines and the
// exit statuses. Two witnesses are independent of the agents: the job, a small
// program that holds a connection to the test from its first instruction until
// the kernel closes it (see Recorder), and the store, which sees every request
// in one order (see Store). Whatever a test is about, the invariants of
// invariants_test.go are checked at its end from these two.
//
// The tests' own file names say which promise they are about. Set E2E_FULL=1
// for the long variants: a hundred phases instead of a handful, a minute of
// lost replies instead of seconds.
package e2e
