package limiter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/atomicring"
	"github.com/ringfence-go/ringfence/sharded"
)

// TestKeyed_BornAtTheFloor: a late caller that makes a key's new ring is counted
// no earlier than the sweep that removed the old one. Else its units would
// expire too soon, and the limit would be passed twice within the window.
func TestKeyed_BornAtTheFloor(t *testing.T) {
	const limit = 5
	clock := newHookClock()
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: limit, Window: 10 * time.Second, Clock: clock}, SweepEvery: NoSweep})
	require.True(t, k.AllowN("key", limit)) // at 0 s

	clock.Set(time.Second)
	clock.late(func() { // the caller has read 1 s
		clock.Set(11 * time.Second)
		k.Sweep()
		require.Zero(t, k.Len())
	})
	require.True(t, k.AllowN("key", limit)) // after 11 s
	require.Equal(t, 1, k.Len())
	require.Equal(t, uint64(1), k.Stats().Late)

	clock.Set(12 * time.Second)
	require.False(t, k.Allow("key"), "a second after the whole limit was taken")
	clock.Set(22*time.Second - 1)
	require.False(t, k.Allow("key"))
	clock.Set(22 * time.Second)
	require.True(t, k.AllowN("key", limit))
}

// TestKeyed_OverflowBornAtTheFloor is the same for a key that meets an overflow
// ring after its own was removed.
func TestKeyed_OverflowBornAtTheFloor(t *testing.T) {
	const limit = 5
	clock := newHookClock()
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: limit, Window: 10 * time.Second, Clock: clock}, MaxKeys: 1, SweepEvery: NoSweep})
	require.True(t, k.AllowN("key", limit))

	clock.Set(time.Second)
	clock.late(func() {
		clock.Set(11 * time.Second)
		k.Sweep()
		require.True(t, k.Allow("other"), "which takes the only place")
	})
	require.True(t, k.AllowN("key", limit))
	require.Equal(t, []string{"other"}, keysOf(k.table.keys))

	clock.Set(12 * time.Second)
	require.False(t, k.Allow("key"))
	clock.Set(22 * time.Second)
	require.True(t, k.AllowN("key", limit))
}

// TestKeyed_SharedAtTheFloor is the same for a key that meets an overflow ring
// which others use since before.
func TestKeyed_SharedAtTheFloor(t *testing.T) {
	clock := newHookClock()
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 5, Window: 10 * time.Second, Clock: clock}, MaxKeys: 1, SweepEvery: NoSweep})
	keys, _ := onPart(k.table.keys, func(i int) int { return i }, 2)
	require.True(t, k.AllowN(keys[0], 5)) // at 0 s
	clock.Set(2 * time.Second)
	require.True(t, k.Allow(keys[1]))

	clock.Set(3 * time.Second)
	clock.late(func() {
		clock.Set(11 * time.Second)
		k.Sweep()
		require.Zero(t, k.Len())
	})
	require.True(t, k.AllowN(keys[0], 4)) // after 11 s
	require.Zero(t, k.Len())
	require.Equal(t, uint64(2), k.Stats().Forced)

	clock.Set(14 * time.Second)
	require.False(t, k.AllowN(keys[0], 2))
	clock.Set(22 * time.Second)
	require.True(t, k.AllowN(keys[0], 5))
}

// TestMemoryStore_BornAtTheFloor is TestKeyed_BornAtTheFloor, and the two after it, for a fixed window.
func TestMemoryStore_BornAtTheFloor(t *testing.T) {
	for _, maxKeys := range []int{1, 2} { // with an overflow window, and with one of its own
		clock := newHookClock()
		s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: maxKeys, SweepEvery: NoSweep})
		require.True(t, attemptOn(s, "key", 1, 10*time.Second).allowed)
		clock.Set(time.Second)
		clock.late(func() {
			clock.Set(10 * time.Second)
			s.Sweep()
			require.True(t, attemptOn(s, "other", 1, time.Hour).allowed)
		})
		require.True(t, attemptOn(s, "key", 1, 10*time.Second).allowed)
		require.Equal(t, maxKeys, s.Len())
		clock.Set(11 * time.Second)
		require.Equal(t, attempt{false, 1, 9 * time.Second}, attemptOn(s, "key", 1, 10*time.Second))
		clock.Set(20 * time.Second)
		require.True(t, attemptOn(s, "key", 1, 10*time.Second).allowed)
	}
}

