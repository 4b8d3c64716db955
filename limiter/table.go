package limiter

import (
	"sync"
	"sync/atomic"

	"github.com/ringfence-go/ringfence/sharded"
)

// OnFull says what becomes of a new key when MaxKeys keys are in use. A key that
// is in use is never removed to make room.
type OnFull uint8

const (
	// ShareOverflow lets new keys share an overflow state with the same limit: they
	// are held to it together. Of these there are up to 64 beside MaxKeys for a
	// MaxKeys below 512, and up to 1024 from 4096 to a million. The keys
	// go on to share it when there is room again, until none of them has asked for a
	// whole window: else what one has used of it would not count. The default.
	ShareOverflow OnFull = iota
	// DenyNew denies new keys, with [ReasonFull].
	DenyNew
	// AdmitNew admits new keys without counting them. It fails open: whoever can
	// make up keys is not limited.
	AdmitNew
)

// overflowParts is how many overflow states a shard has, each for the keys that
// have the same six bits in their hash.
const overflowParts = 64

// A kind says how a table makes and removes its states, which are rings or
// cells. Times are epochs for the ones and ticks for the others.
type kind[S any] struct {
	// create returns an overflow state; those of keys are made by the map.
	create func() *S
	// open gives a new state, which nobody else holds, its first units at the time
	// at, cost of them. A cell's window lasts decay ticks.
	open func(s *S, at, cost, decay uint64)
	// retire kills a state in which everything has expired at the time now, and
	// returns how many units it held that are counted nowhere else.
	retire func(s *S, now uint64) (units uint64, ok bool)
	// expired reports whether retire has killed a state or would at the time now.
	expired func(s *S, now uint64) bool
	// rest is the least time between two sweeps of a shard for room.
	rest uint64
}

// A table maps keys to states, at most maxKeys of them. It owns their birth and
// their removal; decisions on a key that exists are a lock-free load.
//
// Removal is retire, then delete: raise the shard's floor, retire the state by
// CAS, delete that very state from the map. Who meets a retired state helps to
// delete it and looks the key up again. Who finds no state, or a retired one,
// decides at no less than the floor.
type table[K comparable, S any] struct {
	keys    *sharded.Map[K, S]
	shards  []shard[S]
	kind    kind[S]
	onFull  OnFull
	maxKeys int64
	_       [64]byte
	count   atomic.Int64 // keys in the map, and those about to be inserted
	_       [64]byte
}

// A shard is what a table keeps for each shard of its map.
type shard[S any] struct {
	floor  atomic.Uint64 // no state is born at a time before this one
	rested atomic.Uint64 // the time of the next sweep for room

	mu       sync.Mutex // held while a key gets a state of its own, and to write overflow
	overflow [overflowParts]atomic.Pointer[S]

	admitted atomic.Uint64 // units in states retired, and in sub-windows closed
	retired  atomic.Uint64
	forced   atomic.Uint64
	_        [64]byte
}

func (t *table[K, S]) init(maxKeys int, onFull OnFull, k kind[S]) {
	t.keys = sharded.NewMap[K, S](maxKeys)
	t.shards = make([]shard[S], t.keys.Shards())
	t.kind = k
	t.onFull = onFull
	t.maxKeys = int64(maxKeys)
}

// A place is what a key without a state of its own was given.
type place uint8

const (
	own      place = iota // a state of its own, which is there
	born                  // the same, made with the caller's units in it
	shared                // an overflow state
	sharing               // the same, made with the caller's units in it
	denied                // none: the key is denied
	admitted              // none: the key is admitted
)

func (t *table[K, S]) shard(hash uint64) *shard[S] { return &t.shards[t.keys.ShardOf(hash)] }

// raise lifts the floor to now.
func (sh *shard[S]) raise(now uint64) {
	for {
		old := sh.floor.Load()
		if old >= now || sh.floor.CompareAndSwap(old, now) { // if it fails, another remover raised it
			return
		}
	}
}

// reserve takes one of the places for keys.
func (t *table[K, S]) reserve() bool {
	for {
		n := t.count.Load()
		if n >= t.maxKeys {
			return false
		}
		if t.count.CompareAndSwap(n, n+1) { // if it fails, another key came or went
			return true
		}
	}
}

// settle finds a place for cost units of a key whose state was seen absent or
// retired, at the time at or the later one that it returns. A state that was
// there before may be retired by the time the caller uses it: then it settles
// again.
func (t *table[K, S]) settle(hash uint64, key K, at, cost, decay uint64) (s *S, p place, from uint64) {
	sh := t.shard(hash)
	switch s, p = t.find(sh, hash, key, at); {
	case s != nil && p == own:
		return s, own, at
	case s != nil:
		sh.forced.Add(1)
		return s, shared, max(at, sh.floor.Load())
	}
	s, p, from, sweep := t.trySettle(sh, hash, key, at, cost, decay)
	if sweep {
		t.sweepShard(t.keys.ShardOf(hash), at)
		s, p, from, _ = t.trySettle(sh, hash, key, at, cost, decay)
	}
	return s, p, from
}

// force counts a decision on a key that was denied at its place: by OnFull, if it
// has no state of its own.
func (t *table[K, S]) force(hash uint64, p place) {
	if p == shared || p == denied {
		t.shard(hash).forced.Add(1)
	}
}

