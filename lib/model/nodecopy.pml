/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of a node copy (nodecopy/table.h): processes that read two segments, for which the copy
 * has one slot, while KILLS of them are killed at any moment. A segment has two pages, which appear
 * one by one. An access may pin its segment. Chances and stamps only delay evictions, and are left
 * out.
 */
#ifndef PROCS
#define PROCS 2
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef ACCESSES
#define ACCESSES 2
#endif
#define SEGS 2
#define NO_SLOT 0
#define NONE 9                /* no segment */

mtype = { ABSENT, LOADING, RESIDENT, EVICTING };

/* The word of a segment, which changes as a whole. */
mtype state[SEGS] = ABSENT;
byte owner[SEGS];
bit in_slot[SEGS];            /* whether the word names the slot */

/* The word of the slot. */
bit taken;                    /* whether it is TAKEN by slot_owner */
byte slot_owner;
byte slot_segment = NONE;     /* NONE: free */
bit changed[PROCS];           /* whether the word of the slot is another one than this process has
				 read: its stamp makes it so, even if its segment is the same */

bit page[4];                  /* 2 * segment + page: whether the copy has it */
byte pin[PROCS] = NONE;       /* segment that the process pins */
bit may_be_pinned[SEGS];      /* in the word of a resident segment */
bit dead[PROCS];
byte kills = KILLS;
byte finished;

#define HAS_PAGES(x) (page[2 * (x)] || page[2 * (x) + 1])
#define IS_WHOLE(x) (page[2 * (x)] && page[2 * (x) + 1])
/* A segment that counts: one of a killed loader is dropped or loaded again later. */
#define COUNTS(x) (HAS_PAGES(x) && (state[x] == RESIDENT || !dead[owner[x]]))
#ifdef MUTANT_nodecopy_orphans
#define IS_ORPHAN(x) false
#define SLOT_IS_ORPHAN false
#else
#define IS_ORPHAN(x) (dead[owner[x]])
#define SLOT_IS_ORPHAN (dead[slot_owner])
#endif

#define HAS_PIN(k, x) (pin[k] == (x) && !dead[k])
#ifdef MUTANT_nodecopy_ignore_pins
#define IS_PINNED(x) false
#else
#define IS_PINNED(x) (HAS_PIN(0, x) || HAS_PIN(1, x))
#endif

inline change_word() {
#ifndef MUTANT_only_nodecopy_same_word
	changed[0] = 1;
	changed[1] = 1
#else
	skip
#endif
}

inline drop(x) {
	assert(state[x] == EVICTING && owner[x] == me);
	page[2 * x] = 0;
	page[2 * x + 1] = 0;
	atomic { state[x] = ABSENT; in_slot[x] = 0 }
}

/* release_slot: `free` is set if the segment of the slot, y, does not keep it. */
inline release() {
	if
	:: atomic { state[y] == ABSENT || !in_slot[y] -> free = 1 }
#ifdef MUTANT_nodecopy_drop_loading
	:: atomic { state[y] == LOADING && in_slot[y] -> state[y] = EVICTING; owner[y] = me }
		drop(y);
		free = 1
#endif
	:: atomic { state[y] == RESIDENT && in_slot[y] ->
		    look = may_be_pinned[y]; state[y] = EVICTING; owner[y] = me;
		    may_be_pinned[y] = 0 }
		if
		:: atomic { look && IS_PINNED(y) -> state[y] = RESIDENT; may_be_pinned[y] = 1 }
			free = 0
		:: atomic { !look || !IS_PINNED(y) -> skip }
			drop(y);
			free = 1
		fi
	:: atomic { (state[y] == LOADING || state[y] == EVICTING) && in_slot[y] && IS_ORPHAN(y) &&
		    !IS_PINNED(y) -> state[y] = EVICTING; owner[y] = me }
		drop(y);
		free = 1
	:: atomic { (state[y] == LOADING || state[y] == EVICTING) && in_slot[y] && IS_ORPHAN(y) &&
		    IS_PINNED(y) -> free = 0 }
	:: atomic { (state[y] == LOADING || state[y] == EVICTING) && in_slot[y] && !IS_ORPHAN(y) ->
		    free = 0 }
	fi
}

