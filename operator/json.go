package operator

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// The JSON forms. Names and meanings stay; fields may be added. Times are
// RFC 3339 in UTC, durations whole milliseconds.

type leaseJSON struct {
	Lease     string         `json:"lease"`
	Item      string         `json:"item"`
	State     State          `json:"state"`
	Damage    string         `json:"damage,omitempty"`
	Owner     string         `json:"owner"`
	Revision  string         `json:"revision,omitempty"`
	Announced string         `json:"announced,omitempty"`
	Fence     int64          `json:"fence"`
	Since     string         `json:"since,omitempty"`
	LeaseMS   int64          `json:"lease_ms"`
	Draining  bool           `json:"draining"`
	Heartbeat *heartbeatJSON `json:"heartbeat,omitempty"`
	Job       jobJSON        `json:"job"`
	LastRun   *runJSON       `json:"last_run,omitempty"`
	Schedule  string         `json:"schedule,omitempty"`
	Through   string         `json:"through,omitempty"`
	NextTick  string         `json:"next_tick,omitempty"`
	Paused    bool           `json:"paused"`
	PausedBy  string         `json:"paused_by,omitempty"`
	Handover  *requestJSON   `json:"handover,omitempty"`
	RunNow    *requestJSON   `json:"run_now,omitempty"`
	ChangedBy string         `json:"changed_by,omitempty"`
	Advice    []string       `json:"advice,omitempty"`
}

type heartbeatJSON struct {
	AgeMS int64 `json:"age_ms"`
	// Seen is false when the heartbeat was not seen to come: then it is at least
	// as old as age_ms.
	Seen       bool   `json:"seen"`
	Silent     bool   `json:"silent"`
	TakeoverMS *int64 `json:"takeover_in_ms,omitempty"` // when silent; negative: overdue
}

type jobJSON struct {
	State   string `json:"state"`
	Since   string `json:"since,omitempty"`
	Tick    string `json:"tick,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
}

type requestJSON struct {
	ID  string `json:"id,omitempty"`
	Now bool   `json:"now,omitempty"`
	By  string `json:"by,omitempty"`
}

type runJSON struct {
	Tick       string `json:"tick,omitempty"`
	Kind       string `json:"kind,omitempty"`
	State      string `json:"state"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	Attempt    int    `json:"attempt,omitempty"`
	Fence      int64  `json:"fence,omitempty"`
	Owner      string `json:"owner,omitempty"`
	Started    string `json:"started,omitempty"`
	Ended      string `json:"ended,omitempty"`
	DurationMS *int64 `json:"duration_ms,omitempty"`
	Why        string `json:"why,omitempty"`
	By         string `json:"by,omitempty"`
}

type changeJSON struct {
	Command string     `json:"command"`
	Lease   string     `json:"lease"`
	Item    string     `json:"item"`
	Done    bool       `json:"done"`
	Refused string     `json:"refused,omitempty"` // why nothing was done
	Before  *leaseJSON `json:"before,omitempty"`
	After   *leaseJSON `json:"after,omitempty"`
	// Read says whether the holder was seen to read the request, and how long
	// after it was written; it is left out where nobody waited for that.
	Read   *bool `json:"read_by_holder,omitempty"`
	ReadMS int64 `json:"read_after_ms,omitempty"`
}

func (v *View) json() *leaseJSON {
	j := &leaseJSON{
		Lease: v.Name, Item: v.Item, State: v.State(), Damage: v.Damage,
		Owner: v.Owner, Revision: v.Revision, Announced: v.Announced, Fence: v.Fence, Since: v.Since,
		LeaseMS: v.Row.Lease.Milliseconds(), Draining: v.Draining,
		Schedule: v.Record.Schedule, Through: v.Record.Through,
		Paused: v.Requests.Paused, PausedBy: v.Requests.PausedBy, ChangedBy: v.ChangedBy,
		Advice: v.advice(),
	}
	if v.Watched && !v.unheld() {
		h := v.Heartbeat
		j.Heartbeat = &heartbeatJSON{AgeMS: h.Age.Milliseconds(), Seen: h.Changed, Silent: h.Silent}
		if h.Silent {
			ms := h.Takeover.Milliseconds()
			j.Heartbeat.TakeoverMS = &ms
		}
	}
	job := v.Job()
	j.Job = jobJSON(job)
	if r := v.LastRun(); r != nil {
		run := r.json()
		j.LastRun = &run
	}
	if next := v.NextTick(); !next.IsZero() {
		j.NextTick = next.Format(time.RFC3339)
	}
	if r := v.Requests; r.Handover != "" && r.Handover == v.Owner {
		j.Handover = &requestJSON{Now: r.HandoverNow, By: r.HandoverBy}
	}
	if r := v.Requests; r.RunNow != "" {
		j.RunNow = &requestJSON{ID: r.RunNow, By: r.RunBy}
	}
	return j
}

func (r Run) json() runJSON {
	j := runJSON{
		Tick: r.Tick, Kind: r.Kind, State: r.State, Attempt: r.Attempt, Fence: r.Fence, Owner: r.Owner,
		Started: r.Started, Ended: r.Ended, Why: r.Why, By: r.By,
	}
	if !r.lost() {
		j.ExitCode = &r.ExitCode
	}
	if r.Ended != "" { // the row alone does not tell how long it took
		ms := r.Duration.Milliseconds()
		j.DurationMS = &ms
	}
	return j
}

// writeJSON writes a document; compact ones are a line each.
func writeJSON(w io.Writer, document any, compact bool) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if !compact {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(document); err != nil {
		return fmt.Errorf("the result can't be written: %w", err)
	}
	return nil
}
