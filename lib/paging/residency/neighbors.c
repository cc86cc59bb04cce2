/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads and maps runs of neighbors. A run is read by one request into memory that belongs to no
 * frame, and copied to its slots by one call of the engine. In sampled areas, a part of the run
 * only gets frames in the pool, and becomes inactive, so that its first access is reported.
 *
 * If faults continue from block to block, a worker loads the next block meanwhile. Its first
 * segment becomes inactive: the access to that segment lets the worker load the block after it.
 *
 * The caller holds the lock of one segment. Locks of neighbors are only tried, and a run ends at
 * the first neighbor that is locked or not absent, or for which there is no frame.
 */
#include "paging/residency/neighbors.h"

#include "base/scratch.h"
#include "base/sys.h"
#include "base/worker.h"
#include "engine/discard.h"
#include "engine/engine.h"
#include "paging/fault/fault.h"
#include "paging/fault/segment.h"
#include "paging/residency/evict.h"
#include "paging/residency/huge_blocks.h"
#include "paging/residency/pagecache.h"
#include "paging/residency/readahead.h"
#include "paging/residency/recycle.h"
#include "paging/residency/tiering.h"
#include "paging/sync/guess.h"

#include <string.h>
#include <sys/mman.h>
#include <ummap.h>

/* ---- The size of a transfer ---- */

/* Segments for which this mapping has memory: what it has, and what no mapping has. */
static size_t count_memory(const struct mapping *map)
{
	const struct account *account = map_account(map);
	struct cache_bytes has = cache_count_bytes(&map->member);
	size_t budget = account_budget_within(account, tiering_room(map));
	size_t used = account_frames(account);
	size_t bytes = has.resident + has.inactive + (budget > used ? budget - used : 0);

	return max_size(min_size(bytes, budget) >> map->shift, MIN_FRAMES);
}

static bool is_remote(const struct mapping *map)
{
	return io_is_remote(map->backings[map->current].store);
}

int neighbors_begin(struct mapping *map)
{
	size_t len = transfer_stamps_len(map->segs, map->shift);
	uint32_t *stamps = sys_map_anonymous(len);

	if (!stamps)
		return -ENOMEM;
	raw_madvise(stamps, len, MADV_DONTFORK);
	guess_start();
	transfer_begin(&map->residency.transfer, stamps, map->segs, map->shift, count_memory(map));
	map->residency.transfer.counted_writes = map->stat.io.write_requests;
	if (is_remote(map))
		map->residency.transfer.request_ns = REMOTE_REQUEST_NS;
	huge_blocks_begin(map);
	map->residency.transfer.huge = huge_blocks_come(map);
	return 0;
}

void neighbors_end(struct mapping *map)
{
	struct transfer_size *t = &map->residency.transfer;

	if (t->stamps)
		raw_munmap(t->stamps, transfer_stamps_len(t->segs, map->shift));
	t->stamps = NULL;
	huge_blocks_end(map);
}

void neighbors_grow(struct mapping *map)
{
	/* With other advice than the rest, the new part would be a memory area of its own, and no
	 * segment or run could be copied across its beginning. */
	if (huge_blocks_come(map))
		huge_blocks_advise(map);
	if (!neighbors_come(map) || map->segs < 2 * map->residency.transfer.segs)
		return;
	neighbors_end(map);
	/* Without memory for stamps, faults bring in no neighbors from now on. */
	neighbors_begin(map);
}

/* The number of segments in the block that a fault brings in. */
static size_t block_size(const struct mapping *map)
{
	const struct transfer_size *t = &map->residency.transfer;
	int advice = map->residency.advice; /* clang 17 does not take an atomic object here */

	switch (advice) {
	case UMMAP_ADV_RANDOM:
		return 1;
	case UMMAP_ADV_SEQUENTIAL:
		return (size_t)1 << transfer_max_level(t);
	default:
		return (size_t)1 << t->level;
	}
}

