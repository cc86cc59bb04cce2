/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flushes that fail and lose data: data in memory are written again, and the loss of other data is
 * reported until the mapping ends. The driver of this test acts as the kernel may: data written
 * since the last flush can be read, but a flush that fails reports it once and loses them.
 */
#include <criterion/criterion.h>
#include <ummap-driver.h>

#include "common.h"
#include "uffd.h"
#include "paging/mapping/lookup.h"
#include "paging/fault/segment.h"
#include "paging/sync/writeback.h"

#define SEG (16 * KIB)
#define SEGS ((size_t)64)
#define SIZE (SEGS * SEG)
#define STORE_SIZE (2 * SIZE)
#define OLD 1
#define NEW 2

static uint8_t accepted[STORE_SIZE], durable[STORE_SIZE];
static _Atomic bool pending[STORE_SIZE / SEG]; /* segments written since the last flush */
static _Atomic unsigned failing;          /* number of flushes that fail */
static _Atomic unsigned flushes, handles;
static _Atomic bool slow;                 /* a write at offset 0 waits for the next flush */
static _Atomic bool arrived;              /* that write has begun */

static int weak_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri, (void)oflags;
	fill(accepted, STORE_SIZE, 0, OLD);
	memcpy(durable, accepted, STORE_SIZE);
	*h = accepted;
	geom->size = STORE_SIZE;
	geom->align = 1;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_FAULTSAFE | UMMAP_CAP_PARALLEL;
	handles++;
	return 0;
}

static int weak_close(void *h)
{
	(void)h;
	handles--;
	return 0;
}

static int weak_read(void *h, void *buf, size_t len, uint64_t off)
{
	memcpy(buf, (uint8_t *)h + off, len);
	return 0;
}

static int weak_write(void *h, const void *buf, size_t len, uint64_t off)
{
	unsigned before = flushes;

	memcpy((uint8_t *)h + off, buf, len);
	pending[off / SEG] = true;
	if (slow && off == 0) {
		arrived = true;
		/* After a failed check, no flush may come. */
		for (int ms = 0; flushes == before && ms < 10000; ms++)
			pause_ms(1);
	}
	return 0;
}

static int weak_flush(void *h, uint64_t off, uint64_t len)
{
	bool fails = failing > 0;

	(void)off, (void)len;
	failing -= fails;
	for (size_t i = 0; i < STORE_SIZE / SEG; i++) {
		if (atomic_exchange(&pending[i], false) && !fails)
			memcpy(durable + i * SEG, (uint8_t *)h + i * SEG, SEG);
	}
	flushes++;
	return fails ? -ENOSPC : 0;
}

static const struct ummap_driver weak = {
	.struct_size = sizeof(weak),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "weak",
	.help = "loses data on failed flushes",
	.open = weak_open,
	.close = weak_close,
	.read = weak_read,
	.write = weak_write,
	.flush = weak_flush,
};

static uint8_t *map_weak(size_t budget, int engine)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	set_budget(budget);
	check(ummap_driver_register(&weak) == 0);
	attr.seg_size = SEG;
	attr.engine = engine;
	check(ummap_open("weak:x", SIZE, 0, READ_WRITE, &attr, &m) == 0);
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	return m;
}

static void check_durable(size_t from, size_t off, size_t len, uint64_t seed)
{
	check_bytes(durable + from + off, len, off, seed);
}

/* Each call that makes data durable reports the loss. */
static void check_lost(uint8_t *m, uint64_t bytes)
{
	void *base = m;

	check(stat_of(m).lost_bytes == bytes, "%" PRIu64, stat_of(m).lost_bytes);
	for (int i = 0; i < 2; i++) {
		check_fails(umsync(m, 0), EIO);
		check(strstr(umerrormsg(), "have left memory") &&
			      strstr(umerrormsg(), strerror(ENOSPC)),
		      "%s", umerrormsg());
		check_fails(umsync_range(m, 1, 0), EIO);
		check_fails(umunmap(m, 1), EIO);
		check_fails(umremap(m, 0, -1, -1, UMMAP_SYNC, &base), EIO);
	}
	check(stat_of(m).dirty_bytes == 0, "all other data are written");
	check(stat_of(NULL).lost_bytes == bytes);
}

