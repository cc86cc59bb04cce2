/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owner's side of exported mappings: the end of one mapping does not release the lock that a
 * thread holds for another one. fcntl(2) is replaced, so that a thread stays in the locked section
 * until the test lets it continue.
 */
#include <criterion/criterion.h>

#include "common.h"
#include "peer/export.h"

#define SEGS 4
#define SEG (64 * KIB)
#define EXPORTS 3

static _Atomic bool holds;      /* threads wait in fcntl(2) when they clear a line */
static _Atomic unsigned inside; /* number of threads that wait there */
static _Atomic pid_t waiter;    /* the thread that began to wait last */

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

/* Waits for the access of an importer that has died, and clears its slot. */
static void *wait_for_dead(void *arg)
{
	struct export *e = arg;

	waiter = gettid();
	export_wait(e, e->segs);
	return NULL;
}

/* Whether the thread waits for a lock: it is in futex(2) without a timeout. */
static bool waits_for_lock(pid_t thread)
{
	unsigned long call = 0, word, op, value, timeout = 1;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)thread);
	f = fopen(path, "re");
	check(f, "%s", path);
	if (fscanf(f, "%lu %lx %lx %lx %lx", &call, &word, &op, &value, &timeout) != 5)
		call = 0;
	fclose(f);
	return call == SYS_futex && timeout == 0;
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
	while (inside < 1)
		pause_ms(1);
	export_close(&exports[2]);
	waiter = 0;
	check(pthread_create(&threads[1], NULL, wait_for_dead, &exports[1]) == 0);
	while (inside < 2 && !(waiter && waits_for_lock(waiter)))
		pause_ms(1);
	check(inside == 1, "%u threads hold one lock", inside);
	holds = false;
	for (int i = 0; i < 2; i++) {
		check(pthread_join(threads[i], NULL) == 0);
		check(exports[i].lines->line[0].slot[0] == 0);
		export_close(&exports[i]);
	}
}
