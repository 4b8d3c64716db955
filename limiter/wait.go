package limiter

import (
	"context"
	"sync"
	"time"
)

// sleepers are the calls that wait on one limiter. Nothing here is touched by a
// decision.
type sleepers struct {
	timers  TimerClock
	longest time.Duration // no sleep is longer: everything has expired by then

	mu     sync.Mutex
	closed bool
	woken  chan struct{} // closed to wake all who hold it
}

func (s *sleepers) init(clock Clock, longest time.Duration) {
	s.timers = timersOf(clock)
	s.longest = longest
	s.woken = make(chan struct{})
}

// timersOf returns clock itself if it can wake a waiter, and else one that
// tells clock's time and wakes by the system clock.
func timersOf(clock Clock) TimerClock {
	if c, ok := clock.(TimerClock); ok {
		return c
	}
	return systemTimers{clock}
}

// systemTimers lends the timers of the system clock to a clock that has none.
// That clock may be slower: a nap has a least length, so that a waiter who wakes
// too early does not spin.
type systemTimers struct{ Clock }

const leastNap = time.Millisecond

func (systemTimers) Resolution() time.Duration { return 0 }

func (systemTimers) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return SystemClock{}.AfterFunc(max(d, leastNap), f)
}

// alarm returns the channel that is closed at the next wake. Who takes it before
// looking at the limiter misses no change.
func (s *sleepers) alarm() (woken <-chan struct{}, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.woken, s.closed
}

// wake lets all sleepers look again.
func (s *sleepers) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.woken)
	s.woken = make(chan struct{})
}

func (s *sleepers) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wake()
}

// wait is [sleepers.wait] for a call of a limiter's, whose failure is a denial.
func (p *policy) wait(ctx context.Context, attempt func() Decision) error {
	if err := ctx.Err(); err != nil {
		return err // which the limit has no part in
	}
	err := p.sleepers.wait(ctx, attempt)
	if err != nil {
		p.noteDenied()
	}
	return err
}

// wait calls attempt until it is allowed, sleeping in between for as long as
// the decision says. The context has not ended before. See [Limiter.WaitN] for what
// it returns.
func (s *sleepers) wait(ctx context.Context, attempt func() Decision) error {
	d := attempt() // without the sleepers' lock, which those who need not sleep never take
	if d.Allowed || hopeless(d) != nil {
		return hopeless(d)
	}
	for {
		woken, closed := s.alarm()
		d = attempt()
		if d.Allowed || hopeless(d) != nil {
			return hopeless(d)
		}
		if closed {
			return ErrClosed
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d.RetryAfter {
			return &LimitedError{RetryAfter: d.RetryAfter}
		}
		// A clock that stepped far back announces a wait longer than any window.
		if err := s.sleep(ctx, min(d.RetryAfter, s.longest), woken); err != nil {
			return err
		}
	}
}

// hopeless returns the error of a denial to which no sleep is the answer, else nil.
func hopeless(d Decision) error {
	switch d.Reason {
	case ReasonTooCostly:
		return ErrCostExceedsLimit
	case ReasonFull:
		return ErrFull
	}
	return nil
}

// sleep returns when d has passed, woken is closed or the context has ended, of
// which it returns the error. It leaves no timer and no goroutine behind.
func (s *sleepers) sleep(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
	over := make(chan struct{})
	stop := s.timers.AfterFunc(d, func() { close(over) })
	defer stop()
	select {
	case <-over:
	case <-woken:
	case <-ctx.Done():
	}
	return ctx.Err()
}
