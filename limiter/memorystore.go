package limiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringfence-go/ringfence/atomicring"
)

// MemoryStoreConfig says how a [MemoryStore] works. Every field has a default.
type MemoryStoreConfig struct {
	// Clock tells the time; nil means [SystemClock].
	Clock Clock
	// MaxKeys is the largest number of keys in use at a time; 0 means
	// [DefaultMaxKeys].
	MaxKeys int
	// OnFull says what becomes of a new key when MaxKeys are in use. Keys that
	// share an overflow window share its count, and the window lasts as long as
	// the latest of them asks for.
	OnFull OnFull
	// SweepEvery is the time between two passes that remove the keys whose
	// window has ended, at least a millisecond, by the timers of the clock; 0
	// means a minute. [NoSweep] leaves it to calls of Sweep. Keys whose windows have
	// ended take their place until then, or until a new key finds no room.
	SweepEvery time.Duration
}

// A MemoryStore counts fixed windows in this process: a [MultiStore] whose
// state is one word a key. A window begins with its first hit and is at most
// one millisecond longer than asked for, never shorter; with a [CoarseClock] it
// is longer by the resolution as well, and by what the clock loses in stalls. The
// decay and the max come with each attempt; while a window is open its end does
// not move, whatever decay later attempts bring. A window counts at most
// 16,777,215; a larger max acts as that. A decay of 34 years or more never ends.
//
// A key takes about 60 bytes and the bytes of its string, which is cloned. Keys
// in use are never evicted; see [OnFull].
//
// A MemoryStore is made by [NewMemoryStore], for the zero value is not usable, and
// must not be copied. All methods may be called at once from any number of
// goroutines. A decision on a key that exists takes no lock and allocates nothing.
type MemoryStore struct {
	timeline
	table table[string, atomicring.Cell]
	janitor
}

var _ MultiStore = (*MemoryStore)(nil)

// cellTick is the unit of a cell's deadline.
const cellTick = time.Millisecond

// NewMemoryStore returns a store for config, or an error that matches
// [ErrConfig] and names every field that is wrong.
func NewMemoryStore(config MemoryStoreConfig) (*MemoryStore, error) {
	clock, err := checkClock(config.Clock)
	maxKeys, sweepEvery, faults := checkKeys(config.MaxKeys, config.OnFull, config.SweepEvery, time.Minute)
	if err != nil {
		faults = append(faults, err)
	}
	if resolution := resolutionOf(clock); resolution < 0 {
		faults = append(faults, fmt.Errorf("Clock has a resolution of %v, want 0 or more", resolution))
	}
	if err := configError(faults); err != nil {
		return nil, err
	}
	s := &MemoryStore{}
	s.start(clock, cellTick, max(resolutionOf(clock), 1))
	s.table.init(maxKeys, config.OnFull, kind[atomicring.Cell]{
		create:  func() *atomicring.Cell { return new(atomicring.Cell) },
		open:    func(c *atomicring.Cell, tick, cost, decay uint64) { c.Open(tick, decay, cost) },
		retire:  func(c *atomicring.Cell, tick uint64) (uint64, bool) { return 0, c.Retire(tick) },
		expired: (*atomicring.Cell).Expired,
		rest:    uint64(roomRest(maxKeys) / cellTick),
	})
	if sweepEvery != NoSweep {
		sweepLater(timersOf(clock), sweepEvery, s, func(s *MemoryStore) *janitor { return &s.janitor }, (*MemoryStore).Sweep)
	}
	return s, nil
}

// Attempt counts one attempt on key, see [Store].
func (s *MemoryStore) Attempt(key string, max int, decay time.Duration) (allowed bool, attempts int, retryAfter time.Duration) {
	now := s.now()
	var q request
	s.request(&q, key, max, decay, 1, now)
	s.charge(&q)
	allowed = q.answer.Verdict == atomicring.Admitted
	if !allowed {
		s.nudge()
	}
	return allowed, int(q.answer.Count), s.rest(&q, now)
}

