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
   NOGIVEBACK, LATEHINT; BLIND and SHORTEXACT (with LOWER). */

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
bit  tail;         /* a call admitted under a limit that was no longer set */

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
	tail = (tail || lim != limit); \
	assert(spent[e - 1] + spent[e] <= lim || (tail && x >= until)); \
	CONSERVED

#define STIR stirred[0] = 1; stirred[1] = 1; stirred[P - 1] = 1

#ifdef BLIND
#define SPENDS (n <= BATCH)
#else
#define SPENDS (n <= BATCH && x >= until)
#endif

/* Deposit units at epoch e on the own stripe. Who made the CAS fail: another
   deposit, a spend, a steal, or the seal of this very epoch. */
inline deposit(units) {
	do
	:: atomic {
		w = stripe[own];
		if
#ifdef DEPOSITSEALED
		:: EPOCH(w) == e -> next = w + (units)
#else
		:: EPOCH(w) == e && !FLAG(w) -> next = w + (units)
#endif
		:: EPOCH(w) < e -> next = WORD(e, 0, (units))
		:: else ->
			/* C5: units are lost only to a sub-window that is closing. */
			held[e] = held[e] - (units); lost[e] = lost[e] + (units);
			assert(EPOCH(head) != e || FLAG(head)); CONSERVED; break
		fi
	}
	atomic {
		if
		:: stripe[own] == w ->
			stripe[own] = next;
			held[e] = held[e] - (units); STIR; CONSERVED; break
		:: else -> w = 0; next = 0
		fi
	}
	od
}

