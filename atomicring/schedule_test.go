//go:build yieldhook

package atomicring

import (
	"fmt"
	"iter"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// explore runs the threads of a scenario one at a time, switching only where
// the code calls yield, in every order that has at most preemptions switches
// away from a thread that could have gone on. After every step it calls check,
// which reports what is wrong. It returns the number of orders.
//
// A thread does at most one CAS between two yields, so check sees every word
// that there ever is.
//
// RINGFENCE_PREEMPTIONS replaces the bound: 5 takes minutes.
func explore(t *testing.T, preemptions int, scenario func() (threads []func(), check func() error)) (orders int) {
	t.Helper()
	if raceEnabled {
		preemptions--
	}
	if s, ok := os.LookupEnv("RINGFENCE_PREEMPTIONS"); ok {
		var err error
		preemptions, err = strconv.Atoi(s)
		require.NoError(t, err, "RINGFENCE_PREEMPTIONS is %q", s)
	}
	random := yield
	defer func() { yield = random }()

	type choice struct{ taken, of int }
	var choices []choice // of the order under way, the first of them given
	for {
		threads, check := scenario()
		resume := make([]func() (struct{}, bool), len(threads))
		pause := make([]func(struct{}) bool, len(threads))
		running := -1
		var live []int
		for i, thread := range threads {
			resume[i], _ = iter.Pull(func(yield func(struct{}) bool) {
				pause[i] = yield
				thread()
			})
			live = append(live, i)
		}
		yield = func() {
			if running >= 0 { // check may yield, too
				pause[running](struct{}{})
			}
		}

		var order []int
		last, left := -1, preemptions
		for depth := 0; len(live) > 0; depth++ {
			options := live
			if i := slices.Index(live, last); i >= 0 {
				options = []int{last} // staying is free
				if left > 0 {
					options = append(options, slices.Delete(slices.Clone(live), i, i+1)...)
				}
			}
			if depth == len(choices) {
				choices = append(choices, choice{0, len(options)})
			}
			// A thread that chooses at random may not have come here as before.
			next := options[min(choices[depth].taken, len(options)-1)]
			if len(options) > 0 && options[0] == last && next != last {
				left--
			}
			last = next
			order = append(order, next)
			running = next
			_, more := resume[next]()
			running = -1
			if !more {
				live = slices.Delete(slices.Clone(live), slices.Index(live, next), slices.Index(live, next)+1)
			}
			if err := check(); err != nil {
				t.Fatalf("after the threads ran in the order %v: %v", order, err)
			}
		}

		orders++
		// The next order: another choice at the latest step that has one left.
		for len(choices) > 0 && choices[len(choices)-1].taken+1 >= choices[len(choices)-1].of {
			choices = choices[:len(choices)-1]
		}
		if len(choices) == 0 {
			t.Logf("%d orders", orders)
			return orders
		}
		choices[len(choices)-1].taken++
	}
}

// perform returns what [explore] wants of programs, each a thread's calls on w:
// the threads, and a check of w after every step and at the end.
func perform[W interface {
	check() error
	end() error
}, P ~[]func(W)](w W, programs []P) (threads []func(), check func() error) {
	left := len(programs)
	for _, p := range programs {
		threads = append(threads, func() {
			for _, call := range p {
				call(w)
			}
			left--
		})
	}
	return threads, func() error {
		if err := w.check(); err != nil || left > 0 {
			return err
		}
		return w.end()
	}
}

// A ringWatch knows what the calls on a ring reported, and compares every word
// of the ring with it after every step. I1 to I7 are those of the package
// comment.
type ringWatch struct {
	r        *Ring
	l        *Layout
	s        *stripedWindow // has r for its ring, and no credits
	try      bool           // TryAdmit is asked first, and readers ask the Striped
	limit    uint64
	counted  map[uint64]uint64 // by epoch
	admitted uint64
	closed   uint64
	before   []uint64
	reads    []*read
	wrong    error // an answer that was wrong
}

// A read is a question under way, with the answers that it would have had so
// far if it had taken no time.
type read struct {
	ask     func() any
	answers []any
}

// ask asks now, and checks that the answer was right at some time since.
func (w *ringWatch) ask(ask func() any) {
	q := &read{ask: ask}
	w.reads = append(w.reads, q)
	answer := ask()
	w.reads = slices.DeleteFunc(w.reads, func(r *read) bool { return r == q })
	if !slices.ContainsFunc(append(q.answers, ask()), func(a any) bool { return reflect.DeepEqual(a, answer) }) {
		w.wrong = fmt.Errorf("the answer was %+v, and should have been one of %+v", answer, q.answers)
	}
}

// read asks by way of everything that only reads.
func (w *ringWatch) read(by window, epoch uint64) {
	w.ask(func() any { return by.Peek(epoch, 1, w.limit) })
	w.ask(func() any { return retryOf(by, epoch, w.limit-1, w.limit) })
	w.ask(func() any { return retryOf(by, epoch, w.limit, w.limit) })
	w.ask(func() any { return by.Snapshot() })
}

func newRingWatch(t *testing.T, slots int, limit uint64) *ringWatch {
	s := NewStriped(*mustLayout(t, slots, limit), true)
	r, l := &s.ring, &s.layout
	return &ringWatch{r: r, l: l, s: &stripedWindow{s}, limit: limit, counted: map[uint64]uint64{}, before: words(r, l)}
}

func (w *ringWatch) admit(epoch, cost uint64) Admission {
	ring := bareRing{w.r, w.l}
	ask := loopRing{ring}.Admit
	if w.try {
		ask = ring.Admit
	}
	a := ask(epoch, cost, w.limit)
	w.closed += a.Closed
	if a.Verdict == Admitted {
		w.counted[a.Epoch] += cost
		w.admitted += cost
	}
	if a.Verdict == Admitted && (a.Epoch < epoch || a.Total > w.limit || a.Total < cost) {
		w.wrong = fmt.Errorf("Admit(%d, %d) = %+v", epoch, cost, a)
	}
	return a
}

func (w *ringWatch) refund(epoch, cost uint64) {
	if w.r.Refund(w.l, epoch, cost) {
		if w.counted[epoch] < cost {
			w.wrong = fmt.Errorf("Refund(%d, %d) of %d", epoch, cost, w.counted[epoch])
		}
		w.counted[epoch] -= cost
		w.admitted -= cost
	}
}

func (w *ringWatch) retire(epoch uint64) {
	if open, ok := w.r.Retire(w.l, epoch); ok {
		w.closed += open
		for e, n := range w.counted {
			if n > 0 && e+w.l.slots > epoch {
				w.wrong = fmt.Errorf("Retire(%d) with %d units in %d", epoch, n, e)
			}
		}
	}
}

// sum returns what is counted in the epochs (top - N, top].
func (w *ringWatch) sum(top uint64) (sum uint64) {
	for e, n := range w.counted {
		if e <= top && e+w.l.slots > top {
			sum += n
		}
	}
	return sum
}

// check returns what is wrong with the step that was just taken.
func (w *ringWatch) check() error {
	if w.wrong != nil {
		return w.wrong
	}
	for _, q := range w.reads {
		q.answers = append(q.answers, q.ask())
	}
	now := words(w.r, w.l)
	before := w.before
	w.before = now
	changed := 0
	for i := range now {
		if now[i] != before[i] {
			changed++
		}
	}
	if changed > 1 {
		return fmt.Errorf("%d words changed at once: %x, %x", changed, before, now)
	}

	l := w.l
	was, is := before[0], now[0]
	e := l.stampOf(is) - 1
	switch frozen := was&l.frozen != 0; {
	case is == was:
	case was == retired:
		return fmt.Errorf("I6: the retired head became %x", is)
	case is == retired || was == 0:
	case l.stampOf(is) < l.stampOf(was):
		return fmt.Errorf("I4: the head went back from %x to %x", was, is)
	case l.stampOf(is) > l.stampOf(was) && !frozen:
		return fmt.Errorf("I2: the head moved on from %x to %x unfrozen", was, is)
	case l.stampOf(is) == l.stampOf(was) && frozen:
		return fmt.Errorf("I5: the frozen head %x became %x", was, is)
	case l.stampOf(is) == l.stampOf(was) && is&l.frozen != 0 && is != was|l.frozen:
		return fmt.Errorf("I2: the freeze of %x made it %x", was, is)
	}
	if is != retired && is != 0 && is&l.mask != w.sum(e) {
		return fmt.Errorf("I3: head %x, but the window of %d holds %d", is, e, w.sum(e))
	}
	if err := checkOpened(w.r, l); err != nil {
		return err
	}
	for i := 1; i < len(now)-1; i++ {
		s := l.stampOf(now[i])
		if s < l.stampOf(before[i]) {
			return fmt.Errorf("I4: slot %d went back from %x to %x", i-1, before[i], now[i])
		}
		if s == 0 {
			continue
		}
		if is != retired && (s > e+1 || s == e+1 && is&l.frozen == 0) {
			return fmt.Errorf("I2: slot %d is %x under head %x", i-1, now[i], is)
		}
		if l.index(s) != uint64(i-1) || now[i]&l.mask != w.counted[s-1] {
			return fmt.Errorf("I3: slot %d is %x, but %d holds %d", i-1, now[i], s-1, w.counted[s-1])
		}
	}
	for top := range w.counted {
		for e := top; e < top+w.l.slots; e++ {
			if w.sum(e) > w.limit {
				return fmt.Errorf("the window of %d holds %d of %d", e, w.sum(e), w.limit)
			}
		}
	}
	return nil
}

// checkOpened returns what is wrong with what a ring has written down of how its
// head began.
func checkOpened(r *Ring, l *Layout) error {
	h, opened := r.head.Load(), r.opened.Load()
	e := l.stampOf(h)
	if l.stampOf(opened) > e || opened&l.frozen != 0 || l.stampOf(opened) == e && opened&l.mask != l.sum(r.slots(l), e, e) {
		return fmt.Errorf("I7: head %x began as %x, but %d are closed", h, opened, l.sum(r.slots(l), e, e))
	}
	return nil
}

// end checks, where all threads have ended, that nothing was lost on the way.
func (w *ringWatch) end() error {
	open := uint64(0)
	if h := w.r.head.Load(); h != retired && h != 0 {
		open, _ = w.r.kill(w.l, h)
	}
	if w.closed+open != w.admitted {
		return fmt.Errorf("admitted %d, closed %d, open %d", w.admitted, w.closed, open)
	}
	return nil
}

// TestSchedule_Ring goes through all orders of a few small programs.
func TestSchedule_Ring(t *testing.T) {
	type program []func(w *ringWatch)
	admit := func(epochs ...uint64) program {
		var p program
		for _, e := range epochs {
			p = append(p, func(w *ringWatch) { w.admit(e, 1) })
		}
		return p
	}
	admitRefund := func(epoch uint64) program {
		return program{func(w *ringWatch) {
			if a := w.admit(epoch, 1); a.Verdict == Admitted {
				yield()
				w.refund(a.Epoch, 1)
			}
		}}
	}
	overRefund := func(epoch, cost uint64) program {
		return program{func(w *ringWatch) {
			if cost > w.counted[epoch] {
				w.refund(epoch, cost)
			}
		}}
	}
	retire := func(epoch uint64) program {
		return program{func(w *ringWatch) { w.retire(epoch) }}
	}
	read := func(epoch uint64) program {
		return program{func(w *ringWatch) {
			if w.try {
				w.read(w.s, epoch)
			} else {
				w.read(bareRing{w.r, w.l}, epoch)
			}
		}}
	}
	refund := func(epoch uint64) program {
		return program{func(w *ringWatch) { w.refund(epoch, 1) }}
	}
	discard := program{func(w *ringWatch) {
		if open, ok := w.r.Discard(w.l); ok {
			w.closed += open
		}
	}}
	for _, c := range []struct {
		name        string
		slots       int
		limit       uint64
		first       []uint64 // admitted before the threads start
		threads     []program
		preemptions int
	}{
		{"first calls", 2, 2, nil, []program{admit(0), admit(1), admit(3)}, 4},
		{"one epoch", 2, 3, []uint64{0}, []program{admit(0, 0), admit(0, 0), admit(0)}, 3},
		{"a rollover", 2, 2, []uint64{0}, []program{admit(1), admit(0, 1), admit(1)}, 3},
		{"late callers", 2, 3, []uint64{0, 1}, []program{admit(2), admit(1, 0), admit(2, 1)}, 3},
		{"helpers of different epochs", 3, 4, []uint64{0, 1}, []program{admit(2), admit(3), admit(7)}, 3},
		{"a helper asleep for laps, one slot", 1, 2, []uint64{0}, []program{admit(1), admit(1, 2, 3, 4)}, 3},
		{"a helper asleep for laps, two slots", 2, 3, []uint64{0, 1}, []program{admit(2), admit(2, 3, 4, 5)}, 3},
		{"idle gaps", 2, 2, []uint64{0}, []program{admit(9), admit(5, 20), admit(1)}, 3},
		{"refunds and a rollover", 2, 2, []uint64{0}, []program{admitRefund(0), admit(1), admitRefund(1)}, 3},
		{"refunds of one epoch", 2, 2, []uint64{0}, []program{admitRefund(0), admitRefund(0), admit(0)}, 3},
		{"refunds of too much", 2, 4, []uint64{0, 1}, []program{overRefund(1, 2), admit(2), admitRefund(1)}, 3},
		{"retirement and late callers", 2, 2, []uint64{0}, []program{retire(2), admit(0), admit(1, 2)}, 3},
		{"retirement and helpers", 2, 2, []uint64{0}, []program{retire(3), admit(2), retire(3)}, 4},
		{"retirement and refunds", 1, 2, []uint64{0}, []program{retire(1), admitRefund(0), admit(1)}, 3},
		{"readers", 2, 4, []uint64{0, 0, 1}, []program{read(2), admit(2, 3), admit(1)}, 3},
		{"readers over a gap", 3, 5, []uint64{0, 1, 1, 2}, []program{read(2), admit(6, 7)}, 3},
		{"readers of the epoch to come", 1, 3, []uint64{0}, []program{read(1), admit(1, 2), admitRefund(0)}, 3},
		{"readers and a retirement", 1, 2, []uint64{0}, []program{read(0), retire(1), admit(1)}, 3},
		{"readers and refunds", 2, 4, []uint64{0}, []program{read(0), append(refund(0), admit(0, 1)...)}, 3},
		{"refunds of too much, just after a rollover", 2, 4, []uint64{0}, []program{admit(1), overRefund(1, 1), admit(1)}, 3},
		{"discard", 2, 2, []uint64{0}, []program{discard, admit(1), admitRefund(0)}, 3},
	} {
		for _, try := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/try=%t", c.name, try), func(t *testing.T) {
				orders := explore(t, c.preemptions, func() ([]func(), func() error) {
					w := newRingWatch(t, c.slots, c.limit)
					w.try = try
					for _, epoch := range c.first {
						w.admit(epoch, 1)
					}
					w.before = words(w.r, w.l)
					return perform(w, c.threads)
				})
				require.Greater(t, orders, 10)
			})
		}
	}
}

