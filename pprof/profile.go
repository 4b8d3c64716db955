package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"sync"
	"time"
)

// traced is how much of a run the execution trace holds: a contended mutex
// writes some ten megabytes a second.
const traced = time.Second

// profile runs the load with everything switched on, and writes the profiles.
func profile(ctx context.Context, c config, l *load) (r result, err error) {
	cpu, err := os.Create(filepath.Join(c.out, "cpu.prof"))
	if err != nil {
		return r, err
	}
	defer closing(cpu, &err)
	events, err := os.Create(filepath.Join(c.out, "trace.out"))
	if err != nil {
		return r, err
	}
	defer closing(events, &err)

	runtime.SetBlockProfileRate(1)
	defer runtime.SetBlockProfileRate(0)
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
	mutex, block := mutexWaits(), blockWaits()
	if err := trace.Start(events); err != nil {
		return r, err
	}
	stopTrace := time.AfterFunc(traced, trace.Stop)
	defer trace.Stop() // does nothing if it has been stopped
	defer stopTrace.Stop()
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return r, err
	}
	defer pprof.StopCPUProfile()

	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.duration)
	defer cancel()
	workers, err := work(ctx, c, l, func() error {
		return c.write("goroutine") // with the workers in it
	})
	if err != nil {
		return r, err
	}
	r = result{
		config:     c,
		goroutines: l.goroutines,
		elapsed:    time.Since(start),
		mutex:      mutexWaits().minus(mutex),
		block:      blockWaits().minus(block),
	}
	for _, w := range workers {
		r.decisions += w.decisions
		r.admitted += w.admitted
	}
	runtime.GC() // heap profiles are as of the last collection
	for _, name := range []string{"heap", "allocs", "mutex", "block"} {
		err = errors.Join(err, c.write(name))
	}
	return r, err
}

// write writes one of the runtime's profiles.
func (c config) write(name string) (err error) {
	f, err := os.Create(filepath.Join(c.out, name+".prof"))
	if err != nil {
		return err
	}
	defer closing(f, &err)
	return pprof.Lookup(name).WriteTo(f, 0)
}

func closing(f io.Closer, err *error) { *err = errors.Join(*err, f.Close()) }

// waits are the waits of one profile: those of the runtime for its own locks
// (allocator, scheduler, garbage collector), which can come to any goroutine at
// any place, and of a sync.Pool, which a processor has to register with anew
// after each collection; those in decisions; and all others.
type waits struct{ runtime, decisions, elsewhere wait }

type wait struct {
	events int64
	time   time.Duration
}

func (w waits) minus(o waits) waits {
	return waits{w.runtime.minus(o.runtime), w.decisions.minus(o.decisions), w.elsewhere.minus(o.elsewhere)}
}

func (w wait) minus(o wait) wait { return wait{w.events - o.events, w.time - o.time} }

func (w wait) String() string { return fmt.Sprintf("%v in %d events", w.time, w.events) }

func mutexWaits() waits { return addUp(runtime.MutexProfile) }
func blockWaits() waits { return addUp(runtime.BlockProfile) }

// addUp adds up the records of a profile.
func addUp(read func([]runtime.BlockProfileRecord) (int, bool)) (w waits) {
	records := make([]runtime.BlockProfileRecord, 64)
	n, ok := read(records)
	for !ok {
		records = make([]runtime.BlockProfileRecord, 2*n)
		n, ok = read(records)
	}
	nanos := 1e9 / cyclesPerSecond()
	for _, r := range records[:n] {
		into := w.class(r.Stack())
		into.events += r.Count
		into.time += time.Duration(float64(r.Cycles) * nanos)
	}
	return w
}

// class returns the waits that a stack belongs to, its leaf first.
func (w *waits) class(stack []uintptr) *wait {
	frames := runtime.CallersFrames(stack)
	for leaf := true; ; leaf = false {
		f, more := frames.Next()
		switch {
		case leaf && strings.HasPrefix(f.Function, "runtime.unlock"), f.Function == "sync.(*Pool).pinSlow":
			return &w.runtime
		case strings.HasSuffix(f.Function, ".(*worker).burst"):
			return &w.decisions
		case !more:
			return &w.elsewhere
		}
	}
}

// cyclesPerSecond is the unit of the records, which the runtime tells only in the
// text form of the profiles.
var cyclesPerSecond = sync.OnceValue(func() float64 {
	var b strings.Builder
	pprof.Lookup("mutex").WriteTo(&b, 1)
	for line := range strings.Lines(b.String()) {
		var n float64
		if _, err := fmt.Sscanf(line, "cycles/second=%f", &n); err == nil {
			return n
		}
	}
	return 1e9
})
