/* The rolling ring: one head word, what it began with, N slots, late callers,
   helpers, refunds and a limit for each call.

   A call reads the clock once (x) and has a cost (n) and a limit (lim).
   Epochs are kept plus one, so that 0 means never used. An atomic block is
   one access to shared memory and the local steps after it.

   P, CALLS     callers, and calls by each
   E, N         ticks of the clock, 1 to E; sub-windows that count
   LIMIT, COSTS units a window holds; costs 1 to COSTS (default 1)
   LIMITS       calls may have any limit from 1 to LIMIT
   SPARSE       the clock may also jump

   One protection removed each; every one of them must make spin fail:
   NOFREEZE, NOCHECK, STORE, RELABEL, REFUNDFROZEN, ANYOPENED, EARLYOPENED. */

#ifndef P
#define P 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef E
#define E 3
#endif
#ifndef N
#define N 2
#endif
#ifndef LIMIT
#define LIMIT 2
#endif
#ifndef COSTS
#define COSTS 1
#endif

/* Head: epoch, frozen, count. Slot: the same with the flag clear. */
#define BASE 8
#define WORD(e, f, c) (((e) * 2 + (f)) * BASE + (c))
#define EPOCH(w) ((w) / (2 * BASE))
#define FROZEN(w) (((w) / BASE) % 2)
#define COUNT(w) ((w) % BASE)

byte head, slot[N], opened;
byte clock = 1;

/* What really happened, seen by no caller. */
byte spent[E + N + 1]; /* units of admitted calls, by epoch */

/* sum = units spent in the N epochs that end with last. */
inline window(last, sum) {
	sum = 0; i = 0;
	do
	:: i < N && i < (last) -> sum = sum + spent[(last) - i]; i++
	:: else -> i = 0; break
	od
}

/* The head's total is what was spent in its window. */
inline conserved() {
	window(EPOCH(head), c);
	assert(COUNT(head) == c);
	c = 0
}

/* P1: the call's own reading, the epoch counted in, the clock now, in that
   order; and no N consecutive epochs hold more than the limit. */
inline never_over() {
	assert(x <= e && e <= clock);
	j = 0;
	do
	:: j < N -> window(e + j, c); assert(c <= LIMIT); j++
	:: else -> break
	od;
	j = 0;
	window(e, c);
	assert(c <= lim);
	c = 0
}

/* total = sum of the closed counts in (top - N, from). */
inline closed(top, from, total) {
	total = 0; i = 0;
	do
	:: atomic {
		w = slot[i];
		if
		:: EPOCH(w) > 0 && EPOCH(w) + N > top && EPOCH(w) < from -> total = total + COUNT(w)
		:: else
		fi;
		w = 0; i++;
		if :: i == N -> i = 0; break :: else fi
	}
	od
}

proctype caller() {
	byte x, n, lim, h, e, t, w, k, i, j, old, next, got, calls;
	short c;
	do
	:: calls < CALLS ->
		atomic {
			x = clock;
			n = 1; do :: n < COSTS -> n++ :: break od;
			lim = LIMIT;
#ifdef LIMITS
			do :: lim > 1 -> lim-- :: break od
#endif
		}

again:	atomic {
			h = head; e = EPOCH(h); t = COUNT(h);
			w = 0; k = 0; old = 0; next = 0; c = 0;
			if
			:: e == 0 -> next = WORD(x, 0, 0)                     /* 1 */
			:: e > 0 && FROZEN(h) -> goto close                   /* 4 */
#ifdef NOFREEZE
			:: e > 0 && !FROZEN(h) && e < x -> goto close
#else
			:: e > 0 && !FROZEN(h) && e < x -> next = WORD(e, 1, t) /* 3 */
#endif
			:: else ->                                            /* 2 */
				if
				:: t + n > lim -> goto done
				:: t + n <= lim -> next = h + n; got = e
				fi
			fi
		}
		atomic {
			if
			:: head == h && got > 0 ->
				head = next; spent[e] = spent[e] + n; never_over(); conserved(); goto done
			:: head == h && got == 0 ->
				head = next;
				if :: h > 0 -> goto again :: else fi
			:: else -> got = 0; goto again
			fi
		}
		opened = next;
		goto again;

		/* 4. Publish the closed count, open the next sub-window. */
close:
		old = slot[(e - 1) % N];
		atomic {
			w = opened;
#ifdef ANYOPENED
			if :: true -> c = COUNT(w); w = 0; goto counted fi
#else
			if :: EPOCH(w) == e -> c = COUNT(w); w = 0; goto counted :: else -> w = 0 fi
#endif
		}
		closed(e, e, c);
counted:	c = t - c;
#ifndef NOCHECK
		if
		:: head != h -> goto again
		:: else
		fi;
		assert(c >= 0);
#else
		if
		:: c < 0 -> goto again
		:: else
		fi;
#endif
		atomic {
			if
#ifdef STORE
			:: true ->
#else
			:: slot[(e - 1) % N] == old ->
#endif
#ifdef RELABEL
				slot[(e - 1) % N] = WORD(e, 0, c + COUNT(old))
#else
				slot[(e - 1) % N] = WORD(e, 0, c)
#endif
			:: else
			fi;
			k = (x > e -> x : e + 1); old = 0; c = 0; t = 0
		}
		closed(k, e + 1, next);
		next = WORD(k, 0, next);
#ifdef EARLYOPENED
		opened = next;
#endif
		atomic {
			if
			:: head == h ->
				assert(slot[(e - 1) % N] == WORD(e, 0, spent[e]));
				head = next; conserved()
			:: else -> goto again
			fi
		}
		opened = next;
		goto again;

done:
		/* A call that was admitted may give its units back. */
		if
		:: got > 0 ->
			do
			:: atomic {
				h = head;
				if
#ifdef REFUNDFROZEN
				:: EPOCH(h) == got
#else
				:: EPOCH(h) == got && !FROZEN(h)
#endif
				:: else -> break
				fi
			}
			atomic {
				if
				:: head == h ->
					head = h - n; spent[got] = spent[got] - n; conserved(); break
				:: else
				fi
			}
			od
		:: true
		fi;
		atomic {
			x = 0; n = 0; lim = 0; h = 0; e = 0; t = 0; w = 0; k = 0;
			i = 0; j = 0; old = 0; next = 0; got = 0; c = 0;
			calls++
		}
	:: else -> break
	od
}

proctype ticker() {
	do
	:: clock < E -> clock++
#ifdef SPARSE
	:: clock + 1 < E -> clock = clock + 2
#endif
	:: clock == E -> break
	od
}

init {
	byte k;
	atomic {
		run ticker();
		do :: k < P -> run caller(); k++ :: else -> break od
	}
}
