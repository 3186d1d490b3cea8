// Package fences3 fences what a job publishes to S3.
//
// S3 has one atomic comparison: a PUT with If-Match succeeds only if the object's
// ETag is still the one that was read. An ETag is a hash of an object's contents,
// not of its metadata:
//
//	https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html
//
// So a fence in the metadata is not enough. If a newer run happens to write the
// very bytes that are there already, the ETag stays what a stale run has read,
// and the stale run's If-Match passes. The fence must be part of the contents.
//
// Data that can't carry a number in it is therefore written to a key of its own
// for each run, say reports/today/42.csv for FENCE 42, which no other run
// touches; and what readers open first is a pointer, a small JSON object with the
// fence and that key, swapped by [Guard.Publish]:
//
//	{"fence":42,"key":"reports/today/42.csv"}
//
// A run that is stale has then wasted an upload, and nothing more.
package fences3

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"solojob/fence"
)

// maxAttempts bounds the swaps that one Publish tries. Each failed one means that
// somebody else has published in between, which a single newer run seldom does
// twice; so many mean that something else rewrites the pointer.
const maxAttempts = 10

// maxPointerBytes bounds what is read as a pointer: an S3 key has at most 1,024
// bytes, each at most 6 when escaped in JSON.
const maxPointerBytes = 8 << 10

// Store is what this package needs of an S3 client.
type Store interface {
	GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error)
	PutObject(context.Context, *s3.PutObjectInput, ...func(*s3.Options)) (*s3.PutObjectOutput, error)
}

// A Pointer says which object holds the current data, and which run wrote it.
type Pointer struct {
	Fence int64  `json:"fence"`
	Key   string `json:"key"`
}

// A Guard fences the swaps of a pointer with the fence of one run.
type Guard struct {
	// Fence is the fence of this run, from [fence.FromEnv].
	Fence int64

	// Once accepts one Publish per run (stored < Fence) instead of many
	// (stored <= Fence). See package fence for which is right.
	Once bool
}

// Publish makes the object pointer in bucket point at key, or refuses: with
// fence.ErrStale if a newer run has published, with fence.ErrAlreadyWritten if
// Once is set and this run has. The data at key must be complete by then, and key
// must be one that only this run writes. Publishing the same key twice is
// harmless, so the SDK's own retries may stay on.
func (g Guard) Publish(ctx context.Context, store Store, bucket, pointer, key string) error {
	body, err := json.Marshal(Pointer{Fence: g.Fence, Key: key})
	if err != nil {
		return fmt.Errorf("encode the pointer: %w", err)
	}
	for range maxAttempts {
		current, etag, err := read(ctx, store, bucket, pointer)
		if err != nil {
			return err
		}
		swap := &s3.PutObjectInput{
			Bucket:      aws.String(bucket),
			Key:         aws.String(pointer),
			Body:        bytes.NewReader(body),
			ContentType: aws.String("application/json"),
		}
		if etag == "" {
			swap.IfNoneMatch = aws.String("*")
		} else {
			if refusal := fence.Judge(current.Fence, g.Fence, g.Once); refusal != nil {
				return fmt.Errorf("s3://%s/%s: %w", bucket, pointer, refusal)
			}
			swap.IfMatch = aws.String(etag)
		}
		_, err = store.PutObject(ctx, swap)
		if err == nil {
			return nil
		}
		if !changedMeanwhile(err) {
			return fmt.Errorf("swap the pointer s3://%s/%s: %w", bucket, pointer, err)
		}
	}
	return fmt.Errorf("the pointer s3://%s/%s changed %d times while it was to be swapped: something other than this job writes it", bucket, pointer, maxAttempts)
}

// Resolve reads a pointer. Where nothing has been published yet, it returns the
// zero Pointer.
func Resolve(ctx context.Context, store Store, bucket, pointer string) (Pointer, error) {
	current, _, err := read(ctx, store, bucket, pointer)
	return current, err
}

// read returns the pointer and its ETag; the ETag is empty if there is no such
// object. S3's reads are strongly consistent.
func read(ctx context.Context, store Store, bucket, pointer string) (Pointer, string, error) {
	object, err := store.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(pointer)})
	if codeOf(err) == "NoSuchKey" {
		return Pointer{}, "", nil
	}
	if err != nil {
		return Pointer{}, "", fmt.Errorf("read the pointer s3://%s/%s: %w", bucket, pointer, err)
	}
	defer object.Body.Close()
	body, err := io.ReadAll(io.LimitReader(object.Body, maxPointerBytes))
	if err != nil {
		return Pointer{}, "", fmt.Errorf("read the pointer s3://%s/%s: %w", bucket, pointer, err)
	}
	var current Pointer
	if err := json.Unmarshal(body, &current); err != nil || current.Fence < 1 {
		return Pointer{}, "", fmt.Errorf("s3://%s/%s is no pointer: it must be JSON like {\"fence\":42,\"key\":\"…\"}", bucket, pointer)
	}
	return current, aws.ToString(object.ETag), nil
}

// changedMeanwhile reports whether a conditional PUT failed because of another
// write since our read. The codes are those of
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
func changedMeanwhile(err error) bool {
	switch codeOf(err) {
	case "PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey":
		return true
	}
	return false
}

func codeOf(err error) string {
	var failure smithy.APIError
	if errors.As(err, &failure) {
		return failure.ErrorCode()
	}
	return ""
}
