package limiter

import (
	"math"
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
