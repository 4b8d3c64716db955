package limiter

import (
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAttemptAll_SmallestLimit: items of one key are held to the smallest of
// their limits, the key's own included.
func TestAttemptAll_SmallestLimit(t *testing.T) {
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 3, Window: time.Second, Clock: NewManualClock()}})
	for range 2 { // in either order
		d, denier := AttemptAll(k.Item("a", 2), k.ItemLimit("a", 2, 100))
		require.Equal(t, 0, denier)
		require.Equal(t, ReasonTooCostly, d.Reason)
		require.Equal(t, uint64(3), d.Limit)
		d, denier = AttemptAll(k.ItemLimit("a", 2, 100), k.Item("a", 2))
		require.Equal(t, 0, denier)
		require.Equal(t, ReasonTooCostly, d.Reason)
		require.Equal(t, uint64(3), d.Limit)
	}
	require.Zero(t, k.Len())
}

// TestItemLimit_AboveUnlimited: what a negative integer becomes is neither
// unlimited nor the key's own limit.
func TestItemLimit_AboveUnlimited(t *testing.T) {
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 3, Window: time.Second, Clock: NewManualClock()}})
	for _, limit := range []uint64{Unlimited + 1, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64} {
		d, denier := AttemptAll(k.ItemLimit("a", 1, limit))
		require.Equal(t, 0, denier, "limit %d", limit)
		require.Equal(t, Decision{Reason: ReasonTooCostly, RetryAfter: Never}, d, "limit %d", limit)
	}
}

func TestAttemptAll(t *testing.T) {
	clock := NewManualClock()
	start := func(limit uint64, window time.Duration) *Limiter {
		return newLimiter(t, Config{Limit: limit, Window: window, Clock: clock, CountDenied: true})
	}
	second, minute := start(5, time.Second), start(10, time.Minute)
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 3, Window: time.Hour, Clock: clock, CountDenied: true}})
	items := func(n uint64) []Item { return []Item{minute.Item(n), second.Item(n), k.Item("a", n)} }

	d, denier := AttemptAll(items(2)...)
	require.Equal(t, -1, denier)
	require.Equal(t, Decision{Allowed: true, Reason: ReasonAdmitted, Limit: 3, Remaining: 1, ResetAfter: 66 * time.Minute}, d, "the tightest")

	// One of them is short: it is named, and nothing is taken anywhere.
	decisions := make([]Decision, 4)
	decisions[3].Limit = 77
	d, denier = AttemptAllInto(decisions, items(2)...)
	require.Equal(t, 2, denier)
	require.Equal(t, Decision{Reason: ReasonLimited, Limit: 3, Remaining: 1, RetryAfter: 66 * time.Minute, ResetAfter: 66 * time.Minute}, d)
	require.Equal(t, []Decision{
		{Allowed: true, Reason: ReasonAdmitted, Limit: 10, Remaining: 8, ResetAfter: 66 * time.Second},
		{Allowed: true, Reason: ReasonAdmitted, Limit: 5, Remaining: 3, ResetAfter: 1100 * time.Millisecond},
		d,
		{Limit: 77},
	}, decisions)
	require.Equal(t, uint64(8), minute.Peek(1).Remaining)
	require.Equal(t, uint64(3), second.Peek(1).Remaining)
	require.Equal(t, Stats{Denied: 1, Keys: 1}, k.Stats(), "the denier's")
	require.Equal(t, Stats{}, minute.Stats())

	// Several are short: the one with the longest wait is named, be it first or
	// last.
	require.True(t, second.AllowN(3))
	d, denier = AttemptAll(second.Item(1), k.Item("a", 2))
	require.Equal(t, 1, denier)
	require.Equal(t, 66*time.Minute, d.RetryAfter)
	d, denier = AttemptAll(k.Item("a", 2), second.Item(1), minute.Item(1))
	require.Equal(t, 0, denier)
	require.Equal(t, 66*time.Minute, d.RetryAfter)
	d, denier = AttemptAll(k.Item("a", 2), minute.Item(11), second.Item(1))
	require.Equal(t, 1, denier)
	require.Equal(t, Decision{Reason: ReasonTooCostly, Limit: 10, Remaining: 8, RetryAfter: Never, ResetAfter: 66 * time.Second}, d)

	// Waiting as long as the answer says admits.
	clock.Advance(66 * time.Minute)
	_, denier = AttemptAll(items(3)...)
	require.Equal(t, -1, denier)

	d, denier = AttemptAll()
	require.Equal(t, unlimited, d)
	require.Equal(t, -1, denier)
}

