package recipes_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/jackc/pgx/v5"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"solojob/devstore"
	"solojob/fence"
	"solojob/fence/fences3"
	"solojob/fence/internal/proof"
)

// store is what a recipe writes to: how a process finds it, and what it holds,
// empty where nothing has been written.
type store interface {
	env() []string
	total(t *testing.T) string
}

// open makes a store of its own for a block.
func open(t *testing.T, b block, all []block) store {
	t.Helper()
	switch b.store {
	case "dynamodb":
		return openDynamoDB(t, b.mode != "setup")
	case "postgresql":
		return openPostgreSQL(t, all)
	case "s3":
		return openS3(t)
	default:
		return openHTTP(t)
	}
}

// awsEnv is what every AWS SDK reads.
func awsEnv(endpoint string) []string {
	return []string{endpoint, "AWS_REGION=eu-west-1", "AWS_DEFAULT_REGION=eu-west-1",
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true", "AWS_PAGER="}
}

type dynamoDB struct {
	url string
	db  *dynamodb.Client
}

func openDynamoDB(t *testing.T, withTable bool) dynamoDB {
	t.Helper()
	served, err := devstore.Start(t.Context(), devstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(served.Close)
	opened := dynamoDB{url: served.URL(), db: dynamoDBClient(served.URL())}
	if withTable {
		_, err := opened.db.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName:            aws.String("ledger"),
			BillingMode:          dynamodbtypes.BillingModePayPerRequest,
			AttributeDefinitions: []dynamodbtypes.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: dynamodbtypes.ScalarAttributeTypeS}},
			KeySchema:            []dynamodbtypes.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: dynamodbtypes.KeyTypeHash}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return opened
}

func dynamoDBClient(url string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(url), Region: "eu-west-1",
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

func (s dynamoDB) env() []string { return awsEnv("AWS_ENDPOINT_URL_DYNAMODB=" + s.url) }

func (s dynamoDB) total(t *testing.T) string {
	t.Helper()
	found, err := s.db.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: aws.String("ledger"), ConsistentRead: aws.Bool(true),
		Key: map[string]dynamodbtypes.AttributeValue{"pk": &dynamodbtypes.AttributeValueMemberS{Value: "balance"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if number, ok := found.Item["total"].(*dynamodbtypes.AttributeValueMemberN); ok {
		return number.Value
	}
	return ""
}

type postgreSQL struct {
	url string
	db  *pgx.Conn
}

// openPostgreSQL makes a database, and runs in it what the page says to run once.
func openPostgreSQL(t *testing.T, all []block) postgreSQL {
	t.Helper()
	opened := postgreSQL{url: proof.Database(t)}
	var err error
	if opened.db, err = pgx.Connect(t.Context(), opened.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.db.Close(context.Background()) })
	for _, b := range all {
		if b.mode == "setup" && b.language == "sql" {
			if _, err := opened.db.Exec(t.Context(), b.text); err != nil {
				t.Fatalf("%s:%d: %v", page, b.line, err)
			}
		}
	}
	return opened
}

func (s postgreSQL) env() []string { return []string{"DATABASE_URL=" + s.url} }

func (s postgreSQL) total(t *testing.T) string {
	t.Helper()
	var total int
	if err := s.db.QueryRow(t.Context(), "SELECT total FROM ledger WHERE name = 'balance'").Scan(&total); err != nil {
		t.Fatal(err)
	}
	if total == 0 {
		return ""
	}
	return strconv.Itoa(total)
}

type s3Store struct {
	url string
	db  *s3.Client
}

func openS3(t *testing.T) s3Store {
	t.Helper()
	served := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(served.Close)
	opened := s3Store{url: served.URL, db: s3.New(s3.Options{
		BaseEndpoint: aws.String(served.URL), Region: "eu-west-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})}
	if _, err := opened.db.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("bucket")}); err != nil {
		t.Fatal(err)
	}
	return opened
}

func (s s3Store) env() []string { return append(awsEnv("AWS_ENDPOINT_URL_S3="+s.url), "BUCKET=bucket") }

// total is what the object holds that the pointer names.
func (s s3Store) total(t *testing.T) string {
	t.Helper()
	pointer, err := fences3.Resolve(t.Context(), s.db, "bucket", "reports/today.json")
	if err != nil {
		t.Fatal(err)
	}
	if pointer == (fences3.Pointer{}) {
		return ""
	}
	object, err := s.db.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("bucket"), Key: aws.String(pointer.Key)})
	if err != nil {
		t.Fatal(err)
	}
	defer object.Body.Close()
	body, err := io.ReadAll(object.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// api is an HTTP API as the page describes them: /ledger compares and raises the
// fence in one step with the write, and /payouts pays once for each key.
type api struct {
	url string

	mu      sync.Mutex // guards what follows
	fence   int64
	ledger  string
	keys    map[string]bool
	payouts int
}

func openHTTP(t *testing.T) *api {
	t.Helper()
	opened := &api{keys: make(map[string]bool)}
	routes := http.NewServeMux()
	routes.HandleFunc("PUT /ledger", opened.putLedger)
	routes.HandleFunc("POST /payouts", opened.postPayout)
	served := httptest.NewServer(routes)
	t.Cleanup(served.Close)
	opened.url = served.URL
	return opened
}

func (a *api) env() []string { return []string{"API=" + a.url, "no_proxy=127.0.0.1"} }

func (a *api) total(*testing.T) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.payouts > 0 {
		return strconv.Itoa(a.payouts)
	}
	return a.ledger
}

func (a *api) putLedger(w http.ResponseWriter, r *http.Request) {
	total, err := io.ReadAll(r.Body)
	mine, parseErr := strconv.ParseInt(r.Header.Get("Fence"), 10, 64)
	if err = errors.Join(err, parseErr); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if refusal := fence.Judge(a.fence, mine, false); refusal != nil {
		http.Error(w, refusal.Error(), http.StatusPreconditionFailed)
		return
	}
	a.fence, a.ledger = mine, string(total)
}

// postPayout loses the reply to each payment that it has just made, so that only
// a client that tries again under the same key gets it right.
func (a *api) postPayout(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.keys[key] {
		a.keys[key] = true
		a.payouts++
		http.Error(w, "the reply is lost", http.StatusServiceUnavailable)
	}
}
