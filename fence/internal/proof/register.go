// Package proof holds the two experiments that every way of fencing must
// survive, whatever the store: a thousand random interleavings of writers, checked
// against a model of a fenced register (interleave.go), and a real process that is
// stopped between its read and its write (stopped.go). It is for tests.
package proof

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// State is what a fenced register holds: a value, and the fence of the run that
// wrote it. The zero State is a register that nobody has written.
type State struct {
	Fence int64
	Value int
}

// request is what a client asked of the register.
type request struct {
	read  bool
	write State
}

// reply is what the client learnt of it.
type reply struct {
	read    State // of a read
	refused bool  // of a write
	unknown bool  // of a write whose writer crashed before it knew
}

// model is the register as it should be. A write is applied if no greater fence
// has written, and refused only if one has. A write whose writer crashed may
// happen at any later time, or never: its return lies at the end of time, so the
// checker may put it after everything else, where it makes no difference.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return State{} },
		Step: func(state, input, output any) (bool, any) {
			register, asked, learnt := state.(State), input.(request), output.(reply)
			if asked.read {
				return learnt.read == register, register
			}
			accepted := register.Fence <= asked.write.Fence
			after := register
			if accepted {
				after = asked.write
			}
			return learnt.unknown || learnt.refused != accepted, after
		},
		DescribeOperation: func(input, output any) string { return describe(input.(request), output.(reply)) },
	}
}

func describe(asked request, learnt reply) string {
	switch {
	case asked.read:
		return fmt.Sprintf("read: value %d of fence %d", learnt.read.Value, learnt.read.Fence)
	case learnt.unknown:
		return fmt.Sprintf("fence %d writes %d: crashed, outcome unknown", asked.write.Fence, asked.write.Value)
	case learnt.refused:
		return fmt.Sprintf("fence %d writes %d: refused", asked.write.Fence, asked.write.Value)
	default:
		return fmt.Sprintf("fence %d writes %d: accepted", asked.write.Fence, asked.write.Value)
	}
}
