/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umremap: contents migrated to another file or offset, switched, extended and shrunk, and a
 * mapping that does not change when the call fails. Most tests also run with a budget of an eighth
 * of the mapping.
 */
#include <criterion/criterion.h>

#include "common.h"

#define SEG (16 * KIB)
#define SIZE (32 * SEG)
#define BUDGET (SIZE / 8)
#define OLD 1    /* seed of the contents of the first file */
#define NEW 2    /* seed of the data stored into the mapping */
#define OTHER 3  /* seed of the contents of other files */
#define LATER 4  /* seed of the data stored later */

/* Other processes of the group could cause evictions, which write. */
TestSuite(migration, .init = set_group);
TestSuite(switch_over, .init = set_group);
TestSuite(growing, .init = set_group);
TestSuite(shrinking, .init = set_group);
TestSuite(failure, .init = set_group);

/* Maps a file with OLD contents, and changes the second quarter to NEW. */
static uint8_t *quarter_changed(int *fd)
{
	uint8_t *m;

	*fd = filled_file(SIZE, OLD);
	m = map_file(*fd, SIZE, SEG, READ_WRITE, 0);
	fill(m + SIZE / 4, SIZE / 4, SIZE / 4, NEW);
	return m;
}

static void check_quarters(const uint8_t *m)
{
	check_bytes(m, SIZE / 4, 0, OLD);
	check_bytes(m + SIZE / 4, SIZE / 4, SIZE / 4, NEW);
	check_bytes(m + SIZE / 2, SIZE / 2, SIZE / 2, OLD);
}

static void check_file_quarters(int fd, uint64_t from)
{
	check_file(fd, from, SIZE / 4, 0, OLD);
	check_file(fd, from + SIZE / 4, SIZE / 4, SIZE / 4, NEW);
	check_file(fd, from + SIZE / 2, SIZE / 2, SIZE / 2, OLD);
}

/* Migrates as a checkpoint does: the size stays, so the address must stay. */
static void carry(uint8_t *m, int fd, off_t offset, int sync)
{
	void *base = NULL;

	check(umremap(m, 0, fd, offset, sync, &base) == 0);
	check(base == m, "a mapping of the same size stays where it is");
}

static void carry_to_new_file(void *budget)
{
	int from, to = temp_file(0);
	uint8_t *m;

	if (budget)
		set_budget(BUDGET);
	m = quarter_changed(&from);
	carry(m, to, 0, 0);
	check_quarters(m);
	check(umsync(m, 0) == 0);
	check(file_size(to) == SIZE, "%" PRIu64, file_size(to));
	check_file_quarters(to, 0);
	check_quarters(m);
	fill(m, SEG, 0, LATER);
	check(umunmap(m, 1) == 0);
	check_file(to, 0, SEG, 0, LATER);
	check_file(to, SEG, SIZE / 4 - SEG, SEG, OLD);
	check_file(from, 0, SIZE / 4, 0, OLD);  /* later stores went to the new file only */
	check_file(from, SIZE / 2, SIZE / 2, SIZE / 2, OLD);
	if (!budget)
		check_file(from, SIZE / 4, SIZE / 4, SIZE / 4, OLD);  /* no sync was requested */
}

static int small;  /* as an argument, &small requests a small budget */

Test(migration, completes_a_new_file)
{
	check_exits(run_child(carry_to_new_file, NULL), 0);
	check_exits(run_child(carry_to_new_file, &small), 0);
}

Test(migration, with_sync_completes_both)
{
	int from, to = filled_file(SIZE, OTHER);
	uint8_t *m = quarter_changed(&from);

	carry(m, to, 0, UMMAP_SYNC);
	check_file_quarters(from, 0);
	check(stat_of(m).dirty_bytes <= SIZE);
	check(umunmap(m, 1) == 0);
	check_file_quarters(to, 0);
	check(file_size(to) == SIZE);
}

Test(migration, closes_the_old_file_when_complete)
{
	int from, to = temp_file(0), before;
	uint8_t *m = quarter_changed(&from);

	check(umsync(m, 1) == 0);
	before = count_fds();
	for (int i = 0; i < 5; i++) {
		carry(m, i % 2 ? from : to, 0, 0);
		check(umsync(m, 0) == 0);
		check(count_fds() == before, "%d, then %d", before, count_fds());
	}
	check_quarters(m);
	check(umunmap(m, 0) == 0);
}

