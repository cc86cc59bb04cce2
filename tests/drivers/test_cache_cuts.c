/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_cache_cuts - power is lost at every request of a workload over cache+, in each of its modes.
 * No acknowledged flush is lost. Each byte that was not flushed is either old or new. The bytes
 * that are read after the store was opened again are those that the far store has when it is
 * closed. UMMAP_TEST_CUTS is the number of cuts (400).
 */
#include <criterion/criterion.h>

#include "drivers/overlay/cache.h"

#define POWER_FILES 3       /* the store, the near file and a log */
#include "cuts.h"

#define CAP (120 * KIB)     /* bytes of the store */
#define START (90 * KIB + 300)
#define EPOCHS 8
#define WRITES 64

/* The contents of a store. */
struct image {
	uint8_t bytes[CAP];
	uint64_t size;
};

struct handle {
	struct ummap_driver driver;
	struct cache *cache;
	struct ummap_geom geom;
};

struct stored {
	unsigned epoch;           /* number of the flush that acknowledges the write */
	size_t begun;             /* number of requests when the write began */
	uint64_t off, len;
	uint8_t *bytes;
};

static struct world {
	struct image images[EPOCHS + 2];    /* contents at the flush of each epoch */
	size_t acked[EPOCHS + 2];           /* number of requests when the flush ended */
	struct stored writes[WRITES];
	unsigned nwrites;
	struct power_record record;
} world;

#define NMODES 4

/* Modes of the filter; then stacks with the filter below and above wal+. */
static const char *const modes[] = {
	"back", "through", "read", "back&cache.flush=far", "wal+cache+", "cache+wal+",
};
static bool is_stack;      /* whether the store is open through one of the stacks */

static void open_store(struct handle *h, const char *mode)
{
	char uri[300];

	is_stack = strchr(mode, '+');
	snprintf(uri, sizeof(uri),
		 "%spower:store?cache.path=near&cache.size=144K&cache.block=4K&cache.dirty=40&"
		 "cache.mode=%s%s%s",
		 is_stack ? mode : "cache+", is_stack ? "back" : mode,
		 is_stack ? "&wal.path=log" : "",
		 next_random(&seed) % 2 ? "&cache.verify=yes" : "");
	memset(h, 0, sizeof(*h));
	h->driver.struct_size = sizeof(h->driver);
	check(ummap_driver_open(uri, UMMAP_O_WRITE | UMMAP_O_CREATE, &h->driver, (void **)&h->cache,
				&h->geom) == 0);
}

static void close_store(struct handle *h)
{
	/* Checksums find no difference, because no byte was damaged. */
	check(is_stack || h->cache->damaged == 0);
	check(h->driver.close(h->cache) == 0);
}

/* ---- The workload ---- */

static void read_some(struct handle *h, const struct image *image)
{
	static uint8_t got[CAP];
	uint64_t off = next_random(&seed) % CAP, len = 1 + next_random(&seed) % (CAP - off);

	if (next_random(&seed) % 2) {
		off &= ~(uint64_t)4095;
		len = next_random(&seed) % 4 ? 4096 : 16384;
		len = len < CAP - off ? len : CAP - off;
	}
	check(h->driver.read(h->cache, got, len, off) == 0);
	for (uint64_t k = 0; k < len; k++)
		check(got[k] == image->bytes[off + k],
		      "byte %" PRIu64 " of %" PRIu64 "+%" PRIu64 " is %#x, not %#x", off + k, off,
		      len, got[k], image->bytes[off + k]);
}

/* A write past the near file may fail because its commit cannot be flushed. */
static void store_bytes(struct handle *h, const struct stored *w)
{
	int err;

	do {
		err = h->driver.write(h->cache, w->bytes, w->len, w->off);
		check(err == 0 || err == -EIO);
	} while (err);
}

