package atomicring

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkRing times one call each, beside op=floor: one uncontended load and
// CAS, which is the least that an admission can cost.
func BenchmarkRing(b *testing.B) {
	const slots, each = 11, 10
	l := mustLayout(b, slots, 1<<40)
	full := func() *Ring { // every slot holds the same number
		r := l.NewRing()
		for e := range uint64(slots) {
			r.Admit(l, e, each, slots*each)
		}
		return r
	}
	const now, limit = slots - 1, slots * each
	bench := func(op string, f func(b *testing.B)) {
		b.Run("op="+op, func(b *testing.B) {
			b.ReportAllocs()
			f(b)
		})
	}

	bench("floor", floor)
	bench("admit", func(b *testing.B) {
		r := full()
		n := uint64(0)
		for b.Loop() {
			r.Admit(l, now, 1, 1<<40)
			n++
		}
		require.Equal(b, limit+n, r.Peek(l, now, 0, 1<<40).Total)
	})
	bench("admit-parallel", func(b *testing.B) {
		r := full()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r.Admit(l, now, 1, 1<<40)
			}
		})
		require.Equal(b, limit+uint64(b.N), r.Peek(l, now, 0, 1<<40).Total)
	})
	bench("deny", func(b *testing.B) {
		r := full()
		var admitted uint64
		for b.Loop() {
			admitted += uint64(r.Admit(l, now, 1, limit).Verdict)
		}
		require.Zero(b, admitted)
	})
	bench("retry-after", func(b *testing.B) {
		r := full()
		var sum, n uint64
		for b.Loop() {
			retry, _, _ := r.RetryAfter(l, now, each/2, limit)
			sum += retry
			n++
		}
		require.Equal(b, slots*n, sum, "when epoch 0 expires")
	})
	bench("deny+retry-after", func(b *testing.B) {
		r := full()
		var sum, n uint64
		for b.Loop() {
			if r.Admit(l, now, 1, limit).Verdict == Denied {
				retry, _, _ := r.RetryAfter(l, now, 1, limit)
				sum += retry
			}
			n++
		}
		require.Equal(b, slots*n, sum)
	})
	bench("peek", func(b *testing.B) {
		r := full()
		var sum, n uint64
		for b.Loop() {
			sum += r.Peek(l, now+1, 1, limit).Total // walks the ring: a new epoch
			n++
		}
		require.Equal(b, (slots-1)*each*n, sum)
	})
	bench("admit+refund", func(b *testing.B) {
		r := full()
		refunded := true
		for b.Loop() {
			a := r.Admit(l, now, 1, 1<<40)
			refunded = refunded && r.Refund(l, a.Epoch, 1)
		}
		require.True(b, refunded)
	})
	bench("rollover", func(b *testing.B) {
		r := full()
		epoch, closed := uint64(now), uint64(0)
		for b.Loop() {
			epoch++
			closed += r.Admit(l, epoch, 1, 1<<40).Closed
		}
		require.Equal(b, epoch-now-1+each, closed, "every call closed a sub-window")
	})
}

func BenchmarkCell(b *testing.B) {
	bench := func(op string, f func(b *testing.B)) {
		b.Run("op="+op, func(b *testing.B) {
			b.ReportAllocs()
			f(b)
		})
	}
	bench("floor", floor)
	bench("admit", func(b *testing.B) {
		var c Cell
		n := uint64(0)
		for b.Loop() {
			if c.Admit(0, 1000, 1, CellCapacity).Verdict == Denied {
				c.Refund(1000, CellCapacity) // full, once in 16 million calls
			}
			n++
		}
		require.LessOrEqual(b, c.Peek(0, 0, CellCapacity).Count, n)
	})
	bench("deny", func(b *testing.B) {
		var c Cell
		c.Admit(0, 1000, 5, 5)
		var admitted uint64
		for b.Loop() {
			admitted += uint64(c.Admit(1, 1000, 1, 5).Verdict)
		}
		require.Zero(b, admitted)
	})
	bench("new-window", func(b *testing.B) {
		var c Cell
		now, sum := uint64(0), uint64(0)
		for b.Loop() {
			sum += c.Admit(now, 1, 1, 1).Count
			now++
		}
		require.Equal(b, now, sum, "every call opened a window")
	})
}

func floor(b *testing.B) {
	var word atomic.Uint64
	n := uint64(0)
	for b.Loop() {
		w := word.Load()
		word.CompareAndSwap(w, w+1)
		n++
	}
	require.Equal(b, n, word.Load())
}