func TestAttemptAll_EqualItems(t *testing.T) {
	clock := NewManualClock()
	l := newLimiter(t, Config{Limit: 5, Window: time.Second, Clock: clock})
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 5, Window: time.Second, Clock: clock}})
	other := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 5, Window: time.Second, Clock: clock}})
	decisions := make([]Decision, 6)
	_, denier := AttemptAllInto(decisions,
		l.Item(1), k.Item("a", 2), l.Item(2), k.Item("b", 1), other.Item("a", 4), k.Item(string([]byte("a")), 1))
	require.Equal(t, -1, denier)
	for i, remaining := range []uint64{2, 2, 2, 4, 1, 2} {
		require.Equal(t, remaining, decisions[i].Remaining, "item %d, of all that are equal", i)
	}
	// Each alone would fit, together they do not: the first of them is named.
	_, denier = AttemptAllInto(decisions, k.Item("b", 1), l.Item(1), l.Item(1), l.Item(1))
	require.Equal(t, 1, denier)
	require.False(t, decisions[3].Allowed)
	require.Equal(t, uint64(2), l.Peek(1).Remaining)
	require.Equal(t, uint64(4), k.Peek("b", 1).Remaining)
	// Costs whose sum does not fit a uint64.
	d, denier := AttemptAll(l.Item(math.MaxUint64), l.Item(3))
	require.Equal(t, 0, denier)
	require.Equal(t, ReasonTooCostly, d.Reason)
}

func TestAttemptAll_SpecialItems(t *testing.T) {
	clock := NewManualClock()
	free := newLimiter(t, Config{Limit: Unlimited, Window: time.Second, Clock: clock})
	none := newLimiter(t, Config{Limit: 0, Window: time.Second, Clock: clock})
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 2, Window: time.Second, Clock: clock}, MaxKeys: 1, OnFull: DenyNew})

	d, denier := AttemptAll(free.Item(1), free.Item(1<<63))
	require.Equal(t, unlimited, d)
	require.Equal(t, -1, denier)
	d, denier = AttemptAll(free.Item(1), k.Item(1, 0))
	require.Equal(t, Decision{Allowed: true, Reason: ReasonAdmitted, Limit: 2, Remaining: 2}, d)
	require.Equal(t, -1, denier)
	require.Zero(t, k.Len(), "a cost of 0 creates no key")
	d, denier = AttemptAll(k.Item(1, 1), none.Item(1))
	require.Equal(t, Decision{Reason: ReasonTooCostly, RetryAfter: Never}, d)
	require.Equal(t, 1, denier)
	require.Zero(t, k.Len())
	require.True(t, k.Allow(1))
	d, denier = AttemptAll(free.Item(1), k.Item(1, 1), k.Item(2, 1))
	require.Equal(t, Decision{Reason: ReasonFull, Limit: 2, RetryAfter: 100 * time.Millisecond}, d)
	require.Equal(t, 2, denier)
	require.Equal(t, uint64(1), k.Peek(1, 1).Remaining)
	d, denier = AttemptAll(k.ItemLimit(1, 3, 4), free.Item(1))
	require.Equal(t, -1, denier)
	require.Equal(t, Decision{Allowed: true, Reason: ReasonAdmitted, Limit: 4, ResetAfter: 1100 * time.Millisecond}, d)
}

// TestAttemptAll_TooFewDecisions: it panics before it takes anything.
func TestAttemptAll_TooFewDecisions(t *testing.T) {
	l := newLimiter(t, Config{Limit: 5, Window: time.Second, Clock: NewManualClock()})
	require.PanicsWithValue(t, "limiter: 1 decisions for 2 items", func() {
		AttemptAllInto(make([]Decision, 1, 8), l.Item(1), l.Item(1))
	})
	require.Equal(t, uint64(5), l.Peek(1).Remaining)
}

