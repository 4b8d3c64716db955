package sharded

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// state stands for what an owner keeps for a key.
type state struct {
	n    int
	dead atomic.Bool
}

// hashes are the real hash and four bad ones, which the map must bear: it gets slow, and not wrong.
var hashes = map[string]func(hash uint64) uint64{
	"real":        func(hash uint64) uint64 { return hash },
	"one shard":   func(hash uint64) uint64 { return hash & (1<<32 - 1) },
	"one bucket":  func(hash uint64) uint64 { return hash &^ (1<<48 - 1) },
	"zero":        func(uint64) uint64 { return 0 },
	"largest":     func(uint64) uint64 { return math.MaxUint64 },
	"two buckets": func(hash uint64) uint64 { return hash & (1 << 7) },
}

// testMap is a map of ints to states whose hashes go through one of the functions above.
type testMap struct {
	*Map[int, state]
	bad func(uint64) uint64
}

func (m testMap) load(key int) (*state, bool) { return m.Load(m.bad(m.Hash(key)), key) }

func (m testMap) insert(key int) (*state, bool) {
	return m.LoadOrCompute(m.bad(m.Hash(key)), key, func(s *state) { s.n = key })
}

func (m testMap) remove(key int, old *state) bool { return m.Delete(m.bad(m.Hash(key)), old) }

// all returns the contents of the map, and checks that every key is visited once, in the right shard and with its hash.
func (m testMap) all(t *testing.T) map[int]*state {
	contents := make(map[int]*state)
	for shard := range m.Shards() {
		m.RangeShard(shard, func(hash uint64, key int, value *state) bool {
			require.Equal(t, m.bad(m.Hash(key)), hash)
			require.Equal(t, m.ShardOf(hash), shard)
			require.NotContains(t, contents, key, "visited twice")
			contents[key] = value
			return true
		})
	}
	return contents
}

// eachHash runs f on an empty map with every hash.
func eachHash(t *testing.T, maxKeys int, f func(t *testing.T, m testMap)) {
	for _, name := range slices.Sorted(maps.Keys(hashes)) {
		t.Run(name, func(t *testing.T) { f(t, testMap{NewMap[int, state](maxKeys), hashes[name]}) })
	}
}

func TestNewMap_Shards(t *testing.T) {
	for _, c := range []struct{ maxKeys, shards int }{
		{math.MinInt, 1}, {-1, 1}, {0, 1}, {1, 1}, {256, 1}, {511, 1}, {512, 2}, {4096, 16}, {1_000_000, 16},
		{1 << 20, 16}, {1<<20 + 1, 32}, {1 << 24, 256}, {1 << 26, 1024}, {1 << 30, 1024}, {math.MaxInt32, 1024}, {math.MaxInt, 1024},
	} {
		require.Equal(t, c.shards, shardsFor(c.maxKeys), "maxKeys %d", c.maxKeys)
	}
	for maxKeys := 1; maxKeys < 1<<24; maxKeys += 1 + maxKeys/7 {
		shards := shardsFor(maxKeys)
		require.Zero(t, shards&(shards-1), "maxKeys %d", maxKeys)
		require.LessOrEqual(t, maxKeys, shards*maxShardKeys)
	}
	for _, maxKeys := range []int{1, 1000, 100_000} {
		require.Equal(t, shardsFor(maxKeys), NewMap[string, state](maxKeys).Shards())
	}
}

func TestMap_ShardOf(t *testing.T) {
	m := NewMap[int, state](64 * maxShardKeys)
	require.Equal(t, 0, m.ShardOf(0))
	require.Equal(t, 0, m.ShardOf(1<<58-1))
	require.Equal(t, 1, m.ShardOf(1<<58))
	require.Equal(t, 63, m.ShardOf(math.MaxUint64))
	one := NewMap[int, state](1)
	require.Equal(t, 0, one.ShardOf(math.MaxUint64))

	const perShard = 1000 // the standard deviation is 32
	counts := make([]int, m.Shards())
	for key := range perShard * m.Shards() {
		counts[m.ShardOf(m.Hash(key))]++
	}
	require.Greater(t, slices.Min(counts), perShard/2)
	require.Less(t, slices.Max(counts), perShard*2)
}

