package sharded

import (
	"hash/maphash"
	"math/bits"
	"reflect"
	"strings"

	"github.com/puzpuzpuz/xsync/v3"
)

const (
	// maxShardKeys is how many keys a shard has, on average, when the map holds maxKeys keys. It bounds what one RangeShard
	// does, 10 ms, and how long an insert waits while its shard is resized: the longest of a million took 22 ms, and 7 ms
	// with shards of 4096 keys. The garbage collector is the reason not to take less. It scans small objects by pages, and
	// does well where many of a page have been found by then; of the entries of a small shard few share a page. With a
	// million keys a collection took 2.1 to 2.5 times that of a single xsync.MapOf with shards of 4096 keys, 1.3 to 1.8
	// times with these (BenchmarkMemory in benchmarks; Go 1.26, two processors).
	maxShardKeys = 65536

	// A map for which fewer shards would do has up to manyShards nevertheless, so that inserts seldom wait for a resize, as
	// long as each shard has minShardKeys. (The smallest table of xsync has room for 160 keys.)
	manyShards   = 16
	minShardKeys = 256

	// maxShards bounds the fixed cost of a map whose maxKeys is far larger than what it will hold: 2.8 MB.
	maxShards = 1024
)

// Map is a concurrent map from K to V. Its callers hash a key once, with [Map.Hash], and pass the hash along with the key.
// Make a Map with [NewMap]; the zero value is not usable. A Map is safe for concurrent use and must not be copied.
//
// Progress: Hash, ShardOf and Load take no lock and never wait. An insert or a delete takes the lock of one bucket of an
// [xsync.MapOf], and waits while its shard is being resized, which moves all keys of that shard. RangeShard holds the lock
// of one bucket at a time, while it copies the bucket.
//
// Memory model: the insert of a value, and the call of create that returned it, synchronizes before every call that finds
// the value.
//
// Keys are the same if they are ==. Not supported are keys that are not == to themselves (NaN, alone or within another
// type), which each insert would add anew and nothing would find or delete, and keys that are or contain interfaces. V must
// be a type for which == cannot panic.
//
// Where K is a string type, the map stores copies of the keys' bytes. Strings inside structs and arrays are stored as they
// are: one that was cut from a larger string keeps that alive for as long as the key is in the map.
type Map[K, V comparable] struct {
	seed     maphash.Seed
	shift    uint // hash >> shift is the shard
	isString bool // K is a string type
	shards   []*xsync.MapOf[hashedKey[K], V]
}

// hashedKey is the key type of the shards: a key and its hash, so that xsync does not compute one. xsync takes the bits of
// the hash from the low end, and so the shard is taken from the high end:
//
//	 63       shift                                7 6           0
//	+--------------+-------------------------------+-------------+
//	|    shard     |     ...        bucket         | fingerprint |
//	+--------------+-------------------------------+-------------+
//
// The bucket is as many bits as the shard's table has, from bit 7 on; the fingerprint is compared before the key is. With
// 16 shards of 16,384 buckets: bits 63-60, 20-7 and 6-0.
type hashedKey[K comparable] struct {
	hash uint64
	key  K
}

// NewMap returns an empty map that is meant for up to maxKeys keys. From maxKeys follows the number of shards, a power of
// two from 1 to 1024, and nothing else: a map can hold more keys, in larger shards. A maxKeys below 1 is taken as 1.
//
// An empty map takes 2.7 KB a shard. A map for 256 keys has one shard, one for 4096 to a million keys 16.
func NewMap[K, V comparable](maxKeys int) *Map[K, V] {
	shards := make([]*xsync.MapOf[hashedKey[K], V], shardsFor(maxKeys))
	for i := range shards {
		// xsync's own seed is left aside: the hash has been made with one.
		shards[i] = xsync.NewMapOfWithHasher[hashedKey[K], V](func(k hashedKey[K], _ uint64) uint64 { return k.hash })
	}
	return &Map[K, V]{
		seed:     maphash.MakeSeed(),
		shift:    uint(64 - bits.TrailingZeros(uint(len(shards)))),
		isString: reflect.TypeFor[K]().Kind() == reflect.String,
		shards:   shards,
	}
}

