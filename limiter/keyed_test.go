package limiter

import (
	"context"
	"math"
	"runtime"
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
		require.Equal(t, Decision{Reason: ReasonTooCostly, RetryAfter: Never}, k.PeekLimit("a", 1, limit), "limit %d", limit)
		require.ErrorIs(t, k.WaitLimit(t.Context(), "a", 1, limit), ErrCostExceedsLimit)
	}
	require.Zero(t, k.Len())
	require.Equal(t, unlimited, k.AttemptLimit("a", math.MaxUint64, Unlimited))
	require.Equal(t, k.layout.Capacity(), k.AttemptLimit("a", 1, Unlimited-1).Limit, "more than can be counted")
}

// TestKeyed_OwnLimit: each way to ask has one that brings its own limit, and all
// of them see what the others took.
func TestKeyed_OwnLimit(t *testing.T) {
	clock := NewManualClock()
	k := newKeyed[string](t, KeyedConfig{Config: Config{Limit: 1, Window: time.Second, Clock: clock}})
	require.NoError(t, k.WaitLimit(t.Context(), "a", 2, 3))
	require.Equal(t, uint64(1), k.PeekLimit("a", 1, 3).Remaining)
	require.True(t, k.AttemptLimit("a", 1, 3).Allowed)
	require.False(t, k.PeekLimit("a", 1, 3).Allowed)
	require.False(t, k.PeekLimit("absent", 4, 3).Allowed)
	require.Equal(t, 1, k.Len())

	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error)
	go func() { done <- k.WaitLimit(soon, "a", 1, 3) }()
	for clock.Waiters() == 0 {
		runtime.Gosched()
	}
	clock.Advance(k.PeekLimit("a", 1, 3).RetryAfter)
	require.NoError(t, <-done)
	require.NoError(t, k.WaitLimit(t.Context(), "a", 5, Unlimited))
}
