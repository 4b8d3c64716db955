package limiter

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The promises that no interval as long as the window holds more than the limit
// (P1), and that nobody is denied for longer than a tick without need (P2), are
// checked against logs of what concurrent callers were told.

// An event is a call for units whose instant, in the limiter's time, is from low
// to high, both included.
type event struct {
	low, high time.Duration
	units     uint64
}

// A history is what was answered to the calls of one test.
type history struct {
	admitted, denied []event
}

func (h *history) add(o history) {
	h.admitted = append(h.admitted, o.admitted...)
	h.denied = append(h.denied, o.denied...)
}

// units returns how many were admitted.
func (h *history) units() (sum uint64) {
	for _, e := range h.admitted {
		sum += e.units
	}
	return sum
}

// busiest returns the most units that are surely inside one half-open interval
// of length window: admitted at instants none of which can be outside.
func (h *history) busiest(window time.Duration) (most uint64) {
	// Let the interval begin at each low in turn, the latest first: then the
	// events seen so far are those that do not begin before it. The sums of
	// units by high are in a Fenwick tree.
	events := slices.Clone(h.admitted)
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(b.low, a.low) })
	highs := make([]time.Duration, len(events))
	for i, e := range events {
		highs[i] = e.high
	}
	slices.Sort(highs)
	tree := make([]uint64, len(highs)+1)
	for _, e := range events {
		i, _ := slices.BinarySearch(highs, e.high)
		for i++; i < len(tree); i += i & -i {
			tree[i] += e.units
		}
		var inside uint64
		end := e.low + window
		if end < e.low {
			end = math.MaxInt64
		}
		i, _ = slices.BinarySearch(highs, end)
		for ; i > 0; i -= i & -i {
			inside += tree[i]
		}
		most = max(most, inside)
	}
	return most
}

// needless returns a denial that was not necessary: one after which the limit
// would have held over every interval of length window + slack, even if all
// admissions that can have been in it were.
func (h *history) needless(limit uint64, window, slack time.Duration) (event, bool) {
	byLow, byHigh := sums(h.admitted, func(e event) time.Duration { return e.low }), sums(h.admitted, func(e event) time.Duration { return e.high })
	all := byLow.before(math.MaxInt64)
	for _, d := range h.denied {
		outside := byHigh.before(d.low-window-slack+1) + all - byLow.before(d.high+1)
		if all-outside+d.units <= limit {
			return d, true
		}
	}
	return event{}, false
}

// A summed are units added up in the order of some time.
type summed struct {
	at  []time.Duration
	sum []uint64 // of all that are not later
}

func sums(events []event, at func(event) time.Duration) summed {
	events = slices.Clone(events)
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(at(a), at(b)) })
	var s summed
	var sum uint64
	for _, e := range events {
		sum += e.units
		s.at, s.sum = append(s.at, at(e)), append(s.sum, sum)
	}
	return s
}

// before returns the units of events earlier than t.
func (s summed) before(t time.Duration) uint64 {
	i, _ := slices.BinarySearch(s.at, t)
	if i == 0 {
		return 0
	}
	return s.sum[i-1]
}

// A course is a manual clock that remembers all readings it had, so that a test
// can tell which of them a call can have got.
type course struct {
	readings []time.Duration // room for all of them
	latest   []time.Duration // the latest of the readings so far: the limiter's time
	exact    []time.Duration // the true time
	at       atomic.Int64
	mu       sync.Mutex // held to move

	origin, base, jitter time.Duration
	stale                time.Duration // how old readings can be
	rand                 *rand.Rand
}

// newCourse returns a clock of up to moves moves, whose readings are up to jitter
// beside its true time, which begins at origin.
func newCourse(origin, jitter time.Duration, moves int, seed uint64) *course {
	c := &course{
		readings: make([]time.Duration, moves+1), latest: make([]time.Duration, moves+1), exact: make([]time.Duration, moves+1),
		origin: origin, base: origin, jitter: jitter, rand: rand.New(rand.NewPCG(seed, 99)),
	}
	c.readings[0], c.latest[0], c.exact[0] = origin, origin, origin
	return c
}

// Now makes late callers: in one of four calls it lets others run.
func (c *course) Now() time.Duration {
	now := c.readings[c.at.Load()]
	if rand.Uint32()&3 == 0 {
		runtime.Gosched()
	}
	return now
}

func (c *course) Resolution() time.Duration { return c.stale }

func (c *course) AfterFunc(time.Duration, func()) (stop func() bool) {
	return func() bool { return true }
}

