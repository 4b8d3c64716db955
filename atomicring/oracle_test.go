package atomicring

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// An oracle is the contract of the ring for one caller at a time, written to be
// read. The tests compare everything with it.
type oracle struct {
	now   uint64 // the newest epoch
	slots []Slot
}

func (o *oracle) admit(epoch, cost, limit uint64) bool {
	o.now = max(o.now, epoch) // a late caller is moved forward
	slot := &o.slots[o.now%uint64(len(o.slots))]
	if !slot.Used || slot.Epoch < o.now {
		*slot = Slot{Epoch: o.now, Used: true}
	}
	ok := o.total() <= limit && cost <= limit-o.total()
	if ok {
		slot.Count += cost
	}
	return ok
}

// total returns the units in the window that ends with the newest epoch.
func (o *oracle) total() (total uint64) {
	for _, s := range o.slots {
		if s.Used && s.Epoch+uint64(len(o.slots)) > o.now {
			total += s.Count
		}
	}
	return total
}

// A window is what the traces and the stress tests drive. Every implementation
// of the rolling window goes through the same tests.
type window interface {
	Open(epoch, count uint64)
	Admit(epoch, cost, limit uint64) Admission
	Peek(epoch, cost, limit uint64) Admission
	Refund(epoch, cost uint64) bool
	RetryAfter(epoch, cost, limit uint64) (retry, reset uint64, ok bool)
	Snapshot() []Slot
	Retire(epoch uint64) (open uint64, ok bool)
	Lost() uint64 // units that are counted and were never given out
}

// windows are the implementations, for one caller at a time.
var windows = map[string]func(l *Layout) window{
	"ring":        func(l *Layout) window { return bareRing{l.NewRing(), l} },
	"ring/loop":   func(l *Layout) window { return loopRing{bareRing{l.NewRing(), l}} },
	"mutex":       func(l *Layout) window { return newMutexRing(l) },
	"striped":     func(l *Layout) window { return &totals{stripedWindow: newStripedWindow(l, 0)} },
	"credits":     func(l *Layout) window { return &totals{stripedWindow: newStripedWindow(l, 2)} },
	"striped/try": func(l *Layout) window { return tryFirst{newStripedWindow(l, 0)} },
}

// racers are the implementations, for many callers.
var racers = map[string]func(l *Layout) window{
	"ring":              windows["ring"],
	"ring/loop":         windows["ring/loop"],
	"mutex":             windows["mutex"],
	"striped":           func(l *Layout) window { return newStripedWindow(l, 0) },
	"credits/stripes=1": func(l *Layout) window { return newStripedWindow(l, 1) },
	"credits/stripes=4": func(l *Layout) window { return newStripedWindow(l, 4) },
	"striped/try":       windows["striped/try"],
	"credits/try":       func(l *Layout) window { return tryFirst{newStripedWindow(l, 4)} },
}

// A bareRing is a Ring with its layout.
type bareRing struct {
	r *Ring
	l *Layout
}

func (b bareRing) Open(epoch, count uint64) { b.r.Open(b.l, epoch, count) }
func (b bareRing) Admit(epoch, cost, limit uint64) Admission {
	return b.r.Admit(b.l, epoch, cost, limit)
}
func (b bareRing) Peek(epoch, cost, limit uint64) Admission {
	return b.r.Peek(b.l, epoch, cost, limit)
}
func (b bareRing) Refund(epoch, cost uint64) bool { return b.r.Refund(b.l, epoch, cost) }
func (b bareRing) RetryAfter(epoch, cost, limit uint64) (uint64, uint64, bool) {
	return b.r.RetryAfter(b.l, epoch, cost, limit)
}
func (b bareRing) Snapshot() []Slot                   { return b.r.Snapshot(b.l) }
func (b bareRing) Retire(epoch uint64) (uint64, bool) { return b.r.Retire(b.l, epoch) }
func (b bareRing) Lost() uint64                       { return 0 }

// A loopRing is a Ring that never tries first.
type loopRing struct{ bareRing }

func (l loopRing) Admit(epoch, cost, limit uint64) Admission {
	return l.r.admit(l.l, epoch, cost, limit)
}

// A mutexRing is the reference: the oracle under a lock, with the limits of a
// layout, and everything beside admit by brute force.
type mutexRing struct {
	mu       sync.Mutex
	o        oracle
	retired  bool
	maxEpoch uint64
	capacity uint64
}

func newMutexRing(l *Layout) *mutexRing {
	return &mutexRing{o: oracle{slots: make([]Slot, l.Slots())}, maxEpoch: l.MaxEpoch(), capacity: l.Capacity()}
}

// open returns the slot of the newest epoch.
func (m *mutexRing) open() *Slot { return &m.o.slots[m.o.now%uint64(len(m.o.slots))] }

func (m *mutexRing) Open(epoch, count uint64) {
	m.o.now = min(epoch, m.maxEpoch)
	*m.open() = Slot{Epoch: m.o.now, Count: min(count, m.capacity), Used: true}
}

func (m *mutexRing) Admit(epoch, cost, limit uint64) Admission {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired {
		return Admission{Verdict: Retired}
	}
	if cost == 0 {
		return m.peek(epoch, cost, limit)
	}
	was, count := m.o.now, m.open().Count
	ok := m.o.admit(min(epoch, m.maxEpoch), cost, min(limit, m.capacity))
	a := Admission{Epoch: m.o.now, Total: m.o.total()}
	if ok {
		a.Verdict = Admitted
	}
	if m.o.now != was {
		a.Closed = count
	}
	return a
}

