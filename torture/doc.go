// Package torture maltreats real processes, and has independent witnesses say
// whether the promises were kept all the same.
//
// Several worlds run side by side, each a lease with some slots. A slot starts
// a task (the built binary), and another whenever it ends. Where root allows,
// each slot has a network namespace, of which only the loopback interface is
// used, and every other one a PID namespace for each task. A forwarder in the
// slot carries the requests over a unix socket to the store, which is in this
// process: so the network can be cut, hung, or lose, delay and repeat requests.
//
// Chaos (chaos_test.go) is random, from a seed that is printed. A seed repeats
// the plan of faults, not the history: the processes are real.
//
// The witnesses know nothing of what the agents believe. The job holds a
// connection to the recorder from its first instruction until the kernel
// closes the last copy of it (recorder_test.go), and writes to a register that
// compares FENCE. The store applies one request after another, and each must be one that
// the protocol allows on the row as it is (protocol_test.go); what the agents' side
// saw of it is checked by porcupine to be the history of such a row (history_test.go).
//
// What is excused, and only that: P1 needs that the agent or its supervisor
// gets CPU time. While chaos has stopped both of a task, and until they had
// time to act after it, the job of that task may overlap with its successor.
// Its writes must be refused even then.
//
//	go test ./torture -duration 2m            minutes
//	go test ./torture -duration 8h -timeout 0 a night
package torture
