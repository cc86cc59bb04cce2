/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces: neighbours that move as one huge page, and the pool that has huge pages whole for them. Engine segv. */
#include "common.h"
#include "frame.h"

#include <criterion/criterion.h>

#define SEG (256 * KIB)
#define PIECE (2 * MIB / SEG)
#define SIZE (256 * MIB)
#define BUDGET (64 * MIB)

/* Bytes of [addr, addr + len) that are on huge pages, and mapped so. */
static size_t huge_bytes(const uint8_t *addr, size_t len)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long from, to, kib;
	size_t sum = 0;
	bool inside = false;
	char line[256];

	cr_assert_not_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from >= (uintptr_t)addr && to <= (uintptr_t)addr + len;
		else if (inside && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
			sum += kib * KIB;
	}
	fclose(f);
	return sum;
}

static bool has_huge_pages(void)
{
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char line[64] = "";
	bool has;

	if (!f)
		return false;
	has = fgets(line, sizeof(line), f) && !strstr(line, "[never]");
	fclose(f);
	return has;
}

static uint8_t *map_some(int fd, int prot)
{
	set_env("UMMAP_ENGINE", "segv");
	set_budget(BUDGET);
	return map_file(fd, SIZE, SEG, prot, 0);
}

static void read_all(const uint8_t *m)
{
	for (size_t off = 0; off < SIZE; off += SEG) {
		for (size_t page = 0; page < SEG; page += 64 * KIB)
			cr_assert_eq(m[off + page], pattern(off + page, 3), "byte %zu", off + page);
	}
}

/* Most of what a scan has in memory is on huge pages. */
static void expect_huge(const uint8_t *m)
{
	size_t huge = huge_bytes(m, SIZE), resident = stat_of(m).resident_bytes;

	cr_expect_geq(resident, BUDGET / 2);
	if (has_huge_pages())
		cr_expect_geq(huge, resident / 4 * 3, "%zu of %zu", huge, resident);
}

Test(pieces, of_a_scan)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);

	for (int pass = 0; pass < 3; pass++) {
		read_all(m);
		expect_huge(m);
	}
	cr_assert_eq(umunmap(m, 0), 0);
}

/* What was stored to came and left by itself, which breaks huge pages up, and in an order of its own. */
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

/* In no order that is known, a piece is as good as gone; but nothing is mixed up. */
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

/* Whoever overtakes what is read ahead brings in a piece, not a hole in one. */
Test(pieces, overtaken)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);

	read_all(m);
	cr_expect_leq(SIZE / SEG - stat_of(m).ahead_loads, PIECE, "%lu", (unsigned long)stat_of(m).ahead_loads);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* A scan that is known to be one keeps the piece that it is in, the one before it, and what comes next. */