func TestMap_Hash(t *testing.T) {
	type name string
	m := NewMap[string, state](1)
	key := "203.0.113.195"
	require.Equal(t, m.Hash(key), m.Hash(string([]byte(key))))
	require.NotEqual(t, m.Hash(key), m.Hash(key+" "))
	require.NotEqual(t, m.Hash(key), NewMap[string, state](1).Hash(key), "two maps have the same seed")
	n := NewMap[name, state](1)
	require.Equal(t, n.Hash("x"), n.Hash(name([]byte("x"))))
	f := NewMap[float64, state](1)
	require.Equal(t, f.Hash(0), f.Hash(math.Copysign(0, -1)), "keys that are == have one hash")
	type pair struct {
		a string
		b int
	}
	p := NewMap[pair, state](1)
	require.Equal(t, p.Hash(pair{key, 1}), p.Hash(pair{string([]byte(key)), 1}))
	require.NotEqual(t, p.Hash(pair{key, 1}), p.Hash(pair{key, 2}))
}

func TestMap_InsertLoadDelete(t *testing.T) {
	eachHash(t, 5000, func(t *testing.T, m testMap) {
		v, ok := m.load(1)
		require.False(t, ok)
		require.Nil(t, v)
		require.Zero(t, m.Len())

		first, loaded := m.insert(1)
		require.False(t, loaded)
		require.Equal(t, 1, first.n)
		again, loaded := m.insert(1)
		require.True(t, loaded)
		require.Same(t, first, again)
		v, ok = m.load(1)
		require.True(t, ok)
		require.Same(t, first, v)
		_, ok = m.load(2)
		require.False(t, ok)
		require.Equal(t, 1, m.Len())

		require.Equal(t, map[int]*state{1: first}, m.all(t))
		require.True(t, m.remove(1, first))
		require.False(t, m.remove(1, first))
		require.Zero(t, m.Len())
		require.Empty(t, m.all(t))

		second, loaded := m.insert(1)
		require.False(t, loaded)
		require.NotSame(t, first, second)
		require.False(t, m.remove(1, first), "a new value was deleted in place of an old one")
	})
}

// run applies the operations in ops, two bytes each, to m and to a plain map, and compares what they return.
func run(t *testing.T, m testMap, ops []byte) {
	model := make(map[int]*state)
	retired := make(map[int]*state) // the last value deleted
	for ; len(ops) >= 2; ops = ops[2:] {
		key := int(ops[1])
		want, wantOK := model[key]
		switch ops[0] % 5 {
		case 0, 1:
			v, loaded := m.insert(key)
			require.Equal(t, wantOK, loaded)
			if loaded {
				require.Same(t, want, v)
			}
			model[key] = v
		case 2:
			v, ok := m.load(key)
			require.Equal(t, wantOK, ok)
			require.Same(t, want, v)
		case 3:
			require.Equal(t, wantOK, m.remove(key, want))
			if wantOK {
				retired[key] = want
			}
			delete(model, key)
		case 4:
			if old := retired[key]; old != nil {
				require.False(t, m.remove(key, old))
			}
		}
	}
	require.Equal(t, len(model), m.Len())
	require.Equal(t, model, m.all(t))
}

func FuzzMap(f *testing.F) {
	f.Add([]byte{0, 1, 2, 1, 3, 1, 2, 1, 0, 1, 4, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		for _, bad := range hashes {
			run(t, testMap{NewMap[int, state](1000), bad}, ops)
		}
	})
}

func TestMap_AgainstPlainMap(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ops := make([]byte, 20_000)
	for i := range ops {
		ops[i] = byte(rng.Uint32())
	}
	eachHash(t, 1000, func(t *testing.T, m testMap) { run(t, m, ops) })
}

func TestMap_RangeShard(t *testing.T) {
	eachHash(t, 1000, func(t *testing.T, m testMap) {
		for key := range 500 {
			m.insert(key)
		}
		require.Len(t, m.all(t), 500)

		shard := m.ShardOf(m.bad(m.Hash(0)))
		visited := 0
		m.RangeShard(shard, func(uint64, int, *state) bool {
			visited++
			return visited < 3
		})
		require.Equal(t, 3, visited, "goes on after f returned false")

		// Sweep, and use the map in other ways meanwhile.
		for shard := range m.Shards() {
			m.RangeShard(shard, func(hash uint64, key int, value *state) bool {
				if key%2 == 0 {
					require.True(t, m.Delete(hash, value))
				} else if key < 500 {
					m.insert(key + 1000)
				}
				return true
			})
		}
		require.Equal(t, 500, m.Len())
		for key := range m.all(t) {
			require.Equal(t, 1, key%2)
		}
	})
	require.Panics(t, func() { NewMap[int, state](1).RangeShard(1, nil) })
}

