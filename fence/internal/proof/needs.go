package proof

import (
	"os"
	"testing"
)

// The variables by which .ci/fencing tells the tests what it has installed.
const (
	Postgres    = "SOLOJOB_TEST_POSTGRES"     // URL of a PostgreSQL whose user may create databases
	Dynalite    = "SOLOJOB_TEST_DYNALITE"     // URL of a dynalite
	NodeModules = "SOLOJOB_TEST_NODE_MODULES" // folder with what the JavaScript recipes import

	// Everything says that all of it is there: then nothing may be skipped.
	// Recipes and examples run only then, since they also need half a dozen
	// command-line tools and take minutes.
	Everything = "SOLOJOB_TEST_FENCING"
)

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
	if os.Getenv(Everything) != "" {
		t.Fatalf("%s, though .ci/fencing should see to it", what)
	}
	t.Skipf("%s: `bash .ci/fencing` installs what this test needs, and runs it", what)
}
