package logqueue

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what must happen: far longer than it
// takes on the slowest machine.
const patience = time.Minute

func jsonLines(w io.Writer) slog.Handler {
	return slog.NewJSONHandler(w, nil).WithAttrs([]slog.Attr{slog.String("lease", "nightly")})
}

// pipe returns a pipe that, unlike that of package os, blocks, as a
// container's standard error does.
func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds[0], fds[1]
}

// closed closes the queue, which must be able to write everything.
func closed(t *testing.T, q *Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
}

// entry is what a line tells.
type entry struct {
	Msg   string
	Lease string
	N     int
	Lines int
}

// read returns every line until the end of the file, each of which must be
// whole.
func read(t *testing.T, r io.Reader) []entry {
	t.Helper()
	var all []entry
	lines := bufio.NewReader(r)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			return all
		}
		var e entry
		if err != nil || json.Unmarshal(text, &e) != nil || e.Lease != "nightly" {
			t.Errorf("not a whole line: %.200q, %v", text, err)
			return all
		}
		all = append(all, e)
	}
}

// account fails unless every line from 0 to total is there in order, or told
// of at its place.
func account(t *testing.T, all []entry, total int) (told int) {
	t.Helper()
	next := 0
	for _, e := range all {
		if e.Msg == DroppedMessage {
			next += e.Lines
			told += e.Lines
			continue
		}
		if e.N != next {
			t.Fatalf("line %d stands where %d is due", e.N, next)
		}
		next++
	}
	if next != total {
		t.Fatalf("%d lines are accounted for, want %d", next, total)
	}
	return told
}

// Logging goes on while nobody reads standard error, in bounded memory; when
// somebody reads again, the lines that are missing are told of at their place.
// It is the same when somebody else made the pipe non-blocking, and the flag
// is left as it was.
func TestLoggingNeverBlocks(t *testing.T) {
	for _, nonblock := range []bool{false, true} {
		t.Run(fmt.Sprintf("nonblock=%t", nonblock), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			r, w := pipe(t)
			if err := unix.SetNonblock(w, nonblock); err != nil {
				t.Fatal(err)
			}
			q := New(w, jsonLines)
			log := slog.New(q.Handler())
			const total = 20_000
			for n := range total {
				log.Info("line", "n", n)
			}
			q.mu.Lock()
			size, waiting := q.size, len(q.lines)
			q.mu.Unlock()
			if size > capacity || waiting > capacity/overhead {
				t.Errorf("%d bytes in %d lines wait, want no more than %d", size, waiting, capacity)
			}

			reader := os.NewFile(uintptr(r), "reader")
			defer reader.Close()
			result := make(chan []entry, 1)
			go func() { result <- read(t, reader) }()
			closed(t, q)
			flags, err := unix.FcntlInt(uintptr(w), unix.F_GETFL, 0)
			if err != nil || (flags&unix.O_NONBLOCK != 0) != nonblock {
				t.Errorf("O_NONBLOCK was changed: flags %#o, %v", flags, err)
			}
			unix.Close(w)
			told := account(t, <-result, total)
			if told == 0 || int64(told) != q.Dropped() {
				t.Errorf("%d lines are told of, %d were dropped; want the same, and some", told, q.Dropped())
			}
		})
	}
}

// Lines of many goroutines, read slowly, arrive whole, and each goroutine's in
// order.
func TestLinesStayWhole(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, w := pipe(t)
	q := open(w, 100<<20, jsonLines)
	log := slog.New(q.Handler())
	const writers, each = 8, 300
	var all sync.WaitGroup
	for id := range writers {
		all.Go(func() {
			for n := range each {
				log.Info("line", "n", id*each+n, "padding", strings.Repeat("x", n*n%9000)) // to more than a chunk
			}
		})
	}
	reader := os.NewFile(uintptr(r), "reader")
	defer reader.Close()
	result := make(chan []entry, 1)
	go func() { result <- read(t, reader) }()
	all.Wait()
	closed(t, q)
	unix.Close(w)
	var next [writers]int
	for _, e := range <-result {
		id, n := e.N/each, e.N%each
		if n != next[id] {
			t.Fatalf("line %d of writer %d stands where %d is due", n, id, next[id])
		}
		next[id]++
	}
	for id, n := range next {
		if n != each {
			t.Errorf("%d lines of writer %d arrived, want %d", n, id, each)
		}
	}
}

