package runner

import (
	"bytes"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"solojob/boottime"
)

// What is sent through a pipe arrives byte for byte and in order, however
// large it is against the pipe, and however little is read at a time.
func TestFramesSurviveAPipeThatIsTooSmall(t *testing.T) {
	r, w, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(r)
	defer unix.Close(w)
	sent := order{
		path:       "/bin/\xff",
		command:    []string{"a", "", "--", "two words", "\xfe%s"},
		env:        []string{"LARGE=" + strings.Repeat("x", 300<<10), "EMPTY="},
		validUntil: 1 << 60,
		grace:      4 * time.Second,
		margin:     time.Second,
		timeout:    time.Minute,
		stopGrace:  3,
		stopSignal: syscall.SIGQUIT,
	}
	out, in := outbox{fd: w}, inbox{fd: r}
	out.put(frameLaunch, sent.encode())
	out.put(frameKill, putString(nil, string(LeaseTaken)))
	var got []frame
	turns := 0
	for ; len(got) < 2; turns++ {
		out.flush()
		in.empty(func(f frame) bool {
			f.body.rest = bytes.Clone(f.body.rest)
			got = append(got, f)
			return true
		})
		if turns > 1000 {
			t.Fatal("the frames don't arrive")
		}
	}
	if turns < 3 {
		t.Errorf("the pipe was not too small: %d turns", turns)
	}
	o, ok := decodeOrder(&got[0].body)
	if !ok || !reflect.DeepEqual(o, sent) {
		t.Error("the order arrived changed")
	}
	if got[0].seq != 1 || got[1].seq != 2 || Reason(got[1].body.string()) != LeaseTaken {
		t.Errorf("the second frame arrived as %+v", got[1])
	}
}

// The report of an end arrives as it was sent, including times that are not set.
func TestEndingSurvivesTheWire(t *testing.T) {
	for _, sent := range []ending{
		{launched: true, status: 42 << 8, started: Moment{5, time.Unix(0, 7)}, ended: Moment{boottime.Instant(6), time.Unix(3, 8)}, signalled: true, reason: Stopped},
		{errno: syscall.ENOENT},
		{reason: Deadline},
	} {
		got, ok := decodeEnding(&body{rest: sent.encode()})
		if !ok || got != sent {
			t.Errorf("sent %+v, got %+v", sent, got)
		}
		if _, ok := decodeEnding(&body{rest: sent.encode()[:30]}); ok {
			t.Error("a truncated ending was taken for a whole one")
		}
	}
}

// The end of the other process, and nonsense from it, are both an end-of-file,
// never a panic or an endless loop.
func TestNonsenseCountsAsEndOfFile(t *testing.T) {
	for name, written := range map[string][]byte{
		"nothing":        nil,
		"half a frame":   {20, 0, 0, 0, 'K'},
		"no room for it": {1, 0, 0, 0, 0, 0, 0, 0, 'K', 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"four gigabytes": {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 'K', 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		r, w, err := pipe()
		if err != nil {
			t.Fatal(err)
		}
		unix.Write(w, written)
		unix.Close(w)
		in := inbox{fd: r}
		in.empty(func(f frame) bool {
			t.Errorf("%s: a frame arrived: %+v", name, f)
			return true
		})
		if !in.eof {
			t.Errorf("%s: no end-of-file", name)
		}
		if in.poll().Fd != -1 {
			t.Errorf("%s: after end-of-file the pipe would wake the loop for ever", name)
		}
		unix.Close(r)
	}
}
