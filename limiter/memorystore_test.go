package limiter

import (
	"cmp"
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

// An attempt is what a Store answers.
type attempt struct {
	allowed    bool
	attempts   int
	retryAfter time.Duration
}

func attemptOn(s Store, key string, max int, decay time.Duration) attempt {
	allowed, attempts, retryAfter := s.Attempt(key, max, decay)
	return attempt{allowed, attempts, retryAfter}
}

func TestMemoryStore_Window(t *testing.T) {
	clock := NewManualClock()
	clock.Set(-time.Hour)
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	steps := []struct {
		at   time.Duration
		want attempt
	}{
		{0, attempt{true, 1, 10 * time.Second}}, // the first hit opens the window
		{4 * time.Second, attempt{true, 2, 6 * time.Second}},
		{4 * time.Second, attempt{false, 2, 6 * time.Second}}, // a denial changes nothing
		{10*time.Second - 1, attempt{false, 2, 1}},
		{10 * time.Second, attempt{true, 1, 10 * time.Second}}, // the end does not belong to it
		{19 * time.Second, attempt{true, 2, time.Second}},
		{9 * time.Second, attempt{false, 2, 11 * time.Second}}, // a clock that stepped back
		{60*time.Second + 1, attempt{true, 1, 10*time.Second + time.Millisecond - 1}},
		{70*time.Second + 1, attempt{true, 2, time.Millisecond - 1}}, // less than a millisecond longer
		{70*time.Second + time.Millisecond, attempt{true, 1, 10 * time.Second}},
	}
	for i, step := range steps {
		clock.Set(step.at - time.Hour)
		require.Equal(t, step.want, attemptOn(s, "key", 2, 10*time.Second), "step %d", i)
	}
}

// TestMemoryStore_DecayOfLaterAttempts: a window keeps its end, whatever decay
// later attempts bring.
func TestMemoryStore_DecayOfLaterAttempts(t *testing.T) {
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	require.Equal(t, attempt{true, 1, time.Minute}, attemptOn(s, "key", 3, time.Minute))
	require.Equal(t, attempt{true, 2, time.Minute}, attemptOn(s, "key", 3, time.Second))
	require.Equal(t, attempt{true, 3, time.Minute}, attemptOn(s, "key", 3, time.Hour))
	clock.Advance(time.Minute)
	require.Equal(t, attempt{true, 1, time.Hour}, attemptOn(s, "key", 3, time.Hour))
}

// TestMemoryStore_MaxOfLaterAttempts: each attempt is held to its own max.
func TestMemoryStore_MaxOfLaterAttempts(t *testing.T) {
	s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
	require.Equal(t, attempt{true, 1, time.Minute}, attemptOn(s, "key", 5, time.Minute))
	require.Equal(t, attempt{true, 2, time.Minute}, attemptOn(s, "key", 5, time.Minute))
	require.Equal(t, attempt{false, 2, time.Minute}, attemptOn(s, "key", 1, time.Minute))
	require.Equal(t, attempt{true, 3, time.Minute}, attemptOn(s, "key", 3, time.Minute))
}

// TestMemoryStore_Never: a max or a decay of 0 or less denies, counts nothing,
// creates nothing, and announces the decay.
func TestMemoryStore_Never(t *testing.T) {
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	for _, count := range []int{0, 1} {
		for _, c := range []struct {
			max   int
			decay time.Duration
			want  time.Duration
		}{
			{0, time.Minute, time.Minute}, {-1, time.Minute, time.Minute}, {math.MinInt, time.Minute, time.Minute},
			{5, 0, 0}, {5, -1, 0}, {5, math.MinInt64, 0}, {0, 0, 0}, {-1, -1, 0}, {0, math.MaxInt64, math.MaxInt64}, {0, 1, 1},
		} {
			require.Equal(t, attempt{false, count, c.want}, attemptOn(s, "key", c.max, c.decay), "%+v", c)
		}
		require.Equal(t, count, s.Len())
		require.Equal(t, attempt{true, 1, time.Hour}, attemptOn(s, "other", 1, time.Hour))
		s.table.drop(s.table.keys.Hash("other"), mustLoad(t, s, "other"))
		if count == 0 {
			require.Equal(t, attempt{true, 1, time.Hour}, attemptOn(s, "key", 5, time.Hour))
			clock.Advance(time.Second)
		}
	}
}

// mustLoad returns the cell of key.
func mustLoad(t *testing.T, s *MemoryStore, key string) *atomicring.Cell {
	t.Helper()
	c, ok := s.table.keys.Load(s.table.keys.Hash(key), key)
	require.True(t, ok)
	return c
}

// TestMemoryStore_Capacity: a max above what a window counts acts as that, and
// no cost gets past it.
func TestMemoryStore_Capacity(t *testing.T) {
	const most = 1<<24 - 1
	s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
	one := func(key string, cost int) StoreResult {
		results := make([]StoreResult, 1)
		s.AttemptMany([]StoreItem{{key, math.MaxInt, time.Minute, cost}}, results)
		results[0].Charge = Charge{}
		return results[0]
	}
	for _, cost := range []int{most + 1, 1 << 30, math.MaxInt} {
		require.Equal(t, StoreResult{RetryAfter: time.Minute}, one("key", cost), "a new key, cost %d", cost)
	}
	require.Zero(t, s.Len(), "what can never pass creates nothing")
	require.Equal(t, StoreResult{Allowed: true, Attempts: most - 1, RetryAfter: time.Minute}, one("key", most-1))
	for _, cost := range []int{2, most, most + 1, math.MaxInt} {
		require.Equal(t, StoreResult{Attempts: most - 1, RetryAfter: time.Minute}, one("key", cost), "cost %d", cost)
	}
	require.Equal(t, attempt{true, most, time.Minute}, attemptOn(s, "key", math.MaxInt, time.Minute))
	require.Equal(t, attempt{false, most, time.Minute}, attemptOn(s, "key", math.MaxInt, time.Minute))
	require.Equal(t, StoreResult{Allowed: true, Attempts: most, RetryAfter: time.Minute}, one("other", most))
	require.Equal(t, StoreResult{RetryAfter: time.Minute}, one("third", -1), "a negative cost")
	require.Equal(t, 2, s.Len())
}

// TestMemoryStore_HugeDecay: what lasts longer than 34 years lasts for ever, and
// no sum wraps.
func TestMemoryStore_HugeDecay(t *testing.T) {
	const years = 365 * 24 * time.Hour
	for _, decay := range []time.Duration{35 * years, 100 * years, math.MaxInt64 - 1, math.MaxInt64} {
		clock := NewManualClock()
		s := newStore(t, MemoryStoreConfig{Clock: clock})
		require.Equal(t, attempt{true, 1, Never}, attemptOn(s, "key", 1, decay))
		for _, now := range []time.Duration{1, 34 * years, 35 * years, 292 * years, math.MaxInt64} {
			clock.Set(now)
			require.Equal(t, attempt{false, 1, Never}, attemptOn(s, "key", 1, decay), "%v at %v", decay, now)
			s.Sweep()
			require.Equal(t, 1, s.Len())
		}
		require.Equal(t, attempt{true, 1, Never}, attemptOn(s, "late", 1, time.Second), "time has ended")
	}
	// The longest window that does end, ends.
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	const longest = (1<<40 - 3) * time.Millisecond
	require.Equal(t, attempt{true, 1, longest}, attemptOn(s, "key", 1, longest))
	clock.Set(longest - 1)
	require.Equal(t, attempt{false, 1, 1}, attemptOn(s, "key", 1, longest))
	clock.Set(longest)
	require.True(t, attemptOn(s, "key", 1, time.Second).allowed)
}

// TestMemoryStore_Barrier: of callers that one barrier releases on a fresh key
// exactly max are allowed, every time, and they got different counts.
func TestMemoryStore_Barrier(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
		for round := range rounds(500) {
			for _, max := range []int{1, 5} {
				key := fmt.Sprintf("%d of %d", max, round)
				var allowed atomic.Int64
				var counts [6]atomic.Int64
				crowd(32, func(int) {
					a := attemptOn(s, key, max, time.Minute)
					if a.allowed {
						allowed.Add(1)
						counts[a.attempts].Add(1)
					}
				})
				require.Equal(t, int64(max), allowed.Load(), "round %d", round)
				for n := 1; n <= max; n++ {
					require.Equal(t, int64(1), counts[n].Load(), "round %d: two callers were attempt %d", round, n)
				}
			}
		}
		require.Equal(t, 2*rounds(500), s.Len())
	})
}

