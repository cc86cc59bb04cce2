/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A whole block is read into a buffer on a huge page, and the page moves to the mapped range by one
 * call, instead of 512 pages that are copied. When the block is evicted, the page moves back to a
 * buffer for the next block, so that the kernel need not fill another one with zeros.
 *
 * Memory that has moved is writable. Therefore, if the program can store to the mapping, a block
 * comes to a huge page only where stores are expected, and all of its segments are dirty before it
 * moves (paging/sync/guess.h). There are no such blocks in mappings that are made while a function
 * of umonstore(3) waits for stores. All segments of a block have frames as usual, which have no
 * memory in the pool. A segment may be evicted alone: then the kernel splits the huge page.
 *
 * A mark for each block tells whether it is on a huge page. The mark is only a hint, because the
 * kernel may split a huge page at any time: moving small pages takes long, but is correct. The
 * caller holds the locks of all segments of a block.
 * Buffers are taken and returned by an exchange of one pointer.
 */
#include "paging/residency/huge_blocks.h"

#include "common/memory_calls.h"
#include "paging/fault/fault.h"
#include "paging/residency/transfer_size.h"

#include <sys/mman.h>
#include <time.h>

/* Buffers that are kept: with memory, and without. The former keep as much memory as the large
 * buffers of base/scratch.c. */
#define KEPT_BUFFERS 4

static char *_Atomic filled[KEPT_BUFFERS], *_Atomic empty_buffers[KEPT_BUFFERS];
/* Blocks that are loaded without a huge page from now on, because the kernel has refused one, or
 * splits them. */
static _Atomic unsigned refusals;
static _Atomic unsigned slow_moves; /* in a row */

static size_t block_segs(const struct mapping *map)
{
	return HUGE_PAGE >> map->shift;
}

/* ---- Buffers ---- */

static char *take(char *_Atomic *slots)
{
	char *buffer = NULL;

	for (unsigned k = 0; k < KEPT_BUFFERS && !buffer; k++)
		buffer = atomic_exchange(&slots[k], NULL);
	return buffer;
}

static bool give(char *_Atomic *slots, char *buffer)
{
	for (unsigned k = 0; k < KEPT_BUFFERS; k++) {
		char *none = NULL;

		if (atomic_compare_exchange_strong(&slots[k], &none, buffer))
			return true;
	}
	return false;
}

/* Maps a buffer without memory, to which memory of the mapped range can move. */
static char *map_buffer(const struct mapping *map)
{
	char *p = sys_reserve(HUGE_PAGE, HUGE_PAGE);

	if (!p)
		return NULL;
	if (raw_madvise(p, HUGE_PAGE, MADV_DONTFORK) == 0 &&
	    raw_madvise(p, HUGE_PAGE, MADV_HUGEPAGE) == 0 &&
	    map->engine->frames->prepare(p, HUGE_PAGE) == 0 &&
	    mprotect(p, HUGE_PAGE, PROT_READ | PROT_WRITE) == 0)
		return p;
	raw_munmap(p, HUGE_PAGE);
	return NULL;
}

static char *take_empty(const struct mapping *map)
{
	char *buffer = take(empty_buffers);

	return buffer ? buffer : map_buffer(map);
}

/* Whether the memory of a buffer is a huge page. The second call collapses small pages, and
 * succeeds if there is nothing to do. */
static bool has_huge_page(char *buffer)
{
	return raw_madvise(buffer, HUGE_PAGE, MADV_POPULATE_WRITE) == 0 &&
	       raw_madvise(buffer, HUGE_PAGE, MADV_COLLAPSE) == 0;
}

static void give_empty(char *buffer)
{
	if (!give(empty_buffers, buffer))
		raw_munmap(buffer, HUGE_PAGE);
}

char *huge_blocks_take_buffer(const struct mapping *map)
{
	char *buffer = take(filled);
	unsigned left = refusals;

	if (buffer)
		return buffer;
	if (left) {
		atomic_compare_exchange_strong(&refusals, &left, left - 1);
		return NULL;
	}
	buffer = take_empty(map);
	if (!buffer || has_huge_page(buffer))
		return buffer;
	refusals = REFUSED_HUGE_BLOCKS;
	raw_munmap(buffer, HUGE_PAGE);
	return NULL;
}

void huge_blocks_give_buffer(char *buffer)
{
	if (!give(filled, buffer))
		raw_munmap(buffer, HUGE_PAGE);
}

void huge_blocks_forget(void)
{
	for (unsigned k = 0; k < KEPT_BUFFERS; k++)
		filled[k] = empty_buffers[k] = NULL;
}

/* ---- Mappings ---- */

/* Without this advice, a fault gives the block a page table for small pages. The kernel still maps
 * no huge page by itself, because it reports faults first. */
bool huge_blocks_advise(const struct mapping *map)
{
	return raw_madvise(map->range, round_up(map->size, sys_page()), MADV_HUGEPAGE) == 0;
}

