// Command pprof runs a workload of package benchmarks and profiles it.
//
//	go run ./pprof -workload hot-key -duration 5s -out out/hot-key
//	go run ./pprof -workload hot-key -impl mutex -duration 5s -out out/hot-key-mutex
//
// It writes, for go tool pprof, cpu.prof, heap.prof, allocs.prof, mutex.prof,
// block.prof and goroutine.prof, and for go tool trace the first second of the
// run as trace.out. Then it prints the decisions per second, the functions that
// took the most time, and how long decisions have waited for locks and on
// channels. Profiling is on the whole time and costs something: for speed, see
// package benchmarks.
//
//	go tool pprof -http localhost:8080 out/hot-key/cpu.prof
//	go tool trace out/hot-key/trace.out
//
// With -http the endpoints of net/http/pprof are served while it runs, on a mux
// of their own:
//
//	go run ./pprof -workload zipf -duration 1m -http localhost:6060
//	go tool pprof http://localhost:6060/debug/pprof/profile?seconds=10
//
// The workloads are those of package benchmarks (hot-key, uniform, zipf, denied,
// rollover, flood and more) and http, a handler behind package middleware; -impl
// mutex does the same with the mutex limiters.
//
// # Reading the contention profile of a service
//
// A service that imports ringfence shows its waiting when it has switched it on,
//
//	runtime.SetMutexProfileFraction(100) // 1 in 100 waits for a lock
//	runtime.SetBlockProfileRate(10_000)  // waits of 10 µs and more, and some of the shorter ones
//
// and serves net/http/pprof:
//
//	go tool pprof http://HOST/debug/pprof/mutex
//	(pprof) top -cum
//	(pprof) peek 'ringfence/(limiter|atomicring)'
//
// The mutex profile charges a wait to the stack that held the lock and let go of
// it, the block profile to the stack that waited. What to expect below limiter
// and atomicring:
//
//   - Decisions on existing keys wait for nothing and appear in neither. They can
//     still be slowed down by a contended cache line, which is CPU time: look for
//     Admit in the CPU profile.
//   - A new key takes a mutex that it shares with some thousands of others, and the
//     lock of its bucket in xsync.MapOf, and now and then waits for the map to
//     grow.
//   - Wait and WaitN block for as long as they are asked to: they appear in the
//     block profile, and that is their work.
//   - The sweeper, and the refresher of a coarse clock, rest in a select in the
//     block profile, in goroutines of their own.
//
// # Labels
//
// This program labels its goroutines with the workload and the implementation,
// so that profiles can be filtered (-tagfocus) and grouped (-tagroot). A service
// does the same with what it knows about a request:
//
//	pprof.Do(ctx, pprof.Labels("route", route, "tenant", plan), func(ctx context.Context) {
//		if !limits.Allow(tenant) { … }
//		…
//	})
//
// Labels are kept in the CPU and goroutine profiles, for goroutines started
// inside too. Choose values of which there are few: a label per user makes the
// profile as large as the list of users.
package main