// move lets up to most pass, and reports whether there is room for more moves.
func (c *course) move(most time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := int(c.at.Load()) + 1
	if i == len(c.readings) {
		return false
	}
	c.base += time.Duration(c.rand.Int64N(int64(most)))
	reading := c.base
	if c.stale > 0 {
		reading -= time.Duration(c.rand.Int64N(int64(c.stale) + 1))
	}
	switch c.rand.IntN(4) {
	case 0:
		reading += c.jitter
	case 1:
		reading -= c.jitter
	case 2:
		if c.jitter > 0 {
			reading += time.Duration(c.rand.Int64N(int64(2*c.jitter))) - c.jitter
		}
	}
	c.readings[i] = reading
	c.latest[i] = max(c.latest[i-1], reading)
	c.exact[i] = c.base
	c.at.Store(int64(i))
	return true
}

// during returns the instants, in the limiter's time, of a call that began when
// the clock had made from moves, and has just returned. With a clock whose
// readings can be old that is the true time.
func (c *course) during(from int64) (low, high time.Duration) {
	to := c.at.Load()
	if c.stale > 0 {
		return c.exact[from], c.exact[to]
	}
	low = c.readings[from]
	for _, reading := range c.readings[from : to+1] {
		low = min(low, reading)
	}
	return max(low, c.origin), c.latest[to]
}

