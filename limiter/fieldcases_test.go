package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Faults that users of rate limiters have reported in public, by the number they
// have in docs/field-cases.md, which tells what happened.

// fieldStart starts a rolling limiter and a clock for it.
func fieldStart(t *testing.T, impl implementation, limit uint64, window time.Duration) (rolling, *ManualClock) {
	clock := NewManualClock()
	return impl.start(t, Config{Limit: limit, Window: window, Clock: clock}), clock
}

func TestField01_OlderTimestamp(t *testing.T) {
	for _, limit := range []uint64{1, 2, 10} {
		eachRolling(t, func(t *testing.T, impl implementation) {
			l, clock := fieldStart(t, impl, limit, 10*time.Second)
			admitted := uint64(0)
			for i := range 10_000 {
				clock.Set(time.Duration((i+1)%2) * 100 * time.Millisecond)
				if l.Allow() {
					admitted++
				}
			}
			require.Equal(t, limit, admitted)
		})
		clock := NewManualClock()
		s := newStore(t, MemoryStoreConfig{Clock: clock})
		admitted := uint64(0)
		for i := range 10_000 {
			clock.Set(time.Duration((i+1)%2) * 100 * time.Millisecond)
			if allowed, _, _ := s.Attempt("k", int(limit), 10*time.Second); allowed {
				admitted++
			}
		}
		require.Equal(t, limit, admitted)
	}
}

func TestField02_SimultaneousBurst(t *testing.T) {
	const limit = 25
	for _, used := range []int{0, limit - 1} {
		for range rounds(200) {
			clock := NewManualClock()
			s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 10})
			calls := []func() bool{func() bool { allowed, _, _ := s.Attempt("k", limit, time.Second); return allowed }}
			for _, impl := range implementations {
				calls = append(calls, impl.start(t, Config{Limit: limit, Window: time.Second, Clock: clock}).Allow)
			}
			admitted := make([]atomic.Int64, len(calls))
			for i, call := range calls {
				for range used {
					require.True(t, call())
					admitted[i].Add(1)
				}
			}
			crowd(64, func(int) {
				for i, call := range calls {
					for range 10_000/64 + 1 {
						if call() {
							admitted[i].Add(1)
						}
					}
				}
			})
			for i, call := range calls {
				for call() { // units that were kept for a processor
					admitted[i].Add(1)
				}
				require.Equal(t, int64(limit), admitted[i].Load())
			}
		}
	}
}

func TestField03_SecondGateSpendsNothingOfTheFirst(t *testing.T) {
	config := func(limit uint64) Config {
		return Config{Limit: limit, Window: time.Minute, Clock: NewManualClock()}
	}
	owner := newLimiter(t, config(10))
	keys := newKeyed[string](t, KeyedConfig{Config: config(1)})
	admitted := 0
	for range 9 {
		if _, denier := AttemptAll(owner.Item(1), keys.Item("A", 1)); denier < 0 {
			admitted++
		}
	}
	require.Equal(t, 1, admitted)
	_, denier := AttemptAll(owner.Item(1), keys.Item("B", 1))
	require.Equal(t, -1, denier)
	require.Equal(t, uint64(8), owner.Peek(1).Remaining)
}

func TestField04_RefusedCallsSpendNothing(t *testing.T) {
	clock := NewManualClock()
	group := newLimiter(t, Config{Limit: 10, Window: time.Minute, Clock: clock})
	special := newLimiter(t, Config{Limit: 3, Window: time.Minute, Clock: clock})
	admitted := 0
	for range 5 {
		if _, denier := AttemptAll(group.Item(1), special.Item(1)); denier < 0 {
			admitted++
		}
	}
	require.Equal(t, 3, admitted)
	for range 7 {
		require.True(t, group.Allow())
	}
	require.False(t, group.Allow())
}

func TestField06_LongIdle(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, clock := fieldStart(t, impl, 1, time.Second)
		for range 5 {
			require.True(t, l.Allow())
			clock.Advance(30 * time.Second)
			admitted := 0
			for range 1000 {
				if l.Allow() {
					admitted++
				}
			}
			require.Equal(t, 1, admitted)
			last := clock.Now()
			for range 100 {
				clock.Advance(time.Second)
				for range 10 {
					if l.Allow() {
						require.GreaterOrEqual(t, clock.Now()-last, time.Second)
						last = clock.Now()
					}
				}
				require.LessOrEqual(t, clock.Now()-last, time.Second+100*time.Millisecond)
			}
			clock.Advance(30 * time.Second)
		}
	})
}

// The differential fuzz is TestRolling_AgreesWithModel, with the same random
// schedules for every implementation; this runs one schedule through all of them
// side by side.
func TestField07_OneOracleForAll(t *testing.T) {
	r := newRand(t)
	for range rounds(100) {
		s := randomScript(r, 500)
		seed := r.Uint64()
		for _, impl := range append(implementations, reference) {
			runScript(t, impl.start, s, rand.New(rand.NewPCG(seed, 0)))
		}
	}
}