// TestKeyed_LateCallerOnRetiredRing: a caller that holds a ring while it is
// retired and its key reborn is counted in the new ring.
func TestKeyed_LateCallerOnRetiredRing(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 2, Window: 10 * time.Second, Clock: clock}, SweepEvery: NoSweep})
	require.True(t, k.Allow("key"))
	hash := k.table.keys.Hash("key")
	old, _ := k.table.keys.Load(hash, "key")
	clock.Set(11 * time.Second)

	// Retired but not yet deleted: whoever meets it helps.
	_, ok := old.Retire(&k.layout, 11)
	require.True(t, ok)
	require.Equal(t, 1, k.Len())
	require.Equal(t, uint64(2), k.Peek("key", 1).Remaining)
	require.Zero(t, k.Len(), "Peek has deleted it and made nothing")
	require.True(t, k.Allow("key"))
	young, _ := k.table.keys.Load(hash, "key")
	require.NotSame(t, old, young)
	k.table.drop(hash, old)
	require.Equal(t, 1, k.Len(), "the delete of an old ring leaves the new one")
	require.True(t, k.Allow("key"))
	require.False(t, k.Allow("key"))
	require.Equal(t, uint64(1), k.Stats().Retired)
}

// TestKeyed_ClosedThenRetired: what a call has closed is counted, though the ring
// was retired before the call could be decided.
func TestKeyed_ClosedThenRetired(t *testing.T) {
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 5, Window: 10 * time.Second, Clock: NewManualClock()}, SweepEvery: NoSweep})
	require.True(t, k.Allow("key"))
	hash := k.table.keys.Hash("key")
	old, _ := k.table.keys.Load(hash, "key")
	units, ok := old.Retire(&k.layout, 11)
	require.True(t, ok)
	young, a, full := k.complete(old, atomicring.Admission{Verdict: atomicring.Retired, Closed: units}, hash, "key", 2, 5, 11)
	require.False(t, full)
	require.NotSame(t, old, young)
	require.Equal(t, atomicring.Admission{Verdict: atomicring.Admitted, Epoch: 11, Total: 2}, a)
	require.Equal(t, Stats{Keys: 1, Retired: 1, Admitted: 1}, k.Stats())
}

// TestKeyed_OneStatePerKey: callers that race on the first use of a key share
// one state.
func TestKeyed_OneStatePerKey(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 3, Window: time.Second, Clock: yieldClock{NewManualClock()}}, SweepEvery: NoSweep})
		for key := range rounds(1000) {
			var admitted atomic.Int64
			crowd(16, func(int) {
				if k.Allow(key) {
					admitted.Add(1)
				}
			})
			require.Equal(t, int64(3), admitted.Load())
			require.Equal(t, key+1, k.Len())
		}
	})
}

