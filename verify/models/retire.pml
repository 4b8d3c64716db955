/* A key's ring is retired, removed and replaced while callers hold it.

   A caller looks its key up, makes a ring where there is none, and meets
   retired rings; a sweeper retires what has expired. The map is one place,
   with a lock that inserts and deletes take and lookups do not. Costs are 1.
   Epochs are kept plus one, so that 0 means never used. An atomic block is
   one access to shared memory and the local steps after it.

   P, CALLS  callers, and calls by each
   E, LIMIT  ticks of the clock, 1 to E; units a window holds
   R         rings that may be made for the key, one after the other

   One protection removed each; every one of them must make spin fail:
   NOFLOOR, LATEFLOOR, EARLYFLOOR (with R=3), UNBORN, EARLYRETIRE. */

#define N 2        /* sub-windows that count; checks below rely on 2 */
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
#define LIMIT 1
#endif
#ifndef R
#define R 2
#endif

/* Head: epoch, frozen, count, or DEAD. Slot: the same with the flag clear. */
#define BASE 4
#define DEAD 255
#define WORD(e, f, c) (((e) * 2 + (f)) * BASE + (c))
#define EPOCH(w) ((w) / (2 * BASE))
#define FROZEN(w) (((w) / BASE) % 2)
#define COUNT(w) ((w) % BASE)

byte head[R], slot[R * N];
byte at = R;       /* the ring in the map; R is none */
byte made;         /* rings made so far */
bit  lock;
byte floor;
byte clock = 1;

byte spent[E + 2]; /* what really happened: units admitted, by epoch */

/* P1, over all rings of the key. */
#define ADMIT(e) \
	spent[e] = spent[e] + 1; \
	assert(x <= e && e <= clock); \
	assert(spent[e - 1] + spent[e] <= LIMIT); \
	assert(spent[e] + spent[e + 1] <= LIMIT)

/* total = sum of ring r's closed counts in (top - N, from). */
inline closed(top, from, total) {
	total = 0; i = 0;
	do
	:: atomic {
		w = slot[r * N + i];
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
	byte x, r, h, e, t, w, k, i, old, next, calls;
	short c;
	do
	:: calls < CALLS ->
		x = clock;
lookup:	atomic {
			r = at; h = 0; e = 0;
			if
			:: r < R -> goto again
			:: r == R && made == R -> goto done /* the model has no more rings */
			:: else
			fi
		}
		/* No ring: make one. Its head is open before anybody sees it, no
		   earlier than the floor, with this call's unit in it. */
		e = x;
#ifdef EARLYFLOOR
		atomic { if :: floor > e -> e = floor :: else fi };
#endif
		atomic { !lock -> lock = 1 };
		if
		:: at < R || made == R -> lock = 0; goto lookup
		:: else
		fi;
#ifndef NOFLOOR
#ifndef EARLYFLOOR
		atomic { if :: floor > e -> e = floor :: else fi };
#endif
#endif
		atomic {
			r = made; made++; at = r;
#ifdef UNBORN
			lock = 0; goto again
#else
			head[r] = WORD(e, 0, 1); ADMIT(e); lock = 0; goto done
#endif
		}

again:	atomic {
			h = head[r]; e = EPOCH(h); t = COUNT(h);
			w = 0; k = 0; old = 0; next = 0; c = 0;
			if
			:: h == DEAD -> goto remove
			:: h == 0 -> next = WORD(x, 0, 0)
			:: h != DEAD && FROZEN(h) -> goto close
			:: h > 0 && !FROZEN(h) && e < x -> next = WORD(e, 1, t)
			:: h > 0 && !FROZEN(h) && e >= x ->
				if
				:: t + 1 > LIMIT -> goto done
				:: t + 1 <= LIMIT -> next = h + 1; k = 1
				fi
			fi
		}
		atomic {
			if
			:: head[r] == h && k == 1 -> head[r] = next; ADMIT(e); goto done
			:: head[r] == h && k == 0 -> head[r] = next; goto again
			:: else -> goto again
			fi
		}

		/* Met a retired ring: help to delete it, look the key up again. */
remove:
		atomic { !lock -> lock = 1 };
		atomic { if :: at == r -> at = R :: else fi; lock = 0; goto lookup };

close:
		old = slot[r * N + (e - 1) % N];
		closed(e, e, c);
		c = t - c;
		if
		:: head[r] != h -> goto again
		:: else
		fi;
		atomic {
			assert(c >= 0);
			if
			:: slot[r * N + (e - 1) % N] == old -> slot[r * N + (e - 1) % N] = WORD(e, 0, c)
			:: else
			fi;
			k = (x > e -> x : e + 1); old = 0; c = 0; t = 0
		}
		closed(k, e + 1, next);
		atomic {
			if :: head[r] == h -> head[r] = WORD(k, 0, next) :: else fi;
			goto again
		}

done:
		atomic {
			x = 0; r = 0; h = 0; e = 0; t = 0; w = 0; k = 0;
			i = 0; old = 0; next = 0; c = 0;
			calls++
		}
	:: else -> break
	od
}

/* Retires and deletes what has expired. Like a caller it may be late. */
proctype sweeper() {
	byte x, r, h;
	do
	:: made < R || at < R ->
		x = clock;
		r = at;
		if
		:: r == R -> goto next
		:: else
		fi;
#ifndef NOFLOOR
#ifndef LATEFLOOR
		atomic { if :: x > floor -> floor = x :: else fi };
#endif
#endif
		h = head[r];
		if
#ifdef EARLYRETIRE
		:: h != DEAD && h > 0 && x >= EPOCH(h) + N - 1 ->
#else
		:: h != DEAD && h > 0 && x >= EPOCH(h) + N ->
#endif
			atomic { if :: head[r] == h -> head[r] = DEAD :: else -> goto next fi };
#ifdef LATEFLOOR
			atomic { if :: x > floor -> floor = x :: else fi };
#endif
			atomic { !lock -> lock = 1 };
			atomic { if :: at == r -> at = R :: else fi; lock = 0 }
		:: else
		fi;
next:	atomic { x = 0; r = 0; h = 0 }
	:: true -> break
	od
}

proctype ticker() {
	do
	:: clock < E -> clock++
	:: clock == E -> break
	od
}

init {
	byte k;
	atomic {
		run ticker();
		run sweeper();
		do :: k < P -> run caller(); k++ :: else -> break od
	}
}