/* total = sum of the closed counts in (top - N, from). */
inline closed(top, from, total) {
	total = 0; i = 0;
	do
	:: atomic {
		i < N ->
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

proctype caller(byte me) {
	byte own, x, n, lim, until, h, e, t, w, k, u, i, j, old, next, got, calls;
	short c;
	own = me % S;
	do
	:: calls < CALLS ->
		atomic {
			x = clock;
			n = 1; do :: n < COSTS -> n++ :: break od;
#ifdef LOWER
		}
		lim = limit;
		until = exact;
#else
			lim = LIMIT
		}
#endif

again:	atomic {
			h = 0; e = 0; t = 0; w = 0; k = 0; u = 0; i = 0; j = 0; old = 0; next = 0; c = 0;
			if
			:: !SPENDS -> goto look
			:: else
			fi;
			/* 1. Spend credits of the own stripe. */
			w = stripe[own];
			if
#ifdef SPENDSEALED
			:: EPOCH(w) >= x && COUNT(w) >= n
#else
			:: !FLAG(w) && EPOCH(w) >= x && COUNT(w) >= n
#endif
			:: else -> w = 0; goto look
			fi
		}
		atomic {
			if
			:: stripe[own] == w -> stripe[own] = w - n; ADMIT(EPOCH(w)); goto done
			:: else -> goto again
			fi
		}

look:	atomic {
			h = head; e = EPOCH(h); t = COUNT(h);
			stirred[me] = (held[e] > 0);
			if
			:: e == 0 -> next = WORD(x, 0, 0)
			:: e > 0 && FLAG(h) -> goto close
			:: e > 0 && !FLAG(h) && e < x -> next = WORD(e, 1, t) /* 5. Freeze. */
			:: else ->
				if
				:: n > lim -> goto done
				:: n <= lim && t + n <= lim -> k = n; goto charge
				:: n <= lim && t + n > lim -> goto gather
				fi
			fi
		}
		atomic { if :: head == h -> head = next :: else fi; goto again }

		/* 2. Charge the head; deposit what this call does not need. */
charge:
		if
		:: n <= BATCH && x >= until && t + BATCH <= lim ->
#ifdef LATEHINT
			k = BATCH
#else
			atomic {
				if
				:: on >= e -> k = BATCH
				:: true
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
			fi;
			if
			:: k == n -> goto done
			:: else
			fi
		}
#ifdef LATEHINT
		atomic { if :: on < e -> on = e :: else fi };
#endif
		deposit(k - n);
		goto done;

		/* 3. Short of room: look for credits before denying. */
gather:
#ifndef NOSTEAL
		if
		:: on >= e ->
			do
			:: atomic {
				w = stripe[j];
				if
				:: EPOCH(w) == e && !FLAG(w) -> u = u + COUNT(w)
				:: else
				fi;
				w = 0; j++;
				if :: j == S -> j = 0; break :: else fi
			}
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
		/* Take up to what is missing off the first stripe that has any. */
		do
		:: atomic {
			w = stripe[j];
			if
#ifdef TAKESEALED
			:: EPOCH(w) == e && COUNT(w) > 0 ->
#else
			:: EPOCH(w) == e && !FLAG(w) && COUNT(w) > 0 ->
#endif
				k = t + n - lim;
				if :: k > COUNT(w) -> k = COUNT(w) :: else fi
			:: else ->
				j++;
				if :: j == S -> goto again :: else fi
			fi
		}
		if
		:: k > 0 ->
			atomic {
				if
				:: stripe[j] != w -> k = 0; w = 0
				:: stripe[j] == w && k == n && x >= until && t <= lim ->
					stripe[j] = w - k; ADMIT(e); goto done
				:: else ->
					stripe[j] = w - k; held[e] = held[e] + k; CONSERVED;
					w = 0; u = 0; j = 0; goto settle
				fi
			}
		:: else
		fi
		od;

		/* 4. k units of epoch e in hand: use them or give them back. */
settle:	atomic {
			h = head; t = COUNT(h);
			if
#ifdef STALEHAND
			:: !FLAG(h) && t + n <= lim + k -> next = h + n - k
#else
			:: EPOCH(h) == e && !FLAG(h) && t + n <= lim + k -> next = h + n - k
#endif
			:: EPOCH(h) == e && !FLAG(h) && t + n > lim + k -> next = h - k
			:: else -> goto leave
			fi
		}
		atomic {
			if
			:: head == h && t + n <= lim + k ->
				head = next; held[e] = held[e] - k; ADMIT(EPOCH(h)); goto done
			:: head == h && t + n > lim + k ->
#ifdef NOGIVEBACK
				lost[e] = lost[e] + k;
				assert(EPOCH(head) != e || FLAG(head));
#else
				head = next;
#endif
				held[e] = held[e] - k; STIR; CONSERVED; goto again
			:: else -> next = 0; goto settle
			fi
		}
leave:	deposit(k);
		goto again;

		/* 6. Close: seal, publish, open. */
close:
		old = slot[(e - 1) % N];
		if
		:: on >= e ->
			do
			:: atomic {
				w = stripe[j];
				if
				:: EPOCH(w) > e -> goto again
#ifdef NOSEAL
				:: EPOCH(w) == e -> u = u + COUNT(w); j++; w = 0
#else
				:: EPOCH(w) == e && FLAG(w) -> u = u + COUNT(w); j++; w = 0
				:: EPOCH(w) == e && !FLAG(w) ->
#ifdef DROP
					next = WORD(e, 1, 0)
#else
					next = WORD(e, 1, COUNT(w))
#endif
#endif
				:: EPOCH(w) < e -> next = WORD(e, 1, 0)
				fi;
				if :: j == S -> j = 0; break :: else fi
			}
			if
			:: next > 0 ->
				atomic { if :: stripe[j] == w -> stripe[j] = next :: else fi; w = 0; next = 0 }
			:: else
			fi
			od
		:: else
		fi;
		closed(e, e, c);
		c = t - c - u;
		if
		:: head != h -> goto again
		:: else
		fi;
		/* C3: a sub-window closes with what was spent, lost or is held. */
		atomic {
			assert(c >= 0);
			if
			:: slot[(e - 1) % N] == old ->
				slot[(e - 1) % N] = WORD(e, 0, c);
				assert(c == spent[e] + lost[e] + held[e])
			:: else
			fi;
			k = (x > e -> x : e + 1); old = 0; c = 0; u = 0; t = 0
		}
		closed(k, e + 1, next);
		atomic {
			if :: head == h -> head = WORD(k, 0, next); CONSERVED :: else fi;
			goto again
		}

done:
#ifdef REFUNDS
		if
		:: got > 0 ->
			do
			:: atomic {
				h = head;
				if
				:: EPOCH(h) == got && !FLAG(h)
				:: else -> break
				fi
			}
			atomic {
				if
				:: head == h ->
					head = h - n; spent[got] = spent[got] - n; STIR; CONSERVED; break
				:: else
				fi
			}
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
	byte h;
	exact = 255;
	limit = LOWER;
	h = head;
#ifdef SHORTEXACT
	exact = EPOCH(h)
#else
	exact = EPOCH(h) + 1
#endif
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
