// Package limiter decides, without a lock, whether one more unit of work may
// pass: [Limiter] under one limit, [Keyed] under a limit for each key,
// [MemoryStore] in fixed windows.
//
//	l, err := limiter.New(limiter.Config{Limit: 100, Window: time.Minute})
//	if l.Allow() { … }
//
// Use it to protect a service, or to keep within what another one allows.
// Do not use it to spread work evenly over time: a window limiter lets the whole
// limit pass at once. It counts in this process only.
//
// # Guarantees
//
// For a limit L and a window W of a Limiter or a Keyed:
//
//   - Never over. Every half-open interval of length W, wherever it starts,
//     holds at most L units. No interleaving, late caller, clock step, idle
//     period, sweep or change of the limit breaks this.
//   - Barely under. A request that an exact log of admissions would admit is
//     admitted at most one tick, W / Slots, later; with a coarse clock two ticks
//     and the resolution. Where Slots does not divide W, ticks are rounded up to a
//     nanosecond, and the last may be Slots - 1 nanoseconds late. Denied requests
//     never count.
//   - No lock on a decision. A key that exists is decided by loads and one CAS, a
//     denial only loads unless a tick has passed, and nothing is allocated.
//   - Bounded memory. Keys are capped, and one in use is never evicted.
//   - Honest answers. Waiting for RetryAfter on an otherwise idle limiter admits.
//
// The exceptions have names: [AdmitNew] fails open; Forget is a reset; around a
// SetLimit the larger limit holds; a clock that jumps ahead and comes back leaves
// the limiter closed until it has caught up; keys that share an overflow state,
// and an [AttemptAll] under way, may be denied more than they had to be.
//
// A fixed window admits at most max per window, and so up to twice max in an
// interval of its length.
//
// # Time
//
// A window is counted in Slots + 1 sub-windows of a tick each, one more with a
// clock whose readings can be old. That is why the limit holds wherever the
// interval starts, and why a saturated limiter delivers Slots / (Slots + 1) of
// it: 91 % with 10 slots, 98 % with 60.
//
//	tick:  |  0  |  1  |  2  |  3  |  4  |        Slots = 4
//	          ^                       ^
//	          one unit counted here   expires here, when tick 5 begins:
//	                                  4 to 5 ticks after it was taken
//
// Only differences between readings of a [Clock] count, and the first reading is
// time 0. After 30 years time stands still, and a limiter that is full then
// stays full.
//
// # Memory model
//
// A decision synchronizes before every later decision on the same limit that
// observes what it counted. SetLimit synchronizes before every call begun after
// it has returned.
package limiter