// TestMap_RangeShardWhileGrowing: keys that are in the map all the while are visited, once, whatever else is inserted and
// deleted.
func TestMap_RangeShardWhileGrowing(t *testing.T) {
	eachHash(t, 1, func(t *testing.T, m testMap) {
		const stay = 500
		for key := range stay {
			m.insert(key)
		}
		others := 20_000
		if m.bad(0xff80) != 0xff80 || raceEnabled {
			others = 1000 // in a bucket or two each key makes the others slow
		}
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			defer close(stop)
			for key := range others {
				m.insert(stay + key)
				if key%2 == 0 {
					v, _ := m.load(stay + key)
					m.remove(stay+key, v)
				}
			}
		})
		for open := true; open; {
			select {
			case <-stop:
				open = false // and once more
			default:
			}
			var visits [stay]int
			for shard := range m.Shards() {
				m.RangeShard(shard, func(_ uint64, key int, _ *state) bool {
					if key < stay {
						visits[key]++
					}
					return true
				})
			}
			for key, n := range visits {
				require.Equal(t, 1, n, "visits of key %d", key)
			}
		}
		wg.Wait()
		require.Equal(t, stay+others/2, m.Len())
	})
}

// TestMap_OneValue releases goroutines on a fresh key by one barrier: one init is called, and all get its value.
func TestMap_OneValue(t *testing.T) {
	eachHash(t, 1000, func(t *testing.T, m testMap) {
		rounds, callers := 300, 16
		if raceEnabled {
			rounds = 50
		}
		for key := range rounds {
			var creates, inserted atomic.Int64
			got := make([]*state, callers)
			barrier := make(chan struct{})
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					<-barrier
					v, loaded := m.LoadOrCompute(m.bad(m.Hash(key)), key, func(*state) { creates.Add(1) })
					if !loaded {
						inserted.Add(1)
					}
					got[i] = v
				})
			}
			close(barrier)
			wg.Wait()
			require.Equal(t, int64(1), creates.Load())
			require.Equal(t, int64(1), inserted.Load())
			for _, v := range got {
				require.Same(t, got[0], v)
			}

			var deleted atomic.Int64
			for range callers {
				wg.Go(func() {
					if m.remove(key, got[0]) {
						deleted.Add(1)
					}
				})
			}
			wg.Wait()
			require.Equal(t, int64(1), deleted.Load())
			require.Zero(t, m.Len())
		}
	})
}

// TestMap_Conservation inserts and deletes the same few keys from several goroutines, at several GOMAXPROCS, and counts:
// every value is deleted once at most, none is found after its delete has returned, and what was inserted is what was
// deleted and what is left.
func TestMap_Conservation(t *testing.T) {
	rounds := 50_000
	if raceEnabled {
		rounds = 1500
	}
	for _, procs := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("procs=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			eachHash(t, 1000, func(t *testing.T, m testMap) {
				const keys = 20
				var inserted, deleted atomic.Int64
				var wg sync.WaitGroup
				for g := range 4 {
					rng := rand.New(rand.NewPCG(uint64(g), uint64(procs)))
					wg.Go(func() {
						var known [keys]*state
						for range rounds {
							key := rng.IntN(keys)
							old := known[key]
							wasDead := old != nil && old.dead.Load()
							switch rng.IntN(3) {
							case 0:
								v, loaded := m.insert(key)
								if !loaded {
									inserted.Add(1)
								}
								if v.n != key {
									t.Errorf("key %d has the value of %d", key, v.n)
								}
								if wasDead && v == old {
									t.Errorf("key %d: got a value after its delete", key)
								}
								known[key] = v
							case 1:
								if old != nil && m.remove(key, old) {
									deleted.Add(1)
									if !old.dead.CompareAndSwap(false, true) {
										t.Errorf("key %d: a value was deleted twice", key)
									}
								}
							case 2:
								v, ok := m.load(key)
								if ok != (v != nil) || ok && v.n != key || wasDead && v == old {
									t.Errorf("key %d: found %v, %v", key, v, ok)
								}
								if ok {
									known[key] = v
								}
							}
						}
					})
				}
				wg.Wait()
				require.Positive(t, deleted.Load())
				require.Equal(t, inserted.Load()-deleted.Load(), int64(m.Len()))
				left := m.all(t)
				require.Len(t, left, m.Len())
				for key, v := range left {
					require.False(t, v.dead.Load(), "key %d is left with a value that was deleted", key)
				}
			})
		})
	}
}

