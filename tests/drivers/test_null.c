/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver null: any size, reads of zeros or of nothing, and writes that are discarded. */
#include <criterion/criterion.h>

#include "common.h"
#include "ummap-driver.h"

#define SEG (64 * KIB)
#define BUDGET (16 * SEG)
#define SIZE (8 * BUDGET)

extern const struct ummap_driver ummap_driver_null;
static const struct ummap_driver *const null = &ummap_driver_null;

static uint8_t *map_uri(const char *uri, size_t size, off_t offset, int prot)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr = NULL;

	attr.seg_size = SEG;
	check(ummap_open(uri, size, offset, prot, &attr, &addr) == 0, "%s", uri);
	return addr;
}

static void *handle(const char *path, const char *fill, struct ummap_geom *geom)
{
	struct ummap_key key = { "fill", fill };
	struct ummap_uri uri = {
		.scheme = "null", .path = path, .keys = &key, .nkeys = fill != NULL
	};
	void *h = NULL;

	memset(geom, 0, sizeof(*geom));
	check(null->open(&uri, UMMAP_O_WRITE, &h, geom) == 0, "%s", geom->why);
	return h;
}

Test(null, takes_all_and_keeps_nothing)
{
	uint8_t *m;

	set_budget(BUDGET);
	m = map_uri("null:1T", SIZE, 12345, READ_WRITE);
	check_zeros(m, SIZE);
	fill(m, SIZE, 0, 1);
	check(stat_of(m).write_bytes > 0);
	check(umsync(m, 1) == 0);
	check(stat_of(m).dirty_bytes == 0);
	check_zeros(m, SIZE);
	check(stat_of(NULL).over_budget_peak == 0);
	check(umunmap(m, 1) == 0);
}

Test(null, is_as_large_as_it_says)
{
	const size_t store = (size_t)1 << 40;
	uint8_t *m;

	set_budget(BUDGET);
	m = map_uri("null:1T", store, 0, READ_WRITE);
	for (size_t at = 0; at < store; at += 64 * GIB - 4321)
		m[at]++;
	m[store - 1] = 1;
	check(umunmap(m, 1) == 0);

	m = map_uri("null:1M", 2 * MIB, 0, READ_WRITE);
	check_zeros(m, 2 * MIB);
	m[MIB] = 1;
	check_fails(umsync(m, 0), ENOSPC);
	check(umunmap(m, 0) == 0);
}

/* With fill=no, reads return arbitrary bytes, but a mapping keeps its own changes in memory. */
Test(null, unfilled_through_a_mapping)
{
	uint8_t *m;

	set_budget(BUDGET);
	m = map_uri("null:1G?fill=no", SIZE, 0, READ_WRITE);
	for (size_t at = 0; at < SIZE; at += SEG)
		m[at] = 1;
	check(m[SIZE - SEG] == 1);
	check(stat_of(m).read_bytes >= SIZE);
	check(umunmap(m, 1) == 0);
}

Test(null, fills_or_not)
{
	static const struct {
		const char *fill;
		uint8_t byte;
	} cases[] = { { NULL, 0 }, { "yes", 0 }, { "no", 9 } };
	uint8_t buf[100];
	struct iovec iov[2] = { { buf, 50 }, { buf + 50, 50 } };
	struct ummap_geom geom;

	for (int i = 0; i < 3; i++) {
		void *h = handle("1M", cases[i].fill, &geom);

		memset(buf, 9, sizeof(buf));
		check(null->read(h, buf, 50, 77) == 0);
		check(buf[0] == cases[i].byte && buf[49] == cases[i].byte && buf[50] == 9);
		check(null->readv(h, iov, 2, 0) == 0);
		check(buf[50] == cases[i].byte && buf[99] == cases[i].byte);
		check(null->write(h, buf, 100, MIB - 100) == 0 &&
		      null->writev(h, iov, 2, MIB - 100) == 0);
		check(null->write(h, buf, 100, MIB - 99) == -ENOSPC &&
		      null->writev(h, iov, 2, MIB - 99) == -ENOSPC);
		check(null->write(h, buf, 1, UINT64_MAX) == -ENOSPC);
		check(geom.size == MIB && geom.align == 1);
		check(geom.caps == (UMMAP_CAP_WRITE | UMMAP_CAP_PARALLEL | UMMAP_CAP_FAULTSAFE));
		null->close(h);
	}
}

Test(null, refuses_with_a_sentence)
{
	static const char *const bad[] = {
		"null:0",         "null:x",        "null:-1",
		"null:1X",        "null:1T1",      "null:",
		"null:99999999T", "null:1T?fill=", "null:1T?fill=maybe",
		"null:1T?fil=no",
	};
	void *addr;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_fails(ummap_open(bad[i], MIB, 0, PROT_READ, NULL, &addr), EINVAL);
}
