package atomicring

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A cellOracle is the contract of the cell for one caller at a time.
type cellOracle struct {
	deadline, count uint64
}

func (o *cellOracle) admit(now, decay, cost, limit uint64, shared bool) bool {
	count := o.count
	if now = min(now, CellForever-1); now >= o.deadline {
		count = 0 // the window is over
	}
	if limit = min(limit, CellCapacity); count > limit || cost > limit-count {
		return false
	}
	if cost > 0 {
		if count == 0 || shared { // the first hit, or one that may move the deadline
			o.deadline = max(o.deadline, min(saturate(now, max(decay, 1)), CellForever))
		}
		o.count = count + cost
	}
	return true
}

// answer returns what the cell should report to a caller of now.
func (o *cellOracle) answer(now uint64, ok bool) CellAdmission {
	a := CellAdmission{Verdict: Denied, Deadline: now}
	if ok {
		a.Verdict = Admitted
	}
	if o.count > 0 && min(now, CellForever-1) < o.deadline {
		a.Count, a.Deadline = o.count, o.deadline
	}
	return a
}

func TestCell_RandomTraces(t *testing.T) {
	seed := seedOf(t)
	trace := make([]byte, 4+4*24+4)
	for i := range rounds(200_000) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		for j := 0; j+8 <= len(trace); j += 8 {
			binary.LittleEndian.PutUint64(trace[j:], rng.Uint64())
		}
		playCellTrace(t, trace)
	}
}

func FuzzCell(f *testing.F) {
	f.Add([]byte{0, 2, 1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 3, 0, 0, 0, 0, 10, 0, 0})
	f.Add([]byte{5, 5, 4, 4, 0, 0, 11, 0, 1, 0, 8, 1, 4, 1, 0, 9, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, trace []byte) { playCellTrace(t, trace) })
}

// playCellTrace decodes a trace and plays it on a cell and on the oracle.
func playCellTrace(t *testing.T, trace []byte) {
	if len(trace) < 4 {
		return
	}
	limits := []uint64{0, 1, 2, 3, 10, CellCapacity - 1, CellCapacity, CellCapacity + 1, math.MaxUint64}
	limit := limits[trace[0]%9]
	now := []uint64{0, 1, 1 << 16, 1 << 32, CellForever - 3, CellForever - 1, CellForever, math.MaxUint64}[trace[1]%8]
	decay := []uint64{0, 1, 2, 10, 1000, CellForever, math.MaxUint64}[trace[2]%7]

	var c Cell
	var o cellOracle
	dead := false
	type call struct {
		name                    string
		now, decay, cost, limit uint64
	}
	var calls []call
	whole := trace
	for trace = trace[4:]; len(trace) >= 4; trace = trace[4:] {
		switch b := trace[1]; b % 8 {
		case 0, 1, 2:
		case 3, 4:
			now = saturate(now, uint64(b)/8)
		case 5:
			now = saturate(now, decay-min(decay, 1)+uint64(b)/8%3) // about one window
		case 6:
			now = saturate(now, []uint64{1 << 16, 1 << 24, 1 << 32, 1 << 40}[b/8%4])
		case 7:
			now -= min(now, uint64(b)/8) // it steps back
		}
		if b := trace[2]; b >= 224 { // another caller's decay
			decay = []uint64{0, 1, 5, 10, 20}[b%5]
		}
		cost := []uint64{1, 1, 1, 2, 3, limit, saturate(limit, 1), CellCapacity, CellCapacity + 1, math.MaxUint64, 0}[trace[3]%11]
		before := c.word.Load()

		var got, want any
		var name string
		switch op := trace[0] % 16; {
		case op < 9:
			name = "Admit"
			shared := op >= 7
			admit := c.Admit
			if shared {
				name, admit = "AdmitShared", c.AdmitShared
			}
			g, w := admit(now, decay, cost, limit), CellAdmission{Verdict: Retired}
			if !dead {
				ok := o.admit(now, decay, cost, limit, shared)
				w = o.answer(now, ok)
			}
			if g != w {
				got, want = g, w
			}
			if g.Verdict == Denied && c.word.Load() != before {
				got, want = c.word.Load(), before
			}
		case op < 11:
			name = "Peek"
			g, w := c.Peek(now, cost, limit), CellAdmission{Verdict: Retired}
			if !dead {
				try := o
				w = o.answer(now, try.admit(now, 1, cost, limit, false))
			}
			if g != w || c.word.Load() != before {
				got, want = g, w
			}
		case op < 14:
			name = "Refund"
			deadline := o.deadline
			if trace[2]%8 == 0 {
				deadline--
			}
			g, w := c.Refund(deadline, cost), false
			if !dead && deadline == o.deadline && cost <= o.count {
				o.count -= cost
				w = true
			}
			if g != w {
				got, want = g, w
			}
		default:
			name = "Retire"
			g := c.Retire(now)
			w := !dead && o.deadline > 0 && min(now, CellForever-1) >= o.deadline
			dead = dead || w
			if g != w {
				got, want = g, w
			}
		}
		calls = append(calls, call{name, now, decay, cost, limit})
		if after := c.word.Load(); after>>cellShift < before>>cellShift {
			got, want = fmt.Sprintf("%x", after), fmt.Sprintf("a deadline not before that of %x", before)
		}
		if got != nil {
			for _, c := range calls {
				t.Logf("%s(now %d, decay %d, cost %d, limit %d)", c.name, c.now, c.decay, c.cost, c.limit)
			}
			t.Fatalf("trace %x\ngot  %+v\nwant %+v", whole, got, want)
		}
	}
}

