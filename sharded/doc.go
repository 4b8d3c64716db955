// Package sharded is a concurrent map in shards, for owners that keep a small state per key and also remove it: lookups take
// no lock, a key is hashed once, one value per key is made however many callers race for it, a key and its value are one
// object to the garbage collector, and an entry is deleted only while it holds the value that the caller has in mind.
//
// It is the map beneath a keyed limiter. For a map in general use [xsync.MapOf], of which the shards are made; it hashes
// keys by itself, takes values of any type and has more methods.
//
//	type state struct{ used int }
//	m := sharded.NewMap[string, state](1_000_000)
//	key := "alice"
//	hash := m.Hash(key)
//	s, _ := m.LoadOrCompute(hash, key, func(s *state) { s.used = 1 })
//	// ... when s is of no more use, mark it as dead so that nobody changes it any more, and then:
//	m.Delete(hash, s)
//
// # Guarantees
//
//   - Between two deletes of a key, all callers get the same value for it.
//   - A delete removes the value it was told to and no other. Of several callers that delete the same value, one is told
//     that it did.
//   - Lookups never wait, not even while the map grows.
//   - Keys are compared, and not their hashes alone. Two keys with the same 64 bits are found by a second lookup.
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
// On a 64-bit machine a key takes one object for itself and its value, with the bytes of a string rounded up to 8, and all
// rounded up to a size class of the allocator; an entry of 16 bytes; and its share of a table, 17 to 34 bytes, depending on
// how full the tables are. A string of more than 64 bytes has 16 more and an object for its bytes. The first 1024 keys have
// 96 bytes more each. A shard has another 700 bytes, and its smallest table 2 KiB. BenchmarkMap_Memory measures the sum: 49
// to 58 bytes for a string and a value of 8 bytes, the bytes of the string not counted, 58 at a million keys.
//
// Values are best small: of many keys in use, keys and values of 32 bytes each fit into the caches of a processor where
// larger ones do not. What is seldom used is better behind a pointer.
package sharded
