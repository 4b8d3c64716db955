package atomicring

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	// batch is the most units that a charge takes in advance. It trades how
	// rarely a processor goes to the head against how many units can be lost when
	// the tick turns during a charge, which are batch - 1 at most.
	batch = 64

	// pad keeps words that different processors write on different cache lines,
	// and on different pairs of lines, which some processors fetch together.
	pad = 128
)

// A Striped is a [Ring] for one limit that all processors use at once. It
// decides as a Ring does, and as exactly. When callers contend for the head,
// each charges it for several units, spends what it needs, and leaves the others
// as credits on a stripe, one of a few words that processors have mostly to
// themselves. Later callers spend those without touching the head.
//
//	head    (e, total 40)   40 = 27 closed + 10 spent in e + 3 credits
//	stripes (e, 2)  (e, 1)  (e-1, sealed 4)  (0)
//
//	            e                                 e + 1
//	head        charge 8 ... charge 8 | frozen  | open ...
//	stripe 0    +7 -1 -1 ...          |  sealed | still sealed ... +7 -1
//	slot of e                         |         | 10 = total - closed - sealed
//	------------------------------------------------------------> time
//
// A full head is answered by stealing: the last units are found on whatever
// stripe they lie, before anybody is denied. To close a sub-window, all stripes
// are sealed first, and what they still hold was not spent in it.
//
// Where nobody contends, nothing of this happens, and no stripe is allocated.
//
// A Striped owns its layout and its ring. It is made by [NewStriped] and must
// not be copied. All methods may be called at once from any number of
// goroutines and are lock-free. The protocol and its proof are in the folder
// verify/models; names of steps and the letters C1 to C5 refer to it.
type Striped struct {
	_       [pad]byte // what is read on every call, apart from what others write
	layout  Layout
	plain   bool // never leave credits
	stripes atomic.Pointer[stripes]

	// on is the newest stamp in which a charge may leave credits. It only grows,
	// and is raised before such a charge: who reads the head at e and then on
	// below e knows that no credit of e exists. The stripes are there before.
	on atomic.Uint64
	// exact is the stamp that calls for the head alone end at, see Lower.
	exact atomic.Uint64

	_           [pad]byte
	ring        Ring
	_           [pad]byte
	undeposited atomic.Uint64
	_           [pad]byte
}

// stripes are as many as there are processors, rounded up to a power of two.
type stripes struct {
	_     [pad]byte // as in Striped
	words []stripe
	shift uint // 2 * len(words), as a shift
	_     [pad]byte
}

// A stripe is a word like the head: its flag means sealed, its count credits.
type stripe struct {
	word atomic.Uint64
	_    [pad - 8]byte
}

// NewStriped returns an empty ring of layout l for many processors. With plain
// it is a Ring that never leaves credits.
func NewStriped(l Layout, plain bool) *Striped {
	s := &Striped{layout: l, plain: plain}
	s.ring.init(&s.layout)
	return s
}

// Ring returns the ring that the units are counted in, for [Ring.Refund] of an
// admission. Its own Admit must not be used.
func (s *Striped) Ring() *Ring { return &s.ring }

// Admit counts cost units at epoch as [Ring.Admit] does, except that Total in
// the answer counts credits as if they were spent, and is 0 where it was not
// looked at.
func (s *Striped) Admit(epoch, cost, limit uint64) Admission {
	return s.decide(epoch, cost, limit, true)
}

// TryAdmit is Admit for a cost of 1 or more in the usual case, where there are no
// credits, as [Ring.TryAdmit] is of a Ring.
func (s *Striped) TryAdmit(epoch, cost, limit uint64) (total uint64, v Verdict, ok bool) {
	l := &s.layout
	x := l.stamp(epoch)
	h := s.ring.head.Load()
	total = h - l.open(x)                   // as in Ring.TryAdmit
	if total > l.mask || s.on.Load() >= x { // on is read after the head, see decide
		return 0, Denied, false
	}
	limit = min(limit, l.capacity)
	if total > limit || cost > limit-total {
		return total, Denied, true
	}
	yield()
	return total + cost, Admitted, s.ring.head.CompareAndSwap(h, h+cost)
}

// AdmitExact is Admit with a Total that does not count credits. It is exact
// where no other call is under way, and else an estimate.
func (s *Striped) AdmitExact(epoch, cost, limit uint64) Admission {
	return s.decide(epoch, cost, limit, false)
}