// A job that fills the same pipe again and again, whether it made it
// non-blocking or not, costs no line, and cuts none in two.
func TestPipeSharedWithABusyJob(t *testing.T) {
	for _, nonblock := range []bool{false, true} {
		t.Run(fmt.Sprintf("nonblock=%t", nonblock), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			r, w := pipe(t)
			if err := unix.SetNonblock(w, nonblock); err != nil {
				t.Fatal(err)
			}
			q := open(w, 100<<20, jsonLines)
			log := slog.New(q.Handler())
			reader := os.NewFile(uintptr(r), "reader")
			defer reader.Close()
			jobLine := append(bytes.Repeat([]byte("j"), chunk-1), '\n')
			result := make(chan []byte, 1)
			go func() {
				var ours []byte
				for lines := bufio.NewReader(reader); ; {
					text, err := lines.ReadBytes('\n')
					if !bytes.Equal(text, jobLine) {
						ours = append(ours, text...)
					}
					if err != nil {
						result <- ours
						return
					}
				}
			}()
			stop := make(chan struct{})
			var job sync.WaitGroup
			job.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						unix.Write(w, jobLine) // at most PIPE_BUF: whole or not at all
					}
				}
			})
			const total = 1000
			for n := range total {
				log.Info("line", "n", n)
			}
			closed(t, q)
			close(stop)
			job.Wait()
			unix.Close(w)
			if told := account(t, read(t, bytes.NewReader(<-result)), total); told != 0 {
				t.Errorf("%d lines were lost", told)
			}
		})
	}
}

// A line of any length passes intact as long as it fits; one that can never
// fit is dropped and told of.
func TestLongLines(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, w := pipe(t)
	q := New(w, jsonLines)
	log := slog.New(q.Handler())
	reader := os.NewFile(uintptr(r), "reader")
	defer reader.Close()
	result := make(chan []entry, 1)
	go func() { result <- read(t, reader) }()
	log.Info("line", "n", 0, "padding", strings.Repeat("x", capacity/2))
	log.Info("line", "n", 1, "padding", strings.Repeat("x", capacity))
	closed(t, q)
	unix.Close(w)
	if told := account(t, <-result, 2); told != 1 {
		t.Errorf("%d lines told of, want 1", told)
	}
}

// Closed standard error, a full disk and a bad descriptor lose lines, and
// nothing else.
func TestWriteErrorsOnlyLoseLines(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, brokenPipe := pipe(t)
	unix.Close(r)
	defer unix.Close(brokenPipe)
	outputs := map[string]int{"closed pipe": brokenPipe, "bad descriptor": 1 << 20}
	if full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil { // Linux has it
		defer full.Close()
		outputs["full disk"] = int(full.Fd())
	}
	for name, fd := range outputs {
		q := New(fd, jsonLines)
		log := slog.New(q.Handler())
		for n := range 100 {
			log.Info("line", "n", n)
		}
		closed(t, q)
		log.Info("after the end")
		if q.Dropped() != 101 {
			t.Errorf("%s: %d lines dropped, want 101", name, q.Dropped())
		}
	}
}