// TestMap_LoadNeverWaits looks keys up while their bucket is locked.
func TestMap_LoadNeverWaits(t *testing.T) {
	m := testMap{NewMap[int, state](1), hashes["zero"]}
	gone, _ := m.insert(1)
	require.True(t, m.remove(1, gone))
	first, _ := m.insert(1)
	locked, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		m.LoadOrCompute(0, 2, func(s *state) {
			close(locked)
			<-release
			s.n = 2
		})
	})
	<-locked
	v, ok := m.load(1)
	require.True(t, ok)
	require.Same(t, first, v)
	_, ok = m.load(2)
	require.False(t, ok)
	v, loaded := m.insert(1)
	require.True(t, loaded)
	require.Same(t, first, v)
	require.False(t, m.remove(1, gone))
	close(release)
	wg.Wait()
	v, ok = m.load(2)
	require.True(t, ok)
	require.Equal(t, 2, v.n)
}

// keyOf returns the key in m that is == key, as the map stores it.
func keyOf[K comparable](t *testing.T, m *Map[K, state], key K) K {
	var stored []K
	hash := m.Hash(key)
	m.RangeShard(m.ShardOf(hash), func(_ uint64, k K, _ *state) bool {
		if k == key {
			stored = append(stored, k)
		}
		return true
	})
	require.Len(t, stored, 1)
	return stored[0]
}

func testOwnStrings[K ~string](t *testing.T) {
	m := NewMap[K, state](100)
	request := []byte("GET /login HTTP/1.1")
	path := K(unsafe.String(&request[4], 6))
	v, _ := m.LoadOrCompute(m.Hash(path), path, func(*state) {})
	copy(request, "xxxxxxxxxxxxxxxxxxxxxxx") // the buffer is used again

	require.Equal(t, K("/login"), keyOf(t, m, "/login"))
	again, ok := m.Load(m.Hash("/login"), "/login")
	require.True(t, ok)
	require.Same(t, v, again)
	require.True(t, m.Delete(m.Hash("/login"), v))
	require.Zero(t, m.Len())
}

func TestMap_OwnStrings(t *testing.T) {
	type path string
	t.Run("string", testOwnStrings[string])
	t.Run("named", testOwnStrings[path])
}

// TestMap_StringLengths: strings that are the same but for their end, of all lengths around those that matter to a node, in
// a map with real hashes and in one in which as many as can be have the same one, with room behind the values and without.
func TestMap_StringLengths(t *testing.T) {
	var lengths []int
	for n := range maxText + 3 {
		lengths = append(lengths, n)
	}
	lengths = append(lengths, longText-1, longText, longText+1, 2*longText, 1<<16)
	text := strings.Repeat("abcdefghijklmno", 1<<13)
	var keys []string
	for _, n := range lengths {
		keys = append(keys, text[:n])
		if n > 0 {
			keys = append(keys, text[:n-1]+"!", "!"+text[:n-1])
		}
	}
	slices.Sort(keys)
	testKeys(t, slices.Compact(keys)...)
}

// TestMap_HasShort compares strings of all lengths with others that differ in one byte, wherever it is, or in their length.
func TestMap_HasShort(t *testing.T) {
	m := NewMap[string, state](1000)
	text := []byte(strings.Repeat("0123456789", 8))
	for n := range len(text) {
		key := string(text[:n])
		hash := m.Hash(key)
		v, _ := m.LoadOrCompute(hash, key, func(*state) {})
		require.Equal(t, n >= 8 && n <= maxText, m.HasShort(hash, v, key), "%d bytes", n)
		require.True(t, m.Has(hash, v, key))
		for i := range n {
			text[i] ^= 1
			other := string(text[:n])
			text[i] ^= 1
			require.False(t, m.HasShort(hash, v, other), "%d bytes, other byte %d", n, i)
			require.False(t, m.Has(hash, v, other), "%d bytes, other byte %d", n, i)
		}
		for _, other := range []string{"", string(text[:n+1]), string(text)} {
			require.False(t, m.HasShort(hash, v, other), "%d bytes, not %d", n, len(other))
		}
	}
	require.False(t, m.HasShort(m.Hash("12345678"), nil, "12345678"))
	// Of other keys it cannot tell, whatever their hash is.
	numbers := NewMap[int, state](1)
	v, _ := numbers.LoadOrCompute(math.MaxUint64, 1, func(*state) {})
	require.False(t, numbers.HasShort(math.MaxUint64, v, 1))
	require.True(t, numbers.Has(math.MaxUint64, v, 1))
}