// shardsFor returns the number of shards of a map for maxKeys keys.
func shardsFor(maxKeys int) int {
	n := max(maxKeys/maxShardKeys, min(maxKeys/minShardKeys, manyShards), 1)
	if n < maxShards && n*maxShardKeys < maxKeys {
		n++ // the quotients were rounded down
	}
	return min(1<<bits.Len(uint(n-1)), maxShards)
}

// Hash returns the hash of key that the other methods want. Keys that are == have the same hash. It differs from map to map,
// at random, so that nobody outside can know which keys collide. It does not allocate.
func (m *Map[K, V]) Hash(key K) uint64 { return maphash.Comparable(m.seed, key) }

// Shards returns the number of shards, a power of two.
func (m *Map[K, V]) Shards() int { return len(m.shards) }

// ShardOf returns the shard of the keys with that hash, a number from 0 to Shards() - 1.
func (m *Map[K, V]) ShardOf(hash uint64) int { return int(hash >> m.shift) }

// Load returns the value of key and true, or the zero value and false if key is not in the map. The hash must be Hash(key),
// here and below.
func (m *Map[K, V]) Load(hash uint64, key K) (value V, ok bool) {
	// In this form, with named results, the compiler inlines it.
	value, ok = m.shards[hash>>m.shift].Load(hashedKey[K]{hash, key})
	return
}

// LoadOrCompute returns the value of key and true if key is in the map. Otherwise it inserts key with the value that create
// returns, and returns that value and false. However many callers race to insert a key, one create is called, and all of
// them return its value. Where key is in the map, nothing is allocated and no lock is taken.
//
// A bucket is locked during create: it must be short, must not panic, as the bucket would stay locked, and must not use
// the map, as it would wait for itself. Do not call a user's function in it.
func (m *Map[K, V]) LoadOrCompute(hash uint64, key K, create func() V) (value V, loaded bool) {
	if value, ok := m.Load(hash, key); ok {
		return value, true
	}
	return m.shards[m.ShardOf(hash)].LoadOrCompute(hashedKey[K]{hash, m.ownKey(key)}, create)
}

// CompareAndDelete deletes key if its value is old, and reports whether it did. Where it is not, nothing is allocated and no
// lock is taken.
func (m *Map[K, V]) CompareAndDelete(hash uint64, key K, old V) bool {
	// Look first: xsync has no way to keep a value but to store it anew.
	if value, ok := m.Load(hash, key); !ok || value != old {
		return false
	}
	return m.compareAndDelete(hash, key, old)
}

// compareAndDelete is CompareAndDelete for a key whose value is most probably old.
func (m *Map[K, V]) compareAndDelete(hash uint64, key K, old V) bool {
	shard := m.shards[m.ShardOf(hash)]
	deleted, kept := false, false
	shard.Compute(hashedKey[K]{hash, key}, func(value V, loaded bool) (V, bool) {
		deleted, kept = loaded && value == old, loaded && value != old
		return value, !kept // to delete an absent key does nothing
	})
	if kept && m.isString {
		// Another caller has replaced the value since it was found to be old, and xsync has just stored the new one again,
		// under the caller's key. Put a key of the map's own in its place.
		shard.Compute(hashedKey[K]{hash, m.ownKey(key)}, func(value V, loaded bool) (V, bool) {
			return value, !loaded
		})
	}
	return deleted
}

// RangeShard calls f for the keys of the shard, with their hashes and values, until f returns false. It visits no key twice,
// and every key that is in the map all the while; keys inserted or deleted meanwhile may be visited or not. No lock is held
// during f, which may use the map. It panics if shard is not from 0 to Shards() - 1.
func (m *Map[K, V]) RangeShard(shard int, f func(hash uint64, key K, value V) bool) {
	m.shards[shard].Range(func(k hashedKey[K], value V) bool { return f(k.hash, k.key, value) })
}

// Len returns the number of keys. It adds up the counters of all shards, one after the other: the result is exact if the map
// does not change meanwhile.
func (m *Map[K, V]) Len() int {
	n := 0
	for _, shard := range m.shards {
		n += shard.Size()
	}
	return n
}

// ownKey returns key, with bytes of its own if K is a string type.
func (m *Map[K, V]) ownKey(key K) K {
	if m.isString {
		v := reflect.ValueOf(&key).Elem()
		v.SetString(strings.Clone(v.String()))
	}
	return key
}
