/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The segment protocol of lib/STATES.md as a model for spin: the shared state, and the steps of the
 * functions in lib/paging. core.pml and peer.pml make processes of the steps. tests/check-model
 * runs them.
 *
 * A step is a statement or an atomic block. Between two steps of a process, other processes run.
 * A step changes at most one thing that others see without the lock of the segment: rights and
 * contents of a slot, DIRTY, the mark, the store, or the lock. Names are those of the code; where
 * they differ, a comment names the function. MUTANT_name is the counterpart of
 * tests/mutants/name.patch.
 *
 * These macros add parts of the protocol: BLANK (a mapping that begins as zeros), IO_ERRORS,
 * ENGINE_ERRORS and FLUSH_ERRORS (ERRORS of them at most), PINS, WRITERS (twins), DROPS (the engine
 * sigbus), READAHEAD, PEER, and FRAMES=2.
 *
 * The model assumes sequentially consistent memory. It leaves out the page cache, poisoned slots,
 * clusters, migration, mappings in place, and EXPOSED, which only chooses how pages move.
 */

#define SEGS 2
#ifndef FRAMES
#define FRAMES 1
#endif
#ifndef STORES_TO_0
#define STORES_TO_0 2         /* stores to segment 0, at most */
#endif
#ifndef STORES_TO_1
#define STORES_TO_1 1
#endif
#define NO_FRAME 99           /* FRAME_NONE */

/* ---- Headers (cache/header.h) ---- */

#define VALID 1
#define INACTIVE 2
#define DIRTY 4
#define WRITABLE 8
#define STORED 16
#define AHEAD 32
#define DEVICE 64

byte head[SEGS];
byte lock[SEGS];              /* 0: free; 1 + the process that holds it */
byte pins[SEGS];
#if FRAMES > 1
byte frames[SEGS];            /* s->frame */
#define frame_of(s) frames[s]
#define set_frame(s, f) frames[s] = f
#else
#define frame_of(s) 0
#define set_frame(s, f) skip
#endif

#define has(s, bits) ((head[s] & (bits)) == (bits))
#define change(s, clear, set) head[s] = (head[s] & (255 - (clear))) | (set)

/* The table of states.h, without the states of parts that the model leaves out. */
#define matches(h, must, may) (((h) & (must)) == (must) && !((h) & (255 - ((must) | (may)))))
inline check_state(h) {
	if
	:: matches(h, 0, STORED)                                   /* absent */
	:: matches(h, VALID | INACTIVE | AHEAD, STORED)            /* read ahead */
	:: matches(h, VALID | INACTIVE, STORED)                    /* inactive */
	:: matches(h, VALID | INACTIVE | DIRTY, STORED)            /* dirty inactive */
	:: matches(h, VALID, STORED | DEVICE)                      /* resident */
	:: matches(h, VALID | DIRTY, STORED | DEVICE)              /* dirty */
	:: matches(h, VALID | DIRTY | WRITABLE, STORED | DEVICE)   /* writable */
	:: else -> assert(false)
	fi
}

/* ---- Lists (cache/cache.c) ---- */

#define NO_LIST 0
#define RESIDENT_LIST 1
#define CLEAN_LIST 2          /* INACTIVE_CLEAN */
#define DIRTY_LIST 3          /* INACTIVE_DIRTY */
#define AHEAD_LIST 4          /* INACTIVE_AHEAD */

byte list[SEGS];
bit mark;                     /* the bit of map->dirty for the group of both segments */

/* ---- Frames and the mapped range ---- */

byte memory[FRAMES];          /* contents of each frame */
bit pool_rw[FRAMES];          /* the memory of the frame in the pool is writable */
bit noted_rw[FRAMES];         /* frame_writable */
bit is_free[FRAMES];
#ifdef BLANK
bit blank[FRAMES];            /* frame_is_blank */
#endif

