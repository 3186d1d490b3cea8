package fences3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"solojob/fence"
	"solojob/fence/fences3"
	"solojob/fence/internal/proof"
)

// endpointVariable tells a job in a process of its own where the store is.
const endpointVariable = "FENCE_TEST_ENDPOINT"

const bucket = "reports"

func TestMain(m *testing.M) {
	proof.Main(m, map[string]proof.Job{"fenced": fencedJob})
}

// fencedJob publishes a report of its own.
func fencedJob(f int64, at func(string)) error {
	ctx, db := context.Background(), client(os.Getenv(endpointVariable))
	stopped := stopping{Client: db, at: at}
	return fences3.Guard{Fence: f}.Publish(ctx, stopped, bucket, "today.json", fmt.Sprintf("today/%d.csv", f))
}

// stopping stops between the read of the pointer and its swap.
type stopping struct {
	*s3.Client
	at func(string)
}

func (s stopping) PutObject(ctx context.Context, in *s3.PutObjectInput, options ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	s.at("between read and write")
	return s.Client.PutObject(ctx, in, options...)
}

func client(endpoint string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "eu-west-1",
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		UsePathStyle: true,
	})
}

func fake(t *testing.T) (*s3.Client, string) {
	t.Helper()
	served := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(served.Close)
	db := client(served.URL)
	if _, err := db.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		t.Fatalf("create the bucket: %v", err)
	}
	return db, served.URL
}

func mustPoint(t *testing.T, db *s3.Client, want fences3.Pointer) {
	t.Helper()
	if got, err := fences3.Resolve(t.Context(), db, bucket, "today.json"); err != nil || got != want {
		t.Fatalf("the pointer is %+v (%v), want %+v", got, err, want)
	}
}

// A run that is stopped between reading the pointer and swapping it, while its
// successor publishes, is refused when it wakes, and learns why: where nothing was
// published before, and where something was.
func TestStoppedWriterIsRefused(t *testing.T) {
	for _, before := range []int64{0, 1} {
		t.Run(fmt.Sprintf("after fence %d", before), func(t *testing.T) {
			db, endpoint := fake(t)
			env := endpointVariable + "=" + endpoint
			if before > 0 {
				if earlier := proof.Run(t, "fenced", before, env); earlier.Status != 0 {
					t.Fatalf("the earlier run failed: %+v", earlier)
				}
			}
			outcome := proof.RunStopped(t, "fenced", 2, "between read and write", func() {
				if successor := proof.Run(t, "fenced", 3, env); successor.Status != 0 {
					t.Fatalf("the successor failed: %+v", successor)
				}
			}, env)
			if outcome.Status != fence.ExitStale {
				t.Fatalf("the stale run ended with %+v, want status %d", outcome, fence.ExitStale)
			}
			mustPoint(t, db, fences3.Pointer{Fence: 3, Key: "today/3.csv"})
		})
	}
}

// One run may publish many times, or with Once one time; an older one never again.
func TestPublish(t *testing.T) {
	db, _ := fake(t)
	mustPoint(t, db, fences3.Pointer{})
	want := fences3.Pointer{}
	for i, step := range []struct {
		fence int64
		once  bool
		want  error
	}{
		{5, false, nil}, {5, false, nil}, {4, false, fence.ErrStale}, {5, true, fence.ErrAlreadyWritten},
		{6, true, nil}, {6, true, fence.ErrAlreadyWritten}, {5, false, fence.ErrStale}, {6, false, nil},
	} {
		guard, key := fences3.Guard{Fence: step.fence, Once: step.once}, fmt.Sprintf("today/%d-%d.csv", step.fence, i)
		if err := guard.Publish(t.Context(), db, bucket, "today.json", key); !errors.Is(err, step.want) {
			t.Fatalf("step %d, %+v: %v, want %v", i, guard, err, step.want)
		}
		if step.want == nil {
			want = fences3.Pointer{Fence: step.fence, Key: key}
		}
		mustPoint(t, db, want)
	}
}

// An object that is no pointer is neither followed nor overwritten.
func TestForeignObjectIsLeftAlone(t *testing.T) {
	db, _ := fake(t)
	for _, body := range []string{"", "a,b\n1,2\n", `{"fence":0,"key":"x"}`, `{"fence":"7"}`} {
		_, err := db.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: aws.String(bucket), Key: aws.String("today.json"), Body: strings.NewReader(body),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := (fences3.Guard{Fence: 9}).Publish(t.Context(), db, bucket, "today.json", "new"); err == nil {
			t.Errorf("%q was overwritten", body)
		}
		if _, err := fences3.Resolve(t.Context(), db, bucket, "today.json"); err == nil {
			t.Errorf("%q was followed", body)
		}
	}
}

