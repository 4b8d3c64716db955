package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A model is the limiter for one caller at a time, written to be read: a log of
// what each tick admitted, and nothing else. Everything a Limiter answers is
// compared with it.
type model struct {
	limit   uint64
	tick    time.Duration
	counted uint64 // ticks in which a unit counts, its own included
	newest  uint64 // the epoch that time has reached: it never goes back
	log     map[uint64]uint64
}

func newModel(limit uint64, window time.Duration, slots int) *model {
	tick := (window + time.Duration(slots) - 1) / time.Duration(slots)
	return &model{limit: limit, tick: tick, counted: uint64(slots) + 1, log: map[uint64]uint64{}}
}

// total returns the units that count in epoch.
func (m *model) total(epoch uint64) (total uint64) {
	for e, n := range m.log {
		if e+m.counted > epoch && e <= epoch {
			total += n
		}
	}
	return total
}

func (m *model) fits(epoch, n uint64) bool {
	total := m.total(epoch)
	return total <= m.limit && n <= m.limit-total
}

// attempt answers a request for n units at now, and counts them if take is set.
func (m *model) attempt(now time.Duration, n uint64, take bool) Decision {
	if m.limit == Unlimited {
		return Decision{Allowed: true, Reason: ReasonUnlimited, Limit: Unlimited, Remaining: Unlimited}
	}
	now = max(now, 0)
	epoch := uint64(now / m.tick)
	at := max(epoch, m.newest)
	d := Decision{Limit: m.limit, Allowed: m.fits(at, n)}
	if take && n > 0 && n <= m.limit {
		m.newest = at
		if d.Allowed {
			m.log[at] += n
		}
	}
	d.Remaining = m.limit - min(m.total(at), m.limit)
	for e, n := range m.log {
		if n > 0 && e+m.counted > at { // it counts until then
			d.ResetAfter = max(d.ResetAfter, time.Duration(e+m.counted)*m.tick-now)
		}
	}
	switch {
	case d.Allowed:
		d.Reason = ReasonAdmitted
	case n > m.limit:
		d.Reason, d.RetryAfter = ReasonTooCostly, Never
	default:
		for e := at + 1; ; e++ {
			if m.fits(e, n) {
				d.RetryAfter = time.Duration(e)*m.tick - now
				break
			}
		}
	}
	for e := range m.log {
		if e+2*m.counted < m.newest {
			delete(m.log, e)
		}
	}
	return d
}

// A mutexModel is the model under a lock, with a clock: the reference that goes
// through the concurrency tests as well.
type mutexModel struct {
	mu       sync.Mutex
	m        *model
	clock    Clock
	origin   time.Duration
	sleepers sleepers
}

func newMutexModel(tb testing.TB, config Config) *mutexModel {
	slots := config.Slots
	if slots == 0 {
		slots = DefaultSlots
	}
	m := newModel(config.Limit, config.Window, slots)
	if resolutionOf(config.Clock) > 0 {
		m.counted++
	}
	r := &mutexModel{m: m, clock: config.Clock, origin: config.Clock.Now()}
	r.sleepers.init(config.Clock, config.Window+m.tick)
	tb.Cleanup(r.sleepers.close)
	return r
}

func (r *mutexModel) attempt(n uint64, take bool) Decision {
	now := r.clock.Now() - r.origin // before the lock: who waits for it is a late caller
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.m.attempt(now, n, take)
}

func (r *mutexModel) Allow() bool               { return r.AllowN(1) }
func (r *mutexModel) AllowN(n uint64) bool      { return r.attempt(n, true).Allowed }
func (r *mutexModel) Attempt(n uint64) Decision { return r.attempt(n, true) }
func (r *mutexModel) Peek(n uint64) Decision    { return r.attempt(n, false) }
func (r *mutexModel) Stats() Stats              { return Stats{} }

func (r *mutexModel) WaitN(ctx context.Context, n uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.sleepers.wait(ctx, func() Decision { return r.Attempt(n) })
}

func (r *mutexModel) SetLimit(limit uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.m.limit = limit
	r.sleepers.wake()
	return nil
}