// mixed is a value with pointers in it, and of an odd size.
type mixed struct {
	before [3]byte
	number *int
	n      int
	text   string
	after  [5]byte
}

func (v *mixed) set(t *testing.T, n int) {
	require.Equal(t, mixed{}, *v)
	*v = mixed{[3]byte{255, 255, 255}, &n, n, fmt.Sprint("number ", n), [5]byte{255, 255, 255, 255, 255}}
}

func (v *mixed) check(t *testing.T, n int) {
	require.Equal(t, mixed{[3]byte{255, 255, 255}, &n, n, fmt.Sprint("number ", n), [5]byte{255, 255, 255, 255, 255}}, *v)
}

// contents returns what is in a map.
func contents[K comparable, V any](m *Map[K, V]) map[K]*V {
	all := make(map[K]*V)
	for shard := range m.Shards() {
		m.RangeShard(shard, func(_ uint64, key K, v *V) bool {
			all[key] = v
			return true
		})
	}
	return all
}

// testKeys has a map with values that point to something keep all keys, each with its value.
func testKeys[K comparable](t *testing.T, keys ...K) {
	for _, mask := range []uint64{math.MaxUint64, lengthMask} {
		for _, made := range []int64{0, roomyKeys} {
			m := NewMap[K, mixed](1000)
			m.made.Store(made)
			if m.nodes.texts == nil && mask == lengthMask {
				mask = 0
			}
			hash := func(key K) uint64 { return m.Hash(key) & mask }
			for i, key := range keys {
				v, loaded := m.LoadOrCompute(hash(key), key, func(v *mixed) { v.set(t, i) })
				require.False(t, loaded)
				require.Zero(t, uintptr(unsafe.Pointer(v))%unsafe.Alignof(*v))
			}
			require.Equal(t, min(made+int64(len(keys)), roomyKeys), m.made.Load())
			for range 2 {
				runtime.GC()
				_ = make([]byte, 1<<20)
			}
			require.Equal(t, len(keys), m.Len())
			all := contents(m)
			require.Len(t, all, len(keys))
			for i, key := range keys {
				v, ok := m.Load(hash(key), key)
				require.True(t, ok)
				require.Same(t, v, all[key])
				v.check(t, i)
				require.True(t, m.Delete(hash(key), v))
				require.False(t, m.Delete(hash(key), v))
				_, ok = m.Load(hash(key), key)
				require.False(t, ok)
			}
			require.Zero(t, m.Len())
		}
	}
}

