/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_pool.c - memory of mappings that have ended: the next mapping has it, with nothing left in it of the last one;
 * and if there is none, the system gets it back after a while.
 */
#include <criterion/criterion.h>
#include <sys/uio.h>

#include "common.h"

#define SEG (256 * KIB)
#define SIZE (32 * MIB)
#define BUDGET (64 * MIB)
/* What a process needs besides, and what comes at a time. */
#define SLACK (4 * MIB)
#define PATIENCE_S 20

static uint8_t *map_whole(int fd, size_t size, int prot)
{
	uint8_t *m = map_file(fd, size, SEG, prot, 0);

	check(m != MAP_FAILED, "%s", umerrormsg());
	return m;
}

static int patterned_file(size_t size, uint64_t seed)
{
	int fd = temp_file(size);

	file_fill(fd, 0, size, 0, seed);
	return fd;
}

/* Maps a file, stores to half of it, loads the other half and ends the mapping. */
static void use_once(size_t size, uint64_t seed)
{
	int fd = patterned_file(size, seed);
	uint8_t *m = map_whole(fd, size, READ_WRITE);

	fill(m, size / 2, 0, seed + 1);
	check_bytes(m + size / 2, size / 2, size / 2, seed);
	check(umunmap(m, 1) == 0, "%s", umerrormsg());
	check_file(fd, 0, size / 2, 0, seed + 1);
	close(fd);
}

static uint64_t held(void)
{
	return stat_of(NULL).held_bytes;
}

/* false: it has not come down to that. */
static bool falls_to(uint64_t most)
{
	double end = now() + PATIENCE_S;

	while (held() > most) {
		if (now() > end)
			return false;
		pause_ms(100);
	}
	return true;
}

static bool is_kept(void)
{
	const char *engine = getenv("UMMAP_ENGINE");

	return !engine || strcmp(engine, "uffd");
}

Test(pool, next_mapping_has_it)
{
	uint64_t first;

	set_budget(BUDGET);
	use_once(SIZE, 1);
	first = held();
	check(!is_kept() || first >= SIZE, "%" PRIu64 " KiB are left", first / KIB);
	for (uint64_t seed = 10; seed < 15; seed++)
		use_once(SIZE, seed);
	check(held() <= (first > SIZE ? first : SIZE) + SLACK, "%" PRIu64 " KiB after %" PRIu64, held() / KIB, first / KIB);
}

/* Where the store has nothing, there are zeros, not what was there before. */
Test(pool, nothing_is_left_in_it)
{
	int fd;
	uint8_t *m;

	set_budget(BUDGET);
	use_once(SIZE, 1);
	fd = patterned_file(SIZE / 2 + 1000, 2);
	check(ftruncate(fd, SIZE - 5000) == 0);
	m = map_whole(fd, SIZE, READ_WRITE);
	check_bytes(m, SIZE / 2 + 1000, 0, 2);
	check_zeros(m + SIZE / 2 + 1000, SIZE / 2 - 1000);
	check(umunmap(m, 0) == 0);
	close(fd);
}

Test(pool, system_gets_it_back)
{
	size_t before;

	set_budget(BUDGET);
	use_once(SIZE, 1);
	before = status_bytes("VmRSS");
	check(!is_kept() || before >= SIZE);
	check(falls_to(0), "%" PRIu64 " KiB are held", held() / KIB);
	if (is_kept() && !SANITIZED)
		check(status_bytes("VmRSS") < before - SIZE + SLACK);
	use_once(SIZE, 2);
}

/* What is in use stays, and its neighbours in the pool go. */
Test(pool, what_is_in_use_stays)
{
	int fd = patterned_file(SIZE / 4, 3);
	uint8_t *m;

	set_budget(BUDGET);
	m = map_whole(fd, SIZE / 4, PROT_READ);
	check_bytes(m, SIZE / 4, 0, 3);
	use_once(SIZE, 1);
	check(falls_to(SIZE / 4 + SLACK), "%" PRIu64 " KiB are held", held() / KIB);
	check(stat_of(m).resident_bytes + stat_of(m).standby_bytes == SIZE / 4);
	check_bytes(m, SIZE / 4, 0, 3);
	use_once(SIZE, 4);
	check_bytes(m, SIZE / 4, 0, 3);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* Another size needs the memory at once. */
Test(pool, other_sizes_have_it)
{
	int fd = patterned_file(SIZE, 5);
	uint8_t *m;

	set_budget(SIZE + 2 * MIB);
	use_once(SIZE, 1);
	m = map_file(fd, SIZE, 4 * SEG, PROT_READ, 0);
	check_bytes(m, SIZE, 0, 5);
	check(held() <= SIZE + 2 * MIB, "%" PRIu64 " KiB are held", held() / KIB);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* Somebody outside still works on what was pinned: here a pipe, which has not the bytes but the page. */
Test(pool, what_was_pinned_goes_to_nobody)
{
	uint8_t byte = 0, *m;
	struct iovec page;
	int fd = patterned_file(SEG, 6), ends[2];

	set_budget(BUDGET);
	m = map_whole(fd, SEG, PROT_READ);
	check(umpin(m, SEG, PROT_READ) == 0, "%s", umerrormsg());
	page = (struct iovec){ m, 1 };
	check(pipe(ends) == 0 && vmsplice(ends[1], &page, 1, 0) == 1);
	check(umunmap(m, 0) == 0);
	use_once(SEG, 7);
	use_once(SEG, 8);
	check(read(ends[0], &byte, 1) == 1);
	check(byte == pattern(0, 6), "another mapping has the page");
	close(fd);
}
