/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a mapping: threads that enter and leave it, its end (lookup.c, mapping.c and
 * end_mapping in api/api.c), and fork(2) at any moment (common/fork.c and api/start.c). The mapping
 * has one segment, which is in memory.
 */
#define STORES 2

/* ---- State that fork(2) copies ---- */

/* The table of mappings: it has the mapping or not. `sequence` is odd while the table changes. */
#define HAS_MAPPING(p) table[p]
bit table[2];                 /* of the parent and of the child */
byte sequence[2];
byte table_lock[2];           /* FORK_MAPPINGS */
byte list_lock[2];            /* any lock that the child initializes anew: cache/cache.c */
byte seg_lock[2];
bit is_dirty[2];
byte memory[2];

#define PARENT 0
#define CHILD 1

/* ---- State of the parent, or of both ---- */

byte users;
bit frozen;
bit ended;                    /* the frames of the mapping are gone */
byte store, last;
byte importers;               /* processes that hold the lock of an imported line */
bit forked;
byte errors_left;

#define lock_word(l) atomic { l == 0 -> l = 1 }

/* ---- Threads of the parent ---- */

/* look_up: *got with a use of the mapping. */
inline look_up() {
	do
	:: atomic { !(sequence[PARENT] & 1) -> seen = sequence[PARENT] }
		found = HAS_MAPPING(PARENT);
		got = 0;
		if
		:: found ->
			/* map_enter */
			users++;
			if
			:: frozen -> users--
			:: else -> got = 1
			fi
		:: else
		fi;
		if
		:: sequence[PARENT] == seen -> break
		:: else ->
			if :: got -> users-- :: else fi
		fi
	od
}

/* map_find: waits while the mapping is frozen. */
inline map_find() {
	do
	:: look_up();
		if
		:: found && !got -> !frozen
		:: else -> break
		fi
	od
}

inline write_back(p) {
	lock_word(seg_lock[p]);
	if
	:: is_dirty[p] ->
		atomic {
			if
			:: true ->
				/* An older version never replaces a newer one. */
				assert(memory[p] >= store);
				store = memory[p];
				is_dirty[p] = 0
			:: errors_left > 0 -> errors_left--; err = 1
			fi
		}
	:: else
	fi;
	seg_lock[p] = 0
}

/* A thread that stores, and then writes, as a fault and a sync of a range do. */
proctype user() {
	byte seen; bit found, got, err;

	do
	:: map_find();
		if
		:: !found -> break
		:: else
		fi;
		lock_word(seg_lock[PARENT]);
		lock_word(list_lock[PARENT]);
		assert(!ended);
		if
		:: atomic { last < STORES -> is_dirty[PARENT] = 1; last++; memory[PARENT] = last }
		:: true
		fi;
		list_lock[PARENT] = 0;
		assert(!ended);
		seg_lock[PARENT] = 0;
		write_back(PARENT);
		atomic { assert(!ended); err = 0 }
		users--;
		got = 0
	od
}

/* umunmap with sync: the mapping ends if all changes are in the store. */
proctype ender() {
	byte seen; bit found, got, err;

	do
	:: map_find();
		if
		:: !found -> break
		:: else
		fi;
		/* map_freeze */
		if
		:: atomic { !frozen -> frozen = 1 }
#ifndef MUTANT_users_not_waited_for
			users == 1;
#endif
			err = 0;
			write_back(PARENT);
			if
#ifdef MUTANT_unmapped_though_failed
			:: true ->
#else
			:: !err ->
#endif
				/* map_remove, teardown */
				lock_word(table_lock[PARENT]);
				sequence[PARENT]++;
				table[PARENT] = 0;
				sequence[PARENT]++;
				table_lock[PARENT] = 0;
				atomic {
					/* All changes are in the store. */
					assert(store == last);
					ended = 1
				}
#ifndef MUTANT_unmapped_though_failed
			:: else
#endif
			fi;
			frozen = 0;
			users--
		:: else -> users--
		fi;
		got = 0
	od
}

/* ---- Fork ---- */

#ifdef FORK
/* The child: handlers, then accesses to the old addresses, then a mapping of its own. */
proctype child() {
	bit err;

	/* run_in_child */
#ifndef MUTANT_only_child_keeps_imports
	importers--;
#endif
	table_lock[CHILD] = 0;
	/* forget_in_child: forget_map of each mapping needs a table that is complete. */
	assert(!(sequence[CHILD] & 1));
#ifndef MUTANT_child_keeps_mappings
	HAS_MAPPING(CHILD) = 0;
#endif
#ifndef MUTANT_only_child_keeps_locks
	list_lock[CHILD] = 0;
#endif
	/* An access to the old address, and a sync: neither finds the mapping. */
	if
	:: HAS_MAPPING(CHILD) -> write_back(CHILD)
	:: else
	fi;
	/* map_insert, and a fault */
	lock_word(table_lock[CHILD]);
	table_lock[CHILD] = 0;
	lock_word(list_lock[CHILD]);
	list_lock[CHILD] = 0
}

proctype forker() {
	/* run_before_fork */
#ifndef MUTANT_only_fork_without_locks
	lock_word(table_lock[PARENT]);
#endif
	d_step {
		table[CHILD] = table[PARENT];
		sequence[CHILD] = sequence[PARENT];
		table_lock[CHILD] = table_lock[PARENT];
		list_lock[CHILD] = list_lock[PARENT];
		seg_lock[CHILD] = seg_lock[PARENT];
		is_dirty[CHILD] = is_dirty[PARENT];
		memory[CHILD] = memory[PARENT];
		importers++
	}
	run child();
	/* unlock_in_parent */
#ifndef MUTANT_only_fork_without_locks
	table_lock[PARENT] = 0;
#endif
	/* The parent dies, or closes its import: the kernel releases the lock of the line. */
	importers--;
	importers == 0
}
#endif

init {
	atomic {
		table[PARENT] = 1;
		importers = 1;
#ifdef ERRORS
		errors_left = ERRORS;
#endif
		run user();
		run ender();
#ifdef FORK
		run forker()
#else
		run user();
		run ender()
#endif
	}
}
