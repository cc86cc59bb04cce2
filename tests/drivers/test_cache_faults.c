/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_cache_faults - reads, writes and flushes of the near file of cache+ fail: once, for a while,
 * or for good. Clean bytes come from the far store. A write either fails, or is in one of the two
 * files. When the near file works again, all written data is there, and is written back. Each
 * failure is reported once.
 */
#include <criterion/criterion.h>

#include "drivers/overlay/cache.h"
#include "faults.h"

#define BLOCK (4 * KIB)
#define BLOCKS ((uint64_t)24)
#define SIZE (BLOCKS * BLOCK)

/* ---- A store, and its expected contents ---- */

static uint8_t model[SIZE];

static struct handle {
	struct ummap_driver driver;
	struct cache *cache;
} h;

static void make_far(void)
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

static int try_open(const char *before, const char *keys)
{
	struct ummap_geom geom;
	char uri[300];

	snprintf(uri, sizeof(uri),
		 "cache+%spower:store?cache.path=near&cache.size=144K&cache.block=4K&%s", before,
		 keys);
	memset(&h, 0, sizeof(h));
	h.driver.struct_size = sizeof(h.driver);
	return ummap_driver_open(uri, UMMAP_O_WRITE, &h.driver, (void **)&h.cache, &geom);
}

static void open_store(const char *keys)
{
	check(try_open("", keys) == 0, "%s", umerrormsg());
}

static int close_store(void)
{
	return h.driver.close(h.cache);
}

/* Reads, and checks the bytes. Returns 0 or the error. */
static int read_at(uint64_t off, size_t len)
{
	static uint8_t got[SIZE];
	int err = h.driver.read(h.cache, got, len, off);

	for (size_t k = 0; k < len && !err; k++)
		check(got[k] == model[off + k], "byte %" PRIu64 " is %#x, not %#x", off + k, got[k],
		      model[off + k]);
	return err;
}

static int write_at(uint64_t off, size_t len, uint64_t version)
{
	fill(model + off, len, off, version);
	return h.driver.write(h.cache, model + off, len, off);
}

static void check_all(void)
{
	for (uint64_t off = 0; off < SIZE; off += BLOCK)
		check(read_at(off, BLOCK) == 0, "at %" PRIu64, off);
}

static void check_far(uint64_t from, uint64_t to)
{
	const struct power_file *store = power_file("store");

	check(store->size == SIZE);
	for (uint64_t at = from; at < to; at++)
		check(store->bytes[at] == model[at],
		      "byte %" PRIu64 " of the far store is %#x, not %#x", at, store->bytes[at],
		      model[at]);
}

/* ---- For good ---- */

static const char *const modes[] = { "cache.mode=back", "cache.mode=through", "cache.mode=read" };

/* Clean bytes come from the far store, whether or not the near file has them. */
Test(cache_faults, clean_is_read_from_afar)
{
	faults_begin();
	for (int i = 0; i < 3; i++) {
		make_far();
		open_store(modes[i]);
		check_all();
		check_all();
		fail_side(READS | WRITES | FLUSHES, 1, UINT64_MAX);
		check_all();
		check_all();
		check(fault.fired > 0);
		fail_side(0, 1, 1);
		check_all();
		check(close_store() == 0);
		check_far(0, SIZE);
	}
}

static unsigned count_clean(void)
{
	return h.cache->index.lists[CACHE_SMALL].count + h.cache->index.lists[CACHE_MAIN].count;
}

/* A slot that a write past the near file has left without parts does not wait for its eviction. */
Test(cache_faults, slots_without_parts_are_free)
{
	faults_begin();
	make_far();
	open_store("cache.mode=read");
	check_all();
	check(count_clean() > 0);
	for (uint64_t off = 0; off < SIZE; off += BLOCK)
		check(write_at(off, BLOCK, 1) == 0);
	check(count_clean() == 0, "%u slots", count_clean());
	check(close_store() == 0);
	check_far(0, SIZE);
}

/* If the near file fails, reads of a dirty part fail, and reads of other parts of the block
 * succeed. */
Test(cache_faults, dirty_is_lost_to_nobody)
{
	faults_begin();
	make_far();
	open_store("cache.dirty=90,1000000");
	check_all();
	check(write_at(3 * BLOCK, BLOCK, 1) == 0);
	check(h.driver.flush(h.cache, 0, UINT64_MAX) == 0);
	fail_side(READS, 1, UINT64_MAX);
	check(read_at(2 * BLOCK, 512) == 0 && read_at(4 * BLOCK, BLOCK) == 0);
	check(read_at(3 * BLOCK + 512, 512) == -EIO && read_at(2 * BLOCK, 3 * BLOCK) == -EIO);
	fail_side(0, 1, 1);
	check_all();
	check(close_store() == 0);
	check_far(0, SIZE);
}

