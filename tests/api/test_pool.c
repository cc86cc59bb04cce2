/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of mappings that have ended: the next mapping uses it without seeing old contents, and if
 * there is no next mapping, it is returned to the system after a while.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <sys/uio.h>

#include "common.h"

#define SEG (256 * KIB)
#define SIZE (32 * MIB)
#define BUDGET (64 * MIB)
/* Bytes for the rest of a process, and for frames that are allocated together. */
#define SLACK (4 * MIB)
#define MAX_WAIT_SECONDS 20

/* Maps a file, stores to half of it, loads the other half and ends the mapping. */
static void use_once(size_t size, uint64_t seed)
{
	int fd = filled_file(size, seed);
	uint8_t *m = map_file(fd, size, SEG, READ_WRITE, 0);

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

/* Waits until at most this much is held. false: it did not happen. */
static bool falls_to(uint64_t most)
{
	double end = now() + MAX_WAIT_SECONDS;

	while (held() > most) {
		if (now() > end)
			return false;
		pause_ms(100);
	}
	return true;
}

Test(pool, next_mapping_has_it)
{
	uint64_t first;
	cpu_set_t here;

	/* Each NUMA node has free frames of its own. */
	CPU_ZERO(&here);
	CPU_SET((unsigned)sched_getcpu(), &here);
	check(sched_setaffinity(0, sizeof(here), &here) == 0);
	set_budget(BUDGET);
	use_once(SIZE, 1);
	first = held();
	check(!engine_is("segv") || first >= SIZE, "%" PRIu64 " KiB are left", first / KIB);
	for (uint64_t seed = 10; seed < 15; seed++)
		use_once(SIZE, seed);
	check(held() <= (first > SIZE ? first : SIZE) + SLACK, "%" PRIu64 " KiB after %" PRIu64,
	      held() / KIB, first / KIB);
}

/* A hole of the store shows zeros in memory that was used before. */
Test(pool, nothing_is_left_in_it)
{
	int fd;
	uint8_t *m;

	set_budget(BUDGET);
	use_once(SIZE, 1);
	fd = filled_file(SIZE / 2 + 1000, 2);
	check(ftruncate(fd, SIZE - 5000) == 0);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
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
	check(!engine_is("segv") || before >= SIZE);
	check(falls_to(0), "%" PRIu64 " KiB are held", held() / KIB);
	if (engine_is("segv") && !SANITIZED)
		check(status_bytes("VmRSS") < before - SIZE + SLACK);
	use_once(SIZE, 2);
}

/* Frames in use stay, and the free frames next to them are returned. */
Test(pool, what_is_in_use_stays)
{
	int fd = filled_file(SIZE / 4, 3);
	uint8_t *m;

	set_budget(BUDGET);
	set_env("UMMAP_CACHED", "copy");
	m = map_file(fd, SIZE / 4, SEG, PROT_READ, 0);
	check_bytes(m, SIZE / 4, 0, 3);
	use_once(SIZE, 1);
	check(falls_to(SIZE / 4 + SLACK), "%" PRIu64 " KiB are held", held() / KIB);
	check(stat_of(m).resident_bytes + stat_of(m).inactive_bytes == SIZE / 4);
	check_bytes(m, SIZE / 4, 0, 3);
	use_once(SIZE, 4);
	check_bytes(m, SIZE / 4, 0, 3);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* Frames of another size get the memory at once. */
Test(pool, other_sizes_have_it)
{
	int fd = filled_file(SIZE, 5);
	uint8_t *m;

	set_budget(SIZE + 2 * MIB);
	use_once(SIZE, 1);
	m = map_file(fd, SIZE, 4 * SEG, PROT_READ, 0);
	check_bytes(m, SIZE, 0, 5);
	check(held() <= SIZE + 2 * MIB, "%" PRIu64 " KiB are held", held() / KIB);
	check(umunmap(m, 0) == 0);
	close(fd);
}

/* A pinned page may still be in use after the mapping has ended: here by a pipe. */
Test(pool, what_was_pinned_goes_to_nobody)
{
	uint8_t byte = 0, *m;
	struct iovec page;
	int fd = filled_file(SEG, 6), ends[2];

	set_budget(BUDGET);
	m = map_file(fd, SEG, SEG, PROT_READ, 0);
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

/* Maps with the engine segv, whose frames are VMAs. */
static uint8_t *map_nothing(size_t size, size_t seg_size)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	attr.seg_size = seg_size;
	attr.flags = UMMAP_BLANK;
	attr.engine = UMMAP_ENGINE_SEGV;
	check(ummap_open("null:64G", size, 0, READ_WRITE, &attr, &m) == 0, "%s", umerrormsg());
	return m;
}

/* Frames with different rights are separate VMAs. */
Test(pool, frames_do_not_cost_mappings)
{
	const size_t n = 8000, step = 2 * 4096;
	volatile uint8_t *m;
	int before;

	set_budget(BUDGET);
	m = map_nothing(n * step, 4096);
	check(umadvise((void *)m, n * step, UMMAP_ADV_RANDOM) == 0);
	before = count_maps();
	for (size_t i = 0; i < n; i++) {
		if (i % 2)
			(void)m[i * step];
		else
			m[i * step] = 1;
	}
	check(umunmap((void *)m, 0) == 0);
	check(count_maps() < before + 200, "%d VMAs, %d before", count_maps(), before);
}

/* A large frame takes the memory of many small free frames. No frame in use is evicted for it. */
Test(pool, many_small_ones_make_room)
{
	const size_t small = 15000, large = 64 * MIB,
		     n = 4; /* each budget has four segments or more */
	uint8_t *m, *others;

	set_budget(n * large);
	m = map_nothing(n * large, large);
	for (size_t i = 0; i < n - 1; i++)
		m[i * large] = 1;
	others = map_nothing(small * 4096, 4096);
	for (size_t i = 0; i < small; i++)
		others[i * 4096] = 1;
	check(umunmap(others, 0) == 0);
	m[(n - 1) * large] = 1;
	check(stat_of(m).evictions == 0, "%" PRIu64 " evictions", stat_of(m).evictions);
	check(umunmap(m, 0) == 0);
}

static void *end_mapping(void *m)
{
	check(umunmap(m, 0) == 0);
	return NULL;
}

/* No mapping can get the addresses of another one before that has ended. */
Test(pool, neighbour_grows_meanwhile)
{
	const unsigned step = by_time(50, 10);
	const size_t n = 512;

	set_budget(BUDGET);
	for (unsigned delay = 0; delay < 1000; delay += step) {
		uint8_t *grows = map_nothing(2 * MIB, 64 * KIB),
			*ends = map_nothing(n * 4096, 4096);
		/* The mapping grows into the first segments of the other one. */
		size_t larger = (size_t)(ends - grows) + 64 * KIB;
		void *base = NULL;
		pthread_t thread;

		check(ends > grows && larger < 64 * MIB);
		/* Adjacent segments differ in rights, so that each is unmapped separately, which
		 * takes long. */
		for (size_t i = 0; i < n; i++)
			(void)((volatile uint8_t *)ends)[i * 4096];
		for (size_t i = 0; i < n; i += 2)
			ends[i * 4096] = 1;
		check(pthread_create(&thread, NULL, end_mapping, ends) == 0);
		usleep(delay);
		check(umremap(grows, larger, -1, -1, 0, &base) == 0, "%s", umerrormsg());
		memset(base, 42, larger);
		check(pthread_join(thread, NULL) == 0);
		for (size_t i = 0; i < larger; i += 4096)
			check(((volatile uint8_t *)base)[i] == 42);
		check(umunmap(base, 0) == 0);
	}
}
