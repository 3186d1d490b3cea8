package ecs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

const (
	// detectTimeout bounds all of [Detect]: a task that starts must not wait
	// for what it can do without.
	detectTimeout = time.Second
	// askTimeout bounds one question, so that there is time for a second.
	askTimeout = detectTimeout / 2
)

// StatusStopped is the desired status of a task that is being stopped.
const StatusStopped = "STOPPED"

// Metadata is what ECS tells a container of its task. Each field may be empty:
// platforms and their versions differ in what they tell.
type Metadata struct {
	TaskID        string // the last part of the task's ARN
	TaskARN       string
	Region        string // from the ARN
	Cluster       string // its short name
	Service       string // empty for a task that no service started
	Family        string // of the task definition
	Revision      string // of the task definition
	LaunchType    string // FARGATE, EC2, EXTERNAL, …
	DesiredStatus string // RUNNING, STOPPED, …
}

// Detect asks for the metadata of the task in whose environment it is called.
// Outside ECS it returns nil, and no error, without asking. On ECS it takes a
// second at most, with a second try in it; what comes out of a failure is the
// error, and none of the metadata.
func Detect(ctx context.Context, environ []string) (*Metadata, error) {
	uri := lookup(environ, MetadataVariable)
	if uri == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, detectTimeout)
	defer cancel()
	client := newClient()
	task, err := askTwice(ctx, client, uri+"/task")
	if err == nil && task.TaskARN != "" {
		return task.metadata(), nil
	}
	// The container's own metadata names the task in its labels.
	container, err2 := ask(ctx, client, uri)
	if err2 != nil || container.labels().TaskARN == "" {
		if err == nil {
			err = errors.New("it names no task")
		}
		return nil, fmt.Errorf("the task metadata endpoint (%s) can't be read: %w", MetadataVariable, err)
	}
	return container.labels(), nil
}

// taskReply is the documented reply, of the task or of a container, as far as
// it matters here. Fields that the future brings are ignored.
type taskReply struct {
	Cluster       text
	ServiceName   text
	TaskARN       text
	Family        text
	Revision      text
	DesiredStatus text
	LaunchType    text

	Labels map[string]text // of a container
}

// text is a documented string that may come as a number, such as a revision,
// or as null.
type text string

// UnmarshalJSON accepts every JSON value. What is neither text nor a number
// counts as absent.
func (t *text) UnmarshalJSON(value []byte) error {
	var s string
	var n json.Number
	switch {
	case json.Unmarshal(value, &s) == nil:
		*t = text(s)
	case json.Unmarshal(value, &n) == nil:
		*t = text(n)
	}
	return nil
}

func askTwice(ctx context.Context, client *http.Client, url string) (*taskReply, error) {
	reply, err := ask(ctx, client, url)
	if err != nil {
		reply, err = ask(ctx, client, url)
	}
	return reply, err
}

func ask(ctx context.Context, client *http.Client, url string) (*taskReply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var reply taskReply
	status, err := call(ctx, client, http.MethodGet, url, nil, &reply)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("it answered with status %d", status)
	}
	return &reply, nil
}

func (r *taskReply) metadata() *Metadata {
	m := &Metadata{
		TaskARN: string(r.TaskARN), Cluster: lastPart(string(r.Cluster)), Service: string(r.ServiceName),
		Family: string(r.Family), Revision: string(r.Revision),
		LaunchType: string(r.LaunchType), DesiredStatus: string(r.DesiredStatus),
	}
	m.TaskID = lastPart(m.TaskARN)
	m.Region = regionOf(m.TaskARN)
	return m
}

// labels reads a container's metadata.
func (r *taskReply) labels() *Metadata {
	const prefix = "com.amazonaws.ecs."
	task := taskReply{
		Cluster:       r.Labels[prefix+"cluster"],
		TaskARN:       r.Labels[prefix+"task-arn"],
		Family:        r.Labels[prefix+"task-definition-family"],
		Revision:      r.Labels[prefix+"task-definition-version"],
		DesiredStatus: r.DesiredStatus,
	}
	m := task.metadata()
	return m
}

// lastPart is what follows the last slash: task ids of both ARN formats
// (with and without the cluster's name), and the name in a cluster's ARN.
func lastPart(arn string) string { return arn[strings.LastIndexByte(arn, '/')+1:] }

// regionName is what AWS calls regions, in every partition: anything else in
// the place of a region would become part of a host name.
var regionName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)

// regionOf is the region in an ARN (arn:partition:service:region:account:…).
func regionOf(arn string) string {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) < 6 || parts[0] != "arn" || !regionName.MatchString(parts[3]) {
		return ""
	}
	return parts[3]
}
