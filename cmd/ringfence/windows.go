package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ringfence-go/ringfence/limiter"
)

const (
	maxReplayLimit = limiter.Unlimited - 1
	maxReplaySlots = limiter.MaxSlots

	// lifetime is how long a limiter keeps time, beside its own window.
	lifetime = 30 * 365 * 24 * time.Hour
)

// windows holds one rolling window per client. It is all that knows how a
// request is decided. Times are since 1970.
type windows struct {
	keyed *limiter.Keyed[string]
	clock *limiter.ManualClock
	tick  time.Duration
	idle  time.Duration // after which nothing is counted any more
	first time.Duration // the reading at the beginning
	last  time.Duration // the now of the last call
	skip  time.Duration // how far the clock is behind now
}

// config returns what p is for a limiter.
func (p policy) config(clock limiter.Clock) limiter.Config {
	return limiter.Config{Limit: p.limit, Window: p.window, Slots: p.slots, Clock: clock}
}

// check reports a limit that a limiter cannot count in p's ticks: it is the same
// for every log.
func (p policy) check() error {
	if _, err := limiter.New(p.config(limiter.NewManualClock())); err != nil {
		return fmt.Errorf("flag -limit: %s", strings.TrimPrefix(err.Error(), limiter.ErrConfig.Error()+": "))
	}
	return nil
}

// newWindows returns windows for a number of clients, whose first request is at
// the time given.
func newWindows(p policy, clients int, first time.Duration) (*windows, error) {
	tick := (p.window-1)/time.Duration(p.slots) + 1
	w := &windows{
		clock: limiter.NewManualClock(),
		tick:  tick,
		idle:  satMul(tick, p.slots+2),
		first: first - first%tick, // a limiter's ticks begin at the first reading
		last:  first,
	}
	w.clock.Set(w.first)
	var err error
	w.keyed, err = limiter.NewKeyed[string](limiter.KeyedConfig{
		Config:     p.config(w.clock),
		MaxKeys:    clients,
		SweepEvery: limiter.NoSweep,
	})
	return w, err
}

// allow decides a request of a client at now, which must not be before the now
// of the last call.
func (w *windows) allow(client string, now time.Duration) (bool, error) {
	// A pause in which everything expires decides nothing by its length: skip
	// whole ticks of it, so that a log with a stray old line fits too.
	if pause := now - w.last; pause > w.idle {
		pause -= w.idle
		w.skip += pause - pause%w.tick
	}
	w.last = now
	reading := now - w.skip
	if span := reading - w.first; span-w.idle > lifetime {
		return false, fmt.Errorf("the log spans %v without a pause of %v, and 30 years and one such pause fit", span, w.idle)
	}
	w.clock.Set(reading)
	return w.keyed.Allow(client), nil
}

// satMul returns d * n, and the largest Duration where that is larger.
func satMul(d time.Duration, n int) time.Duration {
	if product := d * time.Duration(n); product/time.Duration(n) == d {
		return product
	}
	return 1<<63 - 1
}
