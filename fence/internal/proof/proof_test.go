package proof_test

import (
	"testing"

	"solojob/fence"
	"solojob/fence/internal/proof"
)

// memory is a register in a variable, written by a recipe under test.
type memory struct {
	register proof.State
	atomic   bool // compare and write in one step, as a fence must
}

func (m *memory) Read() (proof.State, error) { return m.register, nil }

func (m *memory) Write(_ int, mine proof.State, before func() bool) error {
	if !before() {
		return proof.ErrCrashed
	}
	if refusal := fence.Judge(m.register.Fence, mine.Fence, false); refusal != nil {
		return refusal
	}
	if !m.atomic && !before() {
		return proof.ErrCrashed
	}
	m.register = mine
	return nil
}

// A fence that is compared in the same step as the write survives every schedule.
func TestAtomicFenceHoldsInEveryInterleaving(t *testing.T) {
	violations := proof.Violations(t, func(uint64) proof.Recipe { return &memory{atomic: true} })
	if len(violations) > 0 {
		t.Fatalf("%d of %d interleavings are wrong; the first:\n%s", len(violations), proof.Interleavings, violations[0])
	}
}

// The wrong recipe (read, compare, write) is caught: this test proves the test.
func TestCheckThenWriteIsCaught(t *testing.T) {
	violations := proof.Violations(t, func(uint64) proof.Recipe { return &memory{} })
	if len(violations) == 0 {
		t.Fatalf("no interleaving of %d shows what is wrong with a check before a write", proof.Interleavings)
	}
	t.Logf("%d of %d interleavings are wrong; the first:\n%s", len(violations), proof.Interleavings, violations[0])
}

// The same seed gives the same history, so that a failure can be looked into.
func TestSeedsReplay(t *testing.T) {
	once := proof.Violations(t, func(uint64) proof.Recipe { return &memory{} })
	again := proof.Violations(t, func(uint64) proof.Recipe { return &memory{} })
	if len(once) != len(again) {
		t.Fatalf("%d violations, then %d", len(once), len(again))
	}
	for i := range once {
		if once[i] != again[i] {
			t.Fatalf("a seed gave two histories:\n%s\n%s", once[i], again[i])
		}
	}
}

// unfenced accepts every write.
type unfenced struct{ memory }

func (u *unfenced) Write(_ int, mine proof.State, before func() bool) error {
	if !before() {
		return proof.ErrCrashed
	}
	u.register = mine
	return nil
}

// A recipe that accepts every write is caught as well.
func TestUnfencedWriteIsCaught(t *testing.T) {
	if violations := proof.Violations(t, func(uint64) proof.Recipe { return &unfenced{} }); len(violations) == 0 {
		t.Fatal("a register that accepts every write passed")
	}
}