// AttemptMany counts every item or none, see [MultiStore].
func (s *MemoryStore) AttemptMany(items []StoreItem, results []StoreResult) (denied int) {
	if len(results) < len(items) {
		panic(fmt.Sprintf("limiter: %d results for %d items", len(results), len(items)))
	}
	now := s.now()
	if len(items) == 1 {
		var q request
		s.request(&q, items[0].Key, items[0].Max, items[0].Decay, items[0].Cost, now)
		s.charge(&q)
		s.result(&results[0], &q, now)
		denied = firstDenied(results[:1])
	} else {
		var few [8]request
		requests := few[:min(len(items), len(few))]
		if len(items) > len(few) {
			requests = make([]request, len(items))
		}
		for i := range items {
			item := &items[i]
			requests[i].item = i
			s.request(&requests[i], item.Key, item.Max, item.Decay, item.Cost, now)
		}
		denied = s.attemptMany(requests, results[:len(items)], now)
	}
	if denied >= 0 {
		s.nudge()
	}
	return denied
}

// Refund gives a charge back, see [MultiStore]. What was counted in an overflow
// window stays counted if another key has prolonged it since.
func (s *MemoryStore) Refund(c *Charge) bool {
	given := *c
	*c = Charge{}
	cell, ok := given.Ref.(*atomicring.Cell)
	return ok && cell.Refund(given.Window, given.Cost)
}

// Len returns the number of keys that have a window of their own.
func (s *MemoryStore) Len() int { return int(s.table.count.Load()) }

// Sweep removes the keys whose window has ended, one shard after the other. No
// decision waits for it.
func (s *MemoryStore) Sweep() { s.table.sweep(s.epoch(s.now())) }

// Stats returns the number of keys, of those retired and of decisions on those that
// found no room, and what the clock counts. The other fields are 0.
func (s *MemoryStore) Stats() Stats {
	var stats Stats
	s.timeline.stats(&stats)
	s.table.stats(&stats)
	return stats
}

// Close ends sweeping and waits for a sweep that is under way. Decisions go on,
// unswept. A MemoryStore that is dropped without Close is collected, and its
// sweeping ends. Close may be called more than once, and returns nil.
func (s *MemoryStore) Close() error {
	s.janitor.close()
	return nil
}

// A request is an item in the terms of a cell, and what became of it.
type request struct {
	key         string
	hash        uint64
	item        int    // its place among the items
	tick, decay uint64 // when, and how long its window lasts
	cost, limit uint64
	rest        time.Duration // the answer where no window is open
	cell        *atomicring.Cell
	answer      atomicring.CellAdmission
}

// request puts an item into the terms of a cell, so that a window begins no
// later and ends no earlier than asked for. What can never be counted, for one
// of max, decay and cost is out of range, gets a limit below its cost.
func (s *MemoryStore) request(q *request, key string, limit int, decay time.Duration, cost int, now time.Duration) {
	q.key, q.hash = key, s.table.keys.Hash(key)
	q.cost = min(uint64(max(cost, 1)), atomicring.CellCapacity+1) // so that sums fit
	if limit > 0 && decay > 0 && cost >= 0 {
		q.limit = min(uint64(limit), atomicring.CellCapacity)
	}
	q.rest = max(decay, 0)
	q.tick = uint64(now / cellTick)
	end := addDuration(now, addDuration(q.rest, s.resolution))
	q.decay = uint64((end-1)/cellTick) + 1 - q.tick
}

// result puts the answer to q into the caller's terms.
func (s *MemoryStore) result(r *StoreResult, q *request, now time.Duration) {
	r.Allowed = q.answer.Verdict == atomicring.Admitted
	r.Attempts = int(q.answer.Count)
	r.RetryAfter = s.rest(q, now)
	r.Charge = Charge{}
	if r.Allowed && q.cell != nil {
		r.Charge = Charge{Ref: q.cell, Window: q.answer.Deadline, Cost: q.cost}
	}
}

// rest returns what is left of q's window.
func (s *MemoryStore) rest(q *request, now time.Duration) time.Duration {
	switch deadline := q.answer.Deadline; {
	case q.limit == 0: // never, whatever is open
		return q.rest
	case deadline == atomicring.CellForever:
		return Never
	case deadline <= q.tick: // none is open
		return q.rest
	default:
		return s.until(deadline, now)
	}
}

