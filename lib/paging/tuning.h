/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuning constants of lib/paging. Each has its unit, its meaning, and what justifies its
 * value: a measurement (of a program in bench/, or of the change that introduced the value), or
 * else the reasoning. "Not measured" means that no record of a comparison with other values is
 * left. X_PART is a divisor: the constant n stands for one nth.
 */
#ifndef TUNING_H
#define TUNING_H

/* ---- mapping ---- */

/* Arrays of headers of a mapping. Each has more segments than all before it, so a mapping can grow
 * by a factor of 2^39. */
#define MAX_EXTENTS 40
/* log2 of the number of segments that share a mark (a bit), so that a walk over the marks of a
 * large mapping is short, and looks at few headers for each of them. A sync of one changed 4 KiB
 * segment of 4 GiB took 10 us of processor time, 13 with groups of 8 segments, and 41 without
 * groups; one of 1000 segments took 9 ms with each. */
#define MARK_GROUP_SHIFT 6
/* Segments of a cluster. Their requests are on the stacks of signal handlers, which bounds them.
 * 32 segments of 64 KiB are a huge page. Clusters raised a sequential pass with 256 KiB from 803 to
 * 898 MiB/s from a disk, and from 1778 to 2212 MiB/s out of the page cache. */
#define MAX_CLUSTER_SEGMENTS 32
/* Segments that a mapping that ends unmaps while it holds the addresses. The number bounds how long
 * other threads wait for addresses, and contains whole clusters. The end of a mapping of 256 MiB in
 * 64 KiB segments took 4.3 ms of processor time, of which each batch had 0.3, and 4.0 ms in one
 * batch. */
#define TEARDOWN_BATCH_SEGMENTS 256
/* Bytes. Zeros beyond the end of the store may never have been stored, and are not written; but if
 * fewer than this number are missing to the end of the mapping, they are written, because a number
 * that was stored there may end in zeros. The largest vector of a processor has 64 bytes. */
#define MAX_OMITTED_ZEROS 64

/* ---- fault ---- */

/* Loads that a thread that serves messages has in flight at a time. They are on its stack. */
#define MAX_MESSAGE_LOADS 16
/* Loads in flight from which on such a thread waits for the next one to end: it will not be long.
 * With fewer, another thread looks for messages meanwhile. When another thread always looked, loads
 * of 16 threads at random took 103 us of processor time each instead of 95. */
#define MIN_LOADS_TO_WAIT 4

/* fault/stall.c. A thread whose store waits for storage looks again after this many ms. Storage
 * that fails is not repaired sooner. */
#define STALL_SLEEP_MS 50
/* ms between two messages about the same mapping, so that a long outage does not fill the log. */
#define STALL_REPORT_INTERVAL_MS 60000
/* ms for which the background thread tries to write one mapping before it serves the next one. */
#define STALL_WRITE_MS 20
/* ms until the next attempt if no segment could be written. */
#define STALL_RETRY_MS 1000

/* ---- residency: eviction ---- */

/* Part of an account's frames that is kept inactive: a supply for faults, and a second chance for
 * segments that the policy misjudged. An eighth of memory leaves the policy most of it. */
#define INACTIVE_PART 8
/* Part below which a worker fills the supply up again: half of it, so that the worker is called
 * seldom and has work each time. */
#define INACTIVE_LOW_PART 16
/* Part of an account's frames that may be dirty and inactive. With more, a fault waits for the
 * writes rather than deactivate segments that would wait behind them. Without the bound, stores at
 * random to 64 KiB segments of four times the budget had 366 MiB/s instead of 552. */
#define DIRTY_BACKLOG_PART 4
/* Part of an account's frames, and bytes, of dirty inactive segments that make it worth waking a
 * worker: enough for a long write, and soon even in a large account. If each segment woke a worker,
 * stores at random to 64 KiB segments of four times the budget had 289 MiB/s instead of 391. */
#define WRITE_BEHIND_PART 32
#define MAX_WRITE_BEHIND_BYTES ((size_t)4 << 20)

/* Steps towards one frame. The bound ends a search in which other threads have always locked the
 * segments that it needs. No benchmark reaches it. */
#define MAX_LOCK_RETRIES 10000
/* How often a thread yields, and then sleeps, while other threads load or write all frames, before
 * it exceeds the budget or evicts from another account. A load takes less than the longer time (a
 * second), unless it needs a frame itself. Without the wait, a process went over a small budget by
 * as much as the budget (tests: group, budget). */
