package atomicring

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStriped_Uncontended: as long as nobody contends there are no credits, and
// a total says all.
func TestStriped_Uncontended(t *testing.T) {
	s := NewStriped(*mustLayout(t, 3, 100), false)
	for i := range uint64(10) {
		require.Equal(t, Admission{Admitted, 0, i + 1, 0}, s.Admit(0, 1, 10))
	}
	require.Equal(t, Admission{Denied, 0, 10, 0}, s.Admit(0, 1, 10))
	require.Nil(t, s.stripes.Load())
}

// TestStriped_Plain never leaves credits, not even after contention.
func TestStriped_Plain(t *testing.T) {
	s := NewStriped(*mustLayout(t, 3, 100), true)
	s.turnOn(1)
	require.Nil(t, s.stripes.Load())
	require.Equal(t, Admission{Admitted, 0, 1, 0}, s.Admit(0, 1, 100))
}

// TestStriped_Contended: a lost CAS turns credits on for its epoch and the next
// one, and no longer.
func TestStriped_Contended(t *testing.T) {
	s := NewStriped(*mustLayout(t, 3, 1000), false)
	s.Admit(4, 1, 1000)
	s.turnOn(s.layout.stamp(4))
	for epoch := uint64(4); epoch <= 7; epoch++ {
		s.Admit(epoch, 1, 1000)
		require.Equal(t, epoch <= 5, s.credits(s.layout.stamp(epoch)) > 0, "epoch %d", epoch)
	}
}

// TestStriped_Costs: costs of up to a batch are spent off the stripe, larger ones
// are charged to the head.
func TestStriped_Costs(t *testing.T) {
	const epoch, limit = 5, 10_000
	s := newStripedWindow(mustLayout(t, 3, limit), 1)
	s.Admit(epoch, 1, limit)
	e := s.layout.stamp(epoch)
	require.Equal(t, uint64(batch-1), s.credits(e))
	for _, c := range []struct{ cost, spent, charged uint64 }{{1, 1, 0}, {2, 2, 0}, {batch, batch, 0}, {batch + 1, 0, batch + 1}} {
		s.deposit(e, 2*batch)
		head, credits := s.ring.head.Load(), s.credits(e)
		require.Equal(t, Admitted, s.Admit(epoch, c.cost, limit).Verdict)
		require.Equal(t, head+c.charged, s.ring.head.Load(), "cost %d", c.cost)
		require.Equal(t, credits-c.spent, s.credits(e), "cost %d", c.cost)
		s.ring.head.Store(s.ring.head.Load() + 2*batch) // what the deposit was charged
	}
	require.Equal(t, Admitted, s.Admit(epoch, 0, limit).Verdict)
}

// TestStriped_Refund: units that were charged and not spent are nobody's to
// give back.
func TestStriped_Refund(t *testing.T) {
	s := newStripedWindow(mustLayout(t, 3, 100), 2)
	a := s.Admit(5, 1, 100)
	require.Equal(t, Admitted, a.Verdict)
	require.Positive(t, s.credits(s.layout.stamp(5)))
	require.Equal(t, Admission{Admitted, 5, 1, 0}, s.AdmitExact(5, 0, 100))
	require.False(t, s.Refund(5, 2), "1 was counted")
	require.True(t, s.Refund(5, 1))
	require.False(t, s.Refund(5, 1))
	require.Equal(t, Admission{Denied, 5, 0, 0}, s.AdmitExact(5, 101, 100))
}

// TestStriped_Retired: a retired head is none that has credits.
func TestStriped_Retired(t *testing.T) {
	l := mustLayout(t, 2, 100)
	s := newStripedWindow(l, 1)
	admit(t, s, l.MaxEpoch(), 1, 100)
	_, ok := s.Ring().Discard(l)
	require.True(t, ok)
	require.Equal(t, Retired, s.Peek(l.MaxEpoch(), 1, 100).Verdict)
	require.Nil(t, s.Snapshot())
	require.Equal(t, retry{0, l.MaxEpoch(), false}, retryOf(s, l.MaxEpoch(), 1, 100), "as of an empty one")
}