// TestMemoryStore_StaleClock: with readings that can be old, no window is shorter
// than its decay, and none longer by more than the resolution and a millisecond.
func TestMemoryStore_StaleClock(t *testing.T) {
	r := newRand(t)
	for range rounds(200) {
		resolution := time.Duration(1 + r.Int64N(int64(50*time.Millisecond)))
		clock := newStaleClock(resolution, r.Uint64())
		clock.Set(time.Hour)
		s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 10, SweepEvery: NoSweep})
		const decay = 100 * time.Millisecond
		begun := time.Duration(math.MinInt64 / 2)
		for range 1000 {
			clock.Advance(time.Duration(r.Int64N(int64(decay / 10))))
			now := clock.ManualClock.Now()
			a := attemptOn(s, "key", 1, decay)
			if a.allowed {
				require.GreaterOrEqual(t, now-begun, decay)
				begun = now
			} else {
				require.Less(t, now-begun, decay+2*resolution+time.Millisecond)
			}
			require.Positive(t, a.retryAfter)
		}
	}
}

// A cellModel is a fixed window for one caller at a time, by key.
type cellModel map[string]*struct {
	end   time.Duration
	count int
}

func (m cellModel) attempt(now time.Duration, key string, max, cost int, decay time.Duration) attempt {
	now, decay = maxDuration(now, 0), maxDuration(decay, 0)
	w := m[key]
	live := w != nil && w.count > 0 && w.end > now.Truncate(time.Millisecond)
	a := attempt{retryAfter: decay}
	if live {
		a = attempt{false, w.count, w.end - now}
	}
	if max <= 0 || decay <= 0 {
		a.retryAfter = decay
		return a
	}
	if cost > max-a.attempts {
		return a
	}
	if !live {
		end := now + decay
		if rest := end % time.Millisecond; rest > 0 {
			end += time.Millisecond - rest
		}
		if w == nil {
			w = new(struct {
				end   time.Duration
				count int
			})
			m[key] = w
		}
		w.end, w.count = maxDuration(end, w.end), 0
	}
	w.count += cost
	return attempt{true, w.count, w.end - now}
}

