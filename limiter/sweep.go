package limiter

import (
	"fmt"
	"sync"
	"time"
	"weak"
)

const (
	// NoSweep as SweepEvery leaves sweeping to calls of Sweep. Without sweeps a
	// key stays until room is needed for a new one. Then a part of the keys is
	// swept, but not again for a tick, for a tenth of a second, or for as many
	// microseconds as MaxKeys, ten million at most: whichever is longest.
	NoSweep time.Duration = -1

	// DefaultMaxKeys is the largest number of keys if MaxKeys is 0.
	DefaultMaxKeys = 1 << 20

	leastSweep = time.Millisecond
	leastRest  = 100 * time.Millisecond
)

// roomRest is the least time between two sweeps of a shard for the sake of new
// keys, if the tick is not longer. It grows with the number of keys, of which a
// sweep visits some five in a microsecond: a flood of new keys makes their callers
// sweep, all together, for about a fifth of one processor's time.
func roomRest(maxKeys int) time.Duration {
	return max(leastRest, time.Duration(min(maxKeys, 10_000_000))*time.Microsecond)
}

// checkKeys validates the fields that keyed limiters have in common and returns
// them with their defaults. A window of 0 is one that is not known.
func checkKeys(maxKeys int, onFull OnFull, sweepEvery, window time.Duration) (int, time.Duration, []error) {
	var faults []error
	if maxKeys < 0 {
		faults = append(faults, fmt.Errorf("MaxKeys is %d, want 0 for the default of %d, or more", maxKeys, DefaultMaxKeys))
	}
	if maxKeys == 0 {
		maxKeys = DefaultMaxKeys
	}
	if onFull > AdmitNew {
		faults = append(faults, fmt.Errorf("OnFull is %d, want ShareOverflow, DenyNew or AdmitNew", onFull))
	}
	switch {
	case sweepEvery == 0:
		sweepEvery = min(max(window, time.Second), time.Minute)
	case sweepEvery != NoSweep && sweepEvery < leastSweep:
		faults = append(faults, fmt.Errorf("SweepEvery is %v, want at least %v, 0 for the default, or NoSweep", sweepEvery, leastSweep))
	}
	return maxKeys, sweepEvery, faults
}

// A janitor calls sweep from time to time, by the timers of a clock. It has no
// goroutine in between, and holds the owner weakly: an owner that nobody else
// holds is collected, and the next call is the last.
type janitor struct {
	mu   sync.Mutex // held while it sweeps
	stop func() bool
	done bool
}

// sweepLater starts the janitor of owner, which is reached through janitorOf.
func sweepLater[T any](clock TimerClock, every time.Duration, owner *T, janitorOf func(*T) *janitor, sweep func(*T)) {
	w := weak.Make(owner)
	var next func()
	arm := func(j *janitor) {
		if !j.done {
			j.stop = clock.AfterFunc(every, next)
		}
	}
	next = func() {
		owner := w.Value()
		if owner == nil {
			return
		}
		j := janitorOf(owner)
		j.mu.Lock()
		defer j.mu.Unlock()
		if !j.done {
			sweep(owner)
		}
		arm(j)
	}
	j := janitorOf(owner)
	j.mu.Lock()
	defer j.mu.Unlock()
	arm(j)
}

// close ends the janitor and waits for a sweep that is under way.
func (j *janitor) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = true
	if j.stop != nil {
		j.stop()
	}
}
