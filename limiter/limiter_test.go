package limiter

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRolling_EdgeOfWindow: what is taken at the end of one tick still counts
// when, as many ticks later as there are slots, less than a window has passed.
func TestRolling_EdgeOfWindow(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		for _, slots := range []int{1, 2, 10, 60} {
			clock := NewManualClock()
			window := time.Duration(slots) * time.Second
			l := impl.start(t, Config{Limit: 5, Window: window, Slots: slots, Clock: clock})
			clock.Set(time.Second - 1)
			require.True(t, l.AllowN(5))
			clock.Set(window) // a nanosecond more than a window less a tick
			require.False(t, l.Allow(), "%d slots", slots)
			clock.Set(window + time.Second - 1) // a window
			require.False(t, l.Allow(), "%d slots", slots)
			clock.Set(window + time.Second)
			require.True(t, l.AllowN(5), "%d slots", slots)
		}
	}, reference, together)
}

// TestRolling_SetLimit: what was used stays used.
func TestRolling_SetLimit(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		clock := NewManualClock()
		start := func() rolling {
			return impl.start(t, Config{Limit: 10, Window: 10 * time.Second, Clock: clock})
		}
		l := start()
		require.True(t, l.AllowN(4))
		clock.Advance(time.Second)
		require.True(t, l.AllowN(3))
		require.NoError(t, l.SetLimit(2)) // 7 used
		d := l.Attempt(1)
		require.Equal(t, Decision{Reason: ReasonLimited, Limit: 2, RetryAfter: 11 * time.Second, ResetAfter: 11 * time.Second}, d)
		require.Equal(t, Decision{Reason: ReasonTooCostly, Limit: 2, RetryAfter: Never, ResetAfter: 11 * time.Second}, l.Attempt(3))
		require.Equal(t, Decision{Reason: ReasonLimited, Limit: 2, RetryAfter: 11 * time.Second, ResetAfter: 11 * time.Second}, l.Attempt(0), "more than the limit is used")
		require.False(t, l.AllowN(0))
		clock.Advance(10 * time.Second) // 3 used
		require.Equal(t, Decision{Reason: ReasonLimited, Limit: 2, RetryAfter: time.Second, ResetAfter: time.Second}, l.Attempt(2))
		require.NoError(t, l.SetLimit(4))
		require.Equal(t, uint64(1), l.Peek(1).Remaining)
		require.True(t, l.Allow())
		require.False(t, l.Allow())

		l = start()
		require.True(t, l.AllowN(2))
		require.NoError(t, l.SetLimit(2))
		require.False(t, l.Allow())
		require.NoError(t, l.SetLimit(10)) // 2 used
		require.Equal(t, uint64(8), l.Peek(1).Remaining)
		require.NoError(t, l.SetLimit(10))
		require.True(t, l.AllowN(8))
		require.NoError(t, l.SetLimit(0))
		require.False(t, l.Allow())
	}, reference)
}

// TestRolling_Unlimited: nothing is counted without a limit, and what was
// counted before is back with the limit.
func TestRolling_Unlimited(t *testing.T) {
	for _, impl := range implementations {
		clock := NewManualClock()
		l := impl.start(t, Config{Limit: 5, Window: 10 * time.Second, Clock: clock})
		require.True(t, l.AllowN(3))
		require.NoError(t, l.SetLimit(Unlimited))
		for _, n := range []uint64{0, 1, 1 << 40, math.MaxUint64} {
			require.True(t, l.AllowN(n))
			require.NoError(t, l.WaitN(t.Context(), n))
			want := Decision{Allowed: true, Reason: ReasonUnlimited, Limit: Unlimited, Remaining: Unlimited}
			require.Equal(t, want, l.Attempt(n))
			require.Equal(t, want, l.Peek(n))
		}
		require.NoError(t, l.SetLimit(5))
		require.Equal(t, uint64(2), l.Peek(1).Remaining)
	}
}

// TestRolling_SetLimitErrors: a limit that does not fit changes nothing.
func TestRolling_SetLimitErrors(t *testing.T) {
	for _, impl := range implementations {
		l := impl.start(t, Config{Limit: 5, Window: time.Second, Clock: NewManualClock()})
		for _, limit := range []uint64{1 << 29, Unlimited - 1, Unlimited + 1, math.MaxInt64, 1 << 63, math.MaxUint64 - 1, math.MaxUint64} {
			err := l.SetLimit(limit)
			require.ErrorIs(t, err, ErrConfig)
			require.ErrorContains(t, err, "Limit is ")
			require.Equal(t, uint64(5), l.Peek(1).Limit, "%s: %d", impl.name, limit)
		}
		require.NoError(t, l.SetLimit(1<<29-1))
		require.True(t, l.AllowN(1<<29-1))
		require.False(t, l.Allow())
	}
}