func maxDuration(a, b time.Duration) time.Duration { return max(a, b) }

// TestMemoryStore_AgreesWithModel: one caller at a time gets what the model
// answers, with costs, refunds, and a clock that steps back (or a sweep now and
// then, which nobody notices).
func TestMemoryStore_AgreesWithModel(t *testing.T) {
	r := newRand(t)
	for script := range rounds(200) {
		sweeps := script%2 == 0
		clock := NewManualClock()
		s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 100, SweepEvery: NoSweep})
		m := cellModel{}
		type charge struct {
			key string
			Charge
		}
		var charges []charge
		for i := range 1000 {
			switch r.IntN(4) {
			case 0:
				clock.Advance(time.Duration(r.Int64N(int64(3 * time.Second))))
			case 1:
				clock.Advance(time.Duration(r.Int64N(int64(2 * time.Millisecond))))
			case 2:
				if !sweeps {
					clock.Advance(-time.Duration(r.Int64N(int64(time.Second))))
				}
			}
			now := clock.Now()
			key := fmt.Sprint("key", r.IntN(3))
			if len(charges) > 0 && r.IntN(8) == 0 {
				c := charges[len(charges)-1]
				charges = charges[:len(charges)-1]
				w := m[c.key]
				refund := w.end == time.Duration(c.Window)*time.Millisecond && w.count >= int(c.Cost)
				if sweeps && now >= w.end {
					refund = false // it may have been swept
					s.Sweep()
				}
				if refund {
					w.count -= int(c.Cost)
				}
				require.Equal(t, refund, s.Refund(&c.Charge), "step %d", i)
				continue
			}
			if sweeps && r.IntN(8) == 0 {
				s.Sweep()
			}
			item := StoreItem{Key: key, Max: r.IntN(7) - 1, Decay: time.Duration(r.Int64N(int64(4*time.Second))) - time.Second/2, Cost: 1 + r.IntN(3)}
			want := m.attempt(now, key, item.Max, item.Cost, item.Decay)
			results := make([]StoreResult, 1)
			denied := s.AttemptMany([]StoreItem{item}, results)
			got := attempt{results[0].Allowed, results[0].Attempts, results[0].RetryAfter}
			require.Equal(t, want, got, "step %d: %+v at %v", i, item, now)
			require.Equal(t, want.allowed, denied < 0)
			if want.allowed {
				charges = append(charges, charge{key, results[0].Charge})
			}
		}
	}
}