/* Each round stores data and migrates again before the last migration is complete. */
static void carry_again_and_again(void *budget)
{
	int from, last = -1;
	uint8_t *m;

	if (budget)
		set_budget(BUDGET);
	m = quarter_changed(&from);
	for (int round = 0; round < 20; round++) {
		last = temp_file(0);
		carry(m, last, 100, 0);
		/* Changes two segments, and loads some more, which a small budget evicts. */
		fill(m + (20 + round % 5 * 2) * SEG, 2 * SEG, (20 + round % 5 * 2) * SEG, LATER);
		check_bytes(m, SIZE / 4, 0, OLD);
		check_bytes(m + SIZE / 4, SIZE / 4, SIZE / 4, NEW);
	}
	check(umsync(m, 0) == 0);
	check_file(last, 100, SIZE / 4, 0, OLD);
	check_file(last, 100 + SIZE / 4, SIZE / 4, SIZE / 4, NEW);
	check_file(last, 100 + SIZE / 2, 4 * SEG, SIZE / 2, OLD);
	check_file(last, 100 + 20 * SEG, 10 * SEG, 20 * SEG, LATER);
	check_file(last, 100 + 30 * SEG, 2 * SEG, 30 * SEG, OLD);
	check_file_zeros(last, 0, 100);
	check(file_size(last) == 100 + SIZE);
	check(umunmap(m, 1) == 0);
}

Test(migration, may_follow_an_incomplete_one)
{
	check_exits(run_child(carry_again_and_again, NULL), 0);
	check_exits(run_child(carry_again_and_again, &small), 0);
}

/* umunmap completes a migration, too, whose data may all be out of memory. */
static void carry_then_unmap(void *unused)
{
	int from, to = temp_file(0);
	uint8_t *m;

	(void)unused;
	set_budget(BUDGET);
	m = quarter_changed(&from);
	check(umsync(m, 1) == 0);
	carry(m, to, 0, 0);
	check(umunmap(m, 1) == 0);
	check_file_quarters(to, 0);
}

/* Migrates to a new store behind a filter, which has the data of a sync as one commit. */
Test(migration, to_a_uri)
{
	char path[320], uri[400];
	uint64_t oldest, newest;
	void *base = NULL, *again;
	int from;
	uint8_t *m = quarter_changed(&from);

	close(temp_named("migrated", 0, path));
	check(unlink(path) == 0);
	snprintf(uri, sizeof(uri), "wal+posix:%s", path);
	check_fails(umremap_open(m, uri, 0, 0, UMMAP_SWITCH, &base), ENOENT);
	check_fails(umremap_open(m, "tape:", 0, 0, 0, &base), EINVAL);
	check(umremap_open(m, NULL, 0, -1, UMMAP_SYNC, &base) == 0 && base == m);
	check_file_quarters(from, 0);
	check(umremap_open(m, uri, 0, 0, 0, &base) == 0 && base == m, "%s", umerrormsg());
	check(umsync(m, 0) == 0, "%s", umerrormsg());
	check(umcommits(m, &oldest, &newest) == 0 && newest == 1);
	fill(m, SIZE / 4, 0, LATER);
	check(umunmap(m, 0) == 0);
	check(ummap_open(uri, SIZE, 0, PROT_READ, NULL, &again) == 0, "%s", umerrormsg());
	check_quarters(again);
	check(umunmap(again, 0) == 0);
	close(from);
}

Test(migration, is_completed_by_umunmap)
{
	check_exits(run_child(carry_then_unmap, NULL), 0);
}

