package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"github.com/stretchr/testify/require"
)

// TestDecision_NoAllocation: a decision on a state that exists allocates nothing,
// and AttemptAll one item for each key.
func TestDecision_NoAllocation(t *testing.T) {
	clock := NewManualClock()
	config := Config{Limit: 1 << 20, Window: 1000 * time.Hour, Clock: clock, CountDenied: true}
	l := newLimiter(t, config)
	turning := newLimiter(t, Config{Limit: 1 << 20, Window: time.Second, Clock: clock})
	k := newKeyed[string](t, KeyedConfig{Config: config, SweepEvery: NoSweep})
	full := newKeyed[string](t, KeyedConfig{Config: config, MaxKeys: 1, SweepEvery: NoSweep})
	s := newStore(t, MemoryStoreConfig{Clock: clock, SweepEvery: NoSweep})
	shared := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 1, SweepEvery: NoSweep})
	require.True(t, l.Allow()) // so that the whole limit is denied
	require.True(t, k.Allow("key"))
	require.True(t, full.Allow("first"))
	require.True(t, attemptOn(shared, "first", 1, time.Hour).allowed)
	ctx := context.Background()
	items := []StoreItem{{"a", 1 << 20, time.Hour, 1}, {"b", 1 << 20, time.Hour, 2}}
	results := make([]StoreResult, 2)
	decisions := make([]Decision, 2)
	for name, c := range map[string]struct {
		call func()
		want float64
	}{
		"Limiter.Allow":             {func() { l.Allow() }, 0},
		"Limiter.Allow/turn":        {func() { clock.Advance(100 * time.Millisecond); turning.Allow() }, 0},
		"Limiter.AllowN/denied":     {func() { l.AllowN(1 << 20) }, 0},
		"Limiter.Attempt":           {func() { l.Attempt(1) }, 0},
		"Limiter.Attempt/denied":    {func() { l.Attempt(1 << 20) }, 0},
		"Limiter.Peek":              {func() { l.Peek(1) }, 0},
		"Limiter.Wait":              {func() { _ = l.Wait(ctx) }, 0},
		"Keyed.Allow":               {func() { k.Allow("key") }, 0},
		"Keyed.Allow/shared":        {func() { full.Allow("key") }, 0},
		"Keyed.Attempt":             {func() { k.Attempt("key", 1) }, 0},
		"Keyed.Attempt/denied":      {func() { k.Attempt("key", 1<<20) }, 0},
		"Keyed.AttemptLimit":        {func() { k.AttemptLimit("key", 1, 5) }, 0},
		"Keyed.Peek":                {func() { k.Peek("key", 1) }, 0},
		"Keyed.Peek/absent":         {func() { k.Peek("absent", 1) }, 0},
		"Keyed.Wait":                {func() { _ = k.Wait(ctx, "key") }, 0},
		"Store.Attempt":             {func() { s.Attempt("key", 1<<20, time.Hour) }, 0},
		"Store.Attempt/denied":      {func() { s.Attempt("key", 1, time.Hour) }, 0},
		"Store.Attempt/never":       {func() { s.Attempt("absent", 0, time.Hour) }, 0},
		"Store.Attempt/shared":      {func() { shared.Attempt("key", 1<<20, time.Hour) }, 0},
		"Store.AttemptMany":         {func() { s.AttemptMany(items, results) }, 0},
		"Store.Refund":              {func() { s.Refund(&results[0].Charge) }, 0},
		"AttemptAll":                {func() { AttemptAll(l.Item(1)) }, 0},
		"AttemptAll/key":            {func() { AttemptAll(l.Item(1), k.Item("key", 1)) }, 1},
		"AttemptAllInto":            {func() { AttemptAllInto(decisions, k.Item("key", 1), k.Item("b", 1)) }, 2},
		"Sweep with nothing to do":  {func() { full.Sweep(); shared.Sweep() }, 0},
		"Stats":                     {func() { l.Stats(); k.Stats(); s.Stats() }, 0},
		"SetLimit, which wakes one": {func() { require.NoError(t, l.SetLimit(1<<20)) }, 1},
	} {
		c.call() // the first one makes the state
		allocations := testing.AllocsPerRun(100, c.call)
		if !raceEnabled { // which allocates on its own account
			require.LessOrEqual(t, allocations, c.want, name)
		}
	}
}

// cacheline keeps what a benchmark writes apart from everything else.
type cacheline struct {
	_ [128]byte
	w atomic.Uint64
	_ [128]byte
}