static void store_some(struct handle *h, struct image *image, unsigned epoch)
{
	struct stored *w = &world.writes[world.nwrites++];

	w->off = next_random(&seed) % (CAP - 1);
	w->len = 1 + next_random(&seed) % (next_random(&seed) % 4 ? 9000 : 40000);
	if (next_random(&seed) % 3) {
		w->off &= ~(uint64_t)4095;
		w->len = (w->len + 4095) & ~(uint64_t)4095;
	}
	if (next_random(&seed) % 4 && w->off + w->len > image->size)
		w->off = next_random(&seed) % 20 * 4096;
	w->len = w->len < CAP - w->off ? w->len : CAP - w->off;
	w->bytes = malloc(w->len);
	fill(w->bytes, w->len, w->off, next_random(&seed) % 1000);
	w->epoch = epoch;
	w->begun = power_requests();
	store_bytes(h, w);
	memcpy(image->bytes + w->off, w->bytes, w->len);
	image->size = w->off + w->len > image->size ? w->off + w->len : image->size;
}

/* After a failed flush, writes the bytes again that it may have lost, as the library does. */
static void flush_store(struct handle *h, unsigned epoch)
{
	int err;

	if (next_random(&seed) % 8 == 0)
		power_bad_flushes = 1 + next_random(&seed) % 3;
	while ((err = h->driver.flush(h->cache, 0, UINT64_MAX)) != 0)
		for (unsigned i = 0; i < world.nwrites && err < 0; i++)
			if (world.writes[i].epoch == epoch)
				store_bytes(h, &world.writes[i]);
	power_bad_flushes = 0;
}

static void do_some(struct handle *h)
{
	if (is_stack)
		return;
	switch (next_random(&seed) % 6) {
	case 0:
		cache_write_back(h->cache);
		break;
	case 1:
		cache_settle_far(h->cache);
		break;
	case 2:
		cache_make_room(h->cache);
		break;
	}
}

static void run_workload(const char *mode)
{
	struct handle h;
	void *store;
	struct ummap_geom geom;

	power_erase();
	memset(&world, 0, sizeof(world));
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	world.images[0].size = START;
	fill(world.images[0].bytes, START, 0, 7);
	check(power_write(store, world.images[0].bytes, START, 0) == 0);
	power_record_begin(&world.record);
	open_store(&h, mode);
	for (unsigned epoch = 1; epoch <= EPOCHS + 1; epoch++) {
		struct image *image = &world.images[epoch];

		*image = world.images[epoch - 1];
		/* A handle that finds empty slots may use them for dirty blocks. */
		if (next_random(&seed) % 4 == 0) {
			close_store(&h);
			open_store(&h, mode);
		}
		for (uint64_t n = next_random(&seed) % 6; n > 0; n--) {
			read_some(&h, image);
			store_some(&h, image, epoch);
			do_some(&h);
		}
		read_some(&h, image);
		if (epoch <= EPOCHS)
			flush_store(&h, epoch);
		world.acked[epoch] = epoch <= EPOCHS ? power_requests() : SIZE_MAX;
	}
	close_store(&h);
}

static void end_workload(void)
{
	for (unsigned i = 0; i < world.nwrites; i++)
		free(world.writes[i].bytes);
	power_record_free(&world.record);
}

/* ---- Recovery ---- */

/* Whether a write of a later epoch, which began before request k ended, had this byte. */
static bool was_stored(unsigned epoch, size_t k, uint64_t at, uint8_t byte)
{
	for (unsigned i = 0; i < world.nwrites; i++) {
		const struct stored *w = &world.writes[i];

		if (w->epoch > epoch && w->begun <= k && at >= w->off && at - w->off < w->len &&
		    w->bytes[at - w->off] == byte)
			return true;
	}
	return false;
}

static void check_image(const struct image *found, size_t k)
{
	const struct image *acked;
	unsigned epoch = 0;

	while (world.acked[epoch + 1] <= k)
		epoch++;
	acked = &world.images[epoch];
	check(found->size >= acked->size && found->size <= CAP, "%" PRIu64 " bytes for %" PRIu64,
	      found->size, acked->size);
	for (uint64_t at = 0; at < CAP; at++)
		check(found->bytes[at] == acked->bytes[at] ||
			      was_stored(epoch, k, at, found->bytes[at]),
		      "cut at %zu of %zu: byte %" PRIu64 " is %#x, and was %#x in epoch %u", k,
		      world.record.n, at, found->bytes[at], acked->bytes[at], epoch);
}

