package demo

import (
	"cmp"
	"fmt"
	"time"

	"solojob/boottime"
)

// Verdict is what a chronicle proves.
type Verdict struct {
	Scenes map[int]*Scene
	First  int64 // FENCE of the first launch under solojob
	Last   int64 // and of the last
	Took   time.Duration
	Left   int      // processes that outlived their agents when the show was over
	Wrong  []string // promises broken, and scenes that did not show what they should
}

// Scene is the verdict on one scene.
type Scene struct {
	Runs     int // jobs launched
	Moves    []Move
	Overlaps []Overlap
	Thaws    []Thaw
	Writes   int // accepted by the register
	Stale    int // tried by a task while another had the lease
	Let      int // of these, accepted
}

// Move is the job's way from one task to another.
type Move struct {
	From, To string
	How      Kind          // Released: a handover. Killed, Frozen, Cut: a takeover. Else nothing explains it
	Gap      time.Duration // from the old job's last work, or from the fault, to the new job's first statement
	Dead     time.Duration // from the fault to the old job's death; 0 if it still existed
}

// Overlap is two jobs that were alive, and not frozen, at the same time.
type Overlap struct {
	First, Second string // tasks
	For           time.Duration
}

// Thaw is a job that was frozen while another took over.
type Thaw struct {
	Task  string
	Alone time.Duration // from its own thaw to that of its agent and supervisor: the director's doing
	Then  time.Duration // from there to its death
}

// judge reads a whole chronicle and what it should have shown. It knows nothing else.
func judge(entries []Entry) *Verdict {
	h := recount(entries)
	v := &Verdict{Scenes: map[int]*Scene{}, Took: h.to.Sub(h.from)}
	for n := range titles {
		v.Scenes[n] = &Scene{}
	}
	for _, r := range h.runs {
		if s := v.Scenes[r.Scene]; s != nil {
			s.count(r, h.to)
		}
		if t := v.Scenes[r.scene]; t != nil { // thawed in one
			t.Thaws = append(t.Thaws, Thaw{Task: r.Task, Alone: r.freed.Sub(r.thawed), Then: r.died.Sub(r.freed)})
		}
	}
	for _, w := range h.writes {
		if s := v.Scenes[w.Scene]; s != nil {
			s.weigh(w)
		}
	}
	v.checkFences(h)
	for _, e := range h.early {
		v.wrong("task %s gave the lease back while its job was alive", e.Task)
	}
	for n := sceneDeploy; n < sceneControl; n++ {
		v.checkPromises(n)
	}
	v.checkStory()
	return v
}

func (v *Verdict) wrong(format string, a ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, a...))
}

// problems are all the reasons why the demo must not end with success.
func (v *Verdict) problems() []string {
	if v.Left > 0 {
		return append(v.Wrong[:len(v.Wrong):len(v.Wrong)], fmt.Sprintf("processes that outlived their agents: %d", v.Left))
	}
	return v.Wrong
}

// count enters a run, the overlaps that began with it, and how it came there;
// last is when the chronicle ends.
func (s *Scene) count(r *run, last boottime.Instant) {
	s.Runs++
	for _, other := range r.beside {
		end := min(cmp.Or(other.died, last), cmp.Or(r.died, last))
		s.Overlaps = append(s.Overlaps, Overlap{First: other.Task, Second: r.Task, For: end.Sub(r.At)})
	}
	old := r.before
	if old == nil {
		return
	}
	m := Move{From: old.Task, To: r.Task, How: r.how, Gap: r.At.Sub(r.since)}
	if m.How == Released {
		m.Gap = r.At.Sub(cmp.Or(old.ended, old.died))
	} else if old.died != 0 && old.died < r.At {
		m.Dead = old.died.Sub(r.since)
	}
	s.Moves = append(s.Moves, m)
}

func (s *Scene) weigh(w write) {
	accepted := w.Kind == Accepted
	if accepted {
		s.Writes++
	}
	if w.stale {
		s.Stale++
		if accepted {
			s.Let++
		}
	}
}

// checkFences: every launch has a greater FENCE than all before, and the
// register never went back.
func (v *Verdict) checkFences(h *history) {
	for _, r := range h.runs {
		if r.Scene == sceneControl {
			continue
		}
		if r.Fence <= v.Last {
			v.wrong("FENCE did not grow: task %s launched its job with %d after %d", r.Task, r.Fence, v.Last)
		}
		v.First, v.Last = cmp.Or(v.First, r.Fence), max(v.Last, r.Fence)
	}
	var highest int64
	for _, w := range h.writes {
		if w.Kind == Accepted && w.Fence != 0 {
			if w.Fence < highest {
				v.wrong("the register took a write with FENCE %d after one with %d", w.Fence, highest)
			}
			highest = max(highest, w.Fence)
		}
	}
}

// checkPromises: what must never be seen in a scene under solojob.
func (v *Verdict) checkPromises(n int) {
	s := v.Scenes[n]
	for _, o := range s.Overlaps {
		v.wrong("scene %d: the jobs of tasks %s and %s were alive at once for %s", n, o.First, o.Second, short(o.For))
	}
	if s.Let > 0 {
		v.wrong("scene %d: the register took %d stale writes", n, s.Let)
	}
	for _, m := range s.Moves {
		if m.How == "" {
			v.wrong("scene %d: the job moved from task %s to task %s, and nothing explains it", n, m.From, m.To)
		}
	}
	for _, t := range s.Thaws {
		if t.Then <= 0 {
			v.wrong("scene %d: the thawed job of task %s outlived the thaw of its agent", n, t.Task)
		}
	}
}

// checkStory: what each scene is there to show.
func (v *Verdict) checkStory() {
	for _, s := range []struct {
		scene int
		cause Kind
		what  string
	}{
		{sceneDeploy, Released, "no lease was handed over"},
		{sceneCrash, Killed, "no task took over after the crash"},
		{scenePause, Frozen, "no task took over during the pause"},
		{sceneCut, Cut, "no task took over behind the cut"},
	} {
		if !v.Scenes[s.scene].moved(s.cause) {
			v.wrong("scene %d did not show what it should: %s", s.scene, s.what)
		}
	}
	for _, n := range []int{sceneCrash, sceneCut} {
		for _, m := range v.Scenes[n].Moves {
			if m.Dead == 0 {
				v.wrong("scene %d: the old job was not dead when the new one started", n)
			}
		}
	}
	if p := v.Scenes[scenePause]; len(p.Thaws) == 0 || p.Stale == 0 {
		v.wrong("scene %d did not show what it should: no stale write was tried", scenePause)
	}
	if c := v.Scenes[sceneControl]; len(c.Overlaps) == 0 || c.Let == 0 {
		v.wrong("scene %d did not show what it should: the TTL lock did not overlap", sceneControl)
	}
}

// moved says whether the job moved for the given reason.
func (s *Scene) moved(how Kind) bool {
	for _, m := range s.Moves {
		if m.How == how && m.From != m.To {
			return true
		}
	}
	return false
}