func TestMemoryStore_AttemptMany(t *testing.T) {
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	items := []StoreItem{
		{Key: "b", Max: 3, Decay: time.Minute},
		{Key: "a", Max: 2, Decay: time.Hour, Cost: 2},
		{Key: "c", Max: 9, Decay: time.Second, Cost: 5},
	}
	results := make([]StoreResult, 4)
	results[3].Attempts = 77
	require.Equal(t, -1, s.AttemptMany(items, results))
	for i, want := range []StoreResult{
		{true, 1, time.Minute, Charge{Cost: 1, Window: 60_000}},
		{true, 2, time.Hour, Charge{Cost: 2, Window: 3_600_000}},
		{true, 5, time.Second, Charge{Cost: 5, Window: 1000}},
		{Attempts: 77},
	} {
		if i < 3 {
			require.NotNil(t, results[i].Charge.Ref)
		}
		results[i].Charge.Ref = nil
		require.Equal(t, want, results[i], "item %d", i)
	}

	// "a" and "c" are full. The first declared is named, and nothing is counted.
	require.Equal(t, 1, s.AttemptMany(items, results))
	require.Equal(t, []StoreResult{
		{Allowed: true, Attempts: 1, RetryAfter: time.Minute},
		{Attempts: 2, RetryAfter: time.Hour},
		{Attempts: 5, RetryAfter: time.Second},
	}, withoutCharges(results[:3]))
	require.Equal(t, 2, s.AttemptMany([]StoreItem{items[0], items[0], items[2], items[1]}, results))
	require.Equal(t, attempt{true, 2, time.Minute}, attemptOn(s, "b", 3, time.Minute), "nothing was counted")

	require.Equal(t, -1, s.AttemptMany(nil, nil))
	require.Panics(t, func() { s.AttemptMany(items, make([]StoreResult, 2)) }, "too few results")
}

func withoutCharges(results []StoreResult) []StoreResult {
	results = slices.Clone(results)
	for i := range results {
		results[i].Charge = Charge{}
	}
	return results
}

// TestMemoryStore_AttemptManyEqualKeys: items of one key share its window, and
// each counts against its own max.
func TestMemoryStore_AttemptManyEqualKeys(t *testing.T) {
	s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
	results := make([]StoreResult, 3)
	item := func(max, cost int) StoreItem { return StoreItem{Key: "a", Max: max, Decay: time.Minute, Cost: cost} }
	require.Equal(t, 2, s.AttemptMany([]StoreItem{item(5, 2), item(5, 3), item(5, 1)}, results))
	require.Zero(t, s.Len())
	require.Equal(t, 1, s.AttemptMany([]StoreItem{item(9, 2), item(4, 3), item(9, 1)}, results))
	require.Zero(t, s.Len())
	require.Equal(t, -1, s.AttemptMany([]StoreItem{item(5, 2), item(5, 3)}, results))
	require.Equal(t, 5, results[1].Attempts)
	require.Equal(t, attempt{false, 5, time.Minute}, attemptOn(s, "a", 5, time.Minute))
	// Costs whose sum does not fit a uint64.
	require.Equal(t, 0, s.AttemptMany([]StoreItem{item(math.MaxInt, math.MaxInt), item(math.MaxInt, math.MaxInt), item(math.MaxInt, 3)}, results))
	require.Equal(t, 5, results[0].Attempts)
}