static void read_image(struct handle *h, struct image *image)
{
	memset(image, 0, sizeof(*image));
	check(h->driver.size(h->cache, &image->size) == 0 && image->size <= CAP);
	for (uint64_t off = 0, len; off < CAP; off += len) {
		len = 1 + next_random(&seed) % (next_random(&seed) % 2 ? 3000 : 20000);
		len = len < CAP - off ? len : CAP - off;
		check(h->driver.read(h->cache, image->bytes + off, len, off) == 0);
	}
}

static struct image found, again;

static void check_found(struct handle *h, size_t k)
{
	read_image(h, &found);
	check_image(&found, k);
}

/* Bytes that were read stay the same while slots are evicted. When the store is closed, the far
 * store has them. */
static void check_end(struct handle *h, size_t k)
{
	const struct power_file *store = power_file("store");

	read_some(h, &found);
	if (!is_stack)
		cache_make_room(h->cache);
	read_image(h, &again);
	check(again.size == found.size && memcmp(again.bytes, found.bytes, CAP) == 0,
	      "cut at %zu: read twice", k);
	close_store(h);
	check(store->size == found.size && memcmp(store->bytes, found.bytes, CAP) == 0,
	      "cut at %zu: the far store", k);
}

/* The mode of a workload may change when the store is opened again. */
static const char *worked_mode;

static const char *some_mode(void)
{
	return strchr(worked_mode, '+') ? worked_mode : modes[next_random(&seed) % NMODES];
}

static void check_cut(struct power_replay *replay, size_t k)
{
	struct handle h;

	power_cut(replay, k, seed);
	open_store(&h, some_mode());
	check_found(&h, k);
	check_end(&h, k);
}

/* Recovery is interrupted again and again. */
static void check_recoveries(struct power_replay *replay, size_t k)
{
	struct handle h;

	power_cut(replay, k, seed);
	for (int i = 0; i < 10; i++) {
		struct power_record record;
		struct power_replay once;

		power_record_begin(&record);
		open_store(&h, some_mode());
		check_found(&h, k);
		close_store(&h);
		power_replay_begin(&once, &record);
		power_cut(&once, next_random(&seed) % (record.n + 1), seed);
		power_replay_end(&once);
		power_record_free(&record);
	}
	open_store(&h, some_mode());
	check_found(&h, k);
	check_end(&h, k);
}

/* Runs workloads in each mode, and cuts each one at all of its requests. */
static void cut_all(const char *const *uses, unsigned n, size_t cuts,
		    void (*check_one)(struct power_replay *replay, size_t k), size_t step)
{
	for (unsigned i = 0; cuts > 0; i++) {
		worked_mode = uses[i % n];
		run_workload(worked_mode);
		cuts = cuts_at_all(&world.record, cuts, check_one, step);
		end_workload();
	}
}

Test(cache_cuts, at_every_request)
{
	cuts_begin();
	cut_all(modes, NMODES, cuts_wanted(), check_cut, 5);
}

Test(cache_cuts, below_and_above_a_log)
{
	cuts_begin();
	cut_all(modes + NMODES, 2, cuts_wanted() / 2, check_cut, 5);
}

Test(cache_cuts, recovery_is_cut_off)
{
	cuts_begin();
	cut_all(modes, NMODES, cuts_wanted() / 10, check_recoveries, 37);
}

/* ---- Single rules ---- */

static struct handle beside;

/* Opens an empty store as `beside`, and records its requests. */
static void begin_store(const char *mode)
{
	void *store;
	struct ummap_geom geom;

	power_erase();
	memset(&world, 0, sizeof(world));
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	check(power_resize(store, START) == 0);
	power_record_begin(&world.record);
	open_store(&beside, mode);
}

/* Acts as another thread, which flushes its own writes past the near file. */
static void flush_badly(const struct power_file *file)
{
	if (strcmp(file->name, "store") != 0)
		return;
	power_after_write = NULL;
	power_bad_flushes = 1;
	check(cache_flush_far(beside.cache, true) == -EIO);
}

/* A failed flush may have lost blocks that are being written back, even if the next flush
 * succeeds. */