/* Migrates between parts of one file, as for alternate checkpoints, and to an overlapping range. */
static void carry_inside_a_file(void *overlap)
{
	const off_t step = overlap ? SEG + 3 : 2 * SIZE + 5;
	int fd;
	uint8_t *m;

	set_budget(BUDGET);
	m = quarter_changed(&fd);
	for (int slot = 1; slot <= 3; slot++) {
		carry(m, -1, slot * step, 0);
		check_quarters(m);
		if (slot % 2)
			check(umsync(m, 0) == 0);
	}
	carry(m, -1, step / 2, UMMAP_SYNC);
	check_quarters(m);
	check(umunmap(m, 1) == 0);
	check_file_quarters(fd, step / 2);
	if (!overlap)
		check_file_quarters(fd, 3 * step);
}

Test(migration, to_an_offset_of_the_same_file)
{
	check_exits(run_child(carry_inside_a_file, NULL), 0);
}

Test(migration, to_an_offset_that_overlaps)
{
	check_exits(run_child(carry_inside_a_file, &small), 0);
}

/* Half of the new bytes are the old range, which keeps its contents in the file. */
static void grow_over_the_old_place(void *unused)
{
	int fd = filled_file(4 * SIZE, OLD);
	uint8_t *m;
	void *base = NULL;

	(void)unused;
	set_budget(BUDGET);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 2 * SIZE);
	fill(m, SIZE, 0, NEW);
	check(umremap(m, 3 * SIZE, -1, SIZE / 2, 0, &base) == 0, "%s", umerrormsg());
	m = base;
	check_bytes(m, SIZE, 0, NEW);
	check_bytes(m + SIZE, SIZE / 2, SIZE + SIZE / 2, OLD);
	check_bytes(m + SIZE + SIZE / 2, SIZE, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE / 2, 0, OLD);
	check_file(fd, SIZE / 2, SIZE, 0, NEW);
	check_file(fd, SIZE + SIZE / 2, SIZE / 2, SIZE + SIZE / 2, OLD);
	check_file(fd, 2 * SIZE, SIZE, 0, NEW);
	check_file(fd, 3 * SIZE, SIZE, 3 * SIZE, OLD);
}

/* Moves to a higher offset. Bytes after the end of both ranges and the file's end do not change. */
static void shrink_and_overlap(void *unused)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m;
	void *base = NULL;

	(void)unused;
	set_budget(BUDGET);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	check(umremap(m, SIZE / 4, -1, SEG + 3, 0, &base) == 0 && base == m, "%s", umerrormsg());
	check_bytes(m, SIZE / 4, 0, OLD);
	check(umunmap(m, 1) == 0);
	check(file_size(fd) == SIZE);
	check_file(fd, 0, SEG + 3, 0, OLD);
	check_file(fd, SEG + 3, SIZE / 4, 0, OLD);
	check_file(fd, SEG + 3 + SIZE / 4, SIZE - SIZE / 4 - SEG - 3, SEG + 3 + SIZE / 4, OLD);
}

Test(migration, grows_over_its_old_place)
{
	check_exits(run_child(grow_over_the_old_place, NULL), 0);
}

Test(migration, overlaps_and_shrinks)
{
	check_exits(run_child(shrink_and_overlap, NULL), 0);
}

/* The mapping grows into a part of the file that has not been migrated. */
static void grow_into_what_is_pending(void *unused)
{
	int fd = filled_file(3 * SIZE, OLD);
	uint8_t *m;
	void *base = NULL;

	(void)unused;
	set_budget(BUDGET);
	m = map_file(fd, SIZE, SEG, READ_WRITE, SIZE);
	carry(m, -1, 0, 0);
	check(umremap(m, 2 * SIZE, -1, -1, 0, &base) == 0);
	m = base;
	fill(m + SIZE, SIZE, 0, NEW);
	check_bytes(m, SIZE, SIZE, OLD);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, SIZE, OLD);
	check_file(fd, SIZE, SIZE, 0, NEW);
}

Test(migration, is_completed_before_it_is_overgrown)
{
	check_exits(run_child(grow_into_what_is_pending, NULL), 0);
}

/* Moves down by less than a segment. The nth write fails, and so does the next one, on the way
 * back. Segments that are stored to and loaded then are not written before the others are back. */
