package limiter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStats_DecidedTogether: a decision counts the same, whether it is made alone or
// together with others.
func TestStats_DecidedTogether(t *testing.T) {
	for _, onFull := range []OnFull{DenyNew, ShareOverflow, AdmitNew} {
		clock := NewManualClock()
		free := newLimiter(t, Config{Limit: 1 << 20, Window: time.Second, Clock: clock})
		keyed := func() *Keyed[string] {
			return newKeyed[string](t, KeyedConfig{
				Config:  Config{Limit: 2, Window: time.Second, Clock: clock, CountDenied: true},
				MaxKeys: 1, OnFull: onFull, SweepEvery: NoSweep,
			})
		}
		store := func() *MemoryStore {
			return newStore(t, MemoryStoreConfig{Clock: clock, MaxKeys: 2, OnFull: onFull, SweepEvery: NoSweep})
		}
		alone, together := keyed(), keyed()
		storedAlone, storedTogether := store(), store()
		attemptOn(storedAlone, "free", 1, time.Second)
		for i := range 20 {
			key := []string{"a", "b"}[i%2] // of which one finds room
			d, _ := AttemptAll(free.Item(1), together.Item(key, 1))
			require.Equal(t, alone.Allow(key), d.Allowed)
			items := []StoreItem{{"free", 1 << 20, time.Second, 1}, {key, 2, time.Second, 1}}
			denied := storedTogether.AttemptMany(items, make([]StoreResult, 2))
			require.Equal(t, attemptOn(storedAlone, key, 2, time.Second).allowed, denied < 0)
		}
		require.Equal(t, uint64(10), alone.Stats().Forced)
		require.Equal(t, alone.Stats(), together.Stats(), "OnFull %d", onFull)
		require.Equal(t, uint64(10), storedAlone.Stats().Forced)
		require.Equal(t, storedAlone.Stats(), storedTogether.Stats(), "OnFull %d", onFull)
	}

	// A clock that jumped ahead and came back.
	clock := NewManualClock()
	config := Config{Limit: 1, Window: time.Second, Clock: clock, CountDenied: true}
	k := newKeyed[string](t, KeyedConfig{Config: config})
	l := newLimiter(t, config)
	clock.Set(time.Hour)
	require.True(t, l.Allow())
	require.True(t, k.Allow("key"))
	clock.Set(0)
	for range 3 {
		_, denier := AttemptAll(l.Item(1), k.Item("key", 1))
		require.Equal(t, 0, denier)
	}
	require.Equal(t, Stats{Late: 3, Backward: 3, Denied: 3}, l.Stats())
	require.Equal(t, Stats{Keys: 1, Late: 3, Backward: 3}, k.Stats(), "counted as denied at the limit that is named")
}

// TestStats_Waits: a wait that fails is a denial, unless its context had ended
// before it began, and one decision on a key without room.
func TestStats_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed[string](t, KeyedConfig{
			Config:  Config{Limit: 1, Window: time.Second, CountDenied: true},
			MaxKeys: 1, OnFull: DenyNew, SweepEvery: NoSweep,
		})
		require.NoError(t, k.Wait(t.Context(), "a"))
		require.ErrorIs(t, k.Wait(t.Context(), "b"), ErrFull)
		require.ErrorIs(t, k.WaitN(t.Context(), "a", 2), ErrCostExceedsLimit)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		require.ErrorIs(t, k.Wait(ctx, "a"), ErrLimited)
		require.Equal(t, Stats{Keys: 1, Forced: 1, Denied: 3}, k.Stats())

		require.NoError(t, k.Wait(t.Context(), "a"), "which slept")
		time.Sleep(time.Second)
		require.ErrorIs(t, k.Wait(ctx, "a"), context.DeadlineExceeded)
		stats := k.Stats()
		require.Equal(t, uint64(3), stats.Denied)
		k.Close()
		require.ErrorIs(t, k.Wait(t.Context(), "a"), ErrClosed)
		require.Equal(t, stats.Denied+1, k.Stats().Denied)
	})
}

func TestStats_Starved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCoarseClock(t, 10*time.Millisecond)
		l := newLimiter(t, Config{Limit: 1, Window: time.Second, Clock: c})
		k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Second, Clock: c}, SweepEvery: NoSweep})
		s := newStore(t, MemoryStoreConfig{Clock: c, SweepEvery: NoSweep})
		require.Zero(t, l.Stats().Starved)
		c.starved.Add(3)
		require.Equal(t, uint64(3), l.Stats().Starved)
		require.Equal(t, uint64(3), k.Stats().Starved)
		require.Equal(t, uint64(3), s.Stats().Starved)
	})
}
