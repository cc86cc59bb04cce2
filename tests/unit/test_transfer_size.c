/* SPDX-License-Identifier: BSD-3-Clause */
/* test_transfer_size.c - the transfer size that follows from accesses. */
#include <criterion/criterion.h>

#include "common.h"
#include "paging/residency/transfer_size.h"

#define SHIFT 12
#define AREA (1u << (TRANSFER_AREA_SHIFT - SHIFT))
#define SEGMENTS (64 * AREA)
#define MEMORY (SEGMENTS / 8)

/* A mapping whose memory is a ring: each segment stays until MEMORY others have come. */
struct play {
	struct transfer_size t;
	uint64_t arrival[SEGMENTS]; /* time of the last load; 0: never loaded */
	bool ahead[SEGMENTS];       /* whether the segment was loaded and is not resident */
	uint64_t clock, loads, returns, random;
};

static struct play *begin(void)
{
	struct play *p = calloc(1, sizeof(*p));

	transfer_begin(&p->t, calloc(1, transfer_stamps_len(SEGMENTS, SHIFT)), SEGMENTS, SHIFT,
		       MEMORY);
	p->random = 1;
	return p;
}

static void end(struct play *p)
{
	free(p->t.stamps);
	free(p);
}

static bool is_loaded(const struct play *p, size_t i)
{
	return p->arrival[i] && p->clock - p->arrival[i] < MEMORY;
}

static void load(struct play *p, size_t i, bool sampled)
{
	size_t first = i >> p->t.level << p->t.level, n = 0;

	for (size_t k = first; k < first + ((size_t)1 << p->t.level); k++) {
		if (is_loaded(p, k))
			continue;
		p->arrival[k] = ++p->clock;
		p->ahead[k] = sampled && k >> p->t.resolution != i >> p->t.resolution;
		n++;
	}
	transfer_count_load(&p->t, n);
	p->loads++;
}

static void use(struct play *p, size_t i)
{
	bool sampled = transfer_is_sampled(&p->t, i);
	size_t first;

	if (is_loaded(p, i) && !p->ahead[i])
		return;
	if (sampled)
		transfer_touch(&p->t, i);
	if (!is_loaded(p, i)) {
		load(p, i, sampled);
		return;
	}
	first = i >> p->t.resolution << p->t.resolution;
	for (size_t k = first; k < first + ((size_t)1 << p->t.resolution); k++)
		p->ahead[k] = false;
	transfer_count_return(&p->t);
	p->returns++;
}

static void store(struct play *p, size_t i)
{
	use(p, i);
	if (transfer_is_sampled(&p->t, i))
		transfer_store(&p->t, i);
}

/* Uses aligned blocks of n segments at random. */
static void use_blocks(struct play *p, size_t n, size_t blocks)
{
	for (size_t b = 0; b < blocks; b++) {
		size_t first = next_random(&p->random) % (SEGMENTS / n) * n;

		for (size_t i = first; i < first + n; i++)
			use(p, i);
	}
}

Test(transfer_size, blocks)
{
	for (unsigned level = 2; level <= 6; level += 2) {
		struct play *p = begin();

		use_blocks(p, (size_t)1 << level, 2 * SEGMENTS >> level);
		check(p->t.level == level, "blocks of level %u: %u", level, p->t.level);
		end(p);
	}
}

/* A block of two segments costs hardly more than a single one, but takes memory from others. */
Test(transfer_size, mostly_single)
{
	struct play *p = begin();
	unsigned larger = 0;

	use_blocks(p, 1, SEGMENTS);
	for (unsigned n = 0; n < 1000; n++) {
		use_blocks(p, 1, 64);
		larger += p->t.level > 0;
	}
	check(larger < 250, "more than one segment in %u of 1000 looks", larger);
	end(p);
}

Test(transfer_size, single)
{
	struct play *p = begin();

	use_blocks(p, 1, SEGMENTS);
	check(p->t.level <= 1, "single segments: %u", p->t.level);
	end(p);
}

/* Uses four segments of areas at random, on storage whose requests take this time. */
static unsigned use_sparsely(uint64_t request_ns)
{
	struct play *p = begin();
	unsigned level;

	for (size_t i = 0; i < 40 * SEGMENTS / AREA; i++) {
		size_t first = next_random(&p->random) % (SEGMENTS / AREA) * AREA;

		for (unsigned k = 0; k < 4; k++)
			use(p, first + next_random(&p->random) % AREA);
		if (request_ns)
			transfer_note_time(&p->t, 1, request_ns);
	}
	level = p->t.level;
	end(p);
	return level;
}

/* Blocks are larger if requests take long. */
Test(transfer_size, remote)
{
	unsigned near = use_sparsely(0), far = use_sparsely(20000000);

	check(near <= 3, "near: level %u", near);
	check(far >= 8, "far: level %u", far);
}

