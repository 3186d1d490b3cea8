//go:build linux

package e2e

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// quick has a lease so short that ten of them pass in a test.
var quick = Timing{
	Lease: 3 * time.Second, Heartbeat: 600 * time.Millisecond, Poll: 400 * time.Millisecond,
	LossGrace: 400 * time.Millisecond, KillMargin: 400 * time.Millisecond, StopGrace: 10 * time.Second,
}

// Stderr that nobody reads, that is broken, or that is not there at all costs
// neither the leadership nor a byte of the job's own output.
func TestUselessStderr(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		stderr func(*testing.T) *os.File
		wrap   []string
	}{
		{"nobody reads it", unreadPipe, nil},
		{"the reader has gone", brokenPipe, nil},
		{"it is closed", brokenPipe, []string{"/bin/sh", "-c", `exec "$@" 2>&-`, "sh"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, quick)
			a := w.Start(Start{
				Name: "a", Stderr: c.stderr(t), Wrap: c.wrap,
				Env: map[string]string{"SOLOJOB_LOG_LEVEL": "debug"},
			})
			life := w.Life(1)
			b := w.Start(Start{Name: "b"})
			b.Logged("standing by", 1)
			var want strings.Builder
			until := time.Now().Add(quick.Lease * time.Duration(rounds(2, 10)))
			for n := 1; time.Now().Before(until); n++ {
				text := strings.Repeat("output of the job\n", 1000)
				want.WriteString(text)
				life.Print(text)
				w.Until("the job has written its output", patience, func() bool { return life.Printed() == n })
				w.During("the job runs on", 200*time.Millisecond, func() bool {
					_, over := life.Ended()
					return !over && len(w.Lives()) == 1
				})
			}
			w.unchanged(life)
			a.Signal(syscall.SIGTERM)
			a.Ended()
			w.Until("all output is there", patience, func() bool { return len(a.Stdout()) >= want.Len() })
			if a.Stdout() != want.String() {
				t.Errorf("the job's output is not what it wrote: %d bytes, want %d", len(a.Stdout()), want.Len())
			}
		})
	}
}

// unreadPipe is the end for writing of a pipe that is full.
func unreadPipe(t *testing.T) *os.File {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ends[0]) })
	for {
		_, err := unix.Write(ends[1], []byte("nobody reads this\n"))
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetNonblock(ends[1], false); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(ends[1]), "full pipe")
	t.Cleanup(func() { f.Close() })
	return f
}

// brokenPipe is the end for writing of a pipe without a reader.
func brokenPipe(t *testing.T) *os.File {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	t.Cleanup(func() { write.Close() })
	return write
}

// A line of a mebibyte without a newline passes untouched.
func TestLongLinePassesIntact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, calm)
	a := w.Start(Start{Name: "a"})
	life := w.Life(1)
	line := strings.Repeat("0123456789abcdef", 1<<16)
	life.Print(line)
	w.Until("the job has written it", patience, func() bool { return life.Printed() == 1 })
	a.Signal(syscall.SIGTERM)
	a.Ended()
	w.Until("all of it is there", patience, func() bool { return len(a.Stdout()) >= len(line) })
	if a.Stdout() != line {
		t.Errorf("the line came out as %d bytes, want %d", len(a.Stdout()), len(line))
	}
}