#define EMPTY 100             /* no frame: each access faults */
#define ZEROS 101             /* the page that mremap(2) with MREMAP_DONTUNMAP leaves behind */
#define COPY 102              /* DROPS: a page whose segment has left already */
#define NO_RIGHTS 0
#define READ 1
#define READ_WRITE 2

byte slot[SEGS];              /* the frame that is mapped, or one of the above */
byte rights[SEGS];            /* of the slot */
#ifdef DROPS
byte copy[SEGS];              /* contents of the page */
#endif

/* ---- The store ---- */

/* Version v of the contents of segment s. Later versions are larger numbers. */
#define CONTENT(s, v) (16 * ((s) + 1) + (v))
#define ZERO 1
#define GARBAGE 0             /* contents that no load may see: of a free frame, of an old store */

byte store[SEGS];             /* contents that a read returns */
byte durable[SEGS];           /* contents that are left after a crash */
bit pending[SEGS];            /* a crash may lose the contents of the store */
byte errors_left;             /* errors that can still happen */

/* struct flushing */
bit due;
bit turn;
bit scan_lock;
#ifdef FLUSH_ERRORS
/* Generations are relative to the number of flushes that have ended, so that states which differ
 * only in the number of flushes are one state. */
bit flushing;                 /* generation - settled: a flush is in progress */
byte failed;
bit left[2];                  /* bytes were reclaimed in generation `settled`, or in the next one */
bit lost;
byte stamp[SEGS];             /* flush_note: the time in the header - settled, or SETTLED */
#define SETTLED 2             /* a generation before `settled` */
#endif

#ifdef WRITERS
#define NO_TWIN 255
byte twin[SEGS];
bit unsure[SEGS];
#endif

/* ---- Ghosts: state that the code does not have, only for assertions ---- */

byte last[SEGS];              /* contents after the last store of the program */
#ifdef FLUSH_ERRORS
bit covered[SEGS];            /* a flush that began after the last write has succeeded */
bit begun[SEGS];              /* the flush in progress began after the last write */
bit left_open[SEGS];          /* contents have left memory that no good flush has covered */
bit left_begun[SEGS];         /* the flush in progress began after they were written */
#endif

#define store_next(s) last[s] = (last[s] == ZERO -> CONTENT(s, 1) : last[s] + 1)
#define may_store(s) (last[s] < CONTENT(s, (s == 0 -> STORES_TO_0 : STORES_TO_1)))

/* ---- Locks ---- */

#define lock_seg(s) atomic { lock[s] == 0 -> lock[s] = _pid + 1 }

/* map_unlock: the header is in a state of the table, and the slot agrees with it. */
inline unlock_seg(s) {
	assert(lock[s] == _pid + 1);
	check_state(head[s]);
	assert(!pins[s] || (has(s, VALID) && !has(s, INACTIVE)));
	assert((has(s, VALID) && !has(s, INACTIVE)) == (slot[s] < FRAMES));
	assert(slot[s] == EMPTY || slot[s] == frame_of(s));
	lock[s] = 0
}

/* ---- Other processes (peer/export.c) ---- */

#ifdef PEER
byte visited = NO_FRAME;      /* the slot of the one line: the segment that is accessed */
bit importer_lives;           /* the kernel holds the lock of the line for it */

/* export_wait_for_slots, wait_for_slot and reap_line. */
inline map_await(s) {
	if
	:: visited != s
#ifndef MUTANT_dead_visitor_stays
	:: visited == s && !importer_lives -> visited = NO_FRAME
#endif
	fi
}
#else
#define map_await(s) skip
#endif

/* ---- Flush (sync.c) ---- */

#ifdef FLUSH_ERRORS
#ifdef MUTANT_doubt_of_one_generation
#define OPEN_GENERATIONS 1
#else
#define OPEN_GENERATIONS 2
#endif
#define is_open(s) \
	(has(s, STORED) && !has(s, DIRTY) && \
	 stamp[s] < OPEN_GENERATIONS)
#define keeps_stored true

inline flush_note(s) {
	stamp[s] = flushing;
	covered[s] = 0; begun[s] = 0
}

