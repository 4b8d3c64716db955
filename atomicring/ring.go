package atomicring

import (
	"sync/atomic"
	"unsafe"
)

// A Verdict is the answer of a ring or a cell.
type Verdict uint8

const (
	// Denied: the units do not fit; nothing was counted.
	Denied Verdict = iota
	// Admitted: the units fit, and Admit has counted them.
	Admitted
	// Retired: this state is dead, its owner has to look for the current one.
	// Nothing was counted.
	Retired
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case Admitted:
		return "admitted"
	case Denied:
		return "denied"
	case Retired:
		return "retired"
	}
	return "unknown"
}

// An Admission is what a ring answers to [Ring.Admit] and [Ring.Peek].
type Admission struct {
	// Verdict says whether the units fit.
	Verdict Verdict
	// Epoch is the one the units are counted in, or were denied in. It is later
	// than the caller's where the caller was late.
	Epoch uint64
	// Total is the number of units in the N epochs that end with Epoch: after
	// the admission, or as it was at the denial.
	Total uint64
	// Closed is the number of units in the sub-windows that this very call
	// closed, each sub-window reported to one caller only. Added up over the
	// calls, and over [Ring.Retire], it is what the ring has admitted.
	Closed uint64
}

// A Ring counts units over a rolling window of N sub-windows, N being the slots
// of its [Layout]. It decides by its head word alone; see the package comment
// for the words and the algorithm.
//
// The words that decide are apart from the others, which are written once a tick
// and read for details: of a million rings, the heads fit into a processor's caches
// sooner than the slots.
//
// A Ring is made by [Layout.NewRing], or is a zero Ring of its owner's that is
// opened by [Ring.Open], once and before all else; it must not be copied. All
// methods may be called at once from any number of goroutines and are lock-free: a
// CAS fails only where another caller's succeeded. Admissions and refunds are exact
// and linearizable, a denial too. A denial at an epoch that is already open
// writes nothing. No method allocates but [Ring.Open], once, and [Ring.Snapshot].
type Ring struct {
	head atomic.Uint64
	// opened is the head as it was when its epoch was opened, or when an earlier
	// one was, and the first of N + 1 words: the slots follow.
	opened *atomic.Uint64
}

// init gives an empty ring its other words.
func (r *Ring) init(l *Layout) { r.opened = &make([]atomic.Uint64, 1+l.slots)[0] }

// slots returns the slot words.
func (r *Ring) slots(l *Layout) []atomic.Uint64 {
	n := 1 + l.slots
	return (*[1 + MaxSlots]atomic.Uint64)(unsafe.Pointer(r.opened))[1:n:n] // checks less than unsafe.Slice
}

// open moves the head from word h on to next, the first one of its epoch, and
// reports whether it did.
func (r *Ring) open(h, next uint64) bool {
	if !r.head.CompareAndSwap(h, next) { // if it fails, another caller moved it on
		return false
	}
	yield()
	r.opened.Store(next)
	return true
}

// openCount returns the count of head word h's own sub-window, which is not in a
// slot yet. The answer is right if the head is at the same epoch afterwards. As it
// is written, the compiler just inlines it.
func (r *Ring) openCount(l *Layout, h uint64) (count uint64) {
	if count = h - r.opened.Load(); count > l.mask { // opened is of another epoch, or h frozen
		count = r.addUp(l, h)
	}
	return
}

func (r *Ring) addUp(l *Layout, h uint64) uint64 {
	yield()
	e := l.stampOf(h)
	return h&l.mask - l.sum(r.slots(l), e, e)
}

// Open gives a ring that nobody else holds yet its first epoch, with count
// units in it, and a zero Ring its other words. A ring that replaces another one
// has to be opened before it is shared, at no less than the floor that was raised
// before the other one was retired: see Birth in the package comment.
func (r *Ring) Open(l *Layout, epoch, count uint64) {
	if r.opened == nil {
		r.init(l)
	}
	word := l.open(l.stamp(epoch))
	r.opened.Store(word)
	r.head.Store(word + min(count, l.capacity))
}

// Admit counts cost units at epoch if the N epochs that end there then hold at
// most limit, and reports how it decided. A limit above the capacity acts as
// the capacity. A caller with an epoch older than the ring's is late and is
// decided, and counted, at the ring's. A cost of 0 is admitted when the total
// is not above the limit, and writes nothing.
func (r *Ring) Admit(l *Layout, epoch, cost, limit uint64) Admission {
	if cost > 0 {
		if total, v, ok := r.TryAdmit(l, epoch, cost, limit); ok {
			return Admission{v, l.stamp(epoch) - 1, total, 0}
		}
	}
	return r.admit(l, epoch, cost, limit)
}

