package atomicring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A hit is one admission of a log: when, and how many units.
type hit struct {
	at    uint64
	units uint64
}

// within returns the units of the hits in [from, to).
func within(hits []hit, from, to uint64) (units uint64) {
	for _, h := range hits {
		if h.at >= from && h.at < to {
			units += h.units
		}
	}
	return units
}

// most returns the largest number of units in an interval of that length.
func most(hits []hit, length uint64) (units uint64) {
	for _, h := range hits { // such an interval may as well begin with a hit
		units = max(units, within(hits, h.at, h.at+length))
	}
	return units
}

// TestRing_EveryInterval: with one slot more than the window has ticks, every
// interval of the window's length holds at most the limit, wherever it starts;
// and what an exact log would admit is admitted at most one tick later. Time is
// finer than the tick here.
func TestRing_EveryInterval(t *testing.T) {
	seed := seedOf(t)
	const tick = 7
	for i := range rounds(2_000) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		ticks := 1 + rng.Uint64N(5)
		limit := 1 + rng.Uint64N(8)
		l := mustLayout(t, int(ticks)+1, limit)
		r := l.NewRing()
		window := ticks * tick
		var hits []hit
		for now, end := uint64(0), 6*window; now < end; now += rng.Uint64N(2) * rng.Uint64N(tick) {
			n := 1 + rng.Uint64N(min(limit, 2))
			if r.Admit(l, now/tick, n, limit).Verdict == Admitted {
				hits = append(hits, hit{now, n})
				continue
			}
			begin := now + 1 - min(window, now+1)
			if within(hits, begin, now+1)+n <= limit {
				require.Equal(t, Admitted, r.Peek(l, now/tick+1, n, limit).Verdict, "one tick after %d", now)
			}
		}
		require.LessOrEqual(t, most(hits, window), limit)
	}
}

// TestRing_SlotForEachTickIsTooFew shows why there is one slot more: with as
// many slots as the window has ticks, a burst at the end of one slot and
// another when that slot leaves the sum are twice the limit within one window.
func TestRing_SlotForEachTickIsTooFew(t *testing.T) {
	const tick, limit = 10, 100
	for _, ticks := range []uint64{1, 2, 10} {
		for extra, want := range []uint64{2 * limit, limit} {
			t.Run(fmt.Sprintf("ticks=%d/slots=%d", ticks, ticks+uint64(extra)), func(t *testing.T) {
				l := mustLayout(t, int(ticks)+extra, limit)
				r := l.NewRing()
				var hits []hit
				for _, now := range []uint64{tick - 1, ticks * tick} {
					if r.Admit(l, now/tick, limit, limit).Verdict == Admitted {
						hits = append(hits, hit{now, limit})
					}
				}
				require.Equal(t, want, most(hits, ticks*tick))
			})
		}
	}
}
