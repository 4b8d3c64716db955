package limiter

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// eachWaiting runs f in a bubble, on the system clock, for every implementation.
func eachWaiting(t *testing.T, f func(t *testing.T, start func(limit uint64, window time.Duration) rolling)) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		synctest.Test(t, func(t *testing.T) {
			f(t, func(limit uint64, window time.Duration) rolling {
				return impl.start(t, Config{Limit: limit, Window: window, Clock: SystemClock{}})
			})
		})
	}, reference)
}

// TestWait_RightMoment: a wait ends at the first instant at which the units fit,
// to the nanosecond, and not at once where others were faster.
func TestWait_RightMoment(t *testing.T) {
	eachWaiting(t, func(t *testing.T, start func(uint64, time.Duration) rolling) {
		l := start(3, 10*time.Second)
		begin := time.Now()
		at := func(want time.Duration) {
			t.Helper()
			require.Equal(t, want, time.Since(begin))
		}
		ctx := t.Context()
		require.NoError(t, l.WaitN(ctx, 2))
		time.Sleep(1500 * time.Millisecond)
		require.NoError(t, l.WaitN(ctx, 1))
		at(1500 * time.Millisecond)
		require.NoError(t, l.WaitN(ctx, 1))
		at(11 * time.Second)
		require.NoError(t, l.WaitN(ctx, 2)) // one has to expire that was taken at 1.5 s
		at(12 * time.Second)
		require.NoError(t, l.WaitN(ctx, 3))
		at(23 * time.Second)
	})
}

// TestWait_DoesNotPoll: a wait, however long, reads the clock no more than three
// times, and has one timer.
func TestWait_DoesNotPoll(t *testing.T) {
	clock := &countingClock{ManualClock: NewManualClock()}
	l := newLimiter(t, Config{Limit: 1, Window: 100 * time.Hour, Clock: clock})
	require.True(t, l.Allow())
	clock.readings.Store(0)
	done := make(chan error)
	go func() { done <- l.Wait(t.Context()) }()
	for clock.Waiters() == 0 {
		runtime.Gosched()
	}
	require.LessOrEqual(t, clock.readings.Load(), int64(2))
	for range 109 {
		clock.Advance(time.Hour)
		require.Equal(t, 1, clock.Waiters())
	}
	require.LessOrEqual(t, clock.readings.Load(), int64(2))
	clock.Advance(time.Hour)
	require.NoError(t, <-done)
	require.Equal(t, int64(3), clock.readings.Load())
	require.Zero(t, clock.Waiters())
}

// TestWait_ContextFirst: a context that has ended gets nothing, though units are
// there.
func TestWait_ContextFirst(t *testing.T) {
	eachWaiting(t, func(t *testing.T, start func(uint64, time.Duration) rolling) {
		l := start(3, 10*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.WaitN(ctx, 1), context.Canceled)
		past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
		defer cancel()
		require.ErrorIs(t, l.WaitN(past, 1), context.DeadlineExceeded)
		require.NotErrorIs(t, l.WaitN(past, 1), ErrLimited)
		require.ErrorIs(t, l.WaitN(past, 9), context.DeadlineExceeded)
		require.Equal(t, uint64(3), l.Peek(1).Remaining)
	})
}

