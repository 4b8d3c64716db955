package limiter

import (
	"context"
	"time"

	"github.com/ringfence-go/ringfence/atomicring"
)

// KeyedConfig says what a [Keyed] allows. Only Window is required, as in [Config],
// of which NoCredits has no effect.
type KeyedConfig struct {
	Config
	// MaxKeys is the largest number of keys in use at a time; 0 means
	// [DefaultMaxKeys]. It bounds memory: see [Keyed] for what a key takes.
	MaxKeys int
	// OnFull says what becomes of a new key when MaxKeys are in use.
	OnFull OnFull
	// SweepEvery is the time between two passes over all keys that remove the
	// idle ones, at least a millisecond, by the timers of the clock; 0 means the
	// window, at least a second and at most a minute. [NoSweep] leaves it to
	// calls of Sweep.
	SweepEvery time.Duration
}

// A Keyed enforces a limit for each key, as a [Limiter] does for one. A key
// exists while anything is counted for it; one that is idle for a window is
// removed by a later sweep.
//
// Keys of type string are cloned when they are stored. Interface types as keys are
// not supported, nor are keys that are not equal to themselves: each NaN is a new
// key, which is not limited.
//
// A Keyed is made by [NewKeyed], for the zero value is not usable, and must not be
// copied. All methods may be called at once from any number of goroutines. A
// decision on a key that exists takes no lock and allocates nothing, nor does one
// on a key that shares an overflow state; a new key takes a lock and allocates its
// state. A key takes about 160 bytes with ten slots, 180 with a coarse clock, and
// its own bytes, rounded up to a size class of Go's allocator.
//
// Keys are never evicted to make room. A new key that finds MaxKeys in use is
// treated as OnFull says; now and then its caller sweeps a part of the keys
// first, 65,536 at most or so, which takes some milliseconds. Keys that share an overflow
// state are held to the limit together, so that they are denied more than they
// had to be, and Remaining and RetryAfter speak of what they share.
type Keyed[K comparable] struct {
	policy
	table table[K, atomicring.Ring]
	janitor
}

// NewKeyed returns a limiter for config, or an error that matches [ErrConfig]
// and names every field that is wrong.
func NewKeyed[K comparable](config KeyedConfig) (*Keyed[K], error) {
	k := &Keyed[K]{}
	faults := k.policy.init(config.Config)
	maxKeys, sweepEvery, more := checkKeys(config.MaxKeys, config.OnFull, config.SweepEvery, config.Window)
	if err := configError(append(faults, more...)); err != nil {
		return nil, err
	}
	layout := &k.layout
	k.table.init(maxKeys, config.OnFull, kind[atomicring.Ring]{
		create:  layout.NewRing,
		open:    func(r *atomicring.Ring, epoch, cost, _ uint64) { r.Open(layout, epoch, cost) },
		retire:  func(r *atomicring.Ring, epoch uint64) (uint64, bool) { return r.Retire(layout, epoch) },
		expired: func(r *atomicring.Ring, epoch uint64) bool { return r.Expired(layout, epoch) },
		rest:    max(1, uint64(roomRest(maxKeys)/k.tick)),
	})
	if sweepEvery != NoSweep {
		sweepLater(timersOf(k.clock), sweepEvery, k, func(k *Keyed[K]) *janitor { return &k.janitor }, (*Keyed[K]).Sweep)
	}
	return k, nil
}

// Allow is AllowN(key, 1).
func (k *Keyed[K]) Allow(key K) bool { return k.AllowN(key, 1) }

// AllowN takes n units of key's limit if that many are left, and reports
// whether it did; see [Limiter.AllowN].
func (k *Keyed[K]) AllowN(key K, n uint64) bool {
	limit := k.limit.Load()
	if n == 0 || n > limit || limit == Unlimited {
		var d Decision
		k.look(&d, key, n, limit, unread)
		if !d.Allowed {
			k.noteDenied()
		}
		return d.Allowed
	}
	hash := k.table.keys.Hash(key)
	epoch := k.epoch(k.now())
	var a atomicring.Admission
	r := k.table.keys.First(hash) // a Load, inlined
	if !k.table.keys.HasShort(hash, r, key) && !k.table.keys.Has(hash, r, key) {
		r = k.table.keys.Stray(hash, key)
	}
	if r != nil {
		if _, v, ok := r.TryAdmit(&k.layout, epoch, n, limit); ok {
			if v != atomicring.Admitted {
				k.noteDenied()
			}
			return v == atomicring.Admitted
		}
		a = r.Admit(&k.layout, epoch, n, limit)
	}
	if _, a, _ = k.complete(r, a, hash, key, n, limit, epoch); a.Verdict != atomicring.Admitted {
		k.noteDenied()
		return false
	}
	return true
}