#define MAX_YIELDS 100
#define MAX_SLEEPS 5
#define MAX_STORAGE_SLEEPS 1000
#define SLEEP_MS 1
/* Beyond the budget, a fault frees this many frames before it takes one, so that the excess
 * shrinks with each fault; the background thread frees the rest. */
#define FRAMES_FREED_PER_FAULT_OVER_BUDGET 2
/* Inactive segments of which one frame is prepared before it is needed. With fewer, the frame costs
 * too much of the second chance. Without prepared frames, reads at random of 2 MiB segments of four
 * times the budget had 799 MiB/s instead of 954. */
#define MIN_INACTIVE_TO_PREPARE 8

/* Segments that are tried until one is discarded in place, if the kernel has no VMA left. No
 * benchmark reaches the bound. */
#define MAX_VMA_DISCARD_TRIES 64
/* After that, part of the frames by which the process remains below the number at which it
 * happened, and frames that it may always have: the spare kernel mappings are enough for these.
 * With none, each fault raised SIGBUS. */
#define VMA_RESERVE_PART 16
#define MIN_FRAMES_WITHOUT_VMAS 16

/* Segments that are deactivated together, with the rest of the last one's cluster. Their locks are
 * held meanwhile. One call of the kernel for a cluster interrupts the other processors once. */
#define EVICTION_BATCH 8
#define MAX_EVICTION_BATCH (EVICTION_BATCH + MAX_CLUSTER_SEGMENTS)
/* Segments that are dropped together where frames are copied, and the part of the
 * account's frames and the bytes that bound them: what is dropped has no second chance. */
#define DROP_BATCH 32
#define DROP_PART 32
#define MAX_DROP_BYTES ((size_t)512 << 10)
/* Part of the dropped segments for which the oldest inactive one goes, too, so that segments that a
 * policy has labelled do not stay for ever. Zipf reads of 16 KiB segments missed 19 to 26 percent
 * with it, and 21 to 29 without. */
#define EXPIRE_PART 16
/* Frames of small segments whose memory in the pool goes together, and the part of the inactive
 * bytes that bounds them. With sixteen, stores at random to 4 KiB segments were 1.24 times as fast
 * with one thread, and 1.47 times with two and eight (2 processors). For large segments, moving
 * the memory costs less than a copy. */
#define EMPTY_BATCH 16
#define EMPTY_PART 4
#define MAX_EMPTY_SEGMENT_BYTES ((size_t)16 << 10)

/* ---- residency: readahead ---- */

/* Runs of faults that are followed in a mapping at a time, one for each thread or array. Eight
 * threads that read 512 MiB in order with 64 KiB segments took 2.0 ms of processor time for each
 * MiB with one run, 0.8 with three and with eight, and sixteen threads 1.1 ms with eight runs and
 * 0.8 with sixteen and with 32. Faults at random took the same time with each. */
#define MAX_STREAMS 16
/* Clusters behind a run that another thread had locked, and that are dropped at a later fault. The
 * number is the usual one of threads that serve faults at a time. Two threads that read 512 MiB
 * with 64 KiB segments had 1659 MiB/s with this list, and 1519 without. */
#define MAX_MISSED_CLUSTERS 8
/* Segments that a run reads ahead at first, and at least. The number grows by these factors with
 * each fault. Where each fault waits for a network, it grows faster. */
#define MIN_WINDOW_SEGMENTS 2
#define WINDOW_GROWTH 2
#define REMOTE_WINDOW_GROWTH 4
/* Bytes that one job loads: a huge page, which then moves by one call. */
#define READAHEAD_JOB_BYTES ((size_t)2 << 20)
/* Faults in a row that make a run: two on neighbours. Of 1661 faults at random in 4096 segments,
 * few were on neighbours, and made runs that read six segments in all. Two faults at another
 * distance may be random ones, so a third one must confirm the distance. */
#define MIN_ADJACENT_FAULTS 2
#define MIN_STRIDE_FAULTS 3
/* Segments. Faults that are farther apart do not begin a run. Reads of every 64th 64 KiB segment
 * took 55 us of processor time each, and 104 without runs. Faults at random took the same time with
 * a bound of 8. */
#define MAX_STRIDE_SEGMENTS 256
/* Segments by which the window of a mapping shrinks if a segment that was read ahead is reclaimed
 * unused. A used one restores one segment, so a run grows only if more than two thirds of its
 * segments are used. */
#define WINDOW_CUT_PER_WASTE 2
/* Segments by which the room of all runs of an account shrinks for such a segment, and for one that
 * was evicted and accessed again. If memory is large enough, neither happens, so the value is high.
 * The room is half of the budget at first and an eighth at least: when it was always an eighth, two
 * threads that read in order with a small budget were four to ten times as slow. */
