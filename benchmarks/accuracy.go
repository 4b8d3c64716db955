package benchmarks

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// The limit that accuracy is measured on: long enough for several goroutines to get
// the processor in a window, and small enough to be used up at once.
const (
	accuracyWindow = 50 * time.Millisecond
	accuracyLimit  = 1000
)

// A Span is the time between the start and the end of one call.
type Span struct{ Begin, End time.Duration }

// A Record is what a limiter was asked and how it decided.
type Record struct {
	Admitted []Span          // calls that were admitted
	Denied   []time.Duration // starts of the calls that were denied
}

func (r *Record) add(o Record) {
	r.Admitted = append(r.Admitted, o.Admitted...)
	r.Denied = append(r.Denied, o.Denied...)
}

var recordStart = time.Now()

func (r *Record) ask(l Limiter) time.Duration {
	begin := time.Since(recordStart)
	allowed := l.Allow("one")
	if !allowed {
		r.Denied = append(r.Denied, begin)
		return begin
	}
	end := time.Since(recordStart)
	r.Admitted = append(r.Admitted, Span{begin, end})
	return end
}

// burst lets goroutines ask without a pause for d and records it.
func (r *Record) burst(l Limiter, goroutines int, d time.Duration) {
	end := time.Since(recordStart) + d
	parts := make([]Record, goroutines)
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() {
			for parts[i].ask(l) < end {
			}
		})
	}
	wg.Wait()
	for _, p := range parts {
		r.add(p)
	}
}

// Worst returns the largest number of admitted calls that were surely inside
// one half-open interval of length window, wherever it begins: calls that began
// and ended in it.
func (r *Record) Worst(window time.Duration) int {
	// Take the calls from the last start to the first. An interval may begin
	// where a call does; those taken so far are the ones that began in it, and a
	// Fenwick tree over the ranks of their ends counts those that ended in it.
	spans := slices.Clone(r.Admitted)
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(b.Begin, a.Begin) })
	ends := make([]time.Duration, len(spans))
	for i, s := range spans {
		ends[i] = s.End
	}
	slices.Sort(ends)
	tree := make([]int, len(ends)+1)
	worst := 0
	for _, s := range spans {
		rank, _ := slices.BinarySearch(ends, s.End)
		for j := rank + 1; j < len(tree); j += j & -j {
			tree[j]++
		}
		inside := 0
		last, _ := slices.BinarySearch(ends, s.Begin+window)
		for j := last; j > 0; j -= j & -j {
			inside += tree[j]
		}
		worst = max(worst, inside)
	}
	return worst
}

// Ideal returns how many of the calls a log of admissions would have admitted:
// each call, at its start, if fewer than limit were admitted in the window
// before it.
func (r *Record) Ideal(limit int, window time.Duration) int {
	calls := slices.Clone(r.Denied)
	for _, s := range r.Admitted {
		calls = append(calls, s.Begin)
	}
	slices.Sort(calls)
	var log []time.Duration
	for _, at := range calls {
		if n := len(log); n < limit || at-log[n-limit] >= window {
			log = append(log, at)
		}
	}
	return len(log)
}

// Accuracy measures how well each implementation keeps its limit while 64
// goroutines ask it without a pause: the largest count surely inside one window,
// as a multiple of the limit, and what it admitted as a share of what a log of
// admissions would have. It fails where an implementation that has to keep the
// limit did not.
//
// With load=bursts the goroutines come where it hurts: after a rest in which
// buckets fill, one call opens the windows that begin with a call; later in that
// window comes a burst that goes on into the next one. With load=steady they ask
// for ten windows on end, after one window of calls at the pace of the limit, so
// that what expires does so evenly; a ring of N + 1 sub-windows then delivers
// N / (N + 1) of what the log does.
func Accuracy(b *testing.B, table []Implementation) {
	for _, impl := range table {
		if impl.Floor {
			continue
		}
		for _, clock := range []string{SystemClock, CoarseClock} {
			if !slices.Contains(impl.Clocks, clock) {
				continue
			}
			run := func(load string, slots int, f func(*Record, Limiter, *rand.Rand)) {
				s := Setup{Limit: accuracyLimit, Window: accuracyWindow, Slots: slots, Clock: clock}
				b.Run(fmt.Sprintf("impl=%s/load=%s/slots=%d/clock=%s", impl.Name, load, slots, clock), func(b *testing.B) {
					accuracy(b, impl, s, f)
				})
			}
			run("bursts", slots, bursts)
			run("steady", slots, steady)
			if impl.Exact && clock == SystemClock {
				run("steady", 2*slots, steady)
				run("steady", 6*slots, steady)
			}
		}
	}
}

func accuracy(b *testing.B, impl Implementation, s Setup, run func(*Record, Limiter, *rand.Rand)) {
	l, err := impl.NewSingle(s)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	rnd := rand.New(rand.NewPCG(1, 0))
	worst, admitted, ideal := 0, 0, 0
	for b.Loop() {
		time.Sleep(3 * s.Window) // nothing of the round before counts any more
		var r Record
		run(&r, l, rnd)
		worst = max(worst, r.Worst(s.Window))
		admitted += len(r.Admitted)
		ideal += r.Ideal(int(s.Limit), s.Window)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(worst)/float64(s.Limit), "worst/limit")
	b.ReportMetric(float64(admitted)/float64(ideal), "admitted/ideal")
	if impl.Exact && (s.Clock == SystemClock || impl.Name == "ringfence") && worst > int(s.Limit) {
		b.Fatalf("%s admitted %d in one window of %v, limit %d", impl.Name, worst, s.Window, s.Limit)
	}
}

func bursts(r *Record, l Limiter, rnd *rand.Rand) {
	for range 2 {
		time.Sleep(2*accuracyWindow + between(rnd, 0, accuracyWindow))
		r.ask(l)
		time.Sleep(between(rnd, accuracyWindow/2, accuracyWindow))
		r.burst(l, crowd, accuracyWindow+accuracyWindow/4)
	}
}

func steady(r *Record, l Limiter, _ *rand.Rand) {
	start := time.Now()
	for i := range time.Duration(accuracyLimit) {
		time.Sleep(i*accuracyWindow/accuracyLimit - time.Since(start))
		r.ask(l)
	}
	r.burst(l, crowd, 10*accuracyWindow)
}

func between(rnd *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rnd.Int64N(int64(to-from)))
}
