package peers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/benchmarks"
)

func setup(limit uint64) benchmarks.Setup {
	return benchmarks.Setup{Limit: limit, Window: time.Hour, Slots: 10, MaxKeys: 100, Clock: benchmarks.SystemClock}
}

// makers returns what makes limiters of impl: without keys, and with.
func makers(impl benchmarks.Implementation) map[string]func(benchmarks.Setup) (benchmarks.Limiter, error) {
	m := map[string]func(benchmarks.Setup) (benchmarks.Limiter, error){}
	if impl.Single != nil {
		m[impl.Name+" single"] = impl.Single
	}
	if impl.Keyed != nil {
		m[impl.Name+" keyed"] = impl.Keyed
	}
	return m
}

func TestPeers_Limit(t *testing.T) {
	for _, impl := range all() {
		if impl.Floor || impl.Waits {
			continue
		}
		for name, create := range makers(impl) {
			l, err := create(setup(10))
			require.NoError(t, err, name)
			for i := range 30 {
				require.Equal(t, i < 10, l.Allow("a"), "%s, call %d", name, i)
			}
			if impl.Keyed != nil && impl.Single == nil {
				require.True(t, l.Allow("b"), "%s: keys have limits of their own", name)
			}
			l.Close()
		}
	}
}

func TestPeers_Costs(t *testing.T) {
	for _, impl := range all() {
		if !impl.Costs {
			continue
		}
		for name, create := range makers(impl) {
			l, err := create(setup(10))
			require.NoError(t, err, name)
			c := l.(benchmarks.Coster)
			require.True(t, c.AllowN("a", 4), name)
			require.True(t, c.AllowN("a", 6), name)
			require.False(t, c.AllowN("a", 1), name)
			l.Close()
		}
	}
}

func TestPeers_Coarse(t *testing.T) {
	impl, ok := benchmarks.FindImplementation(Peers(), "x-time-rate")
	require.True(t, ok)
	s := setup(10)
	s.Clock = benchmarks.CoarseClock
	l, err := impl.Single(s)
	require.NoError(t, err)
	defer l.Close()
	for i := range 30 {
		require.Equal(t, i < 10, l.Allow(""), "call %d", i)
	}
}

// TestPeers_Waits has a limiter that waits admit everybody.
func TestPeers_Waits(t *testing.T) {
	impl, ok := benchmarks.FindImplementation(Peers(), "uber-ratelimit")
	require.True(t, ok)
	l, err := impl.Single(setup(1 << 40))
	require.NoError(t, err)
	defer l.Close()
	for range 30 {
		require.True(t, l.Allow(""))
	}
}