static void move_and_fail_twice(void *nth)
{
	const size_t down = SEG - 100;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int fd = filled_file(2 * SIZE, OLD);
	void *addr, *base = NULL;
	char uri[160];
	uint8_t *m;

	set_budget(BUDGET);
	snprintf(uri, sizeof(uri),
		 "error+posix:/proc/self/fd/"
		 "%d?error.op=write&error.nth=%d&error.times=4&error.errno=EIO"
		 "&error.short=5000",
		 fd, *(int *)nth);
	attr.seg_size = SEG;
	check(ummap_open(uri, SIZE, SEG, READ_WRITE, &attr, &addr) == 0, "%s", umerrormsg());
	m = addr;
	check_fails(umremap(m, 0, -1, (off_t)(SEG - down), 0, &base), EIO);
	fill(m + 3 * SEG, SEG, 3 * SEG, NEW);
	check_bytes(m, 3 * SEG, SEG, OLD);
	check_bytes(m + 4 * SEG, SIZE - 4 * SEG, 5 * SEG, OLD);
	for (int tries = 0; umsync(m, 1) != 0; tries++)
		check(tries < 5);
	check_bytes(m, 3 * SEG, SEG, OLD);
	check_bytes(m + 4 * SEG, SIZE - 4 * SEG, 5 * SEG, OLD);
	check(umunmap(m, 1) == 0);
	check_file(fd, SEG, 3 * SEG, SEG, OLD);
	check_file(fd, 4 * SEG, SEG, 3 * SEG, NEW);
	check_file(fd, 5 * SEG, 2 * SIZE - 5 * SEG, 5 * SEG, OLD);
}

Test(migration, fails_and_fails_on_the_way_back)
{
	for (int nth = 1; nth < (int)(SIZE / SEG); nth += 3)
		check_exits(run_child(move_and_fail_twice, &nth), 0);
}

Test(migration, takes_the_zeros_of_read_file_0_along)
{
	int from = filled_file(SIZE, OLD), to = filled_file(SIZE, OTHER);
	void *m;

	check(ummap(SIZE, SEG, READ_WRITE, from, 0, -1, 0, UMMAP_PTYPE_FIFO, &m) == 0);
	fill((uint8_t *)m + SEG, SEG, SEG, NEW);
	carry(m, to, 0, 0);
	check_zeros(m, SEG);
	check(umunmap(m, 1) == 0);
	check_file_zeros(to, 0, SEG);
	check_file(to, SEG, SEG, SEG, NEW);
	check_file_zeros(to, 2 * SEG, SIZE - 2 * SEG);
	check_file(from, 0, SIZE, 0, OLD);
}

/* ---- UMMAP_SWITCH ---- */

static void switch_files(void *budget)
{
	int from, to = filled_file(SIZE, OTHER);
	uint8_t *m;

	if (budget)
		set_budget(BUDGET);
	m = quarter_changed(&from);
	carry(m, to, 0, UMMAP_SYNC | UMMAP_SWITCH);
	check_file_quarters(from, 0);
	check_bytes(m, SIZE, 0, OTHER);
	check(stat_of(m).dirty_bytes == 0);
	fill(m, SEG, 0, LATER);
	carry(m, from, 0, UMMAP_SWITCH);  /* LATER is dropped: it was not written, since it fits */
	check_quarters(m);
	check(umunmap(m, 1) == 0);
	check_file_quarters(from, 0);
	check_file(to, 0, SIZE, 0, OTHER);
}

Test(switch_over, shows_the_new_target)
{
	check_exits(run_child(switch_files, NULL), 0);
	check_exits(run_child(switch_files, &small), 0);
}

Test(switch_over, to_where_it_is_rolls_back)
{
	int fd;
	uint8_t *m = quarter_changed(&fd);

	carry(m, -1, -1, UMMAP_SWITCH);
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, OLD);
}

Test(switch_over, from_an_incomplete_carry_drops_it)
{
	int from, to = temp_file(0);
	uint8_t *m = quarter_changed(&from);

	carry(m, to, 0, 0);
	carry(m, from, 0, UMMAP_SWITCH);
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 1) == 0);
	check_file(from, 0, SIZE, 0, OLD);
}

