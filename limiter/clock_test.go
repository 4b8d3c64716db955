package limiter

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// clocks are the clocks of this package behind one interface, each with a way to let d pass. They are run in a synctest
// bubble.
var clocks = map[string]func(t *testing.T) (c TimerClock, pass func(d time.Duration)){
	"SystemClock": func(*testing.T) (TimerClock, func(time.Duration)) {
		return SystemClock{}, sleep
	},
	"CoarseClock": func(t *testing.T) (TimerClock, func(time.Duration)) {
		c := newCoarseClock(t, 10*time.Millisecond)
		return c, sleep
	},
	"CoarseClock closed": func(t *testing.T) (TimerClock, func(time.Duration)) {
		c := newCoarseClock(t, 10*time.Millisecond)
		time.Sleep(time.Second)
		require.NoError(t, c.Close())
		return c, sleep
	},
	"ManualClock": func(*testing.T) (TimerClock, func(time.Duration)) {
		c := NewManualClock()
		return c, func(d time.Duration) { c.Advance(d); synctest.Wait() }
	},
}

// sleep lets d pass in a bubble, and then waits until every timer that was due has done its work.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// eachClock runs f in a bubble for every clock of this package.
func eachClock(t *testing.T, f func(t *testing.T, c TimerClock, pass func(time.Duration))) {
	for name, start := range clocks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, pass := start(t)
				f(t, c, pass)
			})
		})
	}
}

func TestTimerClock_FollowsTime(t *testing.T) {
	eachClock(t, func(t *testing.T, c TimerClock, pass func(time.Duration)) {
		start := c.Now()
		passed := time.Duration(0)
		for _, d := range []time.Duration{10 * time.Millisecond, time.Second, 20 * time.Second} {
			pass(d)
			passed += d
			now := c.Now() - start
			require.LessOrEqual(t, now, passed)
			require.GreaterOrEqual(t, now, passed-c.Resolution())
		}
	})
}

func TestTimerClock_AfterFunc(t *testing.T) {
	eachClock(t, func(t *testing.T, c TimerClock, pass func(time.Duration)) {
		const d = 95 * time.Millisecond // no multiple of the coarse clock's resolution
		pass(3 * time.Millisecond)
		start := c.Now()
		var calls, at atomic.Int64
		stop := c.AfterFunc(d, func() { calls.Add(1); at.Store(int64(c.Now() - start)) })
		pass(d - c.Resolution() - 1)
		require.Zero(t, calls.Load(), "called before its time")
		pass(c.Resolution() + 1)
		require.Equal(t, int64(1), calls.Load())
		require.GreaterOrEqual(t, at.Load(), int64(d), "the reading has not reached the target")
		pass(time.Second)
		require.Equal(t, int64(1), calls.Load(), "called again")
		require.False(t, stop(), "nothing was left to stop")
	})
}

func TestTimerClock_AfterFuncStop(t *testing.T) {
	eachClock(t, func(t *testing.T, c TimerClock, pass func(time.Duration)) {
		var called atomic.Bool
		stop := c.AfterFunc(time.Second, func() { called.Store(true) })
		pass(500 * time.Millisecond)
		require.True(t, stop())
		require.False(t, stop(), "stopped before")
		pass(10 * time.Second)
		require.False(t, called.Load())
	})
}

func TestTimerClock_AfterFuncPassed(t *testing.T) {
	for _, d := range []time.Duration{0, -1, -1 << 63} {
		eachClock(t, func(t *testing.T, c TimerClock, pass func(time.Duration)) {
			pass(3 * time.Millisecond)
			var called atomic.Bool
			stop := c.AfterFunc(d, func() { called.Store(true) })
			synctest.Wait()
			require.True(t, called.Load())
			require.False(t, stop())
		})
	}
}

func TestTimerClock_AfterFuncNever(t *testing.T) {
	eachClock(t, func(t *testing.T, c TimerClock, pass func(time.Duration)) {
		pass(time.Second)
		var called atomic.Bool
		stop := c.AfterFunc(Never, func() { called.Store(true) })
		pass(20 * time.Second)
		require.False(t, called.Load())
		require.True(t, stop())
	})
}

func TestSystemClock_ExactInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := SystemClock{}.Now()
		time.Sleep(time.Nanosecond)
		require.Equal(t, time.Duration(1), SystemClock{}.Now()-start)
		time.Sleep(1000 * time.Hour)
		require.Equal(t, 1000*time.Hour+1, SystemClock{}.Now()-start)
	})
}

// TestSystemClock_RealTime compares readings with those of package time around them, which are of the same clock.
func TestSystemClock_RealTime(t *testing.T) {
	for range 1000 {
		before := time.Since(processStart)
		now := SystemClock{}.Now()
		after := time.Since(processStart)
		require.GreaterOrEqual(t, now, before)
		require.LessOrEqual(t, now, after)
	}
	require.Positive(t, SystemClock{}.Now())
}

func BenchmarkClock(b *testing.B) {
	coarse, err := NewCoarseClock(5 * time.Millisecond)
	require.NoError(b, err)
	defer coarse.Close()
	closed, err := NewCoarseClock(5 * time.Millisecond)
	require.NoError(b, err)
	require.NoError(b, closed.Close())
	base := time.Now()
	b.Run("impl=time.Since", func(b *testing.B) {
		for b.Loop() {
			time.Since(base)
		}
	})
	b.Run("impl=time.Now", func(b *testing.B) {
		for b.Loop() {
			time.Now()
		}
	})
	b.Run("impl=SystemClock", func(b *testing.B) {
		for b.Loop() {
			SystemClock{}.Now()
		}
	})
	b.Run("impl=CoarseClock", func(b *testing.B) {
		for b.Loop() {
			coarse.Now()
		}
	})
	b.Run("impl=CoarseClock/closed", func(b *testing.B) {
		for b.Loop() {
			closed.Now()
		}
	})
	for _, c := range []struct {
		name  string
		clock Clock
	}{{"SystemClock", SystemClock{}}, {"CoarseClock", coarse}, {"ManualClock", NewManualClock()}} {
		b.Run("impl="+c.name+"/interface", func(b *testing.B) {
			for b.Loop() {
				c.clock.Now()
			}
		})
	}
}
