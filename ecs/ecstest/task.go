// Package ecstest is a stand-in for the endpoints that ECS gives a container:
// the task metadata (version 4) and scale-in protection, one of them for each
// task, on a loopback port. What it answers is the JSON of the documentation:
//
//   - https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-metadata-endpoint-v4-examples.html
//   - https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html
package ecstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options describe a task. The zero value is a task of the documentation.
type Options struct {
	ID       string // "158d1c8083dd49d6b527399fd6414f5c"
	Family   string // "curltest"
	Revision string // "26"
	Service  string // "" leaves the field out, as for a standalone task
}

// Task is one task's endpoints. Its methods may be called from any goroutine.
type Task struct {
	options  Options
	listener net.Listener
	server   *http.Server

	mu          sync.Mutex
	desired     string
	protection  string // the whole reply to an attempt to protect, "" for a grant
	status      int    // of that reply
	protected   bool
	requests    []Request
	asked       map[string]int
	silent      bool
	unavailable bool
	closing     chan struct{}
}

// Request is a call for protection, or for its end.
type Request struct {
	ProtectionEnabled bool
	ExpiresInMinutes  int // 0 where it was left out
}

// Documented replies to a call for protection, for [Task.Refuse]. In each, %s
// is the task's ARN.
const (
	NotValid = `{
    "failure":{
        "Arn":"%s",
        "Detail":null,
        "Reason":"TASK_NOT_VALID"
    }
}`
	DeploymentBlocked = `{
    "failure":{
        "Arn":"%s",
        "Detail":null,
        "Reason":"DEPLOYMENT_BLOCKED"
    }
}`
	AccessDenied = `{
    "requestID":"12345-abc-6789-0123-abc",
    "error":{
        "Arn":"%s",
        "Code":"AccessDeniedException",
        "Message":"User: arn:aws:sts::444455556666:assumed-role/my-ecs-task-role/1234567890abcdef0 is not authorized to perform: ecs:UpdateTaskProtection on resource: arn:aws:ecs:us-west-2:555555555555:task/test/1234567890abcdef0 because no identity-based policy allows the ecs:UpdateTaskProtection action"
    }
}`
	Throttled = `{
  "requestID": "12345-abc-6789-0123-abc",
  "error": {
    "Arn": "%s",
    "Code": "ThrottlingException",
    "Message": "Rate exceeded"
  }
}`
)

// Start serves one task's endpoints until Close.
func Start(o Options) (*Task, error) {
	if o.ID == "" {
		o.ID = "158d1c8083dd49d6b527399fd6414f5c"
	}
	if o.Family == "" {
		o.Family = "curltest"
	}
	if o.Revision == "" {
		o.Revision = "26"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the endpoints of a task can't be served: %w", err)
	}
	t := &Task{options: o, listener: listener, desired: "RUNNING", asked: map[string]int{}, closing: make(chan struct{})}
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: time.Minute}
	go t.server.Serve(listener) // until Close
	return t, nil
}

// Close stops serving.
func (t *Task) Close() {
	close(t.closing)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := t.server.Shutdown(ctx); err != nil {
		t.server.Close()
	}
}

const container = "0206b271-b33f-47ab-86c6-a0ba208a70a9"

// Environ is what ECS adds to the environment of the task's containers.
func (t *Task) Environ() []string {
	base := "http://" + t.listener.Addr().String()
	return []string{
		"ECS_CONTAINER_METADATA_URI_V4=" + base + "/v4/" + container,
		"ECS_AGENT_URI=" + base + "/api/" + container,
	}
}

// ARN is the task's name.
func (t *Task) ARN() string { return "arn:aws:ecs:us-west-2:111122223333:task/default/" + t.options.ID }

// Stop makes ECS want the task stopped.
func (t *Task) Stop() { t.set(func() { t.desired = "STOPPED" }) }

// Refuse makes every call that would protect the task answer with a status and
// one of the documented replies; Refuse(0, "") grants again.
func (t *Task) Refuse(status int, reply string) {
	t.set(func() { t.status, t.protection = status, reply })
}

// Silence makes the endpoints accept connections and answer nothing, until it
// is called with false.
func (t *Task) Silence(silent bool) { t.set(func() { t.silent = silent }) }

// Unavailable makes the task's metadata (but not the container's) answer with
// status 500.
func (t *Task) Unavailable(yes bool) { t.set(func() { t.unavailable = yes }) }

func (t *Task) set(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
}

// Protected reports whether the task is protected.
func (t *Task) Protected() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.protected
}

// Requests are the calls for protection so far.
func (t *Task) Requests() []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Request(nil), t.requests...)
}

// Asked is how often a path below the metadata's address was asked for: "" is
// the container's metadata, "/task" the task's.
func (t *Task) Asked(path string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asked[path]
}

// ServeHTTP answers as the endpoints do.
func (t *Task) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	t.mu.Lock()
	if rest, ok := strings.CutPrefix(path, "/v4/"+container); ok {
		t.asked[rest]++
	}
	silent := t.silent
	t.mu.Unlock()
	if silent {
		select {
		case <-r.Context().Done():
		case <-t.closing:
		}
		return
	}
	status, reply := http.StatusNotFound, "404 page not found"
	switch {
	case path == "/v4/"+container && r.Method == http.MethodGet:
		status, reply = http.StatusOK, t.containerReply()
	case path == "/v4/"+container+"/task" && r.Method == http.MethodGet:
		status, reply = t.taskReply()
	case path == "/api/"+container+"/task-protection/v1/state":
		status, reply = t.protectionReply(r)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, reply)
}

func (t *Task) protectionReply(r *http.Request) (int, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch r.Method {
	case http.MethodGet:
	case http.MethodPut:
		var asked struct {
			ProtectionEnabled *bool
			ExpiresInMinutes  *int
		}
		body := json.NewDecoder(r.Body)
		body.DisallowUnknownFields()
		err := body.Decode(&asked)
		if err == nil && asked.ProtectionEnabled == nil {
			err = errors.New("does not contain 'ProtectionEnabled' field")
		}
		if err == nil && asked.ExpiresInMinutes != nil && (*asked.ExpiresInMinutes < 1 || *asked.ExpiresInMinutes > 2880) {
			err = errors.New("expiresInMinutes must be between 1 and 2880")
		}
		if err != nil {
			return http.StatusBadRequest, fmt.Sprintf(`{"error":{"Arn":"%s","Code":"InvalidParameterException","Message":"Invalid request: %s"}}`, t.ARN(), err)
		}
		request := Request{ProtectionEnabled: *asked.ProtectionEnabled}
		if asked.ExpiresInMinutes != nil {
			request.ExpiresInMinutes = *asked.ExpiresInMinutes
		}
		t.requests = append(t.requests, request)
		if t.protection != "" {
			return t.status, fmt.Sprintf(t.protection, t.ARN())
		}
		t.protected = request.ProtectionEnabled
	default:
		return http.StatusMethodNotAllowed, ""
	}
	expires := `null`
	if t.protected {
		expires = `"2022-10-06T02:29:16Z"`
	}
	return http.StatusOK, fmt.Sprintf(`{
    "protection":{
        "ExpirationDate":%s,
        "ProtectionEnabled":%t,
        "TaskArn":"%s"
    }
}`, expires, t.protected, t.ARN())
}