// The process survives its standard error: Go ends one that writes to a closed
// pipe on descriptor 2 through package os.
func TestClosedStderrDoesNotEndTheProcess(t *testing.T) {
	const child = "LOGQUEUE_TEST_CHILD"
	if os.Getenv(child) != "" {
		q := New(2, jsonLines)
		for n := range 1000 {
			slog.New(q.Handler()).Info("line", "n", n)
		}
		closed(t, q)
		fmt.Printf("alive after %d lost lines\n", q.Dropped())
		return
	}
	defer goleak.VerifyNone(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestClosedStderrDoesNotEndTheProcess$")
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.Stderr = w
	out, err := cmd.Output()
	if err != nil || !bytes.Contains(out, []byte("alive after 1000 lost lines")) {
		t.Errorf("the process with a closed stderr: %v\n%s", err, out)
	}
}

// When the reader of a pipe goes and another one comes, it learns how many
// lines it missed; a line that was torn by that harms no other.
func TestNewReaderLearnsOfTheGap(t *testing.T) {
	defer goleak.VerifyNone(t)
	fifo := filepath.Join(t.TempDir(), "stderr")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Skip("no named pipes here:", err)
	}
	r, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := unix.Open(fifo, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	q := New(w, jsonLines)
	log := slog.New(q.Handler())
	log.Info("line", "n", 0, "padding", strings.Repeat("x", 200_000)) // more than a pipe holds
	unix.Poll([]unix.PollFd{{Fd: int32(r), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	unix.Close(r)
	log.Info("line", "n", 1)
	waitFor(t, func() bool { return q.Dropped() == 2 })

	again, err := os.OpenFile(fifo, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	result := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(again)
		result <- all
	}()
	log.Info("line", "n", 2)
	closed(t, q)
	unix.Close(w)
	lines := bytes.Split(bytes.TrimSuffix(<-result, []byte("\n")), []byte("\n"))
	if len(lines) < 2 {
		t.Fatalf("%d lines, want the gap and a line", len(lines))
	}
	whole := append(bytes.Join(lines[len(lines)-2:], []byte("\n")), '\n') // what comes before is the torn line
	all := read(t, bytes.NewReader(whole))
	if len(all) != 2 || all[0].Msg != DroppedMessage || all[0].Lines != 2 || all[1].N != 2 {
		t.Errorf("the new reader got %+v, want the gap of 2 lines and line 2", all)
	}
}

// Closing ends in the time it is given although nobody reads, and leaves no
// goroutine.
func TestCloseIsBounded(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, w := pipe(t)
	defer unix.Close(r)
	defer unix.Close(w)
	q := New(w, jsonLines)
	log := slog.New(q.Handler())
	for n := range 10_000 {
		log.Info("line", "n", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- q.Close(ctx) }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close says %v, want that its time was up", err)
		}
	case <-time.After(patience):
		t.Fatal("Close does not end")
	}
	if err := q.Close(ctx); err != nil {
		t.Errorf("closing again: %v", err)
	}
	log.Info("after the end") // must not panic or block
}

// A gap that no later line follows is told of all the same, as soon as the
// writer gets through.
func TestGapAtTheEndIsTold(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, w := pipe(t)
	q := open(w, 100, jsonLines) // room for no line of this length
	log := slog.New(q.Handler())
	log.Info("line", "n", 0, "padding", strings.Repeat("x", 100))
	reader := os.NewFile(uintptr(r), "reader")
	defer reader.Close()
	text, err := bufio.NewReader(reader).ReadBytes('\n') // while the queue is open
	var e entry
	if err != nil || json.Unmarshal(text, &e) != nil || e.Msg != DroppedMessage || e.Lines != 1 {
		t.Errorf("got %q, %v; want a gap of one line", text, err)
	}
	closed(t, q)
	unix.Close(w)
}

// waitFor waits until the condition holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what the test waits for does not come")
		}
	}
}

// BenchmarkWrite is the price of a line for the one who logs.
func BenchmarkWrite(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	q := New(int(null.Fd()), jsonLines)
	line := bytes.Repeat([]byte("x"), 250)
	b.ReportAllocs()
	for b.Loop() {
		q.Write(line)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := q.Close(ctx); err != nil {
		b.Fatal(err)
	}
}