void huge_blocks_begin(struct mapping *map)
{
	size_t blocks = map->segs / block_segs(map);
	_Atomic bool *marks;

	if (!engine_moves_blocks(map->engine, map->writable) || blocks == 0 ||
	    fault_has_onstore() || (map->writable && (map->writers || map->tiers)))
		return;
	if (!huge_blocks_advise(map))
		return;
	marks = sys_map_anonymous(blocks * sizeof(*marks));
	if (marks)
		raw_madvise((void *)marks, blocks * sizeof(*marks), MADV_DONTFORK);
	map->residency.huge = marks;
	map->residency.huge_count = marks ? blocks : 0;
}

void huge_blocks_end(struct mapping *map)
{
	if (map->residency.huge)
		raw_munmap((void *)map->residency.huge, map->residency.huge_count * sizeof(bool));
	map->residency.huge = NULL;
	map->residency.huge_count = 0;
}

static _Atomic bool *find_mark(const struct mapping *map, size_t i)
{
	size_t block = i / block_segs(map);

	return block < map->residency.huge_count ? &map->residency.huge[block] : NULL;
}

bool huge_blocks_fit(const struct mapping *map, size_t first, size_t end)
{
	return end - first == block_segs(map) && find_mark(map, first) &&
	       first % block_segs(map) == 0 && map_slots_len(map, first, (unsigned)(end - first)) ==
	       HUGE_PAGE && (uintptr_t)map_slot(map, first) % HUGE_PAGE == 0;
}

/* Processor time of the thread: other threads do not change it. */
static uint64_t thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Moves a block by `move`. Returns 0, 1 if the kernel may have split the huge page, or -errno. If
 * it seems to split one after another, copies are faster, at least for some time. */
static int move_block(const struct mapping *map, size_t first, char *buffer,
		      int (*move)(const struct engine *e, char *range, char *buffer, size_t len,
			      bool writable))
{
	uint64_t began = thread_ns();
	int err = move(map->engine, map_slot(map, first), buffer, HUGE_PAGE, map->writable);

	if (err)
		return err;
	if (thread_ns() - began <= MAX_HUGE_MOVE_NS) {
		slow_moves = 0;
		return 0;
	}
	if (++slow_moves >= MAX_SLOW_HUGE_MOVES)
		refusals = REFUSED_HUGE_BLOCKS;
	return 1;
}

int huge_blocks_map(struct mapping *map, size_t first, char *buffer)
{
	int done = move_block(map, first, buffer, map->engine->move_in);

	*find_mark(map, first) = done >= 0;
	if (done < 0)
		return done;
	give_empty(buffer);
	return 0;
}

bool huge_blocks_has(const struct mapping *map, size_t i)
{
	const _Atomic bool *mark = huge_blocks_come(map) ? find_mark(map, i) : NULL;

	return mark && *mark;
}

void huge_blocks_clear_mark(struct mapping *map, const struct seg *s)
{
	_Atomic bool *mark = find_mark(map, map_index(map, s));

	if (mark && *mark)
		*mark = false;
}

/* ---- Eviction ---- */

/* Whether one array has the headers of the block. */
static bool is_in_one_array(const struct mapping *map, size_t first)
{
	const struct extent *e = map_extent(map, first);

	return first + block_segs(map) <= e->first + e->count;
}

size_t huge_blocks_lock(struct mapping *map, struct seg *s, struct account *account,
			const struct mapping *wanted, enum cache_kind kind)
{
	size_t i = map_index(map, s), n = block_segs(map), first = i - i % n;
	const _Atomic bool *mark = find_mark(map, i);

	return mark && *mark && is_in_one_array(map, first) &&
	       cache_take_block(account, &wanted->member, &map->member, map_seg(map, first), n, s,
				kind) ? first : SIZE_MAX;
}

bool huge_blocks_lock_at(struct mapping *map, size_t first)
{
	return find_mark(map, first) && is_in_one_array(map, first) &&
	       cache_take_block(map_account(map), &map->member, &map->member,
				map_seg(map, first), block_segs(map), NULL, CACHE_RESIDENT);
}

int huge_blocks_unmap(struct mapping *map, size_t first)
{
	_Atomic bool *mark = find_mark(map, first);
	char *slot = map_slot(map, first), *buffer = *mark ? take_empty(map) : NULL;
	int done = buffer ? move_block(map, first, buffer, map->engine->move_out) : -ENOMEM;

	*mark = false;
	/* A huge page that was split is made whole again. */
	if (done == 0 || (done == 1 && has_huge_page(buffer)))
		huge_blocks_give_buffer(buffer);
	else if (buffer)
		raw_munmap(buffer, HUGE_PAGE);
	return done < 0 ? map->engine->discard(slot, HUGE_PAGE) : 0;
}