#define ROOM_CUT_PER_WASTE 16
/* Segments (or clusters, if a run reads whole ones) from a fault back to those that a sequential
 * run drops. The one before the fault may still be in use. The second and third try segments again
 * that were locked the first time. */
#define FIRST_DROPPED_BEHIND 2
#define LAST_DROPPED_BEHIND 4
/* Frames that are searched for a huge page, as a multiple of those that it has. Their numbers
 * are on the stack. Without the search, a pass over four times the budget with 64 KiB segments
 * read 724 MiB/s instead of 975, and took 1033 us of processor time for each MiB instead of
 * 218. */
#define HUGE_PAGE_SEARCH_FACTOR 4

/* residency/recycle.c. Bytes of a run that stay behind its reader. A program that goes
 * back by less finds its segments in memory. Without recycling, a cold pass over 512 MiB with
 * 64 KiB segments took 297 us of processor time for each MiB instead of 103, and held 746 MiB
 * instead of 117. */
#define RECYCLE_DISTANCE_BYTES ((size_t)32 << 20)
/* residency/prefetch.c. Jobs that load one list: they keep storage busy and leave workers for other
 * lists. From a busy local disk, a list of 128 MiB took 1.6 s with one job, and 0.3 s with two and
 * with four. */
#define PREFETCH_JOBS 4
/* Where faults bring in neighbors, adjacent segments of a list that have at least this number of
 * bytes are read by one request and mapped at once. A job has only one such request in flight, but
 * many requests for single segments. 40 lists of 16 MiB in runs of 256 KiB took 1.25 s of processor
 * time when all segments became inactive, and take 0.54 s; in runs of 64 KiB, they took 0.40 s and
 * take 0.19 s. */
#define MIN_LISTED_RUN_BYTES ((size_t)64 << 10)
/* Part of a full list that repeated segments must exceed: then their places are used for others. A
 * search for fewer would sort the list too often. */
#define DUPLICATES_PART 8
/* How often a part of a list that finds no room is tried, because a worker makes room meanwhile and
 * another part may take it. */
#define MAX_PREFETCH_TRIES 32
/* residency/assemble.c. ms for which a mapping may be copied to huge pages in one round of the
 * background thread, whose other work waits. A huge page takes less than 1 ms. On small pages, an
 * access at random costs a third more. */
#define ASSEMBLE_ROUND_MS 50

/* ---- residency: transfer size ---- */

/* residency/transfer_size.c. All percentages and counts below were chosen by bench/replay
 * --transfers: with them, its patterns and `journal` take at most 1.4 times as long as with the
 * best fixed size; but `rows` and `columns` take up to 4.2 times as long, because they end soon
 * after the size is found. The time of a read request, and bytes that storage transfers in a
 * nanosecond: those of a local SSD. */
#define REQUEST_NS 45000
#define BYTES_PER_NS 4
/* The time of a request to a remote store until the first ones were measured, and log2 of the part
 * that each further measurement has in the average. */
#define REMOTE_REQUEST_NS 20000000
#define REQUEST_AVERAGE_SHIFT 2
/* The time of a fault without I/O: that of a virtual machine, where 22 us were measured. In the
 * decision to begin an exploration, it counts less. Otherwise small blocks are found too late: in
 * bench/replay, columns of an array that is far longer than memory read 3 times as much. */
#define RETURN_NS 20000
#define EXPLORED_RETURN_NS 4000
/* Time of the load of a block on a huge page, in percent of that of as many small pages. A pass
 * over 1 GiB took half the processor time. */
#define HUGE_LOAD_PERCENT 75
/* log2 of the bytes of the first transfers: 64 KiB, where latency is the larger part of a load. */
#define FIRST_TRANSFER_SHIFT 16
/* Part of memory that one load fills at most. */
#define TRANSFER_MEMORY_PART 8
/* log2 of the areas of which at most one is sampled; and areas of a sample of which memory holds as
 * many at least. */
#define MAX_SAMPLE_SHIFT 10
#define MIN_SAMPLED_AREAS 4
/* Blocks accessed one after another from which on the next one is loaded in the background. With
 * two, reads at random of single pages load blocks in vain that change decisions. */
#define MIN_STREAM_BLOCKS 3
/* Bytes of a block that is worth waking a worker. Not measured. */
#define MIN_BACKGROUND_BLOCK_BYTES ((size_t)64 << 10)
/* Blocks on huge pages that are loaded together in the background, at most, and the part of memory
 * that bounds them. The access to the first one lets the worker continue, so that one is not on a
 * huge page. 16 was no faster than 8 in passes in order over 1 GiB. */