func TestField08_BurstDoesNotDependOnTheUnit(t *testing.T) {
	for _, window := range []time.Duration{time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		eachRolling(t, func(t *testing.T, impl implementation) {
			l, _ := fieldStart(t, impl, 10, window)
			for range 10 {
				require.True(t, l.Allow())
			}
			require.False(t, l.Allow(), "%v", window)
		})
	}
}

func TestField10_ClockBackAndSweep(t *testing.T) {
	clock := NewManualClock()
	clock.Set(24 * time.Hour)
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Minute, Clock: clock}, SweepEvery: NoSweep})
	require.True(t, k.AttemptLimit("k", 3, 3).Allowed, "a limit of its own")
	s := newStore(t, MemoryStoreConfig{Clock: clock, SweepEvery: NoSweep})
	require.True(t, attemptOn(s, "k", 1, time.Minute).allowed)
	for _, back := range []time.Duration{time.Hour, 24 * time.Hour, 1000 * time.Hour} {
		clock.Set(24*time.Hour - back)
		k.Sweep()
		s.Sweep()
		require.False(t, k.AttemptLimit("k", 1, 3).Allowed)
		require.False(t, k.Allow("k"))
		require.False(t, attemptOn(s, "k", 1, time.Minute).allowed)
		require.Equal(t, 1, k.Len())
		require.Equal(t, 1, s.Len())
	}
}

func TestField11_MonotonicClock(t *testing.T) {
	// In a bubble time.Since is exact and the wall clock another one.
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := newLimiter(t, Config{Limit: 1, Window: time.Second})
		origin := l.clock.Now()
		for _, d := range []time.Duration{0, 1, time.Second, time.Hour} {
			time.Sleep(d)
			require.Equal(t, time.Since(start), l.clock.Now()-origin)
			require.Equal(t, time.Since(start), l.now())
		}
	})
	// And nothing on the way to a decision asks for the wall clock.
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotRegexp(t, `\.Unix(Nano|Micro|Milli)?\(`, string(source), name)
		if name != "clock.go" {
			require.NotContains(t, string(source), "time.Now()", name)
		}
	}
}

// A wait never sleeps longer than a window, whatever the clock does: it then
// looks again. While the clock is behind the limiter stays closed.
func TestField12_ClockBackDuringWait(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		clock := &countingClock{ManualClock: NewManualClock()}
		clock.Set(100 * time.Hour)
		l := impl.start(t, Config{Limit: 1, Window: 10 * time.Second, Clock: clock})
		require.True(t, l.Allow())
		clock.Advance(-24 * time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.WaitN(ctx, 1) }()
		for i := range 3 {
			for clock.Waiters() == 0 {
				runtime.Gosched()
			}
			before := clock.readings.Load()
			clock.Advance(11 * time.Second) // a window and a tick
			for clock.readings.Load() == before {
				runtime.Gosched()
			}
			require.Equal(t, int64(1), clock.readings.Load()-before, "nap %d", i)
		}
		for clock.Waiters() == 0 {
			runtime.Gosched()
		}
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)

		// The other way out: the clock has caught up.
		go func() { done <- l.WaitN(t.Context(), 1) }()
		for clock.Waiters() == 0 {
			runtime.Gosched()
		}
		clock.Set(100*time.Hour + 11*time.Second)
		require.NoError(t, <-done)
	})
}

func TestField13_OldRequestMeetsTurnedTick(t *testing.T) {
	for _, slots := range []int{1, 2, 1000} {
		eachRolling(t, func(t *testing.T, impl implementation) {
			clock := newHookClock()
			l := impl.start(t, Config{Limit: 3, Window: time.Duration(slots) * time.Second, Slots: slots, Clock: clock})
			m := newModel(3, time.Duration(slots)*time.Second, slots)
			for i := range 5 {
				now := clock.ManualClock.Now()
				clock.late(func() {
					clock.Advance(time.Duration(1+i%3) * time.Second)
					require.Equal(t, m.attempt(clock.ManualClock.Now(), 1, true), l.Attempt(1))
				})
				got := l.Attempt(1)
				require.Equal(t, m.attempt(now, 1, true), got, "counted in the newest slot, never lost")
				require.Equal(t, m.attempt(clock.ManualClock.Now(), 1, true), l.Attempt(1))
			}
		})
	}
}

