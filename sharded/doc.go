// Package sharded is a concurrent map in shards, for owners that keep state per key and also remove it: lookups take no
// lock, a key is hashed once, one value per key is made however many callers race for it, and an entry is deleted only
// while it holds the value that the caller has in mind.
//
// It is the map beneath a keyed limiter. For a map in general use [xsync.MapOf], of which the shards are made; it hashes
// keys by itself and has more methods.
//
//	type state struct{ dead bool }
//	m := sharded.NewMap[string, *state](1_000_000)
//	key := "alice"
//	hash := m.Hash(key)
//	s, _ := m.LoadOrCompute(hash, key, func() *state { return new(state) })
//	// ... when s is of no more use, mark it as dead so that nobody changes it any more, and then:
//	m.CompareAndDelete(hash, key, s)
//
// # Guarantees
//
//   - Between two deletes of a key, all callers get the same value for it.
//   - A delete removes the value it was told to and no other. Of several callers that delete the same value, one is told
//     that it did.
//   - Lookups never wait, not even while the map grows.
//   - Nobody can find colliding keys from outside: hashes depend on a random seed.
//
// # Memory model
//
// The insert of a value synchronizes before every call that finds it.
//
// # Limits
//
// Inserts and deletes take the lock of a bucket, a few keys, and wait while their shard grows or shrinks. The map has no
// limit on its keys; an owner that wants one counts them. A table that has grown shrinks again only when it is almost empty
// (below 1/128 of its room). Keys that contain a NaN or an interface are not supported.
//
// # Cost
//
// On a 64-bit machine an entry takes 16 bytes and the sizes of K and V, rounded up to a size class of the allocator (32
// bytes for a string and a pointer), and its share of a table 17 to 34 bytes, depending on how full the tables are. String
// keys have their bytes besides. A shard has another 700 bytes, and its smallest table 2 KiB. BenchmarkMap_Memory measures
// the sum: 53 to 66 bytes a key for strings and pointers, 64 at a million keys.
package sharded
