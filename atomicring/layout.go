package atomicring

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// MaxSlots is the largest number of slots a [Layout] accepts.
const MaxSlots = 1 << 20

// retired is the head of a ring, or the word of a cell, that must no longer be
// used. No live word equals it: a frozen head is always below the largest
// epoch, and an open head has a zero in the place of F.
const retired = ^uint64(0)

// A Layout says how the words of a [Ring] are divided: the number of slots and
// the width of the count. It belongs to the owner of the rings, which may be
// millions, and not to each of them. A Layout is immutable; pass it by pointer
// to every method of the rings made with it, and to no other ring's.
type Layout struct {
	slots    uint64
	capacity uint64
	mask     uint64 // the count's bits
	frozen   uint64 // the bit F
	shift    uint   // C + 1, where the epoch begins
	maxStamp uint64 // the largest epoch + 1
}

// NewLayout returns the layout for rings of slots slots, 1 to [MaxSlots], each
// able to count up to capacity units, 1 to 1<<62 - 1. The count takes
// bits.Len64(capacity) bits, F one, and the epoch what is left.
func NewLayout(slots int, capacity uint64) (Layout, error) {
	if slots < 1 || slots > MaxSlots {
		return Layout{}, fmt.Errorf("atomicring: slots is %d, want 1 to %d", slots, MaxSlots)
	}
	if capacity < 1 || capacity >= 1<<62 {
		return Layout{}, fmt.Errorf("atomicring: capacity is %d, want 1 to %d", capacity, uint64(1<<62-1))
	}
	c := uint(bits.Len64(capacity))
	return Layout{
		slots:    uint64(slots),
		capacity: capacity,
		mask:     1<<c - 1,
		frozen:   1 << c,
		shift:    c + 1,
		maxStamp: 1<<(63-c) - 1,
	}, nil
}

// Slots returns the number of slots, N.
func (l *Layout) Slots() int { return int(l.slots) }

// Capacity returns the largest count a ring of this layout can hold. A larger
// limit acts as this one.
func (l *Layout) Capacity() uint64 { return l.capacity }

// MaxEpoch returns the largest epoch that fits. Larger ones are clamped to it:
// time stands still there, so a ring that reaches it becomes too strict, never
// too lax.
func (l *Layout) MaxEpoch() uint64 { return l.maxStamp - 1 }

// NewRing returns an empty ring. Its head has a cache line to itself.
func (l *Layout) NewRing() *Ring {
	r := &new(struct {
		Ring
		_ [64 - unsafe.Sizeof(Ring{})]byte
	}).Ring
	r.init(l)
	return r
}

// stamp returns epoch + 1, clamped. Words hold stamps, so that a zero word is
// one that was never used. Inside this package only stamps are compared.
func (l *Layout) stamp(epoch uint64) uint64 { return min(epoch, l.maxStamp-1) + 1 }

// open returns the word of an open head, or of a slot, with nothing counted
// yet. Every open or frozen head at this stamp or a later one is at least it.
func (l *Layout) open(stamp uint64) uint64 { return stamp << (l.shift & 63) }

// stampOf returns the stamp in word, 0 for a word never used.
func (l *Layout) stampOf(word uint64) uint64 { return word >> (l.shift & 63) }

// expired reports whether everything that a ring with head word h counts has
// expired at stamp x.
func (l *Layout) expired(h, x uint64) bool { return h > 0 && x >= l.stampOf(h)+l.slots }

// index returns the place of stamp's slot.
func (l *Layout) index(stamp uint64) uint64 { return (stamp - 1) % l.slots }

// sum adds up the counts of the closed sub-windows with stamps in
// (top - N, before). Words order by age, so it compares them whole; a word
// never used counts zero.
func (l *Layout) sum(slots []atomic.Uint64, top, before uint64) (total uint64) {
	oldest, end, mask := l.oldest(top), l.open(before), l.mask
	for i := range slots {
		if w := slots[i].Load(); w >= oldest && w < end {
			total += w & mask
		}
	}
	return total
}

// newest returns the newest word of the closed sub-windows with stamps in
// (e - N, e) that counts any, 0 if there is none. It leaves out e's own slot, in
// which the head's count may have been published already.
func (l *Layout) newest(slots []atomic.Uint64, e uint64) uint64 {
	oldest, at := l.oldest(e), l.index(e)
	for range len(slots) - 1 {
		if at == 0 {
			at = l.slots
		}
		at--
		if w := slots[at].Load(); w >= oldest && w&l.mask > 0 {
			return w
		}
	}
	return 0
}

// expire returns the last of the closed sub-windows with stamps in (e - N, e)
// that has to expire, oldest first, for units to be free, which they hold.
func (l *Layout) expire(slots []atomic.Uint64, e, units uint64) (last uint64) {
	oldest := l.oldest(e)
	next := l.index(e) + 1
	for _, part := range [...][]atomic.Uint64{slots[next:], slots[:next]} {
		for i := range part {
			if w := part[i].Load(); w >= oldest {
				if last = w; w&l.mask >= units {
					return last
				}
				units -= w & l.mask
			}
		}
	}
	return last
}

// oldest returns the word that all words of stamps after e - N are at least.
func (l *Layout) oldest(e uint64) uint64 { return l.open(max(e+1, l.slots) - l.slots) }
