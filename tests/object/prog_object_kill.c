/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * prog_object_kill - two writers and two readers of one name, and the collector, are killed and
 * restarted. Every get returns one whole version, whose number never falls, and the remainders of
 * killed processes are garbage. Argument: number of kills.
 */
#include "object.h"

#include <signal.h>

#define SIDE 96
#define CHUNK 32
#define BYTES (SIDE * SIDE * sizeof(uint64_t))

static const struct umobject_shape shape = { .type = UMOBJECT_UINT64, .rank = 2, .dims = { SIDE,
	SIDE }, .chunk = { CHUNK, CHUNK } };

/* All elements of a version have one value. */
static void put_number(umobject_container *c, uint64_t number)
{
	static uint64_t data[SIDE * SIDE];

	for (unsigned i = 0; i < SIDE * SIDE; i++)
		data[i] = number;
	good(umobject_put_array(c, "one", &shape, data));
}

/* All chunks of the held version get another value. */
static void change_number(umobject_container *c, uint64_t number)
{
	static uint64_t chunk[CHUNK * CHUNK];
	umobject_version *v;
	umobject_put *p;

	for (unsigned i = 0; i < CHUNK * CHUNK; i++)
		chunk[i] = number;
	good(umobject_hold(c, "one", 0, &v));
	good(umobject_begin_from(v, &p, NULL));
	for (uint64_t i = 0; i < umobject_chunks(&shape); i++)
		good(umobject_put_chunk(p, i, chunk));
	good(umobject_commit(p, 0, NULL));
	umobject_release(v);
}

static void write_forever(void *arg)
{
	umobject_container *c = open_box(box(), 0, 0);

	for (uint64_t n = (uintptr_t)arg << 32;; n++)
		if (n % 2)
			put_number(c, n);
		else
			change_number(c, n);
}

static void read_once(umobject_container *c, uint64_t *newest)
{
	static uint64_t got[SIDE * SIDE];
	umobject_version *v;
	struct umobject_stat st;

	good(umobject_hold(c, "one", 0, &v));
	st = stat_held(v);
	check(st.version >= *newest, "version %" PRIu64 " after %" PRIu64, st.version, *newest);
	*newest = st.version;
	good(umobject_read(v, NULL, NULL, got));
	for (unsigned i = 1; i < SIDE * SIDE; i++)
		check(got[i] == got[0], "version %" PRIu64 " is a mixture: %" PRIx64 " and %"
		      PRIx64, st.version, got[0], got[i]);
	umobject_release(v);
}

static void read_forever(void *unused)
{
	umobject_container *c = open_box(box(), UMOBJECT_READ_ONLY, 0);
	uint64_t newest = 0;

	(void)unused;
	for (;;)
		read_once(c, &newest);
}

static void collect_forever(void *unused)
{
	umobject_container *c = open_box(box(), 0, 0);

	(void)unused;
	for (;;)
		good(umobject_gc(c, NULL));
}

static void (*const roles[])(void *) = { write_forever, write_forever, read_forever,
	read_forever, collect_forever };
#define ROLES (sizeof(roles) / sizeof(*roles))

int main(int argc, char **argv)
{
	unsigned kills = argc > 1 ? (unsigned)atoi(argv[1]) : by_time(40, 500);
	umobject_container *c = new_box(1);
	uint64_t seed = 3, newest = 0;
	pid_t pids[ROLES];

	put_number(c, 1);
	umobject_close(c);
	for (uintptr_t i = 0; i < ROLES; i++)
		pids[i] = start_child(roles[i], (void *)(i + 1));
	for (unsigned k = 0; k < kills; k++) {
		unsigned i = (unsigned)(next_random(&seed) % ROLES);

		pause_ms((unsigned)(next_random(&seed) % 40));
		kill(pids[i], SIGKILL);
		/* A process that has found a mixed version has ended by itself. */
		check_killed(wait_child(pids[i]), SIGKILL);
		pids[i] = start_child(roles[i], (void *)(uintptr_t)(k + 10));
	}
	for (unsigned i = 0; i < ROLES; i++) {
		kill(pids[i], SIGKILL);
		check_killed(wait_child(pids[i]), SIGKILL);
	}
	c = open_box(box(), 0, 0);
	read_once(c, &newest);
	good(umobject_gc(c, NULL));
	/* The holds of killed processes end some time later: when the kernel has written a file, or
	 * when a lease in RADOS has expired. */
	for (unsigned i = 0; i < 600 && count_stored(VERSIONS) != 1; i++) {
		pause_ms(100);
		good(umobject_gc(c, NULL));
	}
	check(count_stored(VERSIONS) == 1, "%u versions", count_stored(VERSIONS));
	check(count_stored(CHUNKS) <= umobject_chunks(&shape), "%u chunks", count_stored(CHUNKS));
	read_once(c, &newest);
	umobject_close(c);
	return 0;
}
