package atomicring

import (
	"math"
	"math/bits"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestNewLayout_Bounds(t *testing.T) {
	for _, slots := range []int{1, 2, 11, MaxSlots} {
		for _, capacity := range []uint64{1, 2, 100, 1<<62 - 1} {
			l, err := NewLayout(slots, capacity)
			require.NoError(t, err)
			require.Equal(t, slots, l.Slots())
			require.Equal(t, capacity, l.Capacity())
		}
	}
	for _, slots := range []int{math.MinInt, -1, 0, MaxSlots + 1, math.MaxInt} {
		_, err := NewLayout(slots, 1)
		require.ErrorContains(t, err, "slots is ")
	}
	for _, capacity := range []uint64{0, 1 << 62, math.MaxUint64} {
		_, err := NewLayout(1, capacity)
		require.ErrorContains(t, err, "capacity is ")
	}
}

// The worked numbers of the package comment.
func TestLayout_WorkedWord(t *testing.T) {
	l := mustLayout(t, 4, 100)
	require.Equal(t, uint64(0x603), l.open(l.stamp(5))|3)
	require.Equal(t, uint64(0x683), l.open(l.stamp(5))|3|l.frozen)

	l = mustLayout(t, 11, 1<<29-1) // 100 ms: 34 bits of epoch beside 29 of count
	require.Equal(t, uint64(1<<34-2), l.MaxEpoch())
}

// FuzzLayout checks the word functions alone: what goes in comes out, words
// order by age, and no word of a ring is the retired one.
func FuzzLayout(f *testing.F) {
	f.Add(uint64(1), uint64(0), uint64(0), uint64(1))
	f.Add(uint64(100), uint64(5), uint64(3), uint64(4))
	f.Add(uint64(1<<29-1), uint64(1<<34-2), uint64(1<<29-1), uint64(1<<34))
	f.Add(uint64(1<<62-1), uint64(math.MaxUint64), uint64(math.MaxUint64), uint64(0))
	f.Fuzz(checkWords)
}

func checkWords(t *testing.T, capacity, epoch, count, other uint64) {
	capacity = max(capacity%(1<<62), 1)
	l := mustLayout(t, 4, capacity)
	count %= capacity + 1

	s := l.stamp(epoch)
	require.Equal(t, min(epoch, l.MaxEpoch())+1, s)
	w := l.open(s) | count
	require.Equal(t, s, l.stampOf(w))
	require.Equal(t, count, w&l.mask)
	require.Zero(t, w&l.frozen)
	require.NotEqual(t, retired, w)
	require.Equal(t, s, l.stampOf(w|l.frozen))
	require.Equal(t, count, (w|l.frozen)&l.mask)

	// Every bit has one owner.
	c := bits.Len64(capacity)
	require.Equal(t, uint64(1)<<c-1, l.mask)
	require.Equal(t, uint64(1)<<c, l.frozen)
	require.Equal(t, uint(c+1), l.shift)
	require.Equal(t, uint64(math.MaxUint64), l.open(l.maxStamp)|l.frozen|l.mask)

	// A head is frozen for a caller of a later epoch, so at the largest none is.
	if s < l.maxStamp {
		require.NotEqual(t, retired, w|l.frozen)
	}

	// Age decides before the count does, frozen or not.
	if o := l.stamp(other); o > s {
		require.Greater(t, l.open(o), w|l.frozen)
	} else if o == s {
		require.GreaterOrEqual(t, w, l.open(o))
	} else {
		require.Greater(t, w, l.open(o)|l.frozen|l.mask)
	}
}

func TestLayout_Words(t *testing.T) {
	edges := []uint64{0, 1, 2, 3, 1<<16 - 1, 1 << 16, 1<<32 - 1, 1 << 32, 1<<61 - 1, 1 << 61, 1 << 62, math.MaxUint64 - 1, math.MaxUint64}
	for c := range 62 {
		for _, capacity := range []uint64{1 << c, 1<<c + 1, 2<<c - 1} {
			end := uint64(1)<<(62-c) - 2
			for _, epoch := range append(edges, end-1, end, end+1) {
				checkWords(t, capacity, epoch, capacity, end)
				checkWords(t, capacity, epoch, 0, epoch-1)
				checkWords(t, capacity, epoch, 1, epoch+1)
			}
		}
	}
}

// TestLayout_Sum checks both ends of the sum: (top - N, before).
func TestLayout_Sum(t *testing.T) {
	for _, base := range []uint64{0, 1, 5, 1 << 32} {
		l := mustLayout(t, 4, 100)
		r := l.NewRing()
		slots := r.slots(l)
		for i := range uint64(4) { // epochs base .. base+3 hold 1, 10, 100, 1000
			s := base + i + 1
			slots[l.index(s)].Store(l.open(s) | []uint64{1, 2, 4, 8}[i])
		}
		sum := func(top, before uint64) uint64 { return l.sum(slots, base+1+top, base+1+before) }
		require.Equal(t, uint64(15), sum(3, 4), "all")
		require.Equal(t, uint64(7), sum(3, 3), "before excludes its own stamp")
		require.Equal(t, uint64(14), sum(4, 5), "top - N is out of the window")
		require.Equal(t, uint64(6), sum(4, 3))
		require.Equal(t, uint64(8), sum(6, 7))
		require.Equal(t, uint64(0), sum(7, 8))
		require.Equal(t, uint64(0), sum(1<<20, 1<<20))
		require.Equal(t, uint64(0), sum(0, 0))
	}
	l := mustLayout(t, 4, 100)
	require.Zero(t, l.sum(l.NewRing().slots(l), 1, 1), "words never used")
	require.Zero(t, l.sum(l.NewRing().slots(l), l.maxStamp, l.maxStamp))
}

func TestLayout_Index(t *testing.T) {
	for _, slots := range []int{1, 2, 3, 11, 64, MaxSlots} {
		l := mustLayout(t, slots, 1)
		for _, epoch := range []uint64{0, 1, 10, 11, 12, 1 << 16, 1<<32 - 1, 1 << 32, 1<<61 + 3, l.MaxEpoch()} {
			require.Equal(t, epoch%uint64(slots), l.index(l.stamp(epoch)))
		}
	}
}

// TestRing_Size keeps the memory promise: two words that an owner may have beside
// something else, and N + 1 words in one object.
func TestRing_Size(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) == 8 {
		require.Equal(t, uintptr(16), unsafe.Sizeof(Ring{}))
	}
	require.Equal(t, uintptr(0), unsafe.Offsetof(Ring{}.head))
	l := mustLayout(t, 11, 1<<29-1)
	require.Len(t, l.NewRing().slots(l), 11)

	const rings = 1000
	bytes, objects := uint64(math.MaxUint64), uint64(math.MaxUint64)
	for range 20 { // the least of several: the test's own runtime allocates too
		owned := make([]Ring, rings)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range owned {
			owned[i].Open(l, 0, 0)
		}
		runtime.ReadMemStats(&after)
		bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
		objects = min(objects, after.Mallocs-before.Mallocs)
	}
	require.Equal(t, uint64(96), bytes/rings, "bytes of 11 slots")
	require.Equal(t, uint64(1), objects/rings)
}