// TestCell_FirstHitWins: the first hit sets the deadline; later ones and denied
// ones do not move it, whatever their decay.
func TestCell_FirstHitWins(t *testing.T) {
	var c Cell
	require.Equal(t, CellAdmission{Admitted, 1, 110}, c.Admit(10, 100, 1, 2))
	require.Equal(t, CellAdmission{Admitted, 2, 110}, c.Admit(50, 1000, 1, 2))
	require.Equal(t, CellAdmission{Denied, 2, 110}, c.Admit(109, 1000, 1, 2))
	require.Equal(t, CellAdmission{Denied, 2, 110}, c.Admit(109, 1, 1, 2))
	require.Equal(t, CellAdmission{Admitted, 1, 111}, c.Admit(110, 1, 1, 2), "the end is not included")
	require.Equal(t, CellAdmission{Admitted, 1, 131}, c.Admit(111, 20, 1, 2))
}

// TestCell_DeniedCreatesNothing: a cost above max, max 0, and a cost of 0 write
// nothing and open no window.
func TestCell_DeniedCreatesNothing(t *testing.T) {
	var c Cell
	for _, limit := range []uint64{0, 1, 5, CellCapacity, math.MaxUint64} {
		for _, cost := range []uint64{min(limit, CellCapacity) + 1, math.MaxUint64} {
			require.Equal(t, CellAdmission{Denied, 0, 7}, c.Admit(7, 100, cost, limit))
			require.Equal(t, CellAdmission{Denied, 0, 7}, c.AdmitShared(7, 100, cost, limit))
			require.Equal(t, CellAdmission{Denied, 0, 7}, c.Peek(7, cost, limit))
		}
		require.Equal(t, CellAdmission{Admitted, 0, 7}, c.Admit(7, 100, 0, limit))
	}
	require.Zero(t, c.word.Load())

	c.Admit(7, 100, 5, 5)
	w := c.word.Load()
	require.Equal(t, CellAdmission{Denied, 5, 107}, c.Admit(9, 100, 1, 5))
	require.Equal(t, CellAdmission{Denied, 5, 107}, c.Admit(9, 100, 1, 3), "a lower max")
	require.Equal(t, CellAdmission{Admitted, 5, 107}, c.Admit(9, 100, 0, 5), "a cost of 0 at the limit")
	require.Equal(t, CellAdmission{Denied, 5, 107}, c.AdmitShared(9, 1000, 1, 5), "denied: nothing is extended")
	require.Equal(t, w, c.word.Load())
}

// TestCell_Saturation: a count never spills into the deadline.
func TestCell_Saturation(t *testing.T) {
	for _, limit := range []uint64{CellCapacity, CellCapacity + 1, 1 << 40, math.MaxUint64} {
		var c Cell
		require.Equal(t, CellAdmission{Admitted, CellCapacity - 1, 110}, c.Admit(10, 100, CellCapacity-1, limit))
		require.Equal(t, Denied, c.Admit(10, 100, 2, limit).Verdict)
		require.Equal(t, Denied, c.Admit(10, 100, math.MaxUint64, limit).Verdict)
		require.Equal(t, CellAdmission{Admitted, CellCapacity, 110}, c.Admit(10, 100, 1, limit))
		require.Equal(t, CellAdmission{Denied, CellCapacity, 110}, c.Admit(10, 100, 1, limit))
		require.Equal(t, CellAdmission{Admitted, 1, 210}, c.Admit(110, 100, 1, limit))
	}
}

