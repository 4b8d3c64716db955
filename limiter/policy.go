package limiter

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/ringfence-go/ringfence/atomicring"
)

const (
	// DefaultSlots is the number of slots if Config.Slots is 0.
	DefaultSlots = 10
	// MaxSlots is the largest number of slots.
	MaxSlots = 1 << 16

	// lifetime is how long epochs last before they are clamped and the limiter
	// becomes too strict.
	lifetime = 30 * 365.25 * 24 * time.Hour
)

// Config says what a [Limiter] allows. Only Window is required; a Limit that is
// left out is 0 and admits nothing.
type Config struct {
	// Limit is the number of units allowed in any window: 0 admits nothing,
	// [Unlimited] everything. The largest limit depends on the tick, which is
	// Window / Slots: 536,870,911 at 100 ms, 8,388,607 at 1 ms.
	Limit uint64
	// Window is the length of time that the limit holds over, at least Slots
	// microseconds.
	Window time.Duration
	// Slots is the number of ticks that a window is divided into, 1 to
	// [MaxSlots]; 0 means [DefaultSlots]. A tick is Window / Slots, rounded up to a
	// nanosecond, and a unit expires Slots to Slots + 1 ticks after it was counted.
	// So a limiter that is always saturated delivers Slots / (Slots + 1) of its
	// limit. A slot costs 8 bytes a key.
	Slots int
	// Clock tells the time; nil means [SystemClock]. The resolution of a
	// [CoarseClock] must not be above the tick.
	Clock Clock
	// CountDenied switches Stats.Denied on. Without it a denial is counted nowhere.
	CountDenied bool
	// NoCredits keeps a Limiter from charging units in advance for each processor
	// when several contend for it, see [Limiter]. It changes speed only.
	NoCredits bool
}

// A policy is a Config at work: what all keys of a limiter have in common. It is
// read on every decision and written rarely.
type policy struct {
	_  [64]byte // other objects, which may be written all the time
	id uint64   // no other limiter of the process has it
	timeline
	layout atomicring.Layout
	limit  atomic.Uint64
	denied *xsync.Counter // nil unless Config.CountDenied
	sleepers

	_        [64]byte // what follows is written, apart from what is read above
	late     atomic.Uint64
	backward atomic.Uint64
	_        [64]byte
}

var lastID atomic.Uint64

// init validates config and starts the policy. It returns what is wrong with it.
func (p *policy) init(config Config) (faults []error) {
	p.id = lastID.Add(1)
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	slots := config.Slots
	if slots == 0 {
		slots = DefaultSlots
	}
	if slots < 1 || slots > MaxSlots {
		fault("Slots is %d, want 1 to %d", slots, MaxSlots)
		slots = min(max(slots, 1), MaxSlots)
	}
	clock, err := checkClock(config.Clock)
	if err != nil {
		faults = append(faults, err)
	}
	var tick time.Duration
	switch least := time.Duration(slots) * minResolution; {
	case config.Window <= 0:
		fault("Window is %v, want more than 0", config.Window)
	case config.Window < least:
		fault("Window is %v, want at least %v, a microsecond a slot", config.Window, least)
	default:
		tick = (config.Window-1)/time.Duration(slots) + 1
		resolution := resolutionOf(clock)
		counted := slots + 1
		if resolution > 0 {
			counted++
		}
		if resolution < 0 || resolution > tick {
			fault("Clock has a resolution of %v, want 0 to %v, which is Window / Slots", resolution, tick)
		}
		if p.layout, err = newLayout(counted, tick); err != nil {
			fault("Slots is %d: %w", slots, err)
		}
		if len(faults) == 0 {
			p.timeline.start(clock, tick, tick)
			p.sleepers.init(clock, p.until(uint64(counted), 0))
		}
	}
	if err := p.checkLimit(config.Limit, tick); err != nil {
		faults = append(faults, err)
	}
	p.limit.Store(config.Limit)
	if config.CountDenied {
		p.denied = xsync.NewCounter()
	}
	return faults
}

// newLayout gives the epoch what [lifetime] needs and the count all the rest.
func newLayout(slots int, tick time.Duration) (atomicring.Layout, error) {
	epochs := uint64(lifetime/tick) + 2*uint64(slots) + 2
	return atomicring.NewLayout(slots, 1<<(63-bits.Len64(epochs))-1)
}

