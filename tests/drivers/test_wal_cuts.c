/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_wal_cuts.c - power is lost at every request of a workload over wal+. Afterwards the store
 * has all changes of the last acknowledged flush, or of the one in progress, and all commits that
 * may be opened. The same holds after a kill before the power cut, and after a return to an earlier
 * commit.
 * UMMAP_TEST_CUTS is the number of cuts (400).
 */
#include <criterion/criterion.h>

#include "common/futex.h"
#include "drivers/overlay/background.h"
#include "cuts.h"

#define CAP (120 * KIB) /* of the store */
#define START (is_tailed ? 3 * KIB + 300 : 90 * KIB + 300)
#define COMMITS 10

/* The contents of a store at a moment. */
struct image {
	uint8_t bytes[CAP];
	uint64_t size;
};

struct handle {
	struct ummap_driver driver;
	struct overlay *wal;
	struct ummap_geom geom;
};

/* A workload, and the contents of its commits. */
struct world {
	unsigned keep;
	struct image images[COMMITS + 1];
	struct image tried[COMMITS + 1]; /* when its flush was called first, and failed */
	bool has_tried[COMMITS + 1];
	size_t begun[COMMITS + 2],
		acked[COMMITS + 2]; /* requests when its flush was called, and when it was back */
	size_t closing;
	struct power_record record;
};

static struct world world;
static bool is_small; /* whether logs are small */
static bool is_tailed; /* whether the tail of the store is written */

static int try_open(struct handle *h, int oflags, const char *keys)
{
	char uri[200];

	snprintf(uri, sizeof(uri), "wal+power:store?wal.path=log%s", keys);
	memset(h, 0, sizeof(*h));
	h->driver.struct_size = sizeof(h->driver);
	return ummap_driver_open(uri, oflags, &h->driver, (void **)&h->wal, &h->geom);
}

/* With a small log, slots are used again soon. It has room for each commit that is kept, and for
 * two more. */
static void open_store(struct handle *h, unsigned keep)
{
	char keys[80];

	snprintf(keys, sizeof(keys), "&wal.keep=%u&wal.size=%zu", keep,
		 is_small ? 64 * KIB + (keep + 2) * 32 * 4 * KIB : 64 * MIB);
	check(try_open(h, UMMAP_O_WRITE | UMMAP_O_CREATE, keys) == 0);
}

static void close_store(struct handle *h)
{
	check(h->driver.close(h->wal) == 0);
}

static void read_image(struct handle *h, struct image *image)
{
	memset(image, 0, sizeof(*image));
	check(h->driver.size(h->wal, &image->size) == 0);
	check(image->size <= CAP);
	check(h->driver.read(h->wal, image->bytes, CAP, 0) == 0);
}

static bool same(const struct image *a, const struct image *b)
{
	return a->size == b->size && memcmp(a->bytes, b->bytes, CAP) == 0;
}

static bool is_commit(const struct image *found, uint64_t commit)
{
	return same(found, &world.images[commit]) ||
	       (world.has_tried[commit] && same(found, &world.tried[commit]));
}

/* ---- The workload ---- */

static void store_some(struct handle *h, struct image *image)
{
	uint64_t off = next_random(&seed) % (CAP - 1),
		 len = 1 + next_random(&seed) % (next_random(&seed) % 4 ? 9000 : 40000);

	/* Most writes are of whole blocks, like those of segments. */
	if (next_random(&seed) % 3) {
		off &= ~(uint64_t)4095;
		len = (len + 4095) & ~(uint64_t)4095;
	}
	if (next_random(&seed) % 4 && off + len > image->size)
		off = next_random(&seed) % 20 * 4096;
	len = len < CAP - off ? len : CAP - off;
	fill(image->bytes + off, len, off, next_random(&seed) % 1000);
	check(h->driver.write(h->wal, image->bytes + off, len, off) == 0);
	image->size = off + len > image->size ? off + len : image->size;
}

