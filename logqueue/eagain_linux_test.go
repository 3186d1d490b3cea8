package logqueue

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A file that refuses writes with EAGAIN although poll calls it writable loses
// no line. An eventfd is such a file: each write of eight bytes adds a number,
// and one that would overflow the sum is refused until somebody reads it
// (eventfd(2)).
func TestRefusedWritesAreTriedAgain(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const lines = 64 // a few dozen fill the sum
	text := []byte("a line.\n")
	want := lines * binary.NativeEndian.Uint64(text)
	w := writer{fd: fd, abandon: make(chan struct{})}
	written := make(chan int, 1)
	go func() {
		whole := 0
		for range lines {
			if w.line(text) {
				whole++
			}
		}
		written <- whole
	}()
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
			if whole != lines || sum != want {
				t.Errorf("%d of %d lines got through; their sum is %x, want %x", whole, lines, sum, want)
			}
			return
		case <-time.After(step): // the sum is full by now
			read()
		case <-deadline:
			t.Fatal("the lines are never through")
		}
	}
}
