package sharded

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"reflect"
	"sync/atomic"
	"unsafe"

	"github.com/puzpuzpuz/xsync/v3"
)

const (
	// maxShardKeys is how many keys a shard has, on average, when the map holds maxKeys keys. It bounds what one RangeShard
	// does, 3 ms, and how long an insert waits while its shard is resized: of a million inserts by two goroutines the tenth
	// longest took 5 to 18 ms, and 4 to 10 ms with shards of 16,384 keys. The garbage collector is the reason not to take
	// less. It scans small objects by pages, and does well where many of a page have been found by then; of the entries of a
	// small shard few share a page. With a million values that point to something a collection took 1.1 to 1.3 times that of
	// a single xsync.MapOf, and 1.4 to 1.8 times with shards of 16,384 keys (Go 1.26, two processors).
	maxShardKeys = 65536

	// A map for which fewer shards would do has up to manyShards nevertheless, so that inserts seldom wait for a resize, as
	// long as each shard has minShardKeys. (The smallest table of xsync has room for 160 keys.)
	manyShards   = 16
	minShardKeys = 256

	// maxShards bounds the fixed cost of a map whose maxKeys is far larger than what it will hold: 2.8 MB.
	maxShards = 1024

	// The first keys of a map, roomyKeys of them, share no cache line with one another. There may be no more, each used by
	// other processors all the time. Of many keys that stands out less than the room does.
	roomyKeys = 1024
)

// Map is a concurrent map from K to *V that makes the values itself, each in one object with its key. Its callers hash
// a key once, with [Map.Hash], and pass the hash along with the key. Make a Map with [NewMap]; the zero value is not usable.
// A Map is safe for concurrent use and must not be copied.
//
// Progress: Hash, ShardOf and Load take no lock and never wait. An insert or a delete takes the lock of one bucket of an
// [xsync.MapOf], of two for a key whose hash another one has, and waits while its shard is being resized, which moves all
// keys of that shard. RangeShard holds the lock of one bucket at a time, while it copies the bucket.
//
// Memory model: the insert of a value, and the call of init that set it up, synchronizes before every call that finds
// the value.
//
// Keys are the same if they are ==. Not supported are keys that are not == to themselves (NaN, alone or within another
// type), which each insert would add anew and no Load would find, and keys that are or contain interfaces.
//
// A hash that is not the key's own, or not the value's, makes the map wrong, and Has, HasShort and Delete unsafe.
//
// Where K is a string type, the map stores copies of the keys' bytes, up to 64 of them in the same object. Strings inside
// structs and arrays are stored as they are: one that was cut from a larger string keeps that alive for as long as the key
// is in the map.
type Map[K comparable, V any] struct {
	seed   maphash.Seed
	shift  uint // hash >> shift is the shard
	nodes  nodes[K, V]
	shards []*xsync.MapOf[uint64, *V] // by hash
	// strays has the keys whose hash another key had first, nil if there never was one. In one map of a million strings in
	// 290,000 there is one, for keys of other types in one of 37 million.
	strays atomic.Pointer[xsync.MapOf[hashedKey[K], *V]]
	made   atomic.Int64 // the first keys, up to roomyKeys
}

// The key type of the shards is the hash of a key, so that xsync does not compute one. xsync takes the bits of it from the
// low end, and so the shard is taken from the high end:
//
//	 63       shift                                7 6           0
//	+--------------+-------------------------------+-------------+
//	|    shard     |     ...        bucket         | fingerprint |
//	+--------------+-------------------------------+-------------+
//
// The bucket is as many bits as the shard's table has, from bit 7 on; the fingerprint is compared before the hash is. With
// 64 shards of 8192 buckets: bits 63-58, 19-7 and 6-0. Strings have their length in bits 50-44, see node.go.
func ownHash(hash, _ uint64) uint64 { return hash } // xsync's own seed is left aside: the hash has been made with one

// hashedKey is the key type of the strays.
type hashedKey[K comparable] struct {
	hash uint64
	key  K
}