// TestWait_Cancelled: a wait ends with its context, has taken nothing, and
// leaves no timer and no goroutine.
func TestWait_Cancelled(t *testing.T) {
	eachWaiting(t, func(t *testing.T, start func(uint64, time.Duration) rolling) {
		l := start(2, 10*time.Second)
		require.True(t, l.AllowN(2))
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		begin := time.Now()
		time.AfterFunc(3*time.Second, func() { cancel(cause) })
		require.ErrorIs(t, l.WaitN(ctx, 1), context.Canceled)
		require.Equal(t, 3*time.Second, time.Since(begin))
		time.Sleep(time.Hour)
		require.Equal(t, uint64(2), l.Peek(1).Remaining)
	})
	clock := NewManualClock()
	l := newLimiter(t, Config{Limit: 1, Window: time.Second, Clock: clock})
	require.True(t, l.Allow())
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if err := l.Wait(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for clock.Waiters() < 10 {
		runtime.Gosched()
	}
	cancel()
	wg.Wait()
	require.Zero(t, clock.Waiters())
	require.True(t, goroutinesSettle(before))
}

// A hastyClock has moved on by as much as a sleeper asks for, and has cancelled
// its context since, before the sleep begins.
type hastyClock struct {
	*ManualClock
	cancel func()
}

func (c *hastyClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.Advance(d)
	f()
	c.cancel()
	return func() bool { return false }
}

// TestWait_CancelledInTime: units that are there when a sleeper wakes are not
// taken for a context that has ended.
func TestWait_CancelledInTime(t *testing.T) {
	for range 64 { // a select chooses at random
		ctx, cancel := context.WithCancel(t.Context())
		l := newLimiter(t, Config{Limit: 1, Window: time.Second, Clock: &hastyClock{NewManualClock(), cancel}})
		require.True(t, l.Allow())
		require.ErrorIs(t, l.Wait(ctx), context.Canceled)
		require.True(t, l.Allow())
	}
}

// TestWait_Deadline: a deadline that comes too early fails at once, with an error
// that says how long the wait would have been; one that does not is met.
func TestWait_Deadline(t *testing.T) {
	eachWaiting(t, func(t *testing.T, start func(uint64, time.Duration) rolling) {
		l := start(1, 10*time.Second)
		require.True(t, l.Allow())
		time.Sleep(time.Second / 2)
		begin := time.Now()
		for _, timeout := range []time.Duration{1, time.Second, 10500*time.Millisecond - 1, 10500 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			err := l.WaitN(ctx, 1)
			require.Zero(t, time.Since(begin), "it slept")
			var limited *LimitedError
			require.ErrorAs(t, err, &limited)
			require.Equal(t, 10500*time.Millisecond, limited.RetryAfter)
			require.ErrorIs(t, err, ErrLimited)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, "10.5s")
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond+1)
		defer cancel()
		require.NoError(t, l.WaitN(ctx, 1))
		require.Equal(t, 10500*time.Millisecond, time.Since(begin))
	})
}

// TestWait_TooCostly: what can never pass fails at once and spends nothing.
func TestWait_TooCostly(t *testing.T) {
	eachWaiting(t, func(t *testing.T, start func(uint64, time.Duration) rolling) {
		l := start(5, 10*time.Second)
		begin := time.Now()
		for _, n := range []uint64{6, 1 << 62, 1<<64 - 1} {
			require.ErrorIs(t, l.WaitN(t.Context(), n), ErrCostExceedsLimit)
		}
		require.NoError(t, l.WaitN(t.Context(), 0))
		require.Equal(t, uint64(5), l.Peek(1).Remaining)
		require.True(t, l.AllowN(5))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.WaitN(ctx, 6), ErrCostExceedsLimit, "whatever the deadline")
		require.NoError(t, l.WaitN(t.Context(), 0))
		require.Zero(t, time.Since(begin))
		require.NoError(t, l.SetLimit(0))
		require.ErrorIs(t, l.WaitN(t.Context(), 1), ErrCostExceedsLimit)
	})
}

// TestWait_SetLimit: sleepers look again when the limit changes.
func TestWait_SetLimit(t *testing.T) {
	eachWaiting(t, func(t *testing.T, start func(uint64, time.Duration) rolling) {
		l := start(2, 10*time.Second)
		require.True(t, l.AllowN(2))
		begin := time.Now()
		var after [3]time.Duration
		var errs [3]error
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				errs[i] = l.WaitN(t.Context(), uint64(i+1))
				after[i] = time.Since(begin)
			})
			synctest.Wait() // 3 units fail at once
		}
		time.Sleep(time.Second)
		require.NoError(t, l.SetLimit(1)) // 2 units can never pass now
		synctest.Wait()
		time.Sleep(time.Second)
		require.NoError(t, l.SetLimit(3)) // the first fits
		wg.Wait()
		require.Equal(t, [3]time.Duration{2 * time.Second, time.Second, 0}, after)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], ErrCostExceedsLimit)
		require.ErrorIs(t, errs[2], ErrCostExceedsLimit)
	})
}

