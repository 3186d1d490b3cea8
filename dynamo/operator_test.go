package dynamo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"solojob/leader"
	"solojob/operator"
)

// hold creates a lease that a/1 holds with fence 1 and beat 1-0001.
func hold(t *testing.T, c *Client, table, name string) (*Store, operator.Key) {
	t.Helper()
	s := c.Lease(table, name, LeaseItem)
	if _, err := s.Acquire(t.Context(), leader.Acquisition{
		Owner: "a/1", Fence: 1, Beat: "1-0001", Lease: 30 * time.Second, Wall: wall,
	}); err != nil {
		t.Fatal(err)
	}
	return s, operator.Key{Name: name, Item: LeaseItem}
}

// Each change is applied exactly when its condition holds, and touches neither
// what others asked nor, unless it is to, the beat and the fence.
func TestOperatorsWritesAreConditional(t *testing.T) {
	onEachServer(t, func(t *testing.T, c *Client, table string) {
		ctx, o := t.Context(), c.OperatorTable(table)
		absent := operator.Key{Name: "absent", Item: LeaseItem}
		if l, err := o.Lease(ctx, absent); l != nil || err != nil {
			t.Errorf("an absent lease: %+v, %v", l, err)
		}
		changes := []operator.Change{
			operator.SetPaused{Paused: true, By: "x"}, operator.SetPaused{By: "x"}, operator.AskHandover{Owner: "", By: "x"},
			operator.AskRun{ID: "1", By: "x"}, operator.Break{SeenBeat: "b", Beat: "op-1", By: "x"}, operator.RaiseFence{To: 9, By: "x"},
		}
		for _, change := range changes {
			_, err := o.Write(ctx, absent, change)
			refused(t, err, "", 0)
		}
		if all, err := o.Leases(ctx); len(all) != 0 || err != nil {
			t.Errorf("a refused change created %+v, %v", all, err)
		}

		s, k := hold(t, c, table, "l")
		done := func(change operator.Change, check func(*operator.Lease) bool) {
			t.Helper()
			l, err := o.Write(ctx, k, change)
			if err != nil || !check(l) || l.Date.IsZero() {
				t.Errorf("%+v: %+v, %v", change, l, err)
			}
		}
		not := func(change operator.Change, owner string, fence int64) {
			t.Helper()
			_, err := o.Write(ctx, k, change)
			refused(t, err, owner, fence)
		}

		not(operator.SetPaused{By: "x"}, "a/1", 1)
		done(operator.SetPaused{Paused: true, By: "x"}, func(l *operator.Lease) bool { return l.Requests.Paused && l.Requests.PausedBy == "x" })
		not(operator.SetPaused{Paused: true, By: "y"}, "a/1", 1)
		not(operator.AskRun{ID: "1", By: "y"}, "a/1", 1)
		not(operator.SetPaused{By: "y", SeenBy: ""}, "a/1", 1)
		not(operator.SetPaused{By: "y", SeenBy: "z"}, "a/1", 1)
		done(operator.SetPaused{By: "y", SeenBy: "x"}, func(l *operator.Lease) bool { return !l.Requests.Paused && l.Requests.PausedBy == "y" })

		done(operator.AskRun{ID: "1", By: "x"}, func(l *operator.Lease) bool { return l.Requests.RunNow == "1" && l.Requests.RunBy == "x" })
		not(operator.AskRun{ID: "2", By: "y"}, "a/1", 1)

		not(operator.AskHandover{Owner: "b/1", By: "x"}, "a/1", 1)
		done(operator.AskHandover{Owner: "a/1", By: "x"}, func(l *operator.Lease) bool { return l.Requests.Handover == "a/1" && !l.Requests.HandoverNow })
		not(operator.AskHandover{Owner: "a/1", By: "y"}, "a/1", 1)
		done(operator.AskHandover{Owner: "a/1", Now: true, By: "y"}, func(l *operator.Lease) bool {
			return l.Requests.HandoverNow && l.Requests.HandoverBy == "y" && l.Requests.RunNow == "1" && l.Fence == 1 && l.Beat == "1-0001"
		})
		not(operator.AskHandover{Owner: "a/1", Now: true, By: "z"}, "a/1", 1)

		not(operator.RaiseFence{Seen: 2, To: 9, By: "x"}, "a/1", 1)
		not(operator.RaiseFence{Seen: 1, To: 1, By: "x"}, "a/1", 1)
		done(operator.RaiseFence{Seen: 1, To: 9, By: "x"}, func(l *operator.Lease) bool {
			return l.Fence == 9 && l.Beat == "1-0001" && l.Owner == "a/1" && l.ChangedBy == "x"
		})
		if row, err := s.Renew(ctx, leader.Renewal{Owner: "a/1", Fence: 9, Beat: "1-0002", Draining: true, Wall: wall}); err != nil || row.Requests.RunNow != "1" {
			t.Errorf("the holder's renewal: %+v, %v", row, err)
		}

		not(operator.Break{SeenBeat: "1-0001", SeenFence: 9, Beat: "op-1", By: "z"}, "a/1", 9)
		not(operator.Break{SeenBeat: "1-0002", SeenFence: 8, Beat: "op-1", By: "z"}, "a/1", 9)
		done(operator.Break{SeenBeat: "1-0002", SeenFence: 9, Beat: "op-1", By: "z"}, func(l *operator.Lease) bool {
			return l.Free() && l.Fence == 10 && l.Beat == "op-1" && !l.Draining && l.Requests.Handover == "" && l.ChangedBy == "z"
		})
		not(operator.AskHandover{Owner: "a/1", By: "x"}, "", 10)
	})
}