// charge counts q, or denies it.
func (s *MemoryStore) charge(q *request) {
	if q.cost > q.limit {
		s.peek(q, 0)
		return
	}
	cell := s.table.keys.First(q.hash) // a Load, inlined
	if !s.table.keys.HasShort(q.hash, cell, q.key) && !s.table.keys.Has(q.hash, cell, q.key) {
		cell = s.table.keys.Stray(q.hash, q.key)
	}
	if cell != nil {
		if q.answer = cell.Admit(q.tick, q.decay, q.cost, q.limit); q.answer.Verdict != atomicring.Retired {
			q.cell = cell
			return
		}
		s.table.drop(q.hash, cell)
	}
	s.chargeAbsent(q)
}

// chargeAbsent is charge for a key whose cell was seen absent or retired.
func (s *MemoryStore) chargeAbsent(q *request) {
	for {
		cell, p, from := s.table.settle(q.hash, q.key, q.tick, q.cost, q.decay)
		q.cell = cell
		switch p {
		case born, sharing, admitted:
			q.answer = atomicring.CellAdmission{Verdict: atomicring.Admitted, Count: q.cost, Deadline: atomicring.CellDeadline(from, q.decay)}
			return
		case denied:
			q.answer = atomicring.CellAdmission{Deadline: q.tick + 1}
			return
		case shared:
			q.answer = cell.AdmitShared(from, q.decay, q.cost, q.limit)
		case own:
			q.answer = cell.Admit(from, q.decay, q.cost, q.limit)
		}
		if q.answer.Verdict != atomicring.Retired {
			return
		}
		if p == own {
			s.table.drop(q.hash, cell)
		}
	}
}

// noCell answers for the cell of a key that has none. Nobody writes to it.
var noCell atomicring.Cell

// peek answers q as charge would, with before units of the same key counted
// before it, and changes nothing. It returns the place that it looked at.
func (s *MemoryStore) peek(q *request, before uint64) (p place) {
	cell, ok := s.table.keys.Load(q.hash, q.key)
	for {
		p = own
		if !ok {
			cell, p = s.table.peek(q.hash, q.key, q.tick)
		}
		switch {
		case p == denied && q.cost <= q.limit:
			q.answer = atomicring.CellAdmission{Deadline: q.tick + 1}
		case cell == nil:
			q.answer = noCell.Peek(q.tick, before+q.cost, q.limit)
		default:
			q.answer = cell.Peek(q.tick, before+q.cost, q.limit)
		}
		if q.answer.Verdict != atomicring.Retired {
			return p
		}
		if p == own {
			s.table.drop(q.hash, cell)
		}
		ok = false
	}
}

// attemptMany peeks at all requests, so that a list that is denied in the end
// rarely takes anything, and then charges them in one order for all calls, so
// that concurrent ones do not deny each other in turn.
func (s *MemoryStore) attemptMany(requests []request, results []StoreResult, now time.Duration) (denied int) {
	slices.SortFunc(requests, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.key, b.key), cmp.Compare(a.item, b.item))
	})
	var before uint64
	for i := range requests {
		q := &requests[i]
		if i > 0 && requests[i-1].key == q.key {
			before += requests[i-1].cost
		} else {
			before = 0
		}
		p := s.peek(q, before)
		s.result(&results[q.item], q, now)
		if !results[q.item].Allowed {
			s.table.force(q.hash, p)
		}
	}
	if denied = firstDenied(results); denied >= 0 {
		return denied
	}
	for i := range requests {
		q := &requests[i]
		s.charge(q)
		s.result(&results[q.item], q, now)
		if results[q.item].Allowed {
			continue
		}
		for j := i - 1; j >= 0; j-- {
			taken := &requests[j]
			s.Refund(&results[taken.item].Charge)
			taken.cell = nil
			s.peek(taken, 0)
			s.result(&results[taken.item], taken, now)
		}
		return q.item
	}
	return -1
}

// firstDenied returns the place of the first result that is not allowed, -1 if
// there is none.
func firstDenied(results []StoreResult) int {
	return slices.IndexFunc(results, func(r StoreResult) bool { return !r.Allowed })
}
