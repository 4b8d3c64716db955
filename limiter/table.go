package limiter

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ringfence-go/ringfence/sharded"
)

// OnFull says what becomes of a new key when MaxKeys keys are in use. A key that
// is in use is never removed to make room.
type OnFull uint8

const (
	// ShareOverflow lets new keys share an overflow state, one of a few for
	// thousands of keys, with the same limit: they are held to it together. They
	// go on to share it when there is room again, until none of them has asked for a
	// whole window: else what one has used of it would not count. The default.
	ShareOverflow OnFull = iota
	// DenyNew denies new keys, with [ReasonFull].
	DenyNew
	// AdmitNew admits new keys without counting them. It fails open: whoever can
	// make up keys is not limited.
	AdmitNew
)

const (
	// sectionKeys is how many keys a section has at most, on average, unless that
	// would take more than maxSections.
	sectionKeys = 4096
	maxSections = 4096

	// overflowParts is how many overflow states a section has, each for the keys
	// that have the same two bits in their hash.
	overflowParts = 4
)

// A kind says how a table makes and removes its states, which are rings or
// cells. Times are epochs for the ones and ticks for the others.
type kind[S any] struct {
	// create returns a state that nobody else holds, opened at the time at with
	// cost units in it. A cell's window lasts decay ticks.
	create func(at, cost, decay uint64) *S
	// retire kills a state in which everything has expired at the time now, and
	// returns how many units it held that are counted nowhere else.
	retire func(s *S, now uint64) (units uint64, ok bool)
	// rest is the least time between two sweeps of a shard for room.
	rest uint64
}

// A table maps keys to states, at most maxKeys of them. It owns their birth and
// their removal; decisions on a key that exists are a lock-free load.
//
// Removal is retire, then delete: raise the section's floor, retire the state by
// CAS, delete that very state from the map. Who meets a retired state helps to
// delete it and looks the key up again. Who finds no state, or a retired one,
// decides at no less than the floor.
type table[K comparable, S any] struct {
	keys    *sharded.Map[K, *S]
	kind    kind[S]
	onFull  OnFull
	maxKeys int64
	_       [64]byte
	count   atomic.Int64 // keys in the map, and those about to be inserted
	_       [64]byte

	rested   []atomic.Uint64 // for each shard of the map, the time of its next sweep for room
	shift    uint            // hash >> shift is the section
	sections []section[S]
}

// A section is what a table keeps for a part of the keys, those whose hashes
// begin with the same bits. A shard of the map has one section or more: shards
// are large for the sake of the garbage collector, locks are many for the sake of
// those who wait for them.
type section[S any] struct {
	floor atomic.Uint64 // no state is born at a time before this one

	mu       sync.Mutex // decides between an own and an overflow state, for keys that have none
	overflow [overflowParts]*S

	admitted atomic.Uint64 // units in states retired, and in sub-windows closed
	retired  atomic.Uint64
	forced   atomic.Uint64
	_        [64]byte
}

