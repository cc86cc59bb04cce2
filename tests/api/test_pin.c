/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umpin and umunpin: ranges that a system call uses stay resident with a small budget, and data
 * that the kernel stores into them are not lost.
 */
#include <criterion/criterion.h>

#include "common.h"

#define SEG (64 * KIB)
#define BUDGET (16 * SEG)
#define SIZE (8 * BUDGET)
#define PART (4 * SEG)  /* length of most pinned ranges */
#define OLD 1
#define NEW 2
#define LATER 3

static uint8_t *map_old(int *fd, int prot)
{
	set_budget(BUDGET);
	*fd = filled_file(SIZE, OLD);
	return map_file(*fd, SIZE, SEG, prot, 0);
}

/* Loads the whole mapping, so that all segments that can be evicted are evicted. */
static void load_all(const uint8_t *m)
{
	for (size_t at = 0; at < SIZE; at += 4 * KIB)
		(void)*(const volatile uint8_t *)(m + at);
}

/* The kernel reads a file with the given contents into the mapping. */
static void kernel_stores(uint8_t *m, size_t at, size_t len, uint64_t seed)
{
	int fd = temp_file(0);

	file_fill(fd, 0, len, at, seed);
	check(pread(fd, m + at, len, 0) == (ssize_t)len);
	check(lseek(fd, 0, SEEK_SET) == 0 && read(fd, m + at, len) == (ssize_t)len);
	close(fd);
}

static void kernel_loads(const uint8_t *m, size_t at, size_t len, uint64_t seed)
{
	int fd = temp_file(0);

	check(write(fd, m + at, len) == (ssize_t)len);
	check_file(fd, 0, len, at, seed);
	close(fd);
}

/* The most recent segment stays, but if all older segments are pinned, it has to be evicted. */
Test(pin, leaves_others_to_be_evicted)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	struct umstat st = { .struct_size = sizeof(st) };
	char uri[64];
	uint8_t *m;

	set_budget(BUDGET);
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", filled_file(SIZE, OLD));
	attr.seg_size = SEG;
	attr.budget = 9 * SEG;
	for (size_t pinned = 1; pinned <= 4; pinned++) {
		check(ummap_open(uri, SIZE, 0, PROT_READ | PROT_WRITE, &attr, (void **)&m) == 0);
		check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
		check(umpin(m, pinned * SEG, PROT_READ) == 0);
		for (size_t at = 0; at < SIZE; at += SEG) {
			(void)*(const volatile uint8_t *)(m + at);
			check(umstat(m, &st) == 0);
			cr_assert_leq(st.resident_bytes + st.inactive_bytes, attr.budget,
				      "%zu pinned, byte %zu", pinned, at);
		}
		check(umunpin(m, pinned * SEG) == 0 && umunmap(m, 0) == 0);
	}
}

Test(pin, lets_the_kernel_load)
{
	int fd;
	uint8_t *m = map_old(&fd, PROT_READ);

	load_all(m);
	check(umpin(m, PART, PROT_READ) == 0);
	kernel_loads(m, 0, PART, OLD);
	load_all(m);
	kernel_loads(m, 0, PART, OLD);
	check(stat_of(m).pinned_bytes == PART, "%" PRIu64, stat_of(m).pinned_bytes);
	check(umunpin(m, PART) == 0);
	check(stat_of(m).pinned_bytes == 0);
	check(umunmap(m, 1) == 0);
	close(fd);
}

Test(pin, lets_the_kernel_store)
{
	int fd;
	uint8_t *m = map_old(&fd, READ_WRITE);

	for (size_t at = 0; at < SIZE; at += PART) {
		check(umpin(m + at, PART, READ_WRITE) == 0);
		kernel_stores(m, at, PART, NEW);
		check(umunpin(m + at, PART) == 0);
	}
	check_bytes(m, SIZE, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, NEW);
	close(fd);
}

/* No store instruction tells the library that the kernel stores again. */
Test(pin, counts_as_changed_until_unpinned)
{
	int fd;
	uint8_t *m = map_old(&fd, READ_WRITE);

	check(umpin(m + SEG, PART, READ_WRITE) == 0);
	kernel_stores(m, SEG, PART, NEW);
	check(umsync(m, 0) == 0);
	check_file(fd, SEG, PART, SEG, NEW);
	kernel_stores(m, SEG, PART, LATER);
	check(umsync_range(m, SIZE, UMMAP_EVICT) == 0);
	check_file(fd, SEG, PART, SEG, LATER);
	kernel_stores(m, SEG, PART, NEW);
	check(umunpin(m + SEG, PART) == 0);
	load_all(m);
	check_bytes(m + SEG, PART, SEG, NEW);
	check(umsync(m, 0) == 0);
	check_file(fd, SEG, PART, SEG, NEW);
	check(umunmap(m, 0) == 0);
	check_file(fd, 0, SEG, 0, OLD);
	check_file(fd, SEG + PART, SIZE - SEG - PART, SEG + PART, OLD);
	close(fd);
}