// A stripedWatch compares a Striped with what its calls reported.
type stripedWatch struct {
	s        *stripedWindow
	try      bool // TryAdmit is asked first
	limit    uint64
	counted  map[uint64]uint64 // by epoch
	admitted uint64
	closed   uint64
	wrong    error
}

func (w *stripedWatch) admit(epoch, cost uint64) Admission {
	ask := w.s.Admit
	if w.try {
		ask = tryFirst{w.s}.Admit
	}
	a := ask(epoch, cost, w.limit)
	w.closed += a.Closed
	if a.Verdict == Admitted {
		w.counted[a.Epoch] += cost
		w.admitted += cost
	}
	if a.Epoch < epoch || a.Total > w.limit {
		w.wrong = fmt.Errorf("Admit(%d, %d) = %+v", epoch, cost, a)
	}
	return a
}

func (w *stripedWatch) refund(epoch, cost uint64) {
	if w.s.Refund(epoch, cost) {
		w.counted[epoch] -= cost
		w.admitted -= cost
	}
}

// read asks everything that only reads.
func (w *stripedWatch) read(epoch uint64) {
	if a := w.s.Peek(epoch, 1, w.limit); a.Total > w.limit || a.Epoch < epoch {
		w.wrong = fmt.Errorf("Peek(%d) = %+v", epoch, a)
	}
	if retry, reset, ok := w.s.RetryAfter(epoch, w.limit, w.limit); retry < reset || !ok {
		w.wrong = fmt.Errorf("RetryAfter(%d) = %d, %d, %t", epoch, retry, reset, ok)
	}
	for _, s := range w.s.Snapshot() {
		if s.Count > w.limit {
			w.wrong = fmt.Errorf("Snapshot has %+v", s)
		}
	}
}