// Attempt is AllowN with details.
func (k *Keyed[K]) Attempt(key K, n uint64) (d Decision) {
	k.attemptInto(&d, key, n, k.limit.Load())
	return d
}

// AttemptLimit is Attempt with a limit for this call alone, for keys that have
// different ones: what was counted for the key under other limits counts. A
// limit above what Config allows acts as the largest that it does, except
// [Unlimited]; one above Unlimited, which is what a negative number becomes, acts
// as 0.
func (k *Keyed[K]) AttemptLimit(key K, n, limit uint64) (d Decision) {
	k.attemptInto(&d, key, n, limit)
	return d
}

// PeekLimit is Peek with a limit for this call alone, see AttemptLimit.
func (k *Keyed[K]) PeekLimit(key K, n, limit uint64) (d Decision) {
	k.look(&d, key, n, callLimit(limit), unread)
	return d
}

// attemptInto is AttemptLimit, see [Limiter.attemptInto].
func (k *Keyed[K]) attemptInto(d *Decision, key K, n, limit uint64) {
	k.decide(d, key, n, callLimit(limit), unread)
	if !d.Allowed {
		k.noteDenied()
	}
}

// Peek returns what Attempt would answer, with Remaining and ResetAfter as they are
// now. It takes nothing and creates no key.
func (k *Keyed[K]) Peek(key K, n uint64) (d Decision) {
	k.look(&d, key, n, k.limit.Load(), unread)
	return d
}

// Wait is WaitN(ctx, key, 1).
func (k *Keyed[K]) Wait(ctx context.Context, key K) error { return k.WaitN(ctx, key, 1) }

// WaitN is [Limiter.WaitN] for a key. It returns [ErrFull] at once where
// Attempt answers [ReasonFull].
func (k *Keyed[K]) WaitN(ctx context.Context, key K, n uint64) error {
	return k.wait(ctx, func() (d Decision) {
		k.decide(&d, key, n, k.limit.Load(), unread)
		return d
	})
}

// WaitLimit is WaitN with a limit for this call alone, see AttemptLimit.
func (k *Keyed[K]) WaitLimit(ctx context.Context, key K, n, limit uint64) error {
	return k.wait(ctx, func() (d Decision) {
		k.decide(&d, key, n, callLimit(limit), unread)
		return d
	})
}

// Len returns the number of keys that have a state of their own.
func (k *Keyed[K]) Len() int { return int(k.table.count.Load()) }

// Forget drops what is counted for key, which may then take its whole limit at
// once: an administrator's reset. It does not touch what a key has used of an
// overflow state. Waiting calls are woken to look again.
func (k *Keyed[K]) Forget(key K) {
	hash := k.table.keys.Hash(key)
	if r, ok := k.table.keys.Load(hash, key); ok {
		units, ok := r.Discard(&k.layout)
		if ok {
			k.table.shard(hash).admitted.Add(units)
		}
		k.table.drop(hash, r)
		k.wake()
	}
}

// Sweep removes the keys in which nothing is counted any more, one shard after
// the other. No decision waits for it.
func (k *Keyed[K]) Sweep() { k.table.sweep(k.epoch(k.now())) }

// SetLimit changes the limit of all keys, see [Limiter.SetLimit]. Calls that bring
// a limit of their own go on with that.
func (k *Keyed[K]) SetLimit(limit uint64) error {
	if err := k.fits(limit); err != nil {
		return err
	}
	k.replaceLimit(limit)
	return nil
}

// Stats returns what the limiter has counted.
func (k *Keyed[K]) Stats() Stats {
	var s Stats
	k.policy.stats(&s)
	k.table.stats(&s)
	return s
}

// Close ends sweeping, waits for a sweep that is under way and wakes all who
// wait, as [Limiter.Close] does. Decisions go on, unswept. A Keyed that is
// dropped without Close is collected, and its sweeping ends. Close may be
// called more than once, and returns nil.
func (k *Keyed[K]) Close() error {
	k.janitor.close()
	k.sleepers.close()
	return nil
}

// complete goes on where a key's ring has answered a request for n units, 1 to
// limit, at epoch: it does what bookkeeping the answer needs. Where the key has no
// ring, or a retired one, it finds another answer. The ring that it returns is nil
// if the key has none in the end: then full reports whether that is why it was
// denied.
func (k *Keyed[K]) complete(r *atomicring.Ring, a atomicring.Admission, hash uint64, key K, n, limit, epoch uint64) (_ *atomicring.Ring, _ atomicring.Admission, full bool) {
	if r != nil {
		k.note(hash, a, epoch)
		if a.Verdict != atomicring.Retired {
			return r, a, false
		}
		k.table.drop(hash, r)
	}
	return k.admitAbsent(hash, key, n, limit, epoch)
}

