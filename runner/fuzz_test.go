package runner

import (
	"bytes"
	"log/slog"
	"reflect"
	"syscall"
	"testing"
	"time"

	"solojob/boottime"
)

// conversation is what an agent may say to its supervisor in a run.
func conversation() (said []frame, wire []byte) {
	var out outbox
	say := func(k kind, b []byte) {
		said = append(said, frame{kind: k, seq: out.put(k, b), body: body{rest: b}})
	}
	say(frameExtend, putInt(nil, 5e9))
	o := order{path: "/bin/true", command: []string{"true", "--a"}, env: []string{"FENCE=7"}, validUntil: 30e9, grace: 4e9, margin: 1e9, stopSignal: syscall.SIGTERM}
	say(frameLaunch, o.encode())
	say(frameExtend, putInt(nil, 31e9))
	say(frameForward, putInt(nil, int64(syscall.SIGUSR1)))
	say(frameExtend, putInt(nil, 36e9))
	say(frameStop, putInt(nil, 35e9))
	say(frameKill, putString(nil, string(LeaseTaken)))
	return said, out.queued
}

// Whatever becomes of a stretch of what the agent says, the supervisor acts on
// what was whole before it, in order, and on nothing else: it launches nothing
// but what it was told to, and moves no deadline to where the agent did not.
func FuzzDamagedPipe(f *testing.F) {
	said, wire := conversation()
	f.Add(uint16(0), uint16(0), []byte{}, uint16(1))
	f.Add(uint16(0), uint16(len(wire)), wire[29:], uint16(7))         // the first message lost
	f.Add(uint16(29), uint16(29), wire[:29], uint16(100))             // twice
	f.Add(uint16(17), uint16(1), []byte{0xff}, uint16(3))             // one byte of a deadline
	f.Add(uint16(0), uint16(4), []byte{0, 0, 0, 0xff}, uint16(0xfff)) // a length
	f.Fuzz(func(t *testing.T, from, length uint16, other []byte, chunk uint16) {
		start := min(int(from), len(wire))
		end := min(start+int(length), len(wire))
		damaged := append(append(bytes.Clone(wire[:start]), other...), wire[end:]...)
		intact := 0
		for intact < min(len(wire), len(damaged)) && wire[intact] == damaged[intact] {
			intact++
		}

		var in inbox
		var heard []frame
		s := supervisor{}
		understand := func(f frame) bool {
			f.body.rest = bytes.Clone(f.body.rest)
			heard = append(heard, f)
			return s.obey(f)
		}
		for rest := damaged; len(rest) > 0 && !in.eof; {
			n := min(int(chunk)+1, len(rest))
			in.take(rest[:n], understand)
			rest = rest[n:]
		}

		whole := 0 // messages that arrived before the damage
		for end := 0; whole < len(said); whole++ {
			if end += headerSize + len(said[whole].body.rest); end > intact {
				break
			}
		}
		if len(heard) != whole || whole > 0 && !reflect.DeepEqual(heard, said[:whole]) {
			t.Fatalf("%d messages were whole, and %d were heard: %+v", whole, len(heard), heard)
		}
		deadline := boottime.Instant(0)
		for _, f := range heard {
			switch f.kind {
			case frameExtend:
				deadline = max(deadline, boottime.Instant(f.body.int()))
			case frameLaunch:
				o, _ := decodeOrder(&f.body)
				deadline = o.validUntil
			}
		}
		if (s.order != nil) != (whole > 1) || s.limits.validUntil != deadline {
			t.Fatalf("after %d messages the order is %+v and the deadline %d, not %d", whole, s.order, s.limits.validUntil, deadline)
		}
		if cap(in.received) > 2*len(damaged)+1024 {
			t.Fatalf("%d bytes are kept of %d", cap(in.received), len(damaged))
		}
	})
}

