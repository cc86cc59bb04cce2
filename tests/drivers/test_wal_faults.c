/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_wal_faults.c - reads, writes and flushes of the log fail, once or a few times, at each
 * request in turn. Calls that have failed succeed later, reads return the written bytes, and in the
 * end the store is complete and the log is removed.
 */
#include <criterion/criterion.h>

#include "drivers/overlay/background.h"
#include "faults.h"

#define BLOCK OVERLAY_BLOCK
#define BLOCKS ((uint64_t)24)
#define SIZE (BLOCKS * BLOCK)

static uint8_t model[SIZE];

static struct handle {
	struct ummap_driver driver;
	struct overlay *wal;
} h;

static void make_store(void)
{
	struct ummap_geom geom;
	void *store;

	fail_side(0, 1, 1);
	power_erase();
	fill(model, SIZE, 0, 7);
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	check(power_write(store, model, SIZE, 0) == 0);
}

static int try_open(const char *keys)
{
	struct ummap_geom geom;
	char uri[200];

	snprintf(uri, sizeof(uri), "wal+power:store?wal.path=log%s", keys);
	memset(&h, 0, sizeof(h));
	h.driver.struct_size = sizeof(h.driver);
	return ummap_driver_open(uri, UMMAP_O_WRITE, &h.driver, (void **)&h.wal, &geom);
}

static int read_at(uint64_t off, uint64_t len)
{
	static uint8_t got[SIZE];
	int err = h.driver.read(h.wal, got, len, off);

	for (size_t k = 0; k < len && !err; k++)
		check(got[k] == model[off + k], "byte %" PRIu64 " is %#x, not %#x", off + k, got[k],
		      model[off + k]);
	return err;
}

static int write_at(uint64_t off, uint64_t len)
{
	return h.driver.write(h.wal, model + off, len, off);
}

static int flush_at(uint64_t off, uint64_t len)
{
	return h.driver.flush(h.wal, off, len);
}

/* Repeats a call that fails, as the library does. Every fault ends at some time. */
static void insist(int (*call)(uint64_t, uint64_t), uint64_t off, uint64_t len)
{
	uint64_t tries = 0;

	while (call(off, len) != 0)
		check(++tries <= fault.times + 1, "a call fails for good");
}

static void do_some(void)
{
	uint64_t off = next_random(&seed) % (SIZE - 1),
		 len = 1 + next_random(&seed) % (next_random(&seed) % 2 ? 700 : 20000);

	len = len < SIZE - off ? len : SIZE - off;
	switch (next_random(&seed) % 8) {
	case 0:
	case 1:
	case 2:
		fill(model + off, len, off, next_random(&seed) % 1000);
		insist(write_at, off, len);
		break;
	case 3: insist(flush_at, 0, UINT64_MAX); break;
	case 4:
		/* Commits are applied, now or after the next commit. */
		insist(flush_at, 0, UINT64_MAX);
		background_make_room(h.wal);
		break;
	default: insist(read_at, off, len);
	}
}

static void check_store(void)
{
	const struct power_file *store = power_file("store");

	check(store->size == SIZE);
	for (uint64_t at = 0; at < SIZE; at++)
		check(store->bytes[at] == model[at],
		      "byte %" PRIu64 " of the store is %#x, not %#x", at, store->bytes[at],
		      model[at]);
}

/* false: there was no such request. */
static bool run_with_fault(unsigned op, uint64_t nth, uint64_t times)
{
	const char *keys = next_random(&seed) % 3 ? "" : "&wal.keep=3";
	uint64_t tries = 0;
	bool fired;

	make_store();
	fail_side(op, nth, times);
	while (try_open(keys) < 0)
		check(*umerrormsg() && ++tries <= times, "%s", umerrormsg());
	for (int i = 0; i < 16; i++)
		do_some();
	insist(flush_at, 0, UINT64_MAX);
	insist(read_at, 0, SIZE);
	fired = fault.fired > 0;
	/* Commits that could not be applied stay in the log, and the next handle applies them. */
	for (tries = 0; h.driver.close(h.wal) != 0; tries++) {
		check(tries <= times);
		while (try_open("") < 0)
			check(++tries <= times, "%s", umerrormsg());
	}
	check_store();
	return fired;
}

static void each_in_turn(unsigned op)
{
	faults_begin();
	for (uint64_t nth = 1, times = 1; run_with_fault(op, nth, times); nth += 1 + nth / 16)
		times = 1 + times % 3;
}

Test(wal_faults, every_read)
{
	each_in_turn(READS);
}

Test(wal_faults, every_write)
{
	each_in_turn(WRITES);
}

Test(wal_faults, every_flush)
{
	each_in_turn(FLUSHES);
}
