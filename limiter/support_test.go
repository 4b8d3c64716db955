package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A rolling is one limit, however it is kept. Concurrency tests are written on
// it, so that every implementation goes through all of them.
type rolling interface {
	Allow() bool
	AllowN(n uint64) bool
	Attempt(n uint64) Decision
	Peek(n uint64) Decision
	WaitN(ctx context.Context, n uint64) error
	SetLimit(limit uint64) error
	Stats() Stats
}

// An implementation makes one.
type implementation struct {
	name  string
	start func(tb testing.TB, config Config) rolling
	// hoards is set if units can be in the hands of a call under way, or kept for
	// a processor, so that others are denied while some are left.
	hoards bool
}

// implementations are those of this package.
var implementations = []implementation{
	{"Limiter", func(tb testing.TB, config Config) rolling { return newLimiter(tb, config) }, true},
	{"Limiter/NoCredits", func(tb testing.TB, config Config) rolling {
		config.NoCredits = true
		return newLimiter(tb, config)
	}, false},
	{"Keyed", func(tb testing.TB, config Config) rolling {
		return oneKey{newKeyed[string](tb, KeyedConfig{Config: config, SweepEvery: NoSweep}), "key"}
	}, false},
	{"Keyed/overflow", func(tb testing.TB, config Config) rolling { return newOverflowKey(tb, config) }, false},
}

// together is a limit that is charged with another one like it, by AttemptAll.
// A denied call then turns no tick, so that it does not agree with the model.
var together = implementation{"AttemptAll", func(tb testing.TB, config Config) rolling { return newPair(tb, config) }, true}

// reference is the model under a lock. It shows that a test asks for nothing
// impossible.
var reference = implementation{"mutex", func(tb testing.TB, config Config) rolling { return newMutexModel(tb, config) }, false}

// eachRolling runs f for every implementation, and for those that are added.
func eachRolling(t *testing.T, f func(t *testing.T, impl implementation), added ...implementation) {
	for _, impl := range append(added, implementations...) {
		t.Run("impl="+impl.name, func(t *testing.T) { f(t, impl) })
	}
}

// oneKey is one key of a Keyed.
type oneKey struct {
	*Keyed[string]
	key string
}

func (o oneKey) Allow() bool                               { return o.Keyed.Allow(o.key) }
func (o oneKey) AllowN(n uint64) bool                      { return o.Keyed.AllowN(o.key, n) }
func (o oneKey) Attempt(n uint64) Decision                 { return o.Keyed.Attempt(o.key, n) }
func (o oneKey) Peek(n uint64) Decision                    { return o.Keyed.Peek(o.key, n) }
func (o oneKey) WaitN(ctx context.Context, n uint64) error { return o.Keyed.WaitN(ctx, o.key, n) }

// newOverflowKey returns a key that has to share an overflow state, since
// another key takes the only place for as long as it has units counted.
func newOverflowKey(tb testing.TB, config Config) oneKey {
	k := newKeyed[string](tb, KeyedConfig{Config: config, MaxKeys: 1, SweepEvery: NoSweep})
	k.table.count.Add(1) // a key that never goes
	return oneKey{k, "key"}
}

// A pair is a limit, and another one that is charged with it.
type pair struct {
	*Limiter
	other *Keyed[int]
}

func newPair(tb testing.TB, config Config) pair {
	return pair{newLimiter(tb, config), newKeyed[int](tb, KeyedConfig{Config: config, SweepEvery: NoSweep})}
}

func (p pair) Allow() bool          { return p.AllowN(1) }
func (p pair) AllowN(n uint64) bool { return p.Attempt(n).Allowed }

func (p pair) Attempt(n uint64) Decision {
	d, _ := AttemptAll(p.Limiter.Item(n), p.other.Item(0, n))
	return d
}

func (p pair) SetLimit(limit uint64) error {
	return errors.Join(p.Limiter.SetLimit(limit), p.other.SetLimit(limit))
}

