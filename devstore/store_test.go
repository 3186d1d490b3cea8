package devstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"go.uber.org/goleak"
)

// patience bounds every wait in these tests. It says nothing about how long
// things take.
const patience = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a store that the test's end closes.
func start(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Table == "" {
		o.Table = "leases"
	}
	s, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// sdkLog keeps what the SDK would have printed.
type sdkLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *sdkLog) Logf(c logging.Classification, format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, v...))
}

// client is a real SDK client of the endpoint at url.
func client(t *testing.T, url string, log logging.Logger) *dynamodb.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(url),
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:  &http.Client{Transport: transport}, Logger: log, Retryer: aws.NopRetryer{},
	})
}

// count is a conditional increment, from one known number to the next.
func count(from int) *dynamodb.UpdateItemInput {
	in := &dynamodb.UpdateItemInput{
		TableName:                           aws.String("leases"),
		Key:                                 map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "a"}, "sk": &types.AttributeValueMemberS{Value: "lease"}},
		UpdateExpression:                    aws.String("SET #n = :new"),
		ConditionExpression:                 aws.String("attribute_not_exists(#n)"),
		ExpressionAttributeNames:            map[string]string{"#n": "n"},
		ExpressionAttributeValues:           map[string]types.AttributeValue{":new": number(from + 1)},
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if from > 0 {
		in.ConditionExpression = aws.String("#n = :old")
		in.ExpressionAttributeValues[":old"] = number(from)
	}
	return in
}

func number(n int) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
}

// Of many clients that try the same conditional write at once, exactly one
// succeeds, every reply shows one state of the row, and the observer sees the
// writes in the order in which they were applied.
func TestConditionalWritesAreAtomic(t *testing.T) {
	var observed []string
	requests := 0 // both unguarded: the observer is called by one at a time
	s := start(t, Options{Observe: func(x Exchange) {
		requests++
		if x.Row != nil {
			observed = append(observed, x.Row["n"]["N"].(string))
		}
	}})
	const clients, rounds = 8, 40
	var mu sync.Mutex
	won := map[int]int{}
	var all sync.WaitGroup
	for range clients {
		c := client(t, s.URL(), logging.Nop{})
		all.Go(func() {
			for n := 0; n < rounds; {
				_, err := c.UpdateItem(t.Context(), count(n))
				if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
					seen := 0
					fmt.Sscan(failed.Item["n"].(*types.AttributeValueMemberN).Value, &seen)
					if seen <= n {
						t.Errorf("the write from %d was refused by a row that holds %d", n, seen)
					}
					n = seen
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				won[n]++
				mu.Unlock()
				n++
			}
		})
	}
	all.Wait()
	for n := range rounds {
		if won[n] != 1 {
			t.Errorf("the write from %d succeeded %d times", n, won[n])
		}
	}
	s.Close() // after that nothing observes any more
	for i, n := range observed {
		if n != fmt.Sprint(i+1) {
			t.Errorf("the observed write number %d left %s in the row", i+1, n)
		}
	}
	if len(observed) != rounds {
		t.Errorf("%d writes were observed in %d requests; %d writes were applied", len(observed), requests, rounds)
	}
}

// An SDK finds nothing to warn about in the replies, and finds the table
// ready for use.
func TestTheSDKIsContent(t *testing.T) {
	s := start(t, Options{})
	var log sdkLog
	c := client(t, s.URL(), &log)
	if _, err := c.UpdateItem(t.Context(), count(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UpdateItem(t.Context(), count(0)); err == nil {
		t.Fatal("a condition that doesn't hold was not refused")
	}
	waiter := dynamodb.NewTableExistsWaiter(c)
	if err := waiter.Wait(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String("leases")}, patience); err != nil {
		t.Error(err)
	}
	_, err := c.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String("none")})
	if _, ok := errors.AsType[*types.ResourceNotFoundException](err); !ok {
		t.Errorf("a table that doesn't exist answers %v", err)
	}
	if len(log.lines) != 0 {
		t.Errorf("the SDK logged:\n%s", strings.Join(log.lines, "\n"))
	}
}

// What the store can't do is refused in the service's own form.
func TestUnknownOperationsAreRefusedInJSON(t *testing.T) {
	s := start(t, Options{})
	_, err := client(t, s.URL(), logging.Nop{}).ListBackups(t.Context(), &dynamodb.ListBackupsInput{})
	if e, ok := errors.AsType[smithy.APIError](err); !ok || e.ErrorCode() != "UnknownOperationException" {
		t.Errorf("an unknown operation answers %v", err)
	}
	r, err := http.NewRequest(http.MethodPost, s.URL(), strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810.GetItem")
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest || answer.Header.Get("Date") == "" || answer.Header.Get("X-Amzn-Requestid") == "" {
		t.Errorf("half a request answers %d, with the headers %v", answer.StatusCode, answer.Header)
	}
}

// A panic in the engine costs the request that caused it, and no other.
func TestAPanicIsA500(t *testing.T) {
	s := start(t, Options{})
	engine := s.engine
	s.engine = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("out of cheese") })
	_, err := s.Call("GetItem", struct{}{})
	if e, ok := errors.AsType[*Error](err); !ok || e.Type != "InternalServerError" || !strings.Contains(e.Message, "out of cheese") {
		t.Errorf("a panic answers %v", err)
	}
	s.engine = engine
	if _, err := s.Call("DescribeTable", map[string]string{"TableName": "leases"}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

// Nobody outside this machine can reach the store.
func TestOnlyLoopbackAddresses(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "nonsense"} {
		if s, err := Start(t.Context(), Options{Addr: addr}); err == nil {
			s.Close()
			t.Errorf("%q was accepted", addr)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "127.0.0.2:0", "localhost:0"} {
		if err := loopbackOnly(addr); err != nil {
			t.Errorf("%q was refused: %v", addr, err)
		}
	}
}

// The observer sees every applied request once, in order, with its reply.
func TestObserverSeesRequestsInOrder(t *testing.T) {
	var seen []string
	s := start(t, Options{Observe: func(x Exchange) {
		seen = append(seen, fmt.Sprint(x.Operation, " ", x.Status))
		if x.Operation == "UpdateItem" && (!bytes.Contains(x.Request, []byte(`"UpdateExpression"`)) || len(x.Reply) == 0 || x.Table != "leases" || (x.Row == nil) != (x.Status != http.StatusOK)) {
			t.Errorf("an update was seen as %+v", x)
		}
	}})
	c := client(t, s.URL(), logging.Nop{})
	if _, err := c.UpdateItem(t.Context(), count(0)); err != nil {
		t.Fatal(err)
	}
	c.UpdateItem(t.Context(), count(0)) // refused, and that is to be seen
	want := "CreateTable 200, UpdateItem 200, UpdateItem 400"
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("seen %s; want %s", got, want)
	}
}

// When its context ends, the store ends.
func TestTheStoreEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Start(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cancel()
	select {
	case <-s.main.gone:
	case <-time.After(patience):
		t.Fatal("the store still listens")
	}
}

// The instructions of `solojob dev` name the endpoint, and it ends when told to.
func TestServePrintsWhatToExport(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := Serve(ctx, Options{Table: "leases"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"export AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:", "export AWS_REGION=", "AWS_SECRET_ACCESS_KEY=", "SOLOJOB_TABLE=leases"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}