// TestMemoryStore_AttemptManyMisused: results that are too short panic before
// anything is counted, and costs whose sum does not fit are denied, each of them.
func TestMemoryStore_AttemptManyMisused(t *testing.T) {
	s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
	items := []StoreItem{{"key", 5, time.Minute, 1}, {"key", 5, time.Minute, 1}}
	require.PanicsWithValue(t, "limiter: 0 results for 1 items", func() { s.AttemptMany(items[:1], nil) })
	require.PanicsWithValue(t, "limiter: 1 results for 2 items", func() { s.AttemptMany(items, make([]StoreResult, 1, 8)) })
	require.Zero(t, s.Len())

	results := make([]StoreResult, 3)
	huge := []StoreItem{{"key", 5, time.Minute, math.MaxInt}, {"key", 5, time.Minute, math.MaxInt}, {"key", 5, time.Minute, 3}}
	require.Equal(t, 0, s.AttemptMany(huge, results))
	for i, r := range results {
		require.False(t, r.Allowed, "item %d", i)
	}
}

// TestMemoryStore_AttemptManyConcurrent: lists that share keys in any order, of
// which only one can pass: one does, every time, and leaves nothing counted
// beside itself.
func TestMemoryStore_AttemptManyConcurrent(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		clock := NewManualClock()
		s := newStore(t, MemoryStoreConfig{Clock: clock, SweepEvery: NoSweep})
		for round := range rounds(500) {
			keys := []string{"a", "b", "c", "d"}
			var passed atomic.Int64
			crowd(8, func(i int) {
				items := make([]StoreItem, 4)
				for j := range items {
					items[j] = StoreItem{Key: keys[(i+j*(1+2*(i%2)))%4], Max: 1, Decay: time.Minute}
				}
				if i%4 == 3 {
					items = items[:2]
				}
				results := make([]StoreResult, 4)
				if s.AttemptMany(items, results) < 0 {
					passed.Add(int64(len(items)))
				}
			})
			var counted int64
			for _, key := range keys {
				if !attemptOn(s, key, 1, time.Minute).allowed {
					counted++
				}
			}
			require.Equal(t, passed.Load(), counted, "round %d: units counted beside those of lists that passed", round)
			require.NotZero(t, passed.Load(), "round %d: the lists denied each other", round)
			clock.Advance(time.Minute)
			if round%2 == 0 {
				s.Sweep()
				require.Zero(t, s.Len())
			}
		}
	})
}

func TestMemoryStore_Refund(t *testing.T) {
	clock := NewManualClock()
	s := newStore(t, MemoryStoreConfig{Clock: clock})
	results := make([]StoreResult, 1)
	take := func(cost int) Charge {
		require.Equal(t, -1, s.AttemptMany([]StoreItem{{"key", 5, time.Minute, cost}}, results))
		return results[0].Charge
	}
	first := take(2)
	clock.Advance(time.Second)
	second := take(3)
	require.True(t, s.Refund(&second))
	require.Equal(t, attempt{true, 3, 59 * time.Second}, attemptOn(s, "key", 5, time.Minute), "the window stays where it was")
	require.True(t, s.Refund(&first))
	require.False(t, s.Refund(&first), "twice")
	last := take(4)
	require.True(t, s.Refund(&Charge{last.Ref, last.Window, 5}), "the last unit")
	clock.Advance(time.Second)
	require.Equal(t, attempt{true, 1, time.Minute}, attemptOn(s, "key", 5, time.Minute), "a new window has begun")

	old := take(1)
	clock.Advance(time.Minute)
	fresh := take(1)
	require.NotEqual(t, old.Window, fresh.Window)
	require.False(t, s.Refund(&old), "its window is over")
	require.False(t, s.Refund(&Charge{fresh.Ref, fresh.Window, 2}), "more than the window holds")
	require.False(t, s.Refund(&Charge{}))
	require.False(t, s.Refund(&Charge{Ref: "no cell", Window: fresh.Window, Cost: 1}))

	clock.Advance(time.Hour)
	again := take(5)
	same := again
	clock.Advance(time.Minute)
	s.Sweep()
	require.Zero(t, s.Len())
	require.False(t, s.Refund(&again), "the key was swept")
	require.Equal(t, attempt{true, 1, time.Minute}, attemptOn(s, "key", 5, time.Minute))
	require.False(t, s.Refund(&same), "a charge cannot touch the key's next state")
}

