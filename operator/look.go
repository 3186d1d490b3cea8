package operator

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// rediscover is how often a status that refreshes itself looks for leases that
// are new: the listing reads the whole table.
const rediscover = 30 * time.Second

// lookOptions are what the user chose for a status.
type lookOptions struct {
	quick bool // do not watch for heartbeats
	watch bool // go on until told to stop
	every time.Duration
}

// look is a status under way: the leases that it shows, and what was seen of them.
type look struct {
	*session
	name    string // of the one lease, "" for all
	watcher *watcher
	leases  []*Lease
	history map[Key]seenRuns
}

// seenRuns is the history of a lease as of a fence and a state of the job.
type seenRuns struct {
	as   string
	runs []Run
}

func (s *session) status(ctx context.Context, name string, o lookOptions) error {
	l := &look{session: s, name: name, watcher: newWatcher(s.Clock), history: map[Key]seenRuns{}}
	if err := l.discover(ctx); err != nil {
		return err
	}
	if len(l.leases) == 0 {
		if s.json {
			if err := l.show(nil, "", o.watch); err != nil {
				return err
			}
		}
		if name != "" {
			return s.absent(ctx, Key{name, ServiceItem})
		}
		return refused("there is no lease in the table: no task has ever competed for one")
	}
	if o.watch {
		return l.follow(ctx, o.every)
	}
	if !o.quick {
		if err := l.watch(ctx); err != nil {
			return err
		}
	}
	views, err := l.views(ctx, !o.quick)
	if err != nil {
		return err
	}
	return l.show(views, "", false)
}

// discover finds the leases to show.
func (l *look) discover(ctx context.Context) error {
	if l.name == "" {
		all, err := l.list(ctx)
		if err == nil {
			l.take(all)
		}
		return err
	}
	var found []*Lease
	for _, item := range []string{ServiceItem, OnceItem} {
		lease, err := l.read(ctx, Key{l.name, item})
		if err != nil {
			return err
		}
		if lease != nil {
			found = append(found, lease)
		}
	}
	l.take(found)
	return nil
}

func (l *look) take(leases []*Lease) {
	l.leases = leases
	for _, lease := range leases {
		l.watcher.see(lease)
	}
}

// watch watches for the heartbeats, and says so to a person who waits.
func (l *look) watch(ctx context.Context) error {
	defer l.waiting("watching for heartbeats…")()
	return l.watcher.watch(ctx, l.table, l.leases)
}

// waiting tells a person what is being waited for, until the function that it
// returns is called.
func (s *session) waiting(what string) (over func()) {
	if !s.Terminal {
		return func() {}
	}
	fmt.Fprint(s.note, what)
	return func() { fmt.Fprint(s.note, "\r\x1b[K") }
}

func (l *look) views(ctx context.Context, watched bool) ([]View, error) {
	var views []View
	for _, lease := range l.leases {
		v := l.view(lease)
		v.Watched, v.Heartbeat = watched, l.watcher.heartbeat(lease)
		// In an overview the row says how the last tick went; of a service only the
		// history knows.
		if l.name != "" || lease.Record.Tick == "" && lease.Damage == "" {
			as := fmt.Sprint(lease.Fence, lease.Record.TickState, lease.RunSince, lease.Owner)
			if l.history[lease.Key].as != as {
				runs, err := l.runs(ctx, lease.Key)
				if err != nil {
					return nil, err
				}
				l.history[lease.Key] = seenRuns{as, runs}
			}
			v.Runs = l.history[lease.Key].runs
		}
		views = append(views, v)
	}
	return views, nil
}

// follow shows the leases anew again and again, until the context ends. A table
// that can't be read meanwhile is said, and waited for.
func (l *look) follow(ctx context.Context, every time.Duration) error {
	var views []View
	listed := l.Clock.Now()
	for {
		now, err := l.views(ctx, true)
		if err == nil {
			views = now
			err = l.show(views, "", true)
		} else {
			err = l.show(views, unreadable(err), true)
		}
		for err == nil {
			if wait(ctx, l.Clock, every) != nil {
				return nil
			}
			find := l.Clock.Now() >= listed.Add(rediscover)
			failure := l.refresh(ctx, find)
			if failure == nil {
				if find {
					listed = l.Clock.Now()
				}
				break
			}
			if ctx.Err() != nil {
				return nil
			}
			err = l.show(views, unreadable(failure), true)
		}
		if err != nil {
			return err
		}
	}
}

func unreadable(err error) string { return "The table can't be read: " + err.Error() + "." }

// refresh reads the leases again, and finds new ones if it is time to.
func (l *look) refresh(ctx context.Context, find bool) error {
	if find || l.name != "" {
		return l.discover(ctx)
	}
	for _, lease := range l.leases {
		now, err := l.read(ctx, lease.Key)
		if err != nil {
			return err
		}
		if now != nil {
			*lease = *now
			l.watcher.see(lease)
		}
	}
	return nil
}

// show prints the leases: one in detail, several as a table.
func (l *look) show(views []View, trouble string, again bool) error {
	if l.json {
		document := struct {
			Leases []*leaseJSON `json:"leases"`
			Error  string       `json:"error,omitempty"`
		}{Leases: []*leaseJSON{}, Error: trouble}
		for i := range views {
			document.Leases = append(document.Leases, views[i].json())
		}
		return writeJSON(l.out, document, again)
	}
	var page string
	if l.name == "" {
		page = RenderOverview(views, l.Style)
	} else {
		var parts []string
		for _, v := range views {
			parts = append(parts, RenderDetails(v, l.Style))
		}
		page = strings.Join(parts, "\n")
	}
	if trouble != "" {
		page += "\n" + l.Style.paint(bad, l.Style.indented(0, trouble))
	}
	switch {
	case again && l.Terminal: // over the last page, without a flicker
		page = "\x1b[H" + strings.ReplaceAll(page, "\n", "\x1b[K\n") + "\x1b[J"
	case again:
		page += "\n"
	}
	_, err := fmt.Fprint(l.out, page)
	return err
}

// showHistory prints the last n runs of a lease.
func (s *session) showHistory(ctx context.Context, k Key, n int) error {
	lease, err := s.read(ctx, k)
	if err != nil {
		return err
	}
	runs, err := s.runs(ctx, k)
	if err != nil {
		return err
	}
	var unknown error
	if lease == nil && len(runs) == 0 {
		unknown = s.absent(ctx, k)
	}
	if lease == nil { // the row was deleted, its runs were not
		lease = &Lease{Key: k}
	}
	v := s.view(lease)
	v.Runs = runs
	if s.json {
		document := struct {
			Lease string    `json:"lease"`
			Runs  []runJSON `json:"runs"`
		}{k.Name, []runJSON{}}
		for _, r := range runs[max(0, len(runs)-n):] {
			document.Runs = append(document.Runs, r.json())
		}
		return cmp.Or(writeJSON(s.out, document, false), unknown)
	}
	if unknown != nil {
		return unknown
	}
	_, err = fmt.Fprint(s.out, RenderHistory(v, n, s.Style))
	return err
}
