package atomicring

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// An owner keeps the ring of one key as the package comment asks for under
// Birth. Lookups are free; inserts and deletes exclude each other.
type owner struct {
	layout *Layout
	ring   atomic.Pointer[Ring]
	floor  atomic.Uint64
	mu     sync.Mutex // held for an insert or a delete
	births atomic.Uint64
	closed atomic.Uint64 // what retirements found still open
}

func (o *owner) Admit(epoch, cost, limit uint64) Admission {
	var closed uint64
	for {
		r := o.ring.Load()
		yield()
		if r == nil {
			if cost > limit {
				return Admission{Verdict: Denied, Epoch: max(epoch, o.floor.Load()), Closed: closed}
			}
			if birth, ok := o.create(epoch, cost); ok {
				return Admission{Verdict: Admitted, Epoch: birth, Total: cost, Closed: closed}
			}
			continue // another caller's ring is there
		}
		a := r.Admit(o.layout, epoch, cost, limit)
		closed += a.Closed
		if a.Verdict != Retired {
			a.Closed = closed
			return a
		}
		o.remove(r)
	}
}

// create makes the ring, with its first units in it, and returns their epoch.
// The floor is read where no other ring can come and go.
func (o *owner) create(epoch, cost uint64) (birth uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ring.Load() != nil {
		return 0, false
	}
	birth = max(epoch, o.floor.Load())
	r := o.layout.NewRing()
	r.Open(o.layout, birth, cost)
	o.ring.Store(r)
	o.births.Add(1)
	return birth, true
}

// Refund looks the ring up by key. That is right here, and only here, because
// no two rings of an owner ever share an epoch.
func (o *owner) Refund(epoch, cost uint64) bool {
	r := o.ring.Load()
	yield()
	return r != nil && r.Refund(o.layout, epoch, cost)
}

// sweep retires the ring if everything in it has expired: floor, retire, delete.
func (o *owner) sweep(epoch uint64) {
	r := o.ring.Load()
	if r == nil {
		return
	}
	for {
		floor := o.floor.Load()
		if epoch <= floor || o.floor.CompareAndSwap(floor, epoch) {
			break
		}
	}
	yield()
	if open, ok := r.Retire(o.layout, epoch); ok {
		o.closed.Add(open)
		yield()
		o.remove(r)
	}
}

// remove deletes that very ring.
func (o *owner) remove(r *Ring) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ring.Load() == r {
		o.ring.Store(nil)
	}
}

// TestBirth_LateCreator: a caller that slept since before the old ring was
// retired creates the new one. Without the floor it would be counted in epochs
// that the old ring has filled already.
func TestBirth_LateCreator(t *testing.T) {
	for late := range uint64(8) {
		o := &owner{layout: mustLayout(t, 3, 5)}
		require.Equal(t, Admission{Admitted, 7, 5, 0}, o.Admit(7, 5, 5))
		o.sweep(9)
		require.NotNil(t, o.ring.Load(), "7 is in the window of 9")
		o.sweep(10)
		require.Nil(t, o.ring.Load())
		require.Equal(t, uint64(5), o.closed.Load())
		require.Equal(t, Admission{Admitted, 10, 5, 0}, o.Admit(late, 5, 5), "a caller of epoch %d", late)
		require.Equal(t, Admission{Denied, 12, 5, 5}, o.Admit(12, 1, 5))
	}
}

// TestBirth_HolderOfRetiredRing: whoever still holds the retired ring, and
// whatever it had in hand, is sent back to the key.
func TestBirth_HolderOfRetiredRing(t *testing.T) {
	o := &owner{layout: mustLayout(t, 3, 5)}
	o.Admit(7, 5, 5)
	held := o.ring.Load()
	h := held.head.Load()
	open, ok := held.Retire(o.layout, 10) // retired, not yet deleted
	require.True(t, ok)
	require.Equal(t, uint64(5), open)
	o.floor.Store(10)

	require.Equal(t, Admission{Verdict: Retired}, held.Admit(o.layout, 8, 1, 5))
	require.Zero(t, held.advance(o.layout, h, 8), "asleep before the freeze")
	require.Zero(t, held.advance(o.layout, h|o.layout.frozen, 8), "asleep after it")
	require.False(t, held.Refund(o.layout, 7, 1))
	require.Equal(t, retired, held.head.Load())

	require.Equal(t, Admission{Admitted, 10, 1, 0}, o.Admit(8, 1, 5))
	require.NotSame(t, held, o.ring.Load())
}