// TestTable_Cap: the cap is never exceeded while many callers insert and
// sweepers remove, the count agrees with the map in the end, and nobody who
// found no place lost a unit's place for good.
func TestTable_Cap(t *testing.T) {
	const maxKeys = 50
	for _, onFull := range []OnFull{ShareOverflow, DenyNew, AdmitNew} {
		t.Run(fmt.Sprintf("onFull=%d", onFull), func(t *testing.T) {
			eachProcs(t, func(t *testing.T) {
				clock := yieldClock{NewManualClock()}
				k := newKeyed[int](t, KeyedConfig{
					Config:  Config{Limit: 2, Window: time.Second, Clock: clock},
					MaxKeys: maxKeys, OnFull: onFull, SweepEvery: NoSweep,
				})
				seed := seedOf(t)
				crowd(8, func(i int) {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					for range rounds(10_000) {
						k.Allow(r.IntN(4 * maxKeys))
						switch r.IntN(100) {
						case 0:
							clock.Advance(time.Second / 4)
						case 1:
							k.Sweep()
						case 2:
							k.Forget(r.IntN(4 * maxKeys))
						}
						if n, m := k.table.keys.Len(), k.Len(); m > maxKeys {
							t.Errorf("%d keys counted, %d in the map, of at most %d", m, n, maxKeys)
						}
					}
				})
				require.Equal(t, k.table.keys.Len(), k.Len())
				require.LessOrEqual(t, k.Len(), maxKeys)
				require.NotZero(t, k.Stats().Forced)
				clock.Advance(time.Hour)
				k.Sweep()
				require.Zero(t, k.Len())
				require.Zero(t, k.table.keys.Len())
				for key := range maxKeys {
					require.True(t, k.Allow(key))
				}
				require.Equal(t, maxKeys, k.Len(), "every place can be taken again")
			})
		})
	}
}

// takeOf is Attempt, and says where the units were counted.
func takeOf[K comparable](k *Keyed[K], key K, n uint64) (Decision, receipt) {
	return (&keyedTarget[K]{k, key}).attempt(n, k.limit.Load(), unread)
}

// A tally adds up the units of one key by the epoch that they were counted in.
type tally []atomic.Uint64

// most returns the most units in that many epochs in a row.
func (t tally) most(epochs int) (most uint64) {
	var sum uint64
	for i := range t {
		sum += t[i].Load()
		if i >= epochs {
			sum -= t[i-epochs].Load()
		}
		most = max(most, sum)
	}
	return most
}

// TestKeyed_SweepAtExpiry: sweepers and callers meet at the very instant at which
// everything in a ring has expired, 100,000 times, with late callers and keys
// that are reborn, with places for all keys and with too few, so that keys move
// between rings of their own and overflow rings. P1 holds for every key, in the
// epochs that units were counted in; every unit is counted between the caller's
// reading and its return; and none is lost or counted twice.
func TestKeyed_SweepAtExpiry(t *testing.T) {
	const (
		limit, slots = 3, 3
		perRound     = slots + 1
	)
	for _, c := range []struct {
		keys, maxKeys, rounds int
	}{
		{1, 1, 15_000},
		{3, 2, 10_000},
	} {
		t.Run(fmt.Sprintf("keys=%d/places=%d", c.keys, c.maxKeys), func(t *testing.T) {
			eachProcs(t, func(t *testing.T) {
				clock := yieldClock{NewManualClock()}
				k := newKeyed[int](t, KeyedConfig{
					Config:  Config{Limit: limit, Window: slots * time.Second, Slots: slots, Clock: clock},
					MaxKeys: c.maxKeys, SweepEvery: NoSweep,
				})
				n := rounds(c.rounds)
				tallies := make([]tally, c.keys)
				for i := range tallies {
					tallies[i] = make(tally, (2*n+2)*perRound)
				}
				var admitted atomic.Uint64
				attempt := func(key int) {
					before := uint64(clock.ManualClock.Now() / time.Second)
					d, r := takeOf(k, key, 1)
					after := uint64(clock.ManualClock.Now() / time.Second)
					if !d.Allowed {
						return
					}
					if r.epoch < before || r.epoch > after {
						t.Errorf("counted in epoch %d, by a call from %d to %d", r.epoch, before, after)
						return
					}
					tallies[key][r.epoch].Add(1)
					admitted.Add(1)
				}
				// Whatever was counted in the epoch before the first of a round
				// expires with its last one. Every other round is twice as long, so
				// that what callers count in its first half expires as well.
				for round := range n {
					crowd(4, func(i int) {
						switch {
						case i == 0:
							for range perRound * (1 + round%2) {
								clock.Advance(time.Second)
								k.Sweep()
							}
						case i == 1 && round%2 == 0:
							k.Sweep()
							k.Sweep()
						default:
							for j := range 2 * limit * c.keys {
								attempt((i + j) % c.keys)
							}
						}
					})
				}
				for key := range tallies {
					require.LessOrEqual(t, tallies[key].most(slots+1), uint64(limit), "P1 of key %d", key)
				}
				clock.Advance(time.Hour)
				k.Sweep()
				stats := k.Stats()
				require.Zero(t, stats.Keys)
				require.Equal(t, admitted.Load(), stats.Admitted, "units counted, and what became of them")
				require.Greater(t, stats.Admitted, uint64(n), "most rounds admitted something")
				require.Greater(t, stats.Retired, uint64(n/10), "many rounds retired a ring")
				if c.keys > c.maxKeys {
					require.NotZero(t, stats.Forced)
				}
			})
		})
	}
}

