package limiter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// An Item is one limit of an [AttemptAll]: units of a [Limiter], or of a key of
// a [Keyed]. It is made by their Item methods.
type Item struct {
	target target
	n      uint64
	limit  uint64
}

// ownLimit as the limit of an item is the one its limiter has when it is used.
const ownLimit = math.MaxUint64

// Item returns n units of l for [AttemptAll].
func (l *Limiter) Item(n uint64) Item { return Item{l, n, ownLimit} }

// Item returns n units of key for [AttemptAll].
func (k *Keyed[K]) Item(key K, n uint64) Item {
	return Item{&keyedTarget[K]{k, key}, n, ownLimit}
}

// ItemLimit is Item with a limit for this call alone, see [Keyed.AttemptLimit].
func (k *Keyed[K]) ItemLimit(key K, n, limit uint64) Item {
	return Item{&keyedTarget[K]{k, key}, n, callLimit(limit)}
}

// A target is what an item takes units of.
type target interface {
	// common returns the limiter and the hash of the key. Together they order
	// all targets of the process.
	common() (*policy, uint64)
	// same reports whether both are the same limiter and key.
	same(other target) bool
	// peek answers what attempt would, and counts in the stats if it denies.
	peek(n, limit uint64, now time.Duration) Decision
	attempt(n, limit uint64, now time.Duration) (Decision, receipt)
}

func (l *Limiter) common() (*policy, uint64) { return &l.policy, 0 }
func (l *Limiter) same(other target) bool    { return other == target(l) }

func (l *Limiter) peek(n, limit uint64, now time.Duration) (d Decision) {
	if a := l.look(&d, n, limit, now); !d.Allowed {
		l.note(a, l.epoch(now))
	}
	return d
}

func (l *Limiter) attempt(n, limit uint64, now time.Duration) (d Decision, r receipt) {
	r = l.decide(&d, n, limit, now)
	return d, r
}

type keyedTarget[K comparable] struct {
	k   *Keyed[K]
	key K
}

func (t *keyedTarget[K]) common() (*policy, uint64) {
	return &t.k.policy, t.k.table.keys.Hash(t.key)
}

func (t *keyedTarget[K]) same(other target) bool {
	o, ok := other.(*keyedTarget[K])
	return ok && *o == *t
}

func (t *keyedTarget[K]) peek(n, limit uint64, now time.Duration) (d Decision) {
	if a, p := t.k.look(&d, t.key, n, limit, now); !d.Allowed {
		hash := t.k.table.keys.Hash(t.key)
		t.k.note(hash, a, t.k.epoch(now))
		t.k.table.force(hash, p)
	}
	return d
}

func (t *keyedTarget[K]) attempt(n, limit uint64, now time.Duration) (d Decision, r receipt) {
	r = t.k.decide(&d, t.key, n, limit, now)
	return d, r
}

// AttemptAll takes the units of all items, or of none. It returns the decision
// and the place of the item that it is about: if all were admitted, -1 with the
// decision of the least Remaining; else the place of the denied item with the
// longest RetryAfter. Without items everything is allowed.
//
// Items for the same limiter and key are added up, and are held to the smallest
// of their limits. Concurrent calls cannot deadlock and never admit too much.
// While a call is under way it may have taken units that it gives back because
// another item is denied: for that moment it may deny somebody else, and if the
// tick turns just then, what it took stays counted until it expires. Every item is
// compared with every other: it is for a handful of them.
func AttemptAll(items ...Item) (Decision, int) { return AttemptAllInto(nil, items...) }

// AttemptAllInto is AttemptAll, and stores the decision on each item in
// decisions, which is nil or at least as long as items, or it panics. If the call is
// denied, they say what each item alone would have been answered, though nothing was
// taken; items for the same limiter and key have the answer to their sum.
func AttemptAllInto(decisions []Decision, items ...Item) (Decision, int) {
	if decisions != nil && len(decisions) < len(items) {
		panic(fmt.Sprintf("limiter: %d decisions for %d items", len(decisions), len(items)))
	}
	var few [8]share
	shares := merge(few[:0], items)
	denied := peekAll(shares)
	if denied == nil {
		denied = chargeAll(shares)
	}
	if decisions != nil {
		for i := range items {
			decisions[i] = shareOf(shares, items[i].target).decision
		}
	}
	if denied != nil {
		denied.policy.noteDenied()
		return denied.decision, denied.first
	}
	tightest := unlimited
	for i := range shares {
		if d := shares[i].decision; d.Remaining < tightest.Remaining {
			tightest = d
		}
	}
	return tightest, -1
}

// A share is what a call takes of one target.
type share struct {
	Item
	policy   *policy
	hash     uint64
	first    int           // the place of the first item that it stands for
	now      time.Duration // the one reading of the clock
	decision Decision
	receipt  receipt
}

// merge adds up the items that have the same target, in the order in which all
// calls charge: so that concurrent calls do not deny each other in turn.
func merge(shares []share, items []Item) []share {
	for i, item := range items {
		p, hash := item.target.common()
		if item.limit == ownLimit {
			item.limit = p.limit.Load()
		}
		if s := shareOf(shares, item.target); s != nil {
			s.n = s.n + min(item.n, math.MaxUint64-s.n)
			s.limit = min(s.limit, item.limit)
			continue
		}
		shares = append(shares, share{Item: item, policy: p, hash: hash, first: i, now: unread})
	}
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(a.policy.id, b.policy.id), cmp.Compare(a.hash, b.hash))
	})
	return shares
}

// shareOf returns the share of a target, nil if there is none.
func shareOf(shares []share, t target) *share {
	for i := range shares {
		if shares[i].target.same(t) {
			return &shares[i]
		}
	}
	return nil
}

// peekAll looks at all shares, so that a call that is denied in the end rarely
// takes anything. It returns the denied share with the longest wait.
func peekAll(shares []share) (denied *share) {
	for i := range shares {
		s := &shares[i]
		if s.limit != Unlimited {
			s.now = s.policy.now()
		}
		s.decision = s.target.peek(s.n, s.limit, s.now)
		if s.decision.Allowed {
			continue
		}
		if denied == nil || s.decision.RetryAfter > denied.decision.RetryAfter ||
			s.decision.RetryAfter == denied.decision.RetryAfter && s.first < denied.first {
			denied = s
		}
	}
	return denied
}

// chargeAll takes the units of all shares. If one is denied after all, it gives
// back what it took and returns that one.
func chargeAll(shares []share) (denied *share) {
	for i := range shares {
		s := &shares[i]
		s.decision, s.receipt = s.target.attempt(s.n, s.limit, s.now)
		if s.decision.Allowed {
			continue
		}
		for j := i - 1; j >= 0; j-- {
			taken := &shares[j]
			taken.policy.refund(taken.receipt)
			taken.decision = taken.target.peek(taken.n, taken.limit, taken.now)
		}
		return s
	}
	return nil
}