size_t neighbors_transfer_bytes(const struct mapping *map)
{
	return neighbors_come(map) ? block_size(map) << map->shift : map->seg_size;
}

/* Whether accesses to the area of segment i are reported. */
static bool is_sampled(const struct mapping *map, size_t i)
{
	return map->residency.advice == UMMAP_ADV_NORMAL &&
	       transfer_is_sampled(&map->residency.transfer, i);
}

/* Reports an access. An access that meets another one is left out. */
static void report_access(struct mapping *map, size_t i)
{
	struct transfer_size *t = &map->residency.transfer;

	if (!futex_trylock(&map->residency.stream_lock))
		return;
	if (t->undecided == 0) {
		transfer_set_memory(t, count_memory(map));
		transfer_count_writes(t, map->stat.io.write_requests);
	}
	transfer_touch(t, i);
	futex_unlock(&map->residency.stream_lock);
}

void neighbors_note_store(struct mapping *map, size_t i)
{
	if (!is_sampled(map, i) || !futex_trylock(&map->residency.stream_lock))
		return;
	transfer_store(&map->residency.transfer, i);
	futex_unlock(&map->residency.stream_lock);
}

/* ---- Runs ---- */

/* Locked neighbors [first, end) around the locked segment `at`. */
struct run {
	struct mapping *map;
	size_t at, first, end;
	bool stores;   /* whether the program will probably store to all of them */
	bool (*take)(struct run *run, size_t i, struct seg *s); /* whether segment i, which is
					locked, belongs to the run; if so, prepares it */
};

static bool take_neighbor(struct run *run, size_t i)
{
	struct seg *s = map_seg(run->map, i);

	if (!seg_trylock(s))
		return false;
	if (run->take(run, i, s))
		return true;
	seg_unlock(s);
	return false;
}

static void extend_forward(struct run *run, size_t end)
{
	end = min_size(end, run->map->segs);
	while (run->end < end && take_neighbor(run, run->end))
		run->end++;
}

/* Extends the run within the block of n segments around its first one. */
static void extend_run(struct run *run, size_t n)
{
	size_t begin = run->at - run->at % n;

	extend_forward(run, begin + n);
	while (run->first > begin && take_neighbor(run, run->first - 1))
		run->first--;
}

/* Unlocks the neighbors. */
static void unlock_run(const struct run *run)
{
	for (size_t i = run->first; i < run->end; i++) {
		if (i != run->at)
			map_unlock(run->map, i, map_seg(run->map, i));
	}
}

/* ---- Loading ---- */

/* Whether segment i is neither in memory nor mapped from the page cache. */
static bool is_absent(const struct mapping *map, size_t i)
{
	return !(seg_head(map_seg(map, i)) & (SEG_VALID | SEG_PAGECACHE));
}

static bool take_absent(struct run *run, size_t i, struct seg *s)
{
	const struct seg *at = map_seg(run->map, run->at);

	if (!is_absent(run->map, i) || seg_backing(s) != seg_backing(at) ||
	    map_reads(run->map, s) != map_reads(run->map, at))
		return false;
	recycle_note_load(run->map, s);
	s->frame = evict_take_spare(run->map);
	/* Frames older than the first mapping with guesses have no place for a checksum. */
	run->stores = run->stores && s->frame != FRAME_NONE && frame_guess(s->frame);
	return s->frame != FRAME_NONE;
}

/* The neighbors stay absent: returns their frames. */
static void return_frames(const struct run *run)
{
	for (size_t i = run->first; i < run->end; i++) {
		if (i != run->at)
			evict_return_frame(run->map, map_seg(run->map, i)->frame);
	}
}

static int read_run(const struct run *run, char *buf)
{
	struct mapping *map = run->map;
	const struct backing *t = &map->backings[seg_backing(map_seg(map, run->at))];
	size_t begin = run->first << map->shift, end = min_size(run->end << map->shift, map->size);
	struct ummap_io io = { .op = UMMAP_IO_READ, .buf = buf, .len = end - begin,
			       .off = t->offset + begin };

	if (!map_reads(map, map_seg(map, run->at)))
		io.len = 0;
	memset(buf + io.len, 0, map_slots_len(map, run->first, run->end - run->first) - io.len);
	if (!io.len)
		return 0;
	return seg_read(map, t->store, &io, run->end - run->first);
}

