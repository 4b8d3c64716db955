package limiter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDecision_RetryAfter: at 10,000 random moments, waiting exactly as long as
// a denial says admits, and a nanosecond less does not.
func TestDecision_RetryAfter(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		r := newRand(t)
		for checked := 0; checked < rounds(10_000); {
			s := randomScript(r, 0)
			clock := NewManualClock()
			clock.Set(time.Duration(r.Int64()))
			l := impl.start(t, Config{Limit: s.limit, Window: s.window, Slots: s.slots, Clock: clock})
			for range 200 {
				clock.Advance(time.Duration(r.Int64N(int64(s.window)/8 + 1)))
				n := 1 + r.Uint64N(s.limit)
				d := l.Attempt(n)
				if d.Allowed {
					continue
				}
				now := clock.Now()
				require.Positive(t, d.RetryAfter)
				require.LessOrEqual(t, d.RetryAfter, d.ResetAfter)
				clock.Set(now + d.RetryAfter - 1)
				require.False(t, l.Peek(n).Allowed, "%+v: %d units at %v, a nanosecond before %v", s, n, now, d.RetryAfter)
				clock.Set(now + d.ResetAfter - 1)
				require.Less(t, l.Peek(1).Remaining, s.limit, "%+v: at %v, a nanosecond before the reset", s, now)
				clock.Set(now + d.ResetAfter)
				require.Equal(t, Decision{Allowed: true, Reason: ReasonAdmitted, Limit: s.limit, Remaining: s.limit}, l.Peek(1))
				clock.Set(now + d.RetryAfter)
				require.True(t, l.AllowN(n), "%+v: %d units at %v, after %v", s, n, now, d.RetryAfter)
				checked++
			}
		}
	}, reference)
}

// TestDecision_RetryAfterStale is the same with a clock whose readings are up to
// a tick old: the wait makes up for that.
func TestDecision_RetryAfterStale(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		r := newRand(t)
		for checked := 0; checked < rounds(10_000); {
			s := randomScript(r, 0)
			s.window = max(s.window, time.Duration(s.slots)*time.Millisecond)
			tick := (s.window-1)/time.Duration(s.slots) + 1
			clock := newStaleClock(tick/2, r.Uint64())
			l := impl.start(t, Config{Limit: s.limit, Window: s.window, Slots: s.slots, Clock: clock})
			for range 200 {
				clock.Advance(time.Duration(r.Int64N(int64(s.window)/8 + 1)))
				n := 1 + r.Uint64N(s.limit)
				d := l.Attempt(n)
				if d.Allowed {
					continue
				}
				require.Greater(t, d.RetryAfter, clock.resolution)
				require.LessOrEqual(t, d.RetryAfter, s.window+2*tick+clock.resolution+time.Duration(s.slots))
				clock.Advance(d.RetryAfter)
				require.True(t, l.AllowN(n), "%+v: %d units after %v", s, n, d.RetryAfter)
				checked++
			}
		}
	})
}

// TestDecision_Fields: whatever the clock, the limit and the cost, no field is
// negative or wrapped, and they do not contradict each other.
func TestDecision_Fields(t *testing.T) {
	readings := []time.Duration{math.MinInt64, math.MinInt64 + 1, -10 * 365 * 24 * time.Hour, -1, 0, 1, time.Second, 56 * 365 * 24 * time.Hour, math.MaxInt64 - 1, math.MaxInt64}
	costs := []uint64{0, 1, 2, 1<<31 - 1, 1 << 32, Unlimited - 1, Unlimited, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1, math.MaxUint64}
	windows := []time.Duration{10 * time.Microsecond, 10*time.Microsecond + 1, time.Second, 365 * 24 * time.Hour, math.MaxInt64 - 1, math.MaxInt64}
	eachRolling(t, func(t *testing.T, impl implementation) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, window := range windows {
			for _, limit := range []uint64{0, 1, 5, 8191} {
				for range rounds(20) {
					clock := NewManualClock()
					clock.Set(readings[r.IntN(len(readings))])
					l := impl.start(t, Config{Limit: limit, Window: window, Clock: clock})
					for range 50 {
						clock.Set(readings[r.IntN(len(readings))] + time.Duration(r.IntN(3)) - 1)
						n := costs[r.IntN(len(costs))]
						d := l.Attempt(n)
						if r.IntN(4) == 0 {
							d = l.Peek(n)
						}
						require.Equal(t, limit, d.Limit)
						require.LessOrEqual(t, d.Remaining, limit)
						require.GreaterOrEqual(t, d.ResetAfter, time.Duration(0))
						require.Equal(t, d.Allowed, d.RetryAfter == 0, "%+v", d)
						require.GreaterOrEqual(t, d.RetryAfter, time.Duration(0))
						switch {
						case d.Allowed:
							require.Equal(t, ReasonAdmitted, d.Reason)
							require.LessOrEqual(t, n, limit)
						case n > limit:
							require.Equal(t, ReasonTooCostly, d.Reason)
							require.Equal(t, Never, d.RetryAfter)
						default:
							require.Equal(t, ReasonLimited, d.Reason)
						}
					}
				}
			}
		}
	})
}

// TestDecision_Counts is the plainest use: the first call counts one.
func TestDecision_Counts(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		l := impl.start(t, Config{Limit: 3, Window: 10 * time.Second, Clock: NewManualClock()})
		require.Equal(t, Decision{Allowed: true, Reason: ReasonAdmitted, Limit: 3, Remaining: 3}, l.Peek(1))
		for _, remaining := range []uint64{2, 1, 0} {
			want := Decision{Allowed: true, Reason: ReasonAdmitted, Limit: 3, Remaining: remaining, ResetAfter: 11 * time.Second}
			require.Equal(t, want, l.Attempt(1))
		}
		denied := Decision{Reason: ReasonLimited, Limit: 3, RetryAfter: 11 * time.Second, ResetAfter: 11 * time.Second}
		require.Equal(t, denied, l.Attempt(1))
		require.Equal(t, denied, l.Peek(1))
		require.False(t, l.Allow())
		require.Equal(t, Decision{Allowed: true, Reason: ReasonAdmitted, Limit: 3, ResetAfter: 11 * time.Second}, l.Attempt(0))
		require.True(t, l.AllowN(0))
	}, reference)
}

func TestDecision_ZeroValueDenies(t *testing.T) {
	require.False(t, Decision{}.Allowed)
	require.Equal(t, ReasonLimited, Decision{}.Reason)
}

func TestReason_String(t *testing.T) {
	for reason, want := range map[Reason]string{
		ReasonLimited: "limited", ReasonAdmitted: "admitted", ReasonTooCostly: "too costly", ReasonFull: "full", ReasonUnlimited: "unlimited", 99: "unknown",
	} {
		require.Equal(t, want, reason.String())
	}
}
