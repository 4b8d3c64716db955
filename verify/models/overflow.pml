/* A key without a ring of its own shares an overflow ring with other keys of its
   part, which it finds without a lock, and gets a ring of its own again when that
   one is retired.

   What a ring does is one step here; ring.pml and retire.pml have what it is made
   of, and the floor. Time is one event: everything that was counted so far
   expires. The units of other keys are left out, so that an overflow ring has
   more room than it would have; that they use it is not.

   P, CALLS  callers with the key, and calls by each; the limit is 1 unit
   E         times that everything expires
   R         rings that may be made, of the key's own and overflow ones

   One protection removed each; every one of them must make spin fail:
   LATELOOK, DROPPED, UNSEEN, LIVING. */

#ifndef P
#define P 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef E
#define E 2
#endif
#ifndef R
#define R 4
#endif

byte own = R;      /* the key's ring in the map; R is none */
byte part = R;     /* the overflow ring */
byte made;         /* rings made so far */
bit  lock;         /* the shard's */

bit  dead[R];
bit  used[R];      /* something in it has not expired */
byte units[R];     /* of the key, not expired */

byte spent;        /* all of them: P1 */

/* Counts a unit of the key in ring r. */
#define ADMIT(r) \
	used[r] = 1; units[r] = units[r] + 1; \
	spent = spent + 1; \
	assert(spent <= 1)

inline unlock() { lock = 0 }

proctype caller() {
	byte r, s, calls;
	do
	:: calls < CALLS ->
lookup:	r = own;
		if
		:: r < R -> goto admit
		:: else
		fi;
		/* No ring, or none any more: find. */
#ifdef LATELOOK
		r = own;
#endif
		atomic {
			s = part;
			if
			:: s == R -> goto settle
			:: else
			fi
		}
		if
		:: dead[s] || !used[s] -> goto settle
		:: else
		fi;
#ifndef LATELOOK
		r = own;
#endif
		atomic {
			if
			:: r == R -> r = s
			:: else
			fi;
			goto admit
		}
settle:	atomic { !lock -> lock = 1; r = own };
		if
		:: r < R -> unlock(); goto admit
		:: else
		fi;
#ifndef UNSEEN
		s = part;
		if
		:: s < R ->
#ifndef DROPPED
#ifndef LIVING
			atomic {
				if
				:: used[s] -> r = s; s = 0; unlock(); goto admit
				:: else -> dead[s] = 1
				fi
			};
#else
			dead[s] = 1;
#endif
#else
			if
			:: used[s] -> r = s; unlock(); goto admit
			:: else
			fi;
#endif
			part = R
		:: else
		fi;
#endif
		atomic {
			if
			:: made == R -> unlock(); goto done /* the model has no more rings */
			:: else -> r = made; made++
			fi;
			ADMIT(r);
			if
			:: own = r
			:: part = r /* there is no room */
			fi;
			unlock()
		};
		goto next;
admit:	atomic {
			if
			:: dead[r] -> /* gone: help to delete it */
				if
				:: own == r -> own = R
				:: else
				fi;
				goto lookup
			:: !dead[r] && units[r] == 0 -> ADMIT(r)
			:: !dead[r] && units[r] > 0 -> used[r] = 1 /* denied, but others use it */
			fi
		};
next:	atomic { r = 0; s = 0; calls++ }
	:: else -> break
	od;
done:	skip
}

/* Other keys of the part, at the cap. */
proctype others() {
	byte s;
	do
	:: atomic { !lock -> lock = 1; s = part };
		atomic {
			if
			:: s == R && made < R -> part = made; used[made] = 1; made++
			:: s < R && !dead[s] -> used[s] = 1
			:: else
			fi;
			s = 0;
			unlock()
		}
	:: break
	od
}

/* Time, and the sweeper. */
proctype sweeper() {
	byte n, r, i;
	do
	:: n < E ->
		atomic {
			do
			:: i < R -> used[i] = 0; units[i] = 0; i++
			:: else -> i = 0; break
			od;
			spent = 0; n++
		};
		atomic {
			r = own;
			if
			:: r < R && !used[r] -> dead[r] = 1
			:: else -> r = R
			fi
		};
		atomic {
			if
			:: r < R && own == r -> own = R
			:: else
			fi
		};
		atomic { !lock -> lock = 1; r = part };
		atomic {
			if
			:: r < R && !used[r] -> dead[r] = 1
			:: else -> r = R
			fi
		};
		atomic {
			if
			:: r < R -> part = R
			:: else
			fi;
			r = 0;
			unlock()
		}
	:: else -> break
	od
}

init {
	atomic {
		byte p;
		do
		:: p < P -> run caller(); p++
		:: else -> break
		od;
		run others();
		run sweeper()
	}
}