/* Three quarters were evicted before the flush fails. Segments in memory, and later stores, become
 * durable. */
static void lose(void *engine)
{
	uint8_t *m = map_weak(SIZE / 4, *(int *)engine);
	size_t safe = 0;

	fill(m, SIZE, 0, NEW);
	failing = 1;
	check_fails(umsync(m, 0), EIO);
	check_lost(m, SIZE / 4 * 3);
	for (size_t i = 0; i < SEGS; i++)
		safe += durable[i * SEG + 1] == pattern(i * SEG + 1, NEW) &&
			durable[i * SEG] == pattern(i * SEG, NEW);
	check(safe == SEGS / 4, "%zu", safe);
	check_bytes(m, SIZE, 0, NEW);
	fill(m + SEG, SEG, SEG, 3);
	check_fails(umsync(m, 1), EIO);
	check_durable(0, SEG, SEG, 3);
	check(umunmap(m, 0) == 0);
	check(handles == 0 && stat_of(NULL).lost_bytes == SIZE / 4 * 3);
}

/* Runs a test with each engine, because they treat frames differently. */
static void check_with_engines(void (*body)(void *engine))
{
	int segv = UMMAP_ENGINE_SEGV, uffd = UMMAP_ENGINE_UFFD;

	check_exits(run_child(body, &segv), 0);
	if (has_uffd())
		check_exits(run_child(body, &uffd), 0);
}

Test(doubt, of_what_has_left)
{
	check_with_engines(lose);
}

/* No segment was evicted: all are written again, and the error is reported once. */
static void keep(void *engine)
{
	uint8_t *m = map_weak(2 * SIZE, *(int *)engine);

	fill(m, SIZE, 0, NEW);
	failing = 2;
	check_fails(umsync(m, 0), ENOSPC);
	check(stat_of(m).dirty_bytes == SIZE && stat_of(m).lost_bytes == 0);
	check_fails(umsync(m, 0), ENOSPC);
	check(umsync(m, 1) == 0);
	check_durable(0, 0, SIZE, NEW);
	fill(m, SEG, 0, 3);
	check(umunmap(m, 1) == 0);
	check_durable(0, 0, SEG, 3);
}

Test(doubt, of_what_is_in_memory)
{
	check_with_engines(keep);
}

/* A segment that was loaded again has the data of the store, not a copy of the written data. */
Test(doubt, of_what_came_back)
{
	uint8_t *m = map_weak(2 * SIZE, UMMAP_ENGINE_SEGV);

	fill(m, 3 * SEG, 0, NEW);
	check(umsync_range(m, 3 * SEG, UMMAP_NOFLUSH | UMMAP_EVICT) == 0);
	check_bytes(m, SEG, 0, NEW);
	m[SEG] = 0;
	failing = 1;
	check_fails(umsync(m, 0), EIO);
	check_lost(m, 3 * SEG);
	check(umunmap(m, 0) == 0);
}

/* Segments that were evicted after a successful flush, or were only read, are not lost. */
Test(doubt, of_nothing_else)
{
	uint8_t *m = map_weak(SIZE / 4, UMMAP_ENGINE_SEGV);

	fill(m, SIZE, 0, NEW);
	check(umsync(m, 1) == 0);
	for (size_t i = 0; i < SIZE / 2; i += SEG)
		check(m[i] == pattern(i, NEW));
	fill(m + SIZE / 2, SEG, SIZE / 2, 3);
	failing = 1;
	check_fails(umsync(m, 0), ENOSPC);
	check(stat_of(m).lost_bytes == 0);
	check(umsync(m, 0) == 0);
	check_durable(0, SIZE / 2, SEG, 3);
	check(umunmap(m, 1) == 0);
}

/* ---- A write during the flush ---- */

/* Writes as the background thread does. */
static void *write_slowly(void *m)
{
	struct mapping *map = map_find(m);

	check(seg_unmap_all(map, 0, 1) == 0);
	check(writeback_inactive(map_account(map), map));
	map_leave(map);
	return NULL;
}

