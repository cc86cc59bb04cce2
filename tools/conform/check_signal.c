/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The check of calls inside a signal handler. A second thread sends signals while this one is busy
 * with malloc and stdio; a handler that allocates would wait for a lock that this thread
 * holds. If allocations are watched (watch_malloc.c), it fails the check at once.
 */
#include "conform.h"
#include "watch_malloc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIGNALS 400
#define LEN 6000

static struct handle subject;
static unsigned char *buf;
static pthread_t busy;
static atomic_int served;
static atomic_bool enough;

static void read_async(size_t off)
{
	struct ummap_io io = { .op = UMMAP_IO_READ, .buf = buf, .len = LEN, .off = off },
			*one = &io;
	int n = subject.driver.submit(subject.h, &one, 1);

	expect(n == 1, "submit of one request in a signal handler: %s", error_name(n));
	n = subject.driver.reap(subject.h, &one, 1, 1);
	expect(n == 1 && one == &io && io.res == 0, "reap in a signal handler: %s",
	       error_name(n == 1 ? io.res : n));
}

static void transfer(void)
{
	size_t off = random_below(facts->size - LEN);

	if (facts->writable && served % 3 == 1) {
		memcpy(buf, shadow + off, LEN);
		buf[0]++;
		handle_write(&subject, buf, LEN, off);
		shadow_write(off, buf, LEN);
	} else if (facts->writable && served % 30 == 2) {
		handle_flush(&subject);
	} else {
		if (served % 3 == 0 && handle_can(&subject, UMMAP_CAP_ASYNC))
			read_async(off);
		else
			handle_read(&subject, buf, LEN, off);
		shadow_compare(buf, LEN, off, "in a signal handler");
	}
}

static void serve(int sig)
{
	(void)sig;
	watch_begin();
	handle_size(&subject);
	if (handle_can(&subject, UMMAP_CAP_FAULTSAFE))
		transfer();
	watch_end();
	served++;
}

static void *send_signals(void *unused)
{
	const struct timespec pause = { 0, 200000 };

	(void)unused;
	for (int i = 0; i < SIGNALS; i++) {
		int before = served;

		pthread_kill(busy, SIGUSR1);
		while (served == before)
			nanosleep(&pause, NULL);
	}
	enough = true;
	return NULL;
}

void check_signal(void)
{
	struct sigaction action = { .sa_handler = serve, .sa_flags = SA_RESTART };
	FILE *null = fopen("/dev/null", "w");
	void *volatile kept[16] = { NULL };
	pthread_t sender;

	handle_fill(&subject);
	if (!handle_can(&subject, UMMAP_CAP_FAULTSAFE) && !subject.driver.size)
		skip("UMMAP_CAP_FAULTSAFE is not set, and size is NULL");
	buf = memory(LEN);
	busy = pthread_self();
	sigaction(SIGUSR1, &action, NULL);
	doing("calls in a signal handler that interrupts malloc and stdio");
	expect(null && pthread_create(&sender, NULL, send_signals, NULL) == 0,
	       "pthread_create failed");
	for (size_t i = 0; !enough; i++) {
		free(kept[i % COUNT(kept)]);
		kept[i % COUNT(kept)] = malloc(2000 + i % 100 * 50);
		fprintf(null, "%zu\n", i);
	}
	pthread_join(sender, NULL);
	for (size_t i = 0; i < COUNT(kept); i++)
		free(kept[i]);
	fclose(null);
	shadow_compare_all(&subject, "after writes in a signal handler");
	handle_close(&subject);
}
