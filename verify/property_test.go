package verify

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringfence-go/ringfence/atomicring"
	"github.com/ringfence-go/ringfence/limiter"
)

// The seed that a failure prints is enough to reproduce it.
func init() {
	for name, value := range map[string]string{"rapid.checks": "300", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}

// An oracle is the rolling window by definition: a log of what every epoch
// counted.
type oracle struct {
	slots uint64
	log   map[uint64]uint64
}

// total returns what the window that ends with epoch holds.
func (o *oracle) total(epoch uint64) (total uint64) {
	for e, n := range o.log {
		if e <= epoch && epoch-e < o.slots {
			total += n
		}
	}
	return total
}

func (o *oracle) fits(epoch, cost, limit uint64) bool {
	total := o.total(epoch)
	return total <= limit && cost <= limit-total
}

// A Ring used by one caller at a time answers as the log does, whatever the
// widths of its words and however far time jumps.
func TestRing_Oracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 8).Draw(t, "slots")
		capacity := rapid.OneOf(rapid.Uint64Range(1, 20), rapid.Uint64Range(1, 1<<62-1)).Draw(t, "capacity")
		l, err := atomicring.NewLayout(slots, capacity)
		require.NoError(t, err)
		ring := l.NewRing()
		o := oracle{uint64(slots), map[uint64]uint64{}}
		var now uint64
		used := false
		last := l.MaxEpoch()

		limits := rapid.Uint64Range(0, capacity)
		epoch := func(t *rapid.T) uint64 {
			switch rapid.IntRange(0, 9).Draw(t, "time") {
			case 0:
				return now - min(now, rapid.Uint64Range(0, 2*o.slots).Draw(t, "back"))
			case 1:
				return rapid.Uint64Range(min(now, last), last).Draw(t, "far")
			case 2:
				return rapid.Uint64().Draw(t, "any")
			default:
				return now + min(last-now, rapid.Uint64Range(0, o.slots+1).Draw(t, "step"))
			}
		}
		cost := func(t *rapid.T, limit uint64) uint64 {
			return rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64Range(0, limit), rapid.Uint64()).Draw(t, "cost")
		}
		verdict := func(fits bool) atomicring.Verdict {
			if fits {
				return atomicring.Admitted
			}
			return atomicring.Denied
		}
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				limit := limits.Draw(t, "limit")
				x, n := epoch(t), cost(t, limit)
				at := max(now, min(x, last))
				fits := o.fits(at, n, limit)
				a := ring.Admit(&l, x, n, limit)
				require.Equal(t, verdict(fits), a.Verdict)
				require.Equal(t, at, a.Epoch)
				if n == 0 {
					return
				}
				now, used = at, true
				if fits {
					o.log[at] += n
				}
				require.Equal(t, o.total(at), a.Total)
			},
			"peek": func(t *rapid.T) {
				limit := limits.Draw(t, "limit")
				x, n := epoch(t), cost(t, limit)
				at := max(now, min(x, last))
				a := ring.Peek(&l, x, n, limit)
				require.Equal(t, atomicring.Admission{Verdict: verdict(o.fits(at, n, limit)), Epoch: at, Total: o.total(at)}, a)
			},
			"refund": func(t *rapid.T) {
				x, n := epoch(t), cost(t, 3)
				can := used && min(x, last) == now && n <= o.log[now]
				require.Equal(t, can, ring.Refund(&l, x, n))
				if can {
					o.log[now] -= n
				}
			},
			"retry after": func(t *rapid.T) {
				limit := limits.Draw(t, "limit")
				x, n := epoch(t), cost(t, limit)
				retry, reset, ok := ring.RetryAfter(&l, x, n, limit)
				x = min(x, last)
				at := max(now, x)
				if !ok {
					require.True(t, n > limit || at >= last-min(last, o.slots))
					return
				}
				first := at + 1
				if !used {
					first = x + 1
				}
				require.GreaterOrEqual(t, retry, first)
				require.True(t, o.fits(retry, n, limit))
				require.True(t, retry == first || !o.fits(retry-1, n, limit))
				if reset < last {
					require.Zero(t, o.total(max(reset, now+1)))
				}
				require.True(t, reset <= x || o.total(reset-1) > 0)
			},
			"retire": func(t *rapid.T) {
				x := epoch(t)
				can := used && min(x, last) >= now && min(x, last)-now >= o.slots
				open, ok := ring.Retire(&l, x)
				require.Equal(t, can, ok)
				if !ok {
					return
				}
				require.Equal(t, o.log[now], open)
				require.Equal(t, atomicring.Retired, ring.Admit(&l, x, 1, capacity).Verdict)
				require.Nil(t, ring.Snapshot(&l))
				ring = l.NewRing()
				o.log, now, used = map[uint64]uint64{}, 0, false
			},
			"": func(t *rapid.T) {
				if !used {
					return
				}
				for i, slot := range ring.Snapshot(&l) {
					if slot.Used && slot.Epoch <= now && now-slot.Epoch < o.slots {
						require.Equal(t, uint64(i), slot.Epoch%o.slots)
						require.Equal(t, o.log[slot.Epoch], slot.Count)
					}
				}
			},
		})
	})
}