// TestKeyed_SweepKeepsLiveKeys: a sweep removes what has expired, to the tick,
// and nothing else.
func TestKeyed_SweepKeepsLiveKeys(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 5, Window: 10 * time.Second, Clock: clock}, SweepEvery: NoSweep})
	for key := range 20 { // one a second
		clock.Set(time.Duration(key) * time.Second)
		require.True(t, k.AllowN(key, 5))
	}
	for at := 19; at < 40; at++ {
		clock.Set(time.Duration(at) * time.Second)
		k.Sweep()
		var want []int
		for key := range 20 {
			if key+11 > at {
				want = append(want, key)
				require.False(t, k.Peek(key, 1).Allowed)
			}
		}
		require.Equal(t, want, keysOf(k.table.keys), "at %d s", at)
		require.Equal(t, len(want), k.Len())
	}
	require.Equal(t, Stats{Retired: 20, Admitted: 100}, k.Stats())
}

// TestKeyed_SweepBackward: a sweep after the clock has stepped back removes
// nothing that is live.
func TestKeyed_SweepBackward(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 1, Window: 10 * time.Second, Clock: clock}, SweepEvery: NoSweep})
	clock.Set(time.Hour)
	require.True(t, k.Allow(1))
	for _, now := range []time.Duration{0, -time.Hour, time.Hour, time.Hour + 10*time.Second} {
		clock.Set(now)
		k.Sweep()
		require.False(t, k.Peek(1, 1).Allowed)
	}
	clock.Set(time.Hour + 11*time.Second)
	k.Sweep()
	require.Zero(t, k.Len())
}

// onPart returns n keys whose overflow state is the same, and one with another.
func onPart[K comparable, V any](m *sharded.Map[K, V], key func(i int) K, n int) (same []K, other K) {
	part := func(i int) uint64 { return m.Hash(key(i)) % overflowParts }
	found := false
	for i := 0; len(same) < n || !found; i++ {
		switch {
		case i == 0 || part(i) == part(0):
			same = append(same, key(i))
		default:
			other, found = key(i), true
		}
	}
	return same[:n], other
}