// decide is Admit with local, which lets the call spend and leave credits, and
// AdmitExact without. It tries the usual cases once.
func (s *Striped) decide(epoch, cost, limit uint64, local bool) Admission {
	l := &s.layout
	x := l.stamp(epoch)
	h := s.ring.head.Load()
	if h >= l.open(x) && h&l.frozen == 0 {
		limit := min(limit, l.capacity)
		e, total := l.stampOf(h), h&l.mask
		credits := s.on.Load() >= e // if not, none of that epoch exist: on was read after the head
		switch {
		case total > limit || cost > limit-total:
			if !credits || s.credits(e) == 0 && s.ring.head.Load() == h {
				return Admission{Denied, e - 1, total, 0}
			}
		case credits:
			if local && cost-1 < batch && x >= s.exact.Load() {
				if e := s.spend(x, cost); e > 0 {
					return Admission{Admitted, e - 1, 0, 0}
				}
			}
		default:
			yield()
			if cost == 0 || s.ring.head.CompareAndSwap(h, h+cost) {
				return Admission{Admitted, e - 1, total + cost, 0}
			}
			s.turnOn(e)
		}
	}
	a := s.admit(x, cost, limit, local)
	if !local && cost > 0 { // Peek, which answers for 0, has left them out
		a.Total -= min(a.Total, s.credits(a.Epoch+1))
	}
	return a
}

// admit is the whole of decide, starting over until one CAS or one look decides.
func (s *Striped) admit(x, cost, limit uint64, local bool) Admission {
	l := &s.layout
	open := l.open(x)
	limit = min(limit, l.capacity)
	// The caller has read the limit before: see Lower.
	local = local && cost-1 < batch && x >= s.exact.Load() // 1 to batch units
	var closed uint64
	for {
		if local && s.on.Load() >= x {
			if e := s.spend(x, cost); e > 0 {
				return Admission{Admitted, e - 1, 0, closed}
			}
		}
		h := s.ring.head.Load()
		switch {
		case h == retired:
			return Admission{Retired, 0, 0, closed}
		case cost == 0:
			a := s.Peek(x-1, 0, limit)
			a.Closed = closed
			return a
		case h == 0:
			yield()
			s.ring.open(0, open)
			continue
		case h < open || h&l.frozen != 0:
			closed += s.advance(h, x)
			continue
		}
		e, total := l.stampOf(h), h&l.mask
		if cost > limit {
			return Admission{Denied, e - 1, total, closed}
		}
		if total+cost > limit {
			if a, ok := s.gather(h, x, cost, limit); ok {
				a.Closed = closed
				return a
			}
			continue
		}
		k := cost
		if local && s.on.Load() >= e && x >= s.exact.Load() { // still, at e: see Lower
			k = max(cost, s.stripes.Load().charge(limit-total))
		}
		yield()
		if s.ring.head.CompareAndSwap(h, h+k) {
			s.deposit(e, k-cost)
			return Admission{Admitted, e - 1, total + cost, closed}
		}
		// Another admission, a refund or a freeze succeeded.
		s.turnOn(e)
	}
}

// turnOn lets charges leave credits in the epoch of stamp e and the next one.
func (s *Striped) turnOn(e uint64) {
	if s.plain {
		return
	}
	if s.stripes.Load() == nil {
		s.stripes.CompareAndSwap(nil, newStripes(max(runtime.GOMAXPROCS(0), runtime.NumCPU())))
	}
	for {
		on := s.on.Load()
		if on > e || s.on.CompareAndSwap(on, e+1) { // if it fails, another caller raised it
			return
		}
	}
}

func newStripes(processors int) *stripes {
	n, shift := 1, uint(1)
	for n < processors {
		n, shift = 2*n, shift+1
	}
	return &stripes{words: make([]stripe, n), shift: shift}
}

// charge returns how many units to take at once where room are left, 1 at
// least: so few that all processors can charge before the room is used up.
func (st *stripes) charge(room uint64) uint64 {
	return min(max(room>>(st.shift&63), 1), batch)
}

// A token is a guess at the stripe of the processor that a goroutine runs on.
// The pool keeps one for each processor, mostly. After a garbage collection a
// processor's first call registers with the pool anew, under a lock of the
// pool's.
type token struct {
	stripe uint32
	_      [pad - 4]byte
}

var (
	tokens    sync.Pool
	lastToken atomic.Uint32
)

func takeToken() *token {
	if t, ok := tokens.Get().(*token); ok {
		return t
	}
	return &token{stripe: lastToken.Add(1)}
}

