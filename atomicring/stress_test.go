package atomicring

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// atProcs runs a stress test at several values of GOMAXPROCS.
func atProcs(t *testing.T, test func(t *testing.T)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 4, 8} {
		runtime.GOMAXPROCS(procs)
		t.Run(fmt.Sprintf("procs=%d", procs), test)
	}
}

// workers is how many goroutines a stress test runs.
const workers = 8

// together runs f in all workers, released at once, each with its own random
// numbers, and waits for them.
func together(seed uint64, f func(rng *rand.Rand)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range workers {
		wg.Go(func() {
			<-start
			f(rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
	close(start)
	wg.Wait()
}

// A drill says what a stress test asks of a rolling window.
type drill struct {
	slots     int
	limit     uint64
	maxCost   uint64 // costs are 1 to maxCost
	jump      uint64 // the clock moves by 1 to jump epochs
	refunds   bool
	rollovers uint64 // how often the clock moves
}

// A record is what a drill has counted, by epoch, and what calls reported.
type record struct {
	counted    []atomic.Int64
	denied     atomic.Uint64
	closed     atomic.Uint64
	outOfRange atomic.Uint64 // answers that no order of events explains
	moves      atomic.Uint64
	clock      atomic.Uint64
}

// run has all workers admit, and some refund, on one window while a shared
// clock moves on. Nobody waits for anybody: the epoch that a caller brings may be
// old when it is used, and some are made older. With beside, each caller does
// that first.
func (d drill) run(t *testing.T, seed uint64, w admitter, beside func(epoch uint64, rng *rand.Rand)) *record {
	t.Helper()
	rec := &record{counted: make([]atomic.Int64, (d.rollovers+workers+1)*d.jump+1)}
	together(seed, func(rng *rand.Rand) {
		var epoch, cost uint64 // an admission to give back later
		for rec.moves.Load() < d.rollovers {
			x := rec.clock.Load()
			if beside != nil {
				beside(x, rng)
			}
			if rng.IntN(16) == 0 {
				runtime.Gosched() // the caller loses the processor after it read the clock
			}
			if rng.IntN(8) == 0 {
				x -= min(x, rng.Uint64N(2*uint64(d.slots)))
			}
			n := 1 + rng.Uint64N(d.maxCost)
			a := w.Admit(x, n, d.limit)
			now := rec.clock.Load()
			rec.closed.Add(a.Closed)
			if a.Epoch < x || a.Epoch > now {
				rec.outOfRange.Add(1)
				continue
			}
			if a.Verdict == Admitted {
				rec.counted[a.Epoch].Add(int64(n))
				if a.Total > d.limit {
					rec.outOfRange.Add(1)
				}
				if cost == 0 {
					epoch, cost = a.Epoch, n
				}
			} else {
				rec.denied.Add(1)
			}
			if d.refunds && cost > 0 && rng.IntN(4) == 0 {
				if w.Refund(epoch, cost) {
					rec.counted[epoch].Add(-int64(cost))
				}
				cost = 0
			}
			if rng.Uint64N(d.limit+8) == 0 {
				rec.moves.Add(1)
				rec.clock.Add(1 + rng.Uint64N(d.jump))
			}
		}
	})
	require.Zero(t, rec.outOfRange.Load(), "epoch(call) <= counted <= epoch(return), total <= limit")
	return rec
}

// check slides the window over everything that was counted, and returns the sum.
func (d drill) check(t *testing.T, rec *record) (admitted uint64) {
	t.Helper()
	var total, full int64
	for e := range rec.counted {
		n := rec.counted[e].Load()
		if n < 0 {
			t.Fatalf("epoch %d: more given back than counted", e)
		}
		admitted += uint64(n)
		total += n
		if e >= d.slots {
			total -= rec.counted[e-d.slots].Load()
		}
		if total > int64(d.limit) {
			t.Fatalf("the %d epochs that end with %d hold %d of %d", d.slots, e, total, d.limit)
		}
		if total == int64(d.limit) {
			full++
		}
	}
	require.Positive(t, rec.denied.Load(), "the limit was never reached: this tested nothing")
	require.Positive(t, full, "no window was ever full: this tested nothing")
	return admitted
}

// An admitter is the part of a window that callers race on.
type admitter interface {
	Admit(epoch, cost, limit uint64) Admission
	Refund(epoch, cost uint64) bool
}

// drills covers few and many slots, limits from 1, costs, refunds and idle gaps.
func drills() map[string]drill {
	n := uint64(rounds(12_000))
	return map[string]drill{
		"one slot, limit 1":        {slots: 1, limit: 1, maxCost: 1, jump: 1, rollovers: n},
		"limit 1":                  {slots: 3, limit: 1, maxCost: 1, jump: 1, rollovers: n},
		"unit costs":               {slots: 3, limit: 10, maxCost: 1, jump: 1, rollovers: n},
		"unit costs, refunds":      {slots: 2, limit: 5, maxCost: 1, jump: 1, refunds: true, rollovers: n},
		"costs, refunds, gaps":     {slots: 4, limit: 20, maxCost: 5, jump: 9, refunds: true, rollovers: n},
		"eleven slots, many units": {slots: 11, limit: 200, maxCost: 3, jump: 2, refunds: true, rollovers: n / 4},
	}
}

// TestRing_Stress: over 10,000 rollovers and more at each GOMAXPROCS, every N
// consecutive epochs hold at most the limit, every admission is counted between
// its caller's epoch and the clock at its return, and what the calls closed is
// what was admitted, to the unit.
func TestRing_Stress(t *testing.T) {
	atProcs(t, func(t *testing.T) {
		for name, newWindow := range racers {
			for title, d := range drills() {
				t.Run(title+"/"+name, func(t *testing.T) {
					w := newWindow(mustLayout(t, d.slots, d.limit))
					rec := d.run(t, seedOf(t), w, nil)
					admitted := d.check(t, rec)
					lost := uint64(0)
					for _, s := range w.Snapshot() {
						if s.Used {
							counted := uint64(rec.counted[s.Epoch].Load())
							require.GreaterOrEqual(t, s.Count, counted, "slot of epoch %d", s.Epoch)
							lost += s.Count - counted
						}
					}
					require.LessOrEqual(t, lost, w.Lost())
					open, ok := w.Retire(rec.clock.Load() + uint64(d.slots))
					require.True(t, ok)
					require.Equal(t, admitted+w.Lost(), rec.closed.Load()+open, "each unit is closed exactly once")
				})
			}
		}
	})
}

// TestRing_StressReads: what only reads gives answers that some order of events
// explains, while others admit, refund and close.
func TestRing_StressReads(t *testing.T) {
	atProcs(t, func(t *testing.T) {
		for name, newWindow := range racers {
			t.Run(name, func(t *testing.T) {
				d := drill{slots: 3, limit: 100, maxCost: 2, jump: 2, refunds: true, rollovers: uint64(rounds(2_000))}
				w := newWindow(mustLayout(t, d.slots, d.limit))
				var wrong atomic.Uint64
				rec := d.run(t, seedOf(t), w, func(x uint64, rng *rand.Rand) {
					switch n := 1 + rng.Uint64N(d.limit); rng.IntN(3) {
					case 0:
						x += rng.Uint64N(2) // or the epoch to come
						if a := w.Peek(x, n, d.limit); a.Total > d.limit || a.Epoch < x || (a.Verdict == Admitted) != (a.Total+n <= d.limit) {
							wrong.Add(1)
						}
					case 1:
						if retry, reset, ok := w.RetryAfter(x, n, d.limit); !ok || retry <= x || reset < x || n == d.limit && retry < reset {
							wrong.Add(1)
						}
					case 2:
						var newest, total uint64
						snapshot := w.Snapshot()
						for _, s := range snapshot {
							newest = max(newest, s.Epoch)
						}
						for i, s := range snapshot {
							if s.Used && s.Epoch%uint64(d.slots) != uint64(i) {
								wrong.Add(1)
							}
							if s.Used && s.Epoch+uint64(d.slots) > newest {
								total += s.Count
							}
						}
						if total > d.limit {
							wrong.Add(1)
						}
					}
				})
				require.Zero(t, wrong.Load())
				d.check(t, rec)
			})
		}
	})
}

// TestRing_Conserved hammers one open sub-window, and then a few, with no limit
// in the way: no unit may be lost or counted twice.
func TestRing_Conserved(t *testing.T) {
	atProcs(t, func(t *testing.T) {
		for name, newWindow := range racers {
			for _, epochs := range []uint64{1, 50} {
				t.Run(fmt.Sprintf("%s/epochs=%d", name, epochs), func(t *testing.T) {
					const capacity = 1 << 40
					w := newWindow(mustLayout(t, 2, capacity))
					var sum, closed atomic.Uint64
					n := rounds(100_000)
					together(seedOf(t), func(rng *rand.Rand) {
						for i := range n {
							epoch := uint64(i) * epochs / uint64(n)
							cost := 1 + rng.Uint64N(100)
							a := w.Admit(epoch, cost, capacity)
							closed.Add(a.Closed)
							sum.Add(cost)
							if i%3 == 0 && w.Refund(a.Epoch, cost) {
								sum.Add(-cost)
							}
						}
					})
					open, ok := w.Retire(epochs + 2)
					require.True(t, ok)
					require.Equal(t, sum.Load()+w.Lost(), closed.Load()+open)
				})
			}
		}
	})
}
