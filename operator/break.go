package operator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// breakOptions are what the user chose for a break.
type breakOptions struct {
	yes         bool // ask nothing
	evenIfAlive bool // do not watch first, and go on if the holder beats
}

// breakLease frees the row of a holder that is known to be dead. It is the
// operator's exception to the promise that two jobs never overlap, so the holder
// is watched first: one that beats is left alone. After the answer the write
// still demands the beat that was watched.
func (s *session) breakLease(ctx context.Context, k Key, o breakOptions, answers io.Reader) error {
	c := command{name: "break", key: k}
	seen, err := s.read(ctx, k)
	if err != nil {
		return err
	}
	if seen == nil {
		return s.refuse(c, result{}, s.absent(ctx, k))
	}
	id, err := s.unique(beatBytes)
	if err != nil {
		return err
	}
	by := "broken by " + s.signature(ctx)
	// The plan of the write: nobody else's lease, and unless the user wants it
	// all the same, no other beat than that which stood still.
	c.plan = func(now *Lease) (Change, string) {
		switch {
		case now.Free():
			return nil, "is free: there is nothing to break"
		case now.Owner != seen.Owner:
			return nil, fmt.Sprintf("is %s by now, and not by %s: nothing was done", now.Describe(), task(seen.Owner))
		case now.Beat != seen.Beat && !o.evenIfAlive:
			return nil, fmt.Sprintf("was not broken: its holder %s is alive, its heartbeat has just come. To have it end its run in order: solojob handover --now %s", task(seen.Owner), k.argument())
		}
		return Break{SeenBeat: now.Beat, SeenFence: now.Fence, Beat: fmt.Sprintf("op-%s-%016d", id, 1), By: by}, ""
	}
	c.done = "broken"
	c.then = func(*Lease) string {
		return "A task that stands by takes the lease with its next poll, and its job has a higher FENCE. A job of the old holder that is alive after all is killed at its next heartbeat, or when its lease runs out."
	}
	if seen.Damage == "" && seen.Beat != "" && !seen.Free() {
		watched, err := s.watchBeforeBreak(ctx, c, seen, o)
		if err != nil {
			return s.refuse(c, result{before: seen}, err)
		}
		if !o.yes {
			if err := s.confirm(ctx, k, seen, watched, answers); err != nil {
				return err
			}
		}
	}
	return s.carryOut(ctx, c)
}

// beatBytes are the random bytes in an operator's beat, as many as in a
// process's nonce.
const beatBytes = 8

// watchBeforeBreak says what watching the holder has shown. The error is that it
// is alive.
func (s *session) watchBeforeBreak(ctx context.Context, c command, seen *Lease, o breakOptions) (string, error) {
	if o.evenIfAlive {
		return "Its heartbeat was not watched: it may be alive.", nil
	}
	defer s.waiting("watching for a heartbeat…")()
	w := newWatcher(s.Clock)
	w.see(seen)
	last := *seen
	if err := w.watch(ctx, s.table, []*Lease{&last}); err != nil {
		return "", err
	}
	if last.Beat != seen.Beat {
		_, why := c.plan(&last)
		return "", refused("%s %s", c.key, why)
	}
	v := s.view(&last)
	v.Watched, v.Heartbeat = true, w.heartbeat(&last)
	return fmt.Sprintf("Heartbeat: %s.", v.heartbeatText()), nil
}

// confirm asks a person, who has to type the lease's name.
func (s *session) confirm(ctx context.Context, k Key, seen *Lease, watched string, answers io.Reader) error {
	var b strings.Builder
	b.WriteString(s.Style.indented(0, k.String()+": "+seen.Describe()))
	b.WriteString(s.Style.indented(0, watched))
	b.WriteString("\n" + s.Style.indented(0, fmt.Sprintf(
		"Breaking the lease frees it now, and a task that stands by starts the job at once. If %s is alive after all (frozen, or cut off from the table), two jobs run at the same time until it notices, which takes until its next heartbeat, or until its lease of %s has run out. What the old job writes meanwhile carries FENCE %d or less, and only what compares FENCE refuses it.",
		task(seen.Owner), setting(seen.Row.Lease), seen.Fence)))
	fmt.Fprintf(&b, "\nType the name of the lease to break it: ")
	if _, err := fmt.Fprint(s.note, b.String()); err != nil {
		return err
	}
	answered := make(chan string, 1)
	go func() { // a terminal can't be asked to stop reading: this ends with the program
		line, _ := bufio.NewReader(answers).ReadString('\n')
		answered <- strings.TrimSpace(line)
	}()
	select {
	case line := <-answered:
		if line == k.Name {
			return nil
		}
		return refused("%s: not confirmed, so nothing was done", k)
	case <-ctx.Done():
		return refused("%s: stopped, so nothing was done", k)
	}
}