// sum returns what is counted in the epochs (top - N, top].
func (w *stripedWatch) sum(top uint64) (sum uint64) {
	for e, n := range w.counted {
		if e <= top && e+w.s.layout.slots > top {
			sum += n
		}
	}
	return sum
}

// check returns what is wrong with the step that was just taken. Units that a
// thread has in hand are in the head's total only.
func (w *stripedWatch) check() error {
	if w.wrong != nil {
		return w.wrong
	}
	l := &w.s.layout
	for top := range w.counted {
		for e := top; e < top+l.slots; e++ {
			if w.sum(e) > w.limit {
				return fmt.Errorf("the window of %d holds %d of %d", e, w.sum(e), w.limit)
			}
		}
	}
	h := w.s.ring.head.Load()
	if e := l.stampOf(h); e > 0 && h&l.mask < w.sum(e-1)+w.s.credits(e) {
		return fmt.Errorf("head %x, but the window of %d holds %d and %d credits", h, e-1, w.sum(e-1), w.s.credits(e))
	}
	for i := range w.s.ring.slots(l) {
		word := w.s.ring.slots(l)[i].Load()
		if s := l.stampOf(word); s > 0 && word&l.mask < w.counted[s-1] {
			return fmt.Errorf("slot %d is %x, but %d holds %d", i, word, s-1, w.counted[s-1])
		}
	}
	return checkOpened(&w.s.ring, l)
}