// TestWait_Unlimited: sleepers pass as soon as there is no limit.
func TestWait_Unlimited(t *testing.T) {
	eachWaiting(t, func(t *testing.T, start func(uint64, time.Duration) rolling) {
		l := start(1, 10*time.Second)
		require.True(t, l.Allow())
		begin := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := l.WaitN(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		require.NoError(t, l.SetLimit(Unlimited))
		wg.Wait()
		require.Zero(t, time.Since(begin))
	})
}

// TestWait_Close: sleepers are woken, and a wait that would sleep fails; one
// that need not sleep goes on to work.
func TestWait_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Limit: 2, Window: 10 * time.Second}
		l := newLimiter(t, config)
		k := newKeyed[int](t, KeyedConfig{Config: config})
		for name, c := range map[string]struct {
			wait  func() error
			close func() error
			take  func()
		}{
			"Limiter": {func() error { return l.Wait(t.Context()) }, l.Close, func() { l.AllowN(2) }},
			"Keyed":   {func() error { return k.Wait(t.Context(), 1) }, k.Close, func() { k.AllowN(1, 2) }},
		} {
			c.take()
			var failed atomic.Int64
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if errors.Is(c.wait(), ErrClosed) {
						failed.Add(1)
					}
				})
			}
			synctest.Wait()
			require.Zero(t, failed.Load(), name)
			begin := time.Now()
			require.NoError(t, c.close())
			wg.Wait()
			require.Equal(t, int64(10), failed.Load(), name)
			require.ErrorIs(t, c.wait(), ErrClosed)
			require.NoError(t, c.close(), "twice")
			require.Zero(t, time.Since(begin))
			time.Sleep(11 * time.Second)
			require.NoError(t, c.wait(), "it need not sleep")
		}
	})
}

// TestWait_Forget: who waits for a key that is forgotten gets its units.
func TestWait_Forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Hour}})
		require.True(t, k.Allow("a"))
		begin := time.Now()
		time.AfterFunc(time.Second, func() { k.Forget("a") })
		require.NoError(t, k.Wait(t.Context(), "a"))
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// TestWait_Keys: waits on keys do not disturb each other, an absent key makes
// nobody wait, and one without room says so.
func TestWait_Keys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 1, Window: 10 * time.Second}, MaxKeys: 2, OnFull: DenyNew})
		begin := time.Now()
		require.NoError(t, k.Wait(t.Context(), "a"))
		time.Sleep(2 * time.Second)
		require.NoError(t, k.Wait(t.Context(), "b"))
		require.ErrorIs(t, k.Wait(t.Context(), "c"), ErrFull)
		require.ErrorIs(t, k.WaitN(t.Context(), "c", 2), ErrCostExceedsLimit)
		require.Equal(t, 2*time.Second, time.Since(begin))
		var wg sync.WaitGroup
		for i, key := range []string{"a", "b"} {
			wg.Go(func() {
				if err := k.Wait(t.Context(), key); err != nil {
					t.Error(err)
				}
				if after, want := time.Since(begin), time.Duration(11+2*i)*time.Second; after != want {
					t.Errorf("%s after %v, want %v", key, after, want)
				}
			})
		}
		wg.Wait()
	})
}

// TestWait_Crowd: 64 waiters keep within the limit over every interval, and all
// get their units as early as that allows.
func TestWait_Crowd(t *testing.T) {
	eachWaiting(t, func(t *testing.T, start func(uint64, time.Duration) rolling) {
		const limit, window = 5, 10 * time.Second
		l := start(limit, window)
		begin := time.Now()
		var mu sync.Mutex
		var h history
		crowd(64, func(i int) {
			n := uint64(1 + i%2)
			if err := l.WaitN(t.Context(), n); err != nil {
				t.Error(err)
			}
			now := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			h.admitted = append(h.admitted, event{now, now, n})
		})
		require.Equal(t, uint64(96), h.units())
		require.LessOrEqual(t, h.busiest(window), uint64(limit))
		// Five units a window of eleven ticks; at worst a unit is left each time
		// because those who wait want two.
		require.GreaterOrEqual(t, time.Since(begin), 19*11*time.Second)
		require.LessOrEqual(t, time.Since(begin), 23*11*time.Second)
	})
}

