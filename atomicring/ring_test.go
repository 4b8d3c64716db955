package atomicring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// words returns the raw words of a ring: the head, the slots, and opened.
func words(r *Ring, l *Layout) []uint64 {
	words := []uint64{r.head.Load()}
	for i := range r.slots(l) {
		words = append(words, r.slots(l)[i].Load())
	}
	return append(words, r.opened.Load())
}

// admit counts cost units, which have to fit.
func admit(t *testing.T, w window, epoch, cost, limit uint64) Admission {
	t.Helper()
	a := w.Admit(epoch, cost, limit)
	require.Equal(t, Admitted, a.Verdict, "epoch %d, cost %d, limit %d: %+v", epoch, cost, limit, a)
	return a
}

func TestVerdict_String(t *testing.T) {
	require.Equal(t, "denied", Verdict(0).String())
	require.Equal(t, "denied", Denied.String())
	require.Equal(t, "admitted", Admitted.String())
	require.Equal(t, "retired", Retired.String())
	require.Equal(t, "unknown", Verdict(3).String())
}

// TestRing_LongIdle fills every slot and comes back after a gap: the words of
// an earlier lap must count for nothing, whatever the distance.
func TestRing_LongIdle(t *testing.T) {
	for _, slots := range []uint64{1, 2, 3, 10, 11} {
		for _, gap := range []uint64{
			1, slots - 1, slots, slots + 1, 2*slots - 1, 2 * slots, 1000 * slots, 1000*slots + 1,
			1<<16 - 1, 1 << 16, 1<<16 + 1, slots << 16, slots<<16 + 1,
			1<<32 - 1, 1 << 32, 1<<32 + 1, slots << 32, slots<<32 - 1,
		} {
			for name, newWindow := range windows {
				t.Run(fmt.Sprintf("%s/slots=%d/gap=%d", name, slots, gap), func(t *testing.T) {
					w := newWindow(mustLayout(t, int(slots), 1000))
					last := uint64(7) + slots - 1
					for e := uint64(7); e <= last; e++ { // 1, 2, 3 … units, partial counts
						admit(t, w, e, e-6, 1000)
					}
					want := uint64(0)
					for e := uint64(7); e <= last; e++ {
						if e+slots > last+gap {
							want += e - 6
						}
					}
					require.Equal(t, want, w.Peek(last+gap, 0, 1000).Total)
					require.Equal(t, want+1, admit(t, w, last+gap, 1, 1000).Total)
					// The same slot once more, full now.
					room := 1000 - want - 1
					admit(t, w, last+gap, room, 1000)
					require.Equal(t, Denied, w.Admit(last+gap, 1, 1000).Verdict)
					require.Equal(t, uint64(1), admit(t, w, last+gap+slots<<16, 1, 1000).Total)
				})
			}
		}
	}
}

// TestRing_PartialSlotReused comes back to every slot lap after lap, with
// counts that never fill one: what a slot held a lap ago must be gone.
func TestRing_PartialSlotReused(t *testing.T) {
	for name, newWindow := range windows {
		t.Run(name, func(t *testing.T) {
			w := newWindow(mustLayout(t, 4, 10))
			admit(t, w, 0, 2, 10)
			admit(t, w, 1, 2, 10)
			admit(t, w, 2, 2, 10)
			for epoch := uint64(3); epoch < 100; epoch++ {
				require.Equal(t, uint64(8), admit(t, w, epoch, 2, 10).Total, "epoch %d", epoch)
				for _, s := range w.Snapshot() {
					require.Equal(t, uint64(2), s.Count, "slot of epoch %d in %d", s.Epoch, epoch)
				}
			}
		})
	}
}

// TestRing_DenialRelabels: a denied request in a new epoch relabels and zeroes
// its slot, as the contract says, and closes the sub-window before it.
func TestRing_DenialRelabels(t *testing.T) {
	l := mustLayout(t, 2, 10)
	w := windows["ring"](l)
	admit(t, w, 1, 5, 10)
	require.Equal(t, Admission{Denied, 2, 5, 5}, w.Admit(2, 6, 10))
	require.Equal(t, []Slot{{2, 0, true}, {1, 5, true}}, w.Snapshot())
	require.Equal(t, Admission{Denied, 3, 0, 0}, w.Admit(3, 11, 10))
	require.Equal(t, []Slot{{2, 0, true}, {3, 0, true}}, w.Snapshot())
}

