/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accesses of another process to the segments (peer/import.c), which may die at any moment. The
 * exporting process has threads that fault, sync and evict, as in core.pml.
 */
#define PEER
#define WORKER
#define EVICT
#include "core.pml"

bit killed;                   /* SIGKILL, which the importer has not received yet */

/* take_line: the importer locks its line, and clears the slots that a dead one has left there. */
inline take_line() {
	atomic { !importer_lives -> importer_lives = 1; has_line = 1 }
	visited = NO_FRAME
}

/* copy_some: the importer enters its slot, looks at the segment, copies, and leaves. */
inline copy_some(x, put) {
	if
	:: lock[x] == 0 ->
		visited = x;
		/* look */
		if
		:: lock[x] == 0 ->
			may_copy = has(x, VALID) && (!put || has(x, DIRTY));
			if
			:: may_copy && lock[x] == 0 ->
				atomic {
					if
					:: put -> store_next(x); memory[frame_of(x)] = last[x]
					:: else -> assert(memory[frame_of(x)] == last[x])
					fi
				}
			:: else
			fi
		:: else
		fi;
		visited = NO_FRAME
	:: else
	fi;
	may_copy = 0
}

proctype importer() {
	byte x; bit put, may_copy, has_line;

	{
		take_line();
end:		do
		:: atomic {
			if :: x = 0 :: x = 1 fi;
			if :: put = 0 :: may_store(x) -> put = 1 fi
		}
			copy_some(x, put);
			atomic { x = 0; put = 0 }
		od
	} unless {
		/* The kernel releases the lock of the line, if the process has it. */
		atomic { killed -> killed = 0; importer_lives = importer_lives && !has_line }
	}
}

active proctype killer() {
	killed = 1
}

active proctype start_importer() {
	run importer();
#ifdef NEXT_IMPORTER
	run importer()
#endif
}
