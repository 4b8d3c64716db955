package benchmarks

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Latency measures how long single decisions take with a million keys, while
// nothing else happens, while the limiter sweeps without a pause, and while the
// garbage collector runs without one. A decision is timed by two readings of the
// clock, and the quantiles include one of them: floor-loop shows how much that
// is.
//
// While sweeping, a key is idle for longer than its window between two of its
// decisions, so that sweeps remove keys and decisions create them anew.
func Latency(b *testing.B, table []Implementation) {
	w, _ := Find("million")
	stream := sync.OnceValues(func() (*Stream, error) { return NewStream(w, 1) })
	for _, during := range []string{"quiet", "sweep", "gc"} {
		w := w
		if during == "sweep" {
			w.Limit, w.Window, w.SweepEvery = 1000, 50*time.Millisecond, time.Millisecond
		}
		for _, impl := range table {
			for _, clock := range []string{SystemClock, NoClock} {
				if !impl.Runs(w, clock) || impl.Floor && impl.Name != FloorLoop {
					continue
				}
				var l Limiter
				b.Run(fmt.Sprintf("impl=%s/keys=%d/during=%s/clock=%s", impl.Name, w.Keys, during, clock), func(b *testing.B) {
					s, err := stream()
					if err == nil && l == nil {
						l, err = Prepare(impl, w, clock, s)
					}
					if err != nil {
						b.Fatal(err)
					}
					if during == "gc" {
						defer keepCollecting()()
					}
					latency(b, w, s, l)
				})
				if l != nil {
					l.Close()
				}
			}
		}
	}
}

func latency(b *testing.B, w Workload, s *Stream, l Limiter) {
	n := runtime.GOMAXPROCS(0)
	var (
		mu      sync.Mutex
		started int
		all     Histogram
	)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		c := NewCursor(w, s, l, started, n)
		started++
		mu.Unlock()
		var h Histogram
		before := time.Now()
		for pb.Next() {
			c.Decide()
			after := time.Now()
			h.Add(after.Sub(before))
			before = after
		}
		mu.Lock()
		all.Merge(&h)
		mu.Unlock()
	})
	b.StopTimer()
	for _, q := range []struct {
		unit string
		q    float64
	}{{"p50-ns", 0.5}, {"p99-ns", 0.99}, {"p99.9-ns", 0.999}, {"max-ns", 1}} {
		b.ReportMetric(float64(all.Quantile(q.q)), q.unit)
	}
}

// keepCollecting runs the garbage collector over and over until stopped.
func keepCollecting() (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				runtime.GC()
			}
		}
	})
	return func() { close(end); wg.Wait() }
}

// A Histogram counts durations in buckets that are at most 1/32 of their value
// wide.
type Histogram struct {
	buckets [64 * histogramParts]uint64
	count   uint64
	max     time.Duration
}

const histogramParts = 32

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < histogramParts {
		return int(v)
	}
	shift := bits.Len64(v) - bits.Len64(histogramParts)
	return shift*histogramParts + int(v>>shift)
}

// upper returns the largest duration of a bucket.
func upper(bucket int) time.Duration {
	if bucket < histogramParts {
		return time.Duration(bucket)
	}
	shift := bucket/histogramParts - 1
	return time.Duration((uint64(bucket%histogramParts+histogramParts+1) << shift) - 1)
}

// Add counts d.
func (h *Histogram) Add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.count++
	h.max = max(h.max, d)
}

// Merge counts what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.count += o.count
	h.max = max(h.max, o.max)
}

// Quantile returns the duration that a share q of those counted does not
// exceed, rounded up to the end of its bucket, and the exact largest one for 1.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.count)))
	var seen uint64
	for i, n := range h.buckets {
		if seen += n; seen >= rank && n > 0 {
			return min(upper(i), h.max)
		}
	}
	return h.max
}