// measure returns what a call costs at best, in ns: the least of many short runs
// of a loop of n calls, which others on the machine disturb least.
func measure(loop func(n int)) float64 {
	const n = 5000
	best := time.Duration(1 << 62)
	for range 200 {
		start := SystemClock{}.Now()
		loop(n)
		best = min(best, SystemClock{}.Now()-start)
	}
	return float64(best) / n
}

// A baseline is what decisions are compared with: an uncontended load and CAS, a
// reading of the system clock, and a Load of one key of an xsync map.
type baseline struct{ floor, clock, load float64 }

func measureBaseline() baseline {
	var word cacheline
	m := xsync.NewMapOf[string, *uint64]()
	m.Store(benchKey(0), new(uint64))
	key := benchKey(0)
	found := 0
	b := baseline{
		floor: measure(func(n int) {
			for range n {
				w := word.w.Load()
				word.w.CompareAndSwap(w, w+1)
			}
		}),
		clock: measure(func(n int) {
			for range n {
				SystemClock{}.Now()
			}
		}),
		load: measure(func(n int) {
			for range n {
				if _, ok := m.Load(key); ok {
					found++
				}
			}
		}),
	}
	if found == 0 || word.w.Load() == 0 {
		panic("the baselines did nothing")
	}
	return b
}

func benchKey(i int) string { return fmt.Sprintf("client:%013d", i) } // 20 bytes

// benchConfig admits everything, or, with a limit of 0 units left, nothing.
func benchConfig(clock Clock) Config {
	return Config{Limit: 1 << 28, Window: time.Second, Clock: clock}
}

func benchCoarse(b *testing.B) *CoarseClock {
	c, err := NewCoarseClock(20 * time.Millisecond)
	require.NoError(b, err)
	b.Cleanup(func() { c.Close() })
	return c
}

// A parts is what a decision cannot do without, as a sum of baselines.
type parts func(base baseline) float64

func onFloor(base baseline) float64     { return base.floor }
func onClock(base baseline) float64     { return base.floor + base.clock }
func onLoad(base baseline) float64      { return base.load + base.floor }
func onLoadClock(base baseline) float64 { return base.load + base.floor + base.clock }

// decisions times loop, which makes n calls and returns how many were allowed:
// all or none. It reports the mean, the best, and the best in terms of parts,
// which are measured in the same run.
func decisions(b *testing.B, name string, allowed bool, of parts, loop func(n int) int) {
	b.Run(name, func(b *testing.B) {
		const calls = 1000
		sum := 0
		for b.Loop() {
			sum += loop(calls)
		}
		share := float64(sum) / float64(b.N) / calls
		if allowed && share < 0.999 || !allowed && share > 0.001 {
			b.Fatalf("a share of %v was allowed", share)
		}
		mean := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / calls
		base := measureBaseline()
		best := measure(func(n int) { loop(n) })
		b.ReportMetric(mean, "ns/op") // a call
		b.ReportMetric(best, "ns-best")
		b.ReportMetric(best/of(base), "x")
		b.ReportMetric(testing.AllocsPerRun(1, func() { loop(calls) })/calls, "allocs/op")
	})
}

// count returns how many of n calls were allowed. The compiler inlines it, and
// the call as well.
func count(n int, call func() bool) (allowed int) {
	for range n {
		if call() {
			allowed++
		}
	}
	return allowed
}

func BenchmarkLimiter(b *testing.B) {
	coarse := benchCoarse(b)
	for _, c := range []struct {
		name  string
		clock Clock
		of    parts
	}{{"coarse", coarse, onFloor}, {"system", SystemClock{}, onClock}} {
		l := newLimiter(b, benchConfig(c.clock))
		config := benchConfig(c.clock)
		config.Limit, config.Window = 1, time.Hour
		full := newLimiter(b, config)
		require.True(b, full.Allow())
		decisions(b, "call=Allow/deny=0/clock="+c.name, true, c.of, func(n int) int {
			return count(n, func() bool { return l.Allow() })
		})
		decisions(b, "call=Attempt/deny=0/clock="+c.name, true, c.of, func(n int) int {
			return count(n, func() bool { return l.Attempt(1).Allowed })
		})
		decisions(b, "call=Peek/deny=0/clock="+c.name, true, c.of, func(n int) int {
			return count(n, func() bool { return l.Peek(1).Allowed })
		})
		decisions(b, "call=Allow/deny=1/clock="+c.name, false, c.of, func(n int) int {
			return count(n, func() bool { return full.Allow() })
		})
		decisions(b, "call=Attempt/deny=1/clock="+c.name, false, c.of, func(n int) int {
			return count(n, func() bool { return full.Attempt(1).Allowed })
		})
	}
}