// TestRing_Costs walks over the costs and limits at the edges.
func TestRing_Costs(t *testing.T) {
	for name, newWindow := range windows {
		for _, capacity := range []uint64{1, 5, 1<<29 - 1, 1<<62 - 1} {
			t.Run(fmt.Sprintf("%s/capacity=%d", name, capacity), func(t *testing.T) {
				l := mustLayout(t, 3, capacity)
				limit := min(capacity, 5)
				w := newWindow(l)
				verdict := func(cost, limit uint64) Verdict { return w.Admit(0, cost, limit).Verdict }

				require.Equal(t, Admitted, verdict(0, limit))
				require.Equal(t, Admitted, verdict(0, 0))
				require.Equal(t, Denied, verdict(1, 0))
				require.Equal(t, Denied, verdict(limit+1, limit))
				require.Equal(t, Denied, verdict(math.MaxUint64, limit))
				require.Equal(t, Denied, verdict(math.MaxUint64, math.MaxUint64), "above the capacity")
				require.Equal(t, Denied, verdict(capacity+1, math.MaxUint64))
				require.Equal(t, Admission{Verdict: Admitted, Total: limit}, w.Admit(0, limit, limit))
				require.Equal(t, Admitted, verdict(0, limit), "full is not above the limit")
				require.Equal(t, Denied, verdict(0, limit-1), "above a limit that was lowered")
				require.Equal(t, Denied, verdict(1, limit))
				require.Equal(t, Denied, verdict(limit, limit))
				require.Equal(t, Denied, verdict(math.MaxUint64, limit), "cost + total wraps")
				require.Equal(t, Denied, verdict(math.MaxUint64-limit+1, math.MaxUint64), "cost + total = 2^64")

				// A limit above the capacity acts as the capacity.
				if capacity > limit {
					require.Equal(t, Admission{Verdict: Admitted, Total: capacity}, w.Admit(0, capacity-limit, math.MaxUint64))
				}
				require.Equal(t, Denied, verdict(1, math.MaxUint64))
				require.Equal(t, capacity, w.Peek(1, 0, math.MaxUint64).Total)
				require.Equal(t, capacity, w.Snapshot()[0].Count)
			})
		}
	}
}

// TestRing_WritesNothing: a denial in an open epoch, a peek, a cost of 0 and an
// answer to RetryAfter leave every word as it was.
func TestRing_WritesNothing(t *testing.T) {
	l := mustLayout(t, 3, 10)
	r := l.NewRing()
	calls := func(epoch uint64) {
		r.Admit(l, epoch, 0, 10)
		r.Peek(l, epoch, 1, 10)
		r.RetryAfter(l, epoch, 1, 10)
		r.Refund(l, epoch, 100) // more than was counted
		r.Retire(l, epoch)
		r.Snapshot(l)
	}
	zero := words(r, l)
	calls(5)
	require.Equal(t, zero, words(r, l), "a ring that was never used")

	for e := uint64(5); e < 8; e++ {
		r.Admit(l, e, 3, 10)
	}
	full := words(r, l)
	for _, epoch := range []uint64{0, 6, 7, 8, 9} {
		calls(epoch)
		require.Equal(t, full, words(r, l), "epoch %d", epoch)
	}
	for _, epoch := range []uint64{0, 6, 7} {
		require.Equal(t, Admission{Denied, 7, 9, 0}, r.Admit(l, epoch, 2, 10))
		require.Equal(t, full, words(r, l), "denied at epoch %d", epoch)
	}
}

// TestRing_LateCallers: a caller with an old epoch is decided and counted in
// the ring's.
func TestRing_LateCallers(t *testing.T) {
	for name, newWindow := range windows {
		for _, now := range []uint64{4, 1000, 1<<32 + 1} {
			for _, late := range []uint64{1, 2, 3, 4, 999, 1 << 32, math.MaxUint64} {
				t.Run(fmt.Sprintf("%s/now=%d/late=%d", name, now, late), func(t *testing.T) {
					w := newWindow(mustLayout(t, 3, 100))
					epoch := now - min(late, now)
					admit(t, w, now-1, 4, 10)
					admit(t, w, now, 2, 10)
					require.Equal(t, Admission{Admitted, now, 9, 0}, w.Admit(epoch, 3, 10))
					require.Equal(t, Admission{Denied, now, 9, 0}, w.Admit(epoch, 2, 10))
					require.Equal(t, Admission{Denied, now, 9, 0}, w.Peek(epoch, 2, 10))
					require.False(t, w.Refund(epoch, 1), "the caller's own epoch is not the one it was counted in")
					require.True(t, w.Refund(now, 3))
					require.Equal(t, Admission{Admitted, now, 6, 0}, w.Peek(epoch, 4, 10))
				})
			}
		}
	}
}

