/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which writes of a sync are in flight at the same time, and what happens to the others when one
 * fails. The driver is part of the test, and completes requests only when they are reaped.
 */
#include <criterion/criterion.h>
#include <ummap-driver.h>

#include "common.h"

#define SEG (16 * KIB)
#define SEGS ((size_t)256)
#define SIZE (SEGS * SEG)
#define DEPTH 64

static uint8_t store[SIZE], durable[SIZE]; /* data that were written, and data that were flushed */
static struct ummap_io *waiting[DEPTH];
static unsigned n_waiting, most_waiting;
static uint64_t fails_at = UINT64_MAX; /* offset at which a write fails */

static int lazy_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)uri, (void)oflags;
	*h = store;
	geom->size = SIZE;
	geom->align = 1;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_FAULTSAFE | UMMAP_CAP_ASYNC;
	return 0;
}

static int lazy_close(void *h)
{
	(void)h;
	return 0;
}

static int lazy_read(void *h, void *buf, size_t len, uint64_t off)
{
	memcpy(buf, (uint8_t *)h + off, len);
	return 0;
}

static int lazy_write(void *h, const void *buf, size_t len, uint64_t off)
{
	if (off == fails_at)
		return -EIO;
	memcpy((uint8_t *)h + off, buf, len);
	return 0;
}

static int lazy_submit(void *h, struct ummap_io **io, unsigned n)
{
	unsigned taken = 0;

	(void)h;
	while (taken < n && n_waiting < DEPTH)
		waiting[n_waiting++] = io[taken++];
	most_waiting = n_waiting > most_waiting ? n_waiting : most_waiting;
	return (int)taken;
}

static int lazy_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	unsigned n = 0;

	(void)min;
	while (n_waiting > 0 && n < max) {
		struct ummap_io *io = waiting[--n_waiting];

		io->res = io->op == UMMAP_IO_READ ? lazy_read(h, io->buf, io->len, io->off) :
						    lazy_write(h, io->buf, io->len, io->off);
		done[n++] = io;
	}
	return (int)n;
}

static int lazy_flush(void *h, uint64_t off, uint64_t len)
{
	(void)off, (void)len;
	memcpy(durable, h, SIZE);
	return 0;
}

static const struct ummap_driver lazy = {
	.struct_size = sizeof(lazy),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "lazy",
	.help = "memory with delayed writes",
	.open = lazy_open,
	.close = lazy_close,
	.read = lazy_read,
	.write = lazy_write,
	.submit = lazy_submit,
	.reap = lazy_reap,
	.flush = lazy_flush,
};

/* Returns a mapping with a change in each `step`th segment, and no write yet. */
static uint8_t *map_changed(size_t step)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	set_budget(2 * SIZE);
	check(ummap_driver_register(&lazy) == 0);
	attr.seg_size = SEG;
	attr.engine = UMMAP_ENGINE_SEGV;
	check(ummap_open("lazy:x", SIZE, 0, READ_WRITE, &attr, &m) == 0);
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	for (size_t i = 0; i < SEGS; i += step)
		fill((uint8_t *)m + i * SEG, SEG, i * SEG, 7);
	most_waiting = 0;
	return m;
}

static void check_store(size_t step, size_t but)
{
	for (size_t i = 0; i < SEGS; i++) {
		if (i % step == 0 && i != but)
			check_bytes(store + i * SEG, SEG, i * SEG, 7);
		else
			check_zeros(store + i * SEG, SEG);
	}
}

Test(sync, keeps_the_store_busy)
{
	uint8_t *m = map_changed(3);

	check(umsync(m, 0) == 0);
	check(most_waiting >= 32, "%u", most_waiting);
	check_store(3, SEGS);
	check(stat_of(m).dirty_bytes == 0);
	check(umunmap(m, 0) == 0);
}

Test(sync, one_by_one_where_asked_to)
{
	uint8_t *m;

	set_env("UMMAP_BULK_SYNC", "false");
	m = map_changed(3);
	check(umsync(m, 0) == 0);
	check(most_waiting == 1, "%u", most_waiting);
	check_store(3, SEGS);
	check(umunmap(m, 0) == 0);
}

