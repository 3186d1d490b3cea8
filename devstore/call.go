package devstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Item is a row in DynamoDB's JSON: {"fence": {"N": "7"}}.
type Item map[string]map[string]any

// Error is an answer by which the store refused a request.
type Error struct {
	Type    string // "ConditionalCheckFailedException", …
	Message string
	Item    Item // the row as it is, where the request asked for it
}

func (e *Error) Error() string { return e.Type + ": " + e.Message }

// Call applies one operation to the store from within the process; the request
// is anything that marshals to the operation's JSON. A refusal is an *Error.
func (s *Store) Call(operation string, request any) ([]byte, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("a request for %s can't be written as JSON: %w", operation, err)
	}
	answer := s.exchange(nil, http.MethodPost, operation, body)
	return verdict(answer.status, answer.body.Bytes())
}

// Call sends one operation to the endpoint at url, unsigned: only a store like
// this one accepts it. A refusal is an *Error; any other error means that the
// request may or may not have been applied.
func Call(ctx context.Context, client *http.Client, url, operation string, request any) ([]byte, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("a request for %s can't be written as JSON: %w", operation, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s can't be sent to %s: %w", operation, url, err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set(targetHeader, targetPrefix+operation)
	answer, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s got no answer: %w", operation, err)
	}
	defer answer.Body.Close()
	reply, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("%s got half an answer: %w", operation, err)
	}
	return verdict(answer.StatusCode, reply)
}

func verdict(status int, reply []byte) ([]byte, error) {
	if status == http.StatusOK {
		return reply, nil
	}
	var e struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
		Item    Item
	}
	if err := json.Unmarshal(reply, &e); err != nil {
		return nil, fmt.Errorf("the store answered with status %d and not in JSON: %w", status, err)
	}
	_, kind, found := strings.Cut(e.Type, "#")
	if !found {
		kind = e.Type
	}
	return nil, &Error{Type: kind, Message: e.Message, Item: e.Item}
}