// TestRing_EndOfEpochs goes next to the end of the epoch field and beyond it.
// There time stands still: the ring never admits more than the limit again.
func TestRing_EndOfEpochs(t *testing.T) {
	for name, newWindow := range windows {
		for _, capacity := range []uint64{10, 1<<29 - 1, 1<<40 - 1, 1<<59 - 1} {
			t.Run(fmt.Sprintf("%s/capacity=%d", name, capacity), func(t *testing.T) {
				l := mustLayout(t, 3, capacity)
				end := l.MaxEpoch()
				w := newWindow(l)
				admit(t, w, end-3, 4, 10)
				admit(t, w, end-1, 5, 10)
				require.Equal(t, Admission{Admitted, end, 6, 5}, w.Admit(end, 1, 10))
				retry, reset, ok := w.RetryAfter(end, 5, 10)
				require.False(t, ok, "retry is %d", retry)
				require.Equal(t, end+3, reset)

				counted := uint64(1)
				for _, epoch := range []uint64{end + 1, end + 2, end + 3, 2*end + 1, math.MaxUint64 - 1, math.MaxUint64} {
					a := w.Admit(epoch, 1, 10)
					require.Equal(t, end, a.Epoch)
					if a.Verdict == Admitted {
						counted++
					}
					require.Equal(t, Denied, w.Admit(epoch, 10, 10).Verdict)
					_, _, ok = w.RetryAfter(epoch, 10, 10)
					require.False(t, ok, "no wait helps")
					_, ok = w.Retire(epoch)
					require.False(t, ok, "nothing expires")
				}
				require.Equal(t, uint64(5), counted, "10 in the last window, 5 of them before the end")
				require.True(t, w.Refund(math.MaxUint64, 5), "clamped like the admission")
				require.False(t, w.Refund(end, 1))
				require.Equal(t, uint64(5), w.Peek(math.MaxUint64, 0, 10).Total)
			})
		}
	}

	// The largest capacity leaves room for one epoch.
	l := mustLayout(t, 3, 1<<62-1)
	require.Zero(t, l.MaxEpoch())
	r := l.NewRing()
	require.Equal(t, Admission{Verdict: Admitted, Total: 1<<62 - 1}, r.Admit(l, 9, 1<<62-1, math.MaxUint64))
	require.Equal(t, Admission{Verdict: Denied, Total: 1<<62 - 1}, r.Admit(l, 99, 1, math.MaxUint64))

	// So does retirement at the end: a ring that expired before it can go.
	l = mustLayout(t, 3, 10)
	r = l.NewRing()
	r.Admit(l, l.MaxEpoch()-3, 2, 10)
	open, ok := r.Retire(l, math.MaxUint64)
	require.True(t, ok)
	require.Equal(t, uint64(2), open)
}

func TestRing_Refund(t *testing.T) {
	for name, newWindow := range windows {
		t.Run(name, func(t *testing.T) {
			w := newWindow(mustLayout(t, 3, 100))
			require.False(t, w.Refund(0, 1), "never used")

			admit(t, w, 5, 4, 10)
			admit(t, w, 6, 3, 10)
			require.False(t, w.Refund(5, 1), "closed")
			require.False(t, w.Refund(7, 1), "not yet open")
			require.False(t, w.Refund(6, 4), "4 were counted, 3 of them in 5")
			require.False(t, w.Refund(6, 7), "more than the sub-window holds")
			require.False(t, w.Refund(6, math.MaxUint64))
			require.Equal(t, uint64(7), w.Peek(6, 0, 10).Total)

			require.True(t, w.Refund(6, 0))
			require.True(t, w.Refund(6, 1))
			require.True(t, w.Refund(6, 2))
			require.False(t, w.Refund(6, 1), "nothing left")
			require.Equal(t, Admission{Admitted, 6, 10, 0}, w.Admit(6, 6, 10), "as if they had never been counted")
			require.Equal(t, uint64(6), w.Snapshot()[0].Count)

			// They stay given back when the sub-window closes and expires.
			require.True(t, w.Refund(6, 5))
			require.Equal(t, Admission{Admitted, 7, 6, 1}, w.Admit(7, 1, 10))
			require.False(t, w.Refund(6, 1), "closed")
			require.Equal(t, Admission{Admitted, 8, 3, 1}, w.Admit(8, 1, 10))
		})
	}
}