func BenchmarkKeyed(b *testing.B) {
	coarse := benchCoarse(b)
	for _, c := range []struct {
		name  string
		clock Clock
		of    parts
	}{{"coarse", coarse, onLoad}, {"system", SystemClock{}, onLoadClock}} {
		k := newKeyed[string](b, KeyedConfig{Config: benchConfig(c.clock), SweepEvery: NoSweep})
		config := benchConfig(c.clock)
		config.Limit, config.Window = 1, time.Hour
		full := newKeyed[string](b, KeyedConfig{Config: config, SweepEvery: NoSweep})
		key := benchKey(0)
		require.True(b, full.Allow(key))
		decisions(b, "call=Allow/keys=1/deny=0/clock="+c.name, true, c.of, func(n int) int {
			return count(n, func() bool { return k.Allow(key) })
		})
		decisions(b, "call=Attempt/keys=1/deny=0/clock="+c.name, true, c.of, func(n int) int {
			return count(n, func() bool { return k.Attempt(key, 1).Allowed })
		})
		decisions(b, "call=Allow/keys=1/deny=1/clock="+c.name, false, c.of, func(n int) int {
			return count(n, func() bool { return full.Allow(key) })
		})
		decisions(b, "call=Attempt/keys=1/deny=1/clock="+c.name, false, c.of, func(n int) int {
			return count(n, func() bool { return full.Attempt(key, 1).Allowed })
		})
		const keys = 100_000
		names := make([]string, keys)
		for i := range names {
			names[i] = benchKey(i)
			require.True(b, k.Allow(names[i]))
		}
		i := 0
		decisions(b, fmt.Sprintf("call=Allow/keys=%d/deny=0/clock=%s", keys, c.name), true, c.of, func(n int) int {
			return count(n, func() bool {
				if i++; i >= keys {
					i = 0
				}
				return k.Allow(names[i])
			})
		})
	}
}

func BenchmarkMemoryStore(b *testing.B) {
	const most, decay = 1<<24 - 1, 100 * time.Millisecond
	s := newStore(b, MemoryStoreConfig{Clock: benchCoarse(b), SweepEvery: NoSweep})
	key := benchKey(0)
	decisions(b, "call=Attempt/deny=0", true, onLoad, func(n int) int {
		return count(n, func() bool {
			allowed, _, _ := s.Attempt(key, most, decay)
			return allowed
		})
	})
	denied := benchKey(1)
	require.True(b, attemptOn(s, denied, 1, time.Hour).allowed)
	decisions(b, "call=Attempt/deny=1", false, onLoad, func(n int) int {
		return count(n, func() bool {
			allowed, _, _ := s.Attempt(denied, 1, time.Hour)
			return allowed
		})
	})
	items := []StoreItem{{key, most, decay, 1}, {"b", most, decay, 1}}
	results := make([]StoreResult, 2)
	decisions(b, "call=AttemptMany/items=2/deny=0", true, onLoad, func(n int) int {
		return count(n, func() bool { return s.AttemptMany(items, results) < 0 })
	})
}

func BenchmarkAttemptAll(b *testing.B) {
	coarse := benchCoarse(b)
	first, second := newLimiter(b, benchConfig(coarse)), newLimiter(b, benchConfig(coarse))
	k := newKeyed[string](b, KeyedConfig{Config: benchConfig(coarse), SweepEvery: NoSweep})
	key := benchKey(0)
	decisions(b, "items=2/keys=0", true, onFloor, func(n int) int {
		return count(n, func() bool {
			_, denier := AttemptAll(first.Item(1), second.Item(1))
			return denier < 0
		})
	})
	decisions(b, "items=3/keys=1", true, onFloor, func(n int) int {
		return count(n, func() bool {
			_, denier := AttemptAll(first.Item(1), second.Item(1), k.Item(key, 1))
			return denier < 0
		})
	})
}

// contended runs calls, each goroutine one of its own, in one and in many
// goroutines a processor, and reports the share of units that were lost.
func contended(b *testing.B, start func() (call func() bool), stats func() Stats) {
	for _, goroutines := range []int{1, 32} {
		b.Run(fmt.Sprintf("procs=%d/goroutines=%d", runtime.GOMAXPROCS(0), goroutines*runtime.GOMAXPROCS(0)), func(b *testing.B) {
			var admitted atomic.Int64
			b.SetParallelism(goroutines)
			b.RunParallel(func(pb *testing.PB) {
				call, n := start(), 0
				for pb.Next() {
					if call() {
						n++
					}
				}
				admitted.Add(int64(n))
			})
			b.ReportMetric(float64(admitted.Load())/float64(b.N), "admitted")
			if now := stats(); now.Admitted > 0 {
				b.ReportMetric(float64(now.Undeposited)/float64(now.Admitted), "undeposited/admitted")
			}
		})
	}
}