#define MAX_STREAM_BLOCKS 8
/* The same for a remote store. A pass in order over 256 MiB behind a latency of 50 ms took 0.57 s
 * with 16 blocks, and 0.40 s with 32. */
#define MAX_REMOTE_STREAM_BLOCKS 32
#define STREAM_MEMORY_PART 8
/* Blocks that are loaded without a huge page after the kernel has refused one, or has taken more
 * than these ns of processor time for each of so many moves in a row, because it has split the
 * pages. A huge page takes about 10 us, and small pages take 500 us or more. In a virtual machine,
 * interrupts and stolen time made one move in twelve take that long. When one slow move was enough,
 * passes in order over 1 GiB took 860 us of processor time for each MiB, not 640, and read 1200
 * MiB/s instead of 1400. */
#define REFUSED_HUGE_BLOCKS 32
#define MAX_HUGE_MOVE_NS 400000
#define MAX_SLOW_HUGE_MOVES 4
/* Part of an account's frames that neighbors may have which were not accessed. */
#define MAX_AHEAD_PART 8
/* Accesses to the sample between two decisions; and misses of the current level in the sample after
 * which all misses count half. */
#define TOUCHES_PER_DECISION 32
#define MAX_RECENT_MISSES 128
/* The cost of a larger block in percent of that of a smaller one. */
#define MAX_COST_OF_LARGER_PERCENT 93
/* Time of returns in percent of that of loads, and that of explorations. */
#define MAX_RETURN_PERCENT 5
#define MAX_EXPLORATION_PERCENT 3
/* Length of an exploration, in fillings of memory, of which the first does not count. */
#define EXPLORATION_FILLINGS 4
/* Longest time between explorations in vain, in quarters of the time that their cost requires; the
 * levels by which another one must lower the level to begin a hold; and the longest hold. */
#define MAX_EXPLORATION_GAP 64
#define MIN_HOLD_LEVELS 4
#define MAX_HOLD_FILLINGS 8

/* ---- residency: page-cache mappings ---- */

/* A fault costs more than the pages that are mapped with it, so neighbours are mapped together, as
 * a run. These are its bounds in bytes and segments. A pass over 256 MiB in 64 KiB segments took
 * 2.5 ms of processor time, as with 64 MiB, and 11 ms with 1 MiB. */
#define MAX_PAGECACHE_RUN_BYTES ((size_t)16 << 20)
#define MIN_PAGECACHE_RUN_BYTES ((size_t)64 << 10)
#define MAX_PAGECACHE_RUN_SEGMENTS 512
/* A run takes at most ADJACENT_RUN_PART of the budget while half of the budget is unused, or beside
 * segments that are mapped from the page cache. Otherwise it takes SCATTERED_RUN_PART: a run among
 * scattered accesses takes budget from other runs, and few of its pages are accessed. */
#define ADJACENT_RUN_PART 64
#define SCATTERED_RUN_PART 4096
/* Runs of a process. A run may take two VMAs, of which a process has 65530
 * (vm.max_map_count): runs leave three quarters of them. */
#define MAX_PAGECACHE_RUNS 8192
/* Steps of eviction for each segment of a run, if frames exceed the budget because of it: a segment
 * may have to be deactivated, written and reclaimed. */
#define EVICTION_STEPS_PER_RUN_SEGMENT 4
/* Runs that the background thread checks in one round and mapping. Each check is a system call. */
#define MAX_PAGECACHE_CHECKS 64

/* ---- sync ---- */

/* Segments that are written together: a bit of a 32-bit word for each, and requests on the stack of
 * a signal handler. A sync of 128 MiB took 7.8 ms of processor time with 64 KiB segments, and 13
 * with 8 of them at a time. Bytes: as much as hides the latency of storage. With 2 MiB segments,
 * the sync took 1.2 ms, and 2.2 with 4 MiB. */
#define MAX_WRITE_RUN_SEGMENTS 32
#define MAX_WRITE_RUN_BYTES ((size_t)16 << 20)
/* Bytes of the requests of a run whose contents, on small pages, are copied to one piece of memory
 * first. In a virtual machine, a direct write of 64 KiB from small pages took 0.17 ms, and 0.08 ms
 * from one piece; with 16 KiB, there was no difference. */