func (t *table[K, S]) init(maxKeys int, onFull OnFull, k kind[S]) {
	t.keys = sharded.NewMap[K, *S](maxKeys)
	t.kind = k
	t.onFull = onFull
	t.maxKeys = int64(maxKeys)
	n := max(t.keys.Shards(), min(1<<bits.Len(uint(maxKeys-1)/sectionKeys), maxSections))
	t.shift = uint(64 - bits.TrailingZeros(uint(n)))
	t.sections = make([]section[S], n)
	t.rested = make([]atomic.Uint64, t.keys.Shards())
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

func (t *table[K, S]) section(hash uint64) *section[S] { return &t.sections[hash>>t.shift] }

// raise lifts the floor to now.
func (sec *section[S]) raise(now uint64) {
	for {
		old := sec.floor.Load()
		if old >= now || sec.floor.CompareAndSwap(old, now) { // if it fails, another remover raised it
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
	sec := t.section(hash)
	s, p, from, sweep := t.trySettle(sec, hash, key, at, cost, decay)
	if sweep {
		t.sweepShard(t.keys.ShardOf(hash), at)
		s, p, from, _ = t.trySettle(sec, hash, key, at, cost, decay)
	}
	return s, p, from
}

// trySettle is one attempt to settle. It asks the caller to sweep the shard
// where there is no room and nobody has swept it for long enough.
func (t *table[K, S]) trySettle(sec *section[S], hash uint64, key K, at, cost, decay uint64) (s *S, p place, from uint64, sweep bool) {
	sec.mu.Lock()
	defer sec.mu.Unlock()
	if s, ok := t.keys.Load(hash, key); ok {
		return s, own, at, false
	}
	// While an overflow state holds anything, its keys get no other: they may
	// have been counted in it.
	part := &sec.overflow[hash%overflowParts]
	if *part != nil && !t.retireOverflow(sec, part, at) {
		sec.forced.Add(1)
		return *part, shared, max(at, sec.floor.Load()), false
	}
	if t.reserve() {
		s, loaded := t.keys.LoadOrCompute(hash, key, func() *S {
			from = max(at, sec.floor.Load())
			return t.kind.create(from, cost, decay)
		})
		if loaded {
			t.count.Add(-1)
			return s, own, at, false
		}
		return s, born, from, false
	}
	if t.sweepDue(hash, at) {
		return nil, denied, at, true
	}
	sec.forced.Add(1)
	switch t.onFull {
	case DenyNew:
		return nil, denied, at, false
	case AdmitNew:
		return nil, admitted, at, false
	}
	from = max(at, sec.floor.Load())
	*part = t.kind.create(from, cost, decay)
	return *part, sharing, from, false
}

// sweepDue reports whether the caller at the time at is to sweep the shard of hash
// for room. Nobody else is then for another rest.
func (t *table[K, S]) sweepDue(hash, at uint64) bool {
	rested := &t.rested[t.keys.ShardOf(hash)]
	old := rested.Load()
	return at >= old && rested.CompareAndSwap(old, at+t.kind.rest) // if it fails, another caller sweeps
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
	sec := t.section(hash)
	sec.mu.Lock()
	defer sec.mu.Unlock()
	if s, ok := t.keys.Load(hash, key); ok {
		return s, own, false
	}
	if s := sec.overflow[hash%overflowParts]; s != nil {
		return s, shared, false
	}
	if t.count.Load() >= t.maxKeys {
		switch t.onFull {
		case DenyNew:
			return nil, denied, t.sweepDue(hash, at)
		case AdmitNew:
			return nil, admitted, false
		}
	}
	return nil, born, false
}

// drop deletes a retired state, if it is still the key's.
func (t *table[K, S]) drop(hash uint64, key K, s *S) {
	if t.keys.CompareAndDelete(hash, key, s) {
		t.count.Add(-1)
		t.section(hash).retired.Add(1)
	}
}

// sweep removes all states in which everything has expired at the time now, one
// shard of the map after the other.
func (t *table[K, S]) sweep(now uint64) {
	for i := range t.rested {
		t.sweepShard(i, now)
	}
}

// sweepShard is sweep for one shard of the map. It waits for no decision, and none
// waits for it.
func (t *table[K, S]) sweepShard(shard int, now uint64) {
	n := len(t.sections) / t.keys.Shards()
	sections := t.sections[shard*n : (shard+1)*n]
	for i := range sections {
		sections[i].raise(now)
	}
	t.keys.RangeShard(shard, func(hash uint64, key K, s *S) bool {
		if units, ok := t.kind.retire(s, now); ok {
			t.section(hash).admitted.Add(units)
			t.drop(hash, key, s)
		}
		return true
	})
	for i := range sections {
		t.sweepOverflow(&sections[i], now)
	}
}

// sweepOverflow removes the overflow states of a section in which everything has
// expired at the time now.
func (t *table[K, S]) sweepOverflow(sec *section[S], now uint64) {
	sec.mu.Lock()
	defer sec.mu.Unlock()
	for i := range sec.overflow {
		if part := &sec.overflow[i]; *part != nil {
			t.retireOverflow(sec, part, now)
		}
	}
}

// retireOverflow removes an overflow state if everything in it has expired at
// the time now. The caller holds the section's lock.
func (t *table[K, S]) retireOverflow(sec *section[S], part **S, now uint64) bool {
	sec.raise(now)
	units, ok := t.kind.retire(*part, now)
	if ok {
		sec.admitted.Add(units)
		*part = nil
	}
	return ok
}

// stats fills in what the table counts.
func (t *table[K, S]) stats(s *Stats) {
	s.Keys = uint64(t.count.Load())
	for i := range t.sections {
		sec := &t.sections[i]
		s.Admitted += sec.admitted.Load()
		s.Retired += sec.retired.Load()
		s.Forced += sec.forced.Load()
	}
}