// TestCell_Forever: huge decays saturate below the retired word, and a deadline
// that never comes stays.
func TestCell_Forever(t *testing.T) {
	for _, now := range []uint64{0, 10, CellForever - 1, CellForever, math.MaxUint64} {
		for _, decay := range []uint64{CellForever, 1 << 40, math.MaxUint64} {
			var c Cell
			require.Equal(t, CellAdmission{Admitted, CellCapacity, CellForever}, c.Admit(now, decay, CellCapacity, math.MaxUint64))
			require.NotEqual(t, retired, c.word.Load())
			for _, later := range []uint64{0, CellForever - 1, CellForever, CellForever + 1, math.MaxUint64} {
				require.Equal(t, CellAdmission{Denied, CellCapacity, CellForever}, c.Admit(later, 1, 1, math.MaxUint64))
				require.False(t, c.Retire(later))
			}
			require.True(t, c.Refund(CellForever, CellCapacity))
			require.Equal(t, CellAdmission{Admitted, 1, CellForever}, c.Admit(now, 1, 1, 1), "a deadline only grows")
		}
	}
	// The last ordinary deadline does come.
	var c Cell
	require.Equal(t, CellAdmission{Admitted, 1, CellForever - 1}, c.Admit(CellForever-11, 10, 1, 1))
	require.Equal(t, Denied, c.Admit(CellForever-2, 10, 1, 1).Verdict)
	require.Equal(t, CellAdmission{Admitted, 1, CellForever}, c.Admit(CellForever-1, 10, 1, 1))
}

// TestCell_Deadlines: a deadline never moves back, not for a clock that steps
// back, nor for a window whose last unit was given back.
func TestCell_Deadlines(t *testing.T) {
	var c Cell
	c.Admit(1000, 100, 1, 5)
	require.Equal(t, CellAdmission{Admitted, 2, 1100}, c.Admit(10, 100, 1, 5), "a late caller is in the open window")
	require.True(t, c.Refund(1100, 2))
	require.Equal(t, CellAdmission{Admitted, 0, 1001}, c.Peek(1001, 1, 5), "no window")
	require.Equal(t, CellAdmission{Admitted, 1, 1100}, c.Admit(10, 100, 1, 5))
	require.True(t, c.Refund(1100, 1))
	require.Equal(t, CellAdmission{Admitted, 1, 1101}, c.Admit(1001, 100, 1, 5))
	require.Equal(t, CellAdmission{Admitted, 1, 1102}, c.Admit(1101, 0, 1, 5), "a decay of at least one tick")
}

func TestCell_Refund(t *testing.T) {
	var c Cell
	require.False(t, c.Refund(100, 1), "never used")
	a := c.Admit(0, 100, 3, 5)
	require.False(t, c.Refund(a.Deadline, 4), "more than was counted")
	require.False(t, c.Refund(a.Deadline, math.MaxUint64))
	require.False(t, c.Refund(a.Deadline-1, 1), "another window")
	require.False(t, c.Refund(a.Deadline+1, 1))
	require.True(t, c.Refund(a.Deadline, 2))
	require.Equal(t, CellAdmission{Admitted, 5, 100}, c.Admit(1, 100, 4, 5))
	require.True(t, c.Refund(a.Deadline, 5), "the last unit")
	require.Equal(t, CellAdmission{Admitted, 5, 102}, c.Admit(2, 100, 5, 5), "takes the window with it")
	require.False(t, c.Refund(a.Deadline, 1), "that window is gone")

	require.True(t, c.Retire(102))
	require.False(t, c.Refund(102, 1))
	require.False(t, c.Refund(1<<40-1, 1), "the deadline that a retired word seems to have")
}

// TestCell_AdmitShared: callers with different decays share a cell, and no
// one's window is cut short.
func TestCell_AdmitShared(t *testing.T) {
	var c Cell
	require.Equal(t, CellAdmission{Admitted, 1, 110}, c.AdmitShared(100, 10, 1, 3))
	require.Equal(t, CellAdmission{Admitted, 2, 201}, c.AdmitShared(101, 100, 1, 3))
	require.Equal(t, CellAdmission{Admitted, 3, 201}, c.AdmitShared(102, 10, 1, 3))
	require.Equal(t, CellAdmission{Denied, 3, 201}, c.AdmitShared(103, 1000, 1, 3))
	require.False(t, c.Refund(110, 1), "the window was moved")
	require.True(t, c.Refund(201, 1))
	require.Equal(t, CellAdmission{Admitted, 2, 201}, c.AdmitShared(104, 0, 0, 3), "a cost of 0 moves nothing")
}

