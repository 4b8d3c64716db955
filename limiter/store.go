package limiter

import (
	"context"
	"time"
)

// Store counts attempts in fixed windows, one for each key. It has one
// operation, which compares and counts in a single step: there is no separate
// question whether an attempt would pass, whose answer could be out of date by
// the time that the attempt is counted. A Store is safe for concurrent use.
//
// A fixed window admits at most max, and so up to twice max in an interval of
// its length that spans two windows. A rolling [Limiter] does not.
type Store interface {
	// Attempt counts one attempt on key, if at most max are then counted in its
	// window. The window begins with the first attempt counted and ends decay
	// later; the end does not belong to it. Later attempts do not move it, and
	// denied ones change nothing.
	//
	// attempts is the count with this attempt if it is allowed, else the count
	// as it stands. retryAfter is the rest of the window, allowed or not, and
	// never negative. With a max or a decay of 0 or less nothing is allowed,
	// attempts is 0 where nothing is counted, and retryAfter is decay, at least
	// 0.
	Attempt(key string, max int, decay time.Duration) (allowed bool, attempts int, retryAfter time.Duration)
}

// StoreItem is one of the attempts that [MultiStore.AttemptMany] decides
// together.
type StoreItem struct {
	// Key, Max and Decay are those of [Store]'s Attempt.
	Key   string
	Max   int
	Decay time.Duration
	// Cost is how much the attempt counts; 0 means 1. A negative cost is never
	// allowed.
	Cost int
}

// StoreResult is the answer to one StoreItem.
type StoreResult struct {
	// Allowed reports whether this item would be admitted, with those of the same
	// key before it. Nothing was counted for it if another item was denied.
	Allowed bool
	// Attempts is the count of the item's window, with this attempt if all items
	// were admitted.
	Attempts int
	// RetryAfter is the rest of the item's window, see [Store].
	RetryAfter time.Duration
	// Charge is what was counted, for [MultiStore.Refund].
	Charge Charge
}

// Charge names the units that a MultiStore counted for one item: those of one
// window of one key, so that giving them back cannot touch a later window. Only
// the store that made it can read it. The zero value names nothing.
type Charge struct {
	Ref    any    // the store's own
	Window uint64 // the store's own
	Cost   uint64 // units counted
}

// MultiStore is a Store that can decide several limits at once and take back
// what it has counted.
type MultiStore interface {
	Store

	// AttemptMany counts every item, or none of them. It returns the index of
	// the first item that is denied, or -1 if all were counted, and fills in one
	// result for each item. It panics if results is shorter than items. Items with
	// equal keys share a window, and each counts.
	AttemptMany(items []StoreItem, results []StoreResult) (denied int)

	// Refund gives a charge back, and reports whether it did: it can while the
	// charge's window lives and holds that many units. With its last unit a
	// window is gone, so that the next attempt begins a new one; that one does
	// not end before the old one would have. It empties the charge, so that to give
	// it back again does nothing; a copy of it must not be given back as well.
	Refund(c *Charge) bool
}

// ErrorStore is a Store that can fail, for example because it asks another
// machine. Who uses one decides what a failure means for the request.
type ErrorStore interface {
	Store

	// AttemptContext is Attempt, given up when ctx is done. If err is not nil
	// the other results mean nothing, and whether the attempt was counted is
	// unknown.
	AttemptContext(ctx context.Context, key string, max int, decay time.Duration) (allowed bool, attempts int, retryAfter time.Duration, err error)
}
