/* SPDX-License-Identifier: BSD-3-Clause */
/* A store that fails at one place, or once: other segments that move together with the failing one
 * are not affected. Engine segv. */
#include "common.h"
#include "paging/mapping/lookup.h"
#include "paging/fault/segment.h"

#include <ummap-driver.h>

#include <criterion/criterion.h>

#define SEG (256 * KIB)
#define SEGS_PER_CLUSTER (2 * MIB / SEG)
#define SIZE (256 * MIB)
#define BUDGET (64 * MIB)
#define KEPT (4 * MIB) /* size of the part whose data are stored */

static uint8_t accepted[KEPT], durable[KEPT];
static size_t bad = SIZE;       /* requests that include this byte fail */
static _Atomic bool flush_fails;
static const char *policy;      /* policy of mappings; NULL: the default */

static int shaky_open(const struct ummap_uri *uri, int oflags, void **h, struct ummap_geom *geom)
{
	(void)oflags;
	*h = durable;
	geom->size = SIZE;
	geom->align = 1;
	geom->caps = UMMAP_CAP_WRITE | UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE;
	if (strcmp(uri->scheme, "shakya") == 0)
		geom->caps |= UMMAP_CAP_ASYNC;
	fill(durable, KEPT, 0, 3);
	memcpy(accepted, durable, KEPT);
	return 0;
}

static int shaky_close(void *h)
{
	(void)h;
	return 0;
}

static int shaky_read(void *h, void *buf, size_t len, uint64_t off)
{
	(void)h;
	if (off <= bad && bad < off + len)
		return -EIO;
	if (off < KEPT)
		memcpy(buf, accepted + off, len);
	else
		fill(buf, len, off, 3);
	return 0;
}

static int shaky_write(void *h, const void *buf, size_t len, uint64_t off)
{
	(void)h;
	if (off <= bad && bad < off + len)
		return -EIO;
	memcpy(accepted + off, buf, len);
	return 0;
}

/* Transfers all buffers or none. */
static int shaky_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	int err = 0;

	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = shaky_read(h, iov[i].iov_base, iov[i].iov_len, off);
	return err;
}

static int shaky_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	uint64_t end = off;

	for (int i = 0; i < n; i++)
		end += iov[i].iov_len;
	if (off <= bad && bad < end)
		return -EIO;
	for (int i = 0; i < n; off += iov[i++].iov_len)
		shaky_write(h, iov[i].iov_base, iov[i].iov_len, off);
	return 0;
}

#define MAX_IN_FLIGHT 64

static _Thread_local struct ummap_io *submitted[MAX_IN_FLIGHT];
static _Thread_local unsigned pending;

static int shaky_submit(void *h, struct ummap_io **io, unsigned n)
{
	unsigned i;

	(void)h;
	for (i = 0; i < n && pending < MAX_IN_FLIGHT; i++)
		submitted[pending++] = io[i];
	return (int)i;
}

static int shaky_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	unsigned n;

	cr_assert_leq(min, pending);
	for (n = 0; n < max && pending > 0; n++) {
		struct ummap_io *io = done[n] = submitted[--pending];

		io->res = io->op == UMMAP_IO_READ ? shaky_read(h, io->buf, io->len, io->off) :
						    shaky_write(h, io->buf, io->len, io->off);
	}
	return (int)n;
}

/* A flush that fails loses the data written since the last one. */
static int shaky_flush(void *h, uint64_t off, uint64_t len)
{
	(void)h;
	(void)off;
	(void)len;
	memcpy(flush_fails ? accepted : durable, flush_fails ? durable : accepted, KEPT);
	return flush_fails ? -EIO : 0;
}

/* Ways in which the driver takes several requests. */
enum shaky_kind { ONE_BY_ONE, VECTORS, ASYNC, SHAKY_KINDS };

static uint8_t *map_shaky_with(int prot, enum shaky_kind kind, unsigned flags)
{
	static const char *const schemes[] = { "shaky", "shakyv", "shakya" };
	struct ummap_driver driver = {
		.struct_size = sizeof(driver),
		.abi = UMMAP_DRIVER_ABI,
		.scheme = schemes[kind],
		.open = shaky_open,
		.close = shaky_close,
		.read = shaky_read,
		.write = shaky_write,
		.flush = shaky_flush,
	};
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[16];
	void *m = NULL;

	if (kind == VECTORS) {
		driver.readv = shaky_readv;
		driver.writev = shaky_writev;
	} else if (kind == ASYNC) {
		driver.submit = shaky_submit;
		driver.reap = shaky_reap;
	}
	set_env("UMMAP_ENGINE", "segv");
	set_budget(BUDGET);
	attr.seg_size = SEG;
	attr.flags = flags;
	attr.policy = policy;
	cr_assert_eq(ummap_driver_register(&driver), 0);
	snprintf(uri, sizeof(uri), "%s:any", schemes[kind]);
	check(ummap_open(uri, SIZE, 0, prot, &attr, &m) == 0, "%s", umerrormsg());
	return m;
}