// TestWait_ManualClock: no test that waits has to sleep.
func TestWait_ManualClock(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		clock := NewManualClock()
		l := impl.start(t, Config{Limit: 1, Window: 10 * time.Second, Clock: clock})
		require.True(t, l.Allow())
		const waiters = 20
		var got atomic.Int64
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				if err := l.WaitN(t.Context(), 1); err != nil {
					t.Error(err)
				}
				got.Add(1)
			})
		}
		for i := range int64(waiters) {
			for clock.Waiters() < waiters-int(i) {
				runtime.Gosched()
			}
			clock.Advance(11*time.Second - 1)
			require.Equal(t, i, got.Load())
			clock.Advance(1)
			for got.Load() == i {
				runtime.Gosched()
			}
			require.Equal(t, i+1, got.Load())
		}
		wg.Wait()
		require.Zero(t, clock.Waiters())
	}, reference)
}

// TestWait_CoarseClock: on a coarse clock a wait ends no more than its
// resolution after the earliest moment.
func TestWait_CoarseClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newCoarseClock(t, 100*time.Millisecond)
		l := newLimiter(t, Config{Limit: 1, Window: 10 * time.Second, Clock: clock})
		begin := time.Now()
		require.NoError(t, l.Wait(t.Context()))
		for i := range time.Duration(5) {
			require.NoError(t, l.Wait(t.Context()))
			now := time.Since(begin)
			require.GreaterOrEqual(t, now, (i+1)*12*time.Second, "two ticks more than the window")
			require.LessOrEqual(t, now, (i+1)*(12*time.Second+2*clock.Resolution()))
		}
	})
}

// A bareClock has no timers.
type bareClock struct{ clock Clock }

func (c bareClock) Now() time.Duration { return c.clock.Now() }

// TestWait_ClockWithoutTimers: the system clock wakes who waits on a clock that
// cannot, also where that clock runs slow.
func TestWait_ClockWithoutTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Config{Limit: 1, Window: 10 * time.Second, Clock: bareClock{SystemClock{}}})
		begin := time.Now()
		require.NoError(t, l.Wait(t.Context()))
		require.NoError(t, l.Wait(t.Context()))
		require.Equal(t, 11*time.Second, time.Since(begin))

		slow := &slowClock{}
		l = newLimiter(t, Config{Limit: 1, Window: 10 * time.Second, Clock: slow})
		begin = time.Now()
		require.NoError(t, l.Wait(t.Context()))
		require.NoError(t, l.Wait(t.Context()))
		require.GreaterOrEqual(t, time.Since(begin), 22*time.Second)
		require.LessOrEqual(t, time.Since(begin), 22*time.Second+2*time.Millisecond)
		require.Less(t, slow.readings.Load(), int64(60), "it polls")
	})
}

// A slowClock runs at half the speed of the system clock.
type slowClock struct{ readings atomic.Int64 }

func (c *slowClock) Now() time.Duration {
	c.readings.Add(1)
	return SystemClock{}.Now() / 2
}

// TestWait_StoppedClock: on a clock that stands still a wait sleeps in naps of a
// window at most, and ends with its context.
func TestWait_StoppedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &countingClock{ManualClock: NewManualClock()}
		l := newLimiter(t, Config{Limit: 1, Window: 10 * time.Second, Clock: bareClock{clock}})
		require.True(t, l.Allow())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		clock.readings.Store(0)
		require.ErrorIs(t, l.Wait(ctx), context.DeadlineExceeded)
		require.LessOrEqual(t, clock.readings.Load(), int64(time.Hour/(11*time.Second)+3))
	})
}