Test(switch_over, is_for_read_only_mappings_too)
{
	int from = filled_file(SIZE, OLD), to = filled_file(SIZE, OTHER);
	uint8_t *m = map_file(from, SIZE, SEG, PROT_READ, 0);

	check_bytes(m, SIZE, 0, OLD);
	carry(m, to, 0, UMMAP_SWITCH);
	check_bytes(m, SIZE, 0, OTHER);
	check(umunmap(m, 1) == 0);
	check_file(to, 0, SIZE, 0, OTHER);
}

/* ---- Growing ---- */

/* The short last segment grows: its new bytes come from the file, and its changed bytes stay. */
static void grow(uint8_t *m, int fd, size_t size, size_t larger, bool dirty)
{
	void *base = m;

	if (dirty)
		fill(m + size - 100, 100, size - 100, NEW);
	else
		check_bytes(m + size - 100, 100, size - 100, OLD);
	check(umremap(m, larger, -1, -1, 0, &base) == 0);
	m = base;
	check_bytes(m, size - 100, 0, OLD);
	check_bytes(m + size - 100, 100, size - 100, dirty ? NEW : OLD);
	check_bytes(m + size, larger - size, size, OLD);
	fill(m + larger - 10, 10, larger - 10, LATER);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, size - 100, 0, OLD);
	check_file(fd, size - 100, 100, size - 100, dirty ? NEW : OLD);
	check_file(fd, size, larger - size - 10, size, OLD);
	check_file(fd, larger - 10, 10, larger - 10, LATER);
	check_file(fd, larger, SIZE - larger, larger, OLD);
}

Test(growing, keeps_what_is_there)
{
	static const size_t sizes[][2] = {
		{ 3 * SEG, 5 * SEG },
		{ 3 * SEG + 1000, 5 * SEG + 50 },
		{ 3 * SEG + 1000, 3 * SEG + 1011 },
		{ 3 * SEG + 1000, SIZE },
		{ 101, SEG },
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (int dirty = 0; dirty <= 1; dirty++) {
			int fd = filled_file(SIZE, OLD);

			grow(map_file(fd, sizes[i][0], SEG, READ_WRITE, 0), fd, sizes[i][0],
			     sizes[i][1], dirty);
			close(fd);
		}
	}
}

