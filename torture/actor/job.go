//go:build linux

package main

import (
	"encoding/json"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"solojob/boottime"
)

// writeEvery is how often the job writes with its FENCE: fine enough to show
// that it lives, or lives again.
const writeEvery = 20 * time.Millisecond

// event is one line to the recorder. A write is one to the fenced register
// that the recorder keeps.
type event struct {
	Event   string // hello, write, term or end
	At      boottime.Instant
	Task    string `json:",omitempty"`
	Lease   string `json:",omitempty"`
	Owner   string `json:",omitempty"`
	Tick    string `json:",omitempty"`
	Fence   int64  `json:",omitempty"`
	Attempt int    `json:",omitempty"`
	Code    int    `json:",omitempty"`
}

type writer struct {
	conn *net.UnixConn
	mu   sync.Mutex
}

// job is a fenced writer. It does not heed refusals: a job that does would
// hide that it still lives. What kind of job it is follows from its FENCE:
//
//	TORTURE_JOB       service or cron: how long it lives
//	TORTURE_BUSY      1: it uses all the CPU that it gets
//	TORTURE_HUNGRY    1: it takes memory until something is killed
//	TORTURE_RECORDER  the socket of the recorder
func job() {
	began := boottime.Now()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM)
	conn, err := net.Dial("unix", os.Getenv("TORTURE_RECORDER"))
	if err != nil {
		os.Exit(statusBroken)
	}
	w := &writer{conn: conn.(*net.UnixConn)}
	fence, _ := strconv.ParseInt(os.Getenv("FENCE"), 10, 64)
	attempt, _ := strconv.Atoi(os.Getenv("SOLOJOB_RUN_ATTEMPT"))
	w.say(event{
		Event: "hello", At: began, Task: os.Getenv("TORTURE_TASK"), Fence: fence, Attempt: attempt,
		Lease: os.Getenv("SOLOJOB_RUN_LEASE"), Owner: os.Getenv("SOLOJOB_RUN_OWNER"), Tick: os.Getenv("SOLOJOB_RUN_TICK"),
	})
	random := rand.New(rand.NewPCG(uint64(fence), 0))
	life, code := lifeOf(random, os.Getenv("TORTURE_JOB"))
	drain, drained := onTerm(random)
	w.growTree(random.IntN(3))
	go w.write()
	if os.Getenv("TORTURE_BUSY") == "1" {
		go spin()
		go spin()
	}
	if os.Getenv("TORTURE_HUNGRY") == "1" {
		time.AfterFunc(time.Duration(random.IntN(2000))*time.Millisecond, devour)
	}
	end := time.After(life)
	for {
		select {
		case <-end:
			w.end(code)
		case <-signals:
			w.say(event{Event: "term", At: boottime.Now()})
			if drain >= 0 {
				time.AfterFunc(drain, func() { w.end(drained) })
			}
		}
	}
}

// lifeOf is how long the job lives if it is left alone, and how it ends.
func lifeOf(random *rand.Rand, mode string) (time.Duration, int) {
	code := 0
	if random.IntN(6) == 0 {
		code = 3
	}
	between := func(from, to int) time.Duration {
		return time.Duration(from+random.IntN(to-from)) * time.Millisecond
	}
	switch n := random.IntN(10); {
	case mode == "service" && n < 2:
		return between(500, 10_000), code
	case mode == "service":
		return 1000 * time.Hour, code
	case n < 6:
		return between(1, 1200), code // before the next tick
	case n < 9:
		return between(1000, 6000), code
	default:
		return between(5000, 15_000), code // longer than the lease
	}
}

// onTerm is how long after SIGTERM the job ends, and how; negative if never.
func onTerm(random *rand.Rand) (time.Duration, int) {
	switch random.IntN(6) {
	case 0, 1:
		return 0, 0
	case 2, 3:
		return time.Duration(random.IntN(1500)) * time.Millisecond, 0
	case 4:
		return 0, 4
	default:
		return -1, 0
	}
}

// say ends the job when the recorder is gone: the torture is over.
func (w *writer) say(e event) {
	line, err := json.Marshal(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		_, err = w.conn.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(statusBroken)
	}
}

func (w *writer) write() {
	for {
		w.say(event{Event: "write", At: boottime.Now()})
		time.Sleep(writeEvery)
	}
}

func (w *writer) end(code int) {
	w.say(event{Event: "end", At: boottime.Now(), Code: code})
	os.Exit(code)
}

// growTree starts descendants that are deaf to SIGTERM, in sessions of their
// own, each with a child. All hold the recorder's connection.
func (w *writer) growTree(n int) {
	held, err := w.conn.File()
	if err != nil {
		os.Exit(statusBroken)
	}
	defer held.Close()
	const script = `trap "" TERM HUP; sleep 100000 & exec sleep 100000`
	for range n {
		_, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
			Env:   os.Environ(),
			Files: []uintptr{0, 1, 2, held.Fd()},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil {
			os.Exit(statusBroken)
		}
	}
}

func spin() {
	for n := 0; ; n++ {
		_ = n
	}
}

// devour takes more memory than the cgroup of a hungry job allows. Where
// nothing is killed, it keeps what it has.
func devour() {
	const piece, pieces = 8 << 20, 60
	var taken [][]byte
	for range pieces {
		p := make([]byte, piece)
		for i := 0; i < len(p); i += 4096 {
			p[i] = 1
		}
		taken = append(taken, p)
		time.Sleep(time.Millisecond)
	}
	time.Sleep(1000 * time.Hour)
	_ = taken
}