/* try_slot, once; `got` is set if this process has the slot. */
inline take_slot(x) {
	got = 0;
	atomic { y = slot_segment; was_taken = taken; was_owner = slot_owner; changed[me] = 0 }
	if
#ifdef MUTANT_nodecopy_leave_slot
	:: was_taken -> free = 1
#else
	:: atomic { was_taken && !dead[was_owner] -> free = 0 }
	:: atomic { was_taken && dead[was_owner] } ->
#ifdef MUTANT_nodecopy_orphans
		free = 0
#else
		release()
#endif
#endif
	:: !was_taken && y == NONE -> free = 1
	:: !was_taken && y != NONE -> release()
	fi;
	if
	:: free ->
		atomic {
			if
			:: slot_segment == y && taken == was_taken &&
			   (!taken || slot_owner == was_owner) && !changed[me] ->
				taken = 1; slot_owner = me; slot_segment = x; got = 1;
				change_word()
			:: else
			fi
		}
	:: else
	fi
}

/* Loads segment x, of which this process is the owner. */
inline load(x) {
	do
	:: take_slot(x);
		if
		:: got -> break
		:: else
		fi
	od;
	in_slot[x] = 1;
	assert(!COUNTS(1 - x) || (state[1 - x] == EVICTING));
	assert(state[x] == LOADING && owner[x] == me);
	page[2 * x] = 1;
	assert(state[x] == LOADING && owner[x] == me);
	page[2 * x + 1] = 1;
	atomic {
		taken = 0;
		slot_segment = x;
		change_word()
	}
	atomic {
		assert(IS_WHOLE(x));
		state[x] = RESIDENT
	}
}

/* An access to a page: a fault, unless the copy has it. */
inline access(x, p) {
	do
	:: page[2 * x + p] -> break
	:: atomic { !page[2 * x + p] &&
		    (state[x] == ABSENT || (state[x] != RESIDENT && IS_ORPHAN(x))) ->
		    state[x] = LOADING; owner[x] = me; in_slot[x] = 0 }
		load(x)
	:: atomic { !page[2 * x + p] && state[x] == RESIDENT ->
		    /* The access is repeated, and must succeed or find another state. */
		    assert(page[2 * x + p]) }
	od
}

/* Keeps the segment in memory during an access. */
inline pin_and_access(x) {
	pin[me] = x;
	do
	:: atomic { state[x] == RESIDENT -> may_be_pinned[x] = 1; break }
	:: atomic { (state[x] == ABSENT || (state[x] != RESIDENT && IS_ORPHAN(x))) ->
		    state[x] = LOADING; owner[x] = me; in_slot[x] = 0 }
		load(x)
	od;
	assert(IS_WHOLE(x));
	assert(IS_WHOLE(x));
	pin[me] = NONE
}

proctype reader(byte me) {
	byte y, n, was_owner, x;
	bit free, got, was_taken, look;

	{
		do
		:: n == ACCESSES -> break
		:: n < ACCESSES ->
			if
			:: x = 0
			:: x = 1
			fi;
			if
			:: access(x, 1)
			:: pin_and_access(x)
			fi;
			n++
		od;
		goto end
	} unless { dead[me] }
end:	finished++
}

/* Kills processes at any moment. */
proctype killer() {
	byte k;

	do
	:: kills > 0 ->
		kills--;
		if
		:: k = 0
		:: k = 1
		fi;
		dead[k] = 1
	:: break
	od
}

init {
	atomic {
		byte i;

		for (i : 0 .. PROCS - 1) {
			run reader(i)
		}
		run killer()
	}
	/* Nothing that a killed process has left keeps the others waiting. */
	finished == PROCS
}