// TestRolling_SetLimitConcurrent: while the limit goes up and down under load,
// no interval holds more than the largest, and a call begun after SetLimit has
// returned sees the new limit.
func TestRolling_SetLimitConcurrent(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		eachProcs(t, func(t *testing.T) {
			const most, window = 20, 10 * time.Second
			c := newCourse(0, 0, rounds(2000), seedOf(t))
			l := impl.start(t, Config{Limit: most, Window: window, Clock: c})
			stop := make(chan struct{})
			var changes sync.WaitGroup
			var own history
			changes.Go(func() {
				for i := uint64(0); ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					limit := most - i%(most+1)
					if err := l.SetLimit(limit); err != nil {
						t.Error(err)
					}
					from := c.at.Load()
					d := l.Attempt(1)
					if d.Limit != limit {
						t.Errorf("the limit is %d after it was set to %d", d.Limit, limit)
					}
					if d.Allowed {
						low, high := c.during(from)
						own.admitted = append(own.admitted, event{low, high, 1})
					}
					if l.AllowN(limit + 1) {
						t.Errorf("%d of %d admitted", limit+1, limit)
					}
					runtime.Gosched()
				}
			})
			h := c.run(l, most, 8, 2*window/10)
			close(stop)
			changes.Wait()
			h.add(own)
			require.LessOrEqual(t, h.busiest(window), uint64(most))
			require.NotZero(t, h.units())
		})
	}, reference)
}

// TestRolling_LoweredLimit: over a window that begins when SetLimit has returned,
// no more than the lower limit is admitted, be there units kept for processors or
// not.
func TestRolling_LoweredLimit(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		eachProcs(t, func(t *testing.T) {
			for round := range rounds(200) {
				clock := yieldClock{NewManualClock()}
				l := impl.start(t, Config{Limit: 1000, Window: 10 * time.Second, Clock: clock})
				var lowered atomic.Bool
				var before, after atomic.Uint64
				crowd(8, func(i int) {
					if i == 0 {
						for before.Load() < 100 {
							l.Allow()
							before.Add(1)
						}
						if err := l.SetLimit(50); err != nil {
							t.Error(err)
						}
						lowered.Store(true)
						return
					}
					for range 300 {
						low := lowered.Load()
						if !l.Allow() {
							continue
						}
						before.Add(1)
						if low {
							after.Add(1)
						}
					}
				})
				require.Zero(t, after.Load(), "round %d: %d were admitted before", round, before.Load())
			}
		})
	})
}

// TestLimiter_LateLimit: a call that reads the clock after SetLimit has the new limit.
func TestLimiter_LateLimit(t *testing.T) {
	clock := newHookClock()
	l := newLimiter(t, Config{Limit: 100, Window: 10 * time.Second, Clock: clock})
	clock.late(func() { // between the first look at the limit and what is done with the reading
		require.NoError(t, l.SetLimit(10))
		require.True(t, l.AllowN(10))
	})
	require.False(t, l.Allow(), "held to a limit from before its reading")
	// SetLimit reads the clock once the limit is in place: who read the old one read the clock before.
	clock.late(func() { require.Equal(t, uint64(5), l.Peek(1).Limit) })
	require.NoError(t, l.SetLimit(5))
	require.Nil(t, clock.hook.Load())
}