// admitAbsent decides for a key whose ring was seen absent or retired.
func (k *Keyed[K]) admitAbsent(hash uint64, key K, n, limit, epoch uint64) (*atomicring.Ring, atomicring.Admission, bool) {
	for {
		r, p, from := k.table.settle(hash, key, epoch, n, 0)
		a := atomicring.Admission{Verdict: atomicring.Admitted, Epoch: from, Total: n}
		switch p {
		case born, sharing:
			k.note(hash, a, epoch)
			return r, a, false
		case admitted:
			return nil, a, false
		case denied:
			return nil, atomicring.Admission{Verdict: atomicring.Denied, Epoch: from}, true
		}
		a = r.Admit(&k.layout, from, n, limit)
		k.note(hash, a, epoch)
		if a.Verdict != atomicring.Retired {
			return r, a, false
		}
		if p == own {
			k.table.drop(hash, r)
		}
	}
}

// note adds up what a ring's answer at epoch says. A ring that was retired during
// the call may have closed a sub-window for it before.
func (k *Keyed[K]) note(hash uint64, a atomicring.Admission, epoch uint64) {
	if a.Epoch > epoch {
		k.noteLate(a.Epoch, epoch)
	}
	if a.Closed > 0 {
		k.table.shard(hash).admitted.Add(a.Closed)
	}
}

// decide stores in d, which is zero, the decision on n units of key. A Decision
// is large for a result: it is filled in where the caller wants it.
func (k *Keyed[K]) decide(d *Decision, key K, n, limit uint64, now time.Duration) receipt {
	limit = k.fitting(limit)
	if n == 0 || n > limit || limit == Unlimited {
		k.look(d, key, n, limit, now)
		return receipt{}
	}
	if now == unread {
		now = k.now()
	}
	epoch := k.epoch(now)
	hash := k.table.keys.Hash(key)
	var a atomicring.Admission
	done, full := false, false
	r := k.table.keys.First(hash) // a Load, inlined
	if !k.table.keys.HasShort(hash, r, key) && !k.table.keys.Has(hash, r, key) {
		r = k.table.keys.Stray(hash, key)
	}
	if r != nil {
		total, v, ok := r.TryAdmit(&k.layout, epoch, n, limit)
		a = atomicring.Admission{Verdict: v, Epoch: epoch, Total: total}
		if !ok {
			a = r.Admit(&k.layout, epoch, n, limit)
		}
		done = a.Epoch == epoch && a.Closed == 0 && a.Verdict != atomicring.Retired
	}
	if !done { // no ring, a retired one, or something to note
		r, a, full = k.complete(r, a, hash, key, n, limit, epoch)
	}
	switch {
	case full:
		k.full(d, limit)
	case a.Verdict == atomicring.Admitted:
		k.admit(d, a.Total, limit, a.Epoch+uint64(k.layout.Slots()), now)
		return receipt{r, a.Epoch, n}
	default:
		retry, reset, ok := r.RetryAfter(&k.layout, epoch, n, limit)
		k.deny(d, a.Total, n, limit, retry, reset, ok, now)
	}
	return receipt{}
}

// look is decide, except that it takes nothing and creates no key. It returns
// what the ring has answered, and which ring that was.
func (k *Keyed[K]) look(d *Decision, key K, n, limit uint64, now time.Duration) (a atomicring.Admission, p place) {
	if limit == Unlimited {
		*d = unlimited
		return a, p
	}
	limit = k.fitting(limit)
	if now == unread {
		now = k.now()
	}
	epoch := k.epoch(now)
	hash := k.table.keys.Hash(key)
	r, ok := k.table.keys.Load(hash, key)
	for {
		p = own
		if !ok {
			r, p = k.table.peek(hash, key, epoch)
		}
		a = atomicring.Admission{Verdict: atomicring.Admitted, Epoch: epoch}
		if p == denied && n > 0 && n <= limit {
			k.full(d, limit)
			return a, p
		}
		if r != nil {
			a = r.Peek(&k.layout, epoch, n, limit)
		} else if n > limit {
			a.Verdict = atomicring.Denied
		}
		if a.Verdict != atomicring.Retired {
			retry, reset, fits := epoch, epoch, n <= limit // of a ring that does not exist yet
			if r != nil {
				retry, reset, fits = r.RetryAfter(&k.layout, epoch, n, limit)
			}
			k.answer(d, a, n, limit, retry, reset, fits, now)
			return a, p
		}
		if p == own {
			k.table.drop(hash, r)
		}
		ok = false
	}
}

// fitting returns the limit that acts where a call brings its own.
func (k *Keyed[K]) fitting(limit uint64) uint64 {
	if limit == Unlimited {
		return limit
	}
	return min(limit, k.layout.Capacity())
}

// full is the decision on a new key for which there is no room.
func (k *Keyed[K]) full(d *Decision, limit uint64) {
	d.Reason, d.Limit, d.RetryAfter = ReasonFull, limit, k.tick
}