// at returns the stripe that t points to.
func (st *stripes) at(t *token) *atomic.Uint64 {
	return &st.words[int(t.stripe)&(len(st.words)-1)].word
}

// spend takes cost credits off the caller's stripe if that has them and is open at
// stamp x or later, and returns the stamp they count in, else 0.
func (s *Striped) spend(x, cost uint64) (e uint64) {
	l := &s.layout
	open := l.open(x)
	t := takeToken()
	word := s.stripes.Load().at(t)
	for {
		w := word.Load()
		if w < open || w&l.frozen != 0 || w&l.mask < cost {
			break
		}
		yield()
		if word.CompareAndSwap(w, w-cost) {
			e = l.stampOf(w)
			break
		}
		// Another spender, a thief, a deposit or a seal succeeded. Move off a
		// stripe that is another processor's.
		t.stripe = rand.Uint32()
		word = s.stripes.Load().at(t)
	}
	tokens.Put(t)
	return e
}

// deposit leaves k units, charged in the epoch of stamp e, as credits on the
// caller's stripe. Where that is sealed, or has moved on, the epoch is closing:
// the units stay counted and nobody gets them, too strict by as much.
func (s *Striped) deposit(e, k uint64) {
	if k == 0 {
		return
	}
	l := &s.layout
	t := takeToken()
	word := s.stripes.Load().at(t)
	tokens.Put(t)
	for {
		w := word.Load()
		next := l.open(e) | k
		switch {
		case l.stampOf(w) > e || l.stampOf(w) == e && w&l.frozen != 0:
			s.undeposited.Add(k)
			return
		case l.stampOf(w) == e:
			next = w + k
		}
		yield()
		if word.CompareAndSwap(w, next) { // if it fails, a spender, a thief, another deposit or a seal succeeded
			return
		}
	}
}

// credits returns the sum of the credits of stamp e, those on sealed stripes
// too.
func (s *Striped) credits(e uint64) (sum uint64) {
	if s.on.Load() < e {
		return 0
	}
	l := &s.layout
	st := s.stripes.Load()
	for i := range st.words {
		if w := st.words[i].word.Load(); l.stampOf(w) == e {
			sum += w & l.mask
		}
	}
	return sum
}

// gather looks for the units that head word h is short of on the stripes. It
// returns the decision, or false where the caller has to start over.
func (s *Striped) gather(h, x, cost, limit uint64) (Admission, bool) {
	l := &s.layout
	e, total := l.stampOf(h), h&l.mask
	if credits := s.credits(e); total+cost > limit+credits {
		// Keeps C4: all of the room was in sight at one time.
		return Admission{Denied, e - 1, total, 0}, s.ring.head.Load() == h
	}
	st := s.stripes.Load()
	for i := range st.words {
		word := &st.words[i].word
		for {
			w := word.Load()
			if l.stampOf(w) != e || w&l.frozen != 0 || w&l.mask == 0 {
				break
			}
			k := min(total+cost-limit, w&l.mask)
			yield()
			if !word.CompareAndSwap(w, w-k) {
				continue // a spender, another thief, a deposit or a seal succeeded
			}
			if k == cost && total <= limit && x >= s.exact.Load() {
				return Admission{Admitted, e - 1, total, 0}, true
			}
			return s.settle(e, k, cost, limit)
		}
	}
	return Admission{}, false
}

// settle uses k units of the epoch of stamp e, taken off a stripe, towards cost
// if the head has the rest, and else gives them back to it. It returns the
// decision, or false where the caller has to start over.
func (s *Striped) settle(e, k, cost, limit uint64) (Admission, bool) {
	l := &s.layout
	for {
		h := s.ring.head.Load()
		if l.stampOf(h) != e || h&l.frozen != 0 {
			s.deposit(e, k)
			return Admission{}, false
		}
		total := h & l.mask
		enough := total+cost <= limit+k
		next := h - k
		if enough {
			next += cost
		}
		yield()
		if s.ring.head.CompareAndSwap(h, next) { // if it fails, an admission, a refund or a freeze succeeded
			return Admission{Admitted, e - 1, next & l.mask, 0}, enough
		}
	}
}

// advance is [Ring.advance] with the stripes sealed in between.
func (s *Striped) advance(h, x uint64) (closed uint64) {
	l := &s.layout
	if !s.ring.freeze(l, h) {
		return 0
	}
	h |= l.frozen
	unspent, ok := s.seal(l.stampOf(h))
	if !ok {
		return 0
	}
	return s.ring.closeFrozen(l, h, x, unspent)
}

