package limiter

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// unread in place of a time since the first reading says that the clock is still
// to be read.
const unread time.Duration = -1

// A timeline turns the readings of a clock into epochs: numbers of ticks since
// the first reading. Readings before the first one count as it.
type timeline struct {
	clock      Clock
	coarse     *CoarseClock  // clock, where it is one
	paced      *atomic.Int64 // the reading of a coarse clock; for others unpaced
	pacedFrom  time.Duration // origin, for a coarse clock
	unpaced    atomic.Int64  // always below pacedFrom
	nudged     *CoarseClock  // coarse, where it can stand still for longer than the slack
	origin     time.Duration
	tick       time.Duration
	resolution time.Duration

	// current is the epoch of the newest reading known, to learn without a
	// division that the tick has not changed. It is only a guess, checked at
	// each use, and is written about once per tick.
	current atomic.Uint64
}

// start takes the clock's first reading. A coarse reading may be slack old.
func (tl *timeline) start(clock Clock, tick, slack time.Duration) {
	tl.clock = clock
	tl.tick = tick
	tl.resolution = resolutionOf(clock)
	if c, ok := clock.(*CoarseClock); ok {
		tl.coarse, tl.paced = c, c.pacedBy(slack)
		tl.origin = tl.reading()
		tl.pacedFrom = tl.origin
		if slack < longestStall {
			tl.nudged = c
		}
		return
	}
	tl.unpaced.Store(-1)
	tl.paced = &tl.unpaced
	tl.origin = tl.reading()
}

// resolutionOf returns how old a reading of clock can be.
func resolutionOf(clock Clock) time.Duration {
	if c, ok := clock.(TimerClock); ok {
		return c.Resolution()
	}
	return 0
}

// reading reads the clock, once. A coarse one does not show a step longer than
// the slack: a unit counted before it would expire too early.
func (tl *timeline) reading() time.Duration {
	if tl.coarse != nil {
		if reading := tl.paced.Load(); reading >= 0 {
			return time.Duration(reading)
		}
		return tl.coarse.closedPace(tl.paced)
	}
	return tl.clock.Now()
}

// now returns the time since the first reading. It is never negative.
func (tl *timeline) now() time.Duration {
	// The usual case of a coarse clock, without a call: an open one never reads
	// below 0. A closed one has something below 0 in its place, also less
	// pacedFrom, and so has unpaced.
	now := time.Duration(tl.paced.Load()) - tl.pacedFrom
	if now < 0 {
		return tl.sinceOrigin()
	}
	return now
}

// sinceOrigin is now, also for clocks without a pace.
func (tl *timeline) sinceOrigin() time.Duration {
	reading := tl.reading()
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

// stats fills in what the clock counts.
func (tl *timeline) stats(s *Stats) {
	if tl.coarse != nil {
		s.Starved = tl.coarse.Starved()
	}
}

// nudge is called where something was denied: nobody is in a hurry then, and may
// only wait for the clock.
func (tl *timeline) nudge() {
	if tl.nudged != nil {
		tl.nudged.nudge()
	}
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
