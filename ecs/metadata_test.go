package ecs

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"solojob/ecs/ecstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what comes at once on an idle machine.
const patience = 30 * time.Second

func startTask(t *testing.T, o ecstest.Options) *ecstest.Task {
	t.Helper()
	task, err := ecstest.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(task.Close)
	return task
}

// until waits for something to become true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("it never came true that %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// The task's identity is read from the documented reply.
func TestDetectReadsTheDocumentedReply(t *testing.T) {
	task := startTask(t, ecstest.Options{Service: "web"})
	m, err := Detect(context.Background(), task.Environ())
	if err != nil {
		t.Fatal(err)
	}
	want := Metadata{
		TaskID: "158d1c8083dd49d6b527399fd6414f5c", TaskARN: task.ARN(), Region: "us-west-2",
		Cluster: "default", Service: "web", Family: "curltest", Revision: "26",
		LaunchType: "EC2", DesiredStatus: "RUNNING",
	}
	if *m != want {
		t.Errorf("got  %+v\nwant %+v", *m, want)
	}
}

// Outside ECS nothing is asked, and nothing waits.
func TestOutsideECSNothingIsAsked(t *testing.T) {
	environ := []string{"PATH=/bin", "HTTP_PROXY=http://127.0.0.1:1"}
	if m, err := Detect(context.Background(), environ); m != nil || err != nil {
		t.Errorf("Detect found %v, %v", m, err)
	}
	if On(environ) {
		t.Error("this is not ECS")
	}
	w := NewWatcher(environ)
	w.Begin()
	w.End()
	w.Close()
	if w != nil || w.Stopped() != nil {
		t.Error("a Watcher watches nothing")
	}
}

// A task whose own metadata fails is identified by its container's labels.
func TestDetectFallsBackOnTheContainersLabels(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	task.Unavailable(true)
	m, err := Detect(context.Background(), task.Environ())
	if err != nil {
		t.Fatal(err)
	}
	if m.TaskID != "158d1c8083dd49d6b527399fd6414f5c" || m.Revision != "26" || m.Family != "curltest" || m.Cluster != "default" || m.Region != "us-west-2" {
		t.Errorf("got %+v", *m)
	}
	if n := task.Asked("/task"); n != 2 {
		t.Errorf("the task's metadata was asked for %d times, want a second try and no third", n)
	}
}

// An endpoint that does not answer costs about a second, not the start.
func TestDetectGivesUpInTime(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	task.Silence(true)
	began := time.Now()
	m, err := Detect(context.Background(), task.Environ())
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if m != nil || err == nil || !strings.Contains(err.Error(), MetadataVariable) {
		t.Errorf("got %v, %v", m, err)
	}
}

// One lost reply does not cost the identity: there is a second try.
func TestDetectTriesTwice(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			panic(http.ErrAbortHandler) // closes the connection
		}
		task.ServeHTTP(w, r)
	}))
	defer server.Close()
	path := strings.SplitN(task.Environ()[0], "/v4/", 2)[1]
	m, err := Detect(context.Background(), []string{MetadataVariable + "=" + server.URL + "/v4/" + path})
	if err != nil || m.TaskID == "" {
		t.Errorf("got %v, %v", m, err)
	}
}

// A proxy in the environment is not asked for an address of this machine.
func TestNoProxyIsAsked(t *testing.T) {
	if newClient().Transport.(*http.Transport).Proxy != nil {
		t.Error("the client has a proxy")
	}
}

// What a later version of the endpoint adds or changes does not spoil the rest.
func TestMetadataIsParsedLeniently(t *testing.T) {
	const arn = "arn:aws-cn:ecs:cn-north-1:111122223333:task/0123"
	for name, c := range map[string]struct {
		reply string
		want  Metadata
	}{
		"unknown fields and values": {
			`{"TaskARN":"` + arn + `","DesiredStatus":"HIBERNATED","LaunchType":"MANAGED_INSTANCES","Moon":{"Phase":3},"Cluster":"arn:aws-cn:ecs:cn-north-1:111122223333:cluster/blue"}`,
			Metadata{TaskARN: arn, TaskID: "0123", Region: "cn-north-1", Cluster: "blue", DesiredStatus: "HIBERNATED", LaunchType: "MANAGED_INSTANCES"},
		},
		"a revision that is a number": {
			`{"TaskARN":"` + arn + `","Revision":26}`,
			Metadata{TaskARN: arn, TaskID: "0123", Region: "cn-north-1", Revision: "26"},
		},
		"null and another type": {
			`{"TaskARN":"` + arn + `","Family":null,"ServiceName":["a"],"Labels":["b"],"Revision":"7"}`,
			Metadata{TaskARN: arn, TaskID: "0123", Region: "cn-north-1", Revision: "7"},
		},
		"an ARN that is none": {
			`{"TaskARN":"task/77","Revision":"7"}`,
			Metadata{TaskARN: "task/77", TaskID: "77", Revision: "7"},
		},
		"a region that is none": {
			`{"TaskARN":"arn:aws:ecs:evil.example/:1:task/77"}`,
			Metadata{TaskARN: "arn:aws:ecs:evil.example/:1:task/77", TaskID: "77"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(c.reply)) }))
			defer server.Close()
			m, err := Detect(context.Background(), []string{MetadataVariable + "=" + server.URL})
			if err != nil {
				t.Fatal(err)
			}
			if *m != c.want {
				t.Errorf("got  %+v\nwant %+v", *m, c.want)
			}
		})
	}
}

// What is not the documented JSON is an error, not a guess.
func TestMetadataThatIsNoneIsAnError(t *testing.T) {
	for _, reply := range []string{"", "<html>", `[]`, `{}`, `{"TaskARN":`, `"x"`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(reply)) }))
		if m, err := Detect(context.Background(), []string{MetadataVariable + "=" + server.URL}); err == nil {
			t.Errorf("%q was read as %+v", reply, *m)
		}
		server.Close()
	}
}