Test(pieces, left_behind)
{
	int fd = filled_file(SIZE, 3);
	uint8_t *m = map_some(fd, PROT_READ);

	cr_assert_eq(umadvise(m, SIZE, UMMAP_ADV_SEQUENTIAL), 0);
	for (size_t off = 0; off < SIZE; off += SEG) {
		cr_assert_eq(m[off], pattern(off, 3));
		cr_expect_leq(stat_of(m).resident_bytes, 5 * PIECE * SEG, "at %zu", off / SEG);
	}
	if (has_huge_pages())
		cr_expect_geq(huge_bytes(m, SIZE), PIECE * SEG);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* The last segments of a file are no whole piece. */
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

/* ---- The pool by itself ---- */

#define BLOCKS 8
#define FRAMES (BLOCKS * PIECE)

static void take_all(uint32_t *frames)
{
	frame_start(1 << 20);
	for (size_t i = 0; i < FRAMES; i++) {
		frames[i] = frame_take(FRAME_MAPPED, SEG, BUDGET);
		cr_assert_neq(frames[i], FRAME_NONE);
	}
}

static void give_shuffled(uint32_t *frames, size_t n)
{
	uint64_t seed = 11;

	for (size_t left = n; left > 0; left--) {
		size_t i = next_random(&seed) % left;
		uint32_t frame = frames[i];

		frames[i] = frames[left - 1];
		frame_give(frame);
	}
}

Test(pool, whole_again)
{
	uint32_t frames[FRAMES];
	bool seen[FRAMES] = { false };

	take_all(frames);
	cr_expect_eq(frame_take_block(FRAME_MAPPED, SEG), FRAME_NONE);
	give_shuffled(frames, FRAMES);
	for (size_t b = 0; b < BLOCKS; b++) {
		uint32_t first = frame_take_block(FRAME_MAPPED, SEG);

		cr_assert_neq(first, FRAME_NONE);
		cr_expect_eq(first % PIECE, 0);
		for (size_t i = 0; i < PIECE; i++) {
			cr_assert_lt(first + i, FRAMES);
			cr_assert(!seen[first + i], "frame %zu twice", first + i);
			seen[first + i] = true;
		}
	}
	cr_expect_eq(frame_take_block(FRAME_MAPPED, SEG), FRAME_NONE);
	cr_expect_eq(frame_used(), FRAMES);
}

/* Single frames come from as few huge pages as can be. */
Test(pool, breaks_few)
{
	uint32_t frames[FRAMES], some[PIECE + 2];

	take_all(frames);
	give_shuffled(frames, FRAMES);
	for (size_t i = 0; i < PIECE + 2; i++)
		some[i] = frame_take(FRAME_MAPPED, SEG, BUDGET);
	for (size_t i = 1; i < PIECE; i++)
		cr_expect_eq(some[i] / PIECE, some[0] / PIECE);
	for (size_t b = 0; b < BLOCKS - 2; b++)
		cr_assert_neq(frame_take_block(FRAME_MAPPED, SEG), FRAME_NONE);
	cr_expect_eq(frame_take_block(FRAME_MAPPED, SEG), FRAME_NONE);
	/* Two of the second one are missing; once they are back it is whole. */
	frame_give(some[PIECE]);
	cr_expect_eq(frame_take_block(FRAME_MAPPED, SEG), FRAME_NONE);
	frame_give(some[PIECE + 1]);
	cr_expect_eq(frame_take_block(FRAME_MAPPED, SEG), some[PIECE] / PIECE * PIECE);
}

/* Frames that nobody needed go, and what comes in their place is whole. */
Test(pool, ages)
{
	uint32_t frames[FRAMES];

	take_all(frames);
	give_shuffled(frames, FRAMES);
	frame_age();
	frame_age();
	cr_expect_eq(frame_held(), 0);
	cr_expect_eq(frame_take_block(FRAME_MAPPED, SEG), FRAME_NONE);
	for (size_t i = 0; i < FRAMES; i++)
		frames[i] = frame_take(FRAME_MAPPED, SEG, BUDGET);
	give_shuffled(frames, FRAMES);
	for (size_t b = 0; b < BLOCKS; b++)
		cr_expect_neq(frame_take_block(FRAME_MAPPED, SEG), FRAME_NONE);
}

/* What has moved in parts is on a huge page again when it is mended; what has not keeps what it holds. */
Test(pool, mends)
{
	uint32_t frames[FRAMES], first;

	take_all(frames);
	give_shuffled(frames, FRAMES);
	first = frame_take_block(FRAME_MAPPED, SEG);
	memset(frame_home(first), 1, PIECE * SEG);
	frame_mend(first, PIECE);
	cr_expect_eq(*frame_home(first), 1, "it was whole");
	cr_assert_eq(mprotect(frame_home(first) + SEG, SEG, PROT_READ), 0);
	frame_set_writable(first + 1, 1, false);
	cr_assert_eq(frame_make_writable(first, PIECE), 0);
	frame_mend(first, PIECE);
	cr_expect_eq(*frame_home(first), 0);
	memset(frame_home(first), 2, PIECE * SEG);
	if (has_huge_pages())
		cr_expect_eq(huge_bytes((uint8_t *)frame_home(first) - 2 * MIB, GIB) % (2 * MIB), 0);
	frame_mend(first, PIECE);
	cr_expect_eq(*frame_home(first), 2, "once is enough");
}
