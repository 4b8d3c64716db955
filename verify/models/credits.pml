/* One hot limit on many cores: head, slots, stripes of credits. README.md
   beside this file has the protocol in words; its step numbers are used here.

   A call reads the clock once (x) and has a cost (n) and a limit (lim).
   Epochs are kept plus one, so that 0 means never used.

   P, CALLS     callers, and calls by each
   E            ticks of the clock, 1 to E
   LIMIT, BATCH units a window holds; units a charge may take
   COSTS        costs 1 to COSTS (default 1)
   REFUNDS      an admitted call may give its units back
   LOWER=l      the limit drops to l at any moment
   SPARSE       the clock may also jump

   One protection removed each; every one of them must make spin fail:
   NOSEAL, DROP, NOSTEAL, SPENDSEALED, DEPOSITSEALED, TAKESEALED, STALEHAND,
   NOGIVEBACK, LATEHINT (needs nothing else), BLIND (needs LOWER). */

#define N 2        /* sub-windows that count; checks below rely on 2 */
#define S 2        /* stripes */
#ifndef P
#define P 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef E
#define E 3
#endif
#ifndef LIMIT
#define LIMIT 3
#endif
#ifndef BATCH
#define BATCH 2
#endif
#ifndef COSTS
#define COSTS 1
#endif

/* Head and stripe: epoch, flag (frozen, sealed), count. Slot: the same with
   the flag clear. A word fits a byte: E at most 14, counts at most 7. */
#define BASE 8
#define WORD(e, f, c) (((e) * 2 + (f)) * BASE + (c))
#define EPOCH(w) ((w) / (2 * BASE))
#define FLAG(w)  (((w) / BASE) % 2)
#define COUNT(w) ((w) % BASE)

byte head, slot[N], stripe[S];
byte on;           /* the newest epoch in which charges may leave credits */
byte clock = 1;
byte limit = LIMIT;
byte exact;        /* calls that read the clock before it use the head alone */

/* What really happened, seen by no caller. By epoch: */
byte spent[E + 2]; /* units of admitted calls */
byte held[E + 2];  /* units in a caller's hands: charged or taken off a stripe */
byte lost[E + 2];  /* units counted that nobody can spend any more */
bit  stirred[P];   /* units came out of somebody's hands during this scan */
bit  lowered, tail;

#define BEFORE(e)     (EPOCH(slot[(e) % N]) == (e) - 1 -> COUNT(slot[(e) % N]) : 0)
#define CREDITS(e, j) (EPOCH(stripe[j]) == (e) -> COUNT(stripe[j]) : 0)
#define USED(e)       (BEFORE(e) + spent[e] + lost[e])
#define TRUTH(e)      (USED(e) + held[e] + CREDITS(e, 0) + CREDITS(e, 1))

/* C1: the head's total is what was spent, is lost, held or on a stripe. */
#define CONSERVED assert(EPOCH(head) == 0 || COUNT(head) == TRUTH(EPOCH(head)))

/* C2 (P1): the call's own reading, the epoch counted in, the clock now, in
   that order; and no N consecutive epochs hold more than the limit. */
#define ADMIT(e) \
	spent[e] = spent[e] + n; got = e; \
	assert(x <= e && e <= clock); \
	assert(spent[e - 1] + spent[e] <= LIMIT); \
	assert(spent[e] + spent[e + 1] <= LIMIT); \
	tail = tail || (lowered && lim == LIMIT); \
	assert(spent[e - 1] + spent[e] <= lim || (tail && x >= until)); \
	CONSERVED

#define STIR(me) stirred[0] = 1; stirred[1] = 1; stirred[P - 1] = 1

/* Deposit units at epoch e on the own stripe. Who made the CAS fail: another
   deposit, a spend, a steal, or the seal of this very epoch. */
inline deposit(units) {
	do
	:: true ->
		w = stripe[own];
		if
#ifdef DEPOSITSEALED
		:: EPOCH(w) == e ->
#else
		:: EPOCH(w) == e && !FLAG(w) ->
#endif
			atomic {
				if
				:: stripe[own] == w ->
					stripe[own] = w + (units);
					held[e] = held[e] - (units); STIR(me); CONSERVED; break
				:: else
				fi
			}
		:: EPOCH(w) < e ->
			atomic {
				if
				:: stripe[own] == w ->
					stripe[own] = WORD(e, 0, (units));
					held[e] = held[e] - (units); STIR(me); CONSERVED; break
				:: else
				fi
			}
		:: else ->
			/* C5: units are lost only to a sub-window that is closing. */
			atomic {
				held[e] = held[e] - (units); lost[e] = lost[e] + (units);
				assert(EPOCH(head) != e || FLAG(head)); CONSERVED; break
			}
		fi
	od
}

