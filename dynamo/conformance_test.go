package dynamo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.uber.org/goleak"

	"solojob/boottime"
	"solojob/devstore"
	"solojob/leader"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dynaliteVariable has the URL of a running dynalite, an implementation that
// is independent of minidyn. CI sets it.
const dynaliteVariable = "SOLOJOB_TEST_DYNALITE"

// onEachServer runs a test against every server at hand, each time with a fresh
// table. Neither is DynamoDB: minidyn returns the row that failed a condition,
// dynalite does not, and the protocol has to live with both.
func onEachServer(t *testing.T, test func(t *testing.T, c *Client, table string)) {
	t.Run("minidyn", func(t *testing.T) {
		s, err := devstore.Start(t.Context(), devstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c, table := connectTo(t, s.URL())
		test(t, c, table)
	})
	t.Run("dynalite", func(t *testing.T) {
		url := os.Getenv(dynaliteVariable)
		if url == "" && os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set, and CI has to start one", dynaliteVariable)
		}
		if url == "" {
			t.Skipf("%s is not set: install dynalite from npm, start it, and set this to its URL", dynaliteVariable)
		}
		c, table := connectTo(t, url)
		test(t, c, table)
	})
}

func connectTo(t *testing.T, url string) (*Client, string) {
	t.Helper()
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", url)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	c, err := Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	table := fmt.Sprintf("t%016x", rand.Uint64())
	key := func(name string, kind types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: &name, KeyType: kind}
	}
	attribute := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS}
	}
	if _, err := c.api.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:            &table,
		KeySchema:            []types.KeySchemaElement{key("pk", types.KeyTypeHash), key("sk", types.KeyTypeRange)},
		AttributeDefinitions: []types.AttributeDefinition{attribute("pk"), attribute("sk")},
		BillingMode:          types.BillingModePayPerRequest,
	}); err != nil {
		t.Fatal(err)
	}
	if err := dynamodb.NewTableExistsWaiter(c.api).Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: &table}, 10*time.Second,
		func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay = 10 * time.Millisecond }); err != nil {
		t.Fatal(err)
	}
	return c, table
}

var wall = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// refused fails the test unless err is a failed condition. What the row is
// instead may or may not be told, but if it is told, it is as given.
func refused(t *testing.T, err error, owner string, fence int64) {
	t.Helper()
	var failed *leader.ConditionError
	if !errors.As(err, &failed) {
		t.Fatalf("not refused: %v", err)
	}
	if failed.Known && failed.Row.Date.IsZero() {
		t.Error("the refusal's row has no date")
	}
	if failed.Known && (failed.Row.Owner != owner || failed.Row.Fence != fence) {
		t.Errorf("the row is %+v", failed.Row)
	}
}

