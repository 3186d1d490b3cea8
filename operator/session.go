package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"solojob/boottime"
	"solojob/leader"
)

// Exit statuses of the operator's commands, besides 0.
const (
	ExitRefused     = 1  // nothing was done, and why
	ExitUnavailable = 69 // the table can't be reached, or refuses us (EX_UNAVAILABLE)
	ExitUsage       = 78 // a wrong command line (EX_CONFIG)
)

// Error ends a command with a status of its own.
type Error struct {
	Status int
	Err    error // a sentence for the person who must act
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ExitStatus is what the program shall end with.
func (e *Error) ExitStatus() int { return e.Status }

func refused(format string, a ...any) *Error {
	return &Error{ExitRefused, fmt.Errorf(format, a...)}
}

// Deps are what the commands need of the outside.
type Deps struct {
	// Caller names who asks, as it stands in the row: the AWS identity; by default
	// [LocalCaller]. It is called for changes only.
	Caller func(context.Context) string
	// UntilStopped returns a context that ends when the program is told to stop; by
	// default nothing tells it to.
	UntilStopped func(context.Context) (context.Context, context.CancelFunc)

	Clock  leader.Clock     // by default [boottime.Clock]
	Wall   func() time.Time // where the store tells no time; by default [time.Now]
	Random io.Reader        // by default [rand.Reader]

	Style    Style
	Terminal bool // a person reads stdout as it is written
	Answers  bool // a person can answer on stdin
}

func (d Deps) withDefaults() Deps {
	if d.Caller == nil {
		d.Caller = LocalCaller
	}
	if d.UntilStopped == nil {
		d.UntilStopped = context.WithCancel
	}
	if d.Clock == nil {
		d.Clock = boottime.Clock{}
	}
	if d.Wall == nil {
		d.Wall = time.Now
	}
	if d.Random == nil {
		d.Random = rand.Reader
	}
	return d
}

// LocalCaller is the user and host that asks, for where no AWS identity is known.
func LocalCaller(context.Context) string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if name == "" {
		name = fmt.Sprintf("uid %d", os.Getuid())
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// longestCaller keeps who asked, three times over, from making a lease item of
// usual size larger than 1 KB. An ARN is told by its end.
const longestCaller = 96

// session is one command that is being carried out.
type session struct {
	Deps
	table Table
	out   io.Writer
	note  io.Writer // stderr, for what is said while it waits
	json  bool
}

// signature is who asks, and when, by the local clock: for people.
func (s *session) signature(ctx context.Context) string {
	name := strings.TrimSpace(clean(s.Caller(ctx)))
	for i := range name {
		if len(name)-i <= longestCaller {
			name = name[i:]
			break
		}
	}
	return name + " " + s.Wall().UTC().Format(time.RFC3339)
}

// unique returns a text of n random bytes that was never used before.
func (s *session) unique(n int) (string, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(s.Random, b); err != nil {
		return "", fmt.Errorf("no random numbers: %w", err)
	}
	return fmt.Sprintf("%x", b), nil
}

const (
	// attempts is how often a read is tried, and what a lost reply did is looked up.
	attempts = 3
	// attemptLimit bounds one attempt of a request, and listLimit a listing, which
	// takes a request for each megabyte of the table.
	attemptLimit = 5 * time.Second
	listLimit    = time.Minute
	// backoff is between two.
	backoff = 300 * time.Millisecond
)

// try makes one request until it is answered, a few times at most.
func try[T any](ctx context.Context, s *session, limit time.Duration, request func(context.Context) (T, error)) (T, error) {
	for n := 1; ; n++ {
		limited, cancel := context.WithTimeout(ctx, limit)
		result, err := request(limited)
		cancel()
		if err == nil || n == attempts || errors.Is(err, leader.ErrRefused) || ctx.Err() != nil {
			if err != nil {
				err = &Error{ExitUnavailable, err}
			}
			return result, err
		}
		if err := wait(ctx, s.Clock, backoff); err != nil {
			return result, err
		}
	}
}

func (s *session) read(ctx context.Context, k Key) (*Lease, error) {
	return try(ctx, s, attemptLimit, func(ctx context.Context) (*Lease, error) { return s.table.Lease(ctx, k) })
}

func (s *session) list(ctx context.Context) ([]*Lease, error) {
	found, err := try(ctx, s, listLimit, s.table.Leases)
	if err != nil {
		return nil, err
	}
	var all []*Lease
	for i := range found {
		all = append(all, &found[i])
	}
	sortKeys(all)
	return all, nil
}

func (s *session) runs(ctx context.Context, k Key) ([]Run, error) {
	runs, err := try(ctx, s, attemptLimit, func(ctx context.Context) ([]Run, error) { return s.table.Runs(ctx, k) })
	sortRuns(runs)
	return runs, err
}

// view is a lease as it was read, at the time of day that the store told.
func (s *session) view(l *Lease) View {
	now := l.Date
	if now.IsZero() {
		now = s.Wall()
	}
	return View{Lease: *l, Now: now.UTC()}
}

// absent says that there is no such lease, and which there are.
func (s *session) absent(ctx context.Context, k Key) error {
	sentence := fmt.Sprintf("there is no lease %q in the table: no task has ever competed for it", k.Name)
	if k.Item == OnceItem {
		sentence = fmt.Sprintf("there is no once item of the lease %q in the table: nothing has ever run once under it", k.Name)
	}
	limited, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	found, err := s.table.Leases(limited) // a kindness: without it the sentence is true as well
	if err == nil && len(found) > 0 {
		var names []string
		all := make([]*Lease, len(found))
		for i := range found {
			all[i] = &found[i]
		}
		sortKeys(all)
		for _, l := range all {
			if k.Item == ServiceItem && l.Key == (Key{k.Name, OnceItem}) {
				return refused("the lease %q is that of runs in once mode: say --once where the command has it", k.Name)
			}
			if len(names) == 0 || names[len(names)-1] != l.Name {
				names = append(names, l.Name)
			}
		}
		if more := len(names) - mostNames; more > 0 {
			names = append(names[:mostNames], fmt.Sprintf("and %d more", more))
		}
		sentence += "; there are: " + strings.Join(names, ", ")
	}
	return refused("%s", sentence)
}

// mostNames is how many leases are named instead of one that does not exist.
const mostNames = 8