func TestCell_Open(t *testing.T) {
	var c Cell
	c.Open(50, 100, 3)
	require.Equal(t, CellAdmission{Denied, 3, 150}, c.Admit(7, 100, 3, 5), "a late caller finds it open at its floor")
	require.Equal(t, CellAdmission{Admitted, 5, 150}, c.Admit(7, 100, 2, 5))

	c.Open(math.MaxUint64, math.MaxUint64, math.MaxUint64)
	require.NotEqual(t, retired, c.word.Load())
	require.Equal(t, CellAdmission{Denied, CellCapacity, CellForever}, c.Peek(0, 1, math.MaxUint64))
	c.Open(50, 0, 1)
	require.Equal(t, uint64(51), c.Peek(50, 0, 1).Deadline)
}

func TestCell_Retire(t *testing.T) {
	var c Cell
	require.False(t, c.Retire(1000), "never used")
	c.Admit(0, 100, 3, 5)
	require.False(t, c.Retire(0))
	require.False(t, c.Retire(99))
	require.True(t, c.Retire(100))
	require.False(t, c.Retire(100), "once")
	for _, now := range []uint64{0, 99, 100, 1000, CellForever, math.MaxUint64} {
		for _, cost := range []uint64{0, 1, 100} {
			require.Equal(t, CellAdmission{Verdict: Retired}, c.Admit(now, 100, cost, 5))
			require.Equal(t, CellAdmission{Verdict: Retired}, c.AdmitShared(now, 100, cost, 5))
			require.Equal(t, CellAdmission{Verdict: Retired}, c.Peek(now, cost, 5))
		}
		require.False(t, c.Retire(now))
	}

	var emptied Cell
	emptied.Admit(0, 100, 1, 5)
	emptied.Refund(100, 1)
	require.False(t, emptied.Retire(99), "a late caller may still use the deadline")
	require.True(t, emptied.Retire(100))
}

// TestCell_Expired: Expired says beforehand what Retire will do.
func TestCell_Expired(t *testing.T) {
	require.False(t, new(Cell).Expired(math.MaxUint64), "never used")
	for _, refunded := range []uint64{0, 1} {
		for _, now := range []uint64{0, 99, 100, 1000, CellForever, math.MaxUint64} {
			var c Cell
			c.Admit(0, 100, 1, 5)
			c.Refund(100, refunded)
			expired := c.Expired(now)
			require.Equal(t, now >= 100, expired)
			require.Equal(t, expired, c.Retire(now))
			require.Equal(t, expired, c.Expired(0), "retired")
		}
	}
	var forever Cell
	forever.Admit(0, CellForever, 1, 5)
	require.False(t, forever.Expired(math.MaxUint64))
}

func TestCell_SizeAndAllocs(t *testing.T) {
	require.Equal(t, uintptr(8), unsafe.Sizeof(Cell{}))
	var c Cell
	now := uint64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		a := c.Admit(now, 10, 1, 5)
		c.AdmitShared(now, 10, 1, 5)
		c.Admit(now, 10, 100, 5) // denied
		c.Peek(now, 1, 5)
		c.Refund(a.Deadline, 1)
		c.Expired(now)
		c.Retire(now)
		now++
	}))
}

// A cellOwner keeps the cell of one key, as owner keeps a ring.
type cellOwner struct {
	cell   atomic.Pointer[Cell]
	floor  atomic.Uint64
	mu     sync.Mutex
	births atomic.Uint64
}

func (o *cellOwner) admit(now, decay, cost, limit uint64) CellAdmission {
	for {
		c := o.cell.Load()
		yield()
		if c == nil {
			if a, ok := o.create(now, decay, cost); ok {
				return a
			}
			continue
		}
		if a := c.Admit(now, decay, cost, limit); a.Verdict != Retired {
			return a
		}
		o.remove(c)
	}
}

func (o *cellOwner) create(now, decay, cost uint64) (CellAdmission, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cell.Load() != nil {
		return CellAdmission{}, false
	}
	c := new(Cell)
	birth := max(now, o.floor.Load())
	c.Open(birth, decay, cost)
	o.cell.Store(c)
	o.births.Add(1)
	return CellAdmission{Admitted, cost, birth + decay}, true
}

