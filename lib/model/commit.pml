/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Commits in flight (paging/sync/commit.c): a thread stores to two segments in turn, a thread
 * evicts, and commits begin and end meanwhile; one write of the worker fails. At the end of a
 * commit, the store has the contents of its moment and no newer ones.
 */
#define SEGS 2
#define ROUNDS 3              /* each round stores its number to both segments */
#define COMMITS 2
#define NO_COPY 9

byte contents[SEGS];          /* of memory */
byte store[SEGS];
byte copy[SEGS];              /* contents of the copy; NO_COPY: there is none */
bit dirty[SEGS], writable[SEGS];
bit pending[SEGS];            /* SEG_COMMIT */
bit locked[SEGS];
byte want[SEGS];              /* contents of the moment */
bit in_flight, frozen, failed;
byte users;

inline lock(i) { atomic { !locked[i] -> locked[i] = 1 } }
inline unlock(i) { locked[i] = 0 }
inline use() { atomic { !frozen -> users++ } }
inline leave() { users-- }

/* write_run, for a segment that is locked. */
inline write_contents(i) {
	writable[i] = 0;
	store[i] = contents[i];
	pending[i] = 0;
	dirty[i] = 0
}

/* commit_keep: copies the contents, or writes them if memory has no room. */
inline keep(i) {
	if
	:: pending[i] ->
		if
		:: copy[i] = contents[i]; pending[i] = 0
		:: write_contents(i)
		fi
	:: else
	fi
}

/* The fault of a store. */
inline make_writable(i) {
	use();
	lock(i);
#ifndef MUTANT_only_commit_forgets_contents
	keep(i);
#endif
	dirty[i] = 1;
	writable[i] = 1;
	unlock(i);
	leave()
}

proctype storer() {
	byte v, i;

	for (v : 1 .. ROUNDS) {
		for (i : 0 .. SEGS - 1) {
			do
			:: atomic { writable[i] -> contents[i] = v; break }
			:: !writable[i] -> make_writable(i)
			od
		}
	}
}

#define bars(i) (in_flight && !pending[i])        /* commit_bars */

/* run_begin: the other segment joins the run if it is not locked. */
inline write_other(j) {
	if
	:: true
#ifdef MUTANT_only_commit_joined
	:: atomic { dirty[j] && !locked[j] -> locked[j] = 1 }
#else
	:: atomic { dirty[j] && !bars(j) && !locked[j] -> locked[j] = 1 }
#endif
		write_contents(j);
		unlock(j)
	fi
}

/* write_inactive: at any time, any segment that the commit does not bar. */
proctype evictor() {
	byte i, other, n;

	for (n : 1 .. 3) {
		if
		:: i = 0
		:: i = 1
		fi;
		use();
		lock(i);
		if
#ifdef MUTANT_only_commit_overtaken
		:: dirty[i] ->
#else
		:: dirty[i] && !bars(i) ->
#endif
			write_contents(i);
			other = 1 - i;
			write_other(other)
		:: else
		fi;
		unlock(i);
		leave()
	}
}

/* writeback_mark. The moment is that at which the last segment has lost the right to store. */
inline mark() {
	i = 0;
	do
	:: i < SEGS ->
		lock(i);
		if
		:: dirty[i] -> writable[i] = 0; pending[i] = 1
		:: else
		fi;
		unlock(i);
		i++
	:: else -> break
	od;
	want[0] = contents[0];
	want[1] = contents[1]
}

/* The worker writes segment i, or its copy. */
inline write_part(i) {
	lock(i);
	if
	:: copy[i] != NO_COPY -> store[i] = copy[i]; copy[i] = NO_COPY
	:: copy[i] == NO_COPY && pending[i] -> write_contents(i)
	:: else
	fi;
	unlock(i)
}

/* The commit has failed. */
inline cancel() {
	i = 0;
	do
	:: i < SEGS ->
		lock(i);
		copy[i] = NO_COPY;
		pending[i] = 0;
		unlock(i);
		i++
	:: else -> break
	od
}

/* umsync_begin, and the worker. */
proctype committer() {
	byte i, n;
	bit error;

	for (n : 1 .. COMMITS) {
		error = 0;
		frozen = 1;
		users == 0;
#ifdef MUTANT_commit_not_one_moment
		frozen = 0;
#endif
		mark();
		in_flight = 1;
		frozen = 0;
		i = 0;
		do
		:: i < SEGS && !error ->
			if
			:: write_part(i)
			:: !failed -> failed = 1; error = 1
			fi;
			i++
		:: else -> break
		od;
		if
		:: error -> cancel()
		:: else ->
			/* The storer stores to segment 0 first. */
			assert(want[0] == want[1] || want[0] == want[1] + 1);
			assert(store[0] == want[0] && store[1] == want[1])
		fi;
		in_flight = 0
	}
	/* A clean segment has the contents that are in the store. */
	lock(0);
	assert(dirty[0] || store[0] == contents[0]);
	unlock(0)
}

init {
	atomic {
		copy[0] = NO_COPY;
		copy[1] = NO_COPY;
		run storer();
		run evictor();
		run committer()
	}
}
