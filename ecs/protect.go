package ecs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

const (
	// protectMinutes is how long a protection lasts that nobody renews: short,
	// so that a task that dies blocks no deploy, and a multiple of protectRefresh,
	// so that failed renewals don't matter at once.
	protectMinutes = 5
	protectRefresh = 2 * time.Minute
	// protectRetry is when a failed call is made again.
	protectRetry = 20 * time.Second
	// protectRest is the least time between two calls. Runs that follow each
	// other within it are one to ECS, whose API limits how often a task may ask.
	protectRest = 5 * time.Second
	// protectTimeout bounds a call. The agent behind the endpoint itself waits
	// four seconds for the ECS API.
	protectTimeout = 5 * time.Second
	// protectFarewell bounds the last call, which a stopping task waits for.
	protectFarewell = 2 * time.Second
)

// Protection keeps ECS from stopping the task, for scale-in or a deploy, while
// a run goes on. It is a wish: it may be granted late or never, and nothing
// waits for it. All methods may be called from any goroutine, never wait for
// the network (but [Protection.Close]), and do nothing on a nil Protection.
type Protection struct {
	url    string
	client *http.Client
	log    *slog.Logger
	pace   protectionPace
	wanted *switchboard
	ended  chan struct{}
	cancel context.CancelFunc

	// What follows belongs to the goroutine.
	granted bool   // as far as is known, the task is protected
	failing string // the reason that was last logged
}

type protectionPace struct{ refresh, retry, rest time.Duration }

// NewProtection returns a Protection that asks for nothing yet. Where there is
// no endpoint for it, it says so in the log and returns nil.
func NewProtection(environ []string, log *slog.Logger) *Protection {
	return newProtection(environ, log, protectionPace{protectRefresh, protectRetry, protectRest})
}

func newProtection(environ []string, log *slog.Logger, pace protectionPace) *Protection {
	agent := lookup(environ, AgentVariable)
	if agent == "" {
		log.Warn("task protection is off: only ECS has it, and "+AgentVariable+" is not set", "reason", "not on ECS")
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Protection{
		url: agent + "/task-protection/v1/state", client: newClient(), log: log, pace: pace,
		wanted: newSwitchboard(), ended: make(chan struct{}), cancel: cancel,
	}
	go p.follow(ctx)
	return p
}

// Begin asks for protection, and goes on renewing it until [Protection.End]: a
// run begins.
func (p *Protection) Begin() {
	if p != nil {
		p.wanted.set(true)
	}
}

// End takes the protection back: the run is over.
func (p *Protection) End() {
	if p != nil {
		p.wanted.set(false)
	}
}

// Close takes the protection back, if there is one, and returns when nothing
// of the Protection runs any more, after two seconds at most. It may be called
// once.
func (p *Protection) Close() {
	if p != nil {
		p.cancel()
		<-p.ended
	}
}

// follow does what is wished for, one call at a time.
func (p *Protection) follow(ctx context.Context) {
	defer close(p.ended)
	defer p.farewell()
	var again <-chan time.Time // when to renew, or to try once more
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wanted.changed:
		case <-again:
		}
		again = nil
		wish := p.wanted.on()
		if !wish && !p.granted {
			continue
		}
		err := p.ask(ctx, wish, protectTimeout)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errNeverProtected) {
			p.log.Warn("task protection is off: ECS has it for the tasks of a service alone", "reason", err.Error())
			return
		}
		p.note(err)
		switch {
		case err != nil:
			again = time.After(p.pace.retry)
		case wish:
			again = time.After(p.pace.refresh)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(p.pace.rest):
		}
	}
}

// farewell takes back what would otherwise expire by itself.
func (p *Protection) farewell() {
	if p.granted {
		p.note(p.ask(context.Background(), false, protectFarewell))
	}
}

// note logs a failure once, and its end.
func (p *Protection) note(err error) {
	switch {
	case err == nil && p.failing != "":
		p.failing = ""
		p.log.Info("task protection works again")
	case err != nil && p.failing != err.Error():
		p.failing = err.Error()
		p.log.Warn("task protection failed", "reason", p.failing)
	}
}

// errNeverProtected is ECS's word that this task can't be protected.
var errNeverProtected = errors.New("TASK_NOT_VALID")

// protectionReply is the documented reply: one of the three, with status 200
// for the first two.
type protectionReply struct {
	Protection *struct{ ProtectionEnabled bool }
	Failure    *struct{ Reason, Detail text }
	Error      *struct{ Code, Message text }
}

// ask makes one call and keeps what it came to in p.granted: true already when
// the call is sent, since a lost reply does not undo a grant.
func (p *Protection) ask(ctx context.Context, protect bool, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request := `{"ProtectionEnabled":false}`
	if protect {
		request = fmt.Sprintf(`{"ProtectionEnabled":true,"ExpiresInMinutes":%d}`, protectMinutes)
		p.granted = true
	}
	var reply protectionReply
	status, err := call(ctx, p.client, http.MethodPut, p.url, strings.NewReader(request), &reply)
	switch {
	case err != nil:
		return fmt.Errorf("the endpoint (%s) did not answer: %w", AgentVariable, err)
	case reply.Failure != nil && reply.Failure.Reason == text(errNeverProtected.Error()):
		p.granted = false
		return errNeverProtected
	case reply.Failure != nil:
		return fmt.Errorf("ECS refused it: %s", sentence(reply.Failure.Reason, reply.Failure.Detail))
	case reply.Error != nil:
		return fmt.Errorf("ECS answered %s (the task role needs ecs:UpdateTaskProtection)", sentence(reply.Error.Code, reply.Error.Message))
	case status != http.StatusOK || reply.Protection == nil:
		return fmt.Errorf("the endpoint (%s) answered with status %d and without a protection", AgentVariable, status)
	case reply.Protection.ProtectionEnabled != protect:
		return fmt.Errorf("ECS answered that the protection is %t, and it should be %t", reply.Protection.ProtectionEnabled, protect)
	}
	p.granted = protect
	return nil
}

func sentence(code, detail text) string {
	if detail == "" {
		return string(code)
	}
	return fmt.Sprintf("%s: %s", code, detail)
}
