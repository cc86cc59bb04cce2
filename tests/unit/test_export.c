/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_export.c - the owner's side of exported mappings: the end of one mapping leaves the lock alone that a thread holds
 * for another one. fcntl(2) is replaced, so that a thread stays within the lock until it may go on.
 */
#include <criterion/criterion.h>

#include "common.h"
#include "peer/export.h"

#define SEGS 4
#define SEG (64 * KIB)
#define EXPORTS 3
#define WAIT_MS 200 /* for a second thread that would pass the lock at once */

static _Atomic bool holds;      /* threads stop in fcntl(2) as they clear a line */
static _Atomic unsigned inside; /* number of threads that are there */

int fcntl(int fd, int cmd, ...)
{
	long arg;
	va_list args;
	int result;

	va_start(args, cmd);
	arg = va_arg(args, long);
	va_end(args);
	result = (int)syscall(SYS_fcntl, fd, cmd, arg);
	if (cmd == F_OFD_SETLK && holds) {
		inside++;
		while (holds)
			pause_ms(1);
		inside--;
	}
	return result;
}

/* An importer has died in segment 0: its slot is cleared by the thread that waits. */
static void *wait_for_dead(void *arg)
{
	struct export *r = arg;

	export_wait(r, r->segs);
	return NULL;
}

static void wait_for_number(unsigned n, unsigned ms)
{
	for (unsigned i = 0; inside < n && i < ms; i++)
		pause_ms(1);
}

Test(export, close_leaves_the_lock_of_another_thread)
{
	struct export exports[EXPORTS];
	pthread_t threads[2];

	for (int i = 0; i < EXPORTS; i++) {
		check(export_open(&exports[i], SEGS * SEG, SEG, SEGS) == 0);
		exports[i].lines->used = 1;
		exports[i].lines->line[0].slot[0] = 1;
	}
	holds = true;
	check(pthread_create(&threads[0], NULL, wait_for_dead, &exports[0]) == 0);
	wait_for_number(1, UINT32_MAX);
	export_close(&exports[2]);
	check(pthread_create(&threads[1], NULL, wait_for_dead, &exports[1]) == 0);
	wait_for_number(2, WAIT_MS);
	check(inside == 1, "%u threads hold one lock", inside);
	holds = false;
	for (int i = 0; i < 2; i++) {
		check(pthread_join(threads[i], NULL) == 0);
		check(exports[i].lines->line[0].slot[0] == 0);
		export_close(&exports[i]);
	}
}