/* total = sum of the closed counts in (top - N, from). */
inline closed(top, from, total) {
	total = 0; i = 0;
	do
	:: i < N ->
		atomic {
			w = slot[i];
			if
			:: EPOCH(w) > 0 && EPOCH(w) + N > top && EPOCH(w) < from -> total = total + COUNT(w)
			:: else
			fi;
			i++
		}
	:: else -> break
	od
}

proctype caller(byte me) {
	byte own, x, n, lim, until, h, e, t, w, k, u, i, j, old, next, got, calls;
	short c;
	own = me % S;
	do
	:: calls < CALLS ->
		x = clock;
		n = 1; do :: n < COSTS -> n++ :: break od;
		lim = limit;
		until = exact;
again:
		/* 1. Spend a credit of the own stripe. */
#ifdef BLIND
		if
		:: n == 1 ->
#else
		if
		:: n == 1 && x >= until ->
#endif
			w = stripe[own];
			if
#ifdef SPENDSEALED
			:: EPOCH(w) >= x && COUNT(w) > 0 ->
#else
			:: !FLAG(w) && EPOCH(w) >= x && COUNT(w) > 0 ->
#endif
				atomic {
					if
					:: stripe[own] == w -> stripe[own] = w - 1; ADMIT(EPOCH(w)); goto done
					:: else -> goto again
					fi
				}
			:: else
			fi
		:: else
		fi;

		atomic {
			h = head; e = EPOCH(h); t = COUNT(h);
			stirred[me] = (held[e] > 0)
		}
		if
		:: e == 0 ->
			atomic { if :: head == h -> head = WORD(x, 0, 0) :: else fi }
			goto again
		:: e > 0 && e < x && !FLAG(h) ->
			/* 5. Freeze. */
			atomic { if :: head == h -> head = WORD(e, 1, t) :: else fi }
			goto again
		:: FLAG(h) -> goto close
		:: else
		fi;

		if
		:: n > lim -> goto done
		:: n <= lim && t + n <= lim -> goto charge
		:: else -> goto gather
		fi;

		/* 2. Charge the head; deposit what this call does not need. */
charge:
		k = n;
		if
		:: n == 1 && x >= until && t + BATCH <= lim ->
#ifdef LATEHINT
			k = BATCH
#else
			atomic {
				if
				:: on >= e -> k = BATCH
				:: on >= e
				:: on < e
				:: on < e -> on = e
				:: on < e -> on = e + 1
				fi
			}
#endif
		:: else
		fi;
		atomic {
			if
			:: head == h -> head = h + k; held[e] = held[e] + k - n; ADMIT(e)
			:: else -> goto again
			fi
		}
		if
		:: k > n ->
#ifdef LATEHINT
			atomic { if :: on < e -> on = e :: else fi };
#endif
			deposit(k - n)
		:: else
		fi;
		goto done;

		/* 3. Short of room: look for credits before denying. */
gather:
		u = 0; j = 0;
#ifndef NOSTEAL
		if
		:: on >= e ->
			do
			:: j < S ->
				atomic {
					w = stripe[j];
					if
					:: EPOCH(w) == e && !FLAG(w) -> u = u + COUNT(w)
					:: else
					fi;
					j++
				}
			:: else -> break
			od
		:: else
		fi;
#endif
		if
		:: t + n > lim + u ->
			/* C4 (P2): denied only when there is no room, unless units
			   came out of somebody's hands during the scan. */
			atomic {
				if
				:: head == h ->
					assert(stirred[me] || held[e] > 0 || USED(e) + n > lim);
					goto done
				:: else -> goto again
				fi
			}
		:: else
		fi;
		/* Take up to what is missing off one stripe. */
		j = 0; k = 0;
		do
		:: j < S ->
			w = stripe[j];
			if
#ifdef TAKESEALED
			:: EPOCH(w) == e && COUNT(w) > 0 ->
#else
			:: EPOCH(w) == e && !FLAG(w) && COUNT(w) > 0 ->
#endif
				k = t + n - lim;
				if :: k > COUNT(w) -> k = COUNT(w) :: else fi;
				atomic {
					if
					:: stripe[j] == w && k == n && x >= until && t <= lim ->
						stripe[j] = w - k; ADMIT(e); goto done
					:: stripe[j] == w && !(k == n && x >= until && t <= lim) ->
						stripe[j] = w - k; held[e] = held[e] + k; CONSERVED; goto settle
					:: stripe[j] != w
					fi
				}
			:: else -> j++
			fi
		:: else -> goto again
		od;

		/* 4. k units of epoch e in hand: use them or give them back. */
settle:
		h = head; t = COUNT(h);
		if
#ifdef STALEHAND
		:: !FLAG(h) && t + n <= lim + k ->
#else
		:: EPOCH(h) == e && !FLAG(h) && t + n <= lim + k ->
#endif
			atomic {
				if
				:: head == h ->
					head = h + n - k; held[e] = held[e] - k; ADMIT(EPOCH(h)); goto done
				:: else -> goto settle
				fi
			}
		:: EPOCH(h) == e && !FLAG(h) && t + n > lim + k ->
#ifdef NOGIVEBACK
			atomic {
				held[e] = held[e] - k; lost[e] = lost[e] + k;
				assert(EPOCH(head) != e || FLAG(head)); goto again
			}
#else
			atomic {
				if
				:: head == h ->
					head = h - k; held[e] = held[e] - k; STIR(me); CONSERVED; goto again
				:: else -> goto settle
				fi
			}
#endif
		:: else -> deposit(k); goto again
		fi;

		/* 6. Close: seal, publish, open. */
close:
		old = slot[(e - 1) % N];
		u = 0; j = 0;
		if
		:: on >= e ->
			do
			:: j < S ->
				w = stripe[j];
				if
				:: EPOCH(w) > e -> goto again
#ifdef NOSEAL
				:: EPOCH(w) == e -> u = u + COUNT(w); j++
#else
				:: EPOCH(w) == e && FLAG(w) -> u = u + COUNT(w); j++
#endif
#ifdef DROP
				:: EPOCH(w) == e && !FLAG(w) ->
					atomic { if :: stripe[j] == w -> stripe[j] = WORD(e, 1, 0) :: else fi }
#else
#ifndef NOSEAL
				:: EPOCH(w) == e && !FLAG(w) ->
					atomic { if :: stripe[j] == w -> stripe[j] = WORD(e, 1, COUNT(w)) :: else fi }
#endif
#endif
				:: EPOCH(w) < e ->
					atomic { if :: stripe[j] == w -> stripe[j] = WORD(e, 1, 0) :: else fi }
				fi
			:: else -> break
			od
		:: else
		fi;
		closed(e, e, c);
		c = t - c - u;
		if
		:: head != h -> goto again
		:: else
		fi;
		assert(c >= 0);
		/* C3: a sub-window closes with what was spent, lost or is held. */
		atomic {
			if
			:: slot[(e - 1) % N] == old ->
				slot[(e - 1) % N] = WORD(e, 0, c);
				assert(c == spent[e] + lost[e] + held[e])
			:: else
			fi
		}
		k = (x > e -> x : e + 1);
		closed(k, e + 1, next);
		atomic { if :: head == h -> head = WORD(k, 0, next); CONSERVED :: else fi }
		goto again;

done:
#ifdef REFUNDS
		if
		:: got > 0 ->
			do
			:: true ->
				h = head;
				if
				:: EPOCH(h) == got && !FLAG(h) ->
					atomic {
						if
						:: head == h ->
							head = h - n; spent[got] = spent[got] - n; STIR(me); CONSERVED; break
						:: else
						fi
					}
				:: else -> break
				fi
			od
		:: true
		fi;
#endif
		atomic {
			x = 0; n = 0; lim = 0; until = 0; h = 0; e = 0; t = 0; w = 0; k = 0; u = 0;
			i = 0; j = 0; old = 0; next = 0; got = 0; c = 0; stirred[me] = 0;
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

#ifdef LOWER
/* SetLimit to a lower limit. */
proctype setter() {
	exact = 255;
	limit = LOWER;
	exact = clock + N;
	lowered = 1
}
#endif

init {
	byte k;
	atomic {
		run ticker();
#ifdef LOWER
		run setter();
#endif
		do :: k < P -> run caller(k); k++ :: else -> break od
	}
}