inline flush_leaves(s) {
	if
	:: is_open(s) -> left[stamp[s]] = 1
	:: else
	fi;
	if
	:: has(s, STORED) && !has(s, DIRTY) && !covered[s] ->
		left_begun[s] = begun[s] && (!left_open[s] || left_begun[s]);
		left_open[s] = 1
	:: else
	fi
}

inline doubt(s) {
	lock_seg(s);
	if
	:: has(s, VALID) && !has(s, AHEAD) && is_open(s) ->
		/* flush_again */
		change(s, 0, DIRTY);
		mark = 1;
		list[s] = (has(s, INACTIVE) -> DIRTY_LIST : list[s])
	:: else
	fi;
	atomic { unlock_seg(s) }
}

/* The driver makes durable all that it has. A failed flush loses it, unless the driver keeps it. */
inline driver_flush() {
	if
	:: true ->
		durable[0] = (pending[0] -> store[0] : durable[0]);
		durable[1] = (pending[1] -> store[1] : durable[1]);
		pending[0] = 0; pending[1] = 0;
		err = 0
	:: errors_left > 0 -> errors_left--; pending[0] = 0; pending[1] = 0; err = 1
	:: errors_left > 0 -> errors_left--; err = 1; kept = 1
	fi
}

inline flush_end() {
	if
	:: err -> doubt(0); doubt(1)
	:: else ->
		d_step {
			covered[0] = covered[0] || begun[0];
			covered[1] = covered[1] || begun[1];
			left_open[0] = left_open[0] && !left_begun[0];
			left_open[1] = left_open[1] && !left_begun[1]
		}
	fi;
	atomic {
		gone = err && !kept && (left[0] || left[1]);
		/* The library reports no loss of bytes that a good flush has covered. */
		assert(!gone || left_open[0] || left_open[1]);
		/* settled++: the next generation becomes the oldest open one. */
#ifdef MUTANT_doubt_for_ever
		kept = left[0];
		left[0] = left[1];
		left[1] = kept;
#else
		left[0] = left[1] || (kept && left[0]);
		left[1] = 0;
#endif
		flushing = 0;
		stamp[0] = (stamp[0] == 1 -> 0 : SETTLED);
		stamp[1] = (stamp[1] == 1 -> 0 : SETTLED);
		left[0] = left[0] && !gone;
		left[1] = left[1] && !gone;
		left_open[0] = left_open[0] && !gone;
		left_open[1] = left_open[1] && !gone;
		begun[0] = 0; begun[1] = 0; left_begun[0] = 0; left_begun[1] = 0;
		kept = 0
	}
	atomic {
#ifndef MUTANT_doubt_forgets_the_absent
		lost = lost || gone;
#endif
		gone = 0
	}
	atomic {
		if
		:: err -> due = 1; failed++
		:: else
		fi
	}
}

inline flush_written() {
	atomic { !turn -> turn = 1 };
	if
	:: atomic { due -> due = 0 }
		atomic {
			flushing = 1;
			begun[0] = !covered[0]; begun[1] = !covered[1];
			left_begun[0] = left_open[0]; left_begun[1] = left_open[1]
		}
		atomic { driver_flush() }
		flush_end()
	:: else -> err = 0
	fi;
	turn = 0
}
#else
#ifdef BLANK
#define keeps_stored true
#else
#define keeps_stored false
#endif
#define flush_note(s) skip
#define flush_leaves(s) skip
inline flush_written() {
	atomic { !turn -> turn = 1 };
	if
	:: atomic { due -> due = 0 }
#ifndef MUTANT_not_flushed
		d_step {
			durable[0] = (pending[0] -> store[0] : durable[0]);
			durable[1] = (pending[1] -> store[1] : durable[1]);
			pending[0] = 0; pending[1] = 0
		}
#else
		skip
#endif
	:: else
	fi;
	turn = 0;
	err = 0
}
#endif

