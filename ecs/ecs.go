// Package ecs asks what ECS knows of the task that this process runs in, and
// tells ECS when the task should not be stopped.
//
// Three endpoints of the machine are used, each at an address that ECS puts
// into the environment of every container, and none of them elsewhere:
//
//   - the task metadata ([Detect], [Watcher]):
//     https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-metadata-endpoint-v4.html
//   - scale-in protection ([Protection]):
//     https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html
//   - the task role's credentials, which the AWS SDK fetches and
//     [KeepCredentials] makes outlive a fault of their endpoint.
//
// Nothing here decides whether a job runs. Outside ECS nothing is asked and
// nothing waits; on ECS every question has a time limit, and an endpoint that
// is down costs knowledge, never the lease.
package ecs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// Variables in which ECS tells a container where its endpoints are.
const (
	MetadataVariable = "ECS_CONTAINER_METADATA_URI_V4"
	AgentVariable    = "ECS_AGENT_URI"
)

const (
	// dialTimeout is generous for an address on the same machine.
	dialTimeout = 500 * time.Millisecond
	// maxReply bounds what is read of a reply. The metadata of a task with
	// twenty containers is some 40 KB.
	maxReply = 1 << 20
)

// On reports whether an environment is that of a container on ECS.
func On(environ []string) bool {
	return lookup(environ, MetadataVariable) != "" || strings.HasPrefix(lookup(environ, "AWS_EXECUTION_ENV"), "AWS_ECS")
}

// lookup returns a variable of an environment, "" where it is not set. As in
// getenv(3) the first of several counts.
func lookup(environ []string, name string) string {
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// newClient returns a client for endpoints on this machine. A proxy can't
// reach them, a redirect has no business there, and since minutes lie between
// two requests, no connection is kept.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       (&net.Dialer{Timeout: dialTimeout}).DialContext,
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// call sends one request and reads a JSON reply into answer, whatever the
// status, which is returned. The context bounds it.
func call(ctx context.Context, client *http.Client, method, url string, body io.Reader, answer any) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, fmt.Errorf("the address that ECS gave can't be used: %w", err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return response.StatusCode, fmt.Errorf("the reply ended early: %w", err)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		// A field whose type is not the documented one does not spoil the rest.
		var mistyped *json.UnmarshalTypeError
		if !errors.As(err, &mistyped) || mistyped.Field == "" {
			return response.StatusCode, fmt.Errorf("the reply (status %d) is not the JSON that is documented: %w", response.StatusCode, err)
		}
	}
	return response.StatusCode, nil
}
