package logqueue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A file that takes a line in pieces, and refuses some of them with EAGAIN
// although poll calls it writable, gets the whole line in the end. An eventfd
// is such a file: each write adds eight bytes as a number, and one that would
// overflow the sum is refused until somebody reads it (eventfd(2)).
func TestShortWritesAndRefusals(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	text := bytes.Repeat([]byte("a line, "), 32)
	var want uint64
	for i := 0; i < len(text); i += 8 {
		want += binary.NativeEndian.Uint64(text[i:])
	}
	w := writer{fd: fd, abandon: make(chan struct{})}
	written := make(chan bool, 1)
	go func() { written <- w.line(text) }()
	var sum uint64
	read := func() {
		var number [8]byte
		if _, err := unix.Read(fd, number[:]); err == nil {
			sum += binary.NativeEndian.Uint64(number[:])
		} else if !errors.Is(err, unix.EAGAIN) {
			t.Error(err)
		}
	}
	for deadline := time.After(patience); ; {
		select {
		case whole := <-written:
			read()
			if !whole || sum != want {
				t.Errorf("the line got through: %t; the sum of its parts is %x, want %x", whole, sum, want)
			}
			return
		case <-time.After(step / 10): // let the sum fill up
			read()
		case <-deadline:
			t.Fatal("the line is never through")
		}
	}
}