func TestField15_TwiceAtTheEdge(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, clock := fieldStart(t, impl, 100, time.Second)
		clock.Set(900 * time.Millisecond)
		require.True(t, l.AllowN(100))
		clock.Set(1100 * time.Millisecond)
		require.False(t, l.Allow())
	})
	// A fixed window begins with its first hit, and may admit twice max about its
	// end, but no more than that in any interval of its length.
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	var h history
	for range 10_000 {
		clock.Advance(time.Millisecond)
		if attemptOn(s, "k", 100, time.Second).allowed {
			h.admitted = append(h.admitted, event{clock.Now(), clock.Now(), 1})
		}
	}
	require.LessOrEqual(t, h.busiest(time.Second), uint64(200))
	clock.Advance(time.Hour)
	h = history{}
	for i := range 200 {
		require.True(t, attemptOn(s, "edge", 100, time.Second).allowed, "%d", i)
		h.admitted = append(h.admitted, event{clock.Now(), clock.Now(), 1})
		switch i {
		case 0:
			clock.Advance(999 * time.Millisecond)
		case 99:
			clock.Advance(time.Millisecond)
		}
	}
	require.False(t, attemptOn(s, "edge", 100, time.Second).allowed)
	require.Equal(t, uint64(199), h.busiest(time.Second))
}

// The end of a window does not belong to it. A rolling window ends with a tick.
func TestField16_BoundaryInstant(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, clock := fieldStart(t, impl, 1, 10*time.Second)
		require.True(t, l.Allow())
		for _, at := range []time.Duration{10*time.Second - 1, 10 * time.Second, 11*time.Second - 1} {
			clock.Set(at)
			require.False(t, l.Allow())
		}
		clock.Set(11 * time.Second)
		require.True(t, l.Allow())
	})
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	require.True(t, attemptOn(s, "k", 1, 10*time.Second).allowed)
	clock.Set(10*time.Second - 1)
	require.False(t, attemptOn(s, "k", 1, 10*time.Second).allowed)
	clock.Set(10 * time.Second)
	require.True(t, attemptOn(s, "k", 1, 10*time.Second).allowed)

	// Announcements are kept; for the rolling limiter see TestDecision_RetryAfter.
	r := newRand(t)
	for range rounds(10_000) {
		clock.Advance(time.Duration(r.Int64N(int64(time.Second))))
		decay := 1 + time.Duration(r.Int64N(int64(10*time.Second)))
		if a := attemptOn(s, "random", 2, decay); !a.allowed {
			require.Positive(t, a.retryAfter)
			clock.Advance(a.retryAfter - 1)
			require.False(t, attemptOn(s, "random", 2, decay).allowed)
			clock.Advance(1)
			require.True(t, attemptOn(s, "random", 2, decay).allowed)
		}
	}
}

func TestField17_VeryLowRate(t *testing.T) {
	const century = 100 * 8766 * time.Hour
	for _, window := range []time.Duration{century, math.MaxInt64 - 1, math.MaxInt64} {
		eachRolling(t, func(t *testing.T, impl implementation) {
			l, clock := fieldStart(t, impl, 1, window)
			require.True(t, l.Allow())
			for _, now := range []time.Duration{0, time.Hour, century - 1} {
				clock.Set(now)
				d := l.Attempt(1)
				require.False(t, d.Allowed)
				require.Positive(t, d.RetryAfter)
				require.Positive(t, d.ResetAfter)
			}
		})
		s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
		require.True(t, attemptOn(s, "k", 1, window).allowed)
		require.Equal(t, attempt{false, 1, Never}, attemptOn(s, "k", 1, window))
	}
}

func TestField18_HugeParameters(t *testing.T) {
	values := []uint64{1, 1<<31 - 1, 1 << 31, 1 << 32, 1<<62 - 1, 1<<63 - 1, 1 << 63, math.MaxUint64}
	for _, limit := range values {
		for _, window := range []time.Duration{1, 1<<31 - 1, 1 << 31, 1 << 32, math.MaxInt64} {
			clock := NewManualClock()
			config := Config{Limit: limit, Window: window, Clock: clock}
			l, err := New(config)
			if err != nil {
				require.ErrorIs(t, err, ErrConfig)
				continue
			}
			m := newModel(limit, window, DefaultSlots)
			for _, n := range values {
				want, got := m.attempt(clock.Now(), n, true), l.Attempt(n)
				require.Equal(t, want.Allowed, got.Allowed, "%d of %d in %v", n, limit, window)
				require.Equal(t, want.Remaining, got.Remaining, "%d of %d in %v", n, limit, window)
				require.GreaterOrEqual(t, got.ResetAfter, time.Duration(0))
			}
			require.NoError(t, l.Close())
		}
	}
	s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
	for i, limit := range values {
		for j, decay := range values {
			key := fmt.Sprint(i, " ", j)
			before := attemptOn(s, key, int(limit), time.Duration(decay))
			require.Equal(t, int(limit) > 0 && time.Duration(decay) > 0, before.allowed)
			require.GreaterOrEqual(t, before.retryAfter, time.Duration(0))
		}
	}
}

