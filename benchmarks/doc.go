// Package benchmarks measures ringfence, the mutex limiters it is compared
// with, and whatever else is put into the same table of implementations. It is
// imported by the comparison with other libraries (benchmarks/peers, a module of
// its own), by the report (benchmarks/report) and by the profiling harness
// (pprof); services have no use for it.
//
// There are two tables. A [Workload] says which decisions are asked for: how
// many keys, how they are drawn, what share is denied. An [Implementation] says
// who decides. [Decisions], [Latency], [Memory] and [Accuracy] run the one
// against the other:
//
//	go test -bench Decision -cpu 1,2 ./benchmarks
//	go test -bench 'Decision/impl=(ringfence|mutex)/load=hot-key$' ./benchmarks
//
// # What is timed
//
// A benchmark asserts its workload before it measures: the number of distinct
// keys, and the share that is admitted; after it has measured, the share again.
// Keyed workloads decide every key once before the clock starts, so that they
// time decisions on existing keys, except where the workload is about new ones.
//
// Every implementation is called through the same interface and the same loop.
// What these cost alone is measured as impl=floor-loop, in the same run, and so
// are a clock read, one load and CAS of an uncontended word, and an xsync Load
// of the same key. Compare by ratio, within one run.
//
// With -benchtime given as a number of iterations, testing.PB takes one
// iteration at a time from a counter that all goroutines share, and that counter
// is what such a run measures. Give a time. One iteration (-benchtime 1x) checks
// that the benchmarks work, and -short makes the key sets small enough to do so
// quickly.
//
// # Exact and estimated
//
// Times and memory are samples of one machine. Worst windows are lower bounds:
// a call counts only where it began and ended inside the window. Nothing
// measured here says anything about more cores than the machine had.
package benchmarks