// TestMemoryStore_RefundConcurrent: units that are taken and given back by many
// at once are neither lost nor made.
func TestMemoryStore_RefundConcurrent(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		s := newStore(t, MemoryStoreConfig{Clock: NewManualClock()})
		const max = 10
		var held atomic.Int64
		crowd(8, func(int) {
			results := make([]StoreResult, 1)
			items := []StoreItem{{Key: "key", Max: max, Decay: time.Minute, Cost: 3}}
			for range rounds(20_000) {
				if s.AttemptMany(items, results) >= 0 {
					continue
				}
				if n := held.Add(3); n > max {
					t.Errorf("%d of %d held at a time", n, max)
				}
				held.Add(-3)
				if !s.Refund(&results[0].Charge) {
					t.Error("a charge of an open window was not given back")
				}
			}
		})
		require.Equal(t, attempt{true, 1, time.Minute}, attemptOn(s, "key", max, time.Minute))
	})
}

// TestMemoryStore_OnFull is what becomes of a new key at MaxKeys.
func TestMemoryStore_OnFull(t *testing.T) {
	start := func(onFull OnFull) (*MemoryStore, *ManualClock) {
		clock := NewManualClock()
		s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 1, OnFull: onFull, SweepEvery: NoSweep})
		require.Equal(t, attempt{true, 1, time.Hour}, attemptOn(s, "own", 2, time.Hour))
		return s, clock
	}
	t.Run("DenyNew", func(t *testing.T) {
		s, clock := start(DenyNew)
		require.Equal(t, attempt{false, 0, time.Millisecond}, attemptOn(s, "new", 2, time.Minute))
		require.Equal(t, attempt{true, 2, time.Hour}, attemptOn(s, "own", 2, time.Hour))
		require.Equal(t, uint64(1), s.Stats().Forced)
		clock.Advance(time.Hour)
		require.Equal(t, attempt{true, 1, time.Minute}, attemptOn(s, "new", 2, time.Minute), "room was made")
		require.Equal(t, Stats{Keys: 1, Retired: 1, Forced: 1}, s.Stats())
	})
	t.Run("AdmitNew", func(t *testing.T) {
		s, _ := start(AdmitNew)
		for range 5 {
			require.Equal(t, attempt{true, 1, time.Minute}, attemptOn(s, "new", 1, time.Minute))
		}
		require.False(t, attemptOn(s, "new", 0, time.Minute).allowed)
		require.Equal(t, 1, s.Len())
		results := make([]StoreResult, 1)
		require.Equal(t, -1, s.AttemptMany([]StoreItem{{Key: "new", Max: 1, Decay: time.Minute}}, results))
		require.False(t, s.Refund(&results[0].Charge), "nothing was counted")
	})
	// Keys that share a window with other decays never have theirs cut short.
	t.Run("ShareOverflow", func(t *testing.T) {
		s, clock := start(ShareOverflow)
		sameUntil := func(i int) (a, b string) { // keys that share one part of the overflow
			for a = "a"; ; i++ {
				b = fmt.Sprint("b", i)
				if s.table.keys.Hash(a)%overflowParts == s.table.keys.Hash(b)%overflowParts {
					return a, b
				}
			}
		}
		a, b := sameUntil(0)
		require.Equal(t, attempt{true, 1, time.Minute}, attemptOn(s, a, 5, time.Minute))
		require.Equal(t, attempt{true, 2, 10 * time.Minute}, attemptOn(s, b, 5, 10*time.Minute), "prolonged")
		clock.Advance(time.Minute)
		require.Equal(t, attempt{true, 3, 9 * time.Minute}, attemptOn(s, a, 5, time.Second), "never cut short")
		require.Equal(t, attempt{false, 3, 9 * time.Minute}, attemptOn(s, a, 3, time.Hour), "not by a denial")
		require.Equal(t, 1, s.Len())
		require.Equal(t, uint64(4), s.Stats().Forced)

		// Room appears, but the part holds counts until its window is over.
		clock.Advance(8 * time.Minute)
		own := mustLoad(t, s, "own")
		require.True(t, own.Retire(1<<39))
		s.table.drop(s.table.keys.Hash("own"), own)
		require.Zero(t, s.Len())
		require.Equal(t, attempt{true, 4, time.Minute}, attemptOn(s, b, 5, 2), "still the shared one")
		require.Zero(t, s.Len())
		clock.Advance(time.Minute)
		require.Equal(t, attempt{true, 1, time.Minute}, attemptOn(s, b, 5, time.Minute), "its own at last")
		require.Equal(t, 1, s.Len())
		require.Equal(t, []string{b}, keysOf(s.table.keys))
	})
}

