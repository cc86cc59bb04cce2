/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Power is lost at each request of a workload over cow+, and of a commit. Only the commit writes
 * the store. No data that a flush has acknowledged are lost, a flush happens completely or not at
 * all, and a commit that was cut off can be repeated. UMMAP_TEST_CUTS: number of cuts (400).
 */
#include <criterion/criterion.h>

#define POWER_CAP ((size_t)3584 << 10)
#include "drivers/overlay/cow.h"
#include "cuts.h"

#define CAP (1200 * KIB + 700)   /* maximum size of the store, whose entries exceed one page */
#define START (1100 * KIB + 300)
#define EPOCHS 8
#define MOMENTS 128

struct image {
	uint8_t *bytes;              /* CAP bytes */
	uint64_t size;
};

struct handle {
	struct ummap_driver driver;
	void *cow;
	struct ummap_geom geom;
};

/* The contents of the store after each write. */
struct moment {
	struct image image;
	size_t begun;                /* number of requests when the write was called */
	size_t acked;                /* number when a later flush returned; SIZE_MAX: none has */
	bool flushed;                /* a flush was called between this write and the next one */
};

static struct moment moments[MOMENTS];
static unsigned nmoments;
static struct power_record record;
static struct image found;
static uint64_t grown;        /* size to which a recovery may have extended the store */

static void open_store(struct handle *h)
{
	memset(h, 0, sizeof(*h));
	h->driver.struct_size = sizeof(h->driver);
	check(ummap_driver_open("cow+power:store?cow.path=changes", UMMAP_O_WRITE, &h->driver,
				&h->cow, &h->geom) == 0);
}

static void close_store(struct handle *h)
{
	check(h->driver.close(h->cow) == 0);
}

static void read_image(struct handle *h)
{
	check(h->driver.size(h->cow, &found.size) == 0 && found.size <= CAP);
	check(h->driver.read(h->cow, found.bytes, CAP, 0) == 0);
}

/* ---- The workload ---- */

static struct image *now_image(void)
{
	return &moments[nmoments - 1].image;
}

static struct image *next_image(void)
{
	struct moment *m = &moments[nmoments++];

	check(nmoments < MOMENTS);
	m->image.bytes = m->image.bytes ? m->image.bytes : malloc(CAP);
	if (nmoments > 1) {
		memcpy(m->image.bytes, m[-1].image.bytes, CAP);
		m->image.size = m[-1].image.size;
	}
	m->begun = record.n;
	m->acked = SIZE_MAX;
	m->flushed = false;
	return &m->image;
}

struct write {
	uint64_t off, len;
};

static void choose_write(struct write *w)
{
	static const uint64_t longest[] = { 600, 9000, 9000, 40000, 400000 };

	w->off = next_random(&seed) % (CAP - 1);
	w->len = 1 + next_random(&seed) % longest[next_random(&seed) % 5];
	/* Most writes are whole blocks, as segments are. All other kinds occur, too. */
	if (next_random(&seed) % 3) {
		w->off &= ~(uint64_t)4095;
		w->len = (w->len + 4095) & ~(uint64_t)4095;
	}
	if (next_random(&seed) % 4 && w->off + w->len > now_image()->size)
		w->off = next_random(&seed) % 20 * 4096;
	/* The store grows in small steps. */
	if (next_random(&seed) % 4 == 0 && now_image()->size < CAP)
		*w = (struct write){ now_image()->size, 1 + next_random(&seed) % 300 };
	w->len = w->len < CAP - w->off ? w->len : CAP - w->off;
}

static void store_some(struct handle *h, struct write *w)
{
	struct image *image;

	choose_write(w);
	image = next_image();
	fill(image->bytes + w->off, w->len, w->off, next_random(&seed) % 1000);
	image->size = w->off + w->len > image->size ? w->off + w->len : image->size;
	check(h->driver.write(h->cow, image->bytes + w->off, w->len, w->off) == 0);
}

static void resize_some(struct handle *h)
{
	struct image *image = next_image();
	uint64_t size = next_random(&seed) % (next_random(&seed) % 2 ? image->size + 1 : CAP);

	if (next_random(&seed) % 2)
		size &= ~(uint64_t)4095;
	if (size < image->size)
		memset(image->bytes + size, 0, CAP - size);
	image->size = size;
	check(h->driver.resize(h->cow, size) == 0);
}

