/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core of the protocol: threads of the program, a thread that syncs, and the work of the
 * library's threads.
 */
#include "segment.pml"

#ifndef THREADS
#define THREADS 2
#endif
#ifndef SYNCS
#define SYNCS 1               /* calls of umsync of each thread that syncs */
#endif
#ifndef SYNC_THREADS
#define SYNC_THREADS 1
#endif

/* Loads and stores of a thread of the program, in any order. */
proctype program_thread() {
	byte s;
	RUN_VARIABLES;
	FAULT_VARIABLES;

end:	do
	:: atomic {
		if :: s = 0 :: s = 1 fi;
		if :: write = 0 :: may_store(s) -> write = 1 fi
	}
		access(s);
		atomic { s = 0; write = 0 }
	od
}

proctype sync_thread() {
	byte calls;
	RUN_VARIABLES;
	SYNC_VARIABLES;

	do
	:: calls < SYNCS -> umsync(); calls++
	:: calls == SYNCS -> break
	od
}

/* Jobs of worker threads and steps of the background thread, one at a time. */
proctype worker() {
	byte v;
	RUN_VARIABLES;
	FAULT_VARIABLES;

end:	do
	:: atomic {
		if :: v = 0 :: v = 1 fi;
		lock[v] == 0 -> lock[v] = _pid + 1
	}
		if
		/* clean_job: writeback_inactive */
		:: list[v] == DIRTY_LIST ->
			run_begin(v);
			write_run();
			atomic { err = 0; busy = 0 }
#ifdef SUPPLY
		/* supply_job: send_some */
		:: atomic { list[v] == RESIDENT_LIST && !pins[v] -> list[v] = NO_LIST }
			seg_deactivate(v)
#endif
#ifdef EVICT
		/* seg_evict: evict_one */
#ifdef MUTANT_evicts_changed
		:: atomic { has(v, VALID) && !pins[v] -> list[v] = NO_LIST }
#else
		:: atomic { has(v, VALID) && !has(v, DIRTY) && !pins[v] -> list[v] = NO_LIST }
#endif
			if
			:: !has(v, INACTIVE) -> unmap_frame(v)
			:: else
			fi;
			atomic {
				let_go(v);
				return_frame(frame_of(v));
				unlock_seg(v)
			}
#endif
#ifdef READAHEAD
		/* load_batch: the frame is free, or from a clean inactive segment */
		:: !has(v, VALID) ->
			other = 1 - v;
			if
			:: atomic { some_free -> take_free(frame) }
			:: atomic { is_in(other, CLEAN_LIST) ->
				take(other);
				frame = frame_of(other);
				let_go(other);
				unlock_seg(other)
			}
			:: else
			fi;
			atomic {
				if
				:: frame != NO_FRAME ->
					set_frame(v, frame);
					read_segment(v);
					/* become_inactive */
#ifdef MUTANT_ahead_though_failed
					err = 0;
#endif
					if
					:: err -> return_frame(frame)
					:: else ->
						change(v, 0, VALID | INACTIVE | AHEAD);
						list[v] = AHEAD_LIST
					fi
				:: else
				fi;
				unlock_seg(v);
				other = 0; frame = NO_FRAME; err = 0
			}
#endif
		:: atomic { else -> unlock_seg(v) }
		fi;
		v = 0
	od
}

#ifdef PINS
/* A thread that pins a segment for a device, which stores without faults. */
proctype pin_thread() {
	byte s;
	RUN_VARIABLES;
	FAULT_VARIABLES;

	atomic {
		if :: s = 0 :: s = 1 fi;
		write = 1
	}
	/* seg_pin */
	lock_seg(s);
	if
	:: !has(s, VALID) || has(s, INACTIVE) || !has(s, WRITABLE) -> bring_locked(s)
	:: else
	fi;
	if
	:: atomic { !err -> pins[s]++; change(s, 0, DEVICE); unlock_seg(s) }
		do
		:: atomic { may_store(s) -> store_next(s); memory[frame_of(s)] = last[s] }
		:: break
		od;
		/* seg_unpin */
		lock_seg(s);
		atomic { pins[s]--; change(s, DEVICE, 0); unlock_seg(s) }
	:: atomic { else -> unlock_seg(s) }
	fi
}
#endif

init {
	byte n;

	atomic {
		start_model();
		do
		:: n < THREADS -> run program_thread(); n++
		:: n == THREADS -> break
		od;
		n = 0;
		do
		:: n < SYNC_THREADS -> run sync_thread(); n++
		:: n == SYNC_THREADS -> break
		od;
		n = 0;
#ifdef WORKER
		run worker();
#endif
#ifdef PINS
		run pin_thread()
#endif
	}
}
