package limiter

import (
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// A swept is a limiter with keys that sweeps them.
type swept interface {
	take(key string) bool
	Len() int
	Sweep()
	Close() error
}

type sweptKeyed struct{ *Keyed[string] }

func (s sweptKeyed) take(key string) bool { return s.Allow(key) }

type sweptStore struct{ *MemoryStore }

func (s sweptStore) take(key string) bool {
	allowed, _, _ := s.Attempt(key, 1, sweptWindow)
	return allowed
}

// sweptWindow is how long a key of a swept is in use: a window and a tick.
const sweptWindow = 11 * time.Second

// eachSwept runs f for both kinds.
func eachSwept(t *testing.T, f func(t *testing.T, start func(clock Clock, every time.Duration) (swept, error))) {
	t.Run("impl=Keyed", func(t *testing.T) {
		f(t, func(clock Clock, every time.Duration) (swept, error) {
			k, err := NewKeyed[string](KeyedConfig{
				Config:  Config{Limit: 1, Window: 10 * time.Second, Clock: clock},
				MaxKeys: 10_000, SweepEvery: every,
			})
			return sweptKeyed{k}, err
		})
	})
	t.Run("impl=MemoryStore", func(t *testing.T) {
		f(t, func(clock Clock, every time.Duration) (swept, error) {
			s, err := NewMemoryStore(MemoryStoreConfig{Clock: clock, MaxKeys: 10_000, SweepEvery: every})
			return sweptStore{s}, err
		})
	})
}

// TestJanitor_ManualClock: keys go by themselves, in the first pass after they
// have expired, by the timers of the limiter's own clock.
func TestJanitor_ManualClock(t *testing.T) {
	eachSwept(t, func(t *testing.T, start func(Clock, time.Duration) (swept, error)) {
		clock := NewManualClock()
		s, err := start(clock, 4*time.Second)
		require.NoError(t, err)
		require.Equal(t, 1, clock.Waiters())
		require.True(t, s.take("a"))
		clock.Advance(time.Second)
		require.True(t, s.take("b"))
		for at := 2 * time.Second; at <= 30*time.Second; at += time.Second {
			clock.Set(at)
			want := 2
			if at >= 12*time.Second { // passes are at 4, 8, 12, ... s
				want = 0
			}
			require.Equal(t, want, s.Len(), "at %v", at)
			require.Equal(t, 1, clock.Waiters())
		}
		require.NoError(t, s.Close())
		require.Zero(t, clock.Waiters(), "Close leaves no timer")
		require.True(t, s.take("a"))
		clock.Advance(time.Hour)
		require.Equal(t, 1, s.Len(), "nobody sweeps after Close")
		require.True(t, s.take("a"), "decisions go on")
		clock.Advance(time.Hour)
		s.Sweep()
		require.Zero(t, s.Len(), "but by hand")
	})
}

// TestJanitor_NoSweep: keys stay until they are swept by hand.
func TestJanitor_NoSweep(t *testing.T) {
	eachSwept(t, func(t *testing.T, start func(Clock, time.Duration) (swept, error)) {
		clock := NewManualClock()
		s, err := start(clock, NoSweep)
		require.NoError(t, err)
		require.Zero(t, clock.Waiters())
		require.True(t, s.take("a"))
		clock.Advance(1000 * time.Hour)
		require.Equal(t, 1, s.Len())
		require.True(t, s.take("a"))
		require.Equal(t, 1, s.Len())
		clock.Advance(sweptWindow)
		s.Sweep()
		require.Zero(t, s.Len())
		require.NoError(t, s.Close())
	})
}

// TestJanitor_SystemClock: the same, with timers of the runtime, and no
// goroutine between two passes.
func TestJanitor_SystemClock(t *testing.T) {
	eachSwept(t, func(t *testing.T, start func(Clock, time.Duration) (swept, error)) {
		synctest.Test(t, func(t *testing.T) {
			before := runtime.NumGoroutine()
			s, err := start(nil, 0)
			require.NoError(t, err)
			require.True(t, s.take("a"))
			require.True(t, goroutinesSettle(before))
			time.Sleep(sweptWindow - 1)
			synctest.Wait()
			require.Equal(t, 1, s.Len())
			time.Sleep(time.Minute) // the default is never longer
			synctest.Wait()
			require.Zero(t, s.Len())
			require.True(t, goroutinesSettle(before))
			require.NoError(t, s.Close())
		})
	})
}

// TestJanitor_Errors: no value of SweepEvery, MaxKeys or OnFull makes a panic or
// a busy loop.
func TestJanitor_Errors(t *testing.T) {
	config := Config{Limit: 1, Window: time.Second, Clock: NewManualClock()}
	for name, c := range map[string]struct {
		maxKeys    int
		onFull     OnFull
		sweepEvery time.Duration
		want       []string
	}{
		"1 ns":             {0, 0, 1, []string{"SweepEvery is 1ns"}},
		"below 1 ms":       {0, 0, time.Millisecond - 1, []string{"SweepEvery is 999.999µs"}},
		"-2 ns":            {0, 0, -2, []string{"SweepEvery is -2ns"}},
		"least":            {0, 0, math.MinInt64, []string{"SweepEvery is -2562047h"}},
		"negative keys":    {-1, 0, 0, []string{"MaxKeys is -1"}},
		"least keys":       {math.MinInt, 0, 0, []string{"MaxKeys is -"}},
		"unknown answer":   {0, AdmitNew + 1, 0, []string{"OnFull is 3"}},
		"all":              {-5, 200, -5, []string{"MaxKeys is -5", "OnFull is 200", "SweepEvery is -5ns"}},
		"1 ms is fine":     {1, 0, time.Millisecond, nil},
		"for ever is fine": {1, AdmitNew, math.MaxInt64, nil},
		"many is fine":     {math.MaxInt, DenyNew, NoSweep, nil},
		"default is fine":  {0, 0, 0, nil},
	} {
		k, err := NewKeyed[int](KeyedConfig{Config: config, MaxKeys: c.maxKeys, OnFull: c.onFull, SweepEvery: c.sweepEvery})
		s, storeErr := NewMemoryStore(MemoryStoreConfig{Clock: config.Clock, MaxKeys: c.maxKeys, OnFull: c.onFull, SweepEvery: c.sweepEvery})
		if c.want == nil {
			require.NoError(t, err, name)
			require.NoError(t, storeErr, name)
			require.True(t, k.Allow(1))
			require.NoError(t, k.Close())
			require.NoError(t, s.Close())
			continue
		}
		require.Nil(t, k)
		require.Nil(t, s)
		for _, err := range []error{err, storeErr} {
			require.ErrorIs(t, err, ErrConfig, name)
			require.Len(t, strings.Split(err.Error(), "\n"), len(c.want), name)
			for _, want := range c.want {
				require.ErrorContains(t, err, want, name)
			}
		}
	}
	_, err := NewKeyed[int](KeyedConfig{Config: Config{Limit: math.MaxUint64, Slots: -1}, MaxKeys: -1, OnFull: 9, SweepEvery: 1})
	for _, want := range []string{"Limit is 18446744073709551615", "Window is 0s", "Slots is -1", "MaxKeys is -1", "OnFull is 9", "SweepEvery is 1ns"} {
		require.ErrorContains(t, err, want)
	}
}

// TestJanitor_CloseWaits: when Close returns, no pass is under way.
func TestJanitor_CloseWaits(t *testing.T) {
	eachSwept(t, func(t *testing.T, start func(Clock, time.Duration) (swept, error)) {
		clock := newHookClock()
		s, err := start(clock, time.Second)
		require.NoError(t, err)
		sweeping, goOn := make(chan struct{}), make(chan struct{})
		clock.late(func() { // the janitor has read the clock
			close(sweeping)
			<-goOn
		})
		var closed atomic.Bool
		go clock.Advance(time.Second)
		<-sweeping
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			closed.Store(true)
		}()
		for range 1000 {
			runtime.Gosched()
		}
		require.False(t, closed.Load())
		close(goOn)
		<-done
		require.NoError(t, s.Close(), "twice")
		require.Zero(t, clock.Waiters())
	})
}