// A Cell used by one caller at a time is a window that its first hit opens.
func TestCell_Oracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cell atomicring.Cell
		var now, deadline, count uint64 // of the newest window, which may have ended
		inside := func() uint64 {
			if deadline > now {
				return count
			}
			return 0
		}
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				decay := rapid.Uint64Range(0, 20).Draw(t, "decay")
				limit := rapid.Uint64Range(0, 5).Draw(t, "limit")
				n := rapid.Uint64Range(0, 6).Draw(t, "cost")
				used := inside()
				fits := used+n <= limit
				a := cell.Admit(now, decay, n, limit)
				require.Equal(t, fits, a.Verdict == atomicring.Admitted)
				if fits && n > 0 {
					if used == 0 {
						deadline = max(deadline, now+max(decay, 1)) // deadlines only grow
					}
					count = used + n
				}
				require.Equal(t, inside(), a.Count)
				if inside() > 0 {
					require.Equal(t, deadline, a.Deadline)
				}
			},
			"refund": func(t *rapid.T) {
				n := rapid.Uint64Range(1, 3).Draw(t, "cost")
				require.Equal(t, n <= count, cell.Refund(deadline, n))
				if n <= count {
					count -= n
				}
			},
			"time": func(*rapid.T) { now += rapid.Uint64Range(1, 15).Draw(t, "step") },
			"": func(t *rapid.T) {
				limit := rapid.Uint64Range(0, 5).Draw(t, "limit")
				require.Equal(t, inside()+1 <= limit, cell.Peek(now, 1, limit).Verdict == atomicring.Admitted)
			},
		})
	})
}

// A hit is an admission as an exact log keeps it.
type hit struct {
	at   time.Duration
	cost uint64
}

// within returns the units taken in (from, to].
func within(log []hit, from, to time.Duration) (units uint64) {
	for _, h := range log {
		if h.at > from && h.at <= to {
			units += h.cost
		}
	}
	return units
}

// A limited is what promises are checked on: a Limiter, or one key of a Keyed.
type limited struct {
	attempt, peek func(n uint64) limiter.Decision
	log           []hit
}

// check makes an attempt and compares it with the promises of the package:
// never over, barely under, and honest answers. It knows of ticks only that
// they are Window / Slots rounded up.
func (l *limited) check(t *rapid.T, clock *limiter.ManualClock, n, limit uint64, window, tick time.Duration, slots int) {
	now := clock.Now()
	d := l.attempt(n)
	used := within(l.log, now-window, now)
	if d.Allowed {
		require.LessOrEqual(t, used+n, limit, "over")
		require.Zero(t, d.RetryAfter)
		l.log = append(l.log, hit{now, n})
	} else {
		late := time.Duration(slots+1) * tick
		require.Greater(t, within(l.log, now-late, now)+n, limit, "under")
	}
	require.Equal(t, limit, d.Limit)
	require.LessOrEqual(t, d.Remaining, limit-min(limit, within(l.log, now-window, now)))
	require.True(t, d.Remaining == 0 || l.peek(d.Remaining).Allowed)
	require.False(t, l.peek(d.Remaining+1).Allowed)

	peekAt := func(at time.Duration, n uint64) limiter.Decision {
		clock.Set(at)
		defer clock.Set(now)
		return l.peek(n)
	}
	switch {
	case d.Allowed:
	case n > limit:
		require.Equal(t, limiter.ReasonTooCostly, d.Reason)
		require.Equal(t, limiter.Never, d.RetryAfter)
	default:
		require.Equal(t, limiter.ReasonLimited, d.Reason)
		require.Positive(t, d.RetryAfter)
		require.True(t, peekAt(now+d.RetryAfter, n).Allowed, "waiting long enough")
		require.False(t, peekAt(now+d.RetryAfter-1, n).Allowed, "waiting not long enough")
	}
	require.Equal(t, limit, peekAt(now+d.ResetAfter, 1).Remaining)
	if d.ResetAfter > 0 {
		require.Less(t, peekAt(now+d.ResetAfter-1, 1).Remaining, limit)
	}
}

