/* SPDX-License-Identifier: BSD-3-Clause */
/* Clusters: adjacent segments that move as one huge page. Engine segv. */
#include "base/worker.h"
#include "common.h"
#include "engine/engine.h"
#include "huge.h"
#include "paging/mapping/lookup.h"

#include <criterion/criterion.h>
#include <sys/resource.h>

#define SEG (256 * KIB)
#define SEGS_PER_CLUSTER (2 * MIB / SEG)
#define SIZE (128 * MIB)
#define BUDGET (64 * MIB)

static uint8_t *map_in(size_t seg, int fd, int prot)
{
	set_env("UMMAP_ENGINE", "segv");
	set_env("UMMAP_CACHED", "copy");
	set_budget(BUDGET);
	return map_file(fd, SIZE, seg, prot, 0);
}

static uint8_t *map_some(int fd, int prot)
{
	return map_in(SEG, fd, prot);
}

static void read_part(const uint8_t *m, size_t from, size_t to)
{
	for (size_t at = from; at < to; at += 32 * KIB)
		cr_assert_eq(m[at], pattern(at, 3), "byte %zu", at);
}

static void read_all(const uint8_t *m)
{
	read_part(m, 0, SIZE);
}

/* Waits until the workers have read all that they were asked to read ahead. */
static void await_readahead(const uint8_t *m)
{
	struct mapping *map = map_find(m);

	while (map_account(map)->coming || map_account(map)->supplying)
		usleep(100);
	map_leave(map);
}

/* Reads as if the workers were always fast enough. */
static void read_behind_workers(const uint8_t *m)
{
	for (size_t off = 0; off < SIZE; off += SEG) {
		await_readahead(m);
		read_part(m, off, off + SEG);
	}
}

extern const struct engine engine_segv;

#define PASSES 3
/* Maximum number of scans until huge pages appear. */
#define MAX_PASSES 40

static bool is_mostly_huge(const uint8_t *m)
{
	return !has_huge_pages() || huge_bytes(m, SIZE) >= stat_of(m).resident_bytes / 2;
}

/* Most resident segments of a scan are in huge pages. Some are not if the workers got no processor
 * during the scan, or if earlier faults have mixed up the frames: then later scans must have
 * them. */
static void expect_huge(const uint8_t *m)
{
	for (int pass = 0; pass < MAX_PASSES && !is_mostly_huge(m); pass++)
		read_behind_workers(m);
	/* Up to half of the budget may be readahead, and some segments are inactive. */
	cr_expect_geq(stat_of(m).resident_bytes, BUDGET / 4);
	cr_expect(is_mostly_huge(m), "%zu of %lu", huge_bytes(m, SIZE),
		  (unsigned long)stat_of(m).resident_bytes);
}

static long minor_faults(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_minflt;
}

static void scan(size_t seg)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_in(seg, fd, PROT_READ);
	long before;

	read_all(m);
	before = minor_faults();
	for (int pass = 0; pass < PASSES; pass++)
		read_all(m);
	/* Huge pages that had to be repaired. */
	cr_expect_lt(minor_faults() - before, PASSES * SIZE / (2 * MIB) / 3, "%ld",
		     minor_faults() - before);
	expect_huge(m);
	cr_assert_eq(umunmap(m, 0), 0);
}

Test(pieces, of_a_scan)
{
	scan(SEG);
}

Test(pieces, of_a_scan_in_small_segments)
{
	scan(64 * KIB);
}

Test(pieces, of_a_scan_in_large_segments)
{
	scan(MIB);
}

/* Segments with stores are loaded and evicted separately, which splits huge pages. */
Test(pieces, after_stores)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, READ_WRITE);
	uint64_t seed = 5;

	for (int k = 0; k < 1000; k++) {
		size_t off = next_random(&seed) % SIZE;

		m[off] = pattern(off, 3);
	}
	cr_assert_eq(umunmap(m, 0), 0);
	m = map_some(fd, PROT_READ);
	read_all(m);
	expect_huge(m);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* Random faults mix up the frames of huge pages. Scans sort them. */
Test(pieces, after_jumps)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);
	uint64_t seed = 5;

	read_all(m);
	for (int pass = 0; pass < PASSES; pass++) {
		for (int k = 0; k < 300; k++) {
			size_t off = next_random(&seed) % SIZE;

			cr_assert_eq(m[off], pattern(off, 3));
		}
		read_all(m);
		expect_huge(m);
	}
	cr_assert_eq(umunmap(m, 0), 0);
}

/* One frame of a huge page is in use. The other frames stay free. */
Test(pieces, beside_one)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *other = map_some(fd, PROT_READ), *m = map_some(fd, PROT_READ);

	cr_assert_eq(other[0], pattern(0, 3));
	read_all(m);
	expect_huge(m);
	cr_assert_eq(umunmap(m, 0), 0);
	cr_assert_eq(umunmap(other, 0), 0);
}

/* With random accesses, a cluster is evicted as a whole, and its segments are not mixed up. */
Test(pieces, among_others)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, READ_WRITE);
	uint64_t seed = 7;

	for (int pass = 0; pass < 2; pass++) {
		for (int k = 0; k < 600; k++) {
			size_t off = next_random(&seed) % SIZE;

			cr_assert_eq(m[off], pattern(off, 3), "byte %zu", off);
			if (k % 3 == 0)
				m[off] = pattern(off, 3);
		}
		read_all(m);
	}
	cr_assert_eq(umunmap(m, 0), 0);
	check_file(fd, 0, SIZE, 0, 3);
}