func (m *mutexRing) Peek(epoch, cost, limit uint64) Admission {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired {
		return Admission{Verdict: Retired}
	}
	return m.peek(epoch, cost, limit)
}

func (m *mutexRing) peek(epoch, cost, limit uint64) Admission {
	try := oracle{m.o.now, slices.Clone(m.o.slots)}
	a := Admission{}
	if try.admit(min(epoch, m.maxEpoch), cost, min(limit, m.capacity)) {
		a.Verdict = Admitted
	}
	now := oracle{try.now, m.o.slots}
	a.Epoch, a.Total = now.now, now.total()
	return a
}

func (m *mutexRing) Refund(epoch, cost uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	slot := m.open()
	if m.retired || !slot.Used || min(epoch, m.maxEpoch) != m.o.now || cost > slot.Count {
		return false
	}
	slot.Count -= cost
	return true
}

// RetryAfter tries one epoch after another.
func (m *mutexRing) RetryAfter(epoch, cost, limit uint64) (retry, reset uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	epoch, limit = min(epoch, m.maxEpoch), min(limit, m.capacity)
	o := m.o
	if m.retired {
		o = oracle{slots: make([]Slot, len(o.slots))}
	}
	if reset = epoch; o.total() > 0 {
		for o.now = max(epoch, o.now); o.total() > 0; o.now++ {
		}
		reset = o.now
	}
	if o = m.o; m.retired || !m.open().Used {
		o = oracle{slots: make([]Slot, len(o.slots))}
	}
	for retry = max(epoch, o.now) + 1; cost <= limit; retry++ {
		if try := (oracle{o.now, slices.Clone(o.slots)}); try.admit(retry, cost, limit) {
			return retry, reset, retry <= m.maxEpoch
		}
	}
	return 0, reset, false
}

func (m *mutexRing) Snapshot() []Slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired {
		return nil
	}
	return slices.Clone(m.o.slots)
}

func (m *mutexRing) Retire(epoch uint64) (open uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	slot := m.open()
	if m.retired || !slot.Used || min(epoch, m.maxEpoch) < m.o.now+uint64(len(m.o.slots)) {
		return 0, false
	}
	m.retired = true
	return slot.Count, true
}

func (m *mutexRing) Lost() uint64 { return 0 }

// A stripedWindow is a Striped with what the other windows have.
type stripedWindow struct {
	*Striped
}

// newStripedWindow returns a Striped that has contended for its head already,
// and leaves credits on so many stripes. With no stripes it is as it is made.
func newStripedWindow(l *Layout, stripes int) *stripedWindow {
	s := NewStriped(*l, false)
	if stripes > 0 {
		s.stripes.Store(newStripes(stripes))
		s.on.Store(l.maxStamp)
	}
	return &stripedWindow{s}
}

func (s *stripedWindow) Open(epoch, count uint64) { s.ring.Open(&s.layout, epoch, count) }
func (s *stripedWindow) Lost() uint64             { return s.Undeposited() }

// Retire is not for a Striped in use; it ends a test.
func (s *stripedWindow) Retire(epoch uint64) (open uint64, ok bool) {
	h := s.ring.head.Load()
	open, ok = s.ring.Retire(&s.layout, epoch)
	if ok {
		open -= h - s.spent(h)
		s.on.Store(0) // nobody looks at the stripes any more
	}
	return open, ok
}

// tryFirst is a Striped of which TryAdmit is asked first, as a limiter does.
type tryFirst struct{ *stripedWindow }

func (w tryFirst) Admit(epoch, cost, limit uint64) Admission {
	if cost > 0 {
		if total, v, ok := w.TryAdmit(epoch, cost, limit); ok {
			return Admission{Verdict: v, Epoch: w.layout.stamp(epoch) - 1, Total: total}
		}
	}
	return w.stripedWindow.Admit(epoch, cost, limit)
}

// totals is a Striped whose answers have the total without its credits, which
// is exact as long as one caller is alone: of every two, AdmitExact gives one.
type totals struct {
	*stripedWindow
	calls int
}

func (w *totals) Admit(epoch, cost, limit uint64) Admission {
	if w.calls++; w.calls%2 == 0 {
		return w.AdmitExact(epoch, cost, limit)
	}
	a := w.stripedWindow.Admit(epoch, cost, limit)
	if a.Verdict != Retired {
		a.Total = w.Peek(a.Epoch, 0, 0).Total
	}
	return a
}

// mustLayout returns a layout that is known to be valid.
func mustLayout(tb testing.TB, slots int, capacity uint64) *Layout {
	tb.Helper()
	l, err := NewLayout(slots, capacity)
	require.NoError(tb, err)
	return &l
}

// seedOf returns the seed of a test with random input: RINGFENCE_SEED, or a new
// one. A test that fails shows it.
func seedOf(tb testing.TB) uint64 {
	tb.Helper()
	seed := rand.Uint64()
	if s, ok := os.LookupEnv("RINGFENCE_SEED"); ok {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(tb, err, "RINGFENCE_SEED is %q", s)
	}
	tb.Logf("RINGFENCE_SEED=%d", seed)
	return seed
}

// rounds returns n, or fewer under the race detector and with -short.
func rounds(n int) int {
	if raceEnabled {
		n /= 10
	}
	if testing.Short() {
		n /= 10
	}
	return max(n, 1)
}
