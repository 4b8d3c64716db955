package limiter

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimeline_Now: time counts from the first reading, wherever that was, and
// saturates at both ends.
func TestTimeline_Now(t *testing.T) {
	const years = 365 * 24 * time.Hour
	clock := NewManualClock()
	for _, origin := range []time.Duration{0, 1, -1, 56 * years, -10 * years, math.MaxInt64, math.MinInt64} {
		clock.Set(origin)
		var tl timeline
		tl.start(clock, time.Second, time.Second)
		require.Zero(t, tl.now())
		for _, reading := range []time.Duration{
			math.MinInt64, math.MinInt64 + 1, -10 * years, -1, 0, 1, 56 * years, math.MaxInt64 - 1, math.MaxInt64,
		} {
			clock.Set(reading)
			want := time.Duration(0)
			if reading > origin {
				want = reading - origin
				if want < 0 {
					want = math.MaxInt64
				}
			}
			require.Equal(t, want, tl.now(), "reading %d after %d", reading, origin)
		}
	}
}
