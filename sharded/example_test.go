package sharded_test

import (
	"fmt"
	"sync/atomic"

	"github.com/ringfence-go/ringfence/sharded"
)

func ExampleMap() {
	type visits struct{ n atomic.Int64 }
	m := sharded.NewMap[string, visits](1000)
	visit := func(key string) {
		v, _ := m.LoadOrCompute(m.Hash(key), key, func(*visits) {})
		v.n.Add(1)
	}
	visit("203.0.113.7")
	visit("203.0.113.7")
	visit("203.0.113.9")
	hash := m.Hash("203.0.113.7")
	v, _ := m.Load(hash, "203.0.113.7")
	fmt.Println(m.Len(), "keys,", v.n.Load(), "visits")
	// Output: 2 keys, 2 visits
}

func ExampleMap_RangeShard() {
	m := sharded.NewMap[int, int](100_000)
	for key := range 1000 {
		m.LoadOrCompute(m.Hash(key), key, func(v *int) { *v = key % 10 })
	}
	// Sweep shard by shard, with room for other work in between.
	for shard := range m.Shards() {
		m.RangeShard(shard, func(hash uint64, _ int, v *int) bool {
			if *v != 0 {
				m.Delete(hash, v)
			}
			return true
		})
	}
	fmt.Println(m.Len())
	// Output: 100
}
