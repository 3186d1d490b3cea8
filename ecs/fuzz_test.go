package ecs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// answer is a client whose every request gets one reply.
func answer(status int, body []byte) *http.Client {
	return &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))}, nil
	})}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// says reports whether a string stands somewhere in JSON as a value or a key.
func says(raw []byte, what string) bool {
	tokens := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := tokens.Token()
		if err != nil {
			return false
		}
		if token == what {
			return true
		}
	}
}

// Whatever the metadata endpoint answers is metadata or an error. A task is
// stopped only if the endpoint says STOPPED, and what becomes part of a host name
// is the name of a region.
func FuzzMetadata(f *testing.F) {
	f.Add(200, []byte(`{"Cluster":"default","TaskARN":"arn:aws:ecs:us-west-2:111122223333:task/default/158d1c8083dd49d6b527399fd6414f5c","Family":"curltest","Revision":"26","DesiredStatus":"RUNNING","LaunchType":"FARGATE"}`))
	f.Add(200, []byte(`{"DesiredStatus":"STOPPED","Labels":{"com.amazonaws.ecs.task-arn":"arn:aws:ecs:us-west-2:1:task/a/b","com.amazonaws.ecs.task-definition-version":7}}`))
	f.Add(200, []byte(`{"TaskARN":"arn:aws:ecs:evil.example/:1:task/x","Revision":26,"Labels":[1],"Cluster":{"a":null}}`))
	f.Add(500, []byte(`{"DesiredStatus":"STOPPED"}`))
	f.Add(200, []byte(`<html>`))
	f.Add(200, []byte(strings.Repeat("[", 50)))
	f.Fuzz(func(t *testing.T, status int, raw []byte) {
		reply, err := ask(t.Context(), answer(status, raw), "http://endpoint.example/task")
		if (err == nil) != (reply != nil) {
			t.Fatalf("%+v, %v", reply, err)
		}
		if err != nil {
			return
		}
		if status != http.StatusOK {
			t.Fatalf("status %d is taken for a reply: %+v", status, reply)
		}
		if reply.DesiredStatus == StatusStopped && !says(raw, StatusStopped) {
			t.Fatalf("the task counts as stopped by %q", raw)
		}
		for _, m := range []*Metadata{reply.metadata(), reply.labels()} {
			if m.Region != "" && !regionName.MatchString(m.Region) {
				t.Fatalf("the region is %q", m.Region)
			}
			if strings.Contains(m.TaskID, "/") || strings.Contains(m.Cluster, "/") {
				t.Fatalf("a part is no part: %+v", m)
			}
		}
	})
}

// Whatever the protection endpoint answers, a task counts as protected, or as
// free, only if the endpoint says so; and it is given up for good only for the one
// reason.
func FuzzProtectionReply(f *testing.F) {
	f.Add(200, []byte(`{"protection":{"ExpirationDate":"2026-01-02T03:04:05Z","ProtectionEnabled":true,"TaskArn":"arn"}}`), true)
	f.Add(200, []byte(`{"protection":{"ProtectionEnabled":false,"TaskArn":"arn"}}`), true)
	f.Add(200, []byte(`{"failure":{"Arn":"arn","Detail":null,"Reason":"TASK_NOT_VALID"}}`), true)
	f.Add(400, []byte(`{"error":{"Arn":"arn","Code":"AccessDeniedException","Message":"not authorized"}}`), false)
	f.Add(200, []byte(`{"protection":{"ProtectionEnabled":"true"},"failure":[],"error":3}`), true)
	f.Add(502, []byte(``), false)
	f.Fuzz(func(t *testing.T, status int, raw []byte, protect bool) {
		p := &Protection{url: "http://endpoint.example/state", client: answer(status, raw), log: slog.New(slog.DiscardHandler), granted: true}
		err := p.ask(t.Context(), protect, protectTimeout)
		switch {
		case err == nil && (status != http.StatusOK || p.granted != protect):
			t.Fatalf("status %d, %q: granted %v", status, raw, p.granted)
		case errors.Is(err, errNeverProtected) && !says(raw, "TASK_NOT_VALID"):
			t.Fatalf("%q ends protection for good", raw)
		case err != nil && !errors.Is(err, errNeverProtected) && !p.granted:
			t.Fatalf("after %v the task counts as free, which it may not be", err)
		case err != nil && err.Error() == "":
			t.Fatal("an error says nothing")
		}
	})
}