// A lease's life: each write is applied exactly when its condition holds.
func TestWritesAreConditional(t *testing.T) {
	onEachServer(t, func(t *testing.T, c *Client, table string) {
		ctx, s := t.Context(), c.Lease(table, "l", LeaseItem)
		if row, err := s.Read(ctx, true); row != nil || err != nil {
			t.Fatalf("an absent row: %+v, %v", row, err)
		}
		code := 3
		a := leader.Acquisition{
			Owner: "a/1", Fence: 1, Beat: "1-0001", Lease: 30 * time.Second, Revision: "r7", Wall: wall,
		}
		record := leader.Record{Schedule: "@hourly", Through: "2026-01-02T03:00:00Z"}
		row, err := s.Acquire(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		row.Date = time.Time{}
		want := leader.Row{
			Owner: "a/1", Fence: 1, Beat: "1-0001", Lease: 30 * time.Second,
			Revision: "r7", Announced: "r7", Since: "2026-01-02T03:04:05Z",
		}
		if *row != want {
			t.Errorf("acquired\n%+v, want\n%+v", *row, want)
		}
		_, err = s.Acquire(ctx, leader.Acquisition{Owner: "b/1", Fence: 1, Beat: "2-0001", Lease: time.Second, Wall: wall})
		refused(t, err, "a/1", 1)

		renewal := leader.Renewal{Owner: "a/1", Fence: 1, Beat: "1-0003", Draining: true, Wall: wall, Record: record}
		if row, err = s.Renew(ctx, renewal); err != nil || row.Beat != "1-0003" || !row.Draining || row.Record != record {
			t.Errorf("renewed %+v, %v", row, err)
		}
		old := renewal
		old.Beat = "1-0002"
		_, err = s.Renew(ctx, old) // a duplicate that was late
		refused(t, err, "a/1", 1)
		other := renewal
		other.Owner, other.Beat = "b/1", "2-0002"
		_, err = s.Renew(ctx, other)
		refused(t, err, "a/1", 1)

		tick := leader.Record{Schedule: "@hourly", Through: "2026-01-02T04:00:00Z", Tick: "2026-01-02T04:00:00Z", TickState: "running", Attempt: 1, ExitCode: &code}
		claim := leader.Renewal{Owner: "a/1", Fence: 1, Beat: "1-0004", Wall: wall, Record: tick, Claim: &leader.Claim{Record: tick, Tick: tick.Tick}}
		if row, err = s.Renew(ctx, claim); err != nil || row.Fence != 2 || row.Record.Tick != tick.Tick || *row.Record.ExitCode != 3 {
			t.Errorf("claimed %+v, %v", row, err)
		}
		claim.Fence, claim.Beat = 2, "1-0005"
		_, err = s.Renew(ctx, claim) // the same tick
		refused(t, err, "a/1", 2)
		again := tick
		again.Attempt = 2
		claim.Record, claim.Claim = again, &leader.Claim{Record: again, Again: &tick}
		claim.Beat = "1-0006"
		if row, err = s.Renew(ctx, claim); err != nil || row.Fence != 3 || row.Record.Attempt != 2 {
			t.Errorf("claimed again %+v, %v", row, err)
		}
		claim.Fence, claim.Beat = 3, "1-0007"
		_, err = s.Renew(ctx, claim) // the same attempt
		refused(t, err, "a/1", 3)

		_, err = s.Release(ctx, leader.Release{Owner: "a/1", Fence: 2, Beat: "1-0008"})
		refused(t, err, "a/1", 3)
		if row, err = s.Release(ctx, leader.Release{Owner: "a/1", Fence: 3, Beat: "1-0009"}); err != nil || !row.Free() || row.Draining || row.Fence != 3 {
			t.Errorf("released %+v, %v", row, err)
		}
		_, err = s.Renew(ctx, leader.Renewal{Owner: "a/1", Fence: 3, Beat: "1-0010", Wall: wall})
		refused(t, err, "", 3)

		seen := *row
		seen.Beat = "1-0007"
		_, err = s.Acquire(ctx, leader.Acquisition{Owner: "b/1", Fence: 4, Beat: "2-0003", Lease: time.Second, Wall: wall, Seen: &seen})
		refused(t, err, "", 3)
		seen = *row
		if row, err = s.Acquire(ctx, leader.Acquisition{Owner: "b/1", Fence: 4, Beat: "2-0004", Lease: time.Second, Wall: wall, Seen: &seen}); err != nil || row.Owner != "b/1" || row.Fence != 4 {
			t.Errorf("acquired %+v, %v", row, err)
		}
		if row, err = s.Read(ctx, false); err != nil || row.Owner != "b/1" || row.Lease != time.Second || row.Date.IsZero() {
			t.Errorf("read %+v, %v", row, err)
		}
	})
}

// A row that no agent wrote (it has no beat) is taken above the fence in it.
func TestRowWithoutBeatIsTaken(t *testing.T) {
	onEachServer(t, func(t *testing.T, c *Client, table string) {
		ctx, s := t.Context(), c.Lease(table, "l", LeaseItem)
		if _, err := c.api.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: map[string]types.AttributeValue{
			"pk": text("l"), "sk": text(LeaseItem), "fence": number(41),
		}}); err != nil {
			t.Fatal(err)
		}
		bare, err := s.Read(ctx, true)
		if err != nil || bare == nil || bare.Fence != 41 {
			t.Fatalf("%+v, %v", bare, err)
		}
		row, err := s.Acquire(ctx, leader.Acquisition{Owner: "a/1", Fence: 42, Beat: "1-1", Lease: time.Second, Wall: wall, Seen: bare})
		if err != nil || row.Owner != "a/1" {
			t.Errorf("%+v, %v", row, err)
		}
		_, err = s.Acquire(ctx, leader.Acquisition{Owner: "b/1", Fence: 42, Beat: "2-1", Lease: time.Second, Wall: wall, Seen: bare})
		refused(t, err, "a/1", 42)
	})
}

