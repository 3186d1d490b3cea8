package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"solojob/devstore"
	"solojob/dynamo"
	"solojob/ecs/ecstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden files anew")

// service is an endpoint that answers some calls as AWS documents them, and has
// a real store behind it for all others.
type service struct {
	answers map[string]answer // by operation
	store   *devstore.Store
}

type answer struct {
	status int
	body   string
}

// described is the reply of DescribeTable in the form of
// https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_DescribeTable.html.
func described(partition, sort string, more string) answer {
	return answer{http.StatusOK, fmt.Sprintf(`{"Table":{
		"AttributeDefinitions":[{"AttributeName":%q,"AttributeType":"S"},{"AttributeName":%q,"AttributeType":"S"}],
		"BillingModeSummary":{"BillingMode":"PAY_PER_REQUEST","LastUpdateToPayPerRequestDateTime":1.5e9},
		"CreationDateTime":1.5e9,"ItemCount":1,
		"KeySchema":[{"AttributeName":%[1]q,"KeyType":"HASH"},{"AttributeName":%[2]q,"KeyType":"RANGE"}],
		"TableArn":"arn:aws:dynamodb:us-east-1:123456789012:table/solojob","TableName":"solojob","TableSizeBytes":200,"TableStatus":"ACTIVE"%[3]s
	}}`, partition, sort, more)}
}

