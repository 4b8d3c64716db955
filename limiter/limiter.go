package limiter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringfence-go/ringfence/atomicring"
)

// A Limiter enforces one limit over a rolling window: no interval as long as
// the window, wherever it starts, holds more units than the limit.
//
// Allow, Attempt and Wait differ in what they do when nothing is left: Allow
// says no, Attempt says no and when to come back, Wait comes back by itself.
//
// A Limiter is made by [New], for the zero value is not usable, and must not be
// copied. All methods may be called at once from any number of goroutines. A
// decision takes no lock, allocates nothing and reads the clock once. It is exact,
// apart from the moment at which a unit expires: up to a tick late, see [Config].
//
// Where several processors contend for the limit, each charges it for a few
// units in advance and gives them out by itself; the last ones are found
// whichever holds them. See [atomicring.Striped], and Config.NoCredits for the
// switch.
type Limiter struct {
	policy
	ring     *atomicring.Striped
	admitted atomic.Uint64 // written when a sub-window closes

	setting sync.Mutex // held by SetLimit
}

// New returns a limiter for config, or an error that matches [ErrConfig] and
// names every field that is wrong.
func New(config Config) (*Limiter, error) {
	l := &Limiter{}
	if err := configError(l.policy.init(config)); err != nil {
		return nil, err
	}
	l.ring = atomicring.NewStriped(l.layout, config.NoCredits)
	return l, nil
}

// Allow is AllowN(1).
func (l *Limiter) Allow() bool { return l.AllowN(1) }

// AllowN takes n units if that many are left, and reports whether it did. A
// denied request takes nothing and delays nobody. A cost of 0 takes nothing and
// is allowed unless a lowered limit is exceeded; a cost above the limit is never
// allowed.
func (l *Limiter) AllowN(n uint64) bool {
	limit := l.limit.Load()
	if limit == Unlimited {
		return true
	}
	if n == 0 || n > limit {
		if n == 0 && l.Peek(0).Allowed {
			return true
		}
		l.noteDenied()
		return false
	}
	epoch := l.epoch(l.now())
	limit = l.limit.Load() // as it is after the reading: see Striped.Lower
	_, v, ok := l.ring.TryAdmit(epoch, n, limit)
	if !ok {
		a := l.ring.Admit(epoch, n, limit)
		if a.Epoch != epoch || a.Closed > 0 {
			l.note(a, epoch)
		}
		v = a.Verdict
	}
	if v != atomicring.Admitted {
		l.noteDenied()
		return false
	}
	return true
}

// Attempt is AllowN with details.
func (l *Limiter) Attempt(n uint64) (d Decision) {
	l.attemptInto(&d, n)
	return d
}

// attemptInto is Attempt, which is inlined so that a decision is made where the
// caller wants it: to copy one that has just been written takes as long as a CAS.
func (l *Limiter) attemptInto(d *Decision, n uint64) {
	l.decide(d, n, l.limit.Load(), unread)
	if !d.Allowed {
		l.noteDenied()
	}
}

// Peek returns what Attempt would answer, with Remaining and ResetAfter as they are
// now. It takes nothing.
func (l *Limiter) Peek(n uint64) (d Decision) {
	l.look(&d, n, l.limit.Load(), unread)
	return d
}

// Wait is WaitN(ctx, 1).
func (l *Limiter) Wait(ctx context.Context) error { return l.WaitN(ctx, 1) }

// WaitN takes n units, and sleeps until that many are left where they are not.
// It returns nil once it has them. Else it has taken nothing, and returns
//
//   - the context's error, if the context ended, also before the call;
//   - a [*LimitedError] at once, if the context's deadline is not after the
//     earliest moment at which the units can be there;
//   - [ErrCostExceedsLimit] at once, if n is above the limit;
//   - [ErrClosed], if it would have to sleep and the limiter is closed.
//
// The deadline of a context is wall time, also where the limiter has a
// [ManualClock].
//
// It does not poll: it sleeps until the units can be there, and looks again
// earlier only after SetLimit and Close. Units go to whoever asks first: no order
// among those who wait is promised, and one who asks without waiting may come
// between.
func (l *Limiter) WaitN(ctx context.Context, n uint64) error {
	return l.wait(ctx, func() (d Decision) {
		l.decide(&d, n, l.limit.Load(), unread)
		return d
	})
}