// TestLifecycle_Goroutines: 1,000 limiters of each kind that were used and closed
// leave no goroutine and no timer.
func TestLifecycle_Goroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range rounds(1000) {
		config := Config{Limit: 1, Window: time.Second}
		l, err := New(config)
		require.NoError(t, err)
		k, err := NewKeyed[int](KeyedConfig{Config: config, MaxKeys: 10, SweepEvery: time.Millisecond})
		require.NoError(t, err)
		s, err := NewMemoryStore(MemoryStoreConfig{MaxKeys: 10, SweepEvery: time.Millisecond})
		require.NoError(t, err)
		require.True(t, l.Allow())
		require.True(t, k.Allow(1))
		require.True(t, attemptOn(s, "a", 1, time.Second).allowed)
		for range 2 {
			require.NoError(t, l.Close())
			require.NoError(t, k.Close())
			require.NoError(t, s.Close())
		}
		require.False(t, l.Allow(), "decisions go on")
		require.False(t, k.Allow(1))
		require.False(t, attemptOn(s, "a", 1, time.Second).allowed)
	}
	require.True(t, goroutinesSettle(before))
}

// TestLifecycle_Dropped: a limiter that nobody holds is collected without a
// Close, though its timer is set, and its passes end.
func TestLifecycle_Dropped(t *testing.T) {
	clock := NewManualClock()
	coarse := newCoarseClock(t, time.Millisecond)
	for _, c := range []Clock{clock, coarse, nil} {
		config := Config{Limit: 1, Window: time.Second, Clock: c}
		l, err := New(config)
		require.NoError(t, err)
		require.True(t, l.Allow())
		k, err := NewKeyed[int](KeyedConfig{Config: config, SweepEvery: time.Hour})
		require.NoError(t, err)
		require.True(t, k.Allow(1))
		s, err := NewMemoryStore(MemoryStoreConfig{Clock: c, SweepEvery: time.Hour})
		require.NoError(t, err)
		require.True(t, attemptOn(s, "a", 1, time.Second).allowed)
		wl, wk, ws := weak.Make(l), weak.Make(k), weak.Make(s)
		runtime.GC()
		require.NotNil(t, wk.Value(), "still held")
		runtime.KeepAlive(l)
		runtime.KeepAlive(k)
		runtime.KeepAlive(s)
		l, k, s = nil, nil, nil
		runtime.GC()
		require.Nil(t, wl.Value())
		require.Nil(t, wk.Value())
		require.Nil(t, ws.Value())
	}
	require.Equal(t, 2, clock.Waiters())
	clock.Advance(time.Hour)
	require.Zero(t, clock.Waiters(), "the passes have ended")
}

// TestLifecycle_CloseUnderTraffic: Close at any moment, by several at once,
// disturbs no decision.
func TestLifecycle_CloseUnderTraffic(t *testing.T) {
	eachSwept(t, func(t *testing.T, start func(Clock, time.Duration) (swept, error)) {
		for range rounds(200) {
			clock := yieldClock{NewManualClock()}
			s, err := start(clock, time.Second)
			require.NoError(t, err)
			var taken atomic.Int64
			crowd(6, func(i int) {
				for j := range 50 {
					if s.take("key") {
						taken.Add(1)
					}
					if i < 2 && j == 25 {
						if err := s.Close(); err != nil {
							t.Error(err)
						}
					}
					if i == 2 {
						clock.Advance(sweptWindow / 200)
					}
				}
			})
			require.Equal(t, int64(1), taken.Load())
			require.Zero(t, clock.Waiters())
		}
	})
}