Test(cache_cuts, another_flush_fails_on_the_way)
{
	static uint8_t bytes[8192];
	void *store;
	struct ummap_geom geom;

	cuts_begin();
	power_erase();
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	check(power_resize(store, START) == 0);
	open_store(&beside, "back");
	fill(bytes, sizeof(bytes), 0, 5);
	check(beside.driver.write(beside.cache, bytes, sizeof(bytes), 0) == 0);
	power_after_write = flush_badly;
	check(cache_write_back(beside.cache) != 0);
	check(!power_after_write, "it was on its way");
	check(beside.cache->index.lists[CACHE_DIRTY].count == 2);
	check(cache_write_back(beside.cache) == 0 &&
	      beside.cache->index.lists[CACHE_DIRTY].count == 0);
	close_store(&beside);
}

/* Acts as the filter's thread, whose flush comes too early for the write. */
static void flush_early(const struct power_file *file)
{
	if (strcmp(file->name, "store") != 0)
		return;
	power_before_write = NULL;
	check(cache_flush_far(beside.cache, true) == 0);
}

/* The last request of a kind to the far store. */
static size_t last_request(const struct power_record *r, enum power_kind kind)
{
	size_t k = r->n;

	while (k > 0 &&
	       !(r->ops[k - 1].kind == kind && strcmp(r->ops[k - 1].file->name, "store") == 0))
		k--;
	return k;
}

/* The next flush covers a write past the near file, even if another flush ran when the write
 * began. */
Test(cache_cuts, another_flush_comes_too_early)
{
	static uint8_t bytes[8192];

	cuts_begin();
	begin_store("through");
	power_before_write = flush_early;
	check(beside.driver.write(beside.cache, bytes, sizeof(bytes), 0) == 0 &&
	      !power_before_write);
	check(beside.driver.flush(beside.cache, 0, UINT64_MAX) == 0);
	check(last_request(&world.record, POWER_FLUSH) > last_request(&world.record, POWER_WRITE));
	close_store(&beside);
	end_workload();
}

static size_t cut_here;

/* Makes the bytes of the write durable, as a flush of another thread does, before its length is
 * known. */
static void flush_within(const struct power_file *file)
{
	if (strcmp(file->name, "near") != 0)
		return;
	power_after_write = NULL;
	check(cache_commit(beside.cache) == 0);
	cut_here = power_requests();
}

/* A write has made the store longer, but its length was lost. Its bytes must not appear when the
 * store becomes longer again. */
Test(cache_cuts, bytes_behind_the_end)
{
	static uint8_t bytes[300], got[300];
	struct power_replay replay;

	cuts_begin();
	begin_store("back");
	fill(bytes, sizeof(bytes), 0, 5);
	check(beside.driver.write(beside.cache, bytes, 300, START - 300) == 0);
	check(beside.driver.flush(beside.cache, 0, UINT64_MAX) == 0);
	power_after_write = flush_within;
	check(beside.driver.write(beside.cache, bytes, 100, START) == 0 && !power_after_write);
	close_store(&beside);
	power_replay_begin(&replay, &world.record);
	power_cut(&replay, cut_here, 1);
	power_replay_end(&replay);
	open_store(&beside, "back");
	check(beside.geom.size == START);
	check(beside.driver.read(beside.cache, got, 100, START) == 0);
	check_zeros(got, 100);
	check(beside.driver.write(beside.cache, bytes, 1, START + 200) == 0);
	check(beside.driver.read(beside.cache, got, 200, START) == 0);
	check_zeros(got, 200);
	check(beside.driver.read(beside.cache, got, 300, START - 300) == 0 &&
	      memcmp(got, bytes, 300) == 0);
	close_store(&beside);
	end_workload();
}

/* A commit finds a slot for a block behind the end, whose bytes come after it: the near file is
 * whole, has all that was written before, and has no such block. */