// admit is Admit in every case.
func (r *Ring) admit(l *Layout, epoch, cost, limit uint64) Admission {
	x := l.stamp(epoch)
	open := l.open(x)
	limit = min(limit, l.capacity)
	var closed uint64
	for {
		h := r.head.Load()
		if h >= open && h&l.frozen == 0 {
			total := h & l.mask
			if total > limit || cost > limit-total {
				return Admission{Denied, l.stampOf(h) - 1, total, closed}
			}
			yield()
			// Keeps I1: the word says everything that the decision rests on. If
			// it fails, an admission, a refund, a freeze or a retirement succeeded.
			if cost == 0 || r.head.CompareAndSwap(h, h+cost) {
				return Admission{Admitted, l.stampOf(h) - 1, total + cost, closed}
			}
			continue
		}
		if h == retired {
			return Admission{Retired, 0, 0, closed}
		}
		if cost == 0 {
			a := r.Peek(l, epoch, 0, limit)
			a.Closed = closed
			return a
		}
		if h == 0 {
			if r.opened == nil { // else it would be found out a tick later
				panic("atomicring: a zero Ring has to be opened by Open before it is used")
			}
			yield()
			r.open(0, open)
			continue
		}
		closed += r.advance(l, h, x)
	}
}

// TryAdmit is [Ring.Admit] for a cost of 1 or more in the usual case, without a
// call, for it is inlined: it decides if the ring is open at this very epoch, and no
// other call comes between. Where it reports false it has done nothing, and Admit
// has to decide.
func (r *Ring) TryAdmit(l *Layout, epoch, cost, limit uint64) (total uint64, v Verdict, ok bool) {
	h := r.head.Load()
	// The count, if the head is open at this epoch. Every other word is further off
	// than the largest count: a frozen one by F, a later one by an epoch, an earlier
	// one, that of no epoch and the retired one round the end.
	total = h - l.open(l.stamp(epoch))
	limit = min(limit, l.capacity)
	if total > limit || cost > limit-total {
		return total, Denied, total <= l.mask
	}
	yield()
	return total + cost, Admitted, r.head.CompareAndSwap(h, h+cost) // if it fails, see Admit
}

// advance closes the sub-window that head word h counts and opens the one of
// stamp x, or the next one where x is not later. It does one attempt at what is
// left to do and returns the count of the sub-window if it was this call that
// moved the head on, else 0.
func (r *Ring) advance(l *Layout, h, x uint64) (closed uint64) {
	if !r.freeze(l, h) {
		return 0
	}
	return r.closeFrozen(l, h|l.frozen, x, 0)
}

// freeze makes head word h a frozen one, unless it is, and reports whether it
// was still the head.
func (r *Ring) freeze(l *Layout, h uint64) bool {
	if h&l.frozen != 0 {
		return true
	}
	yield()
	// If it fails, an admission, a refund or another freeze succeeded.
	return r.head.CompareAndSwap(h, h|l.frozen)
}

// closeFrozen is advance for a frozen head word h, of whose total unspent units
// were never given out.
func (r *Ring) closeFrozen(l *Layout, h, x, unspent uint64) (closed uint64) {
	// Keeps I2: until the last CAS no count changes, so that all who come here
	// compute the same numbers. Those who come too late fail every CAS.
	e := l.stampOf(h)
	slots := r.slots(l)
	slot := &slots[l.index(e)]
	yield() // it may be too late already
	old := slot.Load()
	yield()
	count := r.openCount(l, h&^l.frozen) - unspent
	yield()
	if r.head.Load() != h { // not before, for who is late has counted what is newer
		return 0
	}
	yield()
	slot.CompareAndSwap(old, l.open(e)|count) // if it fails, another helper published the same
	next := max(x, e+1)
	total := l.sum(slots, next, next)
	yield()
	if !r.open(h, l.open(next)|total) {
		return 0
	}
	return count
}

// Peek returns what [Ring.Admit] would answer, and writes nothing: Total is
// what is counted now at Epoch.
func (r *Ring) Peek(l *Layout, epoch, cost, limit uint64) Admission {
	x := l.stamp(epoch)
	for {
		h := r.head.Load()
		yield()
		a := r.peek(l, h, x, cost, limit)
		if l.stampOf(r.head.Load()) == l.stampOf(h) {
			return a
		}
	}
}

// peek answers for head word h. The answer is right if the head is at the same
// epoch afterwards, for until then the closed sub-windows stay as they are.
func (r *Ring) peek(l *Layout, h, x, cost, limit uint64) Admission {
	if h == retired {
		return Admission{Verdict: Retired}
	}
	e, total := l.stampOf(h), h&l.mask
	at := max(x, e)
	if h&l.frozen != 0 {
		at = max(x, e+1)
	}
	if at > e {
		open := r.openCount(l, h)
		total = l.sum(r.slots(l), at, e)
		if e+l.slots > at {
			total += open
		}
	}
	limit = min(limit, l.capacity)
	verdict := Admitted
	if total > limit || cost > limit-total {
		verdict = Denied
	}
	return Admission{Verdict: verdict, Epoch: at - 1, Total: total}
}

// Refund takes back cost units of an admission that was counted in epoch and
// reports whether it did. It can as long as epoch is open and holds that many
// units; later the units stay counted until they expire. A retired ring refunds
// nothing.
func (r *Ring) Refund(l *Layout, epoch, cost uint64) bool {
	x := l.stamp(epoch)
	for {
		h := r.head.Load()
		if h&l.frozen != 0 || l.stampOf(h) != x {
			return false
		}
		yield()
		// Keeps I3: a refund of more than the sub-window holds would eat into
		// the closed ones, which do not change while the head is at x.
		if cost > r.openCount(l, h) {
			return false
		}
		yield()
		// If it fails, an admission, another refund, a freeze or a retirement succeeded.
		if r.head.CompareAndSwap(h, h-cost) {
			return true
		}
	}
}

