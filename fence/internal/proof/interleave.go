package proof

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"solojob/fence"
)

// Interleavings is how many schedules a recipe must survive.
const Interleavings = 1000

// ErrCrashed is what a Recipe returns when before told it to go no further.
var ErrCrashed = errors.New("the writer has crashed")

// A Recipe is one way of writing a register in a store.
type Recipe interface {
	// Write makes one write with a fence. It calls before ahead of each request
	// that it sends to the store: there the schedule may let others run. When
	// before returns false the writer has crashed: Write sends nothing more,
	// drops its connection, and returns ErrCrashed. An error that matches
	// fence.ErrStale is a refusal; any other fails the test.
	Write(writer int, mine State, before func() bool) error

	// Read returns what the register holds.
	Read() (State, error)
}

// Violations runs a recipe, fresh for each seed, through [Interleavings] random
// schedules, and returns the histories that no fenced register could have shown,
// as text. A right recipe has none.
//
// In each schedule a writer with fence 1 and one with fence 2 make up to three
// writes each, one request at a time, in random order; a reader looks in between;
// and three times in four one of the writers crashes at a random point, its last
// request being lost, or applied at any later time. A writer with fence 3 then
// takes over from it. Writers don't heed refusals.
func Violations(t testing.TB, fresh func(seed uint64) Recipe) []string {
	t.Helper()
	var violations []string
	for seed := range uint64(Interleavings) {
		if violation := play(t, seed, fresh(seed)); violation != "" {
			violations = append(violations, violation)
		}
	}
	return violations
}

// FirstViolation is [Violations] for a recipe that is known to be wrong, in a slow
// store: it stops at the first one. It returns nothing if there is none.
func FirstViolation(t testing.TB, fresh func(seed uint64) Recipe) string {
	t.Helper()
	for seed := range uint64(Interleavings) {
		if violation := play(t, seed, fresh(seed)); violation != "" {
			return violation
		}
	}
	return ""
}

// play returns the history of a seed if it is one that no fenced register could
// have shown.
func play(t testing.TB, seed uint64, recipe Recipe) string {
	t.Helper()
	run := schedule{recipe: recipe, random: rand.New(rand.NewPCG(seed, 0))}
	if err := run.play(); err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, run.history())
	}
	if porcupine.CheckOperations(model(), run.operations) && run.endsWithHighestFence() {
		return ""
	}
	return fmt.Sprintf("seed %d\n%s", seed, run.history())
}

// schedule is one random interleaving. Its writers are coroutines, of which one at
// a time runs, so that a seed always gives the same history.
type schedule struct {
	recipe     Recipe
	random     *rand.Rand
	clock      int64 // counts events, so that no two have the same time
	operations []porcupine.Operation
}

// writer is one run of the job.
type writer struct {
	id     int
	fence  int64
	writes int // still to be begun

	current *write // nil between writes

	crashesAfter int // steps until the crash; negative if it never comes
	crashed      bool
	late         bool // its last request is still on the way
}

// write is one write under way.
type write struct {
	mine   State
	called int64
	resume func() (struct{}, bool)
	crash  func()
	err    error
}

func (s *schedule) play() error {
	writers := []*writer{s.newWriter(1, 1), s.newWriter(2, 2)}
	if victim := s.random.IntN(8); victim < 6 {
		writers[victim%2].crashesAfter = s.random.IntN(8)
	}
	for {
		able := slices.DeleteFunc(slices.Clone(writers), func(w *writer) bool { return w.finished() })
		if len(able) == 0 {
			break
		}
		if s.random.IntN(6) == 0 {
			if err := s.read(); err != nil {
				return err
			}
		}
		chosen := able[s.random.IntN(len(able))]
		wasAlive := !chosen.crashed
		if err := s.step(chosen); err != nil {
			return err
		}
		if wasAlive && chosen.crashed {
			writers = append(writers, s.newWriter(3, 3))
		}
	}
	return s.read()
}

func (s *schedule) newWriter(id int, fence int64) *writer {
	return &writer{id: id, fence: fence, writes: 1 + s.random.IntN(3), crashesAfter: -1}
}