// The state of a key lives as long as its units count: a window at least.
func TestField20_LifetimeOfAKey(t *testing.T) {
	r := newRand(t)
	for range rounds(2000) {
		c := randomScript(r, 0)
		clock := NewManualClock()
		clock.Set(time.Duration(r.Int64N(int64(time.Hour))))
		k := newKeyed[int](t, KeyedConfig{
			Config:  Config{Limit: c.limit, Window: c.window, Slots: c.slots, Clock: clock},
			MaxKeys: 10, SweepEvery: NoSweep,
		})
		s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 10, SweepEvery: NoSweep})
		clock.Advance(time.Duration(r.Int64N(int64(time.Hour))))
		d := k.Attempt(1, 1)
		require.True(t, d.Allowed)
		require.True(t, attemptOn(s, "k", 1, c.window).allowed)
		require.GreaterOrEqual(t, d.ResetAfter, c.window)
		clock.Advance(c.window - 1)
		k.Sweep()
		s.Sweep()
		require.Equal(t, 1, k.Len())
		require.Equal(t, 1, s.Len())
		clock.Advance(max(d.ResetAfter-(c.window-1), time.Millisecond))
		k.Sweep()
		s.Sweep()
		require.Zero(t, k.Len())
		require.Zero(t, s.Len())
	}
}

func TestField21_MoreHitsThanTimeUnits(t *testing.T) {
	for _, c := range []struct {
		limit  uint64
		window time.Duration
		slots  int
		valid  bool
	}{
		{1000, 1, 1, false}, // a window is at least a microsecond a slot
		{1000, time.Microsecond, 1, true},
		{10, 500 * time.Microsecond, 10, true},
		{500_000_000, time.Second, 10, true},
		{2_000_000_000, time.Second, 10, false}, // says what would fit
		{2_000_000_000, time.Second, 1, true},
	} {
		config := Config{Limit: c.limit, Window: c.window, Slots: c.slots}
		if !c.valid {
			_, err := New(config)
			require.ErrorIs(t, err, ErrConfig)
			continue
		}
		eachRolling(t, func(t *testing.T, impl implementation) {
			clock := NewManualClock()
			config.Clock = clock
			l := impl.start(t, config)
			require.True(t, l.AllowN(c.limit))
			require.False(t, l.Allow())
			clock.Advance(c.window)
			require.False(t, l.Allow())
			clock.Advance((c.window-1)/time.Duration(c.slots) + 1)
			require.True(t, l.AllowN(c.limit))
		})
	}
}

func TestField23_ZeroAndNegativeLimits(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, clock := fieldStart(t, impl, 0, time.Second)
		for range 3 {
			require.False(t, l.Allow(), "0 admits nothing")
			require.Equal(t, Decision{Reason: ReasonTooCostly, RetryAfter: Never}, l.Attempt(1))
			require.ErrorIs(t, l.WaitN(t.Context(), 1), ErrCostExceedsLimit)
			clock.Advance(time.Hour)
		}
	})
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 5, Window: time.Second, Clock: clock}})
	for _, n := range []int{0, -1, math.MinInt} {
		require.Equal(t, attempt{false, 0, time.Minute}, attemptOn(s, "k", n, time.Minute))
		require.False(t, k.AttemptLimit(1, 1, uint64(n)).Allowed)
		if n < 0 {
			_, err := New(Config{Limit: uint64(n), Window: time.Second})
			require.ErrorIs(t, err, ErrConfig)
			require.ErrorIs(t, k.SetLimit(uint64(n)), ErrConfig)
		}
		_, err := New(Config{Limit: 1, Window: time.Duration(n)})
		require.ErrorIs(t, err, ErrConfig)
		require.Equal(t, attempt{false, 0, 0}, attemptOn(s, "k", 1, time.Duration(n)))
	}
	require.Zero(t, s.Len())
	require.Zero(t, k.Len())
}

// Limits are whole numbers, so a derived one that was rounded to 0 admits
// nothing and says that no wait helps: at once, not after one.
func TestField24_LimitRoundedToZero(t *testing.T) {
	perServer := 2.9 / 3
	l, _ := fieldStart(t, implementations[0], uint64(perServer), time.Second)
	require.ErrorIs(t, l.WaitN(t.Context(), 1), ErrCostExceedsLimit)
	require.Equal(t, ReasonTooCostly, l.Attempt(1).Reason)
}