/* The mapped range gets the contents of segments [first, end): the pool must not have memory for
 * them, too. */
static void empty_frames(const struct run *run, size_t first, size_t end)
{
	uint32_t frames[EMPTY_BATCH];
	unsigned n = 0;

	for (size_t i = first; i < end; i++) {
		frames[n++] = map_seg(run->map, i)->frame;
		if (n == EMPTY_BATCH || i + 1 == end) {
			frame_empty(frames, n);
			n = 0;
		}
	}
}

/* The memory into which a run is read. */
struct buffer {
	char *addr;
	size_t len;
	bool huge;       /* whether it is on a huge page, which can move to the mapped range */
	bool moved;      /* whether that has moved */
};

static bool take_buffer(const struct run *run, bool whole, struct buffer *b)
{
	*b = (struct buffer){ .len = (run->end - run->first) << run->map->shift };
	if (whole && (!run->map->writable || run->stores) &&
	    huge_blocks_fit(run->map, run->first, run->end))
		b->addr = huge_blocks_take_buffer(run->map);
	b->huge = b->addr;
	if (!b->addr)
		b->addr = scratch_take(scratch_for(b->len), &errno);
	return b->addr;
}

static void give_buffer(const struct buffer *b)
{
	if (b->moved)
		return;
	if (b->huge)
		huge_blocks_give_buffer(b->addr);
	else
		scratch_give(scratch_for(b->len), &errno, b->addr);
}

/* Gives segments [first, end), which are absent, their contents. */
static int fill_slots(struct mapping *map, size_t first, size_t end, char *at, struct buffer *b,
		      bool writable)
{
	b->moved = b->huge && huge_blocks_map(map, first, at) == 0;
	return b->moved ? 0 : map->engine->copy_in(map->engine, map_slot(map, first), at,
				map_slots_len(map, first, (unsigned)(end - first)), writable);
}

/* Makes segments [first, end) of the run, which no list has, resident by one call. Only the segment
 * at which the fault was has been accessed. */
static int map_run(const struct run *run, size_t first, size_t end, struct buffer *b)
{
	char *at = b->addr + ((first - run->first) << run->map->shift);
	struct mapping *map = run->map;
	/* Moved memory is writable. */
	bool writable = map->writable && b->huge;
	int err;

	empty_frames(run, first, end);
	for (size_t i = first; i < end; i++) {
		struct seg *s = map_seg(map, i);

		seg_change(s, SEG_EXPOSED, SEG_VALID);
		map_touch(map, i);
		cache_insert(&map->member, s, i == run->at ? UMMAP_EV_READ : UMMAP_EV_AHEAD);
		if (writable)
			guess_mark(map, i, s, at + ((i - first) << map->shift));
	}
	err = fill_slots(map, first, end, at, b, writable);
	for (size_t i = first; i < end && err; i++) {
		if (writable)
			guess_unmark(map, map_seg(map, i));
		cache_remove(&map->member, map_seg(map, i));
		map_await(map, map_seg(map, i));
		seg_change(map_seg(map, i), SEG_VALID, 0);
	}
	return err;
}

/* Makes segments [first, end) inactive. */
static void keep_run(const struct run *run, size_t first, size_t end, const char *buf)
{
	struct mapping *map = run->map;

	for (size_t i = first; i < end; i++, buf += map->seg_size) {
		struct seg *s = map_seg(map, i);

		frame_use_blank(s->frame);
		memcpy(frame_addr(s->frame), buf, map_slot_len(map, i));
		seg_change(s, 0, SEG_VALID | SEG_INACTIVE | SEG_AHEAD);
		map_touch(map, i);
		cache_deactivate(&map->member, s, INACTIVE_AHEAD);
		add(map->stat.readahead_loads, 1);
	}
}