func (w *writer) finished() bool {
	if w.crashed {
		return !w.late
	}
	return w.current == nil && w.writes == 0
}

// step lets one writer begin a write, or send its next request.
func (s *schedule) step(w *writer) error {
	if w.crashed {
		return s.deliverLate(w)
	}
	if w.crashesAfter == 0 {
		s.crash(w)
		return nil
	}
	w.crashesAfter--
	if w.current == nil {
		s.begin(w)
		return nil
	}
	if _, more := w.current.resume(); more {
		return nil
	}
	done := w.current
	w.current = nil
	if done.err != nil && !errors.Is(done.err, fence.ErrStale) {
		return fmt.Errorf("fence %d: %w", w.fence, done.err)
	}
	s.record(w.id, request{write: done.mine}, reply{refused: done.err != nil}, done.called, s.tick())
	return nil
}

// begin starts a write, up to just before its first request.
func (s *schedule) begin(w *writer) {
	w.writes--
	next := &write{mine: State{Fence: w.fence, Value: int(w.fence)*100 + w.writes}, called: s.tick()}
	next.resume, next.crash = iter.Pull(func(yield func(struct{}) bool) {
		next.err = s.recipe.Write(w.id, next.mine, func() bool { return yield(struct{}{}) })
	})
	next.resume()
	w.current = next
}

// crash ends a writer. If it was writing, its next request is lost, or is on its
// way still and arrives when the schedule lets it.
func (s *schedule) crash(w *writer) {
	w.crashed = true
	if w.current == nil {
		return
	}
	s.record(w.id, request{write: w.current.mine}, reply{unknown: true}, w.current.called, math.MaxInt64)
	if w.late = s.random.IntN(2) == 0; !w.late {
		w.current.crash()
	}
}

// deliverLate lets the last request of a crashed writer arrive.
func (s *schedule) deliverLate(w *writer) error {
	w.late = false
	_, more := w.current.resume()
	w.current.crash()
	if err := w.current.err; !more && err != nil && !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("fence %d, after its crash: %w", w.fence, err)
	}
	return nil
}

// readerID keeps the reads apart from the writers in a history.
const readerID = 9

func (s *schedule) read() error {
	called := s.tick()
	state, err := s.recipe.Read()
	if err != nil {
		return fmt.Errorf("read the register: %w", err)
	}
	s.record(readerID, request{read: true}, reply{read: state}, called, s.tick())
	return nil
}

func (s *schedule) tick() int64 {
	s.clock++
	return s.clock
}

func (s *schedule) record(client int, asked request, learnt reply, called, returned int64) {
	s.operations = append(s.operations, porcupine.Operation{
		ClientId: client, Input: asked, Output: learnt, Call: called, Return: returned,
	})
}

// endsWithHighestFence is the same judgement without a model: the register must
// end with the greatest fence of all accepted writes (or a greater one, whose
// writer crashed), and no two reads may see fences in falling order.
func (s *schedule) endsWithHighestFence() bool {
	var highest, seen int64
	for _, operation := range s.operations {
		asked, learnt := operation.Input.(request), operation.Output.(reply)
		switch {
		case asked.read && learnt.read.Fence < seen:
			return false
		case asked.read:
			seen = learnt.read.Fence
		case !learnt.refused && !learnt.unknown:
			highest = max(highest, asked.write.Fence)
		}
	}
	return seen >= highest // seen is by now what the last read saw
}

// history is the schedule as a person reads it, in the order of the calls.
func (s *schedule) history() string {
	sorted := slices.Clone(s.operations)
	slices.SortFunc(sorted, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var text strings.Builder
	for _, operation := range sorted {
		until := fmt.Sprint(operation.Return)
		if operation.Return == math.MaxInt64 {
			until = "?"
		}
		fmt.Fprintf(&text, "  %3d–%-3s %s\n", operation.Call, until, describe(operation.Input.(request), operation.Output.(reply)))
	}
	return text.String()
}