// TestAttemptAll_MakesRoom: a list of items makes room for a new key as a single
// call does, though it looks first.
func TestAttemptAll_MakesRoom(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[int](t, KeyedConfig{Config: Config{Limit: 2, Window: time.Second, Clock: clock}, MaxKeys: 1, OnFull: DenyNew, SweepEvery: NoSweep})
	s := newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 1, OnFull: DenyNew, SweepEvery: NoSweep})
	require.True(t, k.Allow(0))
	require.True(t, attemptOn(s, "0", 1, time.Second).allowed)
	results := make([]StoreResult, 2)
	for key := 1; key < 10; key++ {
		d, _ := AttemptAll(k.Item(key, 1))
		require.Equal(t, ReasonFull, d.Reason)
		items := []StoreItem{{strconv.Itoa(key), 5, time.Second, 1}, {strconv.Itoa(key), 5, time.Second, 1}}
		require.Equal(t, 0, s.AttemptMany(items, results))
		clock.Advance(1100 * time.Millisecond)
		if key%2 == 0 {
			require.True(t, k.Peek(key, 1).Allowed)
		}
		_, denier := AttemptAll(k.Item(key, 1))
		require.Equal(t, -1, denier)
		require.Equal(t, -1, s.AttemptMany(items, results))
		require.Equal(t, 1, k.Len())
		require.Equal(t, 1, s.Len())
	}
}

// A rival is a limiter from which others take just before it is charged.
type rival struct {
	*Limiter
	take func()
}

func (r *rival) same(other target) bool { return other == target(r) }

func (r *rival) attempt(n, limit uint64, now time.Duration) (Decision, receipt) {
	r.take()
	return r.Limiter.attempt(n, limit, now)
}

// TestAttemptAll_Refund: where somebody else takes the last units between the
// look and the charge, what was charged before is given back; where the tick
// turns as well, it stays counted until it expires.
func TestAttemptAll_Refund(t *testing.T) {
	for _, turn := range []bool{false, true} {
		clock := NewManualClock()
		first := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 4, Window: time.Second, Clock: clock}})
		second := newLimiter(t, Config{Limit: 4, Window: time.Second, Clock: clock})
		require.True(t, first.Allow("key"))
		take := func() {
			require.Equal(t, uint64(1), first.Peek("key", 1).Remaining, "first was charged")
			if turn {
				clock.Advance(100 * time.Millisecond)
				require.True(t, first.Allow("key"))
			}
			require.True(t, second.AllowN(3))
		}
		decisions := make([]Decision, 2)
		d, denier := AttemptAllInto(decisions, Item{&rival{second, take}, 2, ownLimit}, first.Item("key", 2))
		require.Equal(t, 0, denier)
		require.Equal(t, ReasonLimited, d.Reason)
		require.Equal(t, uint64(1), d.Remaining)
		require.Equal(t, d, decisions[0])
		require.Equal(t, uint64(1), second.Peek(1).Remaining)
		if turn {
			require.Zero(t, first.Peek("key", 1).Remaining)
			require.False(t, decisions[1].Allowed)
			clock.Advance(time.Second)
			require.Equal(t, uint64(3), first.Peek("key", 1).Remaining)
		} else {
			require.Equal(t, uint64(3), first.Peek("key", 1).Remaining)
			require.True(t, decisions[1].Allowed, "it would fit again")
		}
	}
}

// TestAttemptAll_Concurrent: calls that name the same limits in any order, with
// room for a few: as many pass as can, every time, and every limit has been
// charged for those alone.
func TestAttemptAll_Concurrent(t *testing.T) {
	eachProcs(t, func(t *testing.T) {
		clock := yieldClock{NewManualClock()}
		const room = 3
		config := Config{Limit: room, Window: time.Second, Clock: clock}
		l := newLimiter(t, config)
		k := newKeyed[int](t, KeyedConfig{Config: config, SweepEvery: NoSweep})
		for round := range rounds(500) {
			var passed atomic.Uint64
			crowd(8, func(i int) {
				items := []Item{l.Item(1), k.Item(round, 1), k.Item(-round, 1)}
				for range i % 3 {
					items = append(items[1:], items[0])
				}
				if i >= 4 {
					items[0], items[2] = items[2], items[0]
				}
				if _, denier := AttemptAll(items...); denier < 0 {
					passed.Add(1)
				}
			})
			if round > 0 {
				// Whoever is denied while it charges is so because others have
				// charged, and the first of those goes on to pass: somebody does.
				require.NotZero(t, passed.Load(), "round %d: the calls denied each other", round)
				require.LessOrEqual(t, passed.Load(), uint64(room))
				left := room - passed.Load()
				require.Equal(t, left, l.Peek(1).Remaining, "round %d", round)
				require.Equal(t, left, k.Peek(round, 1).Remaining, "round %d", round)
				require.Equal(t, left, k.Peek(-round, 1).Remaining, "round %d", round)
			}
			clock.Advance(2 * time.Second)
		}
	})
}