func TestKeyed_OnFull(t *testing.T) {
	const tick = time.Second
	start := func(t *testing.T, onFull OnFull) (*Keyed[int], *ManualClock) {
		clock := NewManualClock()
		k := newKeyed[int](t, KeyedConfig{
			Config:  Config{Limit: 3, Window: 10 * tick, Clock: clock, CountDenied: true},
			MaxKeys: 2, OnFull: onFull, SweepEvery: NoSweep,
		})
		require.True(t, k.AllowN(-1, 2))
		clock.Advance(tick)
		require.True(t, k.AllowN(-2, 2))
		return k, clock
	}
	key := func(i int) int { return i }

	// alive demands that the keys that came first have their counts.
	alive := func(t *testing.T, k *Keyed[int]) {
		t.Helper()
		require.Equal(t, []int{-2, -1}, keysOf(k.table.keys))
		require.Equal(t, uint64(1), k.Peek(-1, 1).Remaining)
		require.Equal(t, uint64(1), k.Peek(-2, 1).Remaining)
	}

	t.Run("DenyNew", func(t *testing.T) {
		k, clock := start(t, DenyNew)
		full := Decision{Reason: ReasonFull, Limit: 3, RetryAfter: tick}
		for i := range 100 {
			require.Equal(t, full, k.Attempt(i, 1))
			require.Equal(t, full, k.Peek(i, 1))
			require.False(t, k.Allow(i))
			require.ErrorIs(t, k.Wait(t.Context(), i), ErrFull)
			require.Equal(t, ReasonTooCostly, k.Attempt(i, 4).Reason, "which no room would change")
			require.True(t, k.AllowN(i, 0), "which needs no room")
		}
		alive(t, k)
		require.Equal(t, uint64(4*100), k.Stats().Denied, "Attempt, Allow, Wait, and too costly")
		clock.Advance(10 * tick) // -1 has expired, -2 has not
		require.True(t, k.Attempt(7, 1).Allowed)
		require.Equal(t, []int{-2, 7}, keysOf(k.table.keys))
		require.False(t, k.Allow(8))
	})

	t.Run("AdmitNew", func(t *testing.T) {
		k, clock := start(t, AdmitNew)
		for i := range 100 {
			d := k.Attempt(i%10, 2)
			require.True(t, d.Allowed)
			require.Equal(t, ReasonAdmitted, d.Reason)
			require.Equal(t, uint64(1), d.Remaining)
			require.True(t, k.Peek(i, 3).Allowed)
			require.False(t, k.AllowN(-1, 2), "keys that exist are held to the limit")
		}
		require.Equal(t, []int{-2, -1}, keysOf(k.table.keys))
		require.Equal(t, uint64(100), k.Stats().Forced)
		clock.Advance(20 * tick)
		require.True(t, k.AllowN(5, 3))
		require.False(t, k.Allow(5), "there is room again")
	})

	t.Run("ShareOverflow", func(t *testing.T) {
		k, clock := start(t, ShareOverflow)
		same, other := onPart(k.table.keys, key, 3)
		require.True(t, k.Allow(same[0]))
		require.True(t, k.Allow(same[1]))
		d := k.Attempt(same[2], 1)
		require.True(t, d.Allowed)
		require.Zero(t, d.Remaining, "of what they share")
		for _, i := range same {
			d := k.Attempt(i, 1)
			require.Equal(t, Decision{Reason: ReasonLimited, Limit: 3, RetryAfter: 11 * tick, ResetAfter: 11 * tick}, d)
			require.Equal(t, d, k.Peek(i, 1))
		}
		require.True(t, k.AllowN(other, 3), "another part")
		alive(t, k)
		require.Equal(t, uint64(3+3+1), k.Stats().Forced)

		// Room appears while the part is in use: no key of it gets a ring of its
		// own until all has expired, or what it has used of the part would not
		// count.
		clock.Advance(10 * tick)
		k.Sweep()
		require.Equal(t, []int{-2}, keysOf(k.table.keys)) // expires together with the parts
		require.False(t, k.Peek(same[0], 1).Allowed)
		require.Equal(t, 1, k.Len())
		clock.Advance(tick)
		require.True(t, k.AllowN(same[0], 3))
		require.Contains(t, keysOf(k.table.keys), same[0])
		require.False(t, k.Allow(same[0]))
		require.True(t, k.AllowN(same[1], 3), "its own")
	})
}

// TestKeyed_OverflowRetiredBySweep: a sweep removes overflow states as well, so
// that their keys get states of their own.
func TestKeyed_OverflowRetiredBySweep(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 3, Window: 10 * time.Second, Clock: clock}, MaxKeys: 1, SweepEvery: NoSweep})
	require.True(t, k.Allow(-1))
	require.True(t, k.AllowN(1, 2))
	inUse := func() (n int) {
		for i := range k.table.shards {
			for j := range k.table.shards[i].overflow {
				if k.table.shards[i].overflow[j].Load() != nil {
					n++
				}
			}
		}
		return n
	}
	require.Equal(t, 1, inUse())
	clock.Advance(10 * time.Second)
	k.Sweep()
	require.Equal(t, 1, inUse())
	clock.Advance(time.Second)
	k.Sweep()
	require.Zero(t, inUse())
	require.Equal(t, uint64(3), k.Stats().Admitted)
}