// TestMap_KeyTypes: keys of other types, with pointers and without, of odd sizes and of none.
func TestMap_KeyTypes(t *testing.T) {
	type pair struct {
		tenant int
		path   string
	}
	testKeys(t, struct{}{})
	testKeys(t, false, true)
	testKeys[uint8](t, 0, 1, 255)
	testKeys[uint16](t, 0, 1, 1<<15)
	testKeys(t, 0, 1, -1, math.MaxInt)
	testKeys(t, 0, 1.5, -1.5, math.Inf(1))
	testKeys(t, [3]byte{}, [3]byte{1}, [3]byte{2: 1})
	testKeys(t, [9]uint32{}, [9]uint32{8: 1})
	testKeys(t, pair{}, pair{1, ""}, pair{0, strings.Repeat("x", 3)}, pair{1, strings.Repeat("x", 3)})
	testKeys(t, [2]string{}, [2]string{"a"}, [2]string{strings.Repeat("y", 9), "b"})
	testKeys(t, netip.Addr{}, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1%eth0"))
	testKeys(t, new(int), new(int), nil)
}

// TestMap_KeyKeepsWhatItPointsTo: a key with pointers in it is seen by the garbage collector, where nothing else points to
// what it does.
func TestMap_KeyKeepsWhatItPointsTo(t *testing.T) {
	type user struct{ name, tenant string }
	m := NewMap[user, state](10_000)
	insert := func(i int) {
		key := user{fmt.Sprint("name", i), fmt.Sprint("tenant", i)}
		m.LoadOrCompute(m.Hash(key), key, func(s *state) { s.n = i })
	}
	for i := range 10_000 {
		insert(i)
	}
	for range 3 {
		runtime.GC()
		_ = make([]byte, 1<<20)
	}
	for key, v := range contents(m) {
		require.Equal(t, user{fmt.Sprint("name", v.n), fmt.Sprint("tenant", v.n)}, key)
	}
}

// TestNodes_Make: a node has room for its key in front of the value, and no more than it needs, unless it is to be roomy.
func TestNodes_Make(t *testing.T) {
	for _, c := range []struct{ length, bytes, roomy int }{
		{0, 16, 112}, {1, 24, 128}, {8, 24, 128}, {9, 32, 128}, {16, 32, 128}, {17, 48, 144}, {64, 80, 176},
		{65, 32 + 80, 128 + 80}, {longText, 32 + 128, 128 + 128}, {longText + 1, 32 + 128, 128 + 128},
	} {
		if c.length > maxText && unsafe.Sizeof(uintptr(0)) != 8 {
			continue // other sizes: a string is shorter
		}
		key := strings.Repeat("x", c.length)
		n := newNodes[string, [2]uint64]()
		for roomy, bytes := range map[bool]int{false: c.bytes, true: c.roomy} {
			var before, after runtime.MemStats
			least := uint64(math.MaxUint64)
			for range 5 { // the least of several: the test's own runtime allocates too
				runtime.ReadMemStats(&before)
				for range 100 {
					kept = n.make(key, roomy)
				}
				runtime.ReadMemStats(&after)
				least = min(least, after.TotalAlloc-before.TotalAlloc)
			}
			require.EqualValues(t, bytes, least/100, "a key of %d bytes, roomy: %v", c.length, roomy)
		}
	}
}

// TestMap_Alignment: values are aligned to what they need on 32-bit machines too, whatever their keys are.
func TestMap_Alignment(t *testing.T) {
	testAlignment(t, "", "a", "ab", "1234567", "12345678", "123456789", strings.Repeat("x", maxText), strings.Repeat("x", maxText+1))
	testAlignment[uint8](t, 0, 1, 2)
	testAlignment[uint32](t, 0, 1, 2)
	testAlignment(t, [3]uint16{}, [3]uint16{1})
	testAlignment(t, struct{}{})
}

func testAlignment[K comparable](t *testing.T, keys ...K) {
	for _, made := range []int64{0, roomyKeys} {
		m := NewMap[K, atomic.Uint64](1000)
		m.made.Store(made)
		for _, key := range keys {
			v, _ := m.LoadOrCompute(m.Hash(key), key, func(v *atomic.Uint64) { v.Add(1) })
			require.Zero(t, uintptr(unsafe.Pointer(v))%8, "key %v", key)
		}
	}
}

// kept makes its value escape.
var kept *[2]uint64

// TestMap_CacheLines: no two of the first values are in one line of 64 bytes, whatever their keys are.
func TestMap_CacheLines(t *testing.T) {
	testLines(t, func(i int) string { return strings.Repeat("x", i%100) + fmt.Sprint(i) })
	testLines(t, func(i int) string { return fmt.Sprintf("user %d", i) })
	testLines(t, func(i int) int { return i })
	testLines(t, func(i int) uint8 { return uint8(i) })
}

func testLines[K comparable](t *testing.T, key func(i int) K) {
	m := NewMap[K, state](1 << 20)
	lines := map[uintptr]K{}
	for i := range roomyKeys {
		k := key(i)
		v, loaded := m.LoadOrCompute(m.Hash(k), k, func(*state) {})
		if loaded {
			continue
		}
		line := uintptr(unsafe.Pointer(v)) / 64
		require.NotContains(t, lines, line)
		lines[line] = k
	}
}

// TestMap_ShardOfStrings: the length in a string's hash keeps away from the bits of shard, bucket and fingerprint.
func TestMap_ShardOfStrings(t *testing.T) {
	m := NewMap[string, state](64 * maxShardKeys)
	shards, low := make(map[int]int), make(map[uint64]int)
	for i := range 64_000 {
		hash := m.Hash(fmt.Sprintf("%08d", i))
		shards[m.ShardOf(hash)]++
		low[hash&(1<<13-1)]++ // a fingerprint and six bits of a bucket
	}
	require.Len(t, shards, 64)
	for _, n := range shards {
		require.InDelta(t, 1000, n, 200) // six standard deviations
	}
	require.Greater(t, len(low), 1<<13-100) // of which 3 are not met
	for key, length := range map[string]uint64{"": 0, "a": 1, strings.Repeat("a", maxText): maxText, strings.Repeat("a", maxText+1): longText, strings.Repeat("a", 1<<16): longText} {
		require.Equal(t, length, m.Hash(key)>>lengthShift&longText)
	}
	require.Less(t, bits.Len(uint(maxShards-1)), 64-lengthShift-lengthBits)
}

func TestNewMap_EmptyValues(t *testing.T) {
	require.PanicsWithValue(t, "sharded: a struct {} has a size of 0", func() { NewMap[int, struct{}](1) })
	require.Panics(t, func() { NewMap[string, [0]*int](1) })
}

// TestMap_WrongHash: a hash of another length would have a node read beyond its end.
func TestMap_WrongHash(t *testing.T) {
	m := NewMap[string, state](1)
	short, long := m.Hash("short"), m.Hash("a long one")
	require.PanicsWithValue(t, "sharded: the hash is not that of the key", func() {
		m.LoadOrCompute(long, "short", func(*state) {})
	})
	v, loaded := m.LoadOrCompute(short, "short", func(*state) {}) // no lock was left behind
	require.False(t, loaded)
	require.True(t, m.Has(short, v, "short"))
	require.False(t, m.Has(short, v, "a long one"))
	_, ok := m.Load(short, "a long one")
	require.False(t, ok)
}

// TestMap_Strays follows two keys of the same hash.
func TestMap_Strays(t *testing.T) {
	m := testMap{NewMap[int, state](1000), hashes["zero"]}
	first, _ := m.insert(1)
	require.Nil(t, m.strays.Load())
	stray, _ := m.insert(2)
	require.NotNil(t, m.strays.Load())
	require.Same(t, first, m.First(0))
	require.True(t, m.Has(0, first, 1))
	require.False(t, m.Has(0, first, 2))
	require.Equal(t, map[int]*state{1: first, 2: stray}, m.all(t))

	require.True(t, m.remove(1, first))
	require.Nil(t, m.First(0))
	require.False(t, m.Has(0, nil, 2))
	again, loaded := m.insert(2)
	require.True(t, loaded, "a stray stays one")
	require.Same(t, stray, again)
	require.False(t, m.remove(2, first))
	require.True(t, m.remove(2, stray))
	require.False(t, m.remove(2, stray))
	require.Zero(t, m.Len())
	again, loaded = m.insert(2)
	require.False(t, loaded)
	require.Same(t, again, m.First(0))

	for key := range 10 {
		m.insert(key)
	}
	visited := 0
	m.RangeShard(0, func(uint64, int, *state) bool {
		visited++
		return false
	})
	require.Equal(t, 1, visited, "goes on with the strays")
	gone, _ := m.load(5)
	require.True(t, m.remove(5, gone))
	require.Zero(t, testing.AllocsPerRun(100, func() { m.remove(5, gone) }), "a stray that is gone")
}

// TestMap_FirstStrays: the first strays of all come from several goroutines at once, with different hashes.
func TestMap_FirstStrays(t *testing.T) {
	rounds := 3000
	if raceEnabled {
		rounds = 300
	}
	for range rounds {
		m := NewMap[int, state](1)
		insert := func(key int) { m.LoadOrCompute(uint64(key%4)<<7, key, func(s *state) { s.n = key }) }
		for key := range 4 {
			insert(key)
		}
		var wg sync.WaitGroup
		barrier := make(chan struct{})
		for key := 4; key < 8; key++ {
			wg.Go(func() {
				<-barrier
				insert(key)
			})
		}
		close(barrier)
		wg.Wait()
		for key := range 8 {
			v, ok := m.Load(uint64(key%4)<<7, key)
			require.True(t, ok, "key %d", key)
			require.Equal(t, key, v.n)
		}
	}
}

// TestMap_DeleteLate: the value changes between the look and the delete, seen from inside.
func TestMap_DeleteLate(t *testing.T) {
	m := NewMap[int, state](1)
	hash := m.Hash(1)
	old, _ := m.LoadOrCompute(hash, 1, func(*state) {})
	require.True(t, m.Delete(hash, old))
	require.False(t, deleteSeen(m.shards[0], hash, old), "deleted meanwhile")
	require.Zero(t, m.Len(), "the delete has inserted the key")
	v, _ := m.LoadOrCompute(hash, 1, func(*state) {})
	require.False(t, deleteSeen(m.shards[0], hash, old), "replaced meanwhile")
	require.Equal(t, map[int]*state{1: v}, contents(m))
	require.Equal(t, 1, m.Len())
	require.True(t, deleteSeen(m.shards[0], hash, v))
	require.Zero(t, m.Len())
}

func testAllocs[K comparable](t *testing.T, key, absent K) {
	m := NewMap[K, state](100)
	gone, _ := m.LoadOrCompute(m.Hash(key), key, func(*state) {})
	m.Delete(m.Hash(key), gone)
	v, _ := m.LoadOrCompute(m.Hash(key), key, func(*state) {})
	for what, f := range map[string]func(){
		"Hash":                 func() { m.Hash(key) },
		"Load":                 func() { m.Load(m.Hash(key), key) },
		"Load absent":          func() { m.Load(m.Hash(absent), absent) },
		"First and Has":        func() { m.Has(m.Hash(key), m.First(m.Hash(key)), key) },
		"HasShort":             func() { m.HasShort(m.Hash(key), v, key) },
		"LoadOrCompute loaded": func() { m.LoadOrCompute(m.Hash(key), key, func(*state) {}) },
		"Delete gone":          func() { m.Delete(m.Hash(key), gone) },
		"Len":                  func() { m.Len() },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), "%T: %s", key, what)
	}
	got, ok := m.Load(m.Hash(key), key)
	require.True(t, ok)
	require.Same(t, v, got)
	_, ok = m.Load(m.Hash(absent), absent)
	require.False(t, ok)
}