// keysOf returns the keys of a map, sorted.
func keysOf[K cmp.Ordered, V any](m *sharded.Map[K, V]) (keys []K) {
	for i := range m.Shards() {
		m.RangeShard(i, func(_ uint64, key K, _ *V) bool {
			keys = append(keys, key)
			return true
		})
	}
	slices.Sort(keys)
	return keys
}

// TestMemoryStore_WindowsDoNotOverlap: callers, late ones too, race with sweeps
// and with a clock that jumps about. A window holds at most max, and two windows
// of one key begin at least a decay apart.
func TestMemoryStore_WindowsDoNotOverlap(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		const decay, max = 10 * time.Millisecond, 5
		clock := yieldClock{NewManualClock()}
		s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 10, SweepEvery: NoSweep})
		seed := seedOf(t)
		type window struct {
			cell any
			end  uint64
		}
		var mu sync.Mutex
		counted := map[string]map[window]uint64{}
		crowd(8, func(i int) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			mine := map[string]map[window]uint64{}
			results := make([]StoreResult, 1)
			for j := range rounds(20_000) {
				switch r.IntN(32) {
				case 0, 1, 2, 3:
					// Mostly ahead, at times back.
					clock.Advance(time.Duration(r.Int64N(int64(decay))) - decay*3/8)
				case 4:
					s.Sweep()
				}
				key := []string{"a", "b"}[r.IntN(2)]
				if s.AttemptMany([]StoreItem{{key, max, decay, 1 + j%2}}, results) < 0 {
					c := results[0].Charge
					if mine[key] == nil {
						mine[key] = map[window]uint64{}
					}
					mine[key][window{c.Ref, c.Window}] += c.Cost
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for key, windows := range mine {
				if counted[key] == nil {
					counted[key] = map[window]uint64{}
				}
				for w, n := range windows {
					counted[key][w] += n
				}
			}
		})
		for key, windows := range counted {
			var ends []uint64
			for w, n := range windows {
				require.LessOrEqual(t, n, uint64(max), "window of %s that ends at %d", key, w.end)
				ends = append(ends, w.end)
			}
			slices.Sort(ends)
			for i := 1; i < len(ends); i++ {
				require.GreaterOrEqual(t, ends[i]-ends[i-1], uint64(decay/time.Millisecond), "windows of %s, the last of which ends at %d", key, ends[i])
			}
			require.Greater(t, len(ends), 10, "windows came and went")
		}
		require.LessOrEqual(t, s.Len(), 2)
	})
}

func TestNewMemoryStore_BadClock(t *testing.T) {
	_, err := NewMemoryStore(MemoryStoreConfig{Clock: badResolution{nil, -1}, MaxKeys: -1})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "Clock has a resolution of -1ns")
	require.ErrorContains(t, err, "MaxKeys is -1")

	_, err = NewMemoryStore(MemoryStoreConfig{Clock: (*CoarseClock)(nil)})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "Clock is a nil *limiter.CoarseClock")
}