/* If the next addresses are in use, a mapping that grows has to move. */
Test(growing, moves_where_it_must)
{
	const size_t large = (size_t)64 * GIB;
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	void *base = NULL;
	void *neighbour = mmap(m + SIZE, SEG, PROT_NONE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	fill(m + SIZE / 4, SIZE / 4, SIZE / 4, NEW);
	check(umremap(m, large, -1, -1, 0, &base) == 0);
	check(base != m || neighbour == MAP_FAILED, "the mapping does not replace other memory");
	if (base != m)
		check_fails(umsync(m, 0), EINVAL);
	m = base;
	check_quarters(m);
	check_zeros(m + large - SEG, SEG);
	m[large - 1] = 7;
	check(umunmap(m, 1) == 0);
	check_file_quarters(fd, 0);
	check(file_size(fd) == large);
}

Test(growing, and_carrying_in_one_call)
{
	int from, to = filled_file(2 * SIZE, OTHER);
	void *m = quarter_changed(&from), *base = m;

	check(umremap(m, 2 * SIZE, to, 0, 0, &base) == 0);
	m = base;
	check_quarters(m);
	check_bytes((uint8_t *)m + SIZE, SIZE, SIZE, OTHER);
	check(umunmap(m, 1) == 0);
	check_file_quarters(to, 0);
	check_file(to, SIZE, SIZE, SIZE, OTHER);
	check_file(from, 0, SIZE, 0, OLD);
}

/* Maps 16 KiB and a few bytes of zeros, for a file with OLD contents. */
static uint8_t *map_blank(int fd)
{
	void *addr;

	cr_assert_eq(ummap(SEG + 100, SEG, READ_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &addr), 0,
		     "%s", umerrormsg());
	return addr;
}

/* Zeros that were not stored to are not written when the mapping grows. */
Test(growing, writes_no_zeros)
{
	int fd = filled_file(4 * SEG, OLD);
	uint8_t *m = map_blank(fd);
	void *base = m;

	cr_assert_eq(m[SEG + 10], 0);
	cr_assert_eq(umremap(m, 3 * SEG, -1, -1, 0, &base), 0, "%s", umerrormsg());
	m = base;
	cr_expect_eq(m[SEG + 10], 0);
	cr_expect_eq(m[SEG + 200], 0);
	m[5] = 1;
	cr_assert_eq(umsync(m, 0), 0);
	check_file(fd, SEG, 3 * SEG, SEG, OLD);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* After a switch, a mapping that began with zeros shows its file, also where it grows. */
Test(growing, after_switching_away_from_zeros)
{
	int fd = filled_file(SIZE, OLD), other = filled_file(SIZE, OTHER),
	    third = filled_file(SIZE, LATER);
	uint8_t *m = map_blank(fd);
	void *base = m;

	cr_assert_eq(umremap(m, 0, other, -1, UMMAP_SWITCH, &base), 0, "%s", umerrormsg());
	m = base;
	check_bytes(m, SEG + 100, 0, OTHER);
	cr_assert_eq(umremap(m, 3 * SEG, third, -1, 0, &base), 0, "%s", umerrormsg());
	m = base;
	check_bytes(m, SEG + 100, 0, OTHER);
	check_bytes(m + SEG + 100, 2 * SEG - 100, SEG + 100, LATER);
	cr_assert_eq(umunmap(m, 0), 0);
}

/* Another mapping is at the addresses that it would grow to. */
Test(growing, and_switching_in_one_call)
{
	const size_t large = (size_t)64 * GIB;
	int from, to = filled_file(SIZE, OTHER), beside = filled_file(SIZE, OLD);
	void *m = quarter_changed(&from), *base = NULL;
	uint8_t *n = map_file(beside, SIZE, SEG, READ_WRITE, 0);

	fill(n, SIZE, 0, NEW);
	check(umremap(m, large, to, 0, UMMAP_SWITCH, &base) == 0, "%s", umerrormsg());
	m = base;
	check_bytes(m, SIZE, 0, OTHER);
	check_zeros((uint8_t *)m + large - SEG, SEG);
	check_bytes(n, SIZE, 0, NEW);
	check(umunmap(n, 1) == 0);
	check_file(beside, 0, SIZE, 0, NEW);
	fill(m, SIZE, 0, LATER);
	check(umunmap(m, 1) == 0);
	check_file(to, 0, SIZE, 0, LATER);
	check_file(from, 0, SIZE, 0, OLD);
}

/* A switch does not read the old contents. */
Test(growing, and_switching_away_from_what_fails)
{
	int from = filled_file(SIZE, OLD), to = filled_file(SIZE, OTHER);
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m, *base = NULL;
	char uri[160];

	snprintf(uri, sizeof(uri),
		 "error+posix:/proc/self/fd/"
		 "%d?error.op=read&error.nth=1&error.times=always&error.errno=EIO",
		 from);
	attr.seg_size = SEG;
	check(ummap_open(uri, 3 * SEG + 1000, 0, READ_WRITE, &attr, &m) == 0, "%s", umerrormsg());
	check(umremap(m, SIZE, to, 0, UMMAP_SWITCH, &base) == 0, "%s", umerrormsg());
	check_bytes(base, SIZE, 0, OTHER);
	check(umunmap(base, 1) == 0);
	check_file(from, 0, SIZE, 0, OLD);
}

/* ---- Shrinking ---- */

/* Shrinks the last segment, which was only loaded, to one page. The engine keeps its frame. */
static uint8_t *cut_and_store(int fd)
{
	void *base = NULL;
	uint8_t *m;

	/* Small segments have another engine by default. */
	setenv("UMMAP_ENGINE", "segv", 0);
	m = map_file(fd, 2 * SEG, SEG, READ_WRITE, 0);
	check_bytes(m + SEG, SEG, SEG, OLD);
	check(umpin(m + SEG, SEG, PROT_READ) == 0 && umunpin(m + SEG, SEG) == 0);
	check(umremap(m, SEG + 4096, -1, -1, 0, &base) == 0 && base == m);
	fill(m + SEG, 4096, SEG, NEW);
	return m;
}

Test(shrinking, and_growing_again)
{
	int fd = filled_file(SIZE, OLD);
	void *m = cut_and_store(fd), *base = m;

	check(umremap(m, 2 * SEG, -1, -1, 0, &base) == 0, "%s", umerrormsg());
	m = base;
	check_bytes((uint8_t *)m + SEG, 4096, SEG, NEW);
	check_bytes((uint8_t *)m + SEG + 4096, SEG - 4096, SEG + 4096, OLD);
	check(umunmap(m, 1) == 0);
}

Test(shrinking, leaves_a_frame_for_others)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = cut_and_store(fd);

	check(umunmap(m, 0) == 0);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	fill(m, SIZE, 0, LATER);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, LATER);
}