// TestLayout_NewRingLines: the heads of two rings are in different lines of 64
// bytes.
func TestLayout_NewRingLines(t *testing.T) {
	l := mustLayout(t, 11, 1000)
	lines := map[uintptr]*Ring{}
	for range 100 {
		r := l.NewRing()
		line := uintptr(unsafe.Pointer(r)) / 64
		require.NotContains(t, lines, line)
		lines[line] = r
	}
}

// TestRing_Owned: a zero Ring of an owner's is one once it was opened, and has
// nothing but its own slots.
func TestRing_Owned(t *testing.T) {
	for _, slots := range []int{1, 2, 11, 100} {
		l := mustLayout(t, slots, 1000)
		var owned [2]Ring
		in, out, idle := &owned[0], l.NewRing(), &owned[1]
		for _, r := range []*Ring{in, out, idle} {
			r.Open(l, 3, 5)
		}
		for epoch := range uint64(5 * slots) {
			require.Equal(t, out.Admit(l, epoch, epoch%3, 1000), in.Admit(l, epoch, epoch%3, 1000))
			require.Equal(t, out.Snapshot(l), in.Snapshot(l))
			require.Len(t, in.Snapshot(l), slots)
		}
		require.Equal(t, Admission{Admitted, 3, 5, 0}, idle.Peek(l, 3, 0, 1000))
		require.PanicsWithValue(t, "atomicring: a zero Ring has to be opened by Open before it is used", func() { new(Ring).Admit(l, 0, 1, 1) })
	}
}