/* After a flush that failed, writes again what may be lost, as the library does. */
static void flush_store(struct handle *h, const struct write *writes, unsigned n)
{
	moments[nmoments - 1].flushed = true;
	if (next_random(&seed) % 6 == 0) {
		power_good_flushes = next_random(&seed) % 3;
		power_bad_flushes = 1;
		for (int tries = 0; h->driver.flush(h->cow, 0, UINT64_MAX) != 0; tries++) {
			check(tries == 0);
			for (unsigned i = 0; i < n; i++)
				check(h->driver.write(h->cow, now_image()->bytes + writes[i].off,
						      writes[i].len, writes[i].off) == 0);
		}
		power_good_flushes = power_bad_flushes = 0;
	}
	check(h->driver.flush(h->cow, 0, UINT64_MAX) == 0);
	moments[nmoments - 1].acked = power_requests();
}

static void make_store(void)
{
	struct ummap_geom geom;
	struct image *image;
	void *store = NULL;

	power_erase();
	memset(&record, 0, sizeof(record));
	nmoments = 0;
	image = next_image();
	memset(image->bytes, 0, CAP);
	fill(image->bytes, START, 0, 7);
	image->size = START;
	moments[0].acked = 0;
	moments[0].flushed = true;
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	check(power_write(store, image->bytes, START, 0) == 0);
}

static void run_workload(void)
{
	struct write writes[6];
	struct handle h;

	make_store();
	power_record_begin(&record);
	open_store(&h);
	for (unsigned epoch = 1; epoch <= EPOCHS; epoch++) {
		unsigned n = 1 + next_random(&seed) % 5;

		if (next_random(&seed) % 2)
			resize_some(&h);
		for (unsigned i = 0; i < n; i++)
			store_some(&h, &writes[i]);
		flush_store(&h, writes, n);
		if (next_random(&seed) % 4 == 0) {
			resize_some(&h);
			flush_store(&h, writes, 0);
		}
		if (next_random(&seed) % 4 == 0) {
			close_store(&h);
			open_store(&h);
		}
	}
	store_some(&h, writes);
	moments[nmoments - 1].flushed = true;
	close_store(&h);
}

/* ---- Checks after a cut ---- */

static bool is_found(const struct moment *m)
{
	return (found.size == m->image.size || (grown && found.size == grown)) &&
	       memcmp(found.bytes, m->image.bytes, CAP) == 0;
}

/* With k requests done, the store has the last acknowledged contents, or those of a later flush. */
static void check_found(struct handle *h, size_t k)
{
	const struct moment *from = moments, *m;

	for (m = moments; m < moments + nmoments; m++) {
		if (m->acked <= k)
			from = m;
	}
	read_image(h);
	for (m = from; m < moments + nmoments && m->begun <= k; m++) {
		if (m->flushed && is_found(m))
			return;
	}
	check(false, "cut at %zu of %zu: %" PRIu64 " bytes of no flush", k, record.n, found.size);
}

static void check_store(const struct image *image)
{
	const struct power_file *store = power_file("store");

	check(store->size == image->size && memcmp(store->bytes, image->bytes, image->size) == 0);
}

/* Later writes take effect, and nothing else changes. */
static void write_more(struct handle *h)
{
	uint64_t off = next_random(&seed) % (CAP - 5000), len = 1 + next_random(&seed) % 5000;
	uint8_t *want = malloc(CAP);
	uint64_t size;

	if (next_random(&seed) % 2 && found.size + 10000 < CAP)
		off = found.size + next_random(&seed) % 5000;
	size = off + len > found.size ? off + len : found.size;
	memcpy(want, found.bytes, CAP);
	fill(want + off, len, off, 3);
	check(h->driver.write(h->cow, want + off, len, off) == 0);
	close_store(h);
	open_store(h);
	read_image(h);
	check(found.size == size && memcmp(found.bytes, want, CAP) == 0);
	free(want);
}

static void check_cut(struct power_replay *replay, size_t k)
{
	struct handle h;

	power_cut(replay, k, seed);
	open_store(&h);
	check_found(&h, k);
	write_more(&h);
	close_store(&h);
	check_store(&moments[0].image);
}

/* Recoveries are cut off themselves, again and again. */
static void check_recoveries(struct power_replay *replay, size_t k)
{
	struct handle h;

	power_cut(replay, k, seed);
	for (int i = 0; i < 10; i++) {
		struct power_record recovery;
		struct power_replay again;

		power_record_begin(&recovery);
		open_store(&h);
		check_found(&h, k);
		close_store(&h);
		power_replay_begin(&again, &recovery);
		power_cut(&again, next_random(&seed) % (recovery.n + 1), seed);
		power_replay_end(&again);
		power_record_free(&recovery);
	}
	open_store(&h);
	check_found(&h, k);
	write_more(&h);
	close_store(&h);
}

