package limiter

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// minResolution is the finest resolution of a CoarseClock. The finest tick of a limiter is as long.
const minResolution = time.Microsecond

// CoarseClock is the system clock, read by one goroutine of its own twice per resolution and remembered in between, so that
// Now costs one load instead of a read of the clock. Use it where reading the system clock is most of the price of a
// decision.
//
// Construct it with [NewCoarseClock] and [CoarseClock.Close] it when done. One clock can serve any number of limiters. It
// is safe for concurrent use and must not be copied. A clock that is dropped without a Close is collected, and its
// goroutine ends within a resolution after that.
//
// A reading never goes back, is never ahead of the system clock, and is at most one resolution behind it as long as the
// goroutine runs in time. When it does not, because every processor is busy, the process is stopped, or the timers of the
// operating system are coarser than that, the reading stands still for longer. [CoarseClock.Starved] counts how often.
// With more goroutines that compute than processors, the Go scheduler can keep the clock waiting for tens of milliseconds.
// Timers on Linux are about one millisecond late at worst in an idle process, so that a resolution below three milliseconds
// is often missed.
//
// A limiter on a CoarseClock counts one sub-window more, which covers readings up to a tick old (the resolution is at most
// a tick). What a longer stall of s does: while the reading stands still, the limiter is too strict, since nothing expires.
// Afterwards what was admitted at the end of the stall has been counted up to s too early and so expires up to s too early:
// the limit then holds over every interval of length window + tick - s, rather than window.
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

// NewCoarseClock starts a clock whose readings are at most resolution old. The resolution is at least a microsecond; three
// milliseconds or more are advisable, see [CoarseClock]. It must be no longer than the tick (window / slots) of any limiter
// that uses the clock. The error for a smaller resolution matches [ErrConfig].
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
// moment, so that f is neither late by a resolution nor kept waiting by a starved refresher. Since a reading can be up to a
// resolution old, f can run that much sooner than d from the call.
func (c *CoarseClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	target := addDuration(c.Now(), max(d, 0))
	return time.AfterFunc(target-c.exact(), func() {
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

// advance moves the reading ahead to the present, unless another call has moved it further or the clock is closed. It
// returns the present.
func (c *CoarseClock) advance() time.Duration {
	now := c.exact()
	for {
		old := c.now.Load()
		if old == closedReading || old >= int64(now) {
			return now
		}
		if c.now.CompareAndSwap(old, int64(now)) {
			return now
		}
		// Another call has moved the reading, or Close has ended it.
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