static void touch_area(struct transfer_size *t, size_t area)
{
	for (size_t i = area * AREA; i < (area + 1) * AREA; i++)
		transfer_touch(t, i);
}

/* Changes the memory. The touches let the module decide anew which areas it samples. */
static void change_memory(struct transfer_size *t, size_t memory, size_t touched)
{
	transfer_set_memory(t, memory);
	touch_area(t, touched);
}

/* Returns the first area from `area` on that is sampled, or is not. */
static size_t find_area(const struct transfer_size *t, bool sampled, size_t area)
{
	while (transfer_is_sampled(t, area * AREA) != sampled)
		area++;
	return area;
}

/* While only a part of the areas is sampled, the simulation does not see what becomes of the
 * others: when they are sampled again, they count as absent. */
Test(transfer_size, sample)
{
	struct play *p = begin();
	struct transfer_size *t = &p->t;
	size_t always = find_area(t, true, 0), other;
	uint32_t before;

	change_memory(t, 4 * MEMORY, always);
	always = find_area(t, true, always + 1);
	other = find_area(t, false, always + 1);
	change_memory(t, MEMORY / 4, always);
	check(transfer_is_sampled(t, other * AREA));
	touch_area(t, other);
	before = t->loads[0];
	touch_area(t, other);
	check(t->loads[0] == before, "%u loads of an area in memory", t->loads[0] - before);
	change_memory(t, 4 * MEMORY, always);
	check(!transfer_is_sampled(t, other * AREA));
	change_memory(t, MEMORY, always);
	before = t->loads[0];
	touch_area(t, other);
	check(t->loads[0] - before == AREA, "%u loads", t->loads[0] - before);
	end(p);
}

/* The level follows a change of the accesses, in both directions. */
Test(transfer_size, change)
{
	struct play *p = begin();

	for (unsigned k = 0; k < 4; k++) {
		use_blocks(p, k % 2 ? 1 : 64, k % 2 ? SEGMENTS : 2 * SEGMENTS / 64);
		check(k % 2 ? p->t.level <= 1 : p->t.level == 6, "phase %u: %u", k, p->t.level);
	}
	end(p);
}

Test(transfer_size, in_order)
{
	struct play *p = begin();

	for (size_t i = 0; i < SEGMENTS; i++)
		use(p, i);
	check(p->t.level >= TRANSFER_LEVELS - 2, "%u", p->t.level);
	check(p->loads < 2 * SEGMENTS / AREA, "%" PRIu64 " loads", p->loads);
	end(p);
}

/* Parts of all rows of an array, which memory holds, again and again: only the used segments are
 * loaded in the end. */
Test(transfer_size, columns)
{
	struct play *p = begin();
	uint64_t before = 0;

	for (unsigned pass = 0; pass < 1000; pass++) {
		before = pass == 900 ? p->clock : before;
		for (size_t i = pass / 100 % 10; i < SEGMENTS; i += 10)
			use(p, i);
	}
	check(p->clock - before < 2 * SEGMENTS / 10, "%" PRIu64 " segments", p->clock - before);
	end(p);
}

/* Uses each twelfth segment, which memory holds, and after two passes the next ones. */
static unsigned use_columns(bool stores)
{
	struct play *p = begin();
	unsigned level;

	for (unsigned pass = 0; pass < 300; pass++) {
		for (size_t i = pass / 2 % 12; i < SEGMENTS; i += 12)
			(stores ? store : use)(p, i);
	}
	level = p->t.level;
	end(p);
	return level;
}

/* Whole blocks are read in the time of single segments, but what the program has stored is written
 * each time that its block leaves memory. */
Test(transfer_size, stores)
{
	unsigned reads = use_columns(false), stores = use_columns(true);

	check(reads >= 8, "reads: level %u", reads);
	check(stores <= 1, "stores: level %u", stores);
}

/* Each segment of a block that is stored in order costs no write of its own. */
Test(transfer_size, stores_in_order)
{
	struct play *p = begin();

	for (size_t i = 0; i < SEGMENTS; i++)
		store(p, i);
	check(p->t.level >= TRANSFER_LEVELS - 2, "%u", p->t.level);
	end(p);
}

/* A load leaves most of memory as it is, and a mapping of few segments is all sampled. */
Test(transfer_size, small)
{
	struct transfer_size t;
	uint32_t *stamps = calloc(1, transfer_stamps_len(SEGMENTS, SHIFT));

	transfer_begin(&t, stamps, 100, SHIFT, 16);
	check(1u << t.level <= 2, "%u", t.level);
	for (size_t i = 0; i < 100; i++)
		check(transfer_is_sampled(&t, i), "segment %zu", i);
	check(!transfer_is_sampled(&t, 100), "a segment that the mapping got later");
	for (size_t k = 0; k < 100000; k++)
		transfer_touch(&t, k % 100);
	check(1u << t.level <= 2, "%u", t.level);
	free(stamps);
}