// TestLimiter_CountsReadings: a decision reads the clock once, whatever it is.
func TestLimiter_CountsReadings(t *testing.T) {
	clock := &countingClock{ManualClock: NewManualClock()}
	config := Config{Limit: 2, Window: time.Second, Clock: clock}
	l := newLimiter(t, config)
	k := newKeyed[string](t, KeyedConfig{Config: config, MaxKeys: 1, SweepEvery: NoSweep})
	s := newStore(t, MemoryStoreConfig{Clock: clock, SweepEvery: NoSweep})
	free := newLimiter(t, Config{Limit: Unlimited, Window: time.Second, Clock: clock})
	ctx := context.Background()
	items := []StoreItem{{Key: "a", Max: 2, Decay: time.Second}, {Key: "b", Max: 2, Decay: time.Second}}
	results := make([]StoreResult, 2)
	for range 3 { // a new key, a key that exists, one that is denied
		for name, c := range map[string]struct {
			call func()
			want int64
		}{
			"Limiter.Allow":      {func() { l.Allow() }, 1},
			"Limiter.AllowN":     {func() { l.AllowN(2) }, 1},
			"Limiter.Attempt":    {func() { l.Attempt(1) }, 1},
			"Limiter.Attempt(0)": {func() { l.Attempt(0) }, 1},
			"Limiter.Peek":       {func() { l.Peek(1) }, 1},
			"Limiter.SetLimit":   {func() { require.NoError(t, l.SetLimit(2)) }, 0},
			"Limiter.Stats":      {func() { l.Stats() }, 0},
			"Keyed.Allow":        {func() { k.Allow("a") }, 1},
			"Keyed.Allow/shared": {func() { k.Allow("b") }, 1},
			"Keyed.Attempt":      {func() { k.Attempt("a", 1) }, 1},
			"Keyed.AttemptLimit": {func() { k.AttemptLimit("a", 1, 5) }, 1},
			"Keyed.Peek":         {func() { k.Peek("a", 1) }, 1},
			"Keyed.Peek/absent":  {func() { k.Peek("c", 1) }, 1},
			"Keyed.Len":          {func() { k.Len() }, 0},
			"Keyed.Stats":        {func() { k.Stats() }, 0},
			"Keyed.Sweep":        {func() { k.Sweep() }, 1},
			"Keyed.Forget":       {func() { k.Forget("a") }, 0},
			"Store.Attempt":      {func() { s.Attempt("a", 2, time.Second) }, 1},
			"Store.AttemptMany":  {func() { s.AttemptMany(items, results) }, 1},
			"Store.Refund":       {func() { s.Refund(&results[0].Charge) }, 0},
			"Store.Sweep":        {func() { s.Sweep() }, 1},
			"unlimited":          {func() { free.Attempt(1); free.Allow(); free.Peek(1) }, 0},
			"AttemptAll":         {func() { AttemptAll(free.Item(1), l.Item(0), k.Item("a", 1), k.Item("b", 1), k.Item("a", 1)) }, 3},
		} {
			clock.readings.Store(0)
			c.call()
			require.Equal(t, c.want, clock.readings.Load(), name)
		}
	}
	clock.Advance(time.Hour)
	clock.readings.Store(0)
	require.NoError(t, l.Wait(ctx))
	require.NoError(t, k.Wait(ctx, "z"))
	require.Equal(t, int64(2), clock.readings.Load(), "waits that need not sleep")
}

// TestLimiter_Origins: a limiter works the same wherever its clock began.
func TestLimiter_Origins(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, origin := range []time.Duration{0, 56 * year, -10 * year, 290 * year, -290 * year, math.MinInt64, math.MaxInt64 - 100*time.Second} {
		eachRolling(t, func(t *testing.T, impl implementation) {
			clock := NewManualClock()
			clock.Set(origin)
			l := impl.start(t, Config{Limit: 2, Window: 10 * time.Second, Clock: clock})
			for round := range 5 {
				require.True(t, l.AllowN(2), "round %d from %v", round, origin)
				d := l.Attempt(1)
				require.Equal(t, Decision{Reason: ReasonLimited, Limit: 2, RetryAfter: 11 * time.Second, ResetAfter: 11 * time.Second}, d, "from %v", origin)
				clock.Advance(11*time.Second - 1)
				require.False(t, l.Allow())
				clock.Advance(1)
			}
		}, reference)
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Config{Limit: 2, Window: 10 * time.Second})
		for range 5 {
			require.True(t, l.AllowN(2))
			time.Sleep(11*time.Second - 1)
			require.False(t, l.Allow())
			time.Sleep(time.Nanosecond)
		}
	})
}

// TestLimiter_EndOfTime: when the epochs have run out, after 30 years or more, a
// limiter is too strict and stays so; it neither wraps nor loops.
func TestLimiter_EndOfTime(t *testing.T) {
	const year = 365 * 24 * time.Hour
	eachRolling(t, func(t *testing.T, impl implementation) {
		clock := NewManualClock()
		l := impl.start(t, Config{Limit: 2, Window: time.Millisecond, Clock: clock})
		clock.Set(29 * year)
		require.True(t, l.AllowN(2))
		clock.Advance(2 * time.Millisecond)
		require.True(t, l.AllowN(2))
		clock.Set(290 * year)
		require.True(t, l.AllowN(2))
		for _, now := range []time.Duration{291 * year, math.MaxInt64 - 1, math.MaxInt64, 0} {
			clock.Set(now)
			d := l.Attempt(1)
			require.False(t, d.Allowed)
			require.Equal(t, Never, d.RetryAfter)
		}
	})
}