func TestField25_CostAboveTheLimit(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, _ := fieldStart(t, impl, 5, time.Second)
		require.True(t, l.AllowN(2))
		minusOne := -1
		for _, n := range []uint64{6, 1 << 40, uint64(minusOne)} {
			require.False(t, l.AllowN(n))
			require.Equal(t, ReasonTooCostly, l.Attempt(n).Reason)
			require.ErrorIs(t, l.WaitN(t.Context(), n), ErrCostExceedsLimit)
		}
		require.True(t, l.AllowN(0))
		require.Equal(t, uint64(3), l.Peek(1).Remaining)
	})
	s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
	results := make([]StoreResult, 1)
	for _, cost := range []int{6, math.MaxInt, -1, math.MinInt} {
		require.Equal(t, 0, s.AttemptMany([]StoreItem{{"k", 5, time.Second, cost}}, results))
	}
	require.Zero(t, s.Len())
}

func TestField27_RefusalsChangeNothing(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, clock := fieldStart(t, impl, 2, 10*time.Second)
		require.True(t, l.Allow())
		clock.Advance(5 * time.Second)
		require.True(t, l.Allow())
		allocations := testing.AllocsPerRun(1, func() {
			for range rounds(1_000_000) {
				if l.Allow() {
					t.Error("admitted")
				}
			}
		})
		if !raceEnabled {
			require.Zero(t, allocations)
		}
		d := l.Peek(1)
		require.Equal(t, Decision{Reason: ReasonLimited, Limit: 2, RetryAfter: 6 * time.Second, ResetAfter: 11 * time.Second}, d)
		clock.Set(11 * time.Second)
		require.True(t, l.Allow())
		require.False(t, l.Allow())
	})
}

func TestField28_RetryingClientIsServed(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		const limit, window = 5, 10 * time.Second
		l, clock := fieldStart(t, impl, limit, window)
		admitted := 0
		for range 10 * window / (10 * time.Millisecond) {
			if l.Allow() {
				admitted++
			}
			clock.Advance(10 * time.Millisecond)
		}
		require.GreaterOrEqual(t, admitted, 9*limit)
		require.LessOrEqual(t, admitted, 10*limit)
	})
}

// There is no Reserve. What can be given back is a charge of a store, once.
func TestField29_RefundGivesBackWhatItTook(t *testing.T) {
	r := newRand(t)
	for range rounds(200) {
		clock := NewManualClock()
		s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 10})
		var held []Charge
		units := 0
		results := make([]StoreResult, 1)
		const most = 10
		for range 100 {
			if r.IntN(2) == 0 {
				item := StoreItem{"k", most, time.Minute, 1 + r.IntN(4)}
				if s.AttemptMany([]StoreItem{item}, results) < 0 {
					held = append(held, results[0].Charge)
					units += item.Cost
				}
				require.Equal(t, units, results[0].Attempts)
			} else if len(held) > 0 {
				i := r.IntN(len(held))
				units -= int(held[i].Cost)
				require.True(t, s.Refund(&held[i]))
				require.False(t, s.Refund(&held[i]), "a second time")
				held = slices.Delete(held, i, i+1)
			}
			require.LessOrEqual(t, units, most)
		}
		for _, c := range held {
			units -= int(c.Cost)
			require.True(t, s.Refund(&c))
		}
		for i := range most {
			require.Equal(t, i+1, attemptOn(s, "k", most, time.Minute).attempts)
		}
		require.False(t, attemptOn(s, "k", most, time.Minute).allowed)
		clock.Advance(time.Minute)
		require.True(t, attemptOn(s, "k", most, time.Minute).allowed)
		for _, c := range held {
			require.False(t, s.Refund(&c), "its window is over")
		}
	}
}

func TestField31_CancelledContextSpendsNothing(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, _ := fieldStart(t, impl, 5, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.WaitN(ctx, 1), context.Canceled)
		require.Equal(t, uint64(5), l.Peek(1).Remaining)
	})
}

func TestField32_DeadlineShorterThanTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Config{Limit: 1, Window: 10 * time.Second})
		require.True(t, l.Allow())
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Wait(ctx)
		require.Zero(t, time.Since(begin), "it fails at once")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrLimited)
		time.Sleep(11 * time.Second)
		require.Equal(t, uint64(1), l.Peek(1).Remaining)
	})
}

func TestField34_WaitPartOfTheWay(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, clock := fieldStart(t, impl, 1, time.Second)
		require.True(t, l.Allow())
		clock.Advance(200 * time.Millisecond)
		require.Equal(t, 900*time.Millisecond, l.Attempt(1).RetryAfter)
	})
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	require.True(t, attemptOn(s, "k", 1, time.Second).allowed)
	clock.Advance(200 * time.Millisecond)
	require.Equal(t, attempt{false, 1, 800 * time.Millisecond}, attemptOn(s, "k", 1, time.Second))
}

// While the machine is suspended the limiter's clock stands still.
func TestField37_SuspendedClock(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, clock := fieldStart(t, impl, 1, time.Minute)
		require.True(t, l.Allow())
		clock.Advance(time.Second) // and eight hours of the wall clock
		d := l.Attempt(1)
		require.False(t, d.Allowed)
		require.Equal(t, 65*time.Second, d.RetryAfter)
		require.Equal(t, 65*time.Second, d.ResetAfter)
	})
}