// TestBirth_Stress: admissions and refunds race with retirements, deletions and
// births of the same key. The clock jumps by a lap and more, so that the ring
// expires all the time, and many callers are late.
func TestBirth_Stress(t *testing.T) {
	atProcs(t, func(t *testing.T) {
		for _, d := range []drill{
			{slots: 1, limit: 1, maxCost: 1, jump: 2, rollovers: uint64(rounds(20_000))},
			{slots: 3, limit: 5, maxCost: 5, jump: 9, rollovers: uint64(rounds(20_000))},
			{slots: 2, limit: 10, maxCost: 2, jump: 5, refunds: true, rollovers: uint64(rounds(20_000))},
		} {
			o := &owner{layout: mustLayout(t, d.slots, d.limit)}
			rec := d.run(t, seedOf(t), o, func(epoch uint64, rng *rand.Rand) {
				if rng.IntN(4) == 0 {
					o.sweep(epoch)
				}
			})
			admitted := d.check(t, rec)
			o.sweep(rec.clock.Load() + uint64(d.slots))
			require.Nil(t, o.ring.Load())
			require.Equal(t, admitted, rec.closed.Load()+o.closed.Load())
			require.Greater(t, o.births.Load(), d.rollovers/10, "too few births: this tested nothing")
		}
	})
}

// TestRing_Expired: Expired says beforehand what Retire will do, at every epoch,
// and writes nothing.
func TestRing_Expired(t *testing.T) {
	const slots = 3
	l := mustLayout(t, slots, 10)
	require.False(t, l.NewRing().Expired(l, math.MaxUint64), "never used")
	for _, frozen := range []bool{false, true} {
		for epoch := range uint64(10) {
			r := l.NewRing()
			r.Admit(l, 4, 2, 10)
			if frozen {
				r.freeze(l, r.head.Load())
			}
			before := words(r, l)
			expired := r.Expired(l, epoch)
			require.Equal(t, epoch >= 4+slots, expired)
			require.Equal(t, before, words(r, l))
			_, ok := r.Retire(l, epoch)
			require.Equal(t, expired, ok)
			require.Equal(t, ok, r.Expired(l, 0), "retired")
		}
	}
}

// TestRing_RetireRaces: retirements race with admissions at every epoch on
// both sides of the boundary. One wins; whoever comes after it sees it.
func TestRing_RetireRaces(t *testing.T) {
	atProcs(t, func(t *testing.T) {
		l := mustLayout(t, 2, 1000)
		for i := range rounds(2_000) {
			r := l.NewRing()
			r.Open(l, 5, 1)
			var admitted, closed, winners atomic.Uint64
			together(uint64(i), func(rng *rand.Rand) {
				for range 4 {
					epoch := 5 + rng.Uint64N(4)
					if rng.IntN(2) == 0 {
						if open, ok := r.Retire(l, epoch+1); ok {
							closed.Add(open)
							winners.Add(1)
							if a := r.Admit(l, epoch+2, 1, 1000); a.Verdict != Retired {
								winners.Add(100)
							}
						}
					} else {
						a := r.Admit(l, epoch, 1, 1000)
						closed.Add(a.Closed)
						if a.Verdict == Admitted {
							admitted.Add(1)
						}
					}
				}
			})
			if open, ok := r.Discard(l); ok {
				closed.Add(open)
				winners.Add(1)
			}
			require.Equal(t, uint64(1), winners.Load(), "retired once, and for good")
			require.Equal(t, admitted.Load()+1, closed.Load())
		}
	})
}
