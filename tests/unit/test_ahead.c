/* SPDX-License-Identifier: BSD-3-Clause */
/* Readahead: which sequences of faults it detects, and that it ignores other accesses. */
#include "common.h"
#include "paging/residency/readahead.h"
#include "paging/mapping/lookup.h"

#include <criterion/criterion.h>
#include <pthread.h>

#define SEG ((size_t)64 * KIB)
#define SEGS ((size_t)1024)

/* Returns a file in memory, so that the speed of a disk does not matter. */
static int memory_file(void)
{
	int fd = memfd_create("ahead", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, SEGS * SEG), 0);
	return fd;
}

static uint8_t *map_within(size_t budget, int advice)
{
	int fd = memory_file();
	uint8_t block[KIB];
	uint8_t *m;

	for (size_t i = 0; i < SEGS; i++) {
		memset(block, (int)(i % 251), sizeof(block));
		cr_assert_eq(pwrite(fd, block, sizeof(block), (off_t)(i * SEG)),
			     (ssize_t)sizeof(block));
	}
	set_budget(budget);
	m = map_file(fd, SEGS * SEG, SEG, PROT_READ, 0);
	close(fd);
	cr_assert_eq(umadvise(m, SEGS * SEG, advice), 0);
	return m;
}

static uint8_t *map_cold(int advice)
{
	return map_within(32 * MIB, advice);
}

static void load(const uint8_t *m, size_t i)
{
	cr_assert_eq(((const volatile uint8_t *)m)[i * SEG + 100], i % 251, "segment %zu", i);
}

/* Returns how many of n loads, from the segment `first` on, were readahead hits. */
static uint64_t hits(uint8_t *m, size_t first, long stride, size_t n)
{
	uint64_t before = stat_of(m).readahead_hits;

	for (size_t k = 0; k < n; k++)
		load(m, (size_t)((long)first + (long)k * stride));
	return stat_of(m).readahead_hits - before;
}

/* If the workers get no processor, the reader is faster than readahead. So the best of several
 * attempts counts. */
#define MAX_ATTEMPTS 6
static void expect_hits(uint64_t (*attempt)(const void *), const void *arg, uint64_t enough)
{
	uint64_t best = 0;

	for (int i = 0; i < MAX_ATTEMPTS && best < enough; i++) {
		uint64_t found = attempt(arg);

		best = found > best ? found : best;
	}
	cr_expect_geq(best, enough, "%lu instead of %lu", (unsigned long)best,
		      (unsigned long)enough);
}

struct run {
	size_t first;
	long stride;
	size_t n;
};

/* A load that meets its segment in flight counts as a hit, too, because it waits for it. */
static uint64_t run_through(const void *arg)
{
	const struct run *r = arg;
	uint8_t *m = map_cold(UMMAP_ADV_NORMAL);
	uint64_t found = hits(m, r->first, r->stride, r->n);

	cr_expect_leq(stat_of(m).readahead_loads, r->n + 64, "stride %ld: nothing between",
		      r->stride);
	cr_assert_eq(umunmap(m, 0), 0);
	return found;
}

Test(ahead, runs)
{
	static const struct run runs[] = {
		{ 0, 1, 1000 }, { SEGS - 1, -1, 1000 }, { 0, 4, 250 }, { SEGS - 1, -4, 250 },
		{ 3, 7, 143 }, { SEGS - 10, -9, 111 }, { 0, 100, 10 },
	};

	for (size_t k = 0; k < sizeof(runs) / sizeof(*runs); k++)
		expect_hits(run_through, &runs[k], runs[k].n * 3 / 4 - 2);
}

static uint64_t run_several(const void *unused)
{
	uint8_t *m = map_cold(UMMAP_ADV_NORMAL);
	uint64_t found;

	(void)unused;
	for (size_t k = 0; k < 100; k++) {
		load(m, k);
		load(m, 500 - 2 * k);
		load(m, 520 + 4 * k);
	}
	found = stat_of(m).readahead_hits;
	cr_assert_eq(umunmap(m, 0), 0);
	return found;
}

Test(ahead, several_at_a_time)
{
	expect_hits(run_several, NULL, 200);
}

/* Returns the number of loads after no further one has happened for half a second. */
static uint64_t settled_loads(const uint8_t *m)
{
	uint64_t before, loads = stat_of(m).readahead_loads;

	do {
		before = loads;
		pause_ms(500);
		loads = stat_of(m).readahead_loads;
	} while (loads != before);
	return loads;
}