/* The write ends after the flush has failed, and is lost with it. */
Test(doubt, of_a_write_on_its_way)
{
	uint8_t *m = map_weak(2 * SIZE, UMMAP_ENGINE_SEGV);
	pthread_t other;

	fill(m, 2 * SEG, 0, NEW);
	slow = true;
	check(pthread_create(&other, NULL, write_slowly, m) == 0);
	while (!arrived)
		pause_ms(1);
	failing = 1;
	check_fails(umsync_range(m + SEG, SEG, 0), ENOSPC);
	check(pthread_join(other, NULL) == 0);
	slow = false;
	check(umsync(m, 0) == 0);
	check_durable(0, 0, 2 * SEG, NEW);
	check(umunmap(m, 1) == 0);
}

/* ---- A write during a commit ---- */

/* A thread that has looked for an inactive segment just before the commit began writes a pending
 * segment, but not the adjacent one, which is newer than the commit. */
static void write_pending(uint8_t *m, size_t pending_segment, size_t newer)
{
	struct umsync_handle *commit;
	struct mapping *map;
	bool has_written;

	fill(m, 4 * SEG, 0, NEW);
	check(umsync_range(m + SEG, SEG, 0) == 0);
	slow = true;
	arrived = false;
	check(umsync_begin(m, 0, &commit) == 0);
	while (!arrived)
		pause_ms(1);
	fill(m + newer * SEG, SEG, newer * SEG, 3);
	map = map_find(m);
	check(seg_unmap_all(map, pending_segment, pending_segment + 1) == 0);
	check(seg_unmap_all(map, newer, newer + 1) == 0);
	map->member.retry = 0;
	has_written = writeback_inactive(map_account(map), map);
	map_leave(map);
	slow = false;
	flushes++;
	check(umsync_wait(&commit) == 0);
	check(has_written);
	check_durable(0, 2 * SEG, 2 * SEG, NEW);
	check(umsync(m, 0) == 0);
	check_durable(0, newer * SEG, SEG, 3);
}

Test(doubt, of_what_is_newer_than_a_commit)
{
	uint8_t *m = map_weak(2 * SIZE, UMMAP_ENGINE_SEGV);

	write_pending(m, 2, 3);
	write_pending(m, 3, 2);
	check(umunmap(m, 1) == 0);
}

/* ---- Migration ---- */

/* Migrates after flushes that succeeded, so that segments without a flush do not count as new. */
static uint8_t *migration(uint8_t *m)
{
	void *base = NULL;

	for (int i = 0; i < 3; i++) {
		((volatile uint8_t *)m)[0] = pattern(0, OLD);
		check(umsync(m, 0) == 0);
	}
	check(umremap(m, 0, -1, SIZE, 0, &base) == 0);
	return base;
}

/* Segments that were not changed are written to the new place, too, and are lost with it. */
Test(doubt, of_what_is_carried)
{
	uint8_t *m = map_weak(2 * SIZE, UMMAP_ENGINE_SEGV);

	check_bytes(m, SIZE, 0, OLD);
	m = migration(m);
	failing = 1;
	check_fails(umsync(m, 0), ENOSPC);
	check(umsync(m, 0) == 0);
	check_durable(SIZE, 0, SIZE, OLD);
	check(umunmap(m, 1) == 0);
}

Test(doubt, of_what_was_carried_and_left)
{
	uint8_t *m = map_weak(SIZE / 4, UMMAP_ENGINE_SEGV);

	m = migration(m);
	failing = 1;
	check_fails(umsync(m, 0), EIO);
	check_lost(m, SIZE - SIZE / 4);
	check(umunmap(m, 0) == 0);
}

/* Segments that are read from the old place must be durable there first. */
Test(doubt, of_what_is_to_be_carried)
{
	uint8_t *m = map_weak(SIZE / 4, UMMAP_ENGINE_SEGV);
	void *base = NULL;

	fill(m, SIZE, 0, NEW);
	failing = 1;
	check_fails(umremap(m, 0, -1, SIZE, 0, &base), EIO);
	check_lost(m, SIZE / 4 * 3);
	/* The loss does not affect a mapping that has switched to another store. */
	check(umremap(m, 0, -1, SIZE, UMMAP_SWITCH, &base) == 0 && base == m);
	check(stat_of(m).lost_bytes == 0);
	fill(m, SIZE, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_durable(SIZE, 0, SIZE, NEW);
}