/* map_mark_dirty is two steps: a scan reads the mark and then the header. */
#ifdef MUTANT_mark_before_change
#define mark_dirty_begin(s) mark = 1
#define mark_dirty_end(s) change(s, 0, DIRTY)
#else
#define mark_dirty_begin(s) change(s, 0, DIRTY)
#ifdef MUTANT_upgrade_unmarked
#define mark_dirty_end(s) skip
#else
#define mark_dirty_end(s) mark = 1
#endif
#endif

/* ---- Moving frames (engine/segv.c) ---- */

/* map_frame: sets the rights of the memory in the pool, then moves the frame. */
inline map_frame(s) {
	assert(slot[s] == EMPTY && !is_free[frame_of(s)]);
#ifdef MUTANT_map_then_protect
	slot[s] = frame_of(s);
	rights[s] = READ_WRITE;
#else
	pool_rw[frame_of(s)] = (noted_rw[frame_of(s)] != has(s, WRITABLE) ->
		has(s, WRITABLE) : pool_rw[frame_of(s)]);
	slot[s] = frame_of(s);
#if defined(MUTANT_sigbus_stores_unnoticed) || defined(MUTANT_uffd_stores_unnoticed)
	rights[s] = READ_WRITE;
#else
	rights[s] = (pool_rw[frame_of(s)] -> READ_WRITE : READ);
#endif
#endif
	noted_rw[frame_of(s)] = has(s, WRITABLE)
}

/* seg_unmap. The engine revokes the rights of the slot, and moves the frame. The slot keeps a page
 * of zeros with the rights that it had, until `place` replaces it. */
inline unmap_frame(s) {
#ifdef MUTANT_unmap_with_rights
	slot[s] = ZEROS;
#else
	rights[s] = NO_RIGHTS;
#endif
	atomic {
		pool_rw[frame_of(s)] = has(s, WRITABLE);
#ifdef MUTANT_rights_not_noted
		noted_rw[frame_of(s)] = 1;
#else
		noted_rw[frame_of(s)] = has(s, WRITABLE);
#endif
		slot[s] = EMPTY;
		rights[s] = NO_RIGHTS
	}
}

/* ---- Write-back (writeback.c) ---- */

#define bit_of(s) (1 << (s))
#define in_run(s) (run_mask & bit_of(s))
#define is_busy(s) (busy & bit_of(s))
#define must_write(s) has(s, VALID | DIRTY)

#ifdef PINS
#define find_busy(s) busy = (in_run(s) && has(s, DEVICE) -> busy | bit_of(s) : busy)
#else
#define find_busy(s) skip
#endif

inline make_readonly(s) {
	if
	:: in_run(s) && !is_busy(s) ->
		rights[s] = (has(s, WRITABLE) -> READ : rights[s]);
		change(s, WRITABLE, 0)
	:: else
	fi
}

/* twin_write, twin_write_busy: a segment with a twin is written if it differs from the twin. After
 * a failure it counts as different. */
#ifdef WRITERS
#define differs(s) (twin[s] == NO_TWIN || memory[frame_of(s)] != twin[s] || unsure[s])
inline note_written(s) {
	unsure[s] = 0;
	twin[s] = (is_busy(s) && twin[s] != NO_TWIN -> memory[frame_of(s)] : twin[s])
}
inline note_failure(s) {
#ifdef MUTANT_twin_forgets_failure
	twin[s] = (is_busy(s) && twin[s] != NO_TWIN -> memory[frame_of(s)] : twin[s])
#else
	unsure[s] = 1
#endif
}
#define forget_twin(s) twin[s] = NO_TWIN; unsure[s] = 0
#else
#define differs(s) true
#define note_written(s) skip
#define note_failure(s) skip
#define forget_twin(s) skip
#endif

/* The driver writes the contents of the frame. A request that fails may have been executed. */
inline driver_write(s) {
	if
	:: in_run(s) && differs(s) ->
		if
		:: true ->
			/* An older version never replaces a newer one. */
			assert(memory[frame_of(s)] >= store[s]);
			store[s] = memory[frame_of(s)];
			pending[s] = 1;
			note_written(s)
#ifdef IO_ERRORS
		:: errors_left > 0 ->
			errors_left--;
			failures = failures | bit_of(s);
			note_failure(s);
			if
			:: true
			:: store[s] = memory[frame_of(s)]; pending[s] = 1
			fi
#endif
		fi
	:: else
	fi
}

