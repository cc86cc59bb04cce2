/* SPDX-License-Identifier: BSD-3-Clause */
/* leases.h - tests of back ends whose holds are leases that expire: RADOS and S3. */
#ifndef TESTS_OBJECT_LEASES_H
#define TESTS_OBJECT_LEASES_H

#include "object.h"

#include <signal.h>

static inline void run_program(const char *name, const char *argument)
{
	char text[600];

	snprintf(text, sizeof(text), "%s/../tests/%s %s", OBJECT_PLUGINS, name, argument);
	check(system(text) == 0, "%s", text);
}

/* ---- An array that is one number in all places ---- */

#define SIDE 256
static const struct umobject_shape shape = { .type = UMOBJECT_UINT64, .rank = 2, .dims = { SIDE,
	SIDE }, .chunk = { 64, 64 } };
static uint64_t data[SIDE * SIDE];

static inline int put_number(umobject_container *c, const char *name, uint64_t number)
{
	for (unsigned i = 0; i < SIDE * SIDE; i++)
		data[i] = number;
	return umobject_put_array(c, name, &shape, data);
}

static inline uint64_t get_number(umobject_container *c, const char *name)
{
	good(umobject_get(c, name, NULL, NULL, data));
	for (unsigned i = 1; i < SIDE * SIDE; i++)
		check(data[i] == data[0], "%s is a mixture", name);
	return data[0];
}

/* ---- A writer that is away ---- */

static inline void wait_for_others(void *unused)
{
	umobject_container *c = open_box(box(), 0, 0);
	umobject_version *v;
	umobject_put *p;

	(void)unused;
	good(umobject_begin(c, "one", &shape, &p, NULL));
	memset(data, 0, sizeof(data));
	for (uint64_t i = 0; i < umobject_chunks(&shape); i++)
		good(umobject_put_chunk(p, i, data));
	good(umobject_put_sync(p));
	raise(SIGSTOP);
	good(umobject_put_chunk(p, 3, data));
	refused(umobject_commit(p, 0, NULL), ESTALE, "lease of 2 s");
	good(umobject_hold(c, "one", 0, &v));
	check(stat_held(v).version == 1);
	umobject_release(v);
	umobject_close(c);
}

static inline void test_lost_lease(void *unused)
{
	umobject_container *c = new_box(1);
	int status;
	pid_t pid;

	(void)unused;
	good(put_number(c, "one", 5));
	umobject_close(c);
	pid = start_child(wait_for_others, NULL);
	check(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	c = open_box(box(), 0, 0);
	check(count_stored(VERSIONS) == 2);
	for (unsigned i = 0; i < 60 && count_stored(VERSIONS) != 1; i++) {
		good(umobject_gc(c, NULL));
		pause_ms(500);
	}
	check(count_stored(VERSIONS) == 1 && count_stored(CHUNKS) == 16);
	kill(pid, SIGCONT);
	check_exits(wait_child(pid), 0);
	good(umobject_gc(c, NULL));
	check(count_stored(CHUNKS) == 16 && get_number(c, "one") == 5);
	umobject_close(c);
}

/* The collector leaves a put alone that lasts longer than its lease. */
static inline void test_put_and_get(void *unused)
{
	umobject_container *c = new_box(1), *d = open_box(box(), 0, 0);
	umobject_put *p;
	double end = now() + 5;

	(void)unused;
	good(umobject_begin(c, "one", &shape, &p, NULL));
	memset(data, 0, sizeof(data));
	for (uint64_t i = 0; i < umobject_chunks(&shape); i++)
		good(umobject_put_chunk(p, i, data));
	good(umobject_put_sync(p));
	while (now() < end) {
		good(umobject_gc(d, NULL));
		pause_ms(100);
	}
	good(umobject_commit(p, 0, NULL));
	check(get_number(d, "one") == 0);
	umobject_close(d);
	umobject_close(c);
}

#endif
