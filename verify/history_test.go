package verify

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ringfence-go/ringfence/atomicring"
)

// maxSlots is the most slots that a state has room for.
const maxSlots = 3

// A state is the sequential ring: what was counted in the newest epoch and the
// ones before it.
type state struct {
	slots   int
	used    bool
	retired bool
	now     uint64
	counts  [maxSlots]uint64 // counts[i] in epoch now - i
}

// at returns the state at epoch, which is not older than the newest.
func (s state) at(epoch uint64) state {
	for ; s.used && s.now < epoch && s.counts != [maxSlots]uint64{}; s.now++ {
		s.counts = [maxSlots]uint64{0, s.counts[0], s.counts[1]}
	}
	s.used, s.now = true, epoch
	return s
}

// total returns what the window that ends now holds.
func (s state) total() (total uint64) {
	for _, c := range s.counts[:s.slots] {
		total += c
	}
	return total
}

// fits reports whether the window has room.
func (s state) fits(cost, limit uint64) bool { return s.total()+cost <= limit }

type verb string

const (
	admit  verb = "admit"
	peek   verb = "peek"
	refund verb = "refund"
	retire verb = "retire"
)

type input struct {
	verb               verb
	epoch, cost, limit uint64
}

type output struct {
	atomicring.Admission        // of admit and peek
	ok                   bool   // of refund and retire
	open                 uint64 // of retire
	clock                uint64 // after the call: no epoch is newer
	inexact              bool   // credits were in other hands or lost: it may deny too much
	estimate             bool   // credits are counted in the total as if they were spent
}

// step reports whether the sequential ring in state s can answer in with out,
// and what becomes of it.
//
// A sequential caller would be counted at max(now, its epoch). A concurrent one may
// be counted later, up to the clock: when a caller with a newer epoch has frozen
// the head and not yet come further, others move it on.
func (s state) step(in input, out output) (bool, state) {
	switch in.verb {
	case admit, peek:
		if out.Verdict == atomicring.Retired {
			return s.retired, s
		}
		if s.retired || out.Epoch < in.epoch || s.used && out.Epoch < s.now || out.Epoch > out.clock {
			return false, s
		}
		next := s.at(out.Epoch)
		if out.Verdict == atomicring.Denied {
			if !out.inexact && next.fits(in.cost, in.limit) {
				return false, s
			}
		} else {
			if !next.fits(in.cost, in.limit) {
				return false, s
			}
			counted := in.cost
			if in.verb == peek {
				counted = 0
			}
			next.counts[0] += counted
		}
		if !out.inexact && !out.estimate && out.Total != next.total() {
			return false, s
		}
		if in.verb == peek || in.cost == 0 {
			return true, s
		}
		return true, next
	case refund:
		can := s.used && !s.retired && s.now == in.epoch && in.cost <= s.counts[0]
		if !out.ok {
			return !can || out.clock > in.epoch, s // the head may be frozen
		}
		s.counts[0] -= in.cost
		return can, s
	case retire:
		if !out.ok {
			// The head may be at any epoch up to the clock.
			return !s.used || s.retired || in.epoch < max(s.now, out.clock)+uint64(s.slots), s
		}
		// A call under way may have opened the ring, or closed its sub-window.
		can := !s.retired && (!s.used || in.epoch >= s.now+uint64(s.slots))
		can = can && (out.open == s.counts[0] || out.open == 0)
		s.retired = true
		return can, s
	}
	panic(in.verb)
}

func model(slots int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{slots: slots} },
		Step: func(s, in, out any) (bool, any) {
			return s.(state).step(in.(input), out.(output))
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	}
}

// A recorder collects a history of calls. Its clock is the callers' source of
// epochs.
type recorder struct {
	clock atomic.Uint64
	turn  atomic.Int64 // orders calls and returns
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (r *recorder) do(client int, in input, call func() output) output {
	begin := r.turn.Add(1)
	out := call()
	out.clock = r.clock.Load()
	end := r.turn.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: in, Call: begin, Output: out, Return: end})
	return out
}