func TestMap_Allocs(t *testing.T) {
	type name string
	type pair struct {
		tenant int
		path   string
	}
	testAllocs(t, "203.0.113.195 /login", "203.0.113.196 /login")
	testAllocs(t, name("203.0.113.195 /login"), "x")
	testAllocs(t, 1, 2)
	testAllocs(t, uint8(1), 2)
	testAllocs(t, 1.5, 2.5)
	testAllocs(t, pair{1, "/login"}, pair{2, "/login"})
	testAllocs(t, [8]uint64{7: 1}, [8]uint64{7: 2})
	testAllocs(t, [3]string{"a", "b", "c"}, [3]string{"a", "b", "d"})
	testAllocs(t, netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"))
	testAllocs(t, new(int), new(int))
}

func TestMap_Sizes(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) == 8 {
		// Shards are apart, so that a resize of one does not slow down lookups in its neighbours: their headers are of the
		// 128-byte size class.
		m := NewMap[string, state](1 << 20)
		at := make([]uintptr, m.Shards())
		for i, shard := range m.shards {
			at[i] = uintptr(unsafe.Pointer(shard))
			require.Zero(t, at[i]%128)
		}
		slices.Sort(at)
		require.Len(t, slices.Compact(at), m.Shards())
	}
	require.LessOrEqual(t, unsafe.Sizeof(Map[string, state]{}), uintptr(128))
}

