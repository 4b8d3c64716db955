package benchmarks

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// A Cursor asks one limiter for the decisions of one stream, one by one. Each
// goroutine has its own.
type Cursor struct {
	limiter Limiter
	coster  Coster // nil where every cost is 1
	text    string
	at      int
	cost    uint64
}

// NewCursor returns the cursor of goroutine number i of n, which start at equal
// distances in the stream.
func NewCursor(w Workload, s *Stream, l Limiter, i, n int) *Cursor {
	if p, ok := l.(PerGoroutine); ok {
		l = p.Goroutine()
	}
	c := &Cursor{limiter: l, text: s.text, at: i % n * s.Len() / n * KeyLen}
	if w.Costs {
		c.coster = l.(Coster)
	}
	return c
}

// Decide asks for the next decision and reports whether it was admitted.
func (c *Cursor) Decide() bool {
	key := c.text[c.at : c.at+KeyLen]
	if c.at += KeyLen; c.at == len(c.text) {
		c.at = 0
	}
	if c.coster == nil {
		return c.limiter.Allow(key)
	}
	c.cost++
	return c.coster.AllowN(key, c.cost&7+1)
}

// Prepare makes a limiter for the workload and decides about the whole stream
// once, so that every key exists and, where the workload wants denials, is at
// its limit. It fails if what follows would not be the workload.
func Prepare(impl Implementation, w Workload, clock string, s *Stream) (Limiter, error) {
	l, err := impl.New(w, clock)
	if err != nil {
		return nil, err
	}
	create(w, l)
	c := NewCursor(w, s, l, 0, 1)
	for range s.Len() {
		c.Decide()
	}
	const sample = 2000
	admitted := 0
	for range sample {
		if c.Decide() {
			admitted++
		}
	}
	if err := w.check(impl, admitted, sample); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// create asks for every key that a workload draws, in another order than that of
// its stream: who makes an object for a key would else find these objects one
// behind the other in memory, in the order in which they are wanted. Each key is
// a string of its own, as that of a request is, which has the bytes of another:
// strings that share their bytes are found equal without a look at them.
func create(w Workload, l Limiter) {
	if w.Dist != Hot && w.Dist != Uniform && w.Dist != Zipf {
		return
	}
	for k := range w.Keys {
		l.Allow(string(appendKey(nil, k)))
	}
}

// check reports whether the admitted share is the workload's.
func (w Workload) check(impl Implementation, admitted, decisions int) error {
	want, got := w.Share(), float64(admitted)/float64(decisions)
	if !impl.Floor && (got < want-0.001 || got > want+0.001) {
		return fmt.Errorf("benchmarks: workload %s: %s admitted %d of %d, want a share of %v", w.Name, impl.Name, admitted, decisions, want)
	}
	return nil
}

// Decisions times one decision, for each workload, clock and implementation of
// table that go together. The implementations follow each other within a
// workload, so that what is compared is close in time.
func Decisions(b *testing.B, table []Implementation) {
	for _, w := range Workloads() {
		stream := sync.OnceValues(func() (*Stream, error) { return NewStream(w, 1) })
		for _, clock := range append(w.Clocks, NoClock) {
			for _, impl := range table {
				if !impl.Runs(w, clock) {
					continue
				}
				var l Limiter // made by the first run, kept for the other counts and processors
				b.Run(fmt.Sprintf("impl=%s/%s/clock=%s", impl.Name, w.Params(), clock), func(b *testing.B) {
					s, err := stream()
					if err == nil && l == nil {
						l, err = Prepare(impl, w, clock, s)
					}
					if err != nil {
						b.Fatal(err)
					}
					decisions(b, impl, w, s, l)
				})
				if l != nil {
					l.Close()
				}
			}
		}
	}
}

func decisions(b *testing.B, impl Implementation, w Workload, s *Stream, l Limiter) {
	n := runtime.GOMAXPROCS(0)
	if w.Goroutines > n {
		b.SetParallelism(w.Goroutines / n)
		n *= w.Goroutines / n
	}
	var started, admitted atomic.Int64
	runtime.GC() // what the setup left behind is not this benchmark's garbage
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c := NewCursor(w, s, l, int(started.Add(1))-1, n)
		passed := 0
		for pb.Next() {
			if c.Decide() {
				passed++
			}
		}
		admitted.Add(int64(passed))
	})
	b.StopTimer()
	if err := w.check(impl, int(admitted.Load()), b.N); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(admitted.Load())/float64(b.N), "admitted/op")
	if w.Dist == Turn {
		// Above 1, every key has expired when its turn comes again.
		round := b.Elapsed().Seconds() / float64(b.N) * float64(s.Len())
		b.ReportMetric(round/w.Window.Seconds(), "windows/round")
	}
}