/* Reads the run, and maps [first, end) of it, which may be empty. The rest becomes inactive. */
static int fill_run(const struct run *run, size_t first, size_t end)
{
	struct buffer b;
	int err;

	if (!take_buffer(run, first == run->first && end == run->end, &b))
		return -ENOMEM;
	err = read_run(run, b.addr);
	if (!err && first < end)
		err = map_run(run, first, end, &b);
	if (!err) {
		keep_run(run, run->first, first, b.addr);
		keep_run(run, end, run->end, b.addr + ((end - run->first) << run->map->shift));
	}
	give_buffer(&b);
	return err;
}

/* ---- Loading the next blocks ---- */

/* The number of blocks of n segments that a worker loads together. With more than one, only the
 * first of them reports its first access. */
static size_t stream_blocks(const struct mapping *map, size_t n)
{
	size_t most = is_remote(map) ? MAX_REMOTE_STREAM_BLOCKS : MAX_STREAM_BLOCKS, k = 1;

	if (!huge_blocks_come(map) || n << map->shift < HUGE_PAGE)
		return 1;
	while (k < most && 2 * k * n * STREAM_MEMORY_PART <= map->residency.transfer.memory)
		k *= 2;
	return k;
}

/* Loads absent segments from `first` on, up to `end`, to the first segment that is not absent, or
 * to the first one for which there is no frame. reports: whether their first access is reported;
 * stores: whether the program will probably store to all of them.
 * Returns the end of the loaded segments. */
static size_t load_forward(struct mapping *map, size_t first, size_t end, bool reports, bool stores)
{
	struct run run = { map, first, first, first, stores, take_absent };
	struct seg *s = map_seg(map, first);
	size_t mapped;

	if (!seg_trylock(s))
		return first;
	if (take_absent(&run, first, s)) {
		run.end++;
		extend_forward(&run, end);
		transfer_count_load(&map->residency.transfer, run.end - run.first);
		mapped = is_sampled(map, first) ? run.end : first + reports;
		if (fill_run(&run, mapped, run.end) < 0) {
			evict_return_frame(map, s->frame);
			return_frames(&run);
		} else {
			add(map->stat.readahead_loads, run.end - mapped);
		}
		unlock_run(&run);
	}
	map_unlock(map, first, s);
	return run.end;
}

/* Drops a block of a huge page, after it was written if it is dirty. */
static void drop_block_job(void *arg, uint64_t first, uint64_t none)
{
	struct mapping *map = arg;

	(void)none;
	if (!map_is_frozen(map))
		recycle_drop_block(map, first);
	map_leave(map);
}

/* Drops the block of a huge page from segment `first` on, which is behind a reader. */
static void drop_behind(struct mapping *map, size_t first, bool dirty)
{
	map_use(map);
	/* The load of the next block does not wait for the write of this one. */
	if (!dirty || !worker_post(drop_block_job, map, first, 0))
		drop_block_job(map, first, 0);
}

/* Bits beside the number of segments of a block, in an argument of a job: whether the program will
 * probably store to the blocks; and whether the job loads only one part. */
#define STORES ((uint64_t)1 << 62)
#define ONE_PART ((uint64_t)1 << 63)

static void load_blocks_job(void *arg, uint64_t first, uint64_t n_and_bits);

/* Lets other jobs load the parts of [first, end). Returns false if there is no room for one: the
 * caller then loads all of them, and skips those that another job loads. */
static bool post_parts(struct mapping *map, size_t first, size_t end, size_t part,
		       uint64_t n_and_bits)
{
	for (size_t i = first; i < end; i = round_up(i + 1, part)) {
		map_use(map);
		if (!worker_post(load_blocks_job, map, i, n_and_bits | ONE_PART)) {
			map_leave(map);
			return false;
		}
	}
	return true;
}

