/* SPDX-License-Identifier: BSD-3-Clause */
/* test_scratch.c - buffers of base/scratch.c: distinct, returned to their slots, and not lost. */
#include <criterion/criterion.h>

#include "base/scratch.h"
#include "base/sys.h"
#include "common.h"
#include "sanitizers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Buffers that are kept. */
#define SMALL ((size_t)64)
#define LARGE ((size_t)4)
#define MORE ((size_t)16) /* buffers beyond those */
#define MAX_THREADS 12    /* more than there are large buffers */

/* Any two addresses in different pages. */
static const void *nth_near(size_t n)
{
	return (const void *)(n * sys_page());
}

static void take_all(enum scratch kind, char **buffers, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		buffers[i] = scratch_take(kind, nth_near(i));
		check(buffers[i]);
		check((uintptr_t)buffers[i] % sys_page() == 0);
	}
}

static void give_all(enum scratch kind, char **buffers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		scratch_give(kind, nth_near(i), buffers[i]);
}

static int compare(const void *a, const void *b)
{
	const char *p = *(char *const *)a, *q = *(char *const *)b;

	return (p > q) - (p < q);
}

/* Checks that the n kept buffers are free, and are all of one area. */
static void check_kept(enum scratch kind, size_t n, size_t size)
{
	char *buffers[SMALL];

	take_all(kind, buffers, n);
	qsort(buffers, n, sizeof(*buffers), compare);
	for (size_t i = 0; i < n; i++)
		check(buffers[i] == buffers[0] + i * size, "buffer %zu of %zu", i, n);
	check((uintptr_t)buffers[0] % HUGE_PAGE == 0);
	give_all(kind, buffers, n);
}

/* Takes more buffers than are kept. Each has its own memory. */
static void take_many(enum scratch kind, size_t n, size_t size)
{
	char *buffers[SMALL + MORE];

	take_all(kind, buffers, n);
	for (size_t i = 0; i < n; i++)
		memset(buffers[i], (int)i + 1, size);
	for (size_t i = 0; i < n; i++)
		check(buffers[i][0] == (char)(i + 1) && buffers[i][size - 1] == (char)(i + 1));
	give_all(kind, buffers, n);
}

Test(scratch, distinct)
{
	take_many(SCRATCH_STACK, SMALL + MORE, SCRATCH_SIZE);
	take_many(SCRATCH_SMALL, SMALL + MORE, SCRATCH_SIZE);
	take_many(SCRATCH_LARGE, LARGE + MORE, SCRATCH_LARGE_SIZE);
	check_kept(SCRATCH_SMALL, SMALL, SCRATCH_SIZE);
	check_kept(SCRATCH_LARGE, LARGE, SCRATCH_LARGE_SIZE);
}

static pthread_barrier_t start;
static _Atomic bool ended;

/* Takes and returns large buffers, each with a mark of this thread. */
static void *take_and_give(void *arg)
{
	uint64_t random = (uintptr_t)arg + 1;

	pthread_barrier_wait(&start);
	while (!ended) {
		const void *near = nth_near(next_random(&random));
		char *buffer = scratch_take(SCRATCH_LARGE, near);
		void *_Atomic *mark = (void *_Atomic *)buffer;

		check(buffer);
		*mark = arg;
		if (next_random(&random) % 64 == 0)
			sched_yield();
		check(*mark == arg, "another thread has the same buffer");
		/* As if another thread had used the slot meanwhile. */
		scratch_give(SCRATCH_LARGE, nth_near(next_random(&random)), buffer);
	}
	return NULL;
}

/* No buffer is lost while n threads take and return buffers. */
static void run_threads(unsigned n)
{
	pthread_t threads[MAX_THREADS];

	check(pthread_barrier_init(&start, NULL, n) == 0);
	ended = false;
	for (size_t i = 0; i < n; i++)
		check(pthread_create(&threads[i], NULL, take_and_give, (char *)nth_near(i)) == 0);
	pause_ms((unsigned)(stress_seconds(1, 20) * 1000));
	ended = true;
	for (size_t i = 0; i < n; i++)
		check(pthread_join(threads[i], NULL) == 0);
	check_kept(SCRATCH_LARGE, LARGE, SCRATCH_LARGE_SIZE);
}

Test(scratch, two_threads)
{
	run_threads(2);
}

Test(scratch, more_threads_than_buffers)
{
	run_threads(MAX_THREADS);
}

static void use_in_child(void *area)
{
	/* The child does not have the memory of the parent's buffers. */
	check(msync(area, sys_page(), MS_ASYNC) < 0 && errno == ENOMEM);
	scratch_forget();
	take_many(SCRATCH_STACK, SMALL + MORE, SCRATCH_SIZE);
	take_many(SCRATCH_LARGE, LARGE + MORE, SCRATCH_LARGE_SIZE);
	check_kept(SCRATCH_LARGE, LARGE, SCRATCH_LARGE_SIZE);
}

/* A child has all buffers, also those that threads of the parent have taken. */
Test(scratch, child)
{
	char *buffers[LARGE], *stack = scratch_take(SCRATCH_STACK, NULL);

	check(stack);
	scratch_give(SCRATCH_STACK, NULL, stack);
	take_all(SCRATCH_LARGE, buffers, LARGE);
	buffers[0][0] = 1;
	check_exits(run_child(use_in_child, buffers[0]), 0);
	give_all(SCRATCH_LARGE, buffers, LARGE);
	check_kept(SCRATCH_LARGE, LARGE, SCRATCH_LARGE_SIZE);
}

/* If there is no address space for all buffers, those that were mapped one by one are kept. */
static void use_little(void *none)
{
	struct rlimit limit;
	char *buffer;

	(void)none;
	limit.rlim_cur = limit.rlim_max = status_bytes("VmSize") + MIB;
	check(setrlimit(RLIMIT_AS, &limit) == 0);
	buffer = scratch_take(SCRATCH_SMALL, NULL);
	check(buffer);
	*buffer = 1;
	scratch_give(SCRATCH_SMALL, NULL, buffer);
	check(scratch_take(SCRATCH_SMALL, NULL) == buffer && *buffer == 1);
}

Test(scratch, little_address_space)
{
	if (SANITIZED)
		cr_skip("the sanitizers need address space");
	check_exits(run_child(use_little, NULL), 0);
}