Test(pin, outlives_every_way_of_eviction)
{
	int fd;
	uint8_t *m = map_old(&fd, READ_WRITE);

	check(umpin(m, PART, READ_WRITE) == 0);
	check(umsync(m, 1) == 0);
	kernel_stores(m, 0, PART, NEW);
	check(umsync_range(m, PART, UMMAP_EVICT) == 0);
	kernel_stores(m, 0, PART, LATER);
	check(umadvise(m, SIZE, UMMAP_ADV_DONTNEED) == 0);
	kernel_stores(m, 0, PART, NEW);
	load_all(m);
	kernel_stores(m, 0, PART, LATER);
	check(umunpin(m, PART) == 0);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, PART, 0, LATER);
	check_file(fd, PART, SIZE - PART, PART, OLD);
	close(fd);
}

Test(pin, nests)
{
	int fd;
	uint8_t *m = map_old(&fd, READ_WRITE);

	check(umpin(m, PART, PROT_READ) == 0);
	check(umpin(m + SEG, PART, READ_WRITE) == 0);  /* overlaps the first range */
	check(umpin(m + SEG + 100, 1, PROT_READ) == 0);
	check(stat_of(m).pinned_bytes == PART + SEG, "%" PRIu64, stat_of(m).pinned_bytes);
	check(umunpin(m, PART) == 0);
	load_all(m);
	kernel_stores(m, SEG, PART, NEW);
	check(stat_of(m).pinned_bytes == PART);
	check(umunpin(m + SEG, PART) == 0);
	load_all(m);
	kernel_loads(m, SEG, SEG, NEW);
	check(stat_of(m).pinned_bytes == SEG);
	check(umunpin(m + SEG + 100, 1) == 0);
	check(stat_of(m).pinned_bytes == 0);
	check_fails(umunpin(m + SEG, 1), EINVAL);
	load_all(m);
	check(umunmap(m, 1) == 0);
	check_file(fd, SEG, PART, SEG, NEW);
	close(fd);
}

/* If a part of the range is not pinned, the whole call fails and removes no pin. */
Test(pin, umunpin_of_too_much_changes_nothing)
{
	int fd;
	uint8_t *m = map_old(&fd, READ_WRITE);

	check(umpin(m, PART, PROT_READ) == 0);
	check_fails(umunpin(m, PART + 1), EINVAL);
	check(stat_of(m).pinned_bytes == PART);
	check(umunpin(m, PART) == 0);
	check(umunmap(m, 0) == 0);
	close(fd);
}

Test(pin, of_more_than_the_budget_is_enomem)
{
	char says[160];
	int fd;
	uint8_t *m = map_old(&fd, READ_WRITE);

	check_fails(umpin(m, 2 * BUDGET, PROT_READ), ENOMEM);
	snprintf(says, sizeof(says),
		 "cannot pin the range of %zu bytes: it does not fit into the %zu bytes",
		 (size_t)(2 * BUDGET), (size_t)BUDGET);
	check(strstr(umerrormsg(), says), "%s", umerrormsg());
	check_fails(umpin(m, SIZE, READ_WRITE), ENOMEM);
	check(stat_of(m).pinned_bytes == 0);
	check(umpin(m, BUDGET / 2, PROT_READ) == 0);
	check_fails(umpin(m + BUDGET, BUDGET, PROT_READ), ENOMEM);  /* exceeds it with other pins */
	check(stat_of(m).pinned_bytes == BUDGET / 2);
	check_bytes(m, SIZE, 0, OLD);  /* the rest of the budget suffices to load all segments */
	check(umunpin(m, BUDGET / 2) == 0);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, OLD);
	close(fd);
}

Test(pin, too_many_on_one_segment_is_eagain)
{
	int fd;
	long pins = 0;
	uint8_t *m = map_old(&fd, READ_WRITE);

	while (pins < 1L << 22 && umpin(m + 10, 1, PROT_READ) == 0)
		pins++;
	check(pins >= 16, "%ld", pins);
	if (pins < 1L << 22)
		check_fails(umpin(m + 10, 1, PROT_READ), EAGAIN);
	for (; pins > 0; pins--)
		check(umunpin(m + 10, 1) == 0);
	check_fails(umunpin(m + 10, 1), EINVAL);
	check(umunmap(m, 0) == 0);
	close(fd);
}

struct storer {
	uint8_t *m;
	size_t first;  /* its part of the mapping; it also uses the part two further */
};

static void *store_by_turns(void *arg)
{
	struct storer *s = arg;

	for (size_t at = s->first; at + PART <= SIZE; at += 2 * PART) {
		check(umpin(s->m + at, PART, READ_WRITE) == 0);
		kernel_stores(s->m, at, PART, LATER);
		check(umunpin(s->m + at, PART) == 0);
	}
	return NULL;
}

/* Two threads pin half of the budget at a time, while a third one syncs and evicts everything. */
Test(pin, by_several_threads)
{
	struct storer storers[2];
	pthread_t threads[2];
	int fd;
	uint8_t *m = map_old(&fd, READ_WRITE);

	for (int i = 0; i < 2; i++) {
		storers[i] = (struct storer){ m, i * PART };
		check(pthread_create(&threads[i], NULL, store_by_turns, &storers[i]) == 0);
	}
	for (int i = 0; i < 20; i++)
		check(umsync(m, i % 2) == 0);
	for (int i = 0; i < 2; i++)
		check(pthread_join(threads[i], NULL) == 0);
	check_bytes(m, SIZE, 0, LATER);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE, 0, LATER);
	close(fd);
}