/* A process is killed, the next one finds its data and writes more, and then power is lost. */
static void check_killed_before(struct power_replay *replay, size_t k)
{
	struct power_record recovery;
	struct power_replay again;
	struct handle h;
	size_t first = power_kill(replay, k, &recovery);

	open_store(&h);
	check_found(&h, k);
	/* The found contents may be those of any moment. */
	check(h.driver.write(h.cow, found.bytes, found.size, 0) == 0);
	/* The store grows, so that the header is written. */
	check(h.driver.resize(h.cow, CAP) == 0);
	if (next_random(&seed) % 2)
		check(h.driver.flush(h.cow, 0, UINT64_MAX) == 0);
	close_store(&h);
	power_replay_begin(&again, &recovery);
	power_cut(&again, first + next_random(&seed) % (recovery.n + 1 - first), seed);
	power_replay_end(&again);
	power_record_free(&recovery);
	open_store(&h);
	grown = CAP;
	check_found(&h, k);
	grown = 0;
	write_more(&h);
	close_store(&h);
}

/* ---- Commits ---- */

/* false: there are no changes. */
static bool commit(void)
{
	const struct overlay_opening how = { .path = "changes", .write = true };
	struct ummap_geom geom = { .size = 0 };
	struct store_facts base;
	struct overlay o = { .policy = &overlay_cow };
	int err = overlay_open(&o, &how, &geom);

	if (err == 1)
		return overlay_close(&o), false;
	check(err == 0 && overlay_load(&o) == 0, "%s", geom.why);
	overlay_describe(&base, "store", -1, power_file("store")->size);
	check(cow_commit(&o, &base, &power_driver, power_file("store"), &geom) == 0, "%s",
	      geom.why);
	overlay_close(&o);
	return true;
}

static void check_commit(struct power_replay *replay, size_t k)
{
	struct handle h = { .driver.struct_size = sizeof(h.driver) };

	power_cut(replay, k, seed);
	if (power_file("changes")->size == 0)
		return check_store(now_image());
	if (ummap_driver_open("cow+power:store?cow.path=changes", 0, &h.driver, &h.cow, &h.geom) ==
	    0) {
		read_image(&h);
		check(found.size == now_image()->size &&
		      memcmp(found.bytes, now_image()->bytes, CAP) == 0);
		close_store(&h);
		check_store(&moments[0].image);
	} else {
		check(errno == EUCLEAN && strstr(umerrormsg(), "commit"), "%s", umerrormsg());
	}
	check(commit());
	check_store(now_image());
	check(!commit());
}

/* ---- Tests ---- */

static void begin(void)
{
	cuts_begin();
	found.bytes = malloc(CAP);
}

static size_t cut_at_all(size_t cuts, void (*check_one)(struct power_replay *replay, size_t k),
			 size_t step)
{
	cuts = cuts_at_all(&record, cuts, check_one, step);
	power_record_free(&record);
	return cuts;
}

Test(cow_cuts, at_every_request)
{
	begin();
	for (size_t cuts = cuts_wanted(); cuts > 0;) {
		run_workload();
		cuts = cut_at_all(cuts, check_cut, 1);
	}
}

Test(cow_cuts, recovery_is_cut_off)
{
	begin();
	for (size_t cuts = cuts_wanted() / 10; cuts > 0;) {
		run_workload();
		cuts = cut_at_all(cuts, check_recoveries, 7);
	}
}

Test(cow_cuts, after_a_kill)
{
	begin();
	for (size_t cuts = cuts_wanted() / 2; cuts > 0;) {
		run_workload();
		cuts = cut_at_all(cuts, check_killed_before, 1);
	}
}

Test(cow_cuts, commit_is_cut_off)
{
	begin();
	for (size_t cuts = cuts_wanted() / 4; cuts > 0;) {
		run_workload();
		power_record_free(&record);
		power_record_begin(&record);
		check(commit());
		check_store(now_image());
		cuts = cut_at_all(cuts, check_commit, 1);
	}
}

/* ---- A full disk ---- */

static bool could_be(const struct moment *from, const struct moment *to, uint64_t at)
{
	for (const struct moment *m = from; m <= to; m++) {
		if (m->image.bytes[at] == found.bytes[at])
			return true;
	}
	return false;
}

static int try_write(struct handle *h, struct write *w)
{
	choose_write(w);
	w->len = w->len < 30000 ? w->len : 30000;
	w->off = next_random(&seed) % (START - w->len);
	fill(next_image()->bytes + w->off, w->len, w->off, next_random(&seed) % 1000);
	return h->driver.write(h->cow, now_image()->bytes + w->off, w->len, w->off);
}

/* Writes that do not fit fail, all other data stay as they are, and nothing is lost. After there is
 * space, writing succeeds. */