// run lets callers loose on l, who also move the clock: about callsPerMove calls
// lie between two moves of up to most each.
func (c *course) run(l rolling, limit uint64, callsPerMove int, most time.Duration) history {
	var mu sync.Mutex
	var all history
	seed := c.rand.Uint64()
	crowd(8, func(i int) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		var h history
		for more := true; more; {
			if r.IntN(callsPerMove) == 0 {
				more = c.move(most)
			}
			// Large limits are used up in large steps, to see the edge often.
			n := min(1+r.Uint64N(max(limit/64, 1)), limit)
			from := c.at.Load()
			allowed := false
			if r.IntN(4) == 0 {
				allowed = l.Attempt(n).Allowed
			} else {
				allowed = l.AllowN(n)
			}
			low, high := c.during(from)
			if allowed {
				h.admitted = append(h.admitted, event{low, high, n})
			} else {
				h.denied = append(h.denied, event{low, high, n})
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all.add(h)
	})
	return all
}

var promisedLimits = []uint64{1, 2, 10, 200, 20_000}

// TestRolling_NeverOver: P1 and P2 with a clock that jumps about by more than a
// window, under load from many goroutines, across thousands of rollovers.
func TestRolling_NeverOver(t *testing.T) {
	const window, slots = 10 * time.Second, 10
	const tick = window / slots
	eachRolling(t, func(t *testing.T, impl implementation) {
		eachProcs(t, func(t *testing.T) {
			seed := seedOf(t)
			for _, jitter := range []time.Duration{0, 11 * time.Second, 48 * time.Hour} {
				for _, limit := range promisedLimits {
					c := newCourse(-10*365*24*time.Hour, jitter, rounds(2000), seed)
					l := impl.start(t, Config{Limit: limit, Window: window, Slots: slots, Clock: c})
					h := c.run(l, limit, 8, 2*tick)
					what := fmt.Sprintf("limit %d, jitter %v", limit, jitter)
					require.LessOrEqual(t, h.busiest(window), limit, "P1: %s", what)
					if !impl.hoards {
						d, found := h.needless(limit, window, tick)
						require.False(t, found, "P2: %s: %+v", what, d)
					}
					require.Greater(t, h.units(), uint64(rounds(100))*limit/2, "%s: the test admitted too little to show anything", what)
				}
			}
		})
	}, reference, together)
}

// TestRolling_NeverOverStale: P1 and P2 with a clock whose readings are up to a
// tick old.
func TestRolling_NeverOverStale(t *testing.T) {
	const window, slots = 10 * time.Second, 10
	const tick = window / slots
	eachRolling(t, func(t *testing.T, impl implementation) {
		eachProcs(t, func(t *testing.T) {
			seed := seedOf(t)
			for _, limit := range promisedLimits {
				c := newCourse(time.Hour, 0, rounds(2000), seed)
				c.stale = tick
				l := impl.start(t, Config{Limit: limit, Window: window, Slots: slots, Clock: c})
				h := c.run(l, limit, 8, 2*tick)
				require.LessOrEqual(t, h.busiest(window), limit, "P1: limit %d", limit)
				if !impl.hoards {
					d, found := h.needless(limit, window, 2*tick+c.stale)
					require.False(t, found, "P2: limit %d: %+v", limit, d)
				}
			}
		})
	}, reference, together)
}

// TestRolling_Phases: with the clock at rest while many callers are let loose,
// and moved in between, exactly as many units are admitted as the model has left:
// never more, and to the last one.
func TestRolling_Phases(t *testing.T) {
	const window, slots = 10 * time.Second, 10
	eachRolling(t, func(t *testing.T, impl implementation) {
		eachProcs(t, func(t *testing.T) {
			r := newRand(t)
			for _, limit := range promisedLimits {
				clock := yieldClock{NewManualClock()}
				l := impl.start(t, Config{Limit: limit, Window: window, Slots: slots, Clock: clock})
				m := newModel(limit, window, slots)
				for phase := range rounds(200) {
					step := time.Duration(r.Int64N(int64(2 * time.Second)))
					switch r.IntN(8) {
					case 0:
						step = -time.Duration(r.Int64N(int64(11 * time.Second)))
					case 1:
						step = time.Duration(r.Int64N(int64(3 * window)))
					}
					clock.Advance(step)
					now := clock.Now()
					room := m.attempt(now, 0, false).Remaining
					calls := 1 + r.IntN(int(max(limit/8, 2))) // by each of 8
					var admitted atomic.Uint64
					crowd(8, func(int) {
						for range calls {
							if l.Allow() {
								admitted.Add(1)
							}
						}
					})
					taken := admitted.Load()
					require.LessOrEqual(t, taken, room, "limit %d, phase %d: more than the limit", limit, phase)
					if !impl.hoards {
						require.Equal(t, min(room, uint64(8*calls)), taken, "limit %d, phase %d", limit, phase)
					}
					if r.IntN(2) == 0 {
						for l.Allow() {
							taken++
						}
						require.Equal(t, room, taken, "limit %d, phase %d: with one caller at a time", limit, phase)
					}
					if taken > 0 {
						require.True(t, m.attempt(now, taken, true).Allowed)
					} else {
						m.attempt(now, 1, true) // a denial, which turns the tick
					}
					require.Equal(t, room-taken, l.Peek(1).Remaining, "limit %d, phase %d", limit, phase)
				}
			}
		})
	})
}

// TestRolling_Saturated: where somebody always asks, at least 95 % of
// Slots / (Slots + 1) of the limit is delivered.
func TestRolling_Saturated(t *testing.T) {
	const window, windows = 10 * time.Second, 50
	eachRolling(t, func(t *testing.T, impl implementation) {
		for _, slots := range []int{1, 10, 60} {
			for _, limit := range promisedLimits {
				clock := NewManualClock()
				l := impl.start(t, Config{Limit: limit, Window: window, Slots: slots, Clock: clock})
				var delivered atomic.Uint64
				const steps = 150
				for range rounds(windows) * steps {
					crowd(2, func(int) {
						for l.AllowN(max(limit/1000, 1)) {
							delivered.Add(max(limit/1000, 1))
						}
					})
					clock.Advance(window / steps)
				}
				share := float64(delivered.Load()) / float64(limit) / float64(rounds(windows))
				require.Greater(t, share, 0.95*float64(slots)/float64(slots+1), "limit %d, %d slots", limit, slots)
			}
		}
	})
}

// A brokenLimiter is a limiter with a fault, to see that the tests find it.
type brokenLimiter struct {
	rolling
	allow func(n uint64) bool
}

func (b brokenLimiter) AllowN(n uint64) bool      { return b.allow(n) }
func (b brokenLimiter) Attempt(n uint64) Decision { return Decision{Allowed: b.allow(n)} }

// TestHistory_SeesFaults: the check of P1 finds the faults that rolling windows
// are known for, and that of P2 a window that lasts too long.
func TestHistory_SeesFaults(t *testing.T) {
	const window, slots, limit = 10 * time.Second, 10, 10
	run := func(seed uint64, fault func(m *mutexModel) func(n uint64) bool) history {
		c := newCourse(0, 0, 2000, seed)
		m := newMutexModel(t, Config{Limit: limit, Window: window, Slots: slots, Clock: c})
		return c.run(brokenLimiter{m, fault(m)}, limit, 8, 2*window/slots)
	}
	for name, fault := range map[string]func(m *mutexModel) func(n uint64) bool{
		"as many ticks as slots": func(m *mutexModel) func(uint64) bool {
			m.m.counted--
			return m.AllowN
		},
		"look, then count": func(m *mutexModel) func(uint64) bool {
			return func(n uint64) bool {
				if !m.Peek(n).Allowed {
					return false
				}
				runtime.Gosched()
				m.SetLimit(Unlimited - 1)
				defer m.SetLimit(limit)
				return m.AllowN(n)
			}
		},
		"late callers in their own tick": func(m *mutexModel) func(uint64) bool {
			return func(n uint64) bool {
				now := m.clock.Now() - m.origin
				m.mu.Lock()
				defer m.mu.Unlock()
				m.m.newest = 0
				return m.m.attempt(now, n, true).Allowed
			}
		},
		"forgetful": func(m *mutexModel) func(uint64) bool {
			return func(n uint64) bool {
				if rand.IntN(1000) == 0 {
					m.mu.Lock()
					clear(m.m.log)
					m.mu.Unlock()
				}
				return m.AllowN(n)
			}
		},
	} {
		h := run(seedOf(t), fault)
		require.Greater(t, h.busiest(window), uint64(limit), name)
	}
	h := run(seedOf(t), func(m *mutexModel) func(uint64) bool {
		m.m.counted++
		return m.AllowN
	})
	require.LessOrEqual(t, h.busiest(window), uint64(limit))
	_, found := h.needless(limit, window, window/slots)
	require.True(t, found, "a tick too long")
}

// TestHistory_Busiest compares the count with the plain way to count.
func TestHistory_Busiest(t *testing.T) {
	r := newRand(t)
	for range 200 {
		var h history
		for range r.IntN(30) {
			low := time.Duration(r.IntN(50))
			h.admitted = append(h.admitted, event{low, low + time.Duration(r.IntN(10)), 1 + r.Uint64N(3)})
		}
		for _, window := range []time.Duration{1, 5, 10, 100} {
			var most uint64
			for from := range time.Duration(50) {
				var inside uint64
				for _, e := range h.admitted {
					if e.low >= from && e.high < from+window {
						inside += e.units
					}
				}
				most = max(most, inside)
			}
			require.Equal(t, most, h.busiest(window), "%v in %+v", window, h.admitted)
		}
	}
}

// TestRolling_NeverOverRealClocks: P1 with the system clock and with a coarse
// one, in real time: the calls that lie surely inside one interval as long as
// the window, with both their ends, have at most the limit.
func TestRolling_NeverOverRealClocks(t *testing.T) {
	const window, slots = 30 * time.Millisecond, 10
	coarse, err := NewCoarseClock(window / slots)
	require.NoError(t, err)
	defer coarse.Close()
	for _, clock := range []TimerClock{SystemClock{}, coarse} {
		t.Run(fmt.Sprintf("clock=%T", clock), func(t *testing.T) {
			type run struct {
				rolling
				impl  implementation
				limit uint64
				mu    sync.Mutex
				h     history
			}
			var runs []*run
			for _, impl := range implementations {
				for _, limit := range promisedLimits {
					l := impl.start(t, Config{Limit: limit, Window: window, Slots: slots, Clock: clock})
					runs = append(runs, &run{rolling: l, impl: impl, limit: limit})
				}
			}
			// Thousands of turns of a tick, in each limiter.
			end := SystemClock{}.Now() + time.Duration(max(rounds(1000), 300))*window/slots
			crowd(4, func(i int) {
				mine := make([]history, len(runs))
				for j, now := 0, time.Duration(0); now < end; j++ {
					for k, run := range runs {
						n := 1 + uint64(i+j)%max(run.limit/64, 1)
						reading, low := clock.Now(), SystemClock{}.Now()
						allowed := run.AllowN(n)
						high := SystemClock{}.Now()
						now = high
						switch {
						case !allowed && j%16 == 0:
							mine[k].denied = append(mine[k].denied, event{low, high, n})
						case allowed && clock == TimerClock(coarse) && high-coarse.origin-reading > coarse.resolution:
							// The reading may have been older than it should be, so
							// that this unit can have expired too early. The others
							// have to keep within the limit all the same.
						case allowed:
							mine[k].admitted = append(mine[k].admitted, event{low, high, n})
						}
					}
					runtime.Gosched() // the refresher of the coarse clock has to run
				}
				for k, run := range runs {
					run.mu.Lock()
					run.h.add(mine[k])
					run.mu.Unlock()
				}
			})
			windows := uint64(0)
			for _, run := range runs {
				windows += run.h.units() / run.limit
				what := fmt.Sprintf("impl=%s/limit=%d", run.impl.name, run.limit)
				require.LessOrEqual(t, run.h.busiest(window), run.limit, "P1: %s", what)
				if clock == (SystemClock{}) && !run.impl.hoards {
					d, found := run.h.needless(run.limit, window, window/slots)
					require.False(t, found, "P2: %s: %+v", what, d)
				}
			}
			require.NotZero(t, windows, "the test admitted too little to show anything")
		})
	}
}