/* A sync flushes the data that it has written, and not those of earlier writes. */
Test(sync, is_durable_when_it_is_back)
{
	uint8_t *m = map_changed(3);

	for (size_t i = 0; i < SEGS; i += 40) {
		check(umsync(m, 0) == 0);
		check(memcmp(durable, m, SIZE) == 0, "segment %zu", i);
		fill(m + i * SEG, SEG, i * SEG, 8);
	}
	fill(m, SEG, 0, 9);
	check(umsync_range(m, SEG, 0) == 0);
	check_bytes(durable, SEG, 0, 9);
	check(umunmap(m, 0) == 0);
}

/* A sync of a range writes the dirty segments of the range only. */
Test(sync, of_a_range)
{
	uint8_t *m = map_changed(2);

	check(umsync_range(m + 10 * SEG, 5 * SEG, 0) == 0);
	check(stat_of(m).dirty_bytes == SIZE / 2 - 3 * SEG && stat_of(m).write_bytes == 3 * SEG);
	check_bytes(store + 14 * SEG, SEG, 14 * SEG, 7);
	check_zeros(store + 8 * SEG, SEG);
	check_zeros(store + 16 * SEG, SEG);
	check(umunmap(m, 0) == 0);
}

/* The segment whose write failed stays dirty. Other segments are written. */
Test(sync, of_which_one_fails)
{
	uint8_t *m = map_changed(3);

	fails_at = 30 * SEG;
	check_fails(umsync(m, 0), EIO);
	check_store(3, 30);
	check(stat_of(m).dirty_bytes == SEG, "%" PRIu64, stat_of(m).dirty_bytes);
	fails_at = UINT64_MAX;
	check(umsync(m, 0) == 0);
	check_store(3, SEGS);
	check(stat_of(m).dirty_bytes == 0 && stat_of(m).write_errors >= 1);
	check(umunmap(m, 0) == 0);
}

/* Runs of neighbours that could be longer end at multiples of the optimal transfer size of the
 * store, counted from its beginning. */

#define STRIPE (24 * SEG)

static uint64_t begins[SEGS], ends[SEGS];
static unsigned n_writes;

static int striped_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	lazy_open(uri, oflags, h, geom);
	geom->optimal = STRIPE;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_FAULTSAFE;
	return 0;
}

static int striped_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	begins[n_writes] = off;
	for (int i = 0; i < n; off += iov[i++].iov_len)
		lazy_write(h, iov[i].iov_base, iov[i].iov_len, off);
	ends[n_writes++] = off;
	return 0;
}

static const struct ummap_driver striped = {
	.struct_size = sizeof(striped),
	.abi = UMMAP_DRIVER_ABI,
	.scheme = "striped",
	.open = striped_open,
	.close = lazy_close,
	.read = lazy_read,
	.write = lazy_write,
	.writev = striped_writev,
	.flush = lazy_flush,
};

Test(sync, by_stripes)
{
	const size_t first = 7, segs = 181, last = first + segs;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *m;

	set_budget(2 * SIZE);
	check(ummap_driver_register(&striped) == 0);
	attr.seg_size = SEG;
	check(ummap_open("striped:x", segs * SEG, (off_t)(first * SEG), READ_WRITE, &attr,
			 &m) == 0);
	fill(m, segs * SEG, first * SEG, 7);
	check(umsync(m, 0) == 0);
	check_bytes(store + first * SEG, segs * SEG, first * SEG, 7);
	check(n_writes == 8 && begins[0] == first * SEG && ends[7] == last * SEG, "%u", n_writes);
	for (unsigned i = 1; i < n_writes; i++)
		check(begins[i] == i * STRIPE && ends[i - 1] == begins[i], "write %u", i);
	check(umunmap(m, 0) == 0);
}

/* A store during a sync is included in this sync or in the next one. */
static void *store_on(void *m)
{
	for (int n = 0; n < 200000; n++)
		((volatile uint8_t *)m)[(size_t)n % SEGS * SEG] = (uint8_t)n;
	return NULL;
}

Test(sync, beside_stores)
{
	uint8_t *m = map_changed(1);
	pthread_t other;

	check(pthread_create(&other, NULL, store_on, m) == 0);
	for (int n = 0; n < 50; n++)
		check(umsync(m, 0) == 0);
	check(pthread_join(other, NULL) == 0);
	check(umsync(m, 0) == 0);
	check(stat_of(m).dirty_bytes == 0);
	check(memcmp(m, store, SIZE) == 0);
	check(umunmap(m, 0) == 0);
}
