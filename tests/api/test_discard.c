/* SPDX-License-Identifier: BSD-3-Clause */
/* UMMAP_ADV_DISCARD: discarded segments are not written, not read again, and read as zeros. */
#include <criterion/criterion.h>

#include "common.h"

#define SEG (64 * KIB)
#define BUDGET (16 * SEG)
#define SIZE (4 * BUDGET + 100)
#define OLD 1
#define NEW 2

static uint8_t *map_blank(int fd)
{
	void *m = NULL;

	check(ummap(SIZE, SEG, READ_WRITE, fd, 0, 0, 0, UMMAP_PTYPE_FIFO, &m) == 0);
	return m;
}

Test(discard, neither_writes_nor_reads)
{
	int fd = (set_budget(BUDGET), temp_file(SIZE));
	uint8_t *m = map_blank(fd);
	struct umstat before, after;

	/* Four times the budget: most segments have been written and evicted. */
	fill(m, SIZE, 0, OLD);
	check(stat_of(m).dirty_bytes > 0);
	check(umadvise(m, SIZE, UMMAP_ADV_DISCARD) == 0);
	before = stat_of(m); /* includes writes that were in flight */
	check(before.write_bytes > 0);
	check(before.dirty_bytes == 0 && before.resident_bytes == 0 && before.inactive_bytes == 0);
	check_zeros(m, SIZE);
	check(umsync(m, 0) == 0);
	after = stat_of(m);
	check(after.read_bytes == before.read_bytes, "read %" PRIu64,
	      after.read_bytes - before.read_bytes);
	check(after.write_bytes == before.write_bytes, "wrote %" PRIu64,
	      after.write_bytes - before.write_bytes);
	/* Discarded segments can be used again. */
	fill(m, SIZE, 0, NEW);
	check_bytes(m, SIZE, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, NEW);
	close(fd);
}

Test(discard, keeps_what_lies_partly_in_the_range_or_is_pinned)
{
	int fd = (set_budget(BUDGET), temp_file(SIZE));
	uint8_t *m = map_blank(fd);

	fill(m, SIZE, 0, OLD);
	check(umpin(m + 3 * SEG, 1, PROT_READ) == 0);
	/* The range has parts of segments 1 and 7, and all of 2 to 6, of which 3 is pinned. */
	check_fails(umadvise(m + 2 * SEG - 1, 5 * SEG + 2, UMMAP_ADV_DISCARD), EBUSY);
	check(umadvise(m + 9 * SEG + 1, SEG, UMMAP_ADV_DISCARD) == 0);
	check_bytes(m, 2 * SEG, 0, OLD);
	check_zeros(m + 2 * SEG, SEG);
	check_bytes(m + 3 * SEG, SEG, 3 * SEG, OLD);
	check_zeros(m + 4 * SEG, 3 * SEG);
	check_bytes(m + 7 * SEG, SIZE - 7 * SEG, 7 * SEG, OLD);
	check(umunpin(m + 3 * SEG, 1) == 0);
	/* The last segment ends within a page. */
	check(umadvise(m + SIZE - 100, 100, UMMAP_ADV_DISCARD) == 0);
	check_zeros(m + SIZE - 100, 100);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* A flush that fails has lost no data that are needed: the next sync succeeds. */
Test(discard, is_not_counted_where_a_flush_fails)
{
	char path[320], uri[400];
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *base;

	set_budget(4 * SIZE);
	close(temp_named("flush", SIZE, path));
	snprintf(uri, sizeof(uri), "error+posix:%s?error.op=flush&error.nth=1", path);
	attr.flags = UMMAP_BLANK;
	attr.seg_size = SEG;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &base) == 0);
	fill(base, SIZE, 0, OLD);
	check(umsync_range(base, SIZE, UMMAP_NOFLUSH) == 0);
	check(umadvise(base, SIZE, UMMAP_ADV_DISCARD) == 0);
	check(umsync(base, 0) == -1);
	check(umsync(base, 0) == 0);
	check(stat_of(base).lost_bytes == 0);
	check_zeros(base, SIZE);
	check(umunmap(base, 0) == 0);
}

Test(discard, is_for_blank_mappings)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);

	check_fails(umadvise(m, SIZE, UMMAP_ADV_DISCARD), EINVAL);
	check(strstr(umerrormsg(), "without UMMAP_BLANK"), "%s", umerrormsg());
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 0) == 0);
	close(fd);
}

#define THREADS 4
#define ROUNDS 40

static uint8_t *common_map;

/* Each thread uses every fourth segment: fills it, checks it, and discards it. */
static void *use_and_discard(void *arg)
{
	size_t me = (size_t)(uintptr_t)arg;

	for (unsigned round = 0; round < ROUNDS; round++) {
		for (size_t at = me * SEG; at + SEG <= SIZE; at += THREADS * SEG) {
			check_zeros(common_map + at, SEG);
			fill(common_map + at, SEG, at, round + 1);
		}
		for (size_t at = me * SEG; at + SEG <= SIZE; at += THREADS * SEG) {
			check_bytes(common_map + at, SEG, at, round + 1);
			check(umadvise(common_map + at, SEG, UMMAP_ADV_DISCARD) == 0);
		}
	}
	return NULL;
}

/* Threads discard while other threads fault, evict and sync adjacent segments. */
Test(discard, by_threads)
{
	int fd = (set_budget(BUDGET), temp_file(SIZE));
	pthread_t thread[THREADS];

	common_map = map_blank(fd);
	for (size_t i = 0; i < THREADS; i++)
		check(pthread_create(&thread[i], NULL, use_and_discard, (void *)(uintptr_t)i) == 0);
	for (int i = 0; i < 20; i++)
		check(umsync(common_map, i % 2) == 0);
	for (size_t i = 0; i < THREADS; i++)
		check(pthread_join(thread[i], NULL) == 0);
	check(umunmap(common_map, 0) == 0);
	close(fd);
}