func TestField38_FirstHitCountsOne(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l, _ := fieldStart(t, impl, 3, time.Second)
		for _, want := range []uint64{2, 1, 0} {
			d := l.Attempt(1)
			require.True(t, d.Allowed)
			require.Equal(t, want, d.Remaining)
		}
		d := l.Attempt(1)
		require.False(t, d.Allowed)
		require.Zero(t, d.Remaining)
	})
	s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
	for want := 1; want <= 3; want++ {
		require.Equal(t, attempt{true, want, time.Second}, attemptOn(s, "k", 3, time.Second))
	}
	require.Equal(t, attempt{false, 3, time.Second}, attemptOn(s, "k", 3, time.Second))
}

func TestField39_ExactlyN(t *testing.T) {
	for n := range uint64(50) {
		eachRolling(t, func(t *testing.T, impl implementation) {
			l, _ := fieldStart(t, impl, n, time.Second)
			for range n {
				require.True(t, l.Allow())
			}
			require.False(t, l.Allow())
		})
		s := newStore(t, MemoryStoreConfig{Clock: NewManualClock(), MaxKeys: 10})
		for range n {
			require.True(t, attemptOn(s, "k", int(n), time.Second).allowed)
		}
		require.False(t, attemptOn(s, "k", int(n), time.Second).allowed)
	}
}

func TestField80_OneTimeKeysGo(t *testing.T) {
	eachSwept(t, func(t *testing.T, start func(Clock, time.Duration) (swept, error)) {
		clock := NewManualClock()
		s, err := start(clock, 5*time.Second)
		require.NoError(t, err)
		defer s.Close()
		for i := range 10_000 {
			require.True(t, s.take(fmt.Sprint(i)))
		}
		require.Equal(t, 10_000, s.Len())
		// Reads and refused traffic do not keep others' keys, nor their own.
		for range 5 {
			clock.Advance(5 * time.Second)
			s.take("0")
		}
		require.LessOrEqual(t, s.Len(), 1)
		clock.Advance(20 * time.Second)
		require.Zero(t, s.Len())
	})
}

// The race itself is TestKeyed_SweepAtExpiry; this holds on to a removed ring.
func TestField82_SweptWhileInUse(t *testing.T) {
	clock := newHookClock()
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 5, Window: 10 * time.Second, Clock: clock}, SweepEvery: NoSweep})
	require.True(t, k.Allow("k"))
	ring, ok := k.table.keys.Load(k.table.keys.Hash("k"), "k")
	require.True(t, ok)
	clock.Set(11*time.Second - 1)
	clock.late(func() { // the caller has decided to look at a ring that is now removed
		clock.Set(11 * time.Second)
		k.Sweep()
	})
	require.True(t, k.AllowN("k", 5))
	require.Zero(t, k.Peek("k", 1).Remaining, "the hit was not lost")
	require.Nil(t, ring.Snapshot(&k.layout), "the old ring is dead")
}

// Sweeps go on whatever the traffic is like: they depend on time alone.
func TestField85_SweepsUnderTraffic(t *testing.T) {
	for _, refused := range []bool{false, true} {
		eachSwept(t, func(t *testing.T, start func(Clock, time.Duration) (swept, error)) {
			clock := NewManualClock()
			s, err := start(clock, 10*time.Second)
			require.NoError(t, err)
			defer s.Close()
			const perWindow = 100
			for i := range 10 * perWindow {
				key := fmt.Sprint("key", i)
				require.True(t, s.take(key))
				if refused {
					require.False(t, s.take(key))
				}
				require.Less(t, s.Len(), 3*perWindow)
				clock.Advance(10 * time.Second / perWindow)
			}
		})
	}
}

func TestField87_ReusedKeyBuffer(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Hour, Clock: clock}})
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	type name string
	named := newKeyed[name](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Hour, Clock: clock}})
	buf := make([]byte, 0, 32)
	n := rounds(100_000)
	for i := range n {
		buf = strconv.AppendInt(buf[:0], int64(i), 10)
		key := unsafe.String(&buf[0], len(buf))
		require.True(t, k.Allow(key))
		require.True(t, named.Allow(name(key)))
		require.True(t, attemptOn(s, key, 1, time.Hour).allowed)
		clear(buf)
	}
	for i := range n {
		key := strconv.Itoa(i)
		require.False(t, k.Allow(key))
		require.False(t, named.Allow(name(key)))
		require.False(t, attemptOn(s, key, 1, time.Hour).allowed)
	}
	require.Equal(t, n, k.Len())
	require.Equal(t, n, s.Len())
}