// drawWindow returns a window, sometimes one that slots do not divide.
func drawWindow(t *rapid.T) (window, tick time.Duration, slots int) {
	slots = rapid.IntRange(1, 12).Draw(t, "slots")
	window = time.Duration(rapid.Int64Range(int64(slots)*1000, int64(slots)*1100).Draw(t, "window"))
	return window, (window + time.Duration(slots) - 1) / time.Duration(slots), slots
}

func advance(t *rapid.T, clock *limiter.ManualClock, window, tick time.Duration) {
	step := rapid.OneOf(
		rapid.Int64Range(0, int64(tick)),
		rapid.Int64Range(int64(window)-int64(tick), int64(window)+2*int64(tick)),
		rapid.Int64Range(0, 3*int64(window)),
	).Draw(t, "step")
	clock.Advance(time.Duration(step))
}

func TestLimiter_Promises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, tick, slots := drawWindow(t)
		limit := rapid.Uint64Range(1, 8).Draw(t, "limit")
		clock := limiter.NewManualClock()
		l, err := limiter.New(limiter.Config{Limit: limit, Window: window, Slots: slots, Clock: clock})
		require.NoError(t, err)
		subject := limited{attempt: l.Attempt, peek: l.Peek}
		t.Repeat(map[string]func(*rapid.T){
			"attempt": func(t *rapid.T) {
				subject.check(t, clock, rapid.Uint64Range(1, limit+1).Draw(t, "cost"), limit, window, tick, slots)
			},
			"burst": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "calls") {
					subject.check(t, clock, 1, limit, window, tick, slots)
				}
			},
			"advance": func(t *rapid.T) { advance(t, clock, window, tick) },
			"set limit": func(t *rapid.T) {
				limit = rapid.Uint64Range(1, 8).Draw(t, "limit")
				require.NoError(t, l.SetLimit(limit))
			},
		})
	})
}

// A key keeps its promises whether or not its ring is swept away and made anew,
// and whatever other keys do.
func TestKeyed_Promises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, tick, slots := drawWindow(t)
		clock := limiter.NewManualClock()
		k, err := limiter.NewKeyed[string](limiter.KeyedConfig{
			Config:     limiter.Config{Limit: 3, Window: window, Slots: slots, Clock: clock},
			MaxKeys:    16,
			SweepEvery: limiter.NoSweep,
		})
		require.NoError(t, err)
		defer k.Close()
		keys := []string{"a", "b", "c"}
		subjects := make(map[string]*limited)
		for _, key := range keys {
			subjects[key] = &limited{
				attempt: func(n uint64) limiter.Decision { return k.Attempt(key, n) },
				peek:    func(n uint64) limiter.Decision { return k.Peek(key, n) },
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"attempt": func(t *rapid.T) {
				key := rapid.SampledFrom(keys).Draw(t, "key")
				subjects[key].check(t, clock, rapid.Uint64Range(1, 4).Draw(t, "cost"), 3, window, tick, slots)
			},
			"advance": func(t *rapid.T) { advance(t, clock, window, tick) },
			"sweep":   func(*rapid.T) { k.Sweep() },
			"": func(t *rapid.T) {
				live := 0
				for _, s := range subjects {
					if slices.ContainsFunc(s.log, func(h hit) bool { return h.at > clock.Now()-window }) {
						live++
					}
				}
				require.GreaterOrEqual(t, k.Len(), live)
			},
		})
	})
}