static void shrink(size_t smaller, int sync)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	void *base = NULL;

	fill(m, SIZE, 0, NEW);
	check(umremap(m, smaller, -1, -1, sync, &base) == 0);
	check(base == m, "a mapping that shrinks stays where it is");
	check_bytes(m, smaller, 0, NEW);
	check_fails(umsync_range(m, smaller + 1, 0), ENOMEM);
	if (sync)
		check_file(fd, 0, SIZE, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, smaller, 0, NEW);
	check_file(fd, smaller, SIZE - smaller, smaller, sync ? NEW : OLD);
	check(file_size(fd) == SIZE);
	close(fd);
}

Test(shrinking, drops_the_tail)
{
	static const size_t sizes[] = { SIZE / 2, SIZE / 2 + 777, 1, SIZE - 1 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		shrink(sizes[i], 0);
		shrink(sizes[i], UMMAP_SYNC);
	}
}

static void touch_the_tail(void *unused)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	void *base = NULL;

	(void)unused;
	fill(m, SIZE, 0, NEW);
	check(umremap(m, SIZE / 2, -1, -1, 0, &base) == 0);
	*(volatile uint8_t *)(m + SIZE / 2);
}

Test(shrinking, leaves_nothing_behind_the_end)
{
	check_killed(run_child(touch_the_tail, NULL), SIGSEGV);
}

/* ---- Failures ---- */

static void refuse(uint8_t *m, size_t size, int fd, off_t offset, int sync, int error)
{
	int fds = count_fds();
	void *base = m;

	check_fails(umremap(m, size, fd, offset, sync, &base), error);
	check(count_fds() == fds);
	check(base == m);
	check_bytes(m + SIZE / 4, 100, SIZE / 4, NEW);
	check(stat_of(m).dirty_bytes == SIZE / 4);
}

Test(failure, leaves_the_mapping_as_it_was)
{
	int from, to = temp_file(0), pipes[2], reader;
	char again[64];
	uint8_t *m = quarter_changed(&from);

	check(pipe(pipes) == 0);
	snprintf(again, sizeof(again), "/proc/self/fd/%d", to);
	reader = open(again, O_RDONLY);
	check_bytes(m, SIZE / 4, 0, OLD);
	refuse(m, 0, 1000, 0, 0, EBADF);
	refuse(m, 0, reader, 0, 0, EACCES);
	refuse(m, 0, reader, 0, UMMAP_SWITCH, EACCES);
	refuse(m, 0, pipes[0], 0, 0, ENODEV);
	refuse(m, 0, to, -2, 0, EINVAL);
	refuse(m, 0, to, 0, 8, EINVAL);
	refuse(m, 0, to, INT64_MAX - 10, 0, EOVERFLOW);
	refuse(m, (size_t)1 << 60, to, 0, 0, ENOMEM);
	check(umunmap(m, 1) == 0);
	check_file_quarters(from, 0);
	check(file_size(to) == 0);
}

Test(failure, of_a_pinned_mapping_is_ebusy)
{
	int from, to = temp_file(0);
	uint8_t *m = quarter_changed(&from);

	check(umpin(m + SEG, 1, PROT_READ) == 0);
	refuse(m, 0, to, 0, 0, EBUSY);
	refuse(m, 2 * SIZE, -1, -1, 0, EBUSY);
	check(umunpin(m + SEG, 1) == 0);
	carry(m, to, 0, 0);
	check(umunmap(m, 1) == 0);
	check_file_quarters(to, 0);
}