func BenchmarkLimiter_Contended(b *testing.B) {
	coarse := benchCoarse(b)
	for _, impl := range implementations {
		b.Run("impl="+impl.name+"/deny=0", func(b *testing.B) {
			l := impl.start(b, benchConfig(coarse))
			contended(b, func() func() bool { return l.Allow }, l.Stats)
		})
		b.Run("impl="+impl.name+"/deny=1", func(b *testing.B) {
			l := impl.start(b, Config{Limit: 1, Window: time.Hour, Clock: coarse})
			require.True(b, l.Allow())
			contended(b, func() func() bool { return l.Allow }, l.Stats)
		})
	}
}

func BenchmarkKeyed_Contended(b *testing.B) {
	coarse := benchCoarse(b)
	for _, keys := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			k := newKeyed[string](b, KeyedConfig{Config: benchConfig(coarse), SweepEvery: NoSweep})
			names := make([]string, keys)
			for i := range names {
				names[i] = benchKey(i)
			}
			contended(b, func() func() bool {
				i := rand.IntN(keys)
				return func() bool {
					if i++; i >= keys {
						i = 0
					}
					return k.Allow(names[i])
				}
			}, k.Stats)
		})
	}
	// Keys that were new one after the other, and are used by one goroutine each.
	b.Run("keys=own", func(b *testing.B) {
		k := newKeyed[string](b, KeyedConfig{Config: benchConfig(coarse), SweepEvery: NoSweep})
		const keys = 64
		for i := range keys {
			require.True(b, k.Allow(benchKey(i)))
		}
		var started atomic.Int64
		contended(b, func() func() bool {
			key := benchKey(int(started.Add(1)) % keys)
			return func() bool { return k.Allow(key) }
		}, k.Stats)
	})
}

// BenchmarkKeyed_NewKey is what the first call of a key costs, and the sweep that
// removes it.
func BenchmarkKeyed_NewKey(b *testing.B) {
	clock := NewManualClock()
	k := newKeyed[int](b, KeyedConfig{Config: benchConfig(clock), SweepEvery: NoSweep})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if !k.Allow(i) {
			b.Fatal("denied")
		}
		if i++; i%100_000 == 0 {
			clock.Advance(time.Hour)
			k.Sweep()
		}
	}
}

// BenchmarkKeyed_NewKeyAtTheCap is what a new key costs where there is no room,
// sweeps for room included. It does not depend on the number of keys.
func BenchmarkKeyed_NewKeyAtTheCap(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			k := newKeyed[int](b, KeyedConfig{
				Config:  Config{Limit: 5, Window: time.Hour},
				MaxKeys: keys, OnFull: DenyNew, SweepEvery: NoSweep,
			})
			for i := range keys {
				require.True(b, k.Allow(i))
			}
			i := keys
			for range 100 * k.table.keys.Shards() {
				i++
				require.False(b, k.Allow(i)) // so that every shard has been swept for room, in vain
			}
			for b.Loop() {
				if i++; k.Allow(i) {
					b.Fatal("admitted")
				}
			}
		})
	}
}

// BenchmarkKeyed_DuringSweep is the slowest of a thousand decisions on a million
// keys, quiet and while they are swept over and over.
func BenchmarkKeyed_DuringSweep(b *testing.B) {
	const keys = 1_000_000
	k := newKeyed[int](b, KeyedConfig{Config: Config{Limit: 1 << 20, Window: time.Hour}, MaxKeys: keys, SweepEvery: NoSweep})
	for i := range keys {
		require.True(b, k.Allow(i))
	}
	for _, sweeping := range []bool{false, true} {
		b.Run(fmt.Sprintf("sweeping=%v", sweeping), func(b *testing.B) {
			var stop atomic.Bool
			done := make(chan int)
			go func() {
				sweeps := 0
				for ; sweeping && !stop.Load(); sweeps++ {
					k.Sweep()
				}
				done <- sweeps
			}()
			took := make([]time.Duration, 0, 1<<20)
			i := 0
			for b.Loop() {
				start := SystemClock{}.Now()
				k.Allow(i * 7919 % keys)
				if took = append(took, SystemClock{}.Now()-start); len(took) == cap(took) {
					took = took[:0]
				}
				i++
			}
			stop.Store(true)
			b.ReportMetric(float64(<-done), "sweeps")
			slices.Sort(took)
			for name, share := range map[string]int{"ns-p50": 500, "ns-p99": 990, "ns-p99.9": 999} {
				b.ReportMetric(float64(took[len(took)*share/1000]), name)
			}
			require.Equal(b, keys, k.Len())
		})
	}
}