static uint8_t *map_shaky(int prot, enum shaky_kind kind)
{
	return map_shaky_with(prot, kind, 0);
}

static bool has_all(const uint8_t *m, size_t first, size_t n)
{
	struct mapping *map = map_find(m);
	bool all = true;

	for (size_t i = first; i < first + n; i++)
		all = all && seg_has(map_seg(map, i), SEG_VALID);
	map_leave(map);
	return all;
}

/* A bad block affects its segment, but not its cluster. */
static void read_around_bad_segment(enum shaky_kind kind)
{
	uint8_t *m = map_shaky(PROT_READ, kind);
	uint64_t value;

	bad = 64 * MIB + 3 * SEG + 5;
	catch_sigbus();
	for (size_t off = 0; off < SIZE; off += SEG) {
		cr_assert_eq(try_load(m + off, &value), off != bad - 5, "segment %zu", off / SEG);
		if (off == bad - 5 - SEG)
			cr_expect(has_all(m, off / SEG + 2, SEGS_PER_CLUSTER - 4));
		if (off != bad - 5)
			cr_assert_eq(m[off], pattern(off, 3));
	}
	bad = SIZE;
	cr_assert_eq(umunmap(m, 0), 0);
}

Test(shaky, bad_segment)
{
	for (enum shaky_kind kind = 0; kind < SHAKY_KINDS; kind++)
		read_around_bad_segment(kind);
}

static void write_around_bad_segment(enum shaky_kind kind)
{
	uint8_t *m = map_shaky(READ_WRITE, kind);

	for (size_t i = 0; i < KEPT; i += SEG)
		m[i + 5] = 200;
	bad = 11 * SEG + 5;
	cr_assert_eq(umsync(m, 0), -1);
	cr_expect_eq(errno, EIO);
	for (size_t i = 0; i < KEPT; i += SEG)
		cr_expect_eq(accepted[i + 5], i + 5 == bad ? pattern(i + 5, 3) : 200, "%zu",
			     i / SEG);
	bad = SIZE;
	cr_assert_eq(umsync(m, 0), 0);
	cr_expect_eq(durable[11 * SEG + 5], 200);
	cr_assert_eq(umunmap(m, 0), 0);
}

Test(shaky, bad_place)
{
	for (enum shaky_kind kind = 0; kind < SHAKY_KINDS; kind++)
		write_around_bad_segment(kind);
}

/* With several writers, only stored bytes are written, in several requests, of which one fails. */
Test(shaky, bad_part)
{
	for (enum shaky_kind kind = 0; kind < SHAKY_KINDS; kind++) {
		uint8_t *m = map_shaky_with(READ_WRITE, kind, UMMAP_WRITERS);

		for (size_t i = 5; i < SEG; i += 16 * KIB)
			m[i] = 200;
		bad = 64 * KIB + 5;
		cr_assert_eq(umsync(m, 0), -1);
		cr_expect_eq(errno, EIO);
		bad = SIZE;
		cr_assert_eq(umsync(m, 0), 0);
		for (size_t i = 5; i < SEG; i += 16 * KIB)
			cr_expect_eq(durable[i], 200, "%zu", i);
		cr_assert_eq(umunmap(m, 0), 0);
	}
}

/* Makes the first n segments inactive. */
static void deactivate_segments(const uint8_t *m, size_t n)
{
	struct mapping *map = map_find(m);

	cr_assert_eq(seg_unmap_all(map, 0, n), 0);
	map_leave(map);
}

/* After a failed flush, segments count as dirty, and are not dropped with clean ones. */
Test(shaky, in_doubt)
{
	uint8_t *m;

	/* The segments are loaded one by one, and leave together. */
	set_env("UMMAP_READAHEAD", "0");
	policy = "fifo";
	m = map_shaky(READ_WRITE, ONE_BY_ONE);
	for (size_t i = 0; i < KEPT; i += SEG)
		m[i] = 200;
	cr_assert_eq(umsync_range(m, KEPT, UMMAP_NOFLUSH), 0);
	deactivate_segments(m, KEPT / SEG);
	for (size_t i = 0; i < KEPT; i += SEG)
		cr_assert_eq(m[i], 200);
	flush_fails = true;
	cr_assert_eq(umsync(m, 0), -1);
	flush_fails = false;
	for (int pass = 0; pass < 2; pass++) {
		for (size_t off = KEPT; off < SIZE; off += SEG)
			cr_assert_eq(m[off], pattern(off, 3));
	}
	cr_assert_eq(umsync(m, 0), 0);
	for (size_t i = 0; i < KEPT; i += SEG) {
		cr_expect_eq(m[i], 200);
		cr_expect_eq(durable[i], 200);
	}
	cr_assert_eq(umunmap(m, 0), 0);
}
