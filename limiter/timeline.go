package limiter

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// A timeline turns the readings of a clock into epochs: numbers of ticks since
// the first reading. Readings before the first one count as it.
type timeline struct {
	clock      Clock
	coarse     *CoarseClock // clock, where it is one: saves the indirect call
	origin     time.Duration
	tick       time.Duration
	resolution time.Duration

	// current is the epoch of the newest reading known, to learn without a
	// division that the tick has not changed. It is only a guess, checked at
	// each use, and is written about once per tick.
	current atomic.Uint64
}

// start takes the clock's first reading.
func (tl *timeline) start(clock Clock, tick time.Duration) {
	tl.clock = clock
	tl.coarse, _ = clock.(*CoarseClock)
	tl.tick = tick
	tl.resolution = resolutionOf(clock)
	tl.origin = clock.Now()
}

// resolutionOf returns how old a reading of clock can be.
func resolutionOf(clock Clock) time.Duration {
	if c, ok := clock.(TimerClock); ok {
		return c.Resolution()
	}
	return 0
}

// now reads the clock, once, and returns the time since the first reading. It is
// never negative.
func (tl *timeline) now() time.Duration {
	var reading time.Duration
	if tl.coarse != nil {
		reading = tl.coarse.Now()
	} else {
		reading = tl.clock.Now()
	}
	now := reading - tl.origin
	if now < 0 || reading < tl.origin {
		return tl.outside(reading)
	}
	return now
}

// outside is the time since the first reading where the difference does not say:
// the clock stepped back before it, or so far ahead of it or back that the
// difference does not fit.
func (tl *timeline) outside(reading time.Duration) time.Duration {
	if reading < tl.origin {
		return 0
	}
	return math.MaxInt64
}

// epoch returns the epoch of now.
func (tl *timeline) epoch(now time.Duration) uint64 {
	current := tl.current.Load()
	// Before the current epoch the difference wraps to a large number.
	if uint64(now)-current*uint64(tl.tick) < uint64(tl.tick) {
		return current
	}
	return tl.turn(now)
}

// turn divides, once a tick has passed, and remembers the result.
func (tl *timeline) turn(now time.Duration) uint64 {
	epoch := uint64(now) / uint64(tl.tick)
	tl.current.Store(epoch)
	return epoch
}

// until returns how long after now a caller that waits until epoch begins has
// to wait: positive, if epoch is later than now's. With a clock whose readings
// can be old, the wait is longer by as much.
func (tl *timeline) until(epoch uint64, now time.Duration) time.Duration {
	hi, begin := bits.Mul64(epoch, uint64(tl.tick))
	if hi > 0 || begin > math.MaxInt64 {
		return Never
	}
	if begin <= uint64(now) {
		return 0
	}
	return addDuration(time.Duration(begin)-now, tl.resolution)
}