func TestField89_KeysWithACommonPrefix(t *testing.T) {
	clock := NewManualClock()
	config := KeyedConfig{Config: Config{Limit: 1, Window: time.Hour, Clock: clock}}
	k, login, api := newKeyed[string](t, config), newKeyed[string](t, config), newKeyed[string](t, config)
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	prefix := strings.Repeat("k", 32)
	for i := range 1000 {
		key := prefix + strconv.Itoa(i)
		require.True(t, k.Allow(key))
		require.True(t, attemptOn(s, key, 1, time.Hour).allowed)
	}
	require.True(t, login.Allow(prefix))
	require.True(t, api.Allow(prefix), "another limiter")
}

// A limiter keeps the keys it is given whole: two long keys never meet. Whoever
// lets clients choose keys bounds their length, as the middleware does.
func TestField90_LongKeys(t *testing.T) {
	s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
	long := strings.Repeat("x", 1<<20)
	for _, key := range []string{long, long + "\x00", long[:1<<20-1] + "y", "\xff\xfe", "\n", "", "\r\n"} {
		require.True(t, attemptOn(s, key, 1, time.Hour).allowed)
		require.False(t, attemptOn(s, key, 1, time.Hour).allowed)
	}
	require.Equal(t, 7, s.Len())
}

// Goroutines and timers are in TestLifecycle_Goroutines; this is a reload that
// makes a new limiter each time.
func TestField91_ReloadLeavesNothingBehind(t *testing.T) {
	clock := NewManualClock()
	var k *Keyed[string]
	for range rounds(1000) {
		if k != nil {
			require.NoError(t, k.Close())
		}
		var err error
		k, err = NewKeyed[string](KeyedConfig{Config: Config{Limit: 1, Window: time.Second, Clock: clock}, MaxKeys: 10})
		require.NoError(t, err)
		require.True(t, k.Allow("k"))
		require.Equal(t, 1, clock.Waiters())
	}
	require.NoError(t, k.Close())
	require.NoError(t, k.Close())
	require.Zero(t, clock.Waiters())
	require.False(t, k.Allow("k"))
}

func TestField92_SweepInterval(t *testing.T) {
	clock := NewManualClock()
	for _, every := range []time.Duration{1, -2, math.MinInt64} {
		_, err := NewKeyed[string](KeyedConfig{Config: Config{Limit: 1, Window: time.Second, Clock: clock}, SweepEvery: every})
		require.ErrorIs(t, err, ErrConfig)
		_, err = NewMemoryStore(MemoryStoreConfig{Clock: clock, SweepEvery: every})
		require.ErrorIs(t, err, ErrConfig)
	}
	require.Zero(t, clock.Waiters())
	for _, every := range []time.Duration{0, NoSweep} {
		k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Second, Clock: clock}, SweepEvery: every})
		require.True(t, k.Allow("k"))
	}
	require.Equal(t, 1, clock.Waiters())
}

func TestField93_EverythingAtOnce(t *testing.T) {
	clock := yieldClock{NewManualClock()}
	config := Config{Limit: 10, Window: time.Second, Clock: clock, CountDenied: true}
	l := newLimiter(t, config)
	k := newKeyed[int](t, KeyedConfig{Config: config, MaxKeys: 20, SweepEvery: time.Second})
	s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 20, SweepEvery: time.Second})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	crowd(64, func(i int) {
		r := rand.New(rand.NewPCG(uint64(i), 0))
		results := make([]StoreResult, 2)
		for range rounds(2000) {
			key := r.IntN(40)
			switch r.IntN(16) {
			case 0:
				l.Allow()
				k.Allow(key)
			case 1:
				l.Attempt(r.Uint64N(12))
				k.Attempt(key, r.Uint64N(12))
			case 2:
				l.Peek(1)
				k.Peek(key, 1)
			case 3:
				limit := 5 + r.Uint64N(10)
				if err := errors.Join(l.SetLimit(limit), k.SetLimit(limit)); err != nil {
					t.Error(err)
				}
			case 4:
				l.Stats()
				k.Stats()
				s.Stats()
			case 5:
				k.Sweep()
				s.Sweep()
			case 6:
				k.Forget(key)
			case 7:
				clock.Advance(time.Duration(r.Int64N(int64(time.Second / 8))))
			case 8:
				AttemptAll(l.Item(1), k.Item(key, 2), k.ItemLimit(key+1, 1, 3))
			case 9:
				k.AttemptLimit(key, 1, r.Uint64N(20))
			case 10:
				if s.AttemptMany([]StoreItem{{strconv.Itoa(key), 5, time.Second, 1}, {"k", 1000, time.Second, 2}}, results) < 0 {
					s.Refund(&results[0].Charge)
				}
			case 11:
				s.Attempt(strconv.Itoa(key), 3, time.Second)
			case 12:
				if err := l.Wait(cancelled); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case 13:
				if r.IntN(100) == 0 {
					k.Close()
					s.Close()
				}
			}
		}
	})
	require.LessOrEqual(t, k.Len(), 20)
	require.LessOrEqual(t, s.Len(), 20)
}

