package limiter

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestManualClock_SetAdvance(t *testing.T) {
	c := NewManualClock()
	require.Zero(t, c.Now())
	c.Advance(3 * time.Second)
	require.Equal(t, 3*time.Second, c.Now())
	c.Set(time.Second)
	require.Equal(t, time.Second, c.Now())
	c.Advance(-2 * time.Second)
	require.Equal(t, -time.Second, c.Now())
	c.Advance(0)
	require.Equal(t, -time.Second, c.Now())
}

func TestManualClock_AdvanceSaturates(t *testing.T) {
	c := NewManualClock()
	c.Advance(math.MaxInt64)
	c.Advance(1)
	require.Equal(t, time.Duration(math.MaxInt64), c.Now())
	c.Advance(math.MaxInt64)
	require.Equal(t, time.Duration(math.MaxInt64), c.Now())
	c.Set(math.MinInt64)
	c.Advance(-1)
	require.Equal(t, time.Duration(math.MinInt64), c.Now())
	c.Advance(math.MinInt64)
	require.Equal(t, time.Duration(math.MinInt64), c.Now())
}

func TestManualClock_ZeroValue(t *testing.T) {
	var c ManualClock
	called := 0
	c.AfterFunc(1, func() { called++ })
	c.Advance(1)
	require.Equal(t, 1, called)
}

// TestManualClock_Order: by time, and in the order of setting where times are equal.
func TestManualClock_Order(t *testing.T) {
	c := NewManualClock()
	var calls []int
	for i, d := range []time.Duration{5, 1, 3, 1, 5, 2, 3, 1} {
		c.AfterFunc(d, func() { calls = append(calls, i) })
	}
	require.Equal(t, 8, c.Waiters())
	c.Advance(2)
	require.Equal(t, []int{1, 3, 7, 5}, calls)
	require.Equal(t, 4, c.Waiters())
	c.Set(1000)
	require.Equal(t, []int{1, 3, 7, 5, 2, 6, 0, 4}, calls)
	require.Zero(t, c.Waiters())
}

// TestManualClock_StepBack: a timer measures the time that passes, whatever the readings are.
func TestManualClock_StepBack(t *testing.T) {
	c := NewManualClock()
	c.Set(time.Hour)
	called := false
	c.AfterFunc(10, func() { called = true })
	c.Advance(4)
	c.Set(0)
	c.Advance(5)
	require.False(t, called, "9 of 10 have passed")
	c.Set(-time.Hour)
	require.False(t, called)
	c.Advance(1)
	require.True(t, called)
}

func TestManualClock_LargestMoves(t *testing.T) {
	c := NewManualClock()
	called := 0
	c.AfterFunc(Never, func() { called++ })
	c.Set(Never - 1)
	require.Zero(t, called)
	c.Set(Never)
	require.Equal(t, 1, called)
	c.AfterFunc(Never, func() { called++ })
	c.Set(math.MinInt64)
	require.Equal(t, 1, called)
	c.Set(math.MaxInt64) // ahead by more than a Duration can say
	require.Equal(t, 2, called)
	c.AfterFunc(10, func() { called++ })
	c.Set(0)
	c.Advance(9)
	require.Equal(t, 2, called)
	c.Advance(1)
	require.Equal(t, 3, called)
}

func TestManualClock_Stop(t *testing.T) {
	c := NewManualClock()
	var calls []string
	var stopB func() bool
	c.AfterFunc(1, func() { calls = append(calls, "a"); require.True(t, stopB()) })
	stopB = c.AfterFunc(1, func() { calls = append(calls, "b") })
	stopC := c.AfterFunc(1, func() { calls = append(calls, "c") })
	c.Advance(1)
	require.Equal(t, []string{"a", "c"}, calls, "a function that is due can stop those after it")
	require.False(t, stopC())
	require.False(t, stopB())
	require.Zero(t, c.Waiters())
}

// TestManualClock_FromCallback: a function that is due may use all of the clock.
func TestManualClock_FromCallback(t *testing.T) {
	c := NewManualClock()
	var calls []time.Duration
	var again func()
	again = func() {
		calls = append(calls, c.Now())
		require.Zero(t, c.Waiters())
		if len(calls) < 3 {
			c.AfterFunc(10, again)
			c.Advance(10)
		}
	}
	c.AfterFunc(10, again)
	c.Advance(10)
	require.Equal(t, []time.Duration{10, 20, 30}, calls)
}

// TestManualClock_Stress moves the clock from several goroutines while others set and stop timers: every timer is either
// called once or stopped, no movement is lost, and no function is called early.
func TestManualClock_Stress(t *testing.T) {
	timers := 4000
	if raceEnabled {
		timers = 1000
	}
	c := NewManualClock()
	var called, stopped atomic.Int64
	var movers, setters sync.WaitGroup
	var quit atomic.Bool
	var moves atomic.Int64
	for range 2 {
		movers.Go(func() {
			for !quit.Load() {
				c.Advance(1)
				moves.Add(1)
			}
		})
	}
	for g := range 4 {
		setters.Go(func() {
			for i := range timers {
				d := time.Duration(i%7 + g + 1)
				target := c.Now() + d
				stop := c.AfterFunc(d, func() {
					if now := c.Now(); now < target {
						t.Errorf("called at %v, was due at %v", now, target)
					}
					called.Add(1)
				})
				if i%3 == 0 && stop() {
					stopped.Add(1)
				}
			}
		})
	}
	setters.Wait()
	quit.Store(true)
	movers.Wait()
	require.Equal(t, time.Duration(moves.Load()), c.Now())
	c.Advance(100)
	require.Equal(t, int64(4*timers), called.Load()+stopped.Load())
	require.Zero(t, c.Waiters())
}
