package proof

import (
	"os"
	"testing"
)

// The variables by which .ci/fencing tells the tests where the servers are that it
// has started.
const (
	Postgres = "SOLOJOB_TEST_POSTGRES" // URL of an empty PostgreSQL database
	Dynalite = "SOLOJOB_TEST_DYNALITE" // URL of a dynalite
)

// everything is set by .ci/fencing, which installs all that these tests need: then
// nothing may be skipped.
const everything = "SOLOJOB_TEST_FENCING"

// Need returns the value of a variable that .ci/fencing sets, or skips the test.
func Need(t testing.TB, variable string) string {
	t.Helper()
	if value := os.Getenv(variable); value != "" {
		return value
	}
	Missing(t, variable+" is not set")
	return ""
}

// Missing skips a test for want of what .ci/fencing installs, or fails it if that
// script is what runs it.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(everything) != "" {
		t.Fatalf("%s, though .ci/fencing should see to it", what)
	}
	t.Skipf("%s: `bash .ci/fencing` installs what this test needs, and runs it", what)
}