// TestMap_SmallMemory: what an empty map takes, by size.
func TestMap_SmallMemory(t *testing.T) {
	for _, c := range []struct{ maxKeys, bytes int }{{1, 3200}, {100, 3200}, {1000, 13 << 10}, {1 << 20, 800 << 10}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const n = 10
		for range n {
			runtime.KeepAlive(NewMap[string, state](c.maxKeys))
		}
		runtime.ReadMemStats(&after)
		require.Less(t, (after.TotalAlloc-before.TotalAlloc)/n, uint64(c.bytes), "maxKeys %d", c.maxKeys)
	}
}

// bytesPerKey returns what a map for n string keys and values of 8 bytes takes for each, the bytes of the keys themselves
// not counted.
func bytesPerKey(n int) float64 {
	heap := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	const keyBytes = 16
	before := heap()
	m := NewMap[string, uint64](n)
	for i := range n {
		key := fmt.Sprintf("203.0.1 %08d", i)
		m.LoadOrCompute(m.Hash(key), key, func(*uint64) {})
	}
	after := heap()
	if m.Len() != n {
		panic("keys are missing")
	}
	runtime.KeepAlive(m)
	return float64(after-before)/float64(n) - keyBytes
}

// TestMap_Memory measures the map where its tables are full, and where they have just grown.
func TestMap_Memory(t *testing.T) {
	require.Less(t, bytesPerKey(115_000), 50.0)
	require.Less(t, bytesPerKey(130_000), 60.0)
}
