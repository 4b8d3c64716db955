package sharded

import (
	"fmt"
	"testing"

	"github.com/puzpuzpuz/xsync/v3"
)

// benchKeys returns n keys of 20 bytes.
func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("203.0.113.1 %08d", i)
	}
	return keys
}

func BenchmarkMap_Hash(b *testing.B) {
	type pair struct {
		tenant int
		path   string
	}
	strings, ints, pairs := NewMap[string, state](1), NewMap[int, state](1), NewMap[pair, state](1)
	key := benchKeys(1)[0]
	b.Run("key=string", func(b *testing.B) {
		for b.Loop() {
			strings.Hash(key)
		}
	})
	b.Run("key=int", func(b *testing.B) {
		for b.Loop() {
			ints.Hash(7)
		}
	})
	b.Run("key=struct", func(b *testing.B) {
		for b.Loop() {
			pairs.Hash(pair{7, key})
		}
	})
}

// BenchmarkMap_Load compares a lookup, the hash included, with that of a plain xsync map of the same keys.
func BenchmarkMap_Load(b *testing.B) {
	for _, n := range []int{1, 1 << 10, 1 << 20} {
		keys := benchKeys(n)
		m, plain := NewMap[string, state](n), xsync.NewMapOf[string, *state]()
		for _, key := range keys {
			m.LoadOrCompute(m.Hash(key), key, func(*state) {})
			plain.Store(key, new(state))
		}
		b.Run(fmt.Sprintf("impl=xsync/keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			found, i := 0, 0
			for b.Loop() {
				if _, ok := plain.Load(keys[i&(n-1)]); ok {
					found++
				}
				i++
			}
			if found != b.N {
				b.Fatal("keys are missing")
			}
		})
		b.Run(fmt.Sprintf("impl=Map/keys=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			found, i := 0, 0
			for b.Loop() {
				key := keys[i&(n-1)]
				if _, ok := m.Load(m.Hash(key), key); ok {
					found++
				}
				i++
			}
			if found != b.N {
				b.Fatal("keys are missing")
			}
		})
	}
}

// BenchmarkMap_InsertDelete inserts a key and deletes it, from all processors, each with keys of its own.
func BenchmarkMap_InsertDelete(b *testing.B) {
	keys := benchKeys(1 << 16)
	m := NewMap[string, state](1 << 20)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			key := keys[i&(len(keys)-1)]
			hash := m.Hash(key)
			v, _ := m.LoadOrCompute(hash, key, func(*state) {})
			m.Delete(hash, v)
		}
	})
}

// BenchmarkMap_RangeShard visits one shard of a full map.
func BenchmarkMap_RangeShard(b *testing.B) {
	m := NewMap[string, state](1 << 20)
	for _, key := range benchKeys(1 << 20) {
		m.LoadOrCompute(m.Hash(key), key, func(*state) {})
	}
	visited, shard := 0, 0
	for b.Loop() {
		m.RangeShard(shard&(m.Shards()-1), func(uint64, string, *state) bool {
			visited++
			return true
		})
		shard++
	}
	b.ReportMetric(float64(visited)/float64(b.N), "keys/op")
}

// BenchmarkMap_Memory reports the memory a key takes, its own bytes not counted, in a map of so many keys.
func BenchmarkMap_Memory(b *testing.B) {
	for _, n := range []int{500_000, 980_000, 1_000_000, 1 << 20} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			perKey := 0.0
			for b.Loop() {
				perKey = bytesPerKey(n)
			}
			b.ReportMetric(perKey, "B/key")
			b.ReportMetric(0, "ns/op")
		})
	}
}