Test(cache_cuts, block_behind_the_end)
{
	static uint8_t bytes[4096], got[4096];
	struct power_replay replay;

	cuts_begin();
	begin_store("back");
	fill(bytes, sizeof(bytes), 0, 5);
	check(beside.driver.write(beside.cache, bytes, sizeof(bytes), 0) == 0);
	power_after_write = flush_within;
	check(beside.driver.write(beside.cache, bytes, sizeof(bytes), START / 4096 * 4096 + 8192) ==
	      0 && !power_after_write);
	close_store(&beside);
	power_replay_begin(&replay, &world.record);
	power_cut(&replay, cut_here, 1);
	power_replay_end(&replay);
	open_store(&beside, "back");
	check(beside.geom.size == START);
	check(beside.driver.read(beside.cache, got, sizeof(got), 0) == 0 &&
	      memcmp(got, bytes, sizeof(got)) == 0);
	close_store(&beside);
	end_workload();
}

static const uint8_t *some_bytes(uint64_t seed_of)
{
	static uint8_t bytes[8192];

	fill(bytes, sizeof(bytes), 0, seed_of);
	return bytes;
}

static void write_within(const struct power_file *file)
{
	if (strcmp(file->name, "store") != 0)
		return;
	power_before_flush = NULL;
	power_bad_flushes = 1;
	check(beside.driver.write(beside.cache, some_bytes(6), 8192, 16384) == 0);
}

/* A write past the near file that begins and ends during a failing flush may be lost. */
Test(cache_cuts, a_flush_fails_around_a_write)
{
	cuts_begin();
	begin_store("through");
	check(beside.driver.write(beside.cache, some_bytes(5), 8192, 0) == 0);
	check(beside.driver.flush(beside.cache, 0, UINT64_MAX) == 0);
	power_before_flush = write_within;
	check(cache_flush_far(beside.cache, true) == -EIO && !power_before_flush);
	check(beside.cache->far_doubt, "what was written meanwhile is in doubt");
	check(beside.driver.flush(beside.cache, 0, UINT64_MAX) != 0, "a caller is told once");
	check(beside.driver.write(beside.cache, some_bytes(6), 8192, 16384) == 0);
	check(beside.driver.flush(beside.cache, 0, UINT64_MAX) == 0);
	close_store(&beside);
	end_workload();
}

/* A crash does not lose a length that a flush has acknowledged. */
Test(cache_cuts, made_longer_and_flushed)
{
	struct power_replay replay;

	cuts_begin();
	for (unsigned mode = 0; mode < 4; mode++) {
		begin_store(modes[mode]);
		check(beside.driver.resize(beside.cache, CAP) == 0);
		check(beside.driver.flush(beside.cache, 0, UINT64_MAX) == 0);
		cut_here = power_requests();
		close_store(&beside);
		power_replay_begin(&replay, &world.record);
		power_cut(&replay, cut_here, mode);
		power_replay_end(&replay);
		open_store(&beside, modes[mode]);
		check(beside.geom.size == CAP, "%s: %" PRIu64 " bytes", modes[mode],
		      beside.geom.size);
		close_store(&beside);
		end_workload();
	}
}

/* An emptied slot that a later handle finds may become dirty, and a crash must not lose it. */
Test(cache_cuts, a_slot_that_was_emptied)
{
	static uint8_t got[4096];
	struct power_replay replay;

	cuts_begin();
	begin_store("back");
	check(beside.driver.write(beside.cache, some_bytes(5), 4096, 0) == 0);
	close_store(&beside);
	open_store(&beside, "read");
	check(beside.driver.write(beside.cache, some_bytes(6), 4096, 0) == 0);
	close_store(&beside);
	open_store(&beside, "back");
	check(beside.driver.write(beside.cache, some_bytes(7), 4096, 4096) == 0);
	check(beside.driver.flush(beside.cache, 0, UINT64_MAX) == 0);
	cut_here = power_requests();
	close_store(&beside);
	power_replay_begin(&replay, &world.record);
	power_cut(&replay, cut_here, 1);
	power_replay_end(&replay);
	open_store(&beside, "back");
	close_store(&beside);
	check(memcmp(power_file("store")->bytes + 4096, some_bytes(7), 4096) == 0);
	open_store(&beside, "read");
	check(beside.driver.read(beside.cache, got, 4096, 0) == 0);
	check(memcmp(got, some_bytes(6), 4096) == 0);
	close_store(&beside);
	end_workload();
}