// TestLimiter_BackwardAndLate: the stats tell how often a reading was older than
// the epoch of the decision, and by more than a tick.
func TestLimiter_BackwardAndLate(t *testing.T) {
	for _, impl := range implementations {
		clock := NewManualClock()
		l := impl.start(t, Config{Limit: 10, Window: 10 * time.Second, Clock: clock})
		clock.Set(20 * time.Second)
		l.Allow()
		clock.Set(20*time.Second - 1) // the tick before
		l.Allow()
		clock.Set(18 * time.Second)
		l.Allow()
		l.Attempt(1)
		clock.Set(0)
		l.Attempt(20)
		stats := l.Stats()
		require.Equal(t, uint64(3), stats.Late, impl.name)
		require.Equal(t, uint64(2), stats.Backward, impl.name)
	}
}

// TestRolling_Admitted: the units of closed sub-windows are added up.
func TestRolling_Admitted(t *testing.T) {
	for _, impl := range implementations {
		clock := NewManualClock()
		l := impl.start(t, Config{Limit: 100, Window: 10 * time.Second, Clock: clock})
		var admitted uint64
		for i := range uint64(50) {
			require.Equal(t, admitted, l.Stats().Admitted, "%s: tick %d", impl.name, i)
			require.True(t, l.AllowN(1+i%4))
			require.True(t, l.Attempt(2).Allowed)
			l.AllowN(100)
			admitted += 3 + i%4
			clock.Advance(time.Second)
			l.AllowN(100) // turns the tick
		}
	}
}

// TestRolling_CountDenied: denials are counted only if that is asked for.
func TestRolling_CountDenied(t *testing.T) {
	for _, count := range []bool{false, true} {
		for _, impl := range implementations {
			l := impl.start(t, Config{Limit: 2, Window: time.Second, Clock: NewManualClock(), CountDenied: count})
			require.True(t, l.AllowN(2))
			crowd(4, func(int) {
				for range 100 {
					l.Allow()
					l.Attempt(1)
					l.AllowN(3)
					l.Attempt(3)
					l.Peek(1)
				}
			})
			require.NoError(t, l.SetLimit(1))
			l.AllowN(0)
			l.Attempt(0)
			want := uint64(0)
			if count {
				want = 4*100*4 + 2
			}
			require.Equal(t, want, l.Stats().Denied, impl.name)
		}
	}
}

// hookedClock calls its hook during the next reading, and no other one.
type hookedClock struct {
	*ManualClock
	hook func()
}

func (c *hookedClock) Now() time.Duration {
	if hook := c.hook; hook != nil {
		c.hook = nil
		hook()
	}
	return c.ManualClock.Now()
}

// TestLimiter_LoweredDuringTheReading: a call that reads the clock while the limit
// is lowered is held to the lower one, as those with credits have to be: it may
// have been held up there for any time.
func TestLimiter_LoweredDuringTheReading(t *testing.T) {
	for name, call := range map[string]func(l *Limiter) bool{
		"AllowN":     func(l *Limiter) bool { return l.AllowN(8) },
		"Attempt":    func(l *Limiter) bool { return l.Attempt(8).Allowed },
		"WaitN":      func(l *Limiter) bool { return l.WaitN(context.Background(), 8) == nil },
		"AttemptAll": func(l *Limiter) bool { d, _ := AttemptAll(l.Item(8)); return d.Allowed },
	} {
		clock := &hookedClock{ManualClock: NewManualClock()}
		l := newLimiter(t, Config{Limit: 10, Window: time.Second, Clock: clock})
		clock.hook = func() { require.NoError(t, l.SetLimit(5)) }
		require.False(t, call(l), name)
		require.Nil(t, clock.hook, name)
		d := l.Attempt(0)
		require.Equal(t, Decision{Allowed: true, Reason: ReasonAdmitted, Limit: 5, Remaining: 5}, d, name)
	}
	clock := &hookedClock{ManualClock: NewManualClock()}
	l := newLimiter(t, Config{Limit: 10, Window: time.Second, Clock: clock})
	lower := func() { require.NoError(t, l.SetLimit(5)) }
	clock.hook = lower
	require.Equal(t, Decision{Reason: ReasonTooCostly, Limit: 5, Remaining: 5, RetryAfter: Never}, l.Attempt(8))
	require.NoError(t, l.SetLimit(10))
	clock.hook = lower
	require.ErrorIs(t, l.WaitN(context.Background(), 8), ErrCostExceedsLimit)
}
