package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"solojob/boottime"
	"solojob/devstore"
)

// Environment variables from the demo to the parts that it runs.
const (
	envTask     = "DEMO_TASK"     // the task's name: A, B, …
	envRecorder = "DEMO_RECORDER" // the socket of the recorder
	envRegister = "DEMO_REGISTER" // URL of the store, for writes to the register
	envMark     = "DEMO_MARK"     // the same in every process of one demo
	envLock     = "DEMO_LOCK"     // URL of the store, for the control's lock
	envSelf     = "DEMO_SELF"     // path of the binary, for the control's job
)

const (
	// writeEvery is how often the job writes: fast enough for a stale write to be tried
	// soon after a thaw.
	writeEvery = 100 * time.Millisecond
	// writeTimeout bounds one write; the store is on this machine.
	writeTimeout = 2 * time.Second
	// lastWork is what the job still does after SIGTERM: less than the stop grace, so
	// that a deploy lets it finish, and more than the loss grace, so that a
	// slipping lease does not.
	lastWork = time.Second
)

// Part runs the part of the demo named by the first argument, in a process that
// the demo started, and returns its exit status.
func Part(args []string) int {
	parts := map[string]func() error{"job": job, "ttl-lock": ttlLock, "undertaker": undertaker}
	if len(args) != 1 || parts[args[0]] == nil {
		fmt.Fprintln(os.Stderr, "this command is for `solojob demo` alone")
		return 2
	}
	if err := parts[args[0]](); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

// job is what the tasks run: it writes to the register until it is told to
// stop, finishes its work, and ends. A refused write doesn't stop it: it is as
// stubborn as a job may be.
func job() error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	task, fence := os.Getenv(envTask), os.Getenv("FENCE")
	number, _ := strconv.ParseInt(fence, 10, 64)
	line, err := dial(statement{Kind: Launched, Task: task, Fence: number})
	if err != nil {
		return err
	}
	defer line.conn.Close()
	client := &http.Client{Timeout: writeTimeout}
	pace := time.NewTicker(writeEvery)
	defer pace.Stop()
	var done <-chan time.Time
	for {
		if err := send(client, task, line.run, fence); err != nil {
			fmt.Fprintln(os.Stderr, "job:", err)
		}
		select {
		case <-pace.C:
		case <-told:
			if done == nil {
				line.say(Told)
				done = time.After(lastWork)
			}
		case <-done:
			return line.say(Ended)
		case <-line.cut:
			return errors.New("the demo has gone")
		}
	}
}

// hotline is a job's connection to the recorder.
type hotline struct {
	conn net.Conn
	run  int           // the number that the recorder gave this process
	cut  chan struct{} // closed when the recorder has gone
}

// dial introduces the job to the recorder, and returns when that has
// entered it in the chronicle.
func dial(first statement) (*hotline, error) {
	first.At, first.Pid, first.Ppid = boottime.Now(), os.Getpid(), os.Getppid()
	conn, err := net.Dial("unix", os.Getenv(envRecorder))
	if err != nil {
		return nil, fmt.Errorf("the demo can't be reached: %w", err)
	}
	l := &hotline{conn: conn, cut: make(chan struct{})}
	if err := json.NewEncoder(conn).Encode(first); err != nil {
		return nil, fmt.Errorf("the demo can't be reached: %w", err)
	}
	answers := bufio.NewReader(conn)
	if _, err := fmt.Fscanln(answers, &l.run); err != nil {
		return nil, fmt.Errorf("the demo doesn't answer: %w", err)
	}
	go func() {
		answers.ReadByte() // nothing more is ever sent
		close(l.cut)
	}()
	return l, nil
}

func (l *hotline) say(k Kind) error {
	return json.NewEncoder(l.conn).Encode(statement{Kind: k, At: boottime.Now()})
}

// writeRequest is a write to the register, as an UpdateItem.
type writeRequest struct {
	TableName string
	Key       map[string]map[string]string
	Update    string                       `json:"UpdateExpression"`
	Condition string                       `json:"ConditionExpression,omitempty"`
	Names     map[string]string            `json:"ExpressionAttributeNames"`
	Values    map[string]map[string]string `json:"ExpressionAttributeValues"`
}

// newWrite is what a job asks the register for. With a FENCE, the register compares it
// with the highest that it has seen, and keeps the higher, in one atomic step; that is all that
// fencing takes. Without one there is nothing to compare.
func newWrite(task string, run int, fence string) writeRequest {
	w := writeRequest{
		TableName: registerTable,
		Key:       map[string]map[string]string{"pk": {"S": "register"}, "sk": {"S": "unfenced"}},
		Update:    "SET #task = :task, #run = :run",
		Names:     map[string]string{"#task": "task", "#run": "run"},
		Values:    map[string]map[string]string{":task": {"S": task}, ":run": {"N": strconv.Itoa(run)}},
	}
	if fence != "" {
		w.Key["sk"]["S"] = "fenced"
		w.Update += ", #fence = :fence"
		w.Condition = "attribute_not_exists(#fence) OR #fence <= :fence"
		w.Names["#fence"] = "fence"
		w.Values[":fence"] = map[string]string{"N": fence}
	}
	return w
}

func send(client *http.Client, task string, run int, fence string) error {
	_, err := devstore.Call(context.Background(), client, os.Getenv(envRegister), "UpdateItem", newWrite(task, run, fence))
	return err
}