func (o *cellOwner) sweep(now uint64) {
	c := o.cell.Load()
	if c == nil {
		return
	}
	for {
		floor := o.floor.Load()
		if now <= floor || o.floor.CompareAndSwap(floor, now) {
			break
		}
	}
	yield()
	if c.Retire(now) {
		yield()
		o.remove(c)
	}
}

func (o *cellOwner) remove(c *Cell) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cell.Load() == c {
		o.cell.Store(nil)
	}
}

func TestCell_LateCreator(t *testing.T) {
	for late := range uint64(20) {
		var o cellOwner
		o.admit(5, 10, 3, 3)
		o.sweep(14)
		require.NotNil(t, o.cell.Load())
		o.sweep(15)
		require.Nil(t, o.cell.Load())
		require.Equal(t, CellAdmission{Admitted, 3, max(late, 15) + 10}, o.admit(late, 10, 3, 3))
	}
}

// TestCell_Stress: late callers, refunds, retirements and births. Every window
// holds at most max, begins no earlier than the one before it ended, and ends
// between its callers' clock and a decay after their return.
func TestCell_Stress(t *testing.T) {
	const decay = 10
	for _, refunds := range []bool{false, true} {
		t.Run(fmt.Sprintf("refunds=%t", refunds), func(t *testing.T) {
			atProcs(t, func(t *testing.T) {
				const limit = 5
				ticks := uint64(rounds(500_000))
				counted := make([]atomic.Int64, ticks+workers*2*decay+decay)
				var clock, denied, outOfRange atomic.Uint64
				var o cellOwner
				together(seedOf(t), func(rng *rand.Rand) {
					for clock.Load() < ticks {
						x := clock.Load()
						if rng.IntN(4) == 0 {
							o.sweep(x)
						}
						if rng.IntN(8) == 0 {
							x -= min(x, rng.Uint64N(2*decay))
						}
						n := 1 + rng.Uint64N(2)
						a := o.admit(x, decay, n, limit)
						if a.Deadline <= x || a.Deadline > clock.Load()+decay || a.Count > limit {
							outOfRange.Add(1)
							continue
						}
						if a.Verdict != Admitted {
							denied.Add(1)
						} else {
							counted[a.Deadline].Add(int64(n))
							if refunds && rng.IntN(4) == 0 {
								if c := o.cell.Load(); c != nil && c.Refund(a.Deadline, n) {
									counted[a.Deadline].Add(-int64(n))
								}
							}
						}
						if rng.IntN(3) == 0 {
							clock.Add(1 + rng.Uint64N(2)*rng.Uint64N(2*decay))
						}
					}
				})
				require.Zero(t, outOfRange.Load())
				require.Positive(t, denied.Load(), "max was never reached: this tested nothing")
				require.Greater(t, o.births.Load(), ticks/1000, "too few births: this tested nothing")
				last := 0
				for deadline := range counted {
					n := counted[deadline].Load()
					if n < 0 || n > limit {
						t.Fatalf("the window that ends at %d holds %d of %d", deadline, n, limit)
					}
					if n == 0 {
						continue
					}
					if !refunds && deadline < last+decay {
						t.Fatalf("windows end at %d and at %d", last, deadline)
					}
					last = deadline
				}
			})
		})
	}
}

// TestCell_Conserved hammers one window: no unit may be lost or counted twice,
// and of callers released at once on a max of 1, one gets through.
func TestCell_Conserved(t *testing.T) {
	atProcs(t, func(t *testing.T) {
		var c Cell
		var sum atomic.Uint64
		n := rounds(200_000)
		together(seedOf(t), func(rng *rand.Rand) {
			for i := range n {
				cost := 1 + rng.Uint64N(10)
				if a := c.Admit(uint64(i), 1<<30, cost, CellCapacity); a.Verdict == Admitted {
					sum.Add(cost)
					if i%3 == 0 && c.Refund(a.Deadline, cost) {
						sum.Add(-cost)
					}
				}
			}
		})
		require.Equal(t, sum.Load(), c.word.Load()&cellMask)

		for i := range rounds(1_000) {
			var c Cell
			var admitted atomic.Uint64
			together(uint64(i), func(*rand.Rand) {
				if c.Admit(0, 10, 1, 1).Verdict == Admitted {
					admitted.Add(1)
				}
			})
			require.Equal(t, uint64(1), admitted.Load())
		}
	})
}