// seal makes all stripes unusable in the epoch of stamp e, at which the head is
// frozen, and returns the credits that nobody spent (C3). It fails if the head
// has moved on.
func (s *Striped) seal(e uint64) (unspent uint64, ok bool) {
	if s.on.Load() < e {
		return 0, true
	}
	l := &s.layout
	sealed := l.open(e) | l.frozen
	st := s.stripes.Load()
	for i := range st.words {
		word := &st.words[i].word
		for {
			w := word.Load()
			if l.stampOf(w) > e {
				return 0, false
			}
			if l.stampOf(w) == e && w&l.frozen != 0 {
				unspent += w & l.mask
				break
			}
			next := sealed
			if l.stampOf(w) == e {
				next |= w & l.mask
			}
			yield()
			word.CompareAndSwap(w, next) // if it fails, a spender, a thief, a deposit or another seal succeeded
		}
	}
	return unspent, true
}

// Peek returns what AdmitExact would answer, and writes nothing.
func (s *Striped) Peek(epoch, cost, limit uint64) Admission {
	l := &s.layout
	x := l.stamp(epoch)
	for {
		h := s.ring.head.Load()
		yield()
		a := s.ring.peek(l, s.spent(h), x, cost, limit)
		if l.stampOf(s.ring.head.Load()) == l.stampOf(h) {
			return a
		}
	}
}

// RetryAfter answers as [Ring.RetryAfter], with credits not counted.
func (s *Striped) RetryAfter(epoch, cost, limit uint64) (retry, reset uint64, ok bool) {
	l := &s.layout
	x := l.stamp(epoch)
	for {
		h := s.ring.head.Load()
		yield()
		retry, reset, ok = s.ring.retryAfter(l, s.spent(h), x, cost, limit)
		if l.stampOf(s.ring.head.Load()) == l.stampOf(h) {
			return retry, reset, ok
		}
	}
}

// Snapshot answers as [Ring.Snapshot], with credits not counted.
func (s *Striped) Snapshot() []Slot {
	l := &s.layout
	for {
		h := s.ring.head.Load()
		yield()
		snapshot := s.ring.snapshot(l, s.spent(h))
		if l.stampOf(s.ring.head.Load()) == l.stampOf(h) {
			return snapshot
		}
	}
}

// spent returns head word h without the credits in its total. As it is written,
// with stampOf spelled out, the compiler just inlines it.
func (s *Striped) spent(h uint64) uint64 {
	if s.on.Load() < h>>(s.layout.shift&63) {
		return h
	}
	return s.withoutCredits(h)
}

func (s *Striped) withoutCredits(h uint64) uint64 {
	if h == 0 || h == retired {
		return h
	}
	l := &s.layout
	e := l.stampOf(h)
	yield()
	// Those of later charges may be among them, but never closed units.
	return h - min(s.credits(e), s.ring.openCount(l, h))
}

// Refund takes back cost units of an admission counted in epoch, as
// [Ring.Refund] does.
func (s *Striped) Refund(epoch, cost uint64) bool {
	l := &s.layout
	x := l.stamp(epoch)
	for {
		h := s.ring.head.Load()
		if h&l.frozen != 0 || l.stampOf(h) != x {
			return false
		}
		// As long as the head is h, credits are spent and none are added: what
		// the caller was admitted is not taken for one.
		if cost > s.ring.openCount(l, s.spent(h)) {
			if s.ring.head.Load() == h {
				return false
			}
			continue // an admission, another refund or a freeze succeeded
		}
		yield()
		// If it fails, an admission, another refund or a freeze succeeded.
		if s.ring.head.CompareAndSwap(h, h-cost) {
			return true
		}
	}
}

// Undeposited returns how many units were charged in advance and lost, since
// the tick turned before they could be left on a stripe.
func (s *Striped) Undeposited() uint64 { return s.undeposited.Load() }

// Lower calls store, which puts a lower limit in place, so that no credits
// charged under the old limit are spent by calls that read the new one: for a
// window from the epoch that store returns on, calls go to the head alone. Every
// caller reads the clock, then the limit, and then calls Admit; store puts the
// limit in place, and then reads the clock: so a call with the old limit is none
// of those after that window. Calls of Lower must not overlap.
func (s *Striped) Lower(store func() (epoch uint64)) {
	l := &s.layout
	s.exact.Store(retired)
	epoch := store()
	s.exact.Store(max(l.stamp(epoch), l.stampOf(s.ring.head.Load())) + l.slots)
}