// end checks, where all threads have ended, that nothing was lost unseen.
func (w *stripedWatch) end() error {
	open, _ := w.s.Retire(1000)
	if w.closed+open != w.admitted+w.s.Lost() {
		return fmt.Errorf("admitted %d, closed %d, open %d, lost %d", w.admitted, w.closed, open, w.s.Lost())
	}
	return nil
}

// TestSchedule_Striped goes through all orders of a few small programs with
// credits.
func TestSchedule_Striped(t *testing.T) {
	type program []func(w *stripedWatch)
	admit := func(epoch uint64, costs ...uint64) program {
		var p program
		for _, n := range costs {
			p = append(p, func(w *stripedWatch) { w.admit(epoch, n) })
		}
		return p
	}
	admitRefund := func(epoch, cost uint64) program {
		return program{func(w *stripedWatch) {
			if a := w.admit(epoch, cost); a.Verdict == Admitted {
				yield()
				w.refund(a.Epoch, cost)
			}
		}}
	}
	read := func(epoch uint64) program {
		return program{func(w *stripedWatch) { w.read(epoch) }}
	}
	for _, c := range []struct {
		name    string
		slots   int
		limit   uint64
		first   []uint64 // epochs of units admitted before the threads start
		threads []program
	}{
		{"one epoch", 2, 9, nil, []program{admit(0, 1, 1, 1), admit(0, 1, 1, 1), admit(0, 2, 1)}},
		{"the last units", 2, 6, []uint64{0}, []program{admit(0, 1, 1, 1), admit(0, 3), admit(0, 2)}},
		{"a rollover", 2, 8, []uint64{0}, []program{admit(1, 1, 1), admit(0, 1, 1), admit(1, 3)}},
		{"late spenders", 1, 8, []uint64{0}, []program{admit(1, 1, 1), admit(0, 1, 1), admit(2, 4)}},
		{"a steal and a rollover", 2, 6, nil, []program{admit(0, 1, 5), admit(1, 1), admit(1, 2)}},
		{"costs", 2, 16, nil, []program{admit(0, 1, 2, 3), admit(0, 3, 1), admit(0, 2)}},
		{"costs and a rollover", 2, 16, []uint64{0}, []program{admit(0, 1, 2), admit(0, 2, 2), admit(1, 3)}},
		{"refunds", 2, 8, []uint64{0}, []program{admitRefund(0, 1), admitRefund(0, 2), admit(1, 1, 1)}},
		{"readers", 2, 8, []uint64{0, 1}, []program{admit(1, 1, 1), read(2), admit(1, 2)}},
		{"readers and a rollover", 2, 8, []uint64{0}, []program{admit(1, 1, 1), read(1), admit(0, 1)}},
	} {
		for _, stripes := range []int{1, 2} {
			for _, try := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/stripes=%d/try=%t", c.name, stripes, try), func(t *testing.T) {
					orders := explore(t, 3, func() ([]func(), func() error) {
						w := &stripedWatch{try: try, limit: c.limit, counted: map[uint64]uint64{}}
						w.s = newStripedWindow(mustLayout(t, c.slots, c.limit), stripes)
						for _, epoch := range c.first {
							w.admit(epoch, 1)
						}
						return perform(w, c.threads)
					})
					require.Greater(t, orders, 10)
				})
			}
		}
	}
}