// register is a recipe in S3, one pointer per seed. The value is in the key that
// the pointer names.
type register struct {
	db   *s3.Client
	name string
}

func (r register) Read() (proof.State, error) {
	pointer, err := fences3.Resolve(context.Background(), r.db, bucket, r.name)
	if err != nil || pointer.Fence == 0 {
		return proof.State{}, err
	}
	value, err := strconv.Atoi(pointer.Key)
	return proof.State{Fence: pointer.Fence, Value: value}, err
}

func (r register) Write(_ int, mine proof.State, before func() bool) error {
	store := stepwise{Client: r.db, before: before}
	return fences3.Guard{Fence: mine.Fence}.Publish(context.Background(), store, bucket, r.name, strconv.Itoa(mine.Value))
}

// stepwise lets the schedule in ahead of each request.
type stepwise struct {
	*s3.Client
	before func() bool
}

func (s stepwise) GetObject(ctx context.Context, in *s3.GetObjectInput, options ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	if !s.before() {
		return nil, proof.ErrCrashed
	}
	return s.Client.GetObject(ctx, in, options...)
}

func (s stepwise) PutObject(ctx context.Context, in *s3.PutObjectInput, options ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	if !s.before() {
		return nil, proof.ErrCrashed
	}
	return s.Client.PutObject(ctx, in, options...)
}

// In a thousand random interleavings of writers and a crash, the pointer behaves
// as one register that only ever accepts the highest fence.
func TestPointerHoldsInEveryInterleaving(t *testing.T) {
	db, _ := fake(t)
	violations := proof.Violations(t, func(seed uint64) proof.Recipe {
		return register{db: db, name: strconv.FormatUint(seed, 10)}
	})
	if len(violations) > 0 {
		t.Fatalf("%d of %d interleavings are wrong; the first:\n%s", len(violations), proof.Interleavings, violations[0])
	}
}

// inMetadata is the recipe that looks right: If-Match, with the fence in the
// object's metadata. What is written is often what was there before, as in life.
type inMetadata struct {
	db   *s3.Client
	name string
}

func (r inMetadata) Read() (proof.State, error) {
	head, err := r.head()
	if err != nil || head == nil {
		return proof.State{}, err
	}
	fenced, err := strconv.ParseInt(head.Metadata["fence"], 10, 64)
	if err != nil {
		return proof.State{}, err
	}
	value, err := strconv.Atoi(head.Metadata["value"])
	return proof.State{Fence: fenced, Value: value}, err
}

func (r inMetadata) head() (*s3.HeadObjectOutput, error) {
	head, err := r.db.HeadObject(context.Background(), &s3.HeadObjectInput{Bucket: aws.String(bucket), Key: aws.String(r.name)})
	var missing interface{ ErrorCode() string }
	if errors.As(err, &missing) && missing.ErrorCode() == "NotFound" {
		return nil, nil
	}
	return head, err
}

func (r inMetadata) Write(_ int, mine proof.State, before func() bool) error {
	for {
		if !before() {
			return proof.ErrCrashed
		}
		head, err := r.head()
		if err != nil {
			return err
		}
		put := &s3.PutObjectInput{
			Bucket: aws.String(bucket), Key: aws.String(r.name),
			Body:     bytes.NewReader([]byte("nothing to report today\n")),
			Metadata: map[string]string{"fence": strconv.FormatInt(mine.Fence, 10), "value": strconv.Itoa(mine.Value)},
		}
		if head == nil {
			put.IfNoneMatch = aws.String("*")
		} else {
			stored, err := strconv.ParseInt(head.Metadata["fence"], 10, 64)
			if err != nil {
				return err
			}
			if refusal := fence.Judge(stored, mine.Fence, false); refusal != nil {
				return refusal
			}
			put.IfMatch = head.ETag
		}
		if !before() {
			return proof.ErrCrashed
		}
		_, err = r.db.PutObject(context.Background(), put)
		var failure interface{ ErrorCode() string }
		if errors.As(err, &failure) && failure.ErrorCode() == "PreconditionFailed" {
			continue
		}
		return err
	}
}

// A fence in the metadata fails the same test: an ETag is a hash of the contents,
// so it does not change when a newer run writes the same bytes.
func TestFenceInMetadataIsCaught(t *testing.T) {
	db, _ := fake(t)
	violation := proof.FirstViolation(t, func(seed uint64) proof.Recipe {
		return inMetadata{db: db, name: strconv.FormatUint(seed, 10)}
	})
	if violation == "" {
		t.Fatalf("no interleaving of %d shows what is wrong with a fence in the metadata", proof.Interleavings)
	}
	t.Logf("the first that is wrong:\n%s", violation)
}