/* Bytes that the near file does not accept are written to the far store, or the write fails. */
Test(cache_faults, writes_go_to_the_far_store)
{
	unsigned refused = 0;

	faults_begin();
	make_far();
	open_store("cache.dirty=90,1000000");
	for (uint64_t block = 0; block < BLOCKS; block++) {
		check(cache_commit(h.cache) == 0);
		fail_side(WRITES, 1, 1);
		check(write_at(block * BLOCK, BLOCK, 1) == 0 && fault.fired == 1);
		check_far(block * BLOCK, (block + 1) * BLOCK);
	}
	/* If the near file accepts no writes, the far store may be written only where the near file
	 * has no durable record. */
	fail_side(WRITES, 1, UINT64_MAX);
	for (uint64_t block = 0; block < BLOCKS; block++) {
		uint8_t before[BLOCK];
		int err;

		memcpy(before, model + block * BLOCK, BLOCK);
		err = write_at(block * BLOCK, BLOCK, 2);
		check(err == 0 || err == -EIO);
		if (err)
			memcpy(model + block * BLOCK, before, BLOCK);
		check_far(block * BLOCK, (block + 1) * BLOCK);
		refused += err != 0;
	}
	printf("%u of %u writes refused\n", refused, (unsigned)BLOCKS);
	fail_side(0, 1, 1);
	for (uint64_t block = 0; block < BLOCKS; block++)
		check(write_at(block * BLOCK, BLOCK, 3) == 0);
	check(h.driver.flush(h.cache, 0, UINT64_MAX) == 0);
	check_all();
	check(close_store() == 0);
	check_far(0, SIZE);
}

/* If one block of the near file cannot be read, the other blocks are written back, and the bad
 * block follows when it can be read. The number of attempts is limited. */
Test(cache_faults, one_bad_block_keeps_no_other)
{
	uint64_t bad, place, reads;
	double start;

	faults_begin();
	make_far();
	open_store("cache.dirty=90,0");
	futex_lock(&h.cache->homing); /* keeps the thread from writing back */
	for (uint64_t block = 0; block < 8; block++)
		check(write_at(block * BLOCK, BLOCK, 1) == 0);
	futex_lock(&h.cache->o.lock);
	bad = cache_find(&h.cache->index, 5, true);
	futex_unlock(&h.cache->o.lock);
	check(bad != CACHE_NO_SLOT);
	place = overlay_block_at(&h.cache->o, (uint32_t)bad);
	fail_side(READS, 1, UINT64_MAX);
	fault.from = place;
	fault.to = place + BLOCK;
	futex_unlock(&h.cache->homing);
	check(cache_write_back(h.cache) == -EIO);
	check_far(0, 5 * BLOCK);
	check_far(6 * BLOCK, SIZE);
	/* The thread tries once a second, and each call below tries, too. */
	start = now();
	reads = fault.fired;
	pause_ms(300);
	check(fault.fired - reads <= 2 * (now() - start + 2), "%" PRIu64 " tries",
	      fault.fired - reads);
	check(read_at(5 * BLOCK, BLOCK) == -EIO && read_at(0, 5 * BLOCK) == 0);
	check(close_store() == -EIO);
	fail_side(0, 1, 1);
	open_store("cache.mode=back");
	check_all();
	check(close_store() == 0);
	check_far(0, SIZE);
}

/* ---- Once, or for a while, at each request in turn ---- */

/* Repeats a failed call, as the library does. Each fault ends at some time. */
static void insist(int (*call)(uint64_t, uint64_t), uint64_t a, uint64_t b)
{
	uint64_t tries = 0;

	while (call(a, b) != 0)
		check(++tries <= fault.times + 1, "a call fails for good");
}

static int write_again(uint64_t off, uint64_t len)
{
	return h.driver.write(h.cache, model + off, len, off);
}

static int read_again(uint64_t off, uint64_t len)
{
	return read_at(off, len);
}

static int flush_again(uint64_t a, uint64_t b)
{
	(void)a, (void)b;
	return h.driver.flush(h.cache, 0, UINT64_MAX);
}

static int bring_home_again(uint64_t a, uint64_t b)
{
	(void)a, (void)b;
	return cache_write_back(h.cache);
}

static void do_some(void)
{
	uint64_t off = next_random(&seed) % (SIZE - 1),
		 len = 1 + next_random(&seed) % (next_random(&seed) % 2 ? 700 : 20000);

	len = len < SIZE - off ? len : SIZE - off;
	switch (next_random(&seed) % 8) {
	case 0: case 1: case 2:
		fill(model + off, len, off, next_random(&seed) % 1000);
		insist(write_again, off, len);
		break;
	case 3:
		insist(flush_again, 0, 0);
		break;
	case 4:
		insist(bring_home_again, 0, 0);
		break;
	default:
		insist(read_again, off, len);
	}
}