static void flush_store(struct handle *h, unsigned commit)
{
	/* A failed flush of the tail breaks the handle. */
	if (!is_tailed && next_random(&seed) % 8 == 0) {
		power_bad_flushes = 1;
		check(h->driver.flush(h->wal, 0, UINT64_MAX) == EIO,
		      "a flush that failed has lost nothing");
		/* If power is lost now, the flush may be durable all the same. */
		world.tried[commit] = world.images[commit];
		world.has_tried[commit] = true;
		if (next_random(&seed) % 2)
			store_some(h, &world.images[commit]);
	}
	check(h->driver.flush(h->wal, 0, UINT64_MAX) == 0);
}

static void run_workload(unsigned keep)
{
	struct handle h;
	void *store;
	struct ummap_geom geom;

	is_tailed = next_random(&seed) % 2;
	overlay_tail_bytes = is_tailed ? 4096 : SIZE_MAX;
	power_erase();
	memset(&world, 0, sizeof(world));
	world.keep = keep;
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	world.images[0].size = START;
	fill(world.images[0].bytes, START, 0, 7);
	check(power_write(store, world.images[0].bytes, START, 0) == 0);
	power_record_begin(&world.record);
	/* With the lower bound, writes wait until commits are applied. */
	is_small = next_random(&seed) % 2;
	background_fixed_bound = next_random(&seed) % 2 ? 20 * KIB : 0;
	open_store(&h, keep);
	for (unsigned commit = 1; commit <= COMMITS; commit++) {
		world.images[commit] = world.images[commit - 1];
		for (uint64_t n = next_random(&seed) % 6; n > 0; n--)
			store_some(&h, &world.images[commit]);
		if (next_random(&seed) % 4 == 0)
			background_make_room(h.wal);
		world.begun[commit] = power_requests();
		flush_store(&h, commit);
		world.acked[commit] = power_requests();
		if (next_random(&seed) % 4 == 0)
			background_make_room(h.wal);
	}
	store_some(&h, &(struct image){ .size = CAP });
	world.begun[COMMITS + 1] = world.acked[COMMITS + 1] = SIZE_MAX;
	world.closing = power_requests();
	close_store(&h);
}

/* ---- After a cut ---- */

/* The commit that is acknowledged after k requests; the next one may be in progress. */
static unsigned acked_at(size_t k)
{
	unsigned commit = 0;

	while (world.acked[commit + 1] <= k)
		commit++;
	return commit;
}

static struct image found;

static void check_found(struct handle *h, size_t k)
{
	unsigned commit = acked_at(k);

	read_image(h, &found);
	if (!is_commit(&found, commit) && world.begun[commit + 1] <= k && commit < COMMITS)
		commit++;
	if (!is_commit(&found, commit)) {
		uint64_t at = 0;

		while (at < CAP - 1 && found.bytes[at] == world.images[commit].bytes[at])
			at++;
		check(false,
		      "cut at %zu of %zu: neither commit %u nor the one before; %" PRIu64
		      " bytes for %" PRIu64 ", byte %" PRIu64,
		      k, world.record.n, commit, found.size, world.images[commit].size, at);
	}
}

/* Each commit that may be opened has its contents. */
static void check_commits(size_t k)
{
	uint64_t oldest, newest;
	struct handle h;
	char keys[64];

	check(try_open(&h, 0, "") == 0);
	if (!h.wal->file.h)
		return close_store(&h);
	check(h.driver.commits(h.wal, &oldest, &newest) == 0);
	close_store(&h);
	check(k >= world.closing || oldest == (newest >= world.keep ? newest - world.keep + 1 : 0),
	      "cut at %zu: %" PRIu64 " to %" PRIu64, k, oldest, newest);
	for (uint64_t commit = oldest; commit <= newest; commit++) {
		snprintf(keys, sizeof(keys), "&wal.commit=%" PRIu64, commit);
		check(try_open(&h, 0, keys) == 0);
		read_image(&h, &found);
		check(is_commit(&found, commit),
		      "cut at %zu: commit %" PRIu64 " of %" PRIu64 " to %" PRIu64, k, commit,
		      oldest, newest);
		close_store(&h);
	}
}

/* After a clean end, the store has everything, and the log is empty. */
static void check_end(void)
{
	const struct power_file *store = power_file("store"), *log = power_file("log");

	check(!log || log->size == 0);
	check(store->size == found.size && memcmp(store->bytes, found.bytes, CAP) == 0);
}

