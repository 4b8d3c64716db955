package limiter

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ManualClock is a clock that stands still until it is moved, for tests. The zero value is ready to use and reads 0; a
// ManualClock is safe for concurrent use and must not be copied. Its readings are exact, and Now takes no lock.
//
// Moving the clock wakes the waiters whose time has come. A waiter first has to begin its wait: a test that starts one in a
// goroutine waits until [ManualClock.Waiters] has counted it, or uses [testing/synctest.Wait].
type ManualClock struct {
	now atomic.Int64

	mu     sync.Mutex     // guards what follows, and every change of now
	moved  uint64         // nanoseconds moved ahead so far; steps back do not count
	timers []*manualTimer // pending, by due; those with the same due in the order in which they were set
}

// manualTimer is one pending call of AfterFunc.
type manualTimer struct {
	due uint64 // the value of moved at which f is called
	f   func()
}

// NewManualClock returns a clock that reads 0.
func NewManualClock() *ManualClock { return &ManualClock{} }

// Now returns the time that the clock was last moved to.
func (c *ManualClock) Now() time.Duration { return time.Duration(c.now.Load()) }

// Resolution returns 0: readings are exact.
func (c *ManualClock) Resolution() time.Duration { return 0 }

// Set moves the clock to now, ahead or back, and then calls, in its own goroutine and without holding a lock, the functions
// of [ManualClock.AfterFunc] that became due: in the order of their times, and in the order in which they were set where
// times are equal. When calls of Set and Advance run at the same time, each function is still called only once, by one of
// them.
func (c *ManualClock) Set(now time.Duration) {
	c.mu.Lock()
	c.set(now)
	c.mu.Unlock()
	c.runDue()
}

// Advance moves the clock ahead by d, and back where d is negative. It is otherwise like [ManualClock.Set]. The reading
// stops at the least and the largest Duration.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	old := c.Now()
	now := old + d
	switch {
	case d > 0 && now < old:
		now = math.MaxInt64
	case d < 0 && now > old:
		now = math.MinInt64
	}
	c.set(now)
	c.mu.Unlock()
	c.runDue()
}

// AfterFunc calls f once the clock has been moved ahead by d in all. Steps back neither count nor cancel: like a timer of
// the operating system, it measures time that has passed, not a reading. The call of f comes from the Set or Advance that
// got there, after the clock has moved; f may use the clock. Where d is 0 or less, f is called at once in its own goroutine.
func (c *ManualClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	if d <= 0 {
		go f()
		return func() bool { return false }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{due: saturatingAdd(c.moved, uint64(d)), f: f}
	i, _ := slices.BinarySearchFunc(c.timers, t.due, func(t *manualTimer, due uint64) int {
		if t.due <= due {
			return -1
		}
		return 1
	})
	c.timers = slices.Insert(c.timers, i, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.timers, t)
		if i < 0 {
			return false
		}
		c.timers = slices.Delete(c.timers, i, i+1)
		return true
	}
}

// Waiters returns how many calls of AfterFunc are pending, neither made nor stopped. A wait on a limiter has one pending
// while it sleeps.
func (c *ManualClock) Waiters() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// set moves the reading to now. The caller holds mu.
func (c *ManualClock) set(now time.Duration) {
	if old := c.Now(); now > old {
		// The distance of two int64 always fits a uint64, though not an int64.
		c.moved = saturatingAdd(c.moved, uint64(now)-uint64(old))
	}
	c.now.Store(int64(now))
}

// runDue calls the functions that are due, taking one at a time, so that each can still stop those after it.
func (c *ManualClock) runDue() {
	for {
		c.mu.Lock()
		if len(c.timers) == 0 || c.timers[0].due > c.moved {
			c.mu.Unlock()
			return
		}
		t := c.timers[0]
		c.timers = slices.Delete(c.timers, 0, 1)
		c.mu.Unlock()
		t.f()
	}
}

// saturatingAdd returns a + b, and the largest uint64 where the sum is larger.
func saturatingAdd(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}
