/* SPDX-License-Identifier: BSD-3-Clause */
/* Drivers that must not run in a signal handler: other threads make their calls, and no background
 * job can block these. */
#include "common.h"

#include <criterion/criterion.h>
#include <pthread.h>

#define SEG ((size_t)16 * KIB)
#define SEGS ((size_t)128)
#define THREADS 8
#define ROUNDS 300

static uint64_t *words;
static _Atomic unsigned running;

/* Each thread has a word in each segment. */
static void *store(void *arg)
{
	size_t self = (size_t)(uintptr_t)arg;
	uint64_t random = self + 1;

	for (int k = 0; k < ROUNDS; k++)
		words[next_random(&random) % SEGS * (SEG / 8) + self]++;
	running--;
	return NULL;
}

/* Checks the sums of the stores of all threads. */
static void check_words(void)
{
	for (size_t self = 0; self < THREADS; self++) {
		uint64_t random = self + 1, *wanted = calloc(SEGS, sizeof(*wanted));

		for (int k = 0; k < ROUNDS; k++)
			wanted[next_random(&random) % SEGS]++;
		for (size_t i = 0; i < SEGS; i++)
			cr_assert_eq(words[i * (SEG / 8) + self], wanted[i],
				     "thread %zu, segment %zu", self, i);
		free(wanted);
	}
}

static void folder_of_plugins(void)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 16);

	cr_assert_gt(n, 0);
	path[n] = '\0';
	strcpy(strrchr(path, '/'), "/plugins");
	set_env("UMMAP_DRIVER_PATH", path);
}

Test(worker, jobs_do_not_hold_up_calls, .timeout = 120)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	pthread_t thread[THREADS];
	void *addr = NULL;
	uint64_t random = 99;

	folder_of_plugins();
	set_budget(SEGS * SEG / 8);
	attr.seg_size = SEG;
	cr_assert_eq(ummap_open("plain+mem:2M", SEGS * SEG, 0, READ_WRITE, &attr, &addr), 0, "%s",
		     umerrormsg());
	words = addr;
	running = THREADS;
	for (size_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&thread[i], NULL, store, (void *)(uintptr_t)i), 0);
	while (running > 0) {
		size_t i = next_random(&random) % (SEGS / 2);

		cr_assert_eq(umsync_range((char *)addr + i * SEG, SEGS / 2 * SEG, UMMAP_ASYNC), 0,
			     "%s", umerrormsg());
		usleep(500);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	check_words();
	cr_expect_eq(umsync(addr, 1), 0, "%s", umerrormsg());
	check_words();
	cr_expect_eq(umunmap(addr, 1), 0);
}