inline become_clean(s) {
#ifndef MUTANT_stored_forgotten
	if :: keeps_stored -> change(s, 0, STORED) :: else fi;
#endif
	if
#ifdef MUTANT_pinned_becomes_clean
	:: true ->
#else
	:: !is_busy(s) ->
#endif
		flush_note(s);
		list[s] = (has(s, INACTIVE | DIRTY) -> CLEAN_LIST : list[s]);
		change(s, DIRTY, 0);
		forget_twin(s)
#ifndef MUTANT_pinned_becomes_clean
	:: else
#endif
	fi
}

inline run_end(s) {
	if
#ifdef MUTANT_clean_though_failed
	:: in_run(s) -> become_clean(s)
#else
	:: in_run(s) && !(failures & bit_of(s)) -> become_clean(s)
#endif
	:: else
	fi
}

inline run_unlock(s) {
	if
	:: in_run(s) -> unlock_seg(s)
	:: else
	fi
}

/* Writes the locked segments of run_mask, and unlocks them. err: one of them was not written. */
inline write_run() {
	atomic {
		busy = 0; failures = 0;
		find_busy(0); find_busy(1);
#ifndef MUTANT_write_then_protect
		make_readonly(0); make_readonly(1)
#endif
	}
#ifdef MUTANT_clean_before_written
	atomic { run_end(0); run_end(1) }
#endif
#ifndef MUTANT_visitor_stores_clean
	if :: in_run(0) -> map_await(0) :: else fi;
	if :: in_run(1) -> map_await(1) :: else fi;
#endif
	atomic { driver_write(0); driver_write(1) }
	due = 1;
#ifdef MUTANT_write_then_protect
	atomic { make_readonly(0); make_readonly(1) }
#endif
	atomic {
#ifndef MUTANT_clean_before_written
		run_end(0); run_end(1);
#endif
		err = (failures != 0);
		run_unlock(0); run_unlock(1);
		run_mask = 0; failures = 0
	}
}

/* run_begin: a run begins with segment s, which is locked. Segment 1 joins segment 0. */
inline run_begin(s) {
	atomic {
		run_mask = bit_of(s);
#if FRAMES > 1
		if
#ifdef MUTANT_neighbours_unlocked
		:: s == 0 && must_write(1) -> run_mask = 3
#else
		:: s == 0 && must_write(1) && lock[1] == 0 -> lock[1] = _pid + 1; run_mask = 3
#endif
		:: else
		fi
#endif
	}
}

/* ---- Eviction (evict.c) ---- */

/* cache_victim, cache_reclaim and others: takes a segment from a list, and locks it. */
#define is_in(s, l) (list[s] == l && lock[s] == 0)
#ifdef MUTANT_pinned_goes
#define may_go(s) is_in(s, RESIDENT_LIST)
#else
#define may_go(s) (is_in(s, RESIDENT_LIST) && !pins[s])
#endif
#define take(s) lock[s] = _pid + 1; list[s] = NO_LIST

/* let_go: a segment that is in no list gives up its frame. */
inline let_go(s) {
#ifndef MUTANT_visitor_keeps_frame
	map_await(s);
#endif
	flush_leaves(s);
	forget_twin(s);
	change(s, VALID | INACTIVE | DIRTY | WRITABLE | AHEAD, 0);
	memory[frame_of(s)] = GARBAGE
}

inline seg_deactivate(s) {
	unmap_frame(s);
	atomic {
#ifdef MUTANT_changed_stands_clean
		change(s, WRITABLE | DIRTY, INACTIVE);
#else
		change(s, WRITABLE, INACTIVE);
#endif
		list[s] = (has(s, DIRTY) -> DIRTY_LIST : CLEAN_LIST);
		unlock_seg(s)
	}
}