/* Loads the blocks of n segments from `first` on: the rest of those that are loaded together (a
 * span), and the next span, if the first one is not the first of a span. Another job loads the
 * second part meanwhile, so that one job waits for storage while the other one maps. If the store
 * is remote, each block has its own job, so that the requests for all of them are in flight. */
static void load_blocks_job(void *arg, uint64_t first, uint64_t n_and_bits)
{
	struct mapping *map = arg;
	size_t n = n_and_bits & ~(STORES | ONE_PART), span = n * stream_blocks(map, n);
	size_t end = min_size(round_up(first, span) + span, map->segs);
	/* The reader is at most two spans behind. */
	size_t behind = round_up(RECYCLE_DISTANCE_BYTES >> map->shift, n) + 2 * span;
	bool recycles = span > n && recycle_is_wanted(map), stores = n_and_bits & STORES;
	/* This job loads the segments before `next`. */
	size_t part = is_remote(map) ? n : span, next = round_up(first + 1, part);

	if (part == span && first % span == 0)
		next = first + span / 2;
	if (n_and_bits & ONE_PART) {
		end = min_size(round_up(first + 1, part), map->segs);
	} else if (span > n && next < end && post_parts(map, next, end, part, n_and_bits)) {
		end = next;
	}
	for (size_t i = first; i < end && !map_is_frozen(map); i += n) {
		if (recycles && i >= behind)
			drop_behind(map, i - behind, stores);
		/* Segments that can be mapped from the page cache need no frame. */
		if (!(pagecache_may(map) && pagecache_has(map, i, min_size(i + n, map->segs))))
			load_forward(map, i, i + n, i % span == 0, stores);
	}
	map_leave(map);
}

/* Whether the program has stored to the block of n segments that ends before segment `end`. Looks
 * at some of them. */
static bool stores_came(struct mapping *map, size_t end, size_t n)
{
	return map->writable && guess_may_come(map) && end >= n && !fault_has_onstore() &&
	       guess_was_stored(map, end - 1) && guess_was_stored(map, end - n / 2);
}

/* The block of n segments around segment i is accessed in a stream: lets a worker load the next
 * ones. */
static void post_next_block(struct mapping *map, size_t i, size_t n)
{
	size_t next = i - i % n + n;

	if (n << map->shift < MIN_BACKGROUND_BLOCK_BYTES || !readahead_is_wanted(map))
		return;
	if (next < map->segs && !is_absent(map, next))
		next = round_up(next, n * stream_blocks(map, n));
	if (next >= map->segs || !is_absent(map, next))
		return;
	map_use(map);
	if (stores_came(map, i - i % n, n))
		n |= STORES;
	if (!worker_post(load_blocks_job, map, next, n))
		map_leave(map);
}

/* Whether an access to the block of n segments around segment i continues a stream: the blocks
 * before were accessed one after another, or the program says so. At random, two neighbors seldom
 * follow each other, and three hardly ever. */
static bool continues_stream(struct mapping *map, size_t i, size_t n)
{
	struct stream *streams = map->residency.streams, *r = streams;
	size_t span = n * stream_blocks(map, n);
	bool found = false;

	if (!futex_trylock(&map->residency.stream_lock))
		return false;
	for (unsigned k = 0; k < MAX_STREAMS && !found; k++) {
		found = streams[k].used && i >= streams[k].until && i - streams[k].until < span;
		if (found || streams[k].used < r->used)
			r = &streams[k];
	}
	*r = (struct stream){ .until = i - i % n + n, .seen = found ? r->seen + 1 : 1,
			      .used = ++map->residency.stream_clock };
	found = r->seen >= MIN_STREAM_BLOCKS || map->residency.advice == UMMAP_ADV_SEQUENTIAL;
	futex_unlock(&map->residency.stream_lock);
	return found;
}

/* ---- Loading a list ---- */

/* Returns how many of n sorted segments are adjacent to the first one, in its area. */
static size_t count_adjacent(const struct mapping *map, const size_t *list, size_t n)
{
	size_t area = (size_t)1 << (TRANSFER_AREA_SHIFT - map->shift), k = 1;

	while (k < n && list[k] == list[0] + k && list[k] % area)
		k++;
	return k;
}