// find returns the overflow state that a key without a state of its own has to
// share at the time at, if there is one, or its own if it has one by now. It takes
// no lock: of many new keys at the cap, most end here.
func (t *table[K, S]) find(sh *shard[S], hash uint64, key K, at uint64) (*S, place) {
	s := sh.overflow[hash%overflowParts].Load()
	if s == nil || t.kind.expired(s, at) {
		return nil, shared
	}
	// In this order: no key of the part is born before s is retired. So one that is
	// absent now has no state of its own as long as s admits anything. See
	// verify/models/overflow.pml.
	if s, ok := t.keys.Load(hash, key); ok {
		return s, own
	}
	return s, shared
}

// trySettle is one attempt to settle. It asks the caller to sweep the shard
// where there is no room and nobody has swept it for long enough.
func (t *table[K, S]) trySettle(sh *shard[S], hash uint64, key K, at, cost, decay uint64) (s *S, p place, from uint64, sweep bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s, ok := t.keys.Load(hash, key); ok {
		return s, own, at, false
	}
	// While an overflow state holds anything, its keys get no other: they may
	// have been counted in it.
	part := &sh.overflow[hash%overflowParts]
	if s := part.Load(); s != nil && !t.retireOverflow(sh, part, at) {
		sh.forced.Add(1)
		return s, shared, max(at, sh.floor.Load()), false
	}
	if t.reserve() {
		s, loaded := t.keys.LoadOrCompute(hash, key, func(s *S) {
			from = max(at, sh.floor.Load())
			t.kind.open(s, from, cost, decay)
		})
		if loaded {
			t.count.Add(-1)
			return s, own, at, false
		}
		return s, born, from, false
	}
	if t.sweepDue(sh, at) {
		return nil, denied, at, true
	}
	sh.forced.Add(1)
	switch t.onFull {
	case DenyNew:
		return nil, denied, at, false
	case AdmitNew:
		return nil, admitted, at, false
	}
	from = max(at, sh.floor.Load())
	s = t.kind.create()
	t.kind.open(s, from, cost, decay)
	part.Store(s) // from here on others find it
	return s, sharing, from, false
}

// sweepDue reports whether the caller at the time at is to sweep the shard for
// room. Nobody else is then for another rest.
func (t *table[K, S]) sweepDue(sh *shard[S], at uint64) bool {
	old := sh.rested.Load()
	return at >= old && sh.rested.CompareAndSwap(old, at+t.kind.rest) // if it fails, another caller sweeps
}

// peek finds the place that settle would at the time at, and makes no state: born
// is one that would be new. It sweeps for room as settle does, since AttemptAll
// and AttemptMany go no further where it denies.
func (t *table[K, S]) peek(hash uint64, key K, at uint64) (*S, place) {
	s, p, sweep := t.tryPeek(hash, key, at)
	if sweep {
		t.sweepShard(t.keys.ShardOf(hash), at)
		s, p, _ = t.tryPeek(hash, key, at)
	}
	return s, p
}

func (t *table[K, S]) tryPeek(hash uint64, key K, at uint64) (s *S, p place, sweep bool) {
	sh := t.shard(hash)
	if s, p := t.find(sh, hash, key, at); s != nil {
		return s, p, false
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s, ok := t.keys.Load(hash, key); ok {
		return s, own, false
	}
	if s := sh.overflow[hash%overflowParts].Load(); s != nil {
		return s, shared, false
	}
	if t.count.Load() >= t.maxKeys {
		switch t.onFull {
		case DenyNew:
			return nil, denied, t.sweepDue(sh, at)
		case AdmitNew:
			return nil, admitted, false
		}
	}
	return nil, born, false
}

// drop deletes the key of a retired state, if the state is still that key's.
func (t *table[K, S]) drop(hash uint64, s *S) {
	if t.keys.Delete(hash, s) {
		t.count.Add(-1)
		t.shard(hash).retired.Add(1)
	}
}

// sweep removes all states in which everything has expired at the time now, one
// shard after the other.
func (t *table[K, S]) sweep(now uint64) {
	for i := range t.shards {
		t.sweepShard(i, now)
	}
}

// sweepShard is sweep for one shard. It waits for no decision, and none waits for
// it.
func (t *table[K, S]) sweepShard(i int, now uint64) {
	sh := &t.shards[i]
	sh.raise(now)
	t.keys.RangeShard(i, func(hash uint64, _ K, s *S) bool {
		if units, ok := t.kind.retire(s, now); ok {
			sh.admitted.Add(units)
			t.drop(hash, s)
		}
		return true
	})
	t.sweepOverflow(sh, now)
}

// sweepOverflow removes the overflow states of a shard in which everything has
// expired at the time now.
func (t *table[K, S]) sweepOverflow(sh *shard[S], now uint64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := range sh.overflow {
		if part := &sh.overflow[i]; part.Load() != nil {
			t.retireOverflow(sh, part, now)
		}
	}
}

// retireOverflow removes an overflow state if everything in it has expired at
// the time now. The caller holds the shard's lock.
func (t *table[K, S]) retireOverflow(sh *shard[S], part *atomic.Pointer[S], now uint64) bool {
	sh.raise(now)
	units, ok := t.kind.retire(part.Load(), now)
	if ok {
		sh.admitted.Add(units)
		part.Store(nil)
	}
	return ok
}

// stats fills in what the table counts.
func (t *table[K, S]) stats(s *Stats) {
	s.Keys = uint64(t.count.Load())
	for i := range t.shards {
		sh := &t.shards[i]
		s.Admitted += sh.admitted.Load()
		s.Retired += sh.retired.Load()
		s.Forced += sh.forced.Load()
	}
}
