// Command report runs the comparison benchmarks in a chosen time, keeps their
// raw output with the machine and the commit, and writes a summary with charts.
//
//	go run ./benchmarks/report -time 20m
//
// It is run from the root of the repository. The benchmarks are those of
// benchmarks/peers, which contain those of benchmarks, so that everything that is
// compared is measured by one process, and the ones in limiter and atomicring that
// say what a call takes in terms of its parts. Each process is started once per
// round, and a ratio is always one of two numbers of the same round.
package main
