package benchmarks

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/limiter"
)

// oracle is the rolling window by the book: it keeps every sub-window for ever.
type oracle struct {
	tick   time.Duration
	slots  uint64
	counts map[uint64]uint64
}

func (o *oracle) allow(now time.Duration, n, limit uint64) bool {
	e := uint64(now / o.tick)
	total := n
	for at, count := range o.counts {
		if at+o.slots > e {
			total += count
		}
	}
	if total > limit {
		return false
	}
	o.counts[e] += n
	return true
}

func TestMutex_Oracle(t *testing.T) {
	const limit = 20
	for _, slots := range []int{1, 3, 10} {
		s := Setup{Limit: limit, Window: 100 * time.Millisecond, Slots: slots, MaxKeys: 64}
		clock := limiter.NewManualClock()
		single, keyed := newMutexLimiter(s, clock), newMutexKeyed(s, clock)
		defer keyed.close()
		one := &oracle{s.tick(), uint64(slots) + 1, map[uint64]uint64{}}
		keys := map[string]*oracle{}
		rnd := rand.New(rand.NewPCG(7, uint64(slots)))
		admitted := 0
		for i := range 5000 {
			switch rnd.IntN(200) {
			case 0:
				clock.Advance(time.Duration(rnd.Int64N(int64(3 * s.Window))))
			case 1:
				keyed.sweep()
			default:
				clock.Advance(time.Duration(rnd.Int64N(int64(s.Window / 20))))
			}
			n, key := 1+rnd.Uint64N(4), fmt.Sprint(rnd.IntN(5))
			if keys[key] == nil {
				keys[key] = &oracle{one.tick, one.slots, map[uint64]uint64{}}
			}
			want := one.allow(clock.Now(), n, limit)
			require.Equal(t, want, single.allow(n), "single, call %d, %d slots", i, slots)
			require.Equal(t, keys[key].allow(clock.Now(), n, limit), keyed.allow(key, n), "key %s, call %d, %d slots", key, i, slots)
			if want {
				admitted++
			}
		}
		require.Greater(t, admitted, 500)
		require.Less(t, admitted, 4000)
	}
}

func TestMutex_NeverOver(t *testing.T) {
	const limit, rounds = 50_000, 4
	s := Setup{Limit: limit, Window: time.Second, Slots: 10, MaxKeys: 64}
	clock := limiter.NewManualClock()
	for _, allow := range []func() bool{
		func() func() bool {
			l := newMutexLimiter(s, clock)
			return func() bool { return l.allow(1) }
		}(),
		func() func() bool {
			k := newMutexKeyed(s, clock)
			t.Cleanup(k.close)
			return func() bool { return k.allow("key", 1) }
		}(),
	} {
		for range rounds {
			clock.Advance(2 * time.Second)
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range limit {
						if allow() {
							admitted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, limit, admitted.Load())
		}
	}
}

func TestMutexKeyed_Cap(t *testing.T) {
	s := Setup{Limit: 3, Window: time.Second, Slots: 10, MaxKeys: 16}
	clock := limiter.NewManualClock()
	k := newMutexKeyed(s, clock)
	defer k.close()
	for i := range 16 {
		require.True(t, k.allow(fmt.Sprint("old ", i), 1))
	}
	admitted := 0
	for i := range 1000 {
		if k.allow(fmt.Sprint("new ", i), 1) {
			admitted++
		}
	}
	require.EqualValues(t, 16, k.keys.Load(), "the cap holds")
	require.Equal(t, 3*len(k.stripes), admitted, "new keys share one limit in each stripe")
	require.True(t, k.allow("old 3", 2), "a key that was there has its own")
	require.False(t, k.allow("old 3", 1))

	clock.Advance(2 * time.Second)
	k.sweep()
	require.Zero(t, k.keys.Load(), "a sweep removes what has expired")
	require.True(t, k.allow("new 1", 3))
	require.EqualValues(t, 1, k.keys.Load())
}
