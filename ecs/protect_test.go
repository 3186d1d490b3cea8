package ecs

import (
	"bytes"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"solojob/ecs/ecstest"
)

// journal is a log that a test reads.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(strings.Lines(j.text.String()))
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// brisk lets a test see in milliseconds what takes minutes.
var brisk = protectionPace{refresh: time.Hour, retry: time.Millisecond, rest: time.Millisecond}

// A run is protected from its begin to its end, by two calls.
func TestRunIsProtectedFromBeginToEnd(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	var log journal
	p := newProtection(task.Environ(), log.logger(), brisk)
	defer p.Close()
	p.Begin()
	until(t, "the task is protected", task.Protected)
	p.End()
	until(t, "the task is not protected any more", func() bool { return !task.Protected() })
	want := []ecstest.Request{{ProtectionEnabled: true, ExpiresInMinutes: 5}, {}}
	if got := task.Requests(); !slices.Equal(got, want) {
		t.Errorf("ECS was asked for %v, want %v", got, want)
	}
	if len(log.lines()) > 0 {
		t.Errorf("logged: %q", log.lines())
	}
}

// A protection is short, and renewed for as long as the run goes on.
func TestProtectionIsRenewed(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	p := newProtection(task.Environ(), new(journal).logger(), protectionPace{time.Millisecond, time.Millisecond, time.Millisecond})
	defer p.Close()
	p.Begin()
	until(t, "the protection has been renewed twice", func() bool { return len(task.Requests()) >= 3 })
	for _, r := range task.Requests() {
		if !r.ProtectionEnabled || r.ExpiresInMinutes != 5 {
			t.Errorf("ECS was asked for %+v", r)
		}
	}
}

// Runs that follow each other within seconds cost ECS one call, not hundreds:
// what counts is the latest wish.
func TestShortRunsShareACall(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	p := newProtection(task.Environ(), new(journal).logger(), protectionPace{time.Hour, time.Hour, time.Hour})
	defer p.Close()
	p.Begin()
	until(t, "the task is protected", task.Protected)
	for range 100 {
		p.End()
		p.Begin()
	}
	if n := len(task.Requests()); n != 1 {
		t.Errorf("ECS was called %d times", n)
	}
}

// The end of the process takes the protection back.
func TestCloseTakesTheProtectionBack(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	p := newProtection(task.Environ(), new(journal).logger(), brisk)
	p.Begin()
	until(t, "the task is protected", task.Protected)
	p.Close()
	if task.Protected() {
		t.Error("the task is still protected")
	}
}

// A standalone task can't be protected: one line in the log, and no more calls.
func TestTaskNotValidSwitchesProtectionOff(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	task.Refuse(http.StatusOK, ecstest.NotValid)
	var log journal
	p := newProtection(task.Environ(), log.logger(), brisk)
	p.Begin()
	until(t, "there is a line in the log", func() bool { return len(log.lines()) > 0 })
	for range 10 {
		p.End()
		p.Begin()
	}
	p.Close()
	if got := log.lines(); len(got) != 1 || !strings.Contains(got[0], "TASK_NOT_VALID") || !strings.Contains(got[0], "task protection is off") {
		t.Errorf("logged: %q", got)
	}
	if n := len(task.Requests()); n != 1 {
		t.Errorf("ECS was called %d times", n)
	}
}

// A reply of 200 with a failure in it is a failure; so are errors. Each is
// logged once, tried again, and its end is logged.
func TestFailedProtectionIsTriedAgainAndLoggedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		status       int
		reply, wants string
	}{
		"200 with a failure": {http.StatusOK, ecstest.DeploymentBlocked, "DEPLOYMENT_BLOCKED"},
		"access denied":      {http.StatusForbidden, ecstest.AccessDenied, "ecs:UpdateTaskProtection"},
		"throttled":          {http.StatusTooManyRequests, ecstest.Throttled, "ThrottlingException"},
		"not JSON":           {http.StatusBadGateway, "<html>%s</html>", "502"},
		"an empty object":    {http.StatusOK, `{"future":"%s"}`, "without a protection"},
	} {
		t.Run(name, func(t *testing.T) {
			task := startTask(t, ecstest.Options{})
			task.Refuse(c.status, c.reply)
			var log journal
			p := newProtection(task.Environ(), log.logger(), brisk)
			defer p.Close()
			p.Begin()
			until(t, "it was tried three times", func() bool { return len(task.Requests()) >= 3 })
			if got := log.lines(); len(got) != 1 || !strings.Contains(got[0], "task protection failed") || !strings.Contains(got[0], c.wants) {
				t.Errorf("logged: %q, want one line with %q", got, c.wants)
			}
			task.Refuse(0, "")
			until(t, "the task is protected", task.Protected)
			until(t, "there is a second line in the log", func() bool { return len(log.lines()) == 2 })
			if got := log.lines()[1]; !strings.Contains(got, "works again") {
				t.Errorf("logged: %q", got)
			}
		})
	}
}

// An endpoint that hangs delays no run: Begin and End return at once, and the
// end of the process waits for two seconds at most.
func TestHangingEndpointDelaysNothing(t *testing.T) {
	task := startTask(t, ecstest.Options{})
	task.Silence(true)
	p := newProtection(task.Environ(), new(journal).logger(), brisk)
	began := time.Now()
	for range 1000 {
		p.Begin()
		p.End()
	}
	p.Begin()
	if took := time.Since(began); took > protectTimeout/2 {
		t.Errorf("a thousand runs waited for %v", took)
	}
	p.Close()
	if took := time.Since(began); took > 2*protectTimeout {
		t.Errorf("the end waited for %v", took)
	}
}

// Without ECS, protection that was asked for is off with one line in the log.
func TestProtectionIsOffOutsideECS(t *testing.T) {
	var log journal
	p := NewProtection([]string{"PATH=/bin"}, log.logger())
	p.Begin()
	p.End()
	p.Close()
	if got := log.lines(); p != nil || len(got) != 1 || !strings.Contains(got[0], "task protection is off") {
		t.Errorf("logged: %q", got)
	}
}
