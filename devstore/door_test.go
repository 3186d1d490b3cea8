package devstore

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/logging"
)

// hang is how long a test looks at a cut door to believe that it never answers.
const hang = 200 * time.Millisecond

// A cut door accepts and never answers; the other doors to the same store work
// on; nothing that was sent into the cut is ever applied; and a healed door
// works again for a client that keeps its connections.
func TestACutDoorIsSilentUntilHealed(t *testing.T) {
	s := start(t, Options{})
	door, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	behind, beside := client(t, door.URL(), logging.Nop{}), client(t, s.URL(), logging.Nop{})
	if _, err := behind.UpdateItem(t.Context(), count(0)); err != nil { // leaves a connection in the pool
		t.Fatal(err)
	}

	door.Cut()
	short, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	if _, err := behind.UpdateItem(short, count(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("on an old connection a cut door answers %v", err)
	}
	fresh, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	if _, err := client(t, door.URL(), logging.Nop{}).UpdateItem(fresh, count(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("on a new connection a cut door answers %v", err)
	}
	if n := stored(t, beside); n != "1" {
		t.Errorf("a write was applied through a cut door: the row holds %s", n)
	}

	door.Heal()
	if _, err := behind.UpdateItem(t.Context(), count(1)); err != nil {
		t.Errorf("a healed door answers %v", err)
	}
	if n := stored(t, beside); n != "2" {
		t.Errorf("after the healing the row holds %s", n)
	}
}

// Closing the store ends at once, with clients in mid-request behind a cut
// door and idle ones behind an open one.
func TestCloseWaitsForNobody(t *testing.T) {
	s := start(t, Options{})
	door, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	stored(t, client(t, s.URL(), logging.Nop{})) // idle from here on
	door.Cut()
	stuck := make(chan error, 1)
	sent := make(chan struct{})
	go func() {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		close(sent)
		_, err := Call(context.Background(), c, door.URL(), "GetItem", struct{}{})
		stuck <- err
	}()
	<-sent
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Fatal("Close hangs")
	}
	if err := <-stuck; err == nil {
		t.Error("a request behind a cut door was answered")
	}
	if _, err := s.Listen(); err == nil {
		t.Error("a closed store opened a door")
	}
}

// stored is the number in the row.
func stored(t *testing.T, c *dynamodb.Client) string {
	t.Helper()
	in := count(0)
	got, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: in.TableName, Key: in.Key, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	if got.Item == nil {
		return ""
	}
	return got.Item["n"].(*types.AttributeValueMemberN).Value
}
