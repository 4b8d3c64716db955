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
// goroutine waits until [ManualClock.Waiters] has counted it, or uses [testing/synctest.Wait], with clock and limiter made
// inside the bubble.
type ManualClock struct {
	now atomic.Int64

	mu     sync.Mutex     // guards timers and every change of now
	timers []*manualTimer // pending, by left; those with the same left in the order in which they were set
}

// manualTimer is a pending call of AfterFunc.
type manualTimer struct {
	left uint64 // nanoseconds that the clock has yet to move ahead; f is due at 0
	f    func()
}

// NewManualClock returns a clock that reads 0.
func NewManualClock() *ManualClock { return &ManualClock{} }

// Now returns the time that the clock was last moved to.
func (c *ManualClock) Now() time.Duration { return time.Duration(c.now.Load()) }

// Resolution returns 0: readings are exact.
func (c *ManualClock) Resolution() time.Duration { return 0 }

// Set moves the clock to now, ahead or back. Before it returns it calls the functions of [ManualClock.AfterFunc] that became
// due, without holding a lock: in the order of their times, and where times are equal in the order in which they were set.
// When calls of Set and Advance run at the same time, each function is still called only once, by one of them.
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
	t := &manualTimer{left: uint64(d), f: f}
	place := slices.IndexFunc(c.timers, func(other *manualTimer) bool { return other.left > t.left })
	if place < 0 {
		place = len(c.timers)
	}
	c.timers = slices.Insert(c.timers, place, t)
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
// while it sleeps, and a [Keyed] or a [MemoryStore] has one for its next sweep, unless that is left out by [NoSweep].
func (c *ManualClock) Waiters() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// set moves the reading to now. The caller holds mu.
func (c *ManualClock) set(now time.Duration) {
	if old := c.Now(); now > old {
		ahead := uint64(now) - uint64(old) // fits, also where now - old does not fit a Duration
		for _, t := range c.timers {
			t.left -= min(t.left, ahead)
		}
	}
	c.now.Store(int64(now))
}

// runDue calls the functions that are due, taking one at a time, so that each can still stop those after it.
func (c *ManualClock) runDue() {
	for {
		c.mu.Lock()
		if len(c.timers) == 0 || c.timers[0].left > 0 {
			c.mu.Unlock()
			return
		}
		t := c.timers[0]
		c.timers = slices.Delete(c.timers, 0, 1)
		c.mu.Unlock()
		t.f()
	}
}
