package demo

import (
	"slices"

	"solojob/boottime"
)

// history is a chronicle, told run by run.
type history struct {
	runs     []*run
	writes   []write
	early    []Entry // a lease given back while a process of the job lived
	from, to boottime.Instant
}

// run is one process of the job, from its first statement to its death.
type run struct {
	Entry                   // its launch
	before *run             // the run before it, of whichever task
	how    Kind             // why it could start: Released by before, or the last fault to its task; empty if nothing explains it
	since  boottime.Instant // when that fault was
	beside []*run           // those that existed when it started, and were not frozen
	ended  boottime.Instant // when it had done its last work; 0 if it never said so
	died   boottime.Instant // 0 if it never did
	fate   Entry            // what befell its task last
	frozen bool
	thawed boottime.Instant // when it alone was thawed
	scene  int              // in which that was
	freed  boottime.Instant // when its agent and supervisor were
}

// write is one that a run tried.
type write struct {
	Entry
	stale bool // another task had the lease
}

// recount puts the entries of a chronicle together.
func recount(entries []Entry) *history {
	h := &history{}
	if len(entries) > 0 {
		h.from, h.to = entries[0].At, entries[len(entries)-1].At
	}
	holder := ""
	for _, e := range entries {
		switch e.Kind {
		case Launched:
			h.launch(e)
		case Ended:
			h.of(e.Run).ended = e.At
		case Died:
			h.of(e.Run).died = e.At
		case Acquired:
			holder = e.Task
		case Released:
			holder = ""
			if len(e.Beside) > 0 {
				h.early = append(h.early, e)
			}
			h.last(e.Task).fate = e
		case Killed, Cut, Frozen:
			r := h.last(e.Task)
			r.fate, r.frozen = e, e.Kind == Frozen
		case JobThawn:
			r := h.last(e.Task)
			r.thawed, r.scene, r.frozen = e.At, e.Scene, false
		case Thawed:
			h.last(e.Task).freed = e.At
		case Accepted, Refused:
			h.writes = append(h.writes, write{e, holder != "" && holder != e.Task})
		}
	}
	return h
}

func (h *history) launch(e Entry) {
	r := &run{Entry: e}
	if n := len(h.runs); n > 0 && (h.runs[n-1].Scene == sceneControl) == (e.Scene == sceneControl) {
		r.before = h.runs[n-1]
		r.how, r.since = r.before.fate.Kind, r.before.fate.At
	}
	for _, id := range e.Beside {
		if other := h.of(id); !other.frozen {
			r.beside = append(r.beside, other)
		}
	}
	h.runs = append(h.runs, r)
}

// of is the run with a number; an empty one if there is none.
func (h *history) of(id int) *run {
	for _, r := range h.runs {
		if r.Run == id {
			return r
		}
	}
	return &run{}
}

// last is a task's latest run; an empty one if it never had any.
func (h *history) last(task string) *run {
	for _, r := range slices.Backward(h.runs) {
		if r.Task == task {
			return r
		}
	}
	return &run{}
}