size_t neighbors_load_listed(struct mapping *map, const size_t *list, size_t n)
{
	size_t adjacent = count_adjacent(map, list, n);

	if (is_remote(map) || adjacent << map->shift < MIN_LISTED_RUN_BYTES)
		return 0;
	return load_forward(map, list[0], list[0] + adjacent, false, false) - list[0];
}

/* ---- Faults ---- */

/* Loads the run of a fault. */
static int load_run(const struct run *run, bool sampled)
{
	size_t n = (size_t)1 << run->map->residency.transfer.resolution;
	size_t begin = run->at - run->at % n;

	if (!sampled)
		return fill_run(run, run->first, run->end);
	return fill_run(run, max_size(begin, run->first), min_size(begin + n, run->end));
}

/* Loads the run of a fault in a remote store, and measures the time. */
static int load_timed(const struct run *run, bool sampled)
{
	uint64_t begin = sys_now_ns();
	int err = load_run(run, sampled);

	if (!err)
		transfer_note_time(&run->map->residency.transfer, run->end - run->first,
				   sys_now_ns() - begin);
	return err;
}

bool neighbors_load(struct mapping *map, size_t i, struct seg *s, uint32_t frame, bool write)
{
	struct run run = { map, i, i, i + 1, false, take_absent };
	bool sampled = is_sampled(map, i);
	size_t n = block_size(map);
	int err;

	if (sampled)
		report_access(map, i);
	if (seg_has(s, SEG_PAGECACHE))
		return false;
	recycle_note_load(map, s);
	s->frame = frame;
	extend_run(&run, n);
	transfer_count_load(&map->residency.transfer, run.end - run.first);
	if (run.end - run.first == 1)
		return false;
	if (continues_stream(map, i, n))
		post_next_block(map, i, n);
	err = is_remote(map) ? load_timed(&run, sampled) : load_run(&run, sampled);
	if (err)
		return_frames(&run);
	else if (!write)
		add(map->stat.read_faults, 1);
	unlock_run(&run);
	return !err;
}

/* ---- Returning ---- */

static bool take_ahead(struct run *run, size_t i, struct seg *s)
{
	struct mapping *map = run->map;
	uint64_t before = seg_head(s);

	if (!seg_has(s, SEG_VALID | SEG_INACTIVE | SEG_AHEAD) || map_len(map, i) < map->seg_size)
		return false;
	cache_remove(&map->member, s);
	seg_change(s, SEG_INACTIVE | SEG_AHEAD | SEG_EXPOSED, 0);
	cache_insert(&map->member, s, UMMAP_EV_AHEAD);
	if (map->engine->map(map->engine, map_slot(map, i), frame_addr(s->frame), map->seg_size,
			     true, false) < 0) {
		cache_remove(&map->member, s);
		map_await(map, s);
		atomic_store_explicit(&s->head, before, memory_order_relaxed);
		cache_deactivate(&map->member, s, INACTIVE_AHEAD);
		return false;
	}
	frame_note_mapped(s->frame, 1, false, true);
	return true;
}

void neighbors_return(struct mapping *map, size_t i)
{
	const struct transfer_size *t = &map->residency.transfer;
	struct run run = { map, i, i, i + 1, false, take_ahead };
	bool sampled = is_sampled(map, i);
	size_t n = block_size(map);

	if (sampled) {
		report_access(map, i);
		transfer_count_return(&map->residency.transfer);
	}
	discard_batch_begin(budget_batch_bytes(map->member.least));
	extend_run(&run, sampled ? (size_t)1 << t->resolution : n);
	discard_batch_end();
	/* Only of a block that a worker has loaded, the first segment alone is inactive. */
	if (i % n == 0 && (sampled || run.end - run.first == 1) && continues_stream(map, i, n))
		post_next_block(map, i, n);
	unlock_run(&run);
}