// TestStriped_LastUnits: the last units are found wherever they lie, for any
// cost, and then no more.
func TestStriped_LastUnits(t *testing.T) {
	for cost := uint64(1); cost <= 7; cost++ {
		s := newStripedWindow(mustLayout(t, 3, 1000), 4)
		left := uint64(1000)
		for left > 0 {
			n := min(cost, left)
			require.Equal(t, Admitted, s.Admit(2, 1, 1000).Verdict) // leaves credits
			left--
			if n = min(n, left); n > 0 {
				require.Equal(t, Admitted, s.Admit(2, n, 1000).Verdict, "%d of the last %d units", n, left)
				left -= n
			}
		}
		require.Equal(t, Admission{Denied, 2, 1000, 0}, s.AdmitExact(2, 1, 1000))
		require.Zero(t, s.Undeposited())
	}
}

// TestStriped_SaturatedWindows: 64 goroutines that all ask until they are denied
// leave nothing of a window, whichever stripe its last units lie on, but for
// units that are counted as undeposited.
func TestStriped_SaturatedWindows(t *testing.T) {
	const goroutines = 64
	windows := 40
	if raceEnabled || testing.Short() {
		windows = 5
	}
	atProcs(t, func(t *testing.T) {
		for _, limit := range []uint64{1, 2, 3, 7, 10, 31, 64, 100, 200} {
			s := newStripedWindow(mustLayout(t, 1, 1000), 4) // one slot: every epoch is a window
			for epoch := range uint64(windows) {
				var admitted atomic.Uint64
				var wg sync.WaitGroup
				start := make(chan struct{})
				for range goroutines {
					wg.Go(func() {
						<-start
						for s.Admit(epoch, 1, limit).Verdict == Admitted {
							admitted.Add(1)
						}
					})
				}
				close(start)
				wg.Wait()
				// Who was denied may have looked while another call held units.
				for s.Admit(epoch, 1, limit).Verdict == Admitted {
					admitted.Add(1)
				}
				require.Equal(t, limit, admitted.Load(), "limit %d, epoch %d", limit, epoch)
			}
			require.Zero(t, s.Undeposited(), "nobody was charged while the tick turned")
		}
	})
}

// TestStriped_ProcessorsChange: stripes are made for the processors there are,
// and serve more of them, and fewer.
func TestStriped_ProcessorsChange(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := NewStriped(*mustLayout(t, 3, 1<<30), false)
	s.Admit(0, 1, 1000)
	s.turnOn(1)
	s.stripes.Store(newStripes(1)) // as on a machine with one
	epoch := uint64(0)
	for _, procs := range []int{1, 8, 2, 16, 1} {
		runtime.GOMAXPROCS(procs)
		epoch += 3 // a new window
		s.turnOn(s.layout.stamp(epoch))
		var admitted atomic.Uint64
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for s.Admit(epoch, 1, 1000).Verdict == Admitted {
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		for s.Admit(epoch, 1, 1000).Verdict == Admitted {
			admitted.Add(1)
		}
		require.Equal(t, uint64(1000), admitted.Load(), "at %d processors", procs)
	}
}

func TestStriped_Allocs(t *testing.T) {
	s := newStripedWindow(mustLayout(t, 11, 1<<29-1), 2)
	epoch := uint64(0)
	allocs := testing.AllocsPerRun(1000, func() {
		for range 10 {
			s.Admit(epoch, 1, 100)
		}
		a := s.Admit(epoch, 5, 100)
		s.AdmitExact(epoch, 1, 100)
		s.Admit(epoch, 1000, 100) // denied
		s.Peek(epoch+1, 1, 100)
		s.RetryAfter(epoch, 1, 100)
		s.Refund(a.Epoch, 5)
		epoch++
	})
	if !raceEnabled { // then a sync.Pool drops things on purpose
		require.Zero(t, allocs)
	}
}