static uint64_t run_and_jump(const void *unused)
{
	uint8_t *m = map_cold(UMMAP_ADV_NORMAL);
	uint64_t loads;

	(void)unused;
	hits(m, 0, 1, 200);
	loads = settled_loads(m);
	/* All of these distances differ. */
	for (size_t k = 0, i = 990; k < 30; k++, i -= 3 + k)
		load(m, i);
	cr_expect_eq(settled_loads(m), loads);
	cr_assert_eq(umunmap(m, 0), 0);
	return loads;
}

Test(ahead, closes_at_a_jump)
{
	expect_hits(run_and_jump, NULL, 100);
}

Test(ahead, random_and_off)
{
	uint8_t *m = map_cold(UMMAP_ADV_RANDOM);

	cr_expect_eq(hits(m, 0, 1, 500), 0);
	cr_expect_eq(stat_of(m).readahead_loads, 0);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* One scan takes a few frames of any amount of memory, and its segments are read again later. */
Test(ahead, lets_go_of_what_lies_behind)
{
	uint8_t *m;
	struct umstat st;

	setenv("UMMAP_READAHEAD", "0", 1);
	m = map_cold(UMMAP_ADV_SEQUENTIAL);
	for (size_t k = 0; k < 100; k++)
		load(m, k);
	/* Two, and two that later faults drop. There are more while threads that have served faults
	 * get no processor: the faults after that drop the segments. */
	for (size_t k = 100; (st = stat_of(m)).resident_bytes > 4 * SEG && k < 200; k++) {
		pause_ms(10);
		load(m, k);
	}
	cr_expect_leq(st.resident_bytes, 4 * SEG, "%lu", (unsigned long)st.resident_bytes);
	cr_expect_eq(st.inactive_bytes, 0, "%lu", (unsigned long)st.inactive_bytes);
	cr_expect_leq(stat_of(NULL).held_bytes, 2 * MIB);
	for (size_t k = 0; k < 100; k++)
		load(m, k);
	cr_expect_geq(stat_of(m).read_bytes, st.read_bytes + 96 * SEG);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* A thread that reads some rows of a matrix. */
static void *read_rows(void *at)
{
	volatile uint8_t *row = at;

	for (size_t i = 0; i < SEGS / 4; i++)
		(void)row[i * SEG];
	return NULL;
}

static uint64_t run_threads(const void *unused)
{
	uint8_t *m = map_cold(UMMAP_ADV_NORMAL);
	pthread_t thread[4];
	uint64_t found;

	(void)unused;
	for (size_t t = 0; t < 4; t++)
		cr_assert_eq(pthread_create(&thread[t], NULL, read_rows, m + t * SEGS / 4 * SEG),
			     0);
	for (size_t t = 0; t < 4; t++)
		pthread_join(thread[t], NULL);
	found = stat_of(m).readahead_hits;
	cr_assert_eq(umunmap(m, 0), 0);
	return found;
}

Test(ahead, a_run_for_each_thread)
{
	expect_hits(run_threads, NULL, SEGS / 2);
}

static uint64_t run_storing(const void *unused)
{
	int fd = memory_file();
	uint64_t found;
	uint8_t *m;

	(void)unused;
	set_budget(32 * MIB);
	m = map_file(fd, SEGS * SEG, SEG, READ_WRITE, 0);
	close(fd);
	for (size_t i = 0; i < SEGS; i++)
		m[i * SEG + 5] += 1;
	found = stat_of(m).readahead_hits;
	cr_assert_eq(umunmap(m, 1), 0);
	return found;
}

/* The first store to a segment that was loaded before is a second fault at the same place. */
Test(ahead, stores_after_loads)
{
	expect_hits(run_storing, NULL, SEGS / 2);
}

/* Checks that a load maps its segment and others that readahead has loaded; with userfaultfd,
 * segments are mapped one by one. */
static uint64_t run_watched(const void *unused)
{
	bool alone = !engine_is("segv");
	uint8_t *m = map_cold(UMMAP_ADV_NORMAL);
	uint64_t most = 0;

	(void)unused;
	for (size_t i = 0; i < 400; i++) {
		uint64_t before = stat_of(m).resident_bytes, after;

		load(m, i);
		after = stat_of(m).resident_bytes;
		cr_expect(!alone || after <= (i + 1) * SEG, "%zu after %zu loads", (size_t)after,
			  i + 1);
		if (after > before + most)
			most = after - before;
	}
	cr_assert_eq(umunmap(m, 0), 0);
	return alone ? 2 : most / SEG;
}

/* A load maps all segments that were read together, if no page has to be copied for that. */
Test(ahead, brings_in_several)
{
	expect_hits(run_watched, NULL, 2);
}

static void *load_any(void *m)
{
	uint64_t seed = 7;

	for (size_t k = 0; k < 4 * SEGS; k++)
		load(m, next_random(&seed) % SEGS);
	return NULL;
}

/* Frames of a batch that other threads have taken are not used for the rest of the batch. */
Test(ahead, contents_among_others)
{
	uint8_t *m = map_cold(UMMAP_ADV_NORMAL);
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, load_any, m), 0);
	for (size_t pass = 0; pass < 4; pass++) {
		for (size_t i = 0; i < SEGS; i++)
			load(m, i);
	}
	pthread_join(thread, NULL);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* A stencil, as compilers distribute it among threads: blocks of some segments alternate, from one
 * file to another, with an eighth of the memory of both. */
#define STENCIL_SIZE (16 * MIB)
#define STENCIL_THREADS 4
#define BLOCK (4 * SEG)
#define LINE ((size_t)4 * KIB)

struct stencil {
	uint8_t *from, *to;
	size_t first;            /* first block of the thread */
};

static void smooth(uint8_t *to, const uint8_t *from)
{
	for (size_t at = 0; at < LINE; at += 64)
		to[at] = (uint8_t)(from[at - LINE] + from[at] + from[at + LINE]);
}

static void *smooth_blocks(void *arg)
{
	const struct stencil *s = arg;

	for (size_t first = s->first; first < STENCIL_SIZE; first += STENCIL_THREADS * BLOCK) {
		for (size_t at = first ? first : LINE;
		     at < first + BLOCK && at + LINE < STENCIL_SIZE; at += LINE)
			smooth(s->to + at, s->from + at);
	}
	return NULL;
}

static void smooth_all(uint8_t *to, uint8_t *from)
{
	struct stencil part[STENCIL_THREADS];
	pthread_t thread[STENCIL_THREADS];

	for (size_t t = 0; t < STENCIL_THREADS; t++) {
		part[t] = (struct stencil){ from, to, t * BLOCK };
		cr_assert_eq(pthread_create(&thread[t], NULL, smooth_blocks, &part[t]), 0);
	}
	for (size_t t = 0; t < STENCIL_THREADS; t++)
		pthread_join(thread[t], NULL);
}

static uint8_t *map_to_store(void)
{
	int fd = memory_file();
	uint8_t *m = map_file(fd, STENCIL_SIZE, SEG, READ_WRITE, 0);

	close(fd);
	return m;
}

/* Readahead for all runs of both mappings leaves room for the segments in use: nearly nothing is
 * read or written twice. */
Test(ahead, leaves_room_for_threads)
{
	uint8_t *a, *b;
	struct umstat st;

	set_budget(4 * MIB);
	a = map_to_store();
	b = map_to_store();
	smooth_all(b, a);
	smooth_all(a, b);
	st = stat_of(NULL);
	cr_expect_leq(st.read_bytes, 7 * STENCIL_SIZE, "%lu KiB are read",
		      (unsigned long)(st.read_bytes / KIB));
	cr_expect_leq(st.write_bytes, 3 * STENCIL_SIZE, "%lu KiB are written",
		      (unsigned long)(st.write_bytes / KIB));
	cr_assert_eq(umunmap(a, 0), 0);
	cr_assert_eq(umunmap(b, 0), 0);
}

/* Segments that a run has read ahead and not used are evicted like others, and do not stop
 * readahead of other runs. */
static uint64_t run_after_one_that_stopped(const void *unused)
{
	uint8_t *stopped, *m;
	uint64_t found;

	(void)unused;
	stopped = map_within(4 * MIB, UMMAP_ADV_NORMAL);
	m = map_within(4 * MIB, UMMAP_ADV_NORMAL);
	for (size_t first = 0; first < 800; first += 200)
		hits(stopped, first, 1, 20);
	found = hits(m, 0, 1, SEGS);
	cr_assert_eq(umunmap(m, 0), 0);
	cr_assert_eq(umunmap(stopped, 0), 0);
	return found;
}

Test(ahead, is_not_kept_from_others)
{
	expect_hits(run_after_one_that_stopped, NULL, SEGS / 2);
}

static uint64_t close_and_open(const void *unused)
{
	uint8_t *m = map_cold(UMMAP_ADV_NORMAL);
	struct mapping *map = map_find_now(m);
	uint64_t loads, opened;

	(void)unused;
	for (size_t k = 0; k < SEGS; k++)
		readahead_note_waste(map);
	hits(m, 0, 1, 6);
	loads = settled_loads(m);
	/* Four, and as many after them, because they were used. */
	cr_expect_leq(loads, 8);
	for (size_t k = 0; k < SEGS; k++)
		readahead_note_use(map);
	hits(m, 500, 1, 6);
	opened = settled_loads(m) - loads;
	map_leave(map);
	cr_assert_eq(umunmap(m, 0), 0);
	return opened;
}

/* Unused segments that are evicted close the window. Used segments open it again. */
Test(ahead, backs_off)
{
	expect_hits(close_and_open, NULL, 10);
}
