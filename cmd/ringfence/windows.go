package main

import (
	"fmt"
	"time"

	"github.com/ringfence-go/ringfence/atomicring"
)

const (
	maxReplayLimit uint64 = 1<<62 - 1
	maxReplaySlots        = atomicring.MaxSlots - 1
)

// windows holds one rolling window per client. It is all that knows how a
// request is decided. Times are since 1970.
type windows struct {
	layout atomicring.Layout
	limit  uint64
	tick   time.Duration
	first  time.Duration // number of the tick that is the rings' epoch 0
	rings  map[string]*atomicring.Ring
}

// newWindows returns windows for a number of requests, the first and the last
// at the times given.
func newWindows(p policy, requests int, first, last time.Duration) (*windows, error) {
	// A client never has more in its window than there are requests, and fewer
	// bits for the count leave more for the epoch.
	limit := min(p.limit, uint64(requests))
	layout, err := atomicring.NewLayout(p.slots+1, max(limit, 1))
	if err != nil {
		return nil, err
	}
	tick := p.window / time.Duration(p.slots)
	if p.window%time.Duration(p.slots) != 0 {
		tick++
	}
	w := &windows{layout: layout, limit: limit, tick: tick, first: first / tick, rings: map[string]*atomicring.Ring{}}
	if ticks := w.epoch(last); ticks > layout.MaxEpoch() {
		return nil, fmt.Errorf("flag -window is %v with -slots %d: the log spans %d ticks of %v, and %d fit beside counts up to %d",
			p.window, p.slots, ticks, tick, layout.MaxEpoch(), limit)
	}
	return w, nil
}

// epoch returns the number of ticks from the one of the first request to the
// one of now. Only differences of epochs matter to a ring, so ticks still begin
// at multiples of the tick since 1970.
func (w *windows) epoch(now time.Duration) uint64 {
	return uint64(now/w.tick - w.first)
}

// allow decides a request of a client at now, which must not be before the now
// of the last call.
func (w *windows) allow(client string, now time.Duration) bool {
	ring := w.rings[client]
	if ring == nil {
		ring = w.layout.NewRing()
		w.rings[client] = ring
	}
	return ring.Admit(&w.layout, w.epoch(now), 1, w.limit).Verdict == atomicring.Admitted
}
