package fence_test

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"solojob/fence"
)

// A job that solojob did not start learns so in one sentence, not by writing
// without a fence.
func TestFromEnvOutsideSolojob(t *testing.T) {
	t.Setenv(fence.Variable, "") // so that the variable is restored afterwards
	os.Unsetenv(fence.Variable)
	if _, err := fence.FromEnv(); !errors.Is(err, fence.ErrNotUnderSolojob) {
		t.Fatalf("FromEnv = %v, want ErrNotUnderSolojob", err)
	}
}

// Whatever solojob hands out is read back exactly, up to the largest number.
func TestFromEnvReadsWhatSolojobWrites(t *testing.T) {
	for value, want := range map[string]int64{"1": 1, "42": 42, "1000042": 1_000_042, "9223372036854775807": math.MaxInt64} {
		t.Setenv(fence.Variable, value)
		if got, err := fence.FromEnv(); err != nil || got != want {
			t.Errorf("FENCE=%q: got %d, %v", value, got, err)
		}
	}
}

// Anything that solojob never writes is an error that shows the value.
func TestFromEnvRefusesWhatIsNoFence(t *testing.T) {
	for _, value := range []string{"", "0", "-1", "+1", " 1", "1 ", "01", "1e3", "0x10", "1.0", "1_000", "9223372036854775808", "one", "١"} {
		t.Setenv(fence.Variable, value)
		_, err := fence.FromEnv()
		if !errors.Is(err, fence.ErrNotANumber) {
			t.Errorf("FENCE=%q: got %v, want ErrNotANumber", value, err)
			continue
		}
		if !strings.Contains(err.Error(), value) {
			t.Errorf("FENCE=%q: %q does not show the value", value, err)
		}
	}
}

// A refusal is explained by the fence only when the fence explains it.
func TestJudge(t *testing.T) {
	cases := []struct {
		stored, mine int64
		once         bool
		want         error
	}{
		{stored: 8, mine: 7, want: fence.ErrStale},
		{stored: 8, mine: 7, once: true, want: fence.ErrStale},
		{stored: 7, mine: 7, want: nil},
		{stored: 7, mine: 7, once: true, want: fence.ErrAlreadyWritten},
		{stored: 6, mine: 7, want: nil},
		{stored: 6, mine: 7, once: true, want: nil},
	}
	for _, c := range cases {
		if got := fence.Judge(c.stored, c.mine, c.once); !errors.Is(got, c.want) {
			t.Errorf("Judge(%d, %d, %t) = %v, want %v", c.stored, c.mine, c.once, got, c.want)
		}
	}
}

// The error that a stale job prints names both fences.
func TestStaleErrorNamesBothFences(t *testing.T) {
	err := fence.Judge(43, 42, false)
	var stale *fence.StaleError
	if !errors.As(err, &stale) || stale.Mine != 42 || stale.Stored != 43 {
		t.Fatalf("got %#v", err)
	}
	if text := err.Error(); !strings.Contains(text, "42") || !strings.Contains(text, "43") {
		t.Fatalf("%q does not name both fences", text)
	}
}