// Further documented replies.
var (
	ttlOff = answer{http.StatusOK, `{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`}
	ttlOn  = answer{http.StatusOK, `{"TimeToLiveDescription":{"AttributeName":"ExpirationTime","TimeToLiveStatus":"ENABLED"}}`}
	absent = answer{http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"Requested resource not found: Table: solojob not found"}`}
)

const protected = `,"DeletionProtectionEnabled":true`

// denied is IAM's refusal of a call.
func denied(operation string) answer {
	return answer{http.StatusBadRequest, fmt.Sprintf(`{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"User: arn:aws:sts::123456789012:assumed-role/task/0123 is not authorized to perform: dynamodb:%s on resource: arn:aws:dynamodb:us-east-1:123456789012:table/solojob because no identity-based policy allows the dynamodb:%[1]s action"}`, operation)}
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	operation := r.Header.Get("X-Amz-Target")
	operation = operation[strings.LastIndexByte(operation, '.')+1:]
	if a, ok := s.answers[operation]; ok {
		a.send(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	reply, err := s.store.Call(operation, json.RawMessage(body))
	if err == nil {
		answer{http.StatusOK, string(reply)}.send(w)
		return
	}
	e := err.(*devstore.Error)
	refusal, _ := json.Marshal(map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + e.Type, "message": e.Message})
	answer{http.StatusBadRequest, string(refusal)}.send(w)
}

func (a answer) send(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(a.body))), 10))
	w.WriteHeader(a.status)
	io.WriteString(w, a.body)
}

// start serves a store with a table behind the answers; table "" makes none.
func start(t *testing.T, table string, answers map[string]answer) *service {
	t.Helper()
	store, err := devstore.Start(t.Context(), devstore.Options{Table: table})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	s := &service{answers: answers, store: store}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	endpoint(t, server.URL)
	return s
}

// endpoint makes the environment that of a task which finds DynamoDB at url.
func endpoint(t *testing.T, url string) {
	for name, value := range map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_ENDPOINT_URL_DYNAMODB": url, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_PROFILE": "",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "",
		"AWS_DEFAULT_REGION": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
	} {
		t.Setenv(name, value)
	}
}

func options() Options {
	return Options{
		Table: "solojob", Lease: "nightly", StopGrace: 25 * time.Second, Now: time.Now,
		Connect: func(ctx context.Context) (*dynamo.Client, error) { return dynamo.Connect(ctx) },
	}
}

// golden compares what a command wrote with what is in testdata.
func golden(t *testing.T, name string, out *bytes.Buffer, err error) {
	t.Helper()
	got := out.String()
	if err != nil {
		got += "error: " + err.Error() + "\n"
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Each finding of the doctor is one line that says what to do, and the end is
// an error if, and only if, something is wrong.
func TestDoctorFinds(t *testing.T) {
	good := described("pk", "sk", protected)
	for name, c := range map[string]struct {
		answers map[string]answer
		table   string
		change  func(*Options)
	}{
		"good table": {
			answers: map[string]answer{"DescribeTable": good, "DescribeTimeToLive": ttlOff}, table: "solojob",
		},
		"no table": {
			answers: map[string]answer{"DescribeTable": absent, "GetItem": absent},
		},
		"wrong key": {
			answers: map[string]answer{"DescribeTable": described("id", "range", protected), "DescribeTimeToLive": ttlOff}, table: "solojob",
		},
		"ttl on": {
			answers: map[string]answer{"DescribeTable": good, "DescribeTimeToLive": ttlOn}, table: "solojob",
		},
		"questions denied": { // as with the least policy, which is all that an agent needs
			answers: map[string]answer{"DescribeTable": denied("DescribeTable"), "DescribeTimeToLive": denied("DescribeTimeToLive")}, table: "solojob",
		},
		"everything denied": {
			answers: map[string]answer{
				"DescribeTable": denied("DescribeTable"), "DescribeTimeToLive": denied("DescribeTimeToLive"),
				"GetItem": denied("GetItem"), "UpdateItem": denied("UpdateItem"),
			},
		},
		"writes denied": {
			answers: map[string]answer{"DescribeTable": good, "DescribeTimeToLive": ttlOff, "UpdateItem": denied("UpdateItem")}, table: "solojob",
		},
		"unprotected": {
			answers: map[string]answer{"DescribeTable": described("pk", "sk", ""), "DescribeTimeToLive": ttlOff}, table: "solojob",
		},
		"replicas": {
			answers: map[string]answer{
				"DescribeTable":      described("pk", "sk", protected+`,"GlobalTableVersion":"2019.11.21","Replicas":[{"RegionName":"us-east-1","ReplicaStatus":"ACTIVE"},{"RegionName":"eu-west-1","ReplicaStatus":"ACTIVE"}]`),
				"DescribeTimeToLive": ttlOff,
			}, table: "solojob",
		},
		"consistent replicas": {
			answers: map[string]answer{
				"DescribeTable":      described("pk", "sk", protected+`,"MultiRegionConsistency":"STRONG","GlobalTableVersion":"2019.11.21","Replicas":[{"RegionName":"us-east-2"},{"RegionName":"us-west-2"}]`),
				"DescribeTimeToLive": ttlOff,
			}, table: "solojob",
		},
		"development store": {table: "solojob"},
		"no lease set": {
			answers: map[string]answer{"DescribeTable": good, "DescribeTimeToLive": ttlOff}, table: "solojob",
			change: func(o *Options) { o.Lease = "" },
		},
		"long stop grace": {
			answers: map[string]answer{"DescribeTable": good, "DescribeTimeToLive": ttlOff}, table: "solojob",
			change: func(o *Options) { o.StopGrace = time.Minute },
		},
		"fast clock": {
			answers: map[string]answer{"DescribeTable": good, "DescribeTimeToLive": ttlOff}, table: "solojob",
			change: func(o *Options) { o.Now = wrongBy(time.Hour) },
		},
		"slow clock": {
			answers: map[string]answer{"DescribeTable": good, "DescribeTimeToLive": ttlOff}, table: "solojob",
			change: func(o *Options) { o.Now = wrongBy(-time.Hour) },
		},
		"ECS without metadata": {
			answers: map[string]answer{"DescribeTable": good, "DescribeTimeToLive": ttlOff}, table: "solojob",
			change: func(o *Options) { o.Environ = []string{"AWS_EXECUTION_ENV=AWS_ECS_EC2"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, c.table, c.answers)
			o := options()
			if c.change != nil {
				c.change(&o)
			}
			var out bytes.Buffer
			err := Doctor(context.Background(), o, &out)
			text := out.String()
			text = anHour.ReplaceAllString(text, "1h")
			golden(t, "doctor "+name, bytes.NewBufferString(text), err)
			if (err != nil) != strings.Contains(text, string(wrong)) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// anHour is what a clock that is wrong by an hour is said to be wrong by, which
// depends on how long the request took.
var anHour = regexp.MustCompile(`\b(59m\d\ds|1h0m\d+s)`)

func wrongBy(d time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(d) } }

// In a task on ECS the doctor tells who it is there.
func TestDoctorTellsTheTask(t *testing.T) {
	for name, service := range map[string]string{"task of a service": "web", "standalone task": ""} {
		t.Run(name, func(t *testing.T) {
			start(t, "solojob", map[string]answer{"DescribeTable": described("pk", "sk", protected), "DescribeTimeToLive": ttlOff})
			task, err := ecstest.Start(ecstest.Options{Service: service})
			if err != nil {
				t.Fatal(err)
			}
			defer task.Close()
			o := options()
			o.Environ = task.Environ()
			var out bytes.Buffer
			err = Doctor(context.Background(), o, &out)
			golden(t, "doctor "+name, &out, err)
		})
	}
}

// Without region or credentials the doctor says what to set.
func TestDoctorSaysWhatIsNotConfigured(t *testing.T) {
	for name, unset := range map[string]string{"no region": "AWS_REGION", "no credentials": "AWS_ACCESS_KEY_ID"} {
		t.Run(name, func(t *testing.T) {
			endpoint(t, "http://127.0.0.1:1")
			t.Setenv(unset, "")
			var out bytes.Buffer
			err := Doctor(context.Background(), options(), &out)
			if err == nil || !strings.Contains(out.String(), string(wrong)) || !strings.Contains(out.String(), unset) {
				t.Errorf("the doctor says (%v):\n%s", err, out.String())
			}
		})
	}
}

// A task without a route to DynamoDB is told so, once, and in time.
func TestDoctorWithoutARouteSaysSo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // nobody listens there now
	endpoint(t, "http://"+listener.Addr().String())
	var out bytes.Buffer
	err = Doctor(context.Background(), options(), &out)
	golden(t, "doctor without a route", bytes.NewBufferString(strings.ReplaceAll(out.String(), listener.Addr().String(), "ADDRESS")), err)
}

// The doctor changes nothing: not even the row of the lease that it asks about.
func TestDoctorChangesNothing(t *testing.T) {
	s := start(t, "solojob", nil)
	before := everything(t, s)
	if err := Doctor(context.Background(), options(), io.Discard); err != nil {
		t.Fatal(err)
	}
	if after := everything(t, s); after != before {
		t.Errorf("before: %s\nafter: %s", before, after)
	}
}

func everything(t *testing.T, s *service) string {
	t.Helper()
	items, err := s.store.Call("Scan", map[string]any{"TableName": "solojob"})
	if err != nil {
		t.Fatal(err)
	}
	return string(items)
}

// Init makes the table, and a second Init finds it and changes nothing.
func TestInitMakesTheTableOnce(t *testing.T) {
	s := start(t, "", nil)
	var out bytes.Buffer
	err := Init(context.Background(), options(), &out)
	golden(t, "init new", &out, err)
	put := map[string]any{"TableName": "solojob", "Item": map[string]any{"pk": map[string]string{"S": "nightly"}, "sk": map[string]string{"S": "lease"}}}
	if _, err := s.store.Call("PutItem", put); err != nil {
		t.Fatal(err)
	}
	before := everything(t, s)
	out.Reset()
	err = Init(context.Background(), options(), &out)
	golden(t, "init again", &out, err)
	if after := everything(t, s); after != before {
		t.Errorf("before: %s\nafter: %s", before, after)
	}
}

// The table is made on demand, with deletion protection, and the keys pk and sk.
func TestInitAsksForTheRightTable(t *testing.T) {
	asked := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := absent
		switch {
		case strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".CreateTable"):
			body, _ := io.ReadAll(r.Body)
			asked <- body
			a = denied("CreateTable")
		}
		a.send(w)
	}))
	defer server.Close()
	endpoint(t, server.URL)
	err := Init(context.Background(), options(), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "dynamodb:CreateTable") {
		t.Errorf("the error is %v", err)
	}
	const want = `{"AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"},{"AttributeName":"sk","AttributeType":"S"}],"BillingMode":"PAY_PER_REQUEST","DeletionProtectionEnabled":true,"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"},{"AttributeName":"sk","KeyType":"RANGE"}],"TableName":"solojob"}`
	var request any
	if err := json.Unmarshal(<-asked, &request); err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(request); string(got) != want {
		t.Errorf("asked for  %s\nwant %s", got, want)
	}
}

// Init waits for a table that is being made, whoever makes it.
func TestInitWaitsForTheTable(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch operation := r.Header.Get("X-Amz-Target"); {
		case strings.HasSuffix(operation, ".DescribeTable"):
			a := described("pk", "sk", protected)
			switch asked++; asked {
			case 1, 2:
				a = absent
			case 3:
				a.body = strings.Replace(a.body, "ACTIVE", "CREATING", 1)
			}
			a.send(w)
		case strings.HasSuffix(operation, ".CreateTable"):
			answer{http.StatusOK, `{"TableDescription":{"TableName":"solojob","TableStatus":"CREATING"}}`}.send(w)
		default:
			ttlOff.send(w)
		}
	}))
	defer server.Close()
	endpoint(t, server.URL)
	var out bytes.Buffer
	if err := Init(context.Background(), options(), &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if asked < 4 {
		t.Errorf("it looked %d times", asked)
	}
}

// Init does not call a wrong table made: it says what is wrong.
func TestInitChecksTheTable(t *testing.T) {
	start(t, "", map[string]answer{"DescribeTable": described("id", "range", protected), "DescribeTimeToLive": ttlOn})
	var out bytes.Buffer
	err := Init(context.Background(), options(), &out)
	golden(t, "init wrong", &out, err)
	if err == nil {
		t.Error("nothing is wrong, says Init")
	}
}

// Ticks that are decided into the future would not run, and nobody would know why.
func TestDoctorFindsTicksAhead(t *testing.T) {
	for through, want := range map[string]string{
		time.Now().UTC().Add(24 * time.Hour).Format(time.RFC3339):  `WRONG  ticks .* decided already, 24h0m0s ahead of DynamoDB's clock: none runs before`,
		time.Now().UTC().Add(-24 * time.Hour).Format(time.RFC3339): `ok     ticks .* decided up to `,
		"tomorrow": `WRONG  ticks .* the row's through is "tomorrow"`,
	} {
		start(t, "solojob", map[string]answer{
			"DescribeTable": described("pk", "sk", protected), "DescribeTimeToLive": ttlOff,
			"GetItem": {http.StatusOK, `{"Item":{"pk":{"S":"nightly"},"sk":{"S":"lease"},"owner":{"S":""},"fence":{"N":"7"},"beat":{"S":"n-1"},"through":{"S":"` + through + `"}}}`},
		})
		var out bytes.Buffer
		_ = Doctor(context.Background(), options(), &out)
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("through %s:\n%s", through, &out)
		}
	}
}
