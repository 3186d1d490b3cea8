//go:build !linux

package torture

import (
	"flag"
	"testing"
)

// The flags are there, so that one command line works everywhere.
var (
	_ = flag.Duration("duration", 0, "ignored: the torture needs Linux")
	_ = flag.Uint64("seed", 0, "ignored: the torture needs Linux")
)

func TestTorture(t *testing.T) {
	t.Skip("the torture needs Linux: it looks for processes in /proc")
}