// TestKeyed_SweepForRoom: at the cap, new keys sweep their shard for room, but
// not more often than once in a tick and in a tenth of a second.
func TestKeyed_SweepForRoom(t *testing.T) {
	for _, window := range []time.Duration{10 * time.Second, 10 * time.Millisecond} {
		rest := max(window/10, leastRest)
		clock := NewManualClock()
		k := newKeyed[int](t, KeyedConfig{
			Config:  Config{Limit: 1, Window: window, Clock: clock},
			MaxKeys: 4, OnFull: DenyNew, SweepEvery: NoSweep,
		})
		clock.Advance(1000 * time.Hour)
		for key := range 4 {
			require.True(t, k.Allow(key))
		}
		require.False(t, k.Allow(10)) // sweeps, in vain
		sweeps := 0
		for range 100 {
			clock.Advance(rest / 10)
			k.table.shards[0].floor.Store(0)
			for key := range 4 {
				k.Allow(key) // stays in use
			}
			require.Equal(t, ReasonFull, k.Attempt(10, 1).Reason)
			if k.table.shards[0].floor.Load() > 0 {
				sweeps++
			}
		}
		require.Equal(t, 10, sweeps, "in ten times the least time between two")
	}
}

// TestTable_Shards: a sweep of a shard raises its floor and counts what it has
// retired there, and does nothing to the others.
func TestTable_Shards(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 1, Window: 10 * time.Second, Clock: clock}, MaxKeys: 1 << 18, SweepEvery: NoSweep})
	require.Len(t, k.table.shards, 16)
	keysIn := make([]int, len(k.table.shards))
	for key := range 10_000 {
		require.True(t, k.Allow(key))
		keysIn[k.table.keys.ShardOf(k.table.keys.Hash(key))]++
	}
	clock.Advance(time.Hour)
	now := k.epoch(k.now())
	check := func(i int, swept bool) {
		sh := &k.table.shards[i]
		require.Positive(t, keysIn[i])
		want, floor := uint64(0), uint64(0)
		if swept {
			want, floor = uint64(keysIn[i]), now
		}
		require.Equal(t, want, sh.retired.Load())
		require.Equal(t, want, sh.admitted.Load())
		require.Equal(t, floor, sh.floor.Load())
	}
	k.table.sweepShard(3, now)
	for i := range k.table.shards {
		check(i, i == 3)
	}
	k.Sweep()
	for i := range k.table.shards {
		check(i, true)
	}
	require.Zero(t, k.Len())
	require.Empty(t, keysOf(k.table.keys))
}

// TestTable_Strays: keys with the same hash have a state each, which are counted,
// swept and born again like those of other keys.
func TestTable_Strays(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 5, Window: 10 * time.Second, Clock: clock}, MaxKeys: 3, OnFull: DenyNew, SweepEvery: NoSweep})
	const hash = 0
	settle := func(key int) (*atomicring.Ring, place) {
		r, p, _ := k.table.settle(hash, key, k.epoch(k.now()), 1, 0)
		return r, p
	}
	for round := range 3 {
		rings := map[*atomicring.Ring]bool{}
		for key := range 3 {
			r, p := settle(key)
			require.Equal(t, born, p)
			again, p := settle(key)
			require.Equal(t, own, p)
			require.Same(t, r, again)
			rings[r] = true
		}
		require.Len(t, rings, 3)
		require.Equal(t, 3, k.Len())
		_, p := settle(3)
		require.Equal(t, denied, p)
		clock.Advance(time.Minute)
		k.Sweep()
		require.Zero(t, k.Len())
		require.Zero(t, k.table.keys.Len())
		require.Equal(t, Stats{Admitted: uint64(3 * (round + 1)), Retired: uint64(3 * (round + 1)), Forced: uint64(round + 1)}, k.Stats())
	}
}