// halfClosed leaves a ring as a caller does that lost the processor while it
// closed the open sub-window: 0 not begun, 1 frozen, 2 with the slot published.
func halfClosed(r *Ring, l *Layout, stage int) {
	h := r.head.Load()
	if stage >= 1 {
		r.head.Store(h | l.frozen)
	}
	if stage >= 2 {
		e := l.stampOf(h)
		slots := r.slots(l)
		slots[l.index(e)].Store(l.open(e) | (h&l.mask - l.sum(slots, e, e)))
	}
}

// forget leaves a ring as a caller does that lost the processor after it opened
// the epoch, before it has written down what that began with.
func forget(r *Ring) { r.opened.Store(0) }

// TestRing_HalfClosed: whatever a stalled caller left, everybody else gets the
// answer of a ring whose open epoch is over, and an admission finishes the work.
func TestRing_HalfClosed(t *testing.T) {
	seed := seedOf(t)
	for i := range rounds(20_000) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		slots := 1 + rng.IntN(5)
		l := mustLayout(t, slots, 20)
		r := l.NewRing()
		reference := newMutexRing(l)
		now := rng.Uint64N(6)
		for range 1 + rng.IntN(8) {
			now += rng.Uint64N(3)
			cost, limit := 1+rng.Uint64N(4), 1+rng.Uint64N(10)
			require.Equal(t, reference.Admit(now, cost, limit), r.Admit(l, now, cost, limit))
		}
		halfClosed(r, l, 1+i%2)
		if rng.IntN(2) == 0 {
			forget(r)
		}

		x := now + rng.Uint64N(2*uint64(slots)+2)
		x -= min(x, rng.Uint64N(4)) // some are late
		cost, limit := rng.Uint64N(5), rng.Uint64N(12)
		ring := bareRing{r, l}
		before := words(r, l)
		next := max(x, now+1)
		require.Equal(t, reference.Peek(next, cost, limit), ring.Peek(x, cost, limit))
		require.Equal(t, retryOf(reference, x, cost, limit), retryOf(ring, x, cost, limit))
		require.Equal(t, reference.Snapshot(), ring.Snapshot())
		require.False(t, ring.Refund(now, 0), "frozen")
		require.False(t, ring.Refund(now, 1), "frozen")
		require.Equal(t, before, words(r, l), "all of these only read")

		if rng.IntN(4) == 0 {
			open, ok := reference.Retire(x)
			gotOpen, gotOK := ring.Retire(x)
			require.Equal(t, ok, gotOK)
			require.Equal(t, open, gotOpen)
			if ok {
				continue
			}
		}
		require.Equal(t, reference.Admit(next, cost, limit), ring.Admit(x, cost, limit))
		require.Equal(t, reference.Snapshot(), ring.Snapshot())
	}
}

// TestRing_StaleHelper replays, on a ring that has moved on, what helpers do
// that slept since an earlier word of the head. None may change a word (I4, I5).
func TestRing_StaleHelper(t *testing.T) {
	seed := seedOf(t)
	for i := range rounds(5_000) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		slots := uint64(1 + rng.IntN(4))
		l := mustLayout(t, int(slots), 20)
		r := l.NewRing()
		var stale []uint64
		now := rng.Uint64N(4)
		for range 1 + rng.IntN(10) {
			now += []uint64{0, 0, 1, 1, 2, slots, 2 * slots}[rng.IntN(7)]
			r.Admit(l, now, 1+rng.Uint64N(3), 20)
			h := r.head.Load()
			stale = append(stale, h)
			if rng.IntN(8) == 0 {
				r.Refund(l, now, 1)
			}
		}
		if rng.IntN(8) == 0 {
			halfClosed(r, l, 1+rng.IntN(2))
		}
		if rng.IntN(4) == 0 {
			forget(r)
		}
		if rng.IntN(8) == 0 {
			r.Retire(l, now+slots)
		}
		before := words(r, l)
		for _, h := range stale {
			if h == before[0] || h|l.frozen == before[0] {
				continue // not stale: the word is there
			}
			for _, x := range []uint64{l.stampOf(h) + 1, now, now + 1, now + 1 + slots} {
				require.Zero(t, r.advance(l, h|l.frozen, x), "asleep after the freeze")
				require.Equal(t, before, words(r, l))
				if l.stampOf(h) < x {
					require.Zero(t, r.advance(l, h, x), "asleep before the freeze")
					require.Equal(t, before, words(r, l))
				}
			}
		}
	}
}

