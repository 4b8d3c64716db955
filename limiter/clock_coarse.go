package limiter

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// minResolution is the finest resolution of a CoarseClock, and also the finest tick of a limiter.
const minResolution = time.Microsecond

// CoarseClock is the system clock, read twice per resolution by a goroutine of its own and remembered in between, so that
// Now costs one load. Use it where reading the system clock is most of what a decision costs.
//
// Make one with [NewCoarseClock], for any number of limiters, and [CoarseClock.Close] it when done. It is safe for
// concurrent use and must not be copied. One that is dropped without a Close is collected, and its goroutine ends.
//
// The reading never goes back and is never ahead of the system clock. It is behind by at most the resolution, as long as
// the goroutine runs in time. When all processors are busy with other goroutines, it can be kept waiting for tens of
// milliseconds; and on Linux the timers of a process that has nothing else to do are a good millisecond late, so that a
// resolution below three milliseconds is often missed. The reading then stands still for longer than the resolution.
// [CoarseClock.Starved] counts how often.
//
// What that does to a limiter: it counts one sub-window more, which makes up for readings that are up to a tick (window /
// slots) old. While the reading stands still, nothing expires, and the limiter is too strict. What was admitted at the end
// of a stall of length s has been counted up to s too early, though, and expires that much too early: around such a stall
// the limit holds over intervals of length window + tick - s, no longer of length window. So a resolution well below the
// tick leaves room for stalls.
type CoarseClock struct {
	now        atomic.Int64 // nanoseconds since origin, or closedReading
	starved    atomic.Uint64
	origin     time.Duration // reading of the system clock at the start
	resolution time.Duration
	closing    sync.Once
	stop       chan struct{} // closed by Close: the refresher shall end
	done       chan struct{} // closed by the refresher when it has ended
}

// closedReading in place of a reading says that the clock was closed. Readings are never negative.
const closedReading = -1

// NewCoarseClock starts a clock whose readings are at most resolution old. The resolution is at least a microsecond, and no
// longer than the tick of any limiter on the clock; three milliseconds or more can be kept, see [CoarseClock]. The error for
// a smaller one matches [ErrConfig].
func NewCoarseClock(resolution time.Duration) (*CoarseClock, error) {
	if resolution < minResolution {
		return nil, fmt.Errorf("%w: resolution is %v, must be at least %v", ErrConfig, resolution, minResolution)
	}
	c := &CoarseClock{
		origin:     SystemClock{}.Now(),
		resolution: resolution,
		stop:       make(chan struct{}),
		done:       make(chan struct{}),
	}
	go refresh(weak.Make(c), resolution/2, c.stop, c.done)
	return c, nil
}

// Now returns the time since the clock was made, as of the last refresh. After Close it reads the system clock instead and
// is exact, so that a limiter on a closed clock goes on deciding right.
func (c *CoarseClock) Now() time.Duration {
	if now := c.now.Load(); now != closedReading {
		return time.Duration(now)
	}
	return c.exact() // out of line, so that Now is inlined
}

// Resolution returns the resolution that the clock was made with.
func (c *CoarseClock) Resolution() time.Duration { return c.resolution }

// Starved returns how many refreshes so far came more than one resolution after the one before, so that readings were older
// than the resolution in between.
func (c *CoarseClock) Starved() uint64 { return c.starved.Load() }

// AfterFunc calls f in its own goroutine once the reading has moved ahead by d. It refreshes the clock itself at that
// moment, so that f does not wait for the next refresh. Since the reading at the call can be up to a resolution old, f can
// run that much sooner than d from the call.
func (c *CoarseClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	reading := c.Now()
	age := c.exact() - reading
	return time.AfterFunc(max(d, 0)-age, func() {
		c.advance()
		f()
	}).Stop
}

// Close ends the clock's goroutine and waits until it has ended. From then on Now reads the system clock. Pending calls of
// AfterFunc stay pending. Close may be called more than once; it returns nil.
func (c *CoarseClock) Close() error {
	c.closing.Do(func() {
		close(c.stop)
		<-c.done
		c.now.Store(closedReading)
	})
	return nil
}

// exact returns the time since the clock was made, as of now.
//
//go:noinline
func (c *CoarseClock) exact() time.Duration { return SystemClock{}.Now() - c.origin }

// advance moves the reading ahead to the present, which it returns.
func (c *CoarseClock) advance() time.Duration {
	now := c.exact()
	c.advanceTo(now)
	return now
}

// advanceTo moves the reading ahead to now, unless it is there already or the clock is closed.
func (c *CoarseClock) advanceTo(now time.Duration) {
	for {
		old := c.now.Load()
		if old == closedReading || old >= int64(now) || c.now.CompareAndSwap(old, int64(now)) {
			return
		}
		// Another caller has moved the reading, or Close has ended it.
	}
}

// tick is one refresh by the refresher, whose refresh before this one was at last. It returns the time of this one.
func (c *CoarseClock) tick(last time.Duration) time.Duration {
	now := c.advance()
	if now-last > c.resolution {
		c.starved.Add(1)
	}
	return now
}

// refresh is the goroutine of a CoarseClock. It holds the clock weakly, so that a clock that nobody else holds can be
// collected, and ends then or when stop is closed.
func refresh(w weak.Pointer[CoarseClock], period time.Duration, stop <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	var last time.Duration
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		c := w.Value()
		if c == nil {
			return
		}
		last = c.tick(last)
	}
}