// check fails the test unless the calls can be put in an order that the
// sequential ring would have answered in the same way. A check that takes too
// long has failed.
func (r *recorder) check(t *testing.T, slots int, seed uint64) {
	t.Helper()
	result := porcupine.CheckOperationsTimeout(model(slots), r.ops, 20*time.Second)
	if result != porcupine.Ok {
		slices.SortFunc(r.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, op := range r.ops {
			t.Logf("client %d: %3d to %3d: %+v -> %+v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
		}
		require.Equal(t, porcupine.Ok, result, "%d slots, seed %d", slots, seed)
	}
}

// clients is the number of goroutines of a history. More than there are
// processors: some lose theirs in the middle of a call.
const clients = 4

// together runs f in all clients, each with its own random numbers.
func together(seed uint64, f func(client int, rng *rand.Rand)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range clients {
		wg.Go(func() {
			<-start
			f(i, rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
	close(start)
	wg.Wait()
}

// read returns a caller's epoch: the clock, after which the caller may lose the
// processor, or an older one. Now and then it moves the clock first.
func (r *recorder) read(rng *rand.Rand, slots int) uint64 {
	if rng.IntN(4) == 0 {
		r.clock.Add(1 + rng.Uint64N(uint64(slots)+1)/2)
	}
	x := r.clock.Load()
	switch rng.IntN(6) {
	case 0:
		x -= min(x, rng.Uint64N(3))
	case 1:
		runtime.Gosched()
	}
	return x
}

// histories is the number of histories that a test records.
const histories = 5000

func TestRing_Linearizable(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(clients))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var closings, denials int
	for range histories {
		seed++
		rng := rand.New(rand.NewPCG(seed, clients))
		slots := 1 + rng.IntN(maxSlots)
		limit := 1 + rng.Uint64N(4)
		l, err := atomicring.NewLayout(slots, limit)
		require.NoError(t, err)
		ring := l.NewRing()
		var r recorder
		var closed, counted atomic.Uint64
		together(seed, func(client int, rng *rand.Rand) {
			var epoch, cost uint64 // the last admission
			for range 6 {
				in := input{verb: admit, epoch: r.read(rng, slots), cost: rng.Uint64N(limit + 2), limit: limit}
				switch rng.IntN(10) {
				case 0, 1:
					if cost > 0 {
						in = input{verb: refund, epoch: epoch, cost: cost}
					}
				case 2:
					in.verb = peek
				case 3:
					in.limit = rng.Uint64N(limit + 1) // this call's own
				case 4:
					if rng.IntN(4) == 0 {
						in = input{verb: retire, epoch: in.epoch}
					}
				}
				out := r.do(client, in, func() (out output) {
					switch in.verb {
					case admit:
						if client%2 == 0 && in.cost > 0 { // as a limiter asks
							if total, v, ok := ring.TryAdmit(&l, in.epoch, in.cost, in.limit); ok {
								out.Admission = atomicring.Admission{Verdict: v, Epoch: in.epoch, Total: total}
								return out
							}
						}
						out.Admission = ring.Admit(&l, in.epoch, in.cost, in.limit)
					case peek:
						out.Admission = ring.Peek(&l, in.epoch, in.cost, in.limit)
					case refund:
						out.ok = ring.Refund(&l, in.epoch, in.cost)
					case retire:
						out.open, out.ok = ring.Retire(&l, in.epoch)
					}
					return out
				})
				closed.Add(out.Closed + out.open)
				if in.verb == admit && out.Verdict == atomicring.Admitted {
					counted.Add(in.cost)
					epoch, cost = out.Epoch, in.cost
				}
				if in.verb == refund {
					if out.ok {
						counted.Add(-in.cost)
					}
					cost = 0
				}
			}
		})
		r.check(t, slots, seed)

		// Every unit is reported once as closed.
		open, _ := ring.Retire(&l, r.clock.Load()+uint64(slots))
		require.Equal(t, counted.Load(), closed.Load()+open, "seed %d", seed)
		for _, op := range r.ops {
			if out := op.Output.(output); out.Closed > 0 {
				closings++
			} else if op.Input.(input).verb == admit && out.Verdict == atomicring.Denied {
				denials++
			}
		}
	}
	require.Greater(t, closings, histories/10)
	require.Greater(t, denials, histories/10)
}

// A Striped is linearizable but for two things: units in the hands of a call
// under way, or lost, may make another one deny too much, and totals are
// estimates then.
func TestStriped_Linearizable(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(clients))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var spends, exact int
	for range histories {
		seed++
		rng := rand.New(rand.NewPCG(seed, clients))
		slots := 1 + rng.IntN(maxSlots)
		limit := 16 + rng.Uint64N(16)
		l, err := atomicring.NewLayout(slots, limit)
		require.NoError(t, err)
		striped := atomicring.NewStriped(l, false)
		var r recorder
		do := func(client int, in input, details bool) output {
			return r.do(client, in, func() (out output) {
				switch {
				case in.verb == refund:
					out.ok = striped.Refund(in.epoch, in.cost)
				case details:
					out.Admission = striped.AdmitExact(in.epoch, in.cost, in.limit)
				default:
					out.estimate = true
					if client%2 == 0 && in.cost > 0 {
						if total, v, ok := striped.TryAdmit(in.epoch, in.cost, in.limit); ok {
							out.Admission = atomicring.Admission{Verdict: v, Epoch: in.epoch, Total: total}
							return out
						}
					}
					out.Admission = striped.Admit(in.epoch, in.cost, in.limit)
				}
				return out
			})
		}
		together(seed, func(client int, rng *rand.Rand) {
			var epoch, cost uint64 // the last admission
			for range 8 {
				in := input{verb: admit, epoch: r.read(rng, slots), cost: 1, limit: limit}
				if rng.IntN(3) == 0 {
					in.cost = 1 + rng.Uint64N(limit/2)
				}
				if cost > 0 && rng.IntN(8) == 0 {
					in = input{verb: refund, epoch: epoch, cost: cost}
				}
				out := do(client, in, rng.IntN(4) == 0)
				if in.verb == admit && out.Verdict == atomicring.Admitted {
					epoch, cost = out.Epoch, in.cost
				} else {
					cost = 0
				}
			}
		})
		// Alone, it hands out the last unit wherever that lies.
		last := input{verb: admit, epoch: r.clock.Load(), cost: 1, limit: limit}
		for do(0, last, true).Verdict == atomicring.Admitted {
		}

		slices.SortFunc(r.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for i := range r.ops {
			op := &r.ops[i]
			out := op.Output.(output)
			overlaps := slices.ContainsFunc(r.ops, func(o porcupine.Operation) bool {
				return o.ClientId != op.ClientId && o.Call < op.Return && op.Call < o.Return
			})
			out.inexact = overlaps || striped.Undeposited() > 0
			op.Output = out
			if out.Verdict == atomicring.Admitted && out.Total == 0 {
				spends++
			}
			if !out.inexact {
				exact++
			}
		}
		r.check(t, slots, seed)
	}
	t.Logf("%d credits were spent, %d answers were exact", spends, exact)
	if yields { // else calls this short seldom meet, and nobody needs credits
		require.Greater(t, spends, histories/10)
	}
	require.Greater(t, exact, histories/2)
}