// A damaged row is an error that names every fault, and never a row.
func TestDamagedRowIsRefused(t *testing.T) {
	good := func() map[string]types.AttributeValue {
		return map[string]types.AttributeValue{
			"pk": text("l"), "sk": text(LeaseItem), "owner": text("a/1"), "beat": text("1-1"),
			"fence": number(7), "lease_ms": number(30000),
		}
	}
	if row, err := parseRow(good()); err != nil || row.Fence != 7 {
		t.Fatalf("%+v, %v", row, err)
	}
	for name, damage := range map[string]types.AttributeValue{
		"fence": text("7"), "lease_ms": number(0), "owner": number(1), "beat": number(1),
		"draining": text("true"), "tick_attempt": number(-1), "exit_code": text("0"), "through": number(1),
	} {
		item := good()
		item[name] = damage
		if row, err := parseRow(item); err == nil {
			t.Errorf("%s damaged: taken as %+v", name, row)
		}
	}
	for name, n := range map[string]string{"fence": "1e3", "lease_ms": "99999999999999999999"} {
		item := good()
		item[name] = &types.AttributeValueMemberN{Value: n}
		if row, err := parseRow(item); err == nil {
			t.Errorf("%s = %s: taken as %+v", name, n, row)
		}
	}
	for _, name := range []string{"fence", "lease_ms"} {
		item := good()
		delete(item, name)
		if row, err := parseRow(item); err == nil {
			t.Errorf("%s missing: taken as %+v", name, row)
		}
	}
}

// The requests name the row's attributes through aliases only, ask for the row
// that fails a condition, and keep the lease item below 1 KB at its fullest.
func TestRequestsOfTheContract(t *testing.T) {
	u := newUpdate()
	u.setRecord(leader.Record{Schedule: "s", Through: "t", Tick: "k", TickState: "r", Attempt: 1, ExitCode: aws.Int(0)})
	u.whereHeld("o", 1, "b")
	for alias, name := range u.names {
		if alias != "#"+name || slices.Contains([]string{"ttl", "expires"}, name) {
			t.Errorf("%s: %s", alias, name)
		}
	}
}

// The real elector over the wire: one holder of three, a handover, a takeover,
// and fences that grow, against each server.
func TestElectorsOverTheWire(t *testing.T) {
	onEachServer(t, func(t *testing.T, c *Client, table string) {
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		electors := map[string]*leader.Elector{}
		hung := map[string]context.CancelFunc{}
		terms := make(chan *leader.Term)
		for _, name := range []string{"a", "b", "c"} {
			e := leader.NewElector(leader.Config{
				Store: c.Lease(table, "wire", LeaseItem), Clock: boottime.Clock{}, Name: name, Nonce: "n" + name,
				Lease: 6 * time.Second, Heartbeat: time.Second, Poll: 100 * time.Millisecond,
				Wall: time.Now, Random: rand.Float64, Log: slog.New(slog.DiscardHandler),
			})
			electors[e.Owner()] = e
			mine, stop := context.WithCancel(ctx)
			hung[e.Owner()] = stop
			go func() { ran <- e.Run(mine) }()
			go func() {
				for {
					select {
					case m := <-e.Terms():
						terms <- m
					case <-mine.Done():
						return
					}
				}
			}()
		}
		fence := int64(0)
		for i, how := range []string{leader.New, leader.Released, leader.Expired} {
			m := <-terms
			if m.How != how || m.Fence <= fence {
				t.Errorf("term %d: %s with fence %d after %d", i, m.How, m.Fence, fence)
			}
			select {
			case other := <-terms:
				t.Errorf("two holders: %s beside %s", other.Row.Owner, m.Row.Owner)
			case <-time.After(500 * time.Millisecond): // more than a poll: others would have come
			}
			var err error
			if fence, err = m.Claim(leader.Claim{}); err != nil || fence != m.Fence+1 {
				t.Errorf("claimed %d, %v", fence, err)
			}
			switch i {
			case 0:
				electors[m.Row.Owner].Stop()
				if !m.Release() {
					t.Error("not released")
				}
				<-ran
			case 1:
				hung[m.Row.Owner]() // drops everything as it is
				<-ran
			}
		}
		cancel()
		<-ran
	})
}