static void check_cut(struct power_replay *replay, size_t k)
{
	struct handle h;

	power_cut(replay, k, seed);
	check_commits(k);
	open_store(&h, 1);
	check_found(&h, k);
	close_store(&h);
	check_end();
}

/* Power is lost during recovery, several times. */
static void check_recoveries(struct power_replay *replay, size_t k)
{
	struct handle h;

	power_cut(replay, k, seed);
	for (int i = 0; i < 10; i++) {
		struct power_record record;
		struct power_replay again;

		power_record_begin(&record);
		open_store(&h, next_random(&seed) % 2 ? world.keep : 1);
		check_found(&h, k);
		close_store(&h);
		power_replay_begin(&again, &record);
		power_cut(&again, next_random(&seed) % (record.n + 1), seed);
		power_replay_end(&again);
		power_record_free(&record);
	}
	open_store(&h, 1);
	check_found(&h, k);
	close_store(&h);
	check_end();
}

/* A process is killed, the next one finds its writes in the page cache, and then power is lost. */
static void check_killed_before(struct power_replay *replay, size_t k)
{
	struct power_record recovery;
	struct power_replay again;
	struct handle h;
	size_t first = power_kill(replay, k, &recovery);

	open_store(&h, next_random(&seed) % 2 ? world.keep : 1);
	check_found(&h, k);
	background_make_room(h.wal);
	close_store(&h);
	power_replay_begin(&again, &recovery);
	power_cut(&again, first + next_random(&seed) % (recovery.n + 1 - first), seed);
	power_replay_end(&again);
	power_record_free(&recovery);
	open_store(&h, 1);
	check_found(&h, k);
	close_store(&h);
	check_end();
}

/* A writer returns to an earlier commit and makes new ones, and then power is lost. */
static void check_going_back(struct power_replay *replay, size_t k)
{
	struct power_record back;
	struct power_replay again;
	uint64_t oldest, newest, commit;
	struct handle h;
	struct image want[3];
	size_t opened, acked, cut;
	char keys[64];

	power_cut(replay, k, seed);
	check(try_open(&h, UMMAP_O_WRITE | UMMAP_O_CREATE, "&wal.keep=3") == 0);
	check(h.driver.commits(h.wal, &oldest, &newest) == 0);
	read_image(&h, &want[0]);
	close_store(&h);
	commit = oldest + next_random(&seed) % (newest - oldest + 1);
	if (!power_file("log") || power_file("log")->size == 0)
		return;
	snprintf(keys, sizeof(keys), "&wal.keep=3&wal.commit=%" PRIu64, commit);
	power_record_begin(&back);
	check(try_open(&h, UMMAP_O_WRITE, keys) == 0);
	opened = power_requests();
	read_image(&h, &want[1]);
	want[2] = want[1];
	store_some(&h, &want[2]);
	check(h.driver.flush(h.wal, 0, UINT64_MAX) == 0);
	acked = power_requests();
	check(h.driver.flush(h.wal, 0, UINT64_MAX) == 0);
	cut = next_random(&seed) % (power_requests() + 1);
	power_replay_begin(&again, &back);
	close_store(&h);
	power_cut(&again, cut, seed);
	power_replay_end(&again);
	power_record_free(&back);
	open_store(&h, 1);
	read_image(&h, &found);
	check(same(&found, &want[2]) || (cut < acked && same(&found, &want[1])) ||
		      (cut < opened && same(&found, &want[0])),
	      "cut at %zu of %zu: commit %" PRIu64 " of %" PRIu64 " to %" PRIu64, cut, back.n,
	      commit, oldest, newest);
	close_store(&h);
	check_end();
}

/* Cuts workload after workload at all of its requests. */
static void cut_all(size_t cuts, void (*check_one)(struct power_replay *replay, size_t k),
		    size_t step)
{
	for (unsigned turn = 0; cuts > 0; turn++) {
		run_workload(turn % 2 ? 1 : 3);
		cuts = cuts_at_all(&world.record, cuts, check_one, step);
		power_record_free(&world.record);
	}
}

