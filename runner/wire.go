package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"syscall"

	"golang.org/x/sys/unix"
)

// kind says what a frame on the control or the report pipe means.
type kind byte

const (
	// From the agent to the supervisor.
	frameLaunch  kind = 'L' // order
	frameExtend  kind = 'E' // valid-until
	frameStop    kind = 'S' // kill-at
	frameKill    kind = 'K' // reason
	frameForward kind = 'F' // signal

	// From the supervisor to the agent.
	frameReady   kind = 'r' // nothing
	frameAck     kind = 'a' // sequence number of the last frame that was acted upon
	frameStarted kind = 's' // pid, start
	frameDead    kind = 'd' // ending
)

// A frame is its length (4 bytes: of all that follows), a checksum of what
// follows that (4), its kind (1), its sequence number (8), and a body of integers
// and strings. Strings are bytes with a length: arguments and environment need
// not be UTF-8.
//
// No kernel garbles a pipe. The checksum and the numbers, which have no gaps, are
// there so that nothing but a whole message of the other process, in its place,
// can launch a job, move its deadline or confirm its death, whoever got hold of
// the pipe by mistake.
const (
	lengthSize = 4
	sumSize    = 4
	headerSize = lengthSize + sumSize + 1 + 8
	// frameLimit is more than a launch can have: execve(2) takes arguments and
	// environment of 6 MB at most.
	frameLimit = 8 << 20
)

type frame struct {
	kind kind
	seq  int64
	body body
}

// body is read from its front. A read beyond the end sets short and yields
// zero values, so that a decoder checks once, at its end.
type body struct {
	rest  []byte
	short bool
}

func (b *body) bytes(n int) []byte {
	if b.short || n < 0 || n > len(b.rest) {
		b.short = true
		return nil
	}
	out := b.rest[:n]
	b.rest = b.rest[n:]
	return out
}

func (b *body) int() int64 {
	raw := b.bytes(8)
	if raw == nil {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(raw))
}

func (b *body) string() string { return string(b.bytes(int(b.int()))) }

func (b *body) strings() []string {
	n := b.int()
	var out []string
	for i := int64(0); i < n && !b.short; i++ {
		out = append(out, b.string())
	}
	return out
}

// whole reports whether a body was read to its end, and not beyond.
func (b *body) whole() bool { return !b.short && len(b.rest) == 0 }

func putInt(to []byte, v int64) []byte { return binary.LittleEndian.AppendUint64(to, uint64(v)) }

func putString(to []byte, s string) []byte { return append(putInt(to, int64(len(s))), s...) }

func putStrings(to []byte, list []string) []byte {
	to = putInt(to, int64(len(list)))
	for _, s := range list {
		to = putString(to, s)
	}
	return to
}

// outbox writes frames to a pipe without ever blocking: what the pipe doesn't
// take waits here, and goes first next time.
type outbox struct {
	fd     int
	seq    int64 // of the last frame that was put
	queued []byte
	gone   bool // the reader is: nothing can be sent any more
}

// put queues a frame and returns its sequence number. Call flush to send it.
func (o *outbox) put(k kind, body []byte) int64 {
	o.seq++
	start := len(o.queued)
	o.queued = binary.LittleEndian.AppendUint32(o.queued, uint32(headerSize-lengthSize+len(body)))
	o.queued = append(o.queued, 0, 0, 0, 0) // the checksum's place
	o.queued = append(o.queued, byte(k))
	o.queued = putInt(o.queued, o.seq)
	o.queued = append(o.queued, body...)
	written := o.queued[start:]
	binary.LittleEndian.PutUint32(written[lengthSize:], sum(written))
	return o.seq
}

// sum is the checksum of a frame, of what follows it in there.
func sum(frame []byte) uint32 { return crc32.ChecksumIEEE(frame[lengthSize+sumSize:]) }

// flush writes what the pipe takes now.
func (o *outbox) flush() {
	for len(o.queued) > 0 && !o.gone {
		n, err := unix.Write(o.fd, o.queued)
		switch {
		case err == nil:
			o.queued = o.queued[n:]
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return
		default: // EPIPE: the other process is dead, which wait4 or end-of-file tells
			o.gone = true
		}
	}
	o.queued = nil // lets the memory of a large launch go
}

// full reports whether the pipe has not yet taken what was put last.
func (o *outbox) full() bool { return len(o.queued) > 0 }

// poll is the outbox's entry for poll(2): it wants to write or nothing.
func (o *outbox) poll() unix.PollFd {
	if o.full() && !o.gone {
		return unix.PollFd{Fd: int32(o.fd), Events: unix.POLLOUT}
	}
	return unix.PollFd{Fd: -1}
}

// inbox reads frames from a pipe.
type inbox struct {
	fd       int
	seq      int64 // of the last frame
	received []byte
	eof      bool
	damaged  bool // what came was no message: nothing more is read
}

// empty reads the pipe until nothing is left in it, and hands each complete
// frame to handle, which says whether it understood it. It notes an end-of-file
// in eof. What can't be read or understood counts as one: the other process is
// not what it should be.
func (in *inbox) empty(handle func(frame) bool) {
	var chunk [16 << 10]byte
	for !in.eof {
		n, err := unix.Read(in.fd, chunk[:])
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return
		case err != nil || n == 0:
			in.eof = true
			return
		}
		in.take(chunk[:n], handle)
	}
}

// take adds what was read to what came before, and hands the frames that are
// complete now to handle.
func (in *inbox) take(read []byte, handle func(frame) bool) {
	in.received = append(in.received, read...)
	for !in.eof {
		f, ok, err := in.next()
		if err == nil && !ok {
			return
		}
		if err != nil || !handle(f) {
			in.eof, in.damaged, in.received = true, true, nil
		}
	}
}

// next takes the first complete frame off what was received.
func (in *inbox) next() (f frame, ok bool, err error) {
	if len(in.received) < headerSize {
		return frame{}, false, nil
	}
	length := int(binary.LittleEndian.Uint32(in.received))
	if length < headerSize-lengthSize || length > frameLimit {
		return frame{}, false, fmt.Errorf("runner: no frame has %d bytes", length)
	}
	end := lengthSize + length
	if len(in.received) < end {
		return frame{}, false, nil
	}
	if binary.LittleEndian.Uint32(in.received[lengthSize:]) != sum(in.received[:end]) {
		return frame{}, false, errors.New("runner: a frame's checksum is wrong")
	}
	in.seq++
	f = frame{
		kind: kind(in.received[lengthSize+sumSize]),
		seq:  int64(binary.LittleEndian.Uint64(in.received[lengthSize+sumSize+1:])),
		body: body{rest: in.received[headerSize:end:end]},
	}
	if f.seq != in.seq {
		return frame{}, false, fmt.Errorf("runner: frame %d came in the place of frame %d", f.seq, in.seq)
	}
	in.received = in.received[end:]
	if len(in.received) == 0 {
		in.received = nil
	}
	return f, true, nil
}

// poll is the inbox's entry for poll(2); none after end-of-file, which would
// wake the loop for ever.
func (in *inbox) poll() unix.PollFd {
	if in.eof {
		return unix.PollFd{Fd: -1}
	}
	return unix.PollFd{Fd: int32(in.fd), Events: unix.POLLIN}
}