func TestRing_Open(t *testing.T) {
	for name, newWindow := range windows {
		t.Run(name, func(t *testing.T) {
			w := newWindow(mustLayout(t, 3, 10))
			w.Open(7, 4)
			require.Equal(t, []Slot{{}, {7, 4, true}, {}}, w.Snapshot())
			require.Equal(t, Admission{Denied, 7, 4, 0}, w.Admit(2, 7, 10), "a late caller finds it open at its floor")
			require.Equal(t, Admission{Admitted, 7, 10, 0}, w.Admit(2, 6, 10))
			require.True(t, w.Refund(7, 10), "the creator's own units too")
			require.Equal(t, Admission{Admitted, 8, 1, 0}, w.Admit(8, 1, 10))

			l := mustLayout(t, 3, 10)
			w = newWindow(l)
			w.Open(math.MaxUint64, math.MaxUint64)
			require.Equal(t, Admission{Denied, l.MaxEpoch(), 10, 0}, w.Admit(0, 1, 100), "both clamped")

			w = newWindow(l)
			w.Open(0, 0)
			require.Equal(t, []Slot{{0, 0, true}, {}, {}}, w.Snapshot())
			require.Equal(t, retry{1, 0, true}, retryOf(w, 0, 1, 10), "nothing to wait for")
		})
	}
}

func TestRing_Retire(t *testing.T) {
	for name, newWindow := range windows {
		t.Run(name, func(t *testing.T) {
			l := mustLayout(t, 3, 10)
			w := newWindow(l)
			_, ok := w.Retire(100)
			require.False(t, ok, "never used")

			admit(t, w, 4, 2, 10)
			admit(t, w, 5, 3, 10)
			for _, epoch := range []uint64{0, 5, 6, 7} {
				_, ok = w.Retire(epoch)
				require.False(t, ok, "epoch 5 is in the window of %d", epoch)
			}
			open, ok := w.Retire(8)
			require.True(t, ok)
			require.Equal(t, uint64(3), open, "the 2 were reported when 4 closed")
			requireRetired(t, w)

			w = newWindow(l)
			admit(t, w, 5, 3, 10)
			require.True(t, w.Refund(5, 3))
			_, ok = w.Retire(7)
			require.False(t, ok, "empty, but a late caller could still be counted in 5")
			open, ok = w.Retire(8)
			require.True(t, ok)
			require.Zero(t, open)
		})
	}
}

// requireRetired checks that a dead window says so whatever it is asked.
func requireRetired(t *testing.T, w window) {
	t.Helper()
	for _, epoch := range []uint64{0, 5, 8, 1000, math.MaxUint64} {
		for _, cost := range []uint64{0, 1, 100} {
			require.Equal(t, Admission{Verdict: Retired}, w.Admit(epoch, cost, 10))
			require.Equal(t, Admission{Verdict: Retired}, w.Peek(epoch, cost, 10))
			require.False(t, w.Refund(epoch, cost))
		}
		_, ok := w.Retire(epoch)
		require.False(t, ok)
	}
	require.Nil(t, w.Snapshot())
	require.Equal(t, retry{9, 8, true}, retryOf(w, 8, 1, 10), "as for an empty one")
}

func TestRing_Discard(t *testing.T) {
	l := mustLayout(t, 3, 10)
	for stage := range 3 {
		r := l.NewRing()
		r.Admit(l, 4, 2, 10)
		r.Admit(l, 5, 3, 10)
		halfClosed(r, l, stage)
		open, ok := r.Discard(l)
		require.True(t, ok, "whatever it holds")
		require.Equal(t, uint64(3), open)
		requireRetired(t, bareRing{r, l})
		_, ok = r.Discard(l)
		require.False(t, ok)
	}

	r := l.NewRing()
	open, ok := r.Discard(l)
	require.True(t, ok, "even one that was never used")
	require.Zero(t, open)
	requireRetired(t, bareRing{r, l})
}