// TestSchedule_Lower: a call that has read the limit after Lower put a lower one
// in place keeps it, whatever calls from before leave behind.
func TestSchedule_Lower(t *testing.T) {
	const old, lower = 16, 2
	orders := explore(t, 3, func() ([]func(), func() error) {
		w := &stripedWatch{limit: old, counted: map[uint64]uint64{}}
		w.s = newStripedWindow(mustLayout(t, 1, old), 1)
		w.admit(0, 1) // leaves credits
		limit := uint64(old)
		late := func() { w.admit(1, 1) }
		later := func() {
			w.s.Lower(func() uint64 { limit = lower; return 1 })
			for _, epoch := range []uint64{1, 3, 3, 3} {
				a := w.s.Admit(epoch, 1, limit)
				if a.Verdict != Admitted {
					continue
				}
				w.counted[a.Epoch]++
				if n := w.sum(a.Epoch); n > lower {
					w.wrong = fmt.Errorf("the window of %d holds %d of %d", a.Epoch, n, lower)
				}
			}
		}
		return []func(){late, later, late}, w.check
	})
	require.Greater(t, orders, 10)
}

// TestSchedule_Birth goes through all orders of late callers, retirements and
// births of one key. No two rings may count into the same window.
func TestSchedule_Birth(t *testing.T) {
	const slots, limit = 2, 2
	type program func(o *owner, admit func(epoch uint64))
	calls := func(epochs ...uint64) program {
		return func(o *owner, admit func(epoch uint64)) {
			for _, e := range epochs {
				admit(e)
			}
		}
	}
	lapAndSweep := func(epoch uint64) program {
		return func(o *owner, admit func(epoch uint64)) {
			admit(epoch)
			admit(epoch)
			yield()
			o.sweep(epoch + slots)
		}
	}
	sweep := func(epochs ...uint64) program {
		return func(o *owner, _ func(epoch uint64)) {
			for _, e := range epochs {
				o.sweep(e)
			}
		}
	}
	for _, c := range []struct {
		name    string
		first   []uint64
		threads []program
	}{
		{"late creators", []uint64{0, 0}, []program{sweep(2), calls(0, 1), calls(1, 2)}},
		{"a creator asleep for a life of the ring", nil, []program{calls(0), lapAndSweep(0), calls(1)}},
		{"sweepers", []uint64{0, 0}, []program{sweep(2), sweep(3), calls(0, 2)}},
		{"two lives", []uint64{0}, []program{sweep(2, 4), calls(0, 2), calls(1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			births := 0
			orders := explore(t, 3, func() ([]func(), func() error) {
				o := &owner{layout: mustLayout(t, slots, limit)}
				counted := map[uint64]uint64{}
				var admitted, closed uint64
				admit := func(epoch uint64) {
					a := o.Admit(epoch, 1, limit)
					closed += a.Closed
					if a.Verdict == Admitted {
						counted[a.Epoch]++
						admitted++
					}
				}
				for _, epoch := range c.first {
					admit(epoch)
				}
				left := len(c.threads)
				var threads []func()
				for _, p := range c.threads {
					threads = append(threads, func() {
						p(o, admit)
						left--
					})
				}
				return threads, func() error {
					for e := range counted {
						if n := counted[e] + counted[e+1]; n > limit {
							return fmt.Errorf("epochs %d and %d hold %d of %d", e, e+1, n, limit)
						}
						if n := counted[e]; e > 0 && n+counted[e-1] > limit {
							return fmt.Errorf("epochs %d and %d hold %d of %d", e-1, e, n+counted[e-1], limit)
						}
					}
					if left > 0 {
						return nil
					}
					births = max(births, int(o.births.Load()))
					o.sweep(100)
					if sum := closed + o.closed.Load(); sum != admitted {
						return fmt.Errorf("admitted %d, closed %d", admitted, sum)
					}
					return nil
				}
			})
			require.Greater(t, orders, 10)
			require.Greater(t, births, 1, "no ring was replaced")
		})
	}
}

// TestSchedule_Cell goes through all orders of a few small programs on a cell.
func TestSchedule_Cell(t *testing.T) {
	const limit, decay = 2, 10
	type program func(c *cellWatch)
	admit := func(nows ...uint64) program {
		return func(c *cellWatch) {
			for _, now := range nows {
				c.admit(now, decay, 1, limit, false)
			}
		}
	}
	shared := func(now uint64) program {
		return func(c *cellWatch) { c.admit(now, decay, 1, limit, true) }
	}
	admitRefund := func(now uint64) program {
		return func(c *cellWatch) {
			if a := c.admit(now, decay, 1, limit, false); a.Verdict == Admitted {
				yield()
				c.refund(a.Deadline, 1)
			}
		}
	}
	retire := func(now uint64) program {
		return func(c *cellWatch) { c.retire(now) }
	}
	for _, c := range []struct {
		name    string
		first   []uint64
		threads []program
	}{
		{"first hits", nil, []program{admit(5), admit(5, 6), admit(7)}},
		{"a new window", []uint64{0, 0}, []program{admit(9, 10), admit(10), admit(12)}},
		{"late callers", []uint64{0, 0}, []program{admit(10), admit(3, 11), admit(9)}},
		{"refunds", []uint64{0}, []program{admitRefund(5), admitRefund(5), admit(12)}},
		{"refunds of the last unit", nil, []program{admitRefund(5), admitRefund(6), admit(6)}},
		{"retirement", []uint64{0}, []program{retire(10), admit(9, 11), admitRefund(10)}},
		{"retirements", []uint64{0}, []program{retire(10), retire(20), admit(10)}},
		{"shared", []uint64{0}, []program{shared(5), shared(7), admitRefund(6)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			orders := explore(t, 6, func() ([]func(), func() error) {
				w := &cellWatch{limit: limit, counted: map[uint64]uint64{}}
				for _, now := range c.first {
					w.admit(now, decay, 1, limit, false)
				}
				w.before = w.c.word.Load()
				var threads []func()
				for _, p := range c.threads {
					threads = append(threads, func() { p(w) })
				}
				return threads, w.check
			})
			require.Greater(t, orders, 5)
		})
	}
}

// A cellWatch compares the word of a cell with what the calls reported.
type cellWatch struct {
	c       Cell
	limit   uint64
	counted map[uint64]uint64 // by deadline
	newest  uint64            // the newest now of a caller
	before  uint64
	wrong   error
}

func (w *cellWatch) admit(now, decay, cost, limit uint64, extend bool) CellAdmission {
	w.newest = max(w.newest, now)
	a := w.c.admit(now, decay, cost, limit, extend)
	if a.Verdict != Admitted {
		return a
	}
	// The last check saw the word that this call's CAS replaced.
	if end := w.before >> cellShift; extend && end < a.Deadline && cellLive(w.before, now) {
		w.counted[a.Deadline] += w.counted[end] // what it held ends later now
	}
	w.counted[a.Deadline] += cost
	if a.Count != w.counted[a.Deadline] || a.Deadline <= now {
		w.wrong = fmt.Errorf("Admit(%d) = %+v, the window holds %d", now, a, w.counted[a.Deadline])
	}
	return a
}

func (w *cellWatch) refund(deadline, cost uint64) {
	if w.c.Refund(deadline, cost) {
		w.counted[deadline] -= cost
	}
}

func (w *cellWatch) retire(now uint64) {
	w.newest = max(w.newest, now)
	w.c.Retire(now)
}

func (w *cellWatch) check() error {
	was, is := w.before, w.c.word.Load()
	w.before = is
	deadline, ends := was>>cellShift, is>>cellShift
	switch {
	case w.wrong != nil:
		return w.wrong
	case is == was:
	case was == retired:
		return fmt.Errorf("the retired cell became %x", is)
	case is == retired:
		if deadline > w.newest {
			return fmt.Errorf("retired %x at %d", was, w.newest)
		}
	case ends < deadline:
		return fmt.Errorf("the deadline went back from %x to %x", was, is)
	}
	if is != retired && is&cellMask != w.counted[ends] {
		return fmt.Errorf("cell %x, but the window holds %d", is, w.counted[ends])
	}
	for end, n := range w.counted {
		if n > w.limit {
			return fmt.Errorf("the window that ends at %d holds %d of %d", end, n, w.limit)
		}
	}
	return nil
}
