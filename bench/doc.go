// Command bench measures solojob and prints what it measured as tables in
// Markdown:
//
//	go run ./bench                               # everything, some 45 minutes
//	go run ./bench -only handover,size -n 10     # parts of it
//	go run ./bench -write docs/BENCHMARKS.md     # into the document, between its markers
//	go run ./bench -only endurance               # an hour: whether anything adds up
//
// It builds the binary as it is released, runs it as real processes against the
// in-memory store on the loopback interface, and leaves nothing behind. Every
// instant comes from a job's own reading of CLOCK_BOOTTIME, from the store, or
// from the kernel's closing of a job's last connection; none from an agent.
package main
