package atomicring

import "sync/atomic"

// The word of a cell, from the high bits down: the deadline in ticks of 1 ms in
// 40 bits, which last 34 years, and the count in 24.
const (
	cellShift = 24
	cellMask  = 1<<cellShift - 1

	// CellCapacity is the largest count a [Cell] holds. A larger max acts as it.
	CellCapacity = cellMask
	// CellForever is the deadline that never comes, in ticks.
	CellForever = 1<<40 - 2
)

// A CellAdmission is what a cell answers to [Cell.Admit] and [Cell.Peek].
type CellAdmission struct {
	// Verdict says whether the units fit.
	Verdict Verdict
	// Count is the number of units in the window: after the admission, or as
	// it was at the denial. It is 0 where no window is open.
	Count uint64
	// Deadline is the tick at which the window ends, the end not included. It
	// is the caller's now where no window is open.
	Deadline uint64
}

// A Cell counts units in a fixed window that begins with its first hit, in one
// word. Its zero value is ready; it must not be copied. Times are ticks of 1 ms
// on a clock of the owner's. An owner that rounds now down and the end of a
// window up never makes a window shorter than asked for, and makes it less than
// a tick longer.
//
// All methods may be called at once from any number of goroutines and are
// lock-free: a CAS fails only where another caller's succeeded. A denial writes
// nothing.
//
// Deadlines only grow, even where the clock steps back or the last unit of a
// window is given back. That is what makes a plain CAS safe here: a word that
// comes back means the same as before.
type Cell struct {
	word atomic.Uint64
}

// Open gives a cell that nobody else holds yet its first window of decay ticks,
// with count units in it. A cell that replaces another one has to be opened
// before it is shared, at no less than the floor that was raised before the
// other one was retired.
func (c *Cell) Open(now, decay, count uint64) {
	c.word.Store(CellDeadline(now, decay)<<cellShift | min(count, cellMask))
}

// Admit counts cost units in the window open at now, or in a new one of decay
// ticks, at least one, if the window then holds at most limit. A window keeps
// its deadline, whatever decay later calls bring. A cost of 0 is admitted when
// the count is not above the limit, and writes nothing.
func (c *Cell) Admit(now, decay, cost, limit uint64) CellAdmission {
	return c.admit(now, decay, cost, limit, false)
}

// AdmitShared is Admit for a cell that callers with different decays share: an
// admission moves the deadline on to now + decay if that is later, so that no
// caller's window is cut short. It is stricter than Admit, never laxer.
func (c *Cell) AdmitShared(now, decay, cost, limit uint64) CellAdmission {
	return c.admit(now, decay, cost, limit, true)
}

func (c *Cell) admit(now, decay, cost, limit uint64, extend bool) CellAdmission {
	limit = min(limit, cellMask)
	for {
		w := c.word.Load()
		if w == retired {
			return CellAdmission{Verdict: Retired}
		}
		a := peekCell(w, now, cost, limit)
		if a.Verdict == Denied || cost == 0 {
			return a
		}
		a.Count += cost
		if a.Count == cost || extend { // the first hit, or one that may move the deadline
			a.Deadline = max(w>>cellShift, CellDeadline(now, decay))
		}
		yield()
		// If it fails, an admission, a refund or a retirement succeeded.
		if c.word.CompareAndSwap(w, a.Deadline<<cellShift|a.Count) {
			return a
		}
	}
}

// Peek returns what [Cell.Admit] would answer, and writes nothing: Count is
// what is counted now.
func (c *Cell) Peek(now, cost, limit uint64) CellAdmission {
	w := c.word.Load()
	if w == retired {
		return CellAdmission{Verdict: Retired}
	}
	return peekCell(w, now, cost, min(limit, cellMask))
}

// Refund takes back cost units of an admission into the window that ends at
// deadline and reports whether it did: it can while that window is the cell's
// newest and holds that many. With its last unit the window itself is gone: the
// next hit begins a new one.
func (c *Cell) Refund(deadline, cost uint64) bool {
	for {
		w := c.word.Load()
		if w == retired || w>>cellShift != deadline || cost > w&cellMask {
			return false
		}
		yield()
		// If it fails, an admission, another refund or a retirement succeeded.
		if c.word.CompareAndSwap(w, w-cost) {
			return true
		}
	}
}

// Retire kills the cell if its window has ended at now, and reports whether it
// did. A cell that was never used is not retired.
func (c *Cell) Retire(now uint64) bool {
	for {
		w := c.word.Load()
		if w == retired || !cellExpired(w, now) {
			return false
		}
		yield()
		// If it fails, an admission or another retirement succeeded.
		if c.word.CompareAndSwap(w, retired) {
			return true
		}
	}
}

// Expired reports whether the cell is retired, or would be by [Cell.Retire] at
// now.
func (c *Cell) Expired(now uint64) bool {
	w := c.word.Load()
	return w == retired || cellExpired(w, now)
}

// peekCell decides by the word alone.
func peekCell(w, now, cost, limit uint64) CellAdmission {
	a := CellAdmission{Verdict: Admitted, Deadline: now}
	if count := w & cellMask; count > 0 && cellLive(w, now) {
		a.Count, a.Deadline = count, w>>cellShift
	}
	if a.Count > limit || cost > limit-a.Count {
		a.Verdict = Denied
	}
	return a
}

// cellLive reports whether the window of word w has not ended at now. The last
// deadline never comes.
func cellLive(w, now uint64) bool {
	return w>>cellShift > min(now, CellForever-1)
}

// cellExpired reports whether word w has had a window, and it has ended at now.
func cellExpired(w, now uint64) bool { return w > 0 && !cellLive(w, now) }

// CellDeadline returns the end of a window of decay ticks, at least one, that
// begins at now.
func CellDeadline(now, decay uint64) uint64 {
	now = min(now, CellForever-1)
	return now + min(max(decay, 1), CellForever-now)
}