func newLimiter(tb testing.TB, config Config) *Limiter {
	tb.Helper()
	l, err := New(config)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, l.Close()) })
	return l
}

func newKeyed[K comparable](tb testing.TB, config KeyedConfig) *Keyed[K] {
	tb.Helper()
	k, err := NewKeyed[K](config)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, k.Close()) })
	return k
}

func newStore(tb testing.TB, config MemoryStoreConfig) *MemoryStore {
	tb.Helper()
	s, err := NewMemoryStore(config)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// A hookClock is a manual clock on which a test can make a caller late: hook,
// if there is one, runs once, after the next reading was taken and before the
// caller gets it.
type hookClock struct {
	*ManualClock
	hook atomic.Pointer[func()]
}

func newHookClock() *hookClock { return &hookClock{ManualClock: NewManualClock()} }

// late lets f happen between the next reading and what its caller does with it.
func (c *hookClock) late(f func()) { c.hook.Store(&f) }

func (c *hookClock) Now() time.Duration {
	now := c.ManualClock.Now()
	if f := c.hook.Swap(nil); f != nil {
		(*f)()
	}
	return now
}

// A yieldClock is a manual clock that makes late callers: in one of four calls
// it lets others run between the reading and the return.
type yieldClock struct{ *ManualClock }

func (c yieldClock) Now() time.Duration {
	now := c.ManualClock.Now()
	if rand.Uint32()&3 == 0 {
		runtime.Gosched()
	}
	return now
}

// A countingClock counts its readings.
type countingClock struct {
	*ManualClock
	readings atomic.Int64
}

func (c *countingClock) Now() time.Duration {
	c.readings.Add(1)
	return c.ManualClock.Now()
}

// A staleClock is a manual clock whose readings are up to resolution old, at
// random. They never go back.
type staleClock struct {
	*ManualClock
	resolution time.Duration
	mu         sync.Mutex
	last       time.Duration
	rand       *rand.Rand
}

func newStaleClock(resolution time.Duration, seed uint64) *staleClock {
	return &staleClock{ManualClock: NewManualClock(), resolution: resolution, rand: rand.New(rand.NewPCG(seed, 1))}
}

func (c *staleClock) Resolution() time.Duration { return c.resolution }

func (c *staleClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.ManualClock.Now()
	c.last = max(c.last, now-time.Duration(c.rand.Int64N(int64(c.resolution)+1)))
	return c.last
}

// seedOf returns the seed of a test with random input: RINGFENCE_SEED, or a new
// one. A test that fails shows it.
func seedOf(tb testing.TB) uint64 {
	tb.Helper()
	seed := rand.Uint64()
	if s, ok := os.LookupEnv("RINGFENCE_SEED"); ok {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(tb, err, "RINGFENCE_SEED is %q", s)
	}
	tb.Logf("RINGFENCE_SEED=%d", seed)
	return seed
}

// newRand returns a source of random numbers with the seed of seedOf.
func newRand(tb testing.TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(seedOf(tb), 0))
}

// rounds returns n, or fewer under the race detector and with -short.
func rounds(n int) int {
	if raceEnabled {
		n /= 10
	}
	if testing.Short() {
		n /= 10
	}
	return max(n, 1)
}

// eachProcs runs f with GOMAXPROCS 1, 2, 4 and 8.
func eachProcs(t *testing.T, f func(t *testing.T)) {
	for _, procs := range []int{1, 2, 4, 8} {
		t.Run(fmt.Sprintf("procs=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			f(t)
		})
	}
}

// crowd runs f in n goroutines that one barrier releases, and waits for all.
func crowd(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	open := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-open
			f(i)
		})
	}
	ready.Wait()
	close(open)
	done.Wait()
}

// goroutinesSettle waits until no more than n goroutines are left, yielding the
// processor in between, and reports whether that came true.
func goroutinesSettle(n int) bool {
	for range 100_000 {
		if runtime.NumGoroutine() <= n {
			return true
		}
		runtime.Gosched()
	}
	return false
}

// heap returns the bytes in use on the heap after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers and weak pointers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
