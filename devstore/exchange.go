package devstore

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"

	"solojob/boottime"
)

// Exchange is one request and its reply, as the store applied it.
type Exchange struct {
	At        boottime.Instant // when it had been applied
	Door      *Door            // through which it came; nil for Store.Call
	Operation string           // "UpdateItem", …
	Request   []byte           // JSON
	Status    int              // HTTP status of the reply
	Reply     []byte           // JSON
	Table     string           // the table that an UpdateItem or PutItem wrote to
	Row       Item             // the row as such a write left it; nil where none was applied
}

// Wire format of the service: JSON bodies, the operation in a header
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html).
const (
	contentType  = "application/x-amz-json-1.0"
	targetHeader = "X-Amz-Target"
	targetPrefix = "DynamoDB_20120810."
	// maxRequest is the largest request that the service accepts
	// (BatchWriteItem, 16 MB).
	maxRequest = 16 << 20
)

// operations are those that the engine knows; the rest it would answer with
// plain text, at which an SDK stumbles.
var operations = map[string]bool{
	"CreateTable": true, "UpdateTable": true, "DeleteTable": true, "DescribeTable": true,
	"PutItem": true, "GetItem": true, "UpdateItem": true, "DeleteItem": true, "Query": true, "Scan": true,
	"BatchWriteItem": true, "BatchGetItem": true, "TransactWriteItems": true, "TransactGetItems": true,
}

// ServeHTTP answers one request of the DynamoDB API.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return // the client has gone, or sends more than the service would take
	}
	reply := d.store.exchange(d, r.Method, strings.TrimPrefix(r.Header.Get(targetHeader), targetPrefix), body)
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(reply.body.Len()))
	h.Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(reply.body.Bytes())), 10))
	h.Set("X-Amzn-Requestid", rand.Text())
	w.WriteHeader(reply.status)
	w.Write(reply.body.Bytes()) // an error means that the client has gone
}

// exchange applies one request, alone, and shows it to the observer.
func (s *Store) exchange(d *Door, method, operation string, request []byte) *reply {
	s.apply.Lock()
	defer s.apply.Unlock()
	if d != nil && d.cut {
		return refusal(http.StatusServiceUnavailable, "ServiceUnavailable", "the network is cut") // its connection is dead: nobody will see this
	}
	answer := s.dispatch(method, operation, request)
	if s.observe != nil {
		x := Exchange{
			At: boottime.Now(), Door: d, Operation: operation,
			Request: request, Status: answer.status, Reply: answer.body.Bytes(),
		}
		x.Table, x.Row = s.written(x)
		s.observe(x)
	}
	return answer
}

// written reads back what a write to one row left, whatever the write asked to
// have returned.
func (s *Store) written(x Exchange) (table string, row Item) {
	if x.Operation != "UpdateItem" && x.Operation != "PutItem" {
		return "", nil
	}
	var in struct {
		TableName string
		Key, Item Item
	}
	if json.Unmarshal(x.Request, &in) != nil {
		return "", nil
	}
	key := in.Key
	if key == nil {
		key = Item{"pk": in.Item["pk"], "sk": in.Item["sk"]}
	}
	get, err := json.Marshal(map[string]any{"TableName": in.TableName, "Key": key})
	if err != nil || x.Status != http.StatusOK {
		return in.TableName, nil
	}
	var out struct{ Item Item }
	if json.Unmarshal(s.dispatch(http.MethodPost, "GetItem", get).body.Bytes(), &out) != nil {
		return in.TableName, nil
	}
	return in.TableName, out.Item
}

func (s *Store) dispatch(method, operation string, request []byte) (answer *reply) {
	switch {
	case method != http.MethodPost:
		return refusal(http.StatusMethodNotAllowed, "UnknownOperationException", "requests to this endpoint are POST")
	case !operations[operation]:
		return refusal(http.StatusBadRequest, "UnknownOperationException", fmt.Sprintf("this development store has no operation %q", operation))
	case !json.Valid(request):
		return refusal(http.StatusBadRequest, "SerializationException", "the request is not JSON")
	}
	defer func() {
		if bug := recover(); bug != nil {
			answer = refusal(http.StatusInternalServerError, "InternalServerError", fmt.Sprintf("the development store failed: %v", bug))
		}
	}()
	answer = newReply()
	s.engine.ServeHTTP(answer, &http.Request{
		Method: http.MethodPost,
		Header: http.Header{targetHeader: {targetPrefix + operation}},
		Body:   io.NopCloser(bytes.NewReader(request)),
	})
	if strings.HasSuffix(operation, "Table") {
		answer.sayActive()
	}
	return answer
}

// reply is an answer in the making, held back until it is complete.
type reply struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newReply() *reply { return &reply{header: http.Header{}, status: http.StatusOK} }

func (r *reply) Header() http.Header         { return r.header }
func (r *reply) WriteHeader(status int)      { r.status = status }
func (r *reply) Write(p []byte) (int, error) { return r.body.Write(p) }

// refusal is an error in the form in which the service sends them.
func refusal(status int, kind, message string) *reply {
	r := newReply()
	r.status = status
	json.NewEncoder(&r.body).Encode(map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + kind, "message": message})
	return r
}

// sayActive adds to a table's description the status that the engine leaves
// out, and for which `aws dynamodb wait` and the SDK's waiters would wait in vain.
func (r *reply) sayActive() {
	var described map[string]map[string]any
	if json.Unmarshal(r.body.Bytes(), &described) != nil {
		return // an error, or items: not a description
	}
	for _, field := range []string{"Table", "TableDescription"} {
		if table := described[field]; table["TableName"] != nil {
			table["TableStatus"] = "ACTIVE"
			r.body.Reset()
			json.NewEncoder(&r.body).Encode(described)
		}
	}
}