// A whole message with any content is acted upon as it says, or not at all:
// what the supervisor takes for a message, it would have written so itself.
func FuzzMessageToSupervisor(f *testing.F) {
	said, _ := conversation()
	for _, m := range said {
		f.Add(byte(m.kind), m.body.rest, true)
	}
	f.Add(byte(frameLaunch), putInt(nil, 1<<62), false)
	f.Add(byte(frameLaunch), append(putString(nil, "/bin/true"), putInt(nil, -1)...), false)
	f.Fuzz(func(t *testing.T, k byte, content []byte, launched bool) {
		s := supervisor{}
		if launched {
			s.order, s.limits = &order{stopSignal: syscall.SIGTERM}, limits{validUntil: 30e9, grace: 4e9, margin: 1e9}
		}
		before := s
		understood := s.obey(frame{kind: kind(k), seq: 1, body: body{rest: bytes.Clone(content)}})
		var again []byte
		switch kind(k) {
		case frameLaunch:
			if understood && !launched {
				again = s.order.encode()
			}
		case frameExtend, frameStop, frameForward, frameKill:
			if b := (&body{rest: content}); kind(k) == frameKill {
				again = putString(nil, b.string())
			} else {
				again = putInt(nil, b.int())
			}
		}
		switch {
		case !understood && !reflect.DeepEqual(s, before):
			t.Fatalf("%q with %x is not understood, and is acted upon: %+v", k, content, s)
		case understood && !bytes.Equal(again, content):
			t.Fatalf("%q with %x is understood as %x", k, content, again)
		case understood && kind(k) == frameLaunch && launched:
			t.Fatal("it would launch a second job")
		case s.limits.validUntil > before.limits.validUntil && kind(k) != frameExtend && kind(k) != frameLaunch:
			t.Fatalf("%q moves the deadline", k)
		}
	})
}

// Whatever the report pipe carries, the agent does not panic, hang or keep more
// than was sent; and a run is over only by a report of its end that is whole, in
// its place, and comes after the launch.
func FuzzReports(f *testing.F) {
	end := ending{launched: true, started: Moment{5, time.Unix(0, 7)}, ended: Moment{6, time.Unix(3, 8)}, reason: Stopped}
	var out outbox
	out.put(frameReady, nil)
	out.put(frameAck, putInt(nil, 1))
	out.put(frameStarted, putMoment(putInt(nil, 42), end.started))
	out.put(frameDead, end.encode())
	wire := out.queued
	f.Add(wire, false, byte(0), []byte{})
	f.Add(wire[:40], true, byte(frameDead), end.encode())
	f.Add([]byte{}, true, byte(frameAck), putInt(nil, 1<<62))
	f.Add([]byte{9, 0, 0, 0}, true, byte(frameStarted), putInt(nil, -1))
	f.Fuzz(func(t *testing.T, raw []byte, sealed bool, k byte, content []byte) {
		// Either any bytes at all, or a whole message of any content after them.
		h := &Hosted{wake: func() {}}
		run := h.Launch(Launch{Fence: 1, ValidUntil: 30e9})
		g := &guard{control: outbox{seq: 1}, killed: true, reaped: true} // there is no process to kill
		keep := &keeper{opts: Options{Log: slog.New(slog.DiscardHandler)}, host: h, guard: g, run: run, launched: true, bodyStarted: true}
		if sealed {
			var out outbox
			out.put(kind(k), content)
			raw = append(bytes.Clone(out.queued), raw...)
		}
		var last frame
		understood := false
		g.report.take(raw, func(f frame) bool {
			last = f
			last.body.rest = bytes.Clone(f.body.rest)
			understood = keep.hear(f)
			return understood
		})
		select {
		case <-run.done:
			if last.kind != frameDead || !understood {
				e, ok := decodeEnding(&last.body)
				t.Fatalf("the run is over by %q: %+v, %v", last.kind, e, ok)
			}
		default:
			if understood && last.kind == frameDead {
				t.Fatal("a report of the end was understood, and the run goes on")
			}
		}
		if g.acked > g.control.seq {
			t.Fatalf("message %d counts as acknowledged, and %d was the last", g.acked, g.control.seq)
		}
		if cap(g.report.received) > 2*len(raw)+1024 {
			t.Fatalf("%d bytes are kept of %d", cap(g.report.received), len(raw))
		}
		if e, ok := decodeEnding(&body{rest: content}); ok && !bytes.Equal(e.encode(), content) {
			t.Fatalf("%x is taken for the end %+v", content, e)
		}
	})
}