// checkLimit reports a limit that the words cannot count. A tick of 0 is one
// that is not known.
func (p *policy) checkLimit(limit uint64, tick time.Duration) error {
	switch {
	case limit == Unlimited || limit <= p.layout.Capacity():
		return nil
	case limit > math.MaxInt64:
		return fmt.Errorf("Limit is %d (%d as a uint64), want at most Unlimited, which is %d", limit, int64(limit), Unlimited)
	case limit > Unlimited:
		return fmt.Errorf("Limit is %d, want at most Unlimited, which is %d", limit, Unlimited)
	case tick == 0:
		return nil
	default:
		return fmt.Errorf("Limit is %d, which does not fit: at most %d does with a tick (Window / Slots) of %v, and more with a longer one",
			limit, p.layout.Capacity(), tick)
	}
}

// fits returns the error of SetLimit for a limit that the words cannot count.
func (p *policy) fits(limit uint64) error {
	if err := p.checkLimit(limit, p.tick); err != nil {
		return configError([]error{err})
	}
	return nil
}

// replaceLimit changes the limit to one that fits, and wakes the sleepers.
func (p *policy) replaceLimit(limit uint64) {
	p.limit.Store(limit)
	p.wake()
}

// callLimit is the limit that a caller has passed for one call.
func callLimit(limit uint64) uint64 {
	if limit > Unlimited {
		return 0
	}
	return limit
}

// noteLate counts a decision in another epoch than the caller's reading.
func (p *policy) noteLate(counted, epoch uint64) {
	p.late.Add(1)
	if counted > epoch+1 {
		p.backward.Add(1)
	}
}

// stats fills in what the policy counts.
func (p *policy) stats(s *Stats) {
	s.Late, s.Backward = p.late.Load(), p.backward.Load()
	p.timeline.stats(s)
	if p.denied != nil {
		s.Denied = uint64(p.denied.Value())
	}
}

// noteDenied is called for each denial.
func (p *policy) noteDenied() {
	if p.denied != nil || p.nudged != nil {
		p.denial()
	}
}

// denial counts a denial, if that is switched on, and nudges the clock.
func (p *policy) denial() {
	if p.denied != nil {
		p.denied.Inc()
	}
	p.nudge()
}

// unlimited is the decision where there is no limit.
var unlimited = Decision{Allowed: true, Reason: ReasonUnlimited, Limit: Unlimited, Remaining: Unlimited}

// admit stores in d the decision on a request that fits, with total units counted
// until the epoch reset.
func (p *policy) admit(d *Decision, total, limit, reset uint64, now time.Duration) {
	d.Allowed, d.Reason = true, ReasonAdmitted
	d.Limit, d.Remaining = limit, limit-min(total, limit)
	d.ResetAfter = p.until(reset, now)
}

// deny stores in d the decision on a request for n units that does not fit, with
// total units counted until the epoch reset. It fits from the epoch retry on, if ok,
// and never else.
func (p *policy) deny(d *Decision, total, n, limit, retry, reset uint64, ok bool, now time.Duration) {
	if n > limit {
		d.Reason = ReasonTooCostly
	}
	d.Limit, d.Remaining = limit, limit-min(total, limit)
	d.RetryAfter, d.ResetAfter = Never, p.until(reset, now)
	if ok {
		d.RetryAfter = p.until(retry, now)
	}
}

// answer stores in d the decision on a request for n units that was only asked
// about.
func (p *policy) answer(d *Decision, a atomicring.Admission, n, limit, retry, reset uint64, ok bool, now time.Duration) {
	if a.Verdict == atomicring.Admitted {
		p.admit(d, a.Total, limit, reset, now)
		return
	}
	p.deny(d, a.Total, n, limit, retry, reset, ok, now)
}

// A receipt says where units were counted. It names the ring, since the key may
// have another one by the time the units are given back. The zero value is for
// nothing.
type receipt struct {
	ring  *atomicring.Ring
	epoch uint64
	n     uint64
}

// refund gives the units of r back, if they can be.
func (p *policy) refund(r receipt) {
	if r.ring != nil {
		r.ring.Refund(&p.layout, r.epoch, r.n)
	}
}