Test(wal_cuts, at_every_request)
{
	cuts_begin();
	cut_all(cuts_wanted(), check_cut, 1);
}

Test(wal_cuts, recovery_is_cut_off)
{
	cuts_begin();
	cut_all(cuts_wanted() / 10, check_recoveries, 7);
}

Test(wal_cuts, after_a_kill)
{
	cuts_begin();
	cut_all(cuts_wanted() / 2, check_killed_before, 1);
}

Test(wal_cuts, going_back_is_cut_off)
{
	cuts_begin();
	cut_all(cuts_wanted() / 4, check_going_back, 3);
}

/* ---- Readers ---- */

static __thread bool is_reader;
static _Atomic bool reading, written;

/* A reader that knows the place of the block in the log waits before it reads there. */
static void wait_for_writer(const struct power_file *file)
{
	if (!is_reader || strcmp(file->name, "log") != 0)
		return;
	reading = true;
	for (int ms = 0; ms < 60000 && !written; ms++)
		pause_ms(1);
}

static void *read_block(void *arg)
{
	static uint8_t bytes[4096];
	struct handle *h = arg;

	is_reader = true;
	check(h->driver.read(h->wal, bytes, sizeof(bytes), 8192) == 0);
	check_bytes(bytes, sizeof(bytes), 8192, 1);
	return NULL;
}

/* A slot is not taken anew while a reader uses it. The log has one slot. */
Test(wal_cuts, slots_are_read_to_the_end)
{
	static uint8_t bytes[4096];
	pthread_t reader;
	struct ummap_geom geom;
	struct handle h;
	void *store;

	cuts_begin();
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	check(try_open(&h, UMMAP_O_WRITE | UMMAP_O_CREATE, "&wal.size=68K") == 0);
	fill(bytes, sizeof(bytes), 8192, 1);
	check(h.driver.write(h.wal, bytes, sizeof(bytes), 8192) == 0 &&
	      h.driver.flush(h.wal, 0, UINT64_MAX) == 0);
	power_before_read = wait_for_writer;
	check(pthread_create(&reader, NULL, read_block, &h) == 0);
	while (!reading)
		pause_ms(1);
	background_make_room(h.wal);
	fill(bytes, sizeof(bytes), 40960, 2);
	check(h.driver.write(h.wal, bytes, sizeof(bytes), 40960) == -ENOSPC);
	written = true;
	pthread_join(reader, NULL);
	check(h.driver.write(h.wal, bytes, sizeof(bytes), 40960) == 0);
	close_store(&h);
}

/* ---- A pass ---- */

static __thread bool is_writer;

/* The thread that applies a commit waits before it reads the first block. */
static void wait_before_pass(const struct power_file *file)
{
	if (is_writer || strcmp(file->name, "log") != 0)
		return;
	reading = true;
	for (int ms = 0; ms < 60000 && !written; ms++)
		pause_ms(1);
}

static void *apply(void *wal)
{
	background_make_room(wal);
	return NULL;
}

/* A slot is not free while its block is applied, even if a later commit supersedes it. */
Test(wal_cuts, slots_are_applied_to_the_end)
{
	static uint8_t bytes[4096];
	pthread_t thread;
	struct ummap_geom geom;
	struct handle h;
	void *store;
	bool used;

	cuts_begin();
	is_writer = true;
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	check(try_open(&h, UMMAP_O_WRITE | UMMAP_O_CREATE, "") == 0);
	power_before_read = wait_before_pass;
	for (int value = 1; value <= 2; value++) {
		fill(bytes, sizeof(bytes), 8192, value);
		check(h.driver.write(h.wal, bytes, sizeof(bytes), 8192) == 0 &&
		      h.driver.flush(h.wal, 0, UINT64_MAX) == 0);
		if (value == 1)
			check(pthread_create(&thread, NULL, apply, h.wal) == 0);
		while (!reading)
			pause_ms(1);
	}
	futex_lock(&h.wal->lock);
	overlay_reclaim(h.wal);
	used = overlay_has_bit(overlay_group(h.wal, 0)->used, 0);
	futex_unlock(&h.wal->lock);
	check(used);
	written = true;
	pthread_join(thread, NULL);
	close_store(&h);
}