// NewMap returns an empty map that is meant for up to maxKeys keys. From maxKeys follows the number of shards, a power of
// two from 1 to 1024, and nothing else: a map can hold more keys, in larger shards. A maxKeys below 1 is taken as 1.
//
// An empty map takes 2.7 KB a shard. A map for 256 keys has one shard, one for 4096 to a million keys 16.
//
// A V must take some room, for its values are told apart by their addresses: NewMap panics if it has a size of 0.
func NewMap[K comparable, V any](maxKeys int) *Map[K, V] {
	if v := reflect.TypeFor[V](); v.Size() == 0 {
		panic(fmt.Sprintf("sharded: a %v has a size of 0", v))
	}
	shards := make([]*xsync.MapOf[uint64, *V], shardsFor(maxKeys))
	for i := range shards {
		shards[i] = xsync.NewMapOfWithHasher[uint64, *V](ownHash)
	}
	return &Map[K, V]{
		seed:   maphash.MakeSeed(),
		shift:  uint(64 - bits.TrailingZeros(uint(len(shards)))),
		nodes:  newNodes[K, V](),
		shards: shards,
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
func (m *Map[K, V]) Hash(key K) uint64 { return m.nodes.hash(maphash.Comparable(m.seed, key), key) }

// Shards returns the number of shards, a power of two.
func (m *Map[K, V]) Shards() int { return len(m.shards) }

// ShardOf returns the shard of the keys with that hash, a number from 0 to Shards() - 1.
func (m *Map[K, V]) ShardOf(hash uint64) int { return int(hash >> m.shift) }

// Load returns the value of key and true, or nil and false if key is not in the map. The hash must be Hash(key), here and
// below.
func (m *Map[K, V]) Load(hash uint64, key K) (v *V, ok bool) {
	if v = m.First(hash); !m.Has(hash, v, key) {
		v = m.Stray(hash, key)
	}
	return v, v != nil
}

// First, HasShort, Has and Stray are the steps of Load, for those who want them inlined. First returns the value of the key
// that has that hash, if there is one; of several, that of the one which came when no other was first. Nil does not mean that
// no key has the hash.
func (m *Map[K, V]) First(hash uint64) (v *V) {
	v, _ = m.shards[hash>>m.shift].Load(hash)
	return
}

// HasShort is Has where that takes no call: for a string of 8 to 64 bytes. False does not mean that v was not made for key.
func (m *Map[K, V]) HasShort(hash uint64, v *V, key K) bool {
	n := int(hash & m.nodes.lengths >> lengthShift)
	if v == nil || uint(n-8) > maxText-8 || n != len(*(*string)(unsafe.Pointer(&key))) {
		return false
	}
	text := *(*unsafe.Pointer)(unsafe.Pointer(&key))
	for i := 0; i < n-8; i += 8 {
		if *(*[8]byte)(unsafe.Add(unsafe.Pointer(v), i-n)) != *(*[8]byte)(unsafe.Add(text, i)) {
			return false
		}
	}
	return *(*[8]byte)(unsafe.Add(unsafe.Pointer(v), -8)) == *(*[8]byte)(unsafe.Add(text, n-8)) // overlaps those before
}

// Has reports whether v, which a method of the map returned for that hash, was made for key, and false if v is nil. Whether
// it is still in the map it does not say.
func (m *Map[K, V]) Has(hash uint64, v *V, key K) bool { return v != nil && m.nodes.has(hash, v, key) }

// Stray returns the value of key if another key was first with its hash when it was inserted, or nil.
func (m *Map[K, V]) Stray(hash uint64, key K) (v *V) {
	if strays := m.strays.Load(); strays != nil {
		v, _ = strays.Load(hashedKey[K]{hash, key})
	}
	return v
}

// LoadOrCompute returns the value of key and true if key is in the map. Otherwise it makes a value of zero bytes, calls init
// with it, inserts it, and returns it and false. However many callers race to insert a key, one init is called, and all of
// them return its value. Where key is in the map, nothing is allocated and no lock is taken.
//
// A bucket is locked during init: it must be short, must not panic, as the bucket would stay locked, and must not use
// the map, as it would wait for itself. Do not call a user's function in it.
//
// It panics where the hash is seen not to be the key's: that of a string of another length.
func (m *Map[K, V]) LoadOrCompute(hash uint64, key K, init func(*V)) (v *V, loaded bool) {
	if v, ok := m.Load(hash, key); ok {
		return v, true
	}
	if hash != m.nodes.hash(hash, key) {
		panic("sharded: the hash is not that of the key")
	}
	// All inserts of keys with this hash take the lock of its bucket, strays among them.
	m.shards[m.ShardOf(hash)].Compute(hash, func(first *V, taken bool) (*V, bool) {
		if taken && m.nodes.has(hash, first, key) {
			v, loaded = first, true // another caller was faster
			return first, false
		}
		if v = m.Stray(hash, key); v != nil {
			loaded = true
			return first, !taken // leaves what is there as it is
		}
		v = m.nodes.make(key, m.isEarly())
		init(v)
		if taken {
			m.addStray(hash, v)
			return first, false
		}
		return v, false
	})
	return v, loaded
}

// isEarly counts a key that is being made, and reports whether it is one of the first.
func (m *Map[K, V]) isEarly() bool { return m.made.Load() < roomyKeys && m.made.Add(1) <= roomyKeys }

// addStray inserts the value of a key whose hash another key has.
func (m *Map[K, V]) addStray(hash uint64, v *V) {
	if m.strays.Load() == nil {
		strays := xsync.NewMapOfWithHasher[hashedKey[K], *V](func(k hashedKey[K], _ uint64) uint64 { return k.hash })
		m.strays.CompareAndSwap(nil, strays) // if it fails, there is one by now
	}
	m.strays.Load().Store(hashedKey[K]{hash, m.nodes.key(hash, v)}, v)
}

// Delete deletes the key whose value is v, with the hash of that key, and reports whether it did: of several callers one.
// The value must be one of this map's, in it or deleted. Where it is no longer in the map, nothing is allocated and no lock
// is taken. The value and its key stay what they are for whoever holds them.
func (m *Map[K, V]) Delete(hash uint64, v *V) bool {
	if deleteValue(m.shards[m.ShardOf(hash)], hash, v) {
		return true
	}
	strays := m.strays.Load()
	return strays != nil && v != nil && deleteValue(strays, hashedKey[K]{hash, m.nodes.key(hash, v)}, v)
}

// deleteValue deletes key from m if its value is v, and reports whether it did.
func deleteValue[K comparable, V any](m *xsync.MapOf[K, *V], key K, v *V) bool {
	// Look first: xsync has no way to keep a value but to store it anew.
	old, ok := m.Load(key)
	return ok && old == v && deleteSeen(m, key, v)
}

// deleteSeen is deleteValue for a key whose value was seen to be v.
func deleteSeen[K comparable, V any](m *xsync.MapOf[K, *V], key K, v *V) (deleted bool) {
	m.Compute(key, func(old *V, loaded bool) (*V, bool) {
		deleted = loaded && old == v
		return old, deleted || !loaded // to delete an absent key does nothing
	})
	return deleted
}

// RangeShard calls f for the keys of the shard, with their hashes and values, until f returns false. It visits no value
// twice, and every one that is in the map all the while; those inserted or deleted meanwhile may be visited or not. A string
// shares its bytes with the value: who keeps the one keeps the other from being collected. No lock is held during f, which
// may use the map. It panics if shard is not from 0 to Shards() - 1.
func (m *Map[K, V]) RangeShard(shard int, f func(hash uint64, key K, v *V) bool) {
	more := true
	m.shards[shard].Range(func(hash uint64, v *V) bool {
		more = f(hash, m.nodes.key(hash, v), v)
		return more
	})
	if strays := m.strays.Load(); strays != nil && more {
		strays.Range(func(k hashedKey[K], v *V) bool { return m.ShardOf(k.hash) != shard || f(k.hash, k.key, v) })
	}
}

// Len returns the number of keys. It adds up the counters of all shards, one after the other: the result is exact if the map
// does not change meanwhile.
func (m *Map[K, V]) Len() int {
	n := 0
	for _, shard := range m.shards {
		n += shard.Size()
	}
	if strays := m.strays.Load(); strays != nil {
		n += strays.Size()
	}
	return n
}
