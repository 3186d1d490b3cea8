package operator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"solojob/boottime"
	"solojob/devstore"
	"solojob/dynamo"
	"solojob/operator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dynaliteVariable has the URL of a running dynalite, an implementation that
// is independent of minidyn. CI sets it.
const dynaliteVariable = "SOLOJOB_TEST_DYNALITE"

// onEachServer runs a test against every server at hand.
func onEachServer(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("minidyn", func(t *testing.T) {
		s, err := devstore.Start(t.Context(), devstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s.URL())
	})
	t.Run("dynalite", func(t *testing.T) {
		url := os.Getenv(dynaliteVariable)
		if url == "" && os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set, and CI has to start one", dynaliteVariable)
		}
		if url == "" {
			t.Skipf("%s is not set: install dynalite from npm, start it, and set this to its URL", dynaliteVariable)
		}
		test(t, url)
	})
}

// store is a table at an endpoint, written to as an agent or an accident would.
type store struct {
	t     *testing.T
	url   string
	table string
	dynamo.OperatorTable
}

// newStore creates a table of its own at an endpoint.
func newStore(t *testing.T, url string) *store {
	t.Helper()
	client, err := dynamo.ConnectLocal(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s := &store{t: t, url: url, table: fmt.Sprintf("t%016x", rand.Uint64())}
	s.OperatorTable = *client.OperatorTable(s.table)
	key := func(name, kind string) object { return object{"AttributeName": name, "KeyType": kind} }
	attribute := func(name string) object { return object{"AttributeName": name, "AttributeType": "S"} }
	s.call("CreateTable", object{
		"BillingMode": "PAY_PER_REQUEST", "KeySchema": []object{key("pk", "HASH"), key("sk", "RANGE")},
		"AttributeDefinitions": []object{attribute("pk"), attribute("sk")},
	})
	for status := ""; status != "ACTIVE"; {
		var reply struct{ Table struct{ TableStatus string } }
		if err := json.Unmarshal(s.call("DescribeTable", object{}), &reply); err != nil {
			t.Fatal(err)
		}
		status = reply.Table.TableStatus
	}
	return s
}

type object = map[string]any

// call sends one operation. The signature is one in form only: neither server
// checks it, but one wants to see it.
func (s *store) call(operation string, request object) []byte {
	s.t.Helper()
	request["TableName"] = s.table
	body, err := json.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operation)
	r.Header.Set("X-Amz-Date", "20260102T030405Z")
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=a/20260102/local/dynamodb/aws4_request, SignedHeaders=host, Signature=a")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer reply.Body.Close()
	answer, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s %s, %v", operation, reply.Status, answer, err)
	}
	return answer
}

// item is a row in plain values: strings, ints and booleans.
type item map[string]any

// with is the row with some attributes changed.
func (i item) with(changes item) item {
	all := maps.Clone(i)
	maps.Copy(all, changes)
	return all
}

func (i item) wire() object {
	all := object{}
	for name, v := range i {
		switch v := v.(type) {
		case string:
			all[name] = object{"S": v}
		case int:
			all[name] = object{"N": fmt.Sprint(v)}
		case bool:
			all[name] = object{"BOOL": v}
		}
	}
	return all
}

func (s *store) put(items ...item) {
	s.t.Helper()
	for _, i := range items {
		s.call("PutItem", object{"Item": i.wire()})
	}
}

// get is the lease as it is now.
func (s *store) get(k operator.Key) operator.Lease {
	s.t.Helper()
	l, err := s.Lease(s.t.Context(), k)
	if err != nil || l == nil {
		s.t.Fatalf("%v: %+v, %v", k, l, err)
	}
	return *l
}

// fakeClock is a local clock that goes on as fast as it is waited for.
type fakeClock struct {
	mu  sync.Mutex
	now boottime.Instant
}

func (c *fakeClock) Now() boottime.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Until(at boottime.Instant) (<-chan struct{}, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, at)
	over := make(chan struct{})
	close(over)
	return over, func() {}
}

// begin is the time of day at which the fake clock starts.
var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (c *fakeClock) wall() time.Time { return begin.Add(time.Duration(c.Now())) }

// observed is a table whose date is the fake clock's, and whose holders beat by
// it, every interval from half an interval on.
type observed struct {
	operator.Table
	clock *fakeClock
	beat  func(n int) // nil: they are silent
	beats int
	// before, if not nil, is called before each write: another operator's moment.
	before func()
}

// interval is the default heartbeat's.
const interval = 5 * time.Second

func (o *observed) Lease(ctx context.Context, k operator.Key) (*operator.Lease, error) {
	for o.beat != nil && o.clock.Now() >= boottime.Instant(interval)*boottime.Instant(2*o.beats+1)/2 {
		o.beats++
		o.beat(o.beats)
	}
	l, err := o.Table.Lease(ctx, k)
	if l != nil {
		l.Date = o.clock.wall()
	}
	return l, err
}

func (o *observed) Leases(ctx context.Context) ([]operator.Lease, error) {
	all, err := o.Table.Leases(ctx)
	for i := range all {
		all[i].Date = o.clock.wall()
	}
	return all, err
}

func (o *observed) Write(ctx context.Context, k operator.Key, c operator.Change) (*operator.Lease, error) {
	if o.before != nil {
		o.before()
	}
	l, err := o.Table.Write(ctx, k, c)
	if l != nil {
		l.Date = o.clock.wall()
	}
	return l, err
}

// terminal is one person at a prompt.
type terminal struct {
	table   operator.Table
	clock   *fakeClock
	caller  string
	answer  string    // typed when asked
	keys    io.Reader // instead of answer
	style   operator.Style
	random  io.Reader
	context context.Context
}

// outcome is what a command printed, and ended with.
type outcome struct {
	stdout string
	screen string // stdout and stderr as they came
	status int
}

// run types a command.
func (p terminal) run(args ...string) outcome {
	if p.clock == nil {
		p.clock = &fakeClock{}
	}
	if p.random == nil {
		p.random = zeros{}
	}
	if p.context == nil {
		p.context = context.Background()
	}
	deps := operator.Deps{
		Caller:       func(context.Context) string { return p.caller },
		UntilStopped: func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		Clock:        p.clock, Wall: p.clock.wall, Random: p.random,
		Style: p.style, Answers: p.answer != "" || p.keys != nil,
	}
	root := &cobra.Command{Use: "solojob", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(operator.Commands(func(context.Context) (operator.Table, error) { return p.table, nil }, deps)...)
	var stdout, screen bytes.Buffer
	root.SetOut(io.MultiWriter(&stdout, &screen))
	root.SetErr(&screen)
	root.SetIn(typed{strings.NewReader(p.answer + "\n"), &screen})
	if p.keys != nil {
		root.SetIn(p.keys)
	}
	root.SetArgs(args)
	err := root.ExecuteContext(p.context)
	o := outcome{}
	if err != nil {
		o.status = operator.ExitUsage
		var e interface{ ExitStatus() int }
		if errors.As(err, &e) {
			o.status = e.ExitStatus()
		}
		fmt.Fprintf(&screen, "solojob: %s\n", err)
	}
	o.stdout, o.screen = stdout.String(), screen.String()
	return o
}

// typed is a keyboard whose echo is on the screen.
type typed struct {
	keys io.Reader
	echo io.Writer
}

func (k typed) Read(b []byte) (int, error) {
	n, err := k.keys.Read(b)
	k.echo.Write(b[:n])
	return n, err
}

// zeros is randomness that can be foretold.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
