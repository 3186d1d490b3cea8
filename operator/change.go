package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"solojob/leader"
)

// command is one that changes a lease.
type command struct {
	name string // as it is typed
	key  Key
	// plan is the write to be made given the row that was read, or why there is
	// nothing to do.
	plan func(seen *Lease) (c Change, why string)
	// done is the change in a few words, and then what follows from it.
	done string
	then func(after *Lease) string
	// request says that a holder has to read it; noWait, not to wait for that; and
	// unread, what becomes of it if this one does not.
	request bool
	noWait  bool
	unread  string
}

// result is what a command came to.
type result struct {
	before, after *Lease
	read          *bool // nil where nobody waited
	readAfter     time.Duration
}

// carryOut makes the one write of a command, and tells what was there before
// and after.
func (s *session) carryOut(ctx context.Context, c command) error {
	before, err := s.read(ctx, c.key)
	if err != nil {
		return err
	}
	if before == nil {
		return s.refuse(c, result{}, s.absent(ctx, c.key))
	}
	r, err := s.write(ctx, c, before)
	if err != nil {
		return s.refuse(c, r, err)
	}
	if c.request && !c.noWait && !r.after.unheld() {
		if err := s.awaitReading(ctx, c.key, &r); err != nil {
			return err
		}
	}
	return s.report(c, r)
}

// write writes what the plan says. A reply that was lost is made up for by
// reading what the row has become.
func (s *session) write(ctx context.Context, c command, before *Lease) (result, error) {
	r := result{before: before}
	switch {
	case before.Damage != "":
		return r, refused("%s: %s", c.key, before.Damage)
	case before.Beat == "":
		return r, refused("%s: the row has no beat, so it counts as absent: nothing can be asked of it before a task makes it anew", c.key)
	}
	change, why := c.plan(before)
	if why != "" {
		return r, refused("%s %s", c.key, why)
	}
	limited, cancel := context.WithTimeout(ctx, attemptLimit)
	after, failure := s.table.Write(limited, c.key, change)
	cancel()
	if failure == nil {
		r.after = after
		return r, nil
	}
	if errors.Is(failure, leader.ErrRefused) {
		return r, &Error{ExitUnavailable, failure}
	}
	now, err := s.read(ctx, c.key)
	var condition *leader.ConditionError
	switch {
	case err != nil || now == nil:
		return r, &Error{ExitUnavailable, fmt.Errorf("%s: it is not known whether the request was written (%w); to repeat the command is safe", c.key, failure)}
	case now.Damage == "" && change.applied(now):
		r.after = now
		return r, nil
	case !errors.As(failure, &condition):
		return r, &Error{ExitUnavailable, fmt.Errorf("%s: the request was not written (%w); to repeat the command is safe", c.key, failure)}
	}
	if _, why := c.plan(now); why != "" && now.Damage == "" {
		return r, refused("%s %s", c.key, why)
	}
	return r, refused("%s changed in this very moment, and nothing was done: it is %s. Repeat the command if that is still what you want", c.key, now.Describe())
}

// awaitReading waits until the holder has read a request. It does so with the
// reply to its next renewal, which changes the beat.
func (s *session) awaitReading(ctx context.Context, k Key, r *result) error {
	defer s.waiting("waiting for the holder to read it…")()
	w := newWatcher(s.Clock)
	w.see(r.after)
	begun := s.Clock.Now()
	last := *r.after
	if err := w.watch(ctx, s.table, []*Lease{&last}); err != nil {
		return err
	}
	read := last.Beat != r.after.Beat
	r.read, r.readAfter = &read, s.Clock.Now().Sub(begun)
	return nil
}

// report tells what was done.
func (s *session) report(c command, r result) error {
	before, after := s.view(r.before), s.view(r.after)
	if s.json {
		return writeJSON(s.out, changeJSON{
			Command: c.name, Lease: c.key.Name, Item: c.key.Item, Done: true,
			Before: before.json(), After: after.json(), Read: r.read, ReadMS: r.readAfter.Milliseconds(),
		}, false)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", clean(c.key.String()), s.Style.paint(strong, c.done))
	b.WriteString(s.Style.labelled("before", len("before"), "", r.before.Describe()))
	now := r.after.Describe()
	if r.after.ChangedBy != r.before.ChangedBy {
		now += ", " + r.after.ChangedBy
	}
	b.WriteString(s.Style.labelled("after", len("before"), "", now))
	text := c.then(r.after)
	switch {
	case !c.request:
	case r.after.Free():
		text = "Nobody holds the lease: it stands in the row for the next holder. " + text
	case r.read == nil:
		text = "The holder reads it with its next heartbeat. " + text
	case *r.read:
		text = fmt.Sprintf("The holder read it %s later. %s", span(r.readAfter), text)
	default:
		text = fmt.Sprintf("The holder did not beat in %s, so it has not read it (see `solojob status %s`). %s %s", span(r.readAfter), c.key.Name, cmp.Or(c.unread, "It stays in the row for the next one."), text)
	}
	b.WriteString(s.Style.indented(2, text))
	_, err := fmt.Fprint(s.out, b.String())
	return err
}

// refuse ends a command that did nothing.
func (s *session) refuse(c command, r result, why error) error {
	if !s.json {
		return why
	}
	document := changeJSON{Command: c.name, Lease: c.key.Name, Item: c.key.Item, Refused: why.Error()}
	if r.before != nil {
		before := s.view(r.before)
		document.Before = before.json()
	}
	if err := writeJSON(s.out, document, false); err != nil {
		return err
	}
	return why
}
