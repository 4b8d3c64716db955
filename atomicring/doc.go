// Package atomicring counts units over time in single 64-bit words, without a
// lock: [Ring] over a rolling window, [Cell] over a fixed one.
//
// It knows words only. It has no clock, no keys and no durations: the caller
// says which epoch it is. An epoch is the number of the tick, the length of
// time one slot covers, that an instant falls in. It has nothing to do with the
// Unix epoch or with memory reclamation. Package limiter puts clocks, keys and
// policies on top; use that one unless you build such a layer yourself.
//
//	layout, err := atomicring.NewLayout(4, 100) // 4 slots, counts up to 100
//	ring := layout.NewRing()
//	start, tick := time.Now(), time.Second
//	epoch := uint64(time.Since(start) / tick)
//	if ring.Admit(&layout, epoch, 1, 100).Verdict == atomicring.Admitted { … }
//
// # Words
//
// The head of a ring and each of its N slots are one uint64, the epoch high, so
// that the words of one slot order by age:
//
//	 63                            C+1   C   C-1                   0
//	+--------------------------------+---+--------------------------+
//	|           epoch + 1            | F |          count           |
//	+--------------------------------+---+--------------------------+
//	  0 = never used         F = frozen    C = bits.Len64(capacity)
//	  all ones = retired     (head only)
//
// With a capacity of 100, C is 7, and the word of epoch 5 with 3 units in it is
// 6<<8 | 3 = 0x603; frozen, 0x683.
//
// The count of the head is the total of the N epochs that end with the head's.
// Slots hold closed sub-windows. The open sub-window has no word of its own: its
// count is the total less the closed counts that are still in the window.
//
//	epoch:      2     3     4     5            N = 4, now in epoch 5
//	         +-----+-----+-----+. . . +
//	slots:   |  1  |  4  |  0  : (2)  :        head = (5, total 7)
//	         +-----+-----+-----+. . . +
//	          slot 2  3     0     1            open count = 7 - 1 - 4 - 0 = 2
//	---------------------------------------> time
//
// One word more, opened, is the head as it was when its epoch was opened, with
// nothing but closed counts in it: here (5, total 5). What the head has more than
// that is the open count. It is written after the head, and nobody adds up the
// slots unless he comes before.
//
// # Algorithm
//
// To admit n units at epoch x under limit L, in a ring with head (e, T):
//
//  1. Retired: report it. Never used: CAS the head to (x, 0) and start again.
//  2. Open and e >= x: deny if T + n > L, writing nothing. Else CAS the head
//     from T to T + n. That CAS is the admission and its linearization point. A
//     late caller, one with e > x, is counted in e: time does not go back.
//  3. Open and e < x: freeze the head, a CAS that sets F. From here on nobody
//     can admit into e.
//  4. Frozen, by anyone: help. c = T less the closed counts in (e-N, e). If the
//     head is still the same, CAS e's slot from what it was to (e, c). Then CAS
//     the head to (x', T') open, with x' = max(x, e+1) and T' the sum of the
//     closed counts in (x'-N, x'). Start again.
//
// Why one word must carry every admission: a CAS guards its own word only. If
// each slot were counted by a CAS of its own, two callers on either side of a
// tick boundary could both read a total of L - 1 and write two different words.
//
// # Invariants
//
//	I1  Every admission and refund is one CAS of the head, and the decision
//	    rests on that word and the caller's own arguments alone.
//	I2  While the head is frozen, no count changes.
//	I3  The head's total is the sum of the closed counts in (e-N, e) and of the
//	    open one, which is never negative.
//	I4  The epoch of the head never decreases, and neither does that of a slot.
//	I5  A frozen word that was replaced never comes back, for the head then has
//	    a later epoch or is retired. An open word may come back (a refund), and
//	    then means the same as before.
//	I6  A retired word never changes again.
//	I7  The word opened is one that the head once was, written by the call that
//	    made it so. Where it is of the head's epoch, it holds the closed counts
//	    in (e-N, e), for these do not change until the head is at a later epoch.
//
// A late caller cannot break the limit because of step 2. A helper that stalls
// cannot, because its CAS of the slot expects a word that the others replaced
// (I4), and its CAS of the head expects a frozen word (I5). A caller that stalls
// before it writes opened leaves that at an older epoch, which all who read it see
// (I7). A clock that steps back turns callers into late ones.
//
// So any N consecutive epochs hold at most L units, L being the largest limit in
// use; and since an admission is counted in an epoch between the one its caller
// read and the one in which its CAS took place, a layer that gives N epochs more
// than a window of time has the limit hold for every interval of that length.
//
// # Birth
//
// A ring that is replaced by another one for the same key needs care: a late
// caller that creates the new ring at its old epoch would be counted in epochs
// which the retired ring has counted already. So the owner keeps a floor. Who
// retires raises it to the epoch of the retirement before the CAS, and a new
// ring is opened at max(x, floor) before anybody else can reach it. The floor is
// read inside the insert, where no other ring of the key can come and go: who
// reads it, sleeps for a whole life of another ring, and then inserts a ring of
// his own, brings a floor that is too low.
//
// # Memory model
//
// Go's atomics are sequentially consistent. A call whose CAS succeeded
// synchronizes before every later call that observes its word. Words are
// independent of the processor's byte order, and aligned on 32-bit targets.
//
// # Exact and estimated
//
// Verdicts, totals, snapshots and refunds are exact. Peek and RetryAfter are
// exact for the instant at which they read the head. Nothing here is estimated.
//
// # Limits
//
// The epoch and the count share 63 bits. Epochs are clamped at the end of their
// field and a limit at the capacity: a ring then becomes too strict, never too
// lax, and never loops or wraps. At 100 ms a tick, 34 bits of epoch last 54
// years and leave 29 bits of count.
//
// # Cost
//
// An admission in an open epoch is one load and one CAS, a denial one load. The
// first callers of a new epoch walk the ring once and do up to four CAS and a store.
package atomicring
