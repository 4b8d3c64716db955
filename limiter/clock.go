package limiter

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// Never is the wait that does not end: the RetryAfter of a request that no wait can help.
const Never time.Duration = math.MaxInt64

// Clock tells a limiter the time. It must be safe for concurrent use.
//
// Only differences between readings matter: a limiter takes the first reading of its clock as the beginning of time, and
// readings before that count as that first one. A clock should be monotonic. One that jumps ahead and comes back makes a
// limiter too strict until the clock has caught up, and never lax.
type Clock interface {
	// Now returns the time passed since an instant of the clock's choice.
	Now() time.Duration
}

// TimerClock is a [Clock] that also tells how old its readings can be and that can wake a waiter. All clocks of this
// package are TimerClocks. For a Clock that is not, limiters take readings as exact and wake their waiters by the system
// clock.
type TimerClock interface {
	Clock

	// Resolution returns how old a reading can be at most, and 0 for a clock whose readings are exact. A limiter counts on
	// it: units counted at an older reading expire too early.
	Resolution() time.Duration

	// AfterFunc calls f once, as soon as the reading of the clock has moved ahead by d in all, so that a caller of Now in f
	// sees that it has. A d of 0 or less has passed already. The call of f comes from another goroutine, or, for a clock that
	// is moved by calls, from the call that moved it. Calling stop cancels the call of f, and reports whether it did: false
	// means that f has been called or soon will be, or that stop was called before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// checkClock returns the clock of a configuration, nil meaning [SystemClock], and what is wrong with it.
func checkClock(clock Clock) (Clock, error) {
	if clock == nil {
		return SystemClock{}, nil
	}
	if v := reflect.ValueOf(clock); v.Kind() == reflect.Pointer && v.IsNil() {
		return SystemClock{}, fmt.Errorf("Clock is a nil %T", clock)
	}
	if c, ok := clock.(*CoarseClock); ok && c.resolution == 0 {
		return SystemClock{}, errors.New("Clock is a CoarseClock that NewCoarseClock did not make")
	}
	return clock, nil
}

// processStart is the origin of [SystemClock]. It carries a monotonic reading, so that [time.Since] costs one read of the
// monotonic clock where [time.Now] costs two reads.
var processStart = time.Now()

// SystemClock is the monotonic clock of the operating system, the default of every limiter. The zero value is ready to
// use, and all values are the same clock. Its readings are exact, and count from the start of the process.
//
// Steps of the wall clock do not move it. On Linux it stands still while the machine is suspended, so that a window can
// last longer by that time, but never shorter.
//
// Inside a [testing/synctest] bubble it follows the bubble's time, whose readings start at another value (a negative one):
// a limiter belongs to the side on which it was made. Make it inside: with one from outside, on any clock, a wait in the bubble
// does not let the bubble's time go on.
type SystemClock struct{}

// Now returns the time since the start of the process. It reads the monotonic clock once.
func (SystemClock) Now() time.Duration { return time.Since(processStart) }

// Resolution returns 0: readings are exact.
func (SystemClock) Resolution() time.Duration { return 0 }

// AfterFunc calls f in its own goroutine once d has passed, see [time.AfterFunc].
func (SystemClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// addDuration returns a + b for a b that is not negative, and the largest Duration where the sum is larger.
func addDuration(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}