#ifdef DROPS
#ifdef MUTANT_sigbus_drops_dirty
#define can_drop(s) true
#else
#define can_drop(s) (!has(s, DIRTY))
#endif

/* send_together with drop_one: the page goes at the end of the batch (engine_batch_end), and the
 * frame after that. */
inline drop_one(s) {
	atomic {
		slot[s] = COPY;
		copy[s] = memory[frame_of(s)];
		let_go(s)
	}
#ifdef MUTANT_unlocked_early
	atomic { is_free[frame_of(s)] = 1; lock[s] = 0 }
	atomic { slot[s] = EMPTY; rights[s] = NO_RIGHTS }
#else
	atomic { slot[s] = EMPTY; rights[s] = NO_RIGHTS; copy[s] = 0 }
	atomic { is_free[frame_of(s)] = 1; unlock_seg(s) }
#endif
}

inline send_one(s) {
	if
	:: can_drop(s) -> drop_one(s)
	:: seg_deactivate(s)
	fi
}
#else
#define send_one(s) seg_deactivate(s)
#endif

#if FRAMES > 1
#define some_free (is_free[0] || is_free[1])
#define take_free(f) f = (is_free[0] -> 0 : 1); is_free[f] = 0
#else
#define some_free is_free[0]
#define take_free(f) f = 0; is_free[0] = 0
#endif

/* evict_take_frame. The caller holds one segment at most, and never v. find_room chooses among the
 * steps by amounts of memory; the model, by chance. */
inline evict_take_frame(f, v) {
	do
	:: atomic { some_free -> take_free(f) } break
	/* reclaim: what is inactive and clean, or read ahead and not used, gives its frame */
#ifdef MUTANT_unwritten_given_away
	:: atomic { is_in(v, DIRTY_LIST) -> take(v); f = frame_of(v); let_go(v); unlock_seg(v) }
		break
#endif
	:: atomic { is_in(v, CLEAN_LIST) -> take(v); f = frame_of(v); let_go(v); unlock_seg(v) }
		break
#ifdef READAHEAD
	:: atomic { is_in(v, AHEAD_LIST) -> take(v); f = frame_of(v); let_go(v); unlock_seg(v) }
		break
#endif
	/* send_off: what is resident becomes inactive */
	:: atomic { may_go(v) -> take(v) } send_one(v)
	/* writeback_inactive: a dirty inactive segment is written */
	:: atomic { is_in(v, DIRTY_LIST) -> lock[v] = _pid + 1; run_mask = bit_of(v) }
		write_run();
		atomic { err = 0; busy = 0 }
	od
}

/* ---- Faults (segment.c) ---- */

#ifdef WRITERS
#define make_twin(s) twin[s] = (twin[s] == NO_TWIN -> memory[frame_of(s)] : twin[s])
#else
#define make_twin(s) skip
#endif

/* A call of the engine may fail for lack of memory. Then nothing has changed. */
inline engine_fails() {
	err = 0;
#ifdef ENGINE_ERRORS
	if
	:: errors_left > 0 -> errors_left--; err = 1
	:: true
	fi
#endif
}

/* The frame moves from the pool to the mapped range. `arrive` changes the header. */
inline map_segment(s) {
	if
	:: atomic { write -> before = head[s]; make_twin(s); mark_dirty_begin(s) }
		mark_dirty_end(s)
	:: atomic { !write -> before = head[s] }
	fi;
	atomic {
		change(s, INACTIVE | AHEAD, 0);
		change(s, 0, (has(s, DIRTY) -> WRITABLE : 0));
		list[s] = RESIDENT_LIST;
		engine_fails();
		if
		:: err ->
			list[s] = NO_LIST;
			map_await(s);
			head[s] = before
		:: else -> map_frame(s)
		fi;
		before = 0
	}
#ifdef MUTANT_map_then_protect
	rights[s] = (has(s, WRITABLE) -> READ_WRITE : READ)
#endif
}