Test(cow_cuts, full)
{
	begin();
	for (int i = 0; i < 20; i++) {
		struct handle h;
		struct write w;
		int err = 0;

		make_store();
		open_store(&h);
		check(try_write(&h, &w) == 0);
		power_room = 100 * KIB + next_random(&seed) % (200 * KIB);
		while (!err)
			err = try_write(&h, &w);
		check(err == -ENOSPC, "%d", err);
		/* The last write may have been done in part. */
		read_image(&h);
		for (uint64_t at = 0; at < CAP; at++)
			check(could_be(&moments[nmoments - 2], &moments[nmoments - 1], at),
			      "byte %" PRIu64, at);
		power_room = HEADER_BYTES;
		check(h.driver.flush(h.cow, 0, UINT64_MAX) == ENOSPC, "no data are lost");
		power_room = POWER_CAP;
		check(h.driver.flush(h.cow, 0, UINT64_MAX) == 0);
		check(h.driver.write(h.cow, now_image()->bytes + w.off, w.len, w.off) == 0);
		close_store(&h);
		open_store(&h);
		read_image(&h);
		check(memcmp(found.bytes, now_image()->bytes, CAP) == 0);
		close_store(&h);
	}
}

/* ---- Errors of the file of changes ---- */

static struct ummap_driver failing;
static size_t calls_left = SIZE_MAX;   /* calls before the one that fails; SIZE_MAX: none fails */

static bool fails_now(void)
{
	return calls_left != SIZE_MAX && calls_left-- == 0;
}

static int failing_read(void *h, void *buf, size_t len, uint64_t off)
{
	return fails_now() ? -EIO : power_read(h, buf, len, off);
}

static int failing_write(void *h, const void *buf, size_t len, uint64_t off)
{
	if (!fails_now())
		return power_write(h, buf, len, off);
	power_write(h, buf, len / 2, off);
	return -EIO;
}

static int failing_flush(void *h, uint64_t off, uint64_t len)
{
	power_bad_flushes = fails_now();
	return power_flush(h, off, len);
}

static void open_again(struct handle *h)
{
	memset(h, 0, sizeof(*h));
	h->driver.struct_size = sizeof(h->driver);
	for (int tries = 0; ummap_driver_open("cow+power:store?cow.path=changes", UMMAP_O_WRITE,
					      &h->driver, &h->cow, &h->geom) < 0;
	     tries++)
		check(tries == 0 && *umerrormsg(), "%s", umerrormsg());
}

/* One call fails and is repeated. Then all data are complete, also after a loss of power. Returns
 * whether a call has failed. */
static bool run_with_error(void)
{
	bool failed;

	struct power_replay replay;
	struct handle h;

	make_store();
	power_record_begin(&record);
	open_again(&h);
	for (int i = 0; i < 12; i++) {
		struct image *image = next_image();
		struct write w;

		choose_write(&w);
		w.len = w.len < 60000 ? w.len : 60000;
		fill(image->bytes + w.off, w.len, w.off, next_random(&seed) % 1000);
		image->size = w.off + w.len > image->size ? w.off + w.len : image->size;
		if (h.driver.write(h.cow, image->bytes + w.off, w.len, w.off) != 0)
			check(h.driver.write(h.cow, image->bytes + w.off, w.len, w.off) == 0);
		/* Flushes before the handle is closed, whose own flush could not be repeated. */
		if (i % 3 == 2 && h.driver.flush(h.cow, 0, UINT64_MAX) != 0)
			check(h.driver.flush(h.cow, 0, UINT64_MAX) == 0);
		if (i == 5) {
			h.driver.close(h.cow);
			open_again(&h);
		}
	}
	failed = calls_left == SIZE_MAX;
	calls_left = SIZE_MAX;
	check(h.driver.flush(h.cow, 0, UINT64_MAX) == 0);
	power_replay_begin(&replay, &record);
	power_cut(&replay, record.n, seed);
	power_replay_end(&replay);
	close_store(&h);
	return failed;
}

static void check_last(void)
{
	struct handle h;

	open_store(&h);
	read_image(&h);
	check(found.size == now_image()->size && memcmp(found.bytes, now_image()->bytes, CAP) == 0);
	close_store(&h);
	power_record_free(&record);
}

Test(cow_cuts, errors)
{
	bool failed = true;

	begin();
	failing = power_driver;
	failing.read = failing_read;
	failing.write = failing_write;
	failing.flush = failing_flush;
	side_driver = &failing;
	for (size_t n = 0; failed; n++) {
		calls_left = n;
		failed = run_with_error();
		check_last();
	}
}