static _Atomic bool workers_wait;

static void wait_job(void *arg, uint64_t a, uint64_t b)
{
	(void)arg;
	(void)a;
	(void)b;
	while (workers_wait)
		usleep(1000);
}

/* A load that overtakes readahead loads a cluster, not a part of it. The workers read nothing:
 * all segments that were read ahead came with loads. */
Test(pieces, without_workers)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);
	uint64_t ahead;

	workers_wait = true;
	while (worker_post(wait_job, NULL, 0, 0))
		;
	read_all(m);
	ahead = stat_of(m).readahead_loads;
	workers_wait = false;
	cr_expect_geq(ahead, SIZE / SEG / 2, "%lu", (unsigned long)ahead);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* The same with workers. */
Test(pieces, overtaken)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);
	uint64_t before, alone = SIZE / SEG;

	/* If readahead got no processor, the next scan shows the effect. */
	for (int pass = 0; pass < MAX_PASSES / 8 && alone > 8 * SEGS_PER_CLUSTER; pass++) {
		before = stat_of(m).readahead_loads;
		read_all(m);
		alone = SIZE / SEG - (stat_of(m).readahead_loads - before);
	}
	cr_expect_leq(alone, 8 * SEGS_PER_CLUSTER, "%lu", (unsigned long)alone);
	cr_assert_eq(umunmap(m, 0), 0);
}

static bool is_resident(const uint8_t *m, size_t off)
{
	struct mapping *map = map_find(m);
	bool is = seg_has(map_seg(map, off / SEG), SEG_VALID);

	map_leave(map);
	return is;
}

/* Returns the peak of memory during a scan. *kept: how many segments are still resident when the
 * next cluster is read. */
static size_t scan_once(const uint8_t *m, size_t *kept)
{
	size_t most = 0;

	*kept = 0;
	for (size_t off = 0; off < SIZE; off += SEG) {
		cr_assert_eq(m[off], pattern(off, 3));
		most = stat_of(m).resident_bytes > most ? stat_of(m).resident_bytes : most;
		*kept += off >= 2 * MIB && is_resident(m, off - 2 * MIB);
	}
	return most;
}

/* A detected scan keeps its current cluster, some before it, and the next ones. Segments that are
 * in use when they should be dropped are dropped by the next scan. */
Test(pieces, left_behind)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);
	bool huge = !has_huge_pages();
	size_t least = SIZE, kept;

	cr_assert_eq(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL), 0);
	for (int pass = 0; pass < MAX_PASSES && (!huge || least > BUDGET / 2); pass++) {
		size_t most = scan_once(m, &kept);

		least = most < least ? most : least;
		huge |= huge_bytes(m, SIZE) >= SEGS_PER_CLUSTER * SEG;
	}
	cr_expect(huge);
	cr_expect_leq(least, BUDGET / 2, "%zu", least);
	cr_expect_geq(kept, SIZE / SEG / 2, "%zu", kept);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* The last segments of a file are not a complete cluster. */
Test(pieces, short_end)
{
	const size_t size = 40 * MIB + 3 * SEG + 100;
	int fd = filled_file(size, 3);
	uint8_t *m;

	set_env("UMMAP_ENGINE", "segv");
	set_budget(BUDGET);
	m = map_file(fd, size, SEG, READ_WRITE, 0);
	for (int pass = 0; pass < 2; pass++) {
		check_bytes(m, size, 0, 3);
		cr_assert_eq(umsync(m, 1), 0);
	}
	cr_assert_eq(umunmap(m, 0), 0);
	check_file(fd, 0, size, 0, 3);
}

/* The budget of a group holds for clusters, too. */
Test(pieces, in_a_group)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[330];
	int fd = temp_named("scan", 0, path);
	void *m = NULL;

	file_fill(fd, 0, SIZE, 0, 3);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	set_env("UMMAP_ENGINE", "segv");
	set_budget(4 * BUDGET);
	attr.seg_size = SEG;
	attr.group = "scan";
	attr.budget = BUDGET / 2;
	check(ummap_open(uri, SIZE, 0, PROT_READ, &attr, &m) == 0, "%s", umerrormsg());
	for (int pass = 0; pass < 2; pass++) {
		read_all(m);
		cr_expect_leq(stat_of(m).resident_bytes + stat_of(m).inactive_bytes, BUDGET / 2);
	}
	cr_assert_eq(umunmap(m, 0), 0);
}

/* A range that is moved in one call must be one VMA: Linux 6.17 and later move several VMAs one by
 * one, and stop in between if they run out of VMAs. */
Test(pieces, several_mappings_are_told_from_one)
{
	size_t page = 4 * KIB, len = 8 * page;
	char *p = mmap(NULL, len, READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	memset(p, 1, len);
	cr_expect(engine_segv.is_one(p, len));
	cr_expect(engine_segv.is_one(p + page, len / 2));
	cr_assert_eq(mprotect(p + len / 2, page, PROT_READ), 0);
	cr_expect(!engine_segv.is_one(p, len));
	cr_expect(!engine_segv.is_one(p + len / 2, 2 * page));
	cr_expect(engine_segv.is_one(p, len / 2));
	cr_expect(engine_segv.is_one(p + len / 2, page));
	/* The check has not changed the memory. */
	for (size_t at = 0; at < len; at++)
		cr_assert_eq(p[at], 1, "byte %zu", at);
	cr_assert_eq(munmap(p, page), 0);
	cr_expect(!engine_segv.is_one(p, len / 2));
}