#ifdef BLANK
#define map_reads(s) has(s, STORED)
#ifdef MUTANT_old_frame_shows
#define needs_zeros(f) false
#else
#define needs_zeros(f) (!blank[f])
#endif
#define use_blank(f) blank[f] = 0
#else
#define map_reads(s) true
#define needs_zeros(f) false
#define use_blank(f) skip
#endif

/* read_segment: make_writable, then fill. */
inline read_segment(s) {
	pool_rw[frame] = (noted_rw[frame] -> pool_rw[frame] : 1);
	noted_rw[frame] = 1;
	err = 0;
	if
	:: map_reads(s) ->
		/* The kernel fails a read(2) into memory that is read-only. */
		assert(pool_rw[frame]);
		if
		:: true -> memory[frame] = store[s]
#ifdef IO_ERRORS
		:: errors_left > 0 -> errors_left--; err = 1
#endif
		fi
	:: !map_reads(s) && needs_zeros(frame) -> assert(pool_rw[frame]); memory[frame] = ZERO
	:: else
	fi;
	use_blank(frame)
}

/* evict_return_frame. */
#define return_frame(f) is_free[f] = 1; memory[f] = GARBAGE

inline install(s) {
	if
#ifdef MUTANT_valid_though_failed
	:: atomic { true -> err = 0; set_frame(s, frame); change(s, 0, VALID) }
#else
	:: atomic { !err -> set_frame(s, frame); change(s, 0, VALID) }
#endif
		map_segment(s)
#ifndef MUTANT_valid_though_failed
	:: else
#endif
	fi;
	atomic {
		if
		:: err ->
			map_await(s);
			change(s, VALID, 0);
#ifndef MUTANT_frame_lost
			return_frame(frame)
#endif
		:: else
		fi;
		frame = NO_FRAME
	}
}

inline bring_in(s) {
	other = 1 - s;
	evict_take_frame(frame, other);
#ifdef MUTANT_publish_before_load
	atomic { err = 0; write = 1; other = frame }
	install(s);
	atomic { memory[other] = store[s]; other = 0 }
#else
	atomic { read_segment(s); other = 0 }
	install(s)
#endif
}

inline return_inactive(s) {
	atomic {
		was = list[s];
		list[s] = NO_LIST;
#ifdef MUTANT_comes_back_clean
		change(s, DIRTY, 0)
#endif
	}
	map_segment(s);
	atomic {
		list[s] = (err -> was : list[s]);
		was = 0
	}
}

inline upgrade(s) {
	if
	:: atomic { !write || has(s, WRITABLE) ->
		rights[s] = (has(s, WRITABLE) -> READ_WRITE : READ);
		err = 0
	}
	:: atomic { else ->
		before = head[s];
#ifndef MUTANT_twin_too_late
		make_twin(s);
#endif
		mark_dirty_begin(s)
	}
		mark_dirty_end(s);
		atomic {
			change(s, 0, WRITABLE);
			engine_fails();
			if
			:: err ->
				map_await(s);
				head[s] = before
			:: else -> rights[s] = READ_WRITE
			fi;
			before = 0
		}
#ifdef MUTANT_twin_too_late
		make_twin(s)
#endif
	fi
}

inline bring_locked(s) {
	if
	:: !has(s, VALID) -> bring_in(s)
	:: has(s, VALID | INACTIVE) -> return_inactive(s)
	:: else -> upgrade(s)
	fi
}

/* A fault of segment s, a store if `write`. */
inline seg_fault(s) {
	lock_seg(s);
	bring_locked(s);
	atomic { unlock_seg(s) }
}

/* ---- The program ---- */

#define has_rights(s) (rights[s] == READ_WRITE || (!write && rights[s] == READ))

inline store_to(s) {
	store_next(s);
	if
	:: slot[s] < FRAMES -> memory[slot[s]] = last[s]
	:: else
	fi
}

