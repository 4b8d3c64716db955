package limiter

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

const (
	// minResolution is the finest resolution of a CoarseClock, and also the finest tick of a limiter.
	minResolution = time.Microsecond
	// longestStall is how long a refresher seldom waits for a processor, and nudges is how many denials there are for each that
	// looks whether it does.
	longestStall = 100 * time.Millisecond
	nudges       = 64
)

// CoarseClock is the system clock, read twice per resolution by a goroutine of its own and remembered in between, so that
// Now costs one load. Use it where reading the system clock is most of what a decision costs.
//
// Make one with [NewCoarseClock], for any number of limiters, and [CoarseClock.Close] it when done. It is safe for
// concurrent use and must not be copied. One that is dropped without a Close is collected, and its goroutine ends. Give it to
// limiters as it is: one inside another type, embedded for example, is to them any clock that says how old its readings can
// be at most, and breaks its word in a stall.
//
// The reading never goes back and is never ahead of the system clock. It is behind by at most the resolution, as long as
// the goroutine runs in time. When all processors are busy with other goroutines, it can be kept waiting for tens of
// milliseconds; and on Linux the timers of a process that has nothing else to do are a good millisecond late, so that a
// resolution below three milliseconds is often missed. The reading then stands still for longer than the resolution.
// [CoarseClock.Starved] counts how often.
//
// What a stall does to a limiter: it counts one sub-window more, which makes up for readings that are up to a tick (window /
// slots) old. When a reading stands still for longer than that, the limiter lets its own time fall behind for good by what is
// too much, so that nothing expires early: its limit holds over every interval, and what expires in that window does so
// later. A tick of 100 milliseconds keeps that rare. With shorter ticks one denial in 64 looks at the system clock, and does
// what the goroutine has no processor for.
type CoarseClock struct {
	_          [64]byte     // now is read all the time, and what others write may come before it
	now        atomic.Int64 // nanoseconds since origin, or closedReading
	starved    atomic.Uint64
	origin     time.Duration // reading of the system clock at the start
	resolution time.Duration
	closing    sync.Once
	stop       chan struct{} // closed by Close: the refresher shall end
	done       chan struct{} // closed by the refresher when it has ended

	mu   sync.Mutex    // held while the reading moves
	late time.Duration // how old it was each time it was stored, added up until it counts
	// paced[i] is the reading for limiters that bear steps of up to longest(i): for good behind now by what was beyond, as of
	// the last refresh. It is a word of its own, as two words that belong together can be loaded, and stored, apart. In place
	// of readings, which are not negative, a closed clock has ^behind.
	paced [8]atomic.Int64
}

const (
	// closedReading in place of now says that the clock was closed.
	closedReading = -1
	// closingReading in place of a paced reading says that it is being closed. It
	// is below 0 by so much that it stays there less any first reading.
	closingReading = math.MinInt64 / 2
)

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
	go refresh(weak.Make(c), c.period(), c.stop, c.done)
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
		c.mu.Lock()
		defer c.mu.Unlock()
		old := c.now.Swap(closedReading)
		var paced [len(c.paced)]int64
		for i := range paced {
			paced[i] = c.paced[i].Swap(closingReading)
		}
		now := int64(c.exact()) // nobody sees the last reading from here on: this step is the last
		for i := range paced {
			paced[i] += min(now-old-min(int64(c.late), now-old), c.longest(i))
			c.paced[i].Store(^(now - paced[i]))
		}
	})
	return nil
}

// exact returns the time since the clock was made, as of now.
//
//go:noinline
func (c *CoarseClock) exact() time.Duration { return SystemClock{}.Now() - c.origin }

// advance moves the reading ahead to the present, which it returns, unless it is there already or the clock is closed.
func (c *CoarseClock) advance() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.step()
}

// nudge is for those whom a reading that stands still keeps waiting: one call in many advances it, if a refresh is due and
// nobody else is at it.
func (c *CoarseClock) nudge() {
	if rand.Uint32()%nudges == 0 && c.exact()-c.Now() > c.period() && c.mu.TryLock() {
		c.step()
		c.mu.Unlock()
	}
}

// step is advance for a caller that holds the lock.
func (c *CoarseClock) step() time.Duration {
	now := c.exact()
	old := c.now.Load()
	if old == closedReading || old >= int64(now) {
		return now
	}
	step := int64(now) - old
	// When this goroutine loses the processor before it can store the reading, the next step is longer than the time
	// between the two. That is lost, too, as soon as it adds up to something.
	if c.late > c.tolerance() {
		late := min(int64(c.late), step)
		c.late -= time.Duration(late)
		step -= late
	}
	for i := range c.paced {
		p := &c.paced[i]
		p.Store(p.Load() + min(step, c.longest(i)))
	}
	c.now.Store(int64(now))
	c.late += c.exact() - now
	return now
}

// period is the time between two refreshes.
func (c *CoarseClock) period() time.Duration { return c.resolution / 2 }

// tolerance is how much lateness is not counted yet.
func (c *CoarseClock) tolerance() time.Duration { return c.resolution / 8 }

// longest returns the longest step of paced[i], in nanoseconds: the resolution less the tolerance, which is well above the
// period, and then twice as much for each.
func (c *CoarseClock) longest(i int) int64 {
	step := int64(c.resolution - c.tolerance())
	if step > math.MaxInt64>>i {
		return math.MaxInt64
	}
	return step << i
}

// pacedBy returns the paced reading that moves in steps which are, with the tolerance, no longer than longest. That is at
// least the resolution.
func (c *CoarseClock) pacedBy(longest time.Duration) *atomic.Int64 {
	steps := uint64(longest-c.tolerance()) / uint64(c.resolution-c.tolerance())
	return &c.paced[min(bits.Len64(steps), len(c.paced))-1]
}

// closedPace returns a paced reading of a closed clock, which is exact but for what was lost before. It waits while Close
// is at it.
func (c *CoarseClock) closedPace(paced *atomic.Int64) time.Duration {
	w := paced.Load()
	if w == closingReading {
		c.mu.Lock()
		defer c.mu.Unlock()
		w = paced.Load()
	}
	return c.exact() - time.Duration(^w)
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
