/* SPDX-License-Identifier: BSD-3-Clause */
/* umunmap_onto: other pages replace a mapping while threads use it. */
#include "common.h"

#include <criterion/criterion.h>
#include <stdatomic.h>

#define SEG (64 * KIB)
#define SIZE (64 * SEG)
#define THREADS 3

struct counting {
	const uint8_t *base;
	volatile uint64_t *at; /* counters, one per segment */
	_Atomic bool *enough;
	uint64_t done;
};

static void *count(void *arg)
{
	struct counting *c = arg;

	do {
		c->done++;
		for (size_t i = 0; i < SIZE / SEG; i++) {
			volatile uint64_t *at = c->at + i * SEG / sizeof(uint64_t);

			check(*at == c->done - 1, "%" PRIu64 ", not %" PRIu64, *at, c->done - 1);
			*at = c->done;
		}
	} while (!*c->enough);
	return NULL;
}

static void *load(void *arg)
{
	struct counting *c = arg;

	do {
		for (size_t i = 0; i < SIZE / SEG; i++)
			check_bytes(c->base + i * SEG + KIB, 100, i * SEG + KIB, 1);
	} while (!*c->enough);
	return NULL;
}

static void hand_over(size_t budget, int prot, unsigned wait_us, void *(*use)(void *))
{
	_Atomic bool enough = false;
	struct counting c[THREADS];
	pthread_t thread[THREADS];
	int fd = temp_file(SIZE);
	void *m, *pages;

	set_budget(budget);
	file_fill(fd, 0, SIZE, 0, 1);
	for (size_t i = 0; i < SIZE / SEG; i++)
		check(pwrite(fd, (uint64_t[THREADS]){ 0 }, sizeof(uint64_t) * THREADS,
			     (off_t)(i * SEG)) > 0);
	m = map_file(fd, SIZE, SEG, prot, 0);
	for (size_t i = 0; i < THREADS; i++) {
		c[i] = (struct counting){ m, (volatile uint64_t *)m + i, &enough, 0 };
		check(pthread_create(&thread[i], NULL, use, &c[i]) == 0);
	}
	usleep(wait_us);
	pages = mmap(NULL, SIZE, prot, MAP_SHARED, fd, 0);
	check(pages != MAP_FAILED);
	check(umunmap_onto(m, prot & PROT_WRITE, pages) == 0, "%s", umerrormsg());
	check(umunmap(m, 0) < 0 && errno == EINVAL);
	usleep(500);
	enough = true;
	for (size_t i = 0; i < THREADS; i++)
		check(pthread_join(thread[i], NULL) == 0);
	for (size_t i = 0; i < SIZE / SEG && use == count; i++) {
		for (size_t k = 0; k < THREADS; k++)
			check(c[k].at[i * SEG / sizeof(uint64_t)] == c[k].done);
	}
	/* These addresses are now a mapping of the kernel. */
	check(msync(m, SIZE, MS_SYNC) == 0 && munmap(m, SIZE) == 0);
	close(fd);
}

Test(handover, loses_no_store)
{
	for (unsigned round = 0; round < 20; round++)
		hand_over(round % 2 ? 64 * MIB : 2 * MIB, READ_WRITE, round * 300, count);
}

Test(handover, of_what_is_loaded_from)
{
	for (unsigned round = 0; round < 20; round++)
		hand_over(round % 2 ? 64 * MIB : 2 * MIB, PROT_READ, round * 300, load);
}

/* A call that fails changes nothing. */
Test(handover, refused)
{
	uint8_t bytes[2];
	int fd = temp_file(SIZE);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0),
		*pages = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);

	check(pages != MAP_FAILED);
	check_fails(umunmap_onto(m, 1, NULL), EINVAL);
	check_fails(umunmap_onto(m, 1, pages + 1), EINVAL);
	check_fails(umunmap_onto(m + SEG, 1, pages), EINVAL);
	check(umpin(m + SEG, 1, PROT_READ) == 0);
	check_fails(umunmap_onto(m, 1, pages), EBUSY);
	m[0] = 7;
	check(umunpin(m + SEG, 1) == 0 && umunmap_onto(m, 1, pages) == 0 && m[0] == 7);
	/* A store is in the file at once. */
	m[1] = 8;
	check(munmap(m, SIZE) == 0);
	check(pread(fd, bytes, 2, 0) == 2 && bytes[0] == 7 && bytes[1] == 8);
	close(fd);
}

/* An access outside of mappings ends the process, also after a handover. */
Test(handover, other_faults_are_the_programs, .signal = SIGSEGV)
{
	volatile int *volatile nowhere = (volatile int *)64;

	hand_over(64 * MIB, PROT_READ, 0, load);
	*nowhere = 1;
}