// A pause that was written by hand, without a name, can be resumed.
func TestNamelessPauseIsResumed(t *testing.T) {
	onEachServer(t, func(t *testing.T, c *Client, table string) {
		_, k := hold(t, c, table, "l")
		u := newUpdate()
		u.setBool("paused", true)
		u.where("attribute_exists(" + u.name("pk") + ")")
		if _, err := c.Lease(table, k.Name, k.Item).update(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		if l, err := c.OperatorTable(table).Write(t.Context(), k, operator.SetPaused{By: "x"}); err != nil || l.Requests.Paused {
			t.Errorf("%+v, %v", l, err)
		}
	})
}

// A listing has every lease item, and nothing else that is kept under a lease;
// a history has the runs of one lease alone.
func TestListings(t *testing.T) {
	onEachServer(t, func(t *testing.T, c *Client, table string) {
		ctx, o := t.Context(), c.OperatorTable(table)
		put := func(item map[string]types.AttributeValue) {
			t.Helper()
			if _, err := c.api.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: item}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 5 {
			hold(t, c, table, fmt.Sprint("l", i))
			for n := range 4 {
				put(map[string]types.AttributeValue{
					"pk": text(fmt.Sprint("l", i)), "sk": text(fmt.Sprintf("run#%02d", n)), "fence": number(int64(100 + n)), "tick": text("2026-01-02T03:00:00Z"),
					"kind": text("tick"), "attempt": number(2), "owner": text("a/1"), "started": text("2026-01-02T03:00:01Z"), "ended": text("2026-01-02T03:00:04Z"),
					"duration_ms": number(3000), "exit_code": number(7), "state": text("failed"), "why": text("it ended by itself"), "by": text("x"),
				})
			}
		}
		put(map[string]types.AttributeValue{"pk": text("l1"), "sk": text("once#v2"), "fence": number(3)})
		put(map[string]types.AttributeValue{"pk": text("l1"), "sk": text(operator.OnceItem), "fence": number(3), "beat": text("1-1"), "owner": text(""), "changed_by": text("x"), "run_since": text("")})
		put(map[string]types.AttributeValue{"pk": text("bad"), "sk": text(LeaseItem), "fence": text("3"), "beat": text("1-1")})

		all, err := o.Leases(ctx)
		found := map[string]operator.Lease{}
		for _, l := range all {
			found[l.Key.String()] = l
		}
		if err != nil || len(all) != 7 || len(found) != 7 {
			t.Fatalf("%d leases, %v: %+v", len(all), err, all)
		}
		if l := found["l3"]; l.Owner != "a/1" || l.Date.IsZero() || !l.Launching || l.Damage != "" {
			t.Errorf("%+v", l)
		}
		if l := found["l1 (once)"]; l.Fence != 3 || l.ChangedBy != "x" || !l.Launching {
			t.Errorf("%+v", l)
		}
		if l := found["bad"]; !strings.Contains(l.Damage, `"fence" is not a number`) {
			t.Errorf("%+v", l)
		}
		runs, err := o.Runs(ctx, operator.Key{Name: "l1", Item: LeaseItem})
		if err != nil || len(runs) != 4 {
			t.Fatalf("%+v, %v", runs, err)
		}
		want := operator.Run{
			Fence: runs[0].Fence, Tick: "2026-01-02T03:00:00Z", Kind: "tick", Attempt: 2, Owner: "a/1", Started: "2026-01-02T03:00:01Z",
			Ended: "2026-01-02T03:00:04Z", Duration: 3 * time.Second, ExitCode: 7, State: "failed", Why: "it ended by itself", By: "x",
		}
		if runs[0] != want {
			t.Errorf("%+v", runs[0])
		}
	})
}

// A person who lacks a permission is told which one, and on what.
func TestOperatorsAreToldWhatTheyLack(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"not authorized"}`)
	}))
	defer server.Close()
	c, err := ConnectLocal(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o, k := c.OperatorTable("jobs"), operator.Key{Name: "l", Item: LeaseItem}
	_, listed := o.Leases(t.Context())
	_, read := o.Lease(t.Context(), k)
	_, history := o.Runs(t.Context(), k)
	_, written := o.Write(t.Context(), k, operator.AskRun{ID: "1"})
	for action, err := range map[string]error{"Scan": listed, "GetItem": read, "Query": history, "UpdateItem": written} {
		if want := `you are not allowed dynamodb:` + action + ` on table "jobs"`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