/* Returns false if the workload had no such request. */
static bool run_with_fault(unsigned op, uint64_t nth, uint64_t times)
{
	const char *mode = modes[next_random(&seed) % 3];
	uint64_t tries = 0;
	bool fired;

	make_far();
	fail_side(op, nth, times);
	while (try_open("", mode) < 0)
		check(*umerrormsg() && ++tries <= times, "%s", umerrormsg());
	for (int i = 0; i < 12; i++)
		do_some();
	insist(flush_again, 0, 0);
	fired = fault.fired > 0;
	/* Blocks that were not written back stay in the near file. */
	for (tries = 0; close_store() != 0; tries++) {
		check(tries <= times);
		while (try_open("", mode) < 0)
			check(++tries <= times, "%s", umerrormsg());
	}
	check_far(0, SIZE);
	fail_side(0, 1, 1);
	open_store(mode);
	check_all();
	check(close_store() == 0);
	return fired;
}

static void each_in_turn(unsigned op)
{
	faults_begin();
	for (uint64_t nth = 1, times = 1; run_with_fault(op, nth, times); nth += 1 + nth / 8)
		times = 1 + times % 3;
}

Test(cache_faults, every_read)
{
	each_in_turn(READS);
}

Test(cache_faults, every_write)
{
	each_in_turn(WRITES);
}

Test(cache_faults, every_flush)
{
	each_in_turn(FLUSHES);
}

/* ---- Notices ---- */

static _Atomic unsigned notices;
static char last_notice[300];

static void collect_notice(void *arg, const char *sentence)
{
	check(arg == &h);
	snprintf(last_notice, sizeof(last_notice), "%s", sentence);
	notices++;
}

static void await_notice(const char *words)
{
	while (notices == 0)
		pause_ms(1);
	check(strstr(last_notice, words) && strstr(last_notice, "near") &&
		      strstr(last_notice, strerror(EIO)),
	      "%s", last_notice);
}

Test(cache_faults, near_trouble_is_told_once)
{
	faults_begin();
	make_far();
	open_store("cache.mode=back");
	h.driver.set_notice(h.cache, collect_notice, &h);
	check_all();
	check(notices == 0);
	fail_side(READS | WRITES, 1, UINT64_MAX);
	check_all();
	await_notice("the near file");
	check_all();
	write_again(0, BLOCK);
	/* Failures that come and go are not reported again. */
	fail_side(0, 1, 1);
	check(cache_commit(h.cache) == 0);
	fail_side(READS | WRITES, 1, UINT64_MAX);
	check_all();
	fail_side(0, 1, 1);
	check(close_store() == 0);
	check(notices == 1, "%u", notices);
}

Test(cache_faults, far_trouble_is_told_once)
{
	faults_begin();
	make_far();
	check(try_open("error+", "cache.dirty=90,0&error.op=write&error.times=always") == 0, "%s",
	      umerrormsg());
	h.driver.set_notice(h.cache, collect_notice, &h);
	for (uint64_t block = 0; block < BLOCKS / 2; block++)
		check(write_at(block * BLOCK, BLOCK, 1) == 0);
	check(h.driver.flush(h.cache, 0, UINT64_MAX) == 0);
	check(cache_write_back(h.cache) == -EIO && cache_write_back(h.cache) == -EIO);
	await_notice("Changes stay in the near file");
	check_all();
	check(notices == 1, "%u", notices);
	/* The last notice says how to complete the store. */
	check(close_store() == -EIO);
	check(notices == 2, "%u", notices);
}

/* ---- Checksums ---- */

/* Changes a byte of a clean block in the near file, which must then come from the far store. */
static void damage_block(uint64_t block)
{
	uint64_t place;
	uint32_t s;

	futex_lock(&h.cache->o.lock);
	s = cache_find(&h.cache->index, block, false);
	futex_unlock(&h.cache->o.lock);
	check(s != CACHE_NO_SLOT, "block %" PRIu64 " has no clean slot", block);
	place = overlay_block_at(&h.cache->o, s);
	power_file("near")->bytes[place + 77] ^= 1;
	check(read_at(block * BLOCK, 100) == 0);
}

Test(cache_faults, damaged_blocks_come_from_afar)
{
	faults_begin();
	make_far();
	open_store("cache.verify=yes&cache.dirty=90,1000000");
	h.driver.set_notice(h.cache, collect_notice, &h);
	check(write_at(3 * BLOCK, BLOCK, 1) == 0 && cache_write_back(h.cache) == 0);
	/* The near file has fewer slots than the store has blocks. */
	for (int i = 0; i < 2; i++)
		check(read_at(3 * BLOCK, 5 * BLOCK) == 0);
	check(notices == 0, "%s", last_notice);
	damage_block(5);
	while (notices == 0)
		pause_ms(1);
	check(strstr(last_notice, "block 5 of the store differs"), "%s", last_notice);
	damage_block(3);
	check(close_store() == 0);
	/* The records have the checksums, too. */
	open_store("cache.verify=yes");
	damage_block(7);
	check(close_store() == 0);
	check_far(0, SIZE);
}