func TestField98_ReloadKeepsCounts(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		start := func(used uint64) rolling {
			l, _ := fieldStart(t, impl, 100, time.Minute)
			require.True(t, l.AllowN(used))
			return l
		}
		l := start(50)
		require.NoError(t, l.SetLimit(100))
		require.Equal(t, uint64(50), l.Peek(1).Remaining, "the same values")
		require.NoError(t, l.SetLimit(10))
		require.False(t, l.Allow())
		l = start(10)
		require.NoError(t, l.SetLimit(10))
		require.NoError(t, l.SetLimit(100))
		require.Equal(t, uint64(90), l.Peek(1).Remaining)
	})
	// For all keys at once, those that exist too.
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 100, Window: time.Minute, Clock: NewManualClock()}})
	for key := range 100 {
		require.True(t, k.AllowN(key, 50))
	}
	require.NoError(t, k.SetLimit(10))
	for key := range 100 {
		require.False(t, k.Allow(key))
	}
	require.True(t, k.AllowN(1000, 10))
	require.False(t, k.Allow(1000))
}

// The first window wins: it lasts as long as its first hit asked for.
func TestField100_ChangingDecay(t *testing.T) {
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	require.True(t, attemptOn(s, "k", 1, time.Hour).allowed)
	clock.Advance(time.Minute)
	require.Equal(t, attempt{false, 1, 59 * time.Minute}, attemptOn(s, "k", 1, time.Second))
	clock.Advance(59 * time.Minute)
	require.Equal(t, attempt{true, 1, time.Second}, attemptOn(s, "k", 1, time.Second))
}

func TestField114_ErrorsCanBeToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Config{Limit: 1, Window: 10 * time.Second})
		k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 1, Window: 10 * time.Second}, MaxKeys: 1, OnFull: DenyNew})
		require.True(t, l.Allow())
		require.True(t, k.Allow(1))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, config := New(Config{})
		limited, costly, full := l.Wait(short), l.WaitN(t.Context(), 2), k.Wait(t.Context(), 2)
		require.NoError(t, l.Close())
		closed := l.Wait(t.Context())
		sentinels := []error{ErrConfig, ErrLimited, ErrCostExceedsLimit, ErrFull, ErrClosed}
		for i, err := range []error{config, limited, costly, full, closed} {
			for j, sentinel := range sentinels {
				require.Equal(t, i == j, errors.Is(err, sentinel), "%v is %v", err, sentinel)
			}
		}
		var e *LimitedError
		require.ErrorAs(t, limited, &e)
		require.Equal(t, 11*time.Second, e.RetryAfter)
	})
}

// caseNumbers are the numbers of the reports that were collected.
var caseNumbers = []int{
	1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 18, 20, 21, 23, 24, 25, 27, 28, 29, 31, 32, 34, 37, 38, 39, 40, 42,
	43, 44, 46, 47, 49, 50, 51, 52, 54, 55, 57, 58, 59, 60, 62, 64, 65, 67, 68, 69, 71, 72, 73, 75, 76, 77, 79,
	80, 82, 84, 85, 87, 89, 90, 91, 92, 93, 95, 96, 98, 100, 114, 116, 117, 119, 120,
}

// TestFieldCases_Table: the table lists every case in order, every test that it
// names is there, and every test of a case is named.
func TestFieldCases_Table(t *testing.T) {
	const root = ".."
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			tests[m[1]] = true
		}
		return err
	}))

	table, err := os.ReadFile(filepath.Join(root, "docs", "field-cases.md"))
	require.NoError(t, err)
	var numbers []int
	named := map[string]bool{}
	quoted := regexp.MustCompile("`((?:Test|Benchmark|Fuzz)\\w+)(\\*?)`")
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 {
			continue
		}
		number, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue // the head
		}
		numbers = append(numbers, number)
		refs := quoted.FindAllStringSubmatch(cells[4], -1)
		if len(refs) == 0 {
			require.Contains(t, cells[4], "not offered", "case %d has neither a test nor a reason", number)
		}
		for _, ref := range refs {
			found := false
			for test := range tests {
				if test == ref[1] || ref[2] == "*" && strings.HasPrefix(test, ref[1]) {
					named[test], found = true, true
				}
			}
			require.True(t, found, "case %d names %s, which is not there", number, ref[0])
		}
	}
	require.Equal(t, caseNumbers, numbers)
	for test := range tests {
		require.True(t, named[test] || !regexp.MustCompile(`^TestField\d`).MatchString(test), "no case names %s", test)
	}
}
