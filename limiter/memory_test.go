package limiter

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/puzpuzpuz/xsync/v3"
	"github.com/stretchr/testify/require"
)

// keyBytes is the length of the keys that memory is measured with. They fill a
// size class of the allocator, so that a key's own bytes are this many.
const keyBytes = 16

// keyAt writes key i to buf and returns it as a string that lasts until the next
// call: it is for the limiter to keep the bytes.
func keyAt(buf *[keyBytes]byte, i int) string {
	key := fmt.Appendf(buf[:0], "client:%09d", i)
	return unsafe.String(&key[0], len(key))
}

// A keeper holds keys, for the measurements of memory.
type keeper struct {
	name   string
	budget float64 // bytes a key, its own not counted
	start  func(tb testing.TB, keys int) (take func(key string), expire func(), length func() int)
}

var keepers = []keeper{
	{"Keyed", 170, func(tb testing.TB, keys int) (func(string), func(), func() int) {
		return keepKeyed(tb, NewManualClock(), nil, keys)
	}},
	{"KeyedCoarse", 186, func(tb testing.TB, keys int) (func(string), func(), func() int) {
		clock := newStaleClock(time.Second, 1)
		return keepKeyed(tb, clock.ManualClock, clock, keys)
	}},
	{"MemoryStore", 66, func(tb testing.TB, keys int) (func(string), func(), func() int) {
		clock := NewManualClock()
		s := newStore(tb, MemoryStoreConfig{Clock: clock, MaxKeys: keys, SweepEvery: NoSweep})
		take := func(key string) {
			if allowed, _, _ := s.Attempt(key, 5, 10*time.Second); !allowed {
				tb.Fatal("a fresh key was denied")
			}
		}
		return take, func() { clock.Advance(time.Hour); s.Sweep() }, s.Len
	}},
}

func keepKeyed(tb testing.TB, manual *ManualClock, clock Clock, keys int) (func(string), func(), func() int) {
	if clock == nil {
		clock = manual
	}
	k := newKeyed[string](tb, KeyedConfig{
		Config:  Config{Limit: 5, Window: 10 * time.Second, Clock: clock},
		MaxKeys: keys, SweepEvery: NoSweep,
	})
	take := func(key string) {
		if !k.Allow(key) {
			tb.Fatal("a fresh key was denied")
		}
	}
	return take, func() { manual.Advance(time.Hour); k.Sweep() }, k.Len
}

// TestMemory_Budget: a million live keys take no more than promised, and after
// they have expired a sweep gives it all back. Under the race detector there are
// fewer keys, in tables that are as full.
func TestMemory_Budget(t *testing.T) {
	keys := 1_000_000
	if raceEnabled {
		keys /= 16
	}
	for _, c := range keepers {
		t.Run("impl="+c.name, func(t *testing.T) {
			take, expire, length := c.start(t, keys)
			var buf [keyBytes]byte
			before := heap()
			for i := range keys {
				take(keyAt(&buf, i))
			}
			require.Equal(t, keys, length())
			full := heap()
			bytes := float64(full-before)/float64(keys) - keyBytes
			t.Logf("%.1f bytes a key", bytes)
			require.LessOrEqual(t, bytes, c.budget)

			expire()
			require.Zero(t, length())
			after := heap()
			t.Logf("heap: %d bytes at the start, %d with all keys, %d after the sweep", before, full, after)
			require.LessOrEqual(t, float64(after), 1.1*float64(before))

			take(keyAt(&buf, 7)) // also keeps all of it alive until here
			require.Equal(t, 1, length())
		})
	}
}

// TestMemory_Small: a limiter for few keys is small.
func TestMemory_Small(t *testing.T) {
	const limiters = 100
	for _, c := range keepers {
		before := heap()
		var takes []func(string)
		for range limiters {
			take, _, _ := c.start(t, 10)
			take("a")
			takes = append(takes, take)
		}
		size := (heap() - before) / limiters
		t.Logf("%s: %d bytes", c.name, size)
		require.LessOrEqual(t, size, uint64(8<<10), c.name)
		runtime.KeepAlive(takes)
	}
}

// TestMemory_DenialsCreateNothing: neither denied calls, nor costs that can
// never pass, nor looking make a key or cost memory.
func TestMemory_DenialsCreateNothing(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 5, Window: 10 * time.Second, Clock: clock}, MaxKeys: 1000, SweepEvery: NoSweep})
	before := heap()
	for i := range 100_000 {
		k.AllowN(i, 6)
		k.AllowN(i, 0)
		k.Attempt(i, 0)
		k.Peek(i, 1)
		k.AttemptLimit(i, 1, 0)
		AttemptAll(k.Item(i, 1), k.Item(-i-1, 6))
	}
	require.Zero(t, k.Len())
	require.LessOrEqual(t, heap(), before+1<<16)
	runtime.KeepAlive(k)
}

// BenchmarkMemory_GC is one garbage collection with so many live keys, beside
// that of a bare xsync map from strings to pointers to 16 bytes.
func BenchmarkMemory_GC(b *testing.B) {
	bare := keeper{name: "xsync", start: func(tb testing.TB, keys int) (func(string), func(), func() int) {
		m := xsync.NewMapOf[string, *[2]uint64]()
		return func(key string) { m.Store(string([]byte(key)), new([2]uint64)) }, nil, m.Size
	}}
	for _, keys := range []int{1_000_000, 5_000_000} {
		for _, c := range append([]keeper{bare}, keepers...) {
			b.Run(fmt.Sprintf("impl=%s/keys=%d", c.name, keys), func(b *testing.B) {
				before := heap()
				take, _, length := c.start(b, keys)
				var buf [keyBytes]byte
				for i := range keys {
					take(keyAt(&buf, i))
				}
				size := heap() - before
				var start, end runtime.MemStats
				runtime.ReadMemStats(&start)
				best := time.Hour
				for b.Loop() {
					begin := SystemClock{}.Now()
					runtime.GC()
					best = min(best, SystemClock{}.Now()-begin)
				}
				runtime.ReadMemStats(&end)
				b.ReportMetric(float64(best), "ns-best")
				b.ReportMetric(float64(size)/float64(keys)-keyBytes, "B/key")
				worst := uint64(0)
				for n := start.NumGC; n < end.NumGC; n++ {
					worst = max(worst, end.PauseNs[n%uint32(len(end.PauseNs))])
				}
				b.ReportMetric(float64(worst), "ns-worst-pause")
				b.ReportMetric(float64(end.PauseTotalNs-start.PauseTotalNs)/float64(end.NumGC-start.NumGC), "ns/pause")
				if length() != keys {
					b.Fatalf("%d keys", length())
				}
				take("again")
			})
		}
	}
}
