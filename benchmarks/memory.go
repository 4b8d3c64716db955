package benchmarks

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Memory measures what a key costs: the bytes of live memory for each of a
// million keys, and how long one garbage collection takes with them. Every key
// is a string of its own that nobody but the limiter holds on to, and its 16
// bytes are included.
func Memory(b *testing.B, table []Implementation) {
	w, _ := Find("million")
	for _, impl := range table {
		clock := SystemClock
		if impl.Floor {
			clock = NoClock
		}
		if !impl.Runs(w, clock) || impl.Floor && impl.Name != FloorMap {
			continue
		}
		b.Run(fmt.Sprintf("impl=%s/keys=%d", impl.Name, w.Keys), func(b *testing.B) {
			var perKey float64
			var collections []time.Duration
			for b.Loop() {
				before := liveBytes()
				l, err := impl.New(w, clock)
				if err != nil {
					b.Fatal(err)
				}
				text := make([]byte, 0, KeyLen)
				for i := range w.Keys {
					text = appendKey(text[:0], i)
					if !l.Allow(string(text)) {
						b.Fatalf("key %d was denied", i)
					}
				}
				perKey = float64(liveBytes()-before) / float64(w.Keys)
				for range 3 {
					start := time.Now()
					runtime.GC()
					collections = append(collections, time.Since(start))
				}
				l.Close()
			}
			slices.Sort(collections)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(perKey, "B/key")
			b.ReportMetric(float64(collections[len(collections)/2])/1e6, "gc-ms")
		})
	}
}

// liveBytes returns the size of the heap after what is garbage is gone.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and cleanups let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