// SetLimit changes the limit. Used counts are kept: with 7 used, a change from
// 10 to 2 denies until enough of them have expired. Every call begun after
// SetLimit has returned sees the new limit; around the change no window holds
// more than the larger of the two. While the limit is [Unlimited] nothing is
// counted. Waiting calls are woken to look again; those with a cost above the new
// limit return [ErrCostExceedsLimit], all of them if it is 0. A limit that does not
// fit is an error that matches [ErrConfig] and changes nothing.
func (l *Limiter) SetLimit(limit uint64) error {
	if err := l.fits(limit); err != nil {
		return err
	}
	l.setting.Lock()
	defer l.setting.Unlock()
	if limit >= l.limit.Load() {
		l.replaceLimit(limit)
		return nil
	}
	l.ring.Lower(func() uint64 {
		l.replaceLimit(limit)
		return l.epoch(l.now())
	})
	return nil
}

// Stats returns what the limiter has counted.
func (l *Limiter) Stats() Stats {
	var s Stats
	l.policy.stats(&s)
	s.Admitted = l.admitted.Load()
	s.Undeposited = l.ring.Undeposited()
	return s
}

// Close wakes all who wait; they return [ErrClosed], and so does from then on a
// wait that would have to sleep. Decisions go on. A Limiter has no goroutine:
// one that is dropped without Close leaves nothing behind. Close may be called
// more than once, and returns nil.
func (l *Limiter) Close() error {
	l.sleepers.close()
	return nil
}

// note does what bookkeeping a decision in epoch needs.
func (l *Limiter) note(a atomicring.Admission, epoch uint64) {
	if a.Epoch > epoch {
		l.noteLate(a.Epoch, epoch)
	}
	if a.Closed > 0 {
		l.admitted.Add(a.Closed)
	}
}

// decide stores in d, which is zero, the decision on n units. A Decision is
// large for a result: it is filled in where the caller wants it.
func (l *Limiter) decide(d *Decision, n, limit uint64, now time.Duration) receipt {
	if n == 0 || n > limit || limit == Unlimited {
		l.look(d, n, limit, now)
		return receipt{}
	}
	if now == unread {
		now = l.now()
	}
	epoch := l.epoch(now)
	limit = min(limit, l.limit.Load()) // as it is after the reading: see Striped.Lower
	total, v, ok := l.ring.TryAdmit(epoch, n, limit)
	a := atomicring.Admission{Verdict: v, Epoch: epoch, Total: total}
	if !ok {
		a = l.ring.AdmitExact(epoch, n, limit)
		if a.Epoch != epoch || a.Closed > 0 {
			l.note(a, epoch)
		}
	}
	if a.Verdict != atomicring.Admitted {
		retry, reset, ok := l.ring.RetryAfter(epoch, n, limit)
		l.deny(d, a.Total, n, limit, retry, reset, ok, now)
		return receipt{}
	}
	l.admit(d, a.Total, limit, a.Epoch+uint64(l.layout.Slots()), now)
	return receipt{l.ring.Ring(), a.Epoch, n}
}

// look is decide, except that it takes nothing. It returns what the ring has
// answered.
func (l *Limiter) look(d *Decision, n, limit uint64, now time.Duration) (a atomicring.Admission) {
	if limit == Unlimited {
		*d = unlimited
		return a
	}
	if now == unread {
		now = l.now()
	}
	epoch := l.epoch(now)
	a = l.ring.Peek(epoch, n, limit)
	retry, reset, ok := l.ring.RetryAfter(epoch, n, limit)
	l.answer(d, a, n, limit, retry, reset, ok, now)
	return a
}