// RetryAfter returns two epochs, as they are if nobody takes or refunds
// anything more: retry, the earliest after the caller's and after the open one
// in which cost units fit, and reset, the earliest in which everything counted
// has expired, the caller's own at least. ok is false where no wait helps: cost
// is above limit, or retry is above the largest epoch. Called on a retired ring
// it answers as for an empty one.
func (r *Ring) RetryAfter(l *Layout, epoch, cost, limit uint64) (retry, reset uint64, ok bool) {
	x := l.stamp(epoch)
	for {
		h := r.head.Load()
		yield()
		retry, reset, ok = r.retryAfter(l, h, x, cost, limit)
		if l.stampOf(r.head.Load()) == l.stampOf(h) {
			return retry, reset, ok
		}
	}
}

// retryAfter answers for head word h, with the same proviso as peek.
func (r *Ring) retryAfter(l *Layout, h, x, cost, limit uint64) (retry, reset uint64, ok bool) {
	limit = min(limit, l.capacity)
	if h == retired || h == 0 {
		return x, x - 1, cost <= limit && x < l.maxStamp
	}
	total, e := h&l.mask, l.stampOf(h)
	open, newest := r.openCount(l, h), h
	if open == 0 {
		newest = l.newest(r.slots(l), e)
	}
	reset = x
	if newest > 0 {
		reset = max(reset, l.stampOf(newest)+l.slots)
	}
	retry = max(x, e)
	if room := limit - min(cost, limit); total > room {
		// Sub-windows have to expire until no more than room is counted.
		last := h
		if open <= room {
			last = l.expire(r.slots(l), e, total-room)
		}
		retry = max(retry, l.stampOf(last)+l.slots-1)
	}
	return retry, reset - 1, cost <= limit && retry < l.maxStamp
}

// A Slot is one sub-window as [Ring.Snapshot] shows it.
type Slot struct {
	Epoch uint64
	Count uint64
	Used  bool // false for a slot that was never used
}

// Snapshot returns all slots as they stood at one instant, by index: the slot
// of epoch e is at e mod N, and slots keep an expired sub-window until a newer
// one takes their place. It returns nil for a retired ring.
func (r *Ring) Snapshot(l *Layout) []Slot {
	for {
		h := r.head.Load()
		yield()
		snapshot := r.snapshot(l, h)
		if l.stampOf(r.head.Load()) == l.stampOf(h) {
			return snapshot
		}
	}
}

// snapshot answers for head word h, with the same proviso as peek.
func (r *Ring) snapshot(l *Layout, h uint64) []Slot {
	if h == retired {
		return nil
	}
	snapshot := make([]Slot, l.slots)
	slots := r.slots(l)
	for i := range slots {
		w := slots[i].Load()
		s := l.stampOf(w)
		snapshot[i] = Slot{Epoch: max(s, 1) - 1, Count: w & l.mask, Used: s > 0}
	}
	if e := l.stampOf(h); e > 0 {
		snapshot[l.index(e)] = Slot{Epoch: e - 1, Count: r.openCount(l, h), Used: true}
	}
	return snapshot
}

// Retire kills the ring if everything in it has expired at epoch: no call
// admits anything on it afterwards, they all report [Retired]. It reports
// whether it did, with the units of the sub-window that was still open. A ring
// that was never used is not retired.
//
// Before it retires a ring that will be replaced, its owner raises a floor to
// epoch: see Birth in the package comment.
func (r *Ring) Retire(l *Layout, epoch uint64) (open uint64, ok bool) {
	x := l.stamp(epoch)
	for {
		h := r.head.Load()
		if h == retired || !l.expired(h, x) {
			return 0, false
		}
		if open, ok = r.kill(l, h); ok {
			return open, true
		}
	}
}

// Expired reports whether the ring is retired, or would be by [Ring.Retire] at
// epoch.
func (r *Ring) Expired(l *Layout, epoch uint64) bool {
	h := r.head.Load()
	return h == retired || l.expired(h, l.stamp(epoch))
}

// Discard kills the ring whatever it holds, as [Ring.Retire] does an expired
// one. What it counted is forgotten: a ring that replaces it may admit up to
// the limit at once.
func (r *Ring) Discard(l *Layout) (open uint64, ok bool) {
	for {
		h := r.head.Load()
		if h == retired {
			return 0, false
		}
		if open, ok = r.kill(l, h); ok {
			return open, true
		}
	}
}

// kill retires the ring if its head is still h.
func (r *Ring) kill(l *Layout, h uint64) (open uint64, ok bool) {
	yield()
	open = r.openCount(l, h)
	yield()
	// If it fails, an admission, a refund, a freeze, a helper or another
	// retirement succeeded.
	return open, r.head.CompareAndSwap(h, retired)
}
