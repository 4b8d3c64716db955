package limiter

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestKeyed_AttemptLimitAboveUnlimited: what a negative integer becomes admits
// nothing.
func TestKeyed_AttemptLimitAboveUnlimited(t *testing.T) {
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 3, Window: time.Second, Clock: NewManualClock()}})
	for _, limit := range []uint64{Unlimited + 1, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64} {
		require.Equal(t, Decision{Reason: ReasonTooCostly, RetryAfter: Never}, k.AttemptLimit("a", 1, limit), "limit %d", limit)
	}
	require.Zero(t, k.Len())
	require.Equal(t, unlimited, k.AttemptLimit("a", math.MaxUint64, Unlimited))
	require.Equal(t, k.layout.Capacity(), k.AttemptLimit("a", 1, Unlimited-1).Limit, "more than can be counted")
}
