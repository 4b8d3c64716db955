package middleware

import (
	"net/http"
	"sync"
	"time"

	"github.com/ringfence-go/ringfence/limiter"
)

// verdict is one limit of a request: what is asked, and what was decided.
type verdict struct {
	policy string
	key    string
	window time.Duration
	limiter.Decision

	// Of a fixed window only.
	after  func(status int) bool
	denial http.Handler

	// Of a rolling window only.
	keyed *limiter.Keyed[string]
	cost  uint64
}

// settle enters the answer of a store. An item of a list can be allowed in a
// request that is denied; nothing was counted then.
func (v *verdict) settle(allowed bool, attempts int, rest time.Duration) {
	rest = max(rest, 0)
	v.Decision = limiter.Decision{Allowed: allowed, Limit: v.Limit, ResetAfter: rest}
	if allowed {
		v.Reason = limiter.ReasonAdmitted
		v.Remaining = v.Limit - min(uint64(max(attempts, 0)), v.Limit)
	} else {
		v.RetryAfter = rest
	}
}

// wait returns how long a denied request should wait. Where no wait helps it is
// told to come back a window later.
func (v *verdict) wait() time.Duration {
	if v.RetryAfter == limiter.Never {
		return v.window
	}
	return v.RetryAfter
}

// call is what deciding one request needs. Calls are used again and again, so a
// call is not to be kept.
type call struct {
	verdicts []verdict // in the order in which they were declared
	denied   int       // the place of the one that denies, -1 if none does
	shown    int       // the place of the one that the header fields show
	outer    *snapshot // of the header before it was set, if refundable
	fields   fields

	items   []limiter.StoreItem
	results []limiter.StoreResult

	rolling   []limiter.Item
	decisions []limiter.Decision
}

var calls = sync.Pool{New: func() any { return new(call) }}

func newCall() *call { return calls.Get().(*call) }

// free gives c back. What it still refers to is not kept for long: a pool is
// emptied by every other garbage collection.
func (c *call) free() {
	c.verdicts, c.items, c.results = c.verdicts[:0], c.items[:0], c.results[:0]
	c.rolling, c.decisions = c.rolling[:0], c.decisions[:0]
	c.outer = nil
	calls.Put(c)
}

// add returns a new verdict, the last one so far.
func (c *call) add() *verdict {
	c.verdicts = append(c.verdicts, verdict{})
	return &c.verdicts[len(c.verdicts)-1]
}

// choose finds the verdict that is shown: the one that denies, else the first
// with the smallest rest.
func (c *call) choose() {
	if c.denied >= 0 {
		c.shown = c.denied
		return
	}
	c.shown = leastRemaining(c.verdicts)
}

func leastRemaining(verdicts []verdict) (least int) {
	for i := range verdicts {
		if verdicts[i].Remaining < verdicts[least].Remaining {
			least = i
		}
	}
	return least
}

// refundable reports whether the response can change what was counted.
func (c *call) refundable() bool {
	for i := range c.verdicts {
		if c.verdicts[i].after != nil {
			return true
		}
	}
	return false
}

// attemptMany has store decide all limits together.
func (c *call) attemptMany(store limiter.MultiStore) {
	for i := range c.verdicts {
		v := &c.verdicts[i]
		c.items = append(c.items, limiter.StoreItem{Key: v.key, Max: int(v.Limit), Decay: v.window, Cost: 1})
		c.results = append(c.results, limiter.StoreResult{})
	}
	c.denied = store.AttemptMany(c.items, c.results)
	for i := range c.verdicts {
		result := &c.results[i]
		c.verdicts[i].settle(result.Allowed, result.Attempts, result.RetryAfter)
	}
	c.choose()
}
