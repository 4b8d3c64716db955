package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// maxMax is the largest max of a fixed window: what any int and the integers of
// header fields can hold.
const maxMax = 1<<31 - 1

// memoryMax is the largest max that a [limiter.MemoryStore] holds to.
const memoryMax = 1<<24 - 1

// Limits is what a named limiter says about one request: one or more limits,
// built by [Per] and its short forms and combined by [All], or [NoLimits], or
// [Respond]. The zero value is none of these but a mistake, and is treated as
// one: the request is answered with status 500.
//
// Limits are values: their methods return a changed copy.
type Limits struct {
	kind  limitsKind
	first limit // the one limit, in most cases, without an allocation
	more  []limit
	reply http.Handler
	err   error
}

type limitsKind uint8

const (
	kindZero limitsKind = iota
	kindLimits
	kindNone
	kindReply
)

// limit is one limit of the list.
type limit struct {
	max       int
	window    time.Duration
	unlimited bool
	by        string
	after     func(status int) bool
	denial    http.Handler
}

// Per allows n requests in a window of length d that begins with the first of
// them. An n of 0 denies every request. A negative n and a d below a millisecond
// are mistakes, as is an n above 2,147,483,647: for no limit there is
// [Unlimited]. For what the store can count see [FixedWindowConfig].
func Per(n int, d time.Duration) Limits {
	l := Limits{kind: kindLimits, first: limit{max: n, window: d}}
	switch {
	case n < 0:
		l.err = fmt.Errorf("the limit is %d, want 0 or more", n)
	case n > maxMax:
		l.err = fmt.Errorf("the limit is %d, want at most %d, or Unlimited", n, maxMax)
	case d < minWindow:
		l.err = fmt.Errorf("the window is %v, want at least %v", d, minWindow)
	}
	return l
}

// PerSecond allows n requests in a second, see [Per].
func PerSecond(n int) Limits { return Per(n, time.Second) }

// PerMinute allows n requests in a minute, see [Per].
func PerMinute(n int) Limits { return Per(n, time.Minute) }

// PerHour allows n requests in an hour, see [Per].
func PerHour(n int) Limits { return Per(n, time.Hour) }

// PerDay allows n requests in 24 hours, see [Per].
func PerDay(n int) Limits { return Per(n, 24*time.Hour) }

// Unlimited is a limit that admits everything and counts nothing. In a list with
// others it has no effect, except that it keeps the others' places.
func Unlimited() Limits {
	return Limits{kind: kindLimits, first: limit{unlimited: true}}
}

// NoLimits lets the request pass, uncounted and without header fields.
func NoLimits() Limits { return Limits{kind: kindNone} }

// Respond has h answer the request in place of the handler. Nothing is counted
// and no header field is set.
func Respond(h http.Handler) Limits {
	l := Limits{kind: kindReply, reply: h}
	if isNil(h) {
		l.err = errors.New("the handler to respond with is nil")
	}
	return l
}

// All combines limits into one list. A request has to pass all of them, and each
// has a counter of its own. The order matters where several are used up: the
// first is shown, with its own wait, even if another takes longer; declare the
// longest window first to avoid that. All takes limits only, at least one; a
// mistake among them is a mistake of the whole.
func All(lists ...Limits) Limits {
	if len(lists) == 0 {
		return Limits{err: errors.New("All has no limits, want at least one")}
	}
	var all Limits
	for i, l := range lists {
		switch {
		case l.err != nil:
			return Limits{err: fmt.Errorf("limit %d of the list: %w", i+1, l.err)}
		case l.kind != kindLimits:
			return Limits{err: fmt.Errorf("limit %d of the list is not a limit", i+1)}
		case i == 0:
			all = l
			all.more = append(make([]limit, 0, len(l.more)+len(lists)-1), l.more...)
		default:
			all.more = append(append(all.more, l.first), l.more...)
		}
	}
	return all
}

// By counts requests separately by key: under one key for each client or user,
// for example. Without it a limit is one for all requests together. A key is
// bytes, compared as they are; see [FixedWindowLimiter.ClientKey] and
// [FixedWindowLimiter.CallerKey] for ready ones. The limits of one list, and the
// lists of differently named limiters, never share a counter, whatever their
// keys.
func (l Limits) By(key string) Limits {
	l.own("By")
	l.first.by = key
	for i := range l.more {
		l.more[i].by = key
	}
	return l
}

// After makes what is counted depend on the response: counts is called with its
// status, and where it returns false the unit that was reserved before the
// handler ran is given back. This happens once, when the handler writes the
// header, so that the response already shows it. Informational responses except
// 101 are passed over, a handler that writes nothing has status 200, one that
// hijacks the connection 101, and one that panics counts. Units are reserved
// first so that many requests at once cannot all pass before one has failed.
//
// Only a store that can give back works, see [limiter.MultiStore].
func (l Limits) After(counts func(status int) bool) Limits {
	l.own("After")
	if counts == nil && l.err == nil {
		l.err = errors.New("After has no function")
	}
	l.first.after = counts
	for i := range l.more {
		l.more[i].after = counts
	}
	return l
}

// Response has h answer requests that the limit denies. The header fields are
// set when it runs, and it may change them. It has to write a status: as in any
// handler, none means 200.
func (l Limits) Response(h http.Handler) Limits {
	l.own("Response")
	if isNil(h) && l.err == nil {
		l.err = errors.New("the Response handler is nil")
	}
	l.first.denial = h
	for i := range l.more {
		l.more[i].denial = h
	}
	return l
}

// own makes a copy of a list one that the method can change.
func (l *Limits) own(method string) {
	if l.kind != kindLimits && l.err == nil {
		l.err = fmt.Errorf("%s of what is not a limit", method)
	}
	l.more = slices.Clone(l.more)
}

// check returns what is wrong with the limits.
func (l Limits) check() error {
	if l.err == nil && l.kind == kindZero {
		return errors.New("the Limits are the zero value, want limits, NoLimits or Respond")
	}
	return l.err
}

// len returns the number of limits.
func (l *Limits) len() int { return 1 + len(l.more) }

// at returns the limit in place i, counted from 0.
func (l *Limits) at(i int) *limit {
	if i == 0 {
		return &l.first
	}
	return &l.more[i-1]
}