// TestKeyed_RoomRest: the more keys, the rarer are sweeps for room.
func TestKeyed_RoomRest(t *testing.T) {
	for maxKeys, want := range map[int]time.Duration{
		1: leastRest, 100_000: leastRest, 1_000_000: time.Second, math.MaxInt: 10 * time.Second,
	} {
		require.Equal(t, want, roomRest(maxKeys), "MaxKeys %d", maxKeys)
	}
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Second}, MaxKeys: 1_000_000, SweepEvery: NoSweep})
	require.Equal(t, uint64(10), k.table.kind.rest)
	k = newKeyed[int](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Hour}, MaxKeys: 1_000_000, SweepEvery: NoSweep})
	require.Equal(t, uint64(1), k.table.kind.rest)
	s := newStore(t, MemoryStoreConfig{MaxKeys: 1_000_000, SweepEvery: NoSweep})
	require.Equal(t, uint64(1000), s.table.kind.rest)
}

// TestKeyed_Forget: what was counted is dropped, a caller that holds the old
// ring is counted in the next one.
func TestKeyed_Forget(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 2, Window: 10 * time.Second, Clock: clock}, SweepEvery: NoSweep})
	k.Forget("key")
	require.True(t, k.AllowN("key", 2))
	require.True(t, k.AllowN("other", 2))
	old, _ := k.table.keys.Load(k.table.keys.Hash("key"), "key")
	k.Forget("key")
	require.Equal(t, 1, k.Len())
	require.Equal(t, atomicring.Retired, old.Admit(&k.layout, 0, 1, 2).Verdict)
	require.True(t, k.AllowN("key", 2))
	require.False(t, k.Allow("key"))
	require.False(t, k.Allow("other"))
	clock.Advance(time.Hour)
	k.Sweep()
	require.Equal(t, Stats{Retired: 3, Admitted: 6}, k.Stats())
}

// TestKeyed_ForgetConcurrent: between two resets a key is held to its limit.
func TestKeyed_ForgetConcurrent(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		const limit = 3
		k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: limit, Window: time.Second, Clock: yieldClock{NewManualClock()}}, SweepEvery: NoSweep})
		var forgotten, admitted atomic.Uint64
		var mu sync.Mutex
		rings := map[*atomicring.Ring]uint64{}
		crowd(8, func(i int) {
			for j := range rounds(10_000) {
				if (i+j)%50 == 0 {
					k.Forget(1)
					forgotten.Add(1)
				}
				if d, r := takeOf(k, 1, 1); d.Allowed {
					mu.Lock()
					rings[r.ring]++
					mu.Unlock()
					admitted.Add(1)
				}
			}
		})
		for _, n := range rings {
			require.LessOrEqual(t, n, uint64(limit))
		}
		require.LessOrEqual(t, uint64(len(rings)), forgotten.Load()+1)
		k.Forget(1)
		require.Equal(t, admitted.Load(), k.Stats().Admitted)
	})
}

// TestKeyed_Keys: any comparable type will do, and equal keys are one.
func TestKeyed_Keys(t *testing.T) {
	type client struct {
		address [16]byte
		plan    string
	}
	k := newKeyed[client](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Second, Clock: NewManualClock()}})
	a := client{[16]byte{1}, "free"}
	b := client{[16]byte{1}, "paid"}
	require.True(t, k.Allow(a))
	require.True(t, k.Allow(b))
	require.False(t, k.Allow(client{[16]byte{1}, string([]byte("free"))}))
	require.Equal(t, 2, k.Len())

	n := newKeyed[uint64](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Second, Clock: NewManualClock()}})
	for key := range uint64(1000) {
		require.True(t, n.Allow(key<<54))
	}
	for key := range uint64(1000) {
		require.False(t, n.Allow(key<<54))
	}
	require.True(t, slices.IsSorted(keysOf(n.table.keys)))
	require.Len(t, keysOf(n.table.keys), 1000)
}