// A script is a random sequence of calls for one limiter and the model.
type script struct {
	limit  uint64
	window time.Duration
	slots  int
	steps  int
}

// runScript makes the calls of s on a new limiter of every kind that has one
// caller at a time and on the model, and demands equal answers. Time moves ahead,
// stands still and steps back.
func runScript(tb testing.TB, start func(testing.TB, Config) rolling, s script, r *rand.Rand) {
	clock := NewManualClock()
	origin := time.Duration(r.Int64N(int64(2000*time.Hour))) - 1000*time.Hour
	clock.Set(origin)
	l := start(tb, Config{Limit: s.limit, Window: s.window, Slots: s.slots, Clock: clock})
	m := newModel(s.limit, s.window, s.slots)
	for i := range s.steps {
		step := time.Duration(0)
		switch r.IntN(16) {
		case 0:
			step = time.Duration(r.Int64N(int64(2*m.tick) + 1))
		case 1:
			step = time.Duration(r.Int64N(int64(s.window) + 1))
		case 2:
			step = -time.Duration(r.Int64N(int64(m.tick) + 1))
		case 3:
			step = m.tick - clock.Now()%m.tick // about a boundary
		case 4:
			if r.IntN(16) == 0 {
				step = time.Duration(r.Int64N(int64(4*s.window))) - 2*s.window
			}
		}
		if now := clock.Now() + step; now < origin+1000*time.Hour { // the model counts every tick
			clock.Set(now)
		}
		n := uint64(1)
		if r.IntN(3) == 0 {
			n = r.Uint64N(m.limit + 3)
		}
		now := clock.Now() - origin
		what := func() string {
			return fmt.Sprintf("%+v: step %d, %d units at %v, epoch %d, newest %d", s, i, n, now, max(now, 0)/m.tick, m.newest)
		}
		switch r.IntN(8) {
		case 0:
			if got, want := l.Peek(n), m.attempt(now, n, false); got != want {
				require.Equal(tb, want, got, "Peek in %s", what())
			}
		case 1, 2, 3:
			if got, want := l.Attempt(n), m.attempt(now, n, true); got != want {
				require.Equal(tb, want, got, "Attempt in %s", what())
			}
		case 4:
			if r.IntN(64) == 0 {
				m.limit = 1 + r.Uint64N(2*s.limit)
				require.NoError(tb, l.SetLimit(m.limit))
			}
		default:
			if got, want := l.AllowN(n), m.attempt(now, n, true).Allowed; got != want {
				require.Equal(tb, want, got, "AllowN in %s", what())
			}
		}
	}
}

// randomScript draws the parameters of a script.
func randomScript(r *rand.Rand, steps int) script {
	slots := []int{1, 2, 3, 10, 60}[r.IntN(5)]
	return script{
		limit:  []uint64{1, 2, 5, 10, 200}[r.IntN(5)],
		window: time.Duration(slots)*time.Microsecond + time.Duration(r.Int64N(int64(time.Second)))>>r.IntN(20),
		slots:  slots,
		steps:  steps,
	}
}

// TestRolling_AgreesWithModel: one caller at a time gets from a limiter exactly
// what the model answers, in every field, over a million calls.
func TestRolling_AgreesWithModel(t *testing.T) {
	eachRolling(t, func(t *testing.T, impl implementation) {
		r := newRand(t)
		const steps = 2000
		for range rounds(1_000_000/steps) / len(implementations) {
			runScript(t, impl.start, randomScript(r, steps), r)
		}
	})
}

func FuzzLimiter_AgreesWithModel(f *testing.F) {
	f.Add(uint64(1), uint64(2), int64(time.Second), uint8(10))
	f.Add(uint64(2), uint64(1), int64(10), uint8(1))
	f.Fuzz(func(t *testing.T, seed, limit uint64, window int64, slots uint8) {
		s := script{
			limit: max(limit%1000, 1),
			slots: max(int(slots), 1),
			steps: 100,
		}
		s.window = max(time.Duration(window%int64(time.Hour)), time.Duration(s.slots)*time.Microsecond)
		runScript(t, implementations[0].start, s, rand.New(rand.NewPCG(seed, 0)))
	})
}