#define MIN_COPIED_WRITE_BYTES ((size_t)32 << 10)
/* Segments from the first of a run to its last one, which need not be neighbours. With gaps, IOR
 * with random writes of 256 KiB was 1.4 times as fast. */
#define MAX_WRITE_RUN_SPAN 128
/* Jobs that write the dirty inactive segments of one mapping: one prepares a run while the other
 * one waits for storage. On 2 processors with a fast disk, one job was as fast; slow storage was
 * not measured. */
#define MAX_WRITE_BEHIND_JOBS 2
/* ms for which no thread writes a dirty inactive segment of a mapping by itself after a write has
 * failed. */
#define WRITE_RETRY_MS 1000
/* ms after which a thread that waits for a write in progress looks again. */
#define MAX_WRITE_WAIT_MS 100
/* ms after which a commit that waits for the lock of a segment looks whether it still needs it. Not
 * measured. */
#define LOCK_LOOK_MS 10
/* ms that a part of a sync takes at most before the thread handles signals. */
#define SYNC_PART_MS 10
/* Bytes of a segment and its twin that are compared at a time: a cache line. */
#define COMPARE_BYTES 64
/* Bytes of a segment that changes during its write which are written at a time: they are on the
 * stack meanwhile. */
#define BUSY_WRITE_BYTES 512

/* sync/guess.c. Segments that become writable before a store, as a multiple of the dirty ones
 * before them, and at most. */
#define GUESS_FACTOR 4
/* Bytes of a segment whose checksum is compared first: a program that stores to all of a segment
 * changes them. */
#define GUESS_FIRST_BYTES 256
#define MAX_GUESSED_SEGMENTS ((size_t)64)
/* ---- residency/tiering.c: moves between tiers ---- */

/* Ranges of a mapping that umadvise can keep in tiers. */
#define MAX_TIER_RANGES 8
/* Segments at which one exchange looks. */
#define MAX_TIER_VICTIMS 32
/* Processor time of a round of samples, once a second, in us; with the faults of the samples, all
 * take less than 1 % of a processor. */
#define SAMPLE_ROUND_US 3000
#define MAX_SAMPLES_PER_ROUND 512
/* Processor time in us that promotions get with each round: 1 % of a processor. MAX_PROMOTION_US
 * bounds the time that they save up. */
#define PROMOTION_ROUND_US 10000
#define MAX_PROMOTION_US 100000

/* sync/flusher.c: the background thread. ms between two rounds: flush intervals are in seconds. */
#define ROUND_PERIOD_MS 1000
/* Runs that are written for one mapping in one round, so that all mappings get their turn. */
#define MAX_WRITES_PER_ROUND 64
/* Rounds between two returns of unused memory to the system; ummap-memory(7) says three seconds. */
#define FRAME_AGE_ROUNDS 3
/* Steps by which one mapping shrinks before the other mappings do, and before other processes of
 * the node hear of it. */
#define SHRINK_STEPS 16
/* ms until the next attempt if no mapping can shrink now, or stores wait for storage. */
#define BLOCKED_RETRY_MS 20

/* ---- mapping: node copies ---- */

/* Loads of a node copy at a time in one process; more threads wait for a buffer. Eight threads that
 * read 2000 segments of 64 KiB at random took 0.11 s of processor time, and 0.17 s, and five times
 * as long, with one buffer. */
#define COPY_BUFFERS 8
/* Part of the budget of a node copy that a list of segments to prefetch may take if the copy is
 * full: as for other mappings (PREFETCH_PART). */
#define COPY_PREFETCH_PART 8
/* How often a list waits for a larger budget, and for how long. A budget that can grow does so
 * every 5 ms; one whose memory others must free first, every 20 ms. */
#define COPY_GROW_TRIES 250
#define COPY_GROW_US 1000
/* Interval in ms at which a process whose budget can grow looks at its node copies; and for how
 * many ms a copy may exceed its budget. A process that joins gets its budget within this time. Not
 * measured. */
#define COPY_ADJUST_MS 100
#define COPY_EXCESS_MS 2000
/* Bytes of a load in order, unless a segment is larger. A pass over 256 MiB with 64 KiB segments
 * took 0.18 s of processor time, 0.42 with 64 KiB, and 0.15 with 4 MiB, for which the buffers would
 * take four times the memory. */
#define MAX_COPY_LOAD_BYTES ((size_t)1 << 20)
/* Loads in order that jobs make while the program reads the segments before them. Two processes
 * that read 512 MiB in order, with 128 MiB of memory, read 1400 MiB/s together; without jobs, 800.
 * Other numbers were not measured. */
#define COPY_JOBS 4

#endif