/* Orders 1 and 2: a load returns the last store, whichever thread made it. */
inline load_from(s) {
	if
	:: slot[s] < FRAMES -> assert(memory[slot[s]] == last[s])
	:: slot[s] == ZEROS -> assert(last[s] == ZERO)
#ifdef DROPS
	:: slot[s] == COPY -> assert(copy[s] == last[s])
#endif
	fi
}

/* A load or a store, which faults until it has its rights. A failed load raises SIGBUS. */
inline access(s) {
	do
	:: atomic { has_rights(s) ->
		if
		:: write -> store_to(s)
		:: else -> load_from(s)
		fi
	}
		break
	:: atomic { else }
		seg_fault(s);
		if
		:: err -> break
		:: else
		fi
	od;
	err = 0
}

/* ---- Scans and syncs (writeback.c) ---- */

/* write_from, for one segment of a marked group. */
inline write_from(s) {
	if
	:: must_write(s) ->
		lock_seg(s);
		if
		:: must_write(s) ->
			run_begin(s);
			write_run();
			atomic {
				later = later || err || busy;
				sync_err = sync_err || err;
				err = 0;
				busy = 0
			}
		:: atomic { else -> unlock_seg(s) }
		fi
	:: else
	fi
}

/* writeback_scan. */
inline writeback_scan() {
#ifndef MUTANT_scan_unlocked
	atomic { !scan_lock -> scan_lock = 1 };
#endif
	if
	:: atomic { mark -> mark = 0 }
		write_from(0);
		write_from(1);
		atomic { mark = mark || later; later = 0 }
	:: else
	fi;
#ifndef MUTANT_scan_unlocked
	scan_lock = 0
#endif
}

/* sync_changes. */
inline sync_changes() {
#ifdef FLUSH_ERRORS
	do
	:: seen = failed;
#endif
#ifdef MUTANT_flushed_too_early
		flush_written();
		writeback_scan();
#else
		writeback_scan();
		if
		:: !sync_err -> flush_written(); sync_err = err
		:: else
		fi;
#endif
#ifdef FLUSH_ERRORS
		if
		:: sync_err || seen == failed -> break
		:: else
		fi
	od;
	atomic { seen = 0; sync_err = sync_err || lost };
#endif
	err = 0
}

/* umsync: all that was stored before the call is durable if it returns 0. The check is of one
 * segment, any of them. */
inline umsync() {
	atomic {
		if :: checked = 0 :: checked = 1 fi;
		floor = last[checked]
	}
	sync_changes();
	atomic {
		assert(sync_err || durable[checked] >= floor);
		floor = 0; checked = 0; sync_err = 0
	}
}

/* ---- Variables of a process, which the functions have on their stacks ---- */

#define RUN_VARIABLES byte run_mask, busy, failures; bit err
#define FAULT_VARIABLES bit write; byte frame = NO_FRAME; byte before, was, other
#ifdef FLUSH_ERRORS
#define SYNC_VARIABLES bit later, sync_err, kept, gone; byte seen, checked, floor
#else
#define SYNC_VARIABLES bit later, sync_err; byte checked, floor
#endif

inline start_model() {
	slot[0] = EMPTY; slot[1] = EMPTY;
	is_free[0] = 1; pool_rw[0] = 1; noted_rw[0] = 1;
#if FRAMES > 1
	is_free[1] = 1; pool_rw[1] = 1; noted_rw[1] = 1;
#endif
#ifdef BLANK
	blank[0] = 1;
#if FRAMES > 1
	blank[1] = 1;
#endif
	store[0] = GARBAGE; store[1] = GARBAGE;
	last[0] = ZERO; last[1] = ZERO;
	memory[0] = ZERO;
#else
	store[0] = CONTENT(0, 0); store[1] = CONTENT(1, 0);
	last[0] = store[0]; last[1] = store[1];
#endif
	durable[0] = store[0]; durable[1] = store[1];
#ifdef WRITERS
	twin[0] = NO_TWIN; twin[1] = NO_TWIN;
#endif
#ifdef ERRORS
	errors_left = ERRORS
#endif
}