// TestRing_Opened: what the head began with is written down with each epoch, and
// whoever comes before it is counts as right without.
func TestRing_Opened(t *testing.T) {
	l := mustLayout(t, 3, 100)
	r, s := l.NewRing(), newStripedWindow(l, 0)
	for w, ring := range map[window]*Ring{bareRing{r, l}: r, s: s.Ring()} {
		admit(t, w, 5, 4, 10)
		require.Equal(t, l.open(6), ring.opened.Load(), "%T", w)
		admit(t, w, 6, 3, 10)
		require.Equal(t, l.open(7)|4, ring.opened.Load(), "%T", w)
		admit(t, w, 20, 1, 10)
		require.Equal(t, l.open(21), ring.opened.Load(), "%T", w)
		admit(t, w, 21, 3, 10)
		forget(ring)
		require.False(t, w.Refund(21, 4), "%T: 4 were counted, 1 of them in 20", w)
		require.True(t, w.Refund(21, 3), "%T", w)
	}
	r = l.NewRing()
	r.Open(l, 5, 3)
	require.Equal(t, []uint64{l.open(6) | 3, 0, 0, 0, l.open(6)}, words(r, l))
}

// TestRing_RetryAfter checks both answers against Peek, epoch by epoch: the
// first at which the cost fits, and the first at which nothing is counted.
func TestRing_RetryAfter(t *testing.T) {
	seed := seedOf(t)
	for i := range rounds(20_000) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		slots := uint64(1 + rng.IntN(12))
		l := mustLayout(t, int(slots), 1+rng.Uint64N(30))
		r := l.NewRing()
		now := rng.Uint64N(3) * (1 << (16 * rng.IntN(3)))
		for range rng.IntN(20) {
			now += rng.Uint64N(2)
			r.Admit(l, now, 1+rng.Uint64N(4), 30)
		}
		if rng.IntN(4) == 0 {
			r.Refund(l, now, 1+rng.Uint64N(3))
		}
		if rng.IntN(2) == 0 {
			forget(r)
		}
		x := now + rng.Uint64N(3)
		x -= min(x, rng.Uint64N(5))
		cost, limit := rng.Uint64N(12), rng.Uint64N(14)

		at := r.Peek(l, x, cost, limit).Epoch // the open one if x is late
		retry, reset, ok := r.RetryAfter(l, x, cost, limit)
		require.Equal(t, cost <= min(limit, l.Capacity()), ok)
		if ok {
			require.Greater(t, retry, at)
			require.LessOrEqual(t, retry, at+slots)
			for y := at + 1; y < retry; y++ {
				require.Equal(t, Denied, r.Peek(l, y, cost, limit).Verdict, "%d is earlier than %d", y, retry)
			}
			require.Equal(t, Admitted, r.Peek(l, retry, cost, limit).Verdict)
		}
		require.GreaterOrEqual(t, reset, x)
		require.Zero(t, r.Peek(l, max(reset, at), 0, 0).Total)
		if reset > x {
			require.Positive(t, r.Peek(l, reset-1, 0, 0).Total, "%d is the first", reset)
		}
		// Waiting exactly that long admits, late or not and to the end of the count.
		if ok {
			require.Equal(t, Admitted, r.Admit(l, retry, cost, limit).Verdict)
		}
	}
}

// TestRing_Limit: a new limit keeps what was counted.
func TestRing_Limit(t *testing.T) {
	l := mustLayout(t, 3, 10)
	w := windows["ring"](l)
	admit(t, w, 0, 7, 10)
	require.Equal(t, Admission{Denied, 0, 7, 0}, w.Admit(0, 1, 2), "above a lower limit")
	require.Equal(t, Admission{Denied, 0, 7, 0}, w.Admit(0, 0, 2))
	require.Equal(t, retry{3, 3, true}, retryOf(w, 0, 1, 2))
	require.Equal(t, Admission{Admitted, 0, 10, 0}, w.Admit(0, 3, 10), "back to the old one")
	require.Equal(t, Admission{Admitted, 3, 2, 10}, w.Admit(3, 2, 2))
}

func TestRing_Allocs(t *testing.T) {
	l := mustLayout(t, 11, 1<<29-1)
	r := l.NewRing()
	epoch := uint64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		r.Admit(l, epoch, 1, 100)
		r.Admit(l, epoch, 1000, 100) // denied
		r.Peek(l, epoch+1, 1, 100)
		r.RetryAfter(l, epoch, 1, 100)
		r.Refund(l, epoch, 1)
		r.Retire(l, epoch)
		epoch++
	}))
	require.Zero(t, testing.AllocsPerRun(1, func() { r.Discard(l) }))
}
