package benchmarks

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ringfence-go/ringfence/limiter"
)

// A reader reads a clock as limiter does: a coarse clock without an indirect
// call.
type reader struct {
	clock  limiter.Clock
	coarse *limiter.CoarseClock // clock, where it is one
}

func newReader(c limiter.Clock) reader {
	coarse, _ := c.(*limiter.CoarseClock)
	return reader{clock: c, coarse: coarse}
}

func (r *reader) now() time.Duration {
	if r.coarse != nil {
		return r.coarse.Now()
	}
	return r.clock.Now()
}

// ticks turns instants into epochs. It divides only where the tick has changed,
// and never goes back: a caller whose reading of the clock is older is decided
// at the epoch that is open.
type ticks struct {
	length time.Duration
	slots  uint64
	end    time.Duration // of the open epoch
	epoch  uint64
}

func newTicks(s Setup, c limiter.Clock) ticks {
	t := ticks{length: s.tick(), slots: uint64(s.Slots) + 1}
	if timer, ok := c.(limiter.TimerClock); ok && timer.Resolution() > 0 {
		t.slots++ // a reading may be that old
	}
	t.end = t.length
	return t
}

func (t *ticks) advance(now time.Duration) {
	if now >= t.end {
		t.open(now)
	}
}

func (t *ticks) open(now time.Duration) {
	t.epoch = uint64(now / t.length)
	t.end = time.Duration(t.epoch+1) * t.length
}

// A mutexRing counts the same sub-windows as an atomicring.Ring, for callers that
// hold a lock. What a decision needs is apart from the slots, as there.
type mutexRing struct {
	epoch  uint64  // that the window ends with
	total  uint64  // counted in the window
	closed uint64  // counted in it before epoch
	counts *uint64 // the counts of the closed epochs, by epoch mod slots: a pointer takes a third of a slice
}

func (t *ticks) newRing() *mutexRing {
	return &mutexRing{counts: &make([]uint64, t.slots)[0]}
}

func (r *mutexRing) admit(t *ticks, cost, limit uint64) bool {
	if r.epoch != t.epoch {
		r.advance(t)
	}
	if r.total > limit || cost > limit-r.total {
		return false
	}
	r.total += cost
	return true
}

// advance closes the sub-window, and takes what has expired out of the total.
func (r *mutexRing) advance(t *ticks) {
	counts := unsafe.Slice(r.counts, t.slots)
	counts[r.epoch%t.slots] = r.total - r.closed
	if r.expired(t) {
		clear(counts)
		r.total = 0
	} else {
		for e := r.epoch + 1; e <= t.epoch; e++ {
			count := &counts[e%t.slots]
			r.total -= *count
			*count = 0
		}
	}
	r.closed = r.total
	r.epoch = t.epoch
}

// expired reports whether nothing that the ring has counted is in the window.
func (r *mutexRing) expired(t *ticks) bool { return r.epoch+t.slots <= t.epoch }

// A mutexLimiter is the limiter.Limiter that takes a lock: the same rolling
// window with the same cached total under one sync.Mutex. The clock is read
// before the lock is taken, so that the lock is held for as short as can be.
type mutexLimiter struct {
	reader reader
	limit  uint64

	mu    sync.Mutex
	ticks ticks
	ring  *mutexRing
}

func newMutexLimiter(s Setup, c limiter.Clock) *mutexLimiter {
	l := &mutexLimiter{reader: newReader(c), limit: s.Limit, ticks: newTicks(s, c)}
	l.ring = l.ticks.newRing()
	return l
}

func (l *mutexLimiter) allow(n uint64) bool {
	now := l.reader.now()
	l.mu.Lock()
	l.ticks.advance(now)
	allowed := l.ring.admit(&l.ticks, n, l.limit)
	l.mu.Unlock()
	return allowed
}

// A mutexKeyed is the limiter.Keyed that takes a lock: a map of rings in
// stripes, each under one sync.Mutex that also guards the rings in it, so that a
// decision takes one lock. At its cap, new keys share a ring in their stripe for
// as long as that ring counts anything.
type mutexKeyed struct {
	reader  reader
	limit   uint64
	maxKeys int64
	keys    atomic.Int64
	seed    maphash.Seed
	stripes []stripe
	stop    chan struct{}
	stopped sync.WaitGroup
}

type stripe struct {
	mu       sync.Mutex
	ticks    ticks
	rings    map[string]*mutexRing
	overflow *mutexRing
	_        [128]byte // two lines, for processors that fetch pairs
}

// mutexStripes is far more than the cores at hand, so that two of them seldom
// want the same stripe, and leaves a sweep few rings to visit under one lock.
const mutexStripes = 256

// defaultSweep is the pause between sweeps where a Setup names none.
const defaultSweep = time.Minute

func newMutexKeyed(s Setup, c limiter.Clock) *mutexKeyed {
	n := min(mutexStripes, 1<<bits.Len(uint(s.MaxKeys/16)))
	k := &mutexKeyed{
		reader:  newReader(c),
		limit:   s.Limit,
		maxKeys: int64(s.MaxKeys),
		seed:    maphash.MakeSeed(),
		stripes: make([]stripe, n),
		stop:    make(chan struct{}),
	}
	for i := range k.stripes {
		st := &k.stripes[i]
		st.ticks = newTicks(s, c)
		st.rings = make(map[string]*mutexRing)
		st.overflow = st.ticks.newRing()
	}
	every := s.SweepEvery
	if every == 0 {
		every = defaultSweep
	}
	k.stopped.Go(func() { k.sweepEvery(every) })
	return k
}

func (k *mutexKeyed) allow(key string, n uint64) bool {
	now := k.reader.now()
	s := &k.stripes[maphash.String(k.seed, key)&uint64(len(k.stripes)-1)]
	s.mu.Lock()
	s.ticks.advance(now)
	ring := s.overflow
	if own, ok := s.rings[key]; ok {
		ring = own
	} else if s.overflow.expired(&s.ticks) || s.overflow.total == 0 {
		if k.keys.Add(1) <= k.maxKeys {
			ring = s.ticks.newRing()
			s.rings[strings.Clone(key)] = ring
		} else {
			k.keys.Add(-1)
		}
	}
	allowed := ring.admit(&s.ticks, n, k.limit)
	s.mu.Unlock()
	return allowed
}

func (k *mutexKeyed) sweepEvery(d time.Duration) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-t.C:
			k.sweep()
		}
	}
}

// sweep removes the keys that count nothing any more.
func (k *mutexKeyed) sweep() {
	for i := range k.stripes {
		now := k.reader.now()
		s := &k.stripes[i]
		s.mu.Lock()
		s.ticks.advance(now)
		for key, ring := range s.rings {
			if ring.expired(&s.ticks) {
				delete(s.rings, key)
				k.keys.Add(-1)
			}
		}
		s.mu.Unlock()
	}
}

func (k *mutexKeyed) close() {
	close(k.stop)
	k.stopped.Wait()
}
