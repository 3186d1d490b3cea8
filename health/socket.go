package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"
)

const (
	// checkTimeout bounds a check. It is below the two seconds that are the least
	// a task definition can give a health check, so that the reason is heard.
	checkTimeout = 1500 * time.Millisecond
	// answerTimeout bounds what one client can hold up the next.
	answerTimeout = time.Second
	// retryAfter is how long a server waits before it tries for a name that is
	// taken again, or for the next client after a failure such as too many files.
	retryAfter = time.Second
	// maxAnswer is more than the longest sentence.
	maxAnswer = 4096
)

// healthy is the whole answer of a healthy agent. Everything else is a reason.
const healthy = "ok\n"

// ErrUnsupported says that the platform has no health checks: they are for
// containers, and need Linux.
var ErrUnsupported = errors.New("health checks are for containers: they need Linux")

// Serve answers the checks of one lease's agent, with what state says, until
// the context is done; it returns when nothing of it runs any more. While
// somebody else has the name, it says so once in the log, and tries on. It
// never writes a file, and log must not block.
func Serve(ctx context.Context, lease string, state func() error, log *slog.Logger) {
	said := false
	for ctx.Err() == nil {
		listener, err := listen(lease)
		if err == nil {
			serve(ctx, listener, state)
			return
		}
		if !said {
			said = true
			log.Warn("health checks can't be answered", "error", err.Error())
		}
		if errors.Is(err, ErrUnsupported) {
			return
		}
		sleep(ctx, retryAfter)
	}
}

func serve(ctx context.Context, listener net.Listener, state func() error) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(closed); listener.Close() })
	defer func() {
		if stop() {
			listener.Close()
			return
		}
		<-closed
	}()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			sleep(ctx, retryAfter)
			continue
		}
		answer := healthy
		if err := state(); err != nil {
			answer = err.Error() + "\n"
		}
		conn.SetDeadline(time.Now().Add(answerTimeout))
		io.WriteString(conn, answer) // who does not listen is not healthy to itself
		conn.Close()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Check asks the agent of a lease, in this container, for its health. The error
// says why it is not healthy, or that nobody answers. It takes 1.5 s at most.
func Check(ctx context.Context, lease string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	conn, err := dial(ctx, lease)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("the agent is stuck: it does not answer: %w", err)
	case len(answer) == 0:
		return errors.New("the agent ended while it was asked")
	case string(answer) != healthy:
		return errors.New(string(answer[:len(answer)-1]))
	}
	return nil
}
