/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_sum_cuts.c - power is lost at every request of a workload over sum+. The store can always be
 * opened and read, and has each byte as it was at the last flush or as it was written since. Damage
 * to blocks that were not in doubt is found. UMMAP_TEST_CUTS is the number of cuts (400).
 */
#include <criterion/criterion.h>

#define POWER_CAP ((size_t)1536 << 10)
#include "drivers/sum.h"
#include "cuts.h"

#define CAP (1100 * KIB + 700)   /* bytes of the store: two windows */
#define START (1000 * KIB + 300) /* its first length: one window */
#define EPOCHS 6
#define MOMENTS 64
#define URI "sum+power:store?sum.path=sums"

/* The store after a write. */
struct moment {
	uint8_t *bytes;              /* CAP bytes */
	size_t begun, acked;         /* number of requests before the write, and after a flush of
					it; SIZE_MAX: it was not flushed */
};

static struct handle {
	struct ummap_driver driver;
	void *sum;
	struct ummap_geom geom;
} h;

static struct moment moments[MOMENTS];
static unsigned nmoments;
static struct power_record record;
static uint8_t *found;
static uint64_t found_size;
static char why[200];            /* last notice */

static void keep_notice(void *unused, const char *message)
{
	(void)unused;
	snprintf(why, sizeof(why), "%s", message);
}

static void open_store(void)
{
	memset(&h, 0, sizeof(h));
	*why = '\0';
	h.driver.struct_size = sizeof(h.driver);
	check(ummap_driver_open(URI, UMMAP_O_WRITE, &h.driver, &h.sum, &h.geom) == 0, "%s",
	      umerrormsg());
	h.driver.set_notice(h.sum, keep_notice, NULL);
}

static void close_store(void)
{
	check(h.driver.close(h.sum) == 0);
}

static void read_store(void)
{
	check(h.driver.size(h.sum, &found_size) == 0 && found_size <= CAP);
	check(h.driver.read(h.sum, found, CAP, 0) == 0, "a good store cannot be read, %s", why);
}

/* ---- The workload ---- */

static struct moment *add_moment(void)
{
	struct moment *m = &moments[nmoments++];

	check(nmoments < MOMENTS);
	m->bytes = m->bytes ? m->bytes : malloc(CAP);
	if (nmoments > 1)
		memcpy(m->bytes, m[-1].bytes, CAP);
	else
		memset(m->bytes, 0, CAP);
	m->begun = record.n;
	m->acked = SIZE_MAX;
	return m;
}

/* false: a crash has interrupted the creation. */
static bool read_sums_head(struct side *sums, struct header *slots, struct sum_head *head)
{
	struct ummap_geom geom = { .size = 0 };

	*slots = side_header(SUM_MAGIC);
	check(side_open(sums, "sums", UMMAP_O_WRITE, 0, UMMAP_LOCK_NONE, &geom) == 0);
	return header_read(slots, sums, head, sizeof(*head)) == 0;
}

/* Each window is a region. */
static void make_regions_small(void)
{
	struct sum_head head;
	struct header slots;
	struct side sums;

	check(read_sums_head(&sums, &slots, &head));
	head.region = SUM_WINDOW;
	check(header_write_both(&slots, &sums, &head, sizeof(head)) == 0);
	side_close(&sums);
}

static void make_store(bool with_sums)
{
	struct ummap_geom geom;
	void *store = NULL;
	struct moment *m;

	power_erase();
	memset(&record, 0, sizeof(record));
	nmoments = 0;
	m = add_moment();
	fill(m->bytes, START, 0, 7);
	m->acked = 0;
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	check(power_write(store, m->bytes, START, 0) == 0);
	if (!with_sums)
		return;
	open_store();
	close_store();
	make_regions_small();
}

struct write {
	uint64_t off, len;
};

static void choose_write(struct write *w)
{
	static const uint64_t longest[] = { 600, 9000, 9000, 40000, 400000 };

	w->off = next_random(&seed) % (CAP - 1);
	w->len = 1 + next_random(&seed) % longest[next_random(&seed) % 5];
	if (next_random(&seed) % 2) {
		w->off &= ~(uint64_t)4095;
		w->len = (w->len + 4095) & ~(uint64_t)4095;
	}
	if (next_random(&seed) % 6)
		w->off %= START;
	else
		w->off = START + w->off % (CAP - START);
	w->len = w->len < CAP - w->off ? w->len : CAP - w->off;
}

static void write_some(struct write *w)
{
	struct moment *m;

	choose_write(w);
	m = add_moment();
	fill(m->bytes + w->off, w->len, w->off, next_random(&seed) % 1000);
	check(h.driver.write(h.sum, m->bytes + w->off, w->len, w->off) == 0);
}

/* Repeats what a failed flush may have lost, as the library does. */
static void flush_store(const struct write *writes, unsigned n)
{
	struct moment *m = &moments[nmoments - 1];

	if (next_random(&seed) % 6 == 0) {
		power_good_flushes = next_random(&seed) % 3;
		power_bad_flushes = 1;
		if (h.driver.flush(h.sum, 0, UINT64_MAX) != 0) {
			for (unsigned i = 0; i < n; i++)
				check(h.driver.write(h.sum, m->bytes + writes[i].off, writes[i].len,
						     writes[i].off) == 0);
		}
		power_good_flushes = power_bad_flushes = 0;
	}
	check(h.driver.flush(h.sum, 0, UINT64_MAX) == 0);
	m->acked = power_requests();
}

/* A write whose regions cannot be marked fails, and is repeated. */
static void write_and_fail(struct write *w)
{
	const uint8_t *bytes;
	int err;

	choose_write(w);
	bytes = add_moment()->bytes + w->off;
	fill((uint8_t *)(uintptr_t)bytes, w->len, w->off, 5);
	power_bad_flushes = 1;
	err = h.driver.write(h.sum, bytes, w->len, w->off);
	power_bad_flushes = 0;
	if (err)
		check(h.driver.write(h.sum, bytes, w->len, w->off) == 0);
}

static void run_workload(void)
{
	bool with_sums = next_random(&seed) % 4;
	struct write writes[4];

	make_store(with_sums);
	power_record_begin(&record);
	open_store();
	for (unsigned epoch = 1; epoch <= EPOCHS; epoch++) {
		unsigned n = 1 + next_random(&seed) % 4;

		for (unsigned i = 0; i < n; i++) {
			if (next_random(&seed) % 8)
				write_some(&writes[i]);
			else
				write_and_fail(&writes[i]);
		}
		flush_store(writes, n);
		/* Regions that were not written meanwhile are no longer in doubt. */
		for (unsigned i = 0; i < 2 * SUM_CLEAR_FLUSHES && epoch % 3 == 0; i++)
			check(h.driver.flush(h.sum, 0, UINT64_MAX) == 0);
		if (next_random(&seed) % 4 == 0)
			check(h.driver.resize(h.sum, CAP) == 0);
		if (next_random(&seed) % 3 == 0) {
			close_store();
			open_store();
		}
	}
	write_some(writes);
	close_store();
}

/* ---- What is found ---- */

static bool could_be(const struct moment *from, size_t k, uint64_t at)
{
	for (const struct moment *m = from; m < moments + nmoments && m->begun <= k; m++) {
		if (m->bytes[at] == found[at])
			return true;
	}
	return false;
}

/* After the first k requests. */
static void check_found(size_t k)
{
	const struct moment *from = moments;

	for (const struct moment *m = moments; m < moments + nmoments; m++) {
		if (m->acked <= k)
			from = m;
	}
	read_store();
	if (memcmp(found, from->bytes, CAP) == 0)
		return;
	for (uint64_t at = 0; at < CAP; at++)
		check(could_be(from, k, at), "cut at %zu of %zu: byte %" PRIu64, k, record.n, at);
}

static void damage(uint64_t at)
{
	power_file("store")->bytes[at] ^= 0x10;
}

/* One bit of a block that is not in doubt is turned, if the file of checksums has a header. Returns
 * the position; UINT64_MAX: none was. */
static uint64_t damage_before_opening(void)
{
	uint64_t at = next_random(&seed) % power_file("store")->size;
	struct sum_head head;
	struct header slots;
	struct side sums;
	uint64_t region;
	bool is_whole;

	if (!power_file("sums"))
		return UINT64_MAX;
	is_whole = read_sums_head(&sums, &slots, &head);
	side_close(&sums);
	if (!is_whole)
		return UINT64_MAX;
	region = at / head.region;
	if (head.doubt[region / 64] >> region % 64 & 1)
		return UINT64_MAX;
	damage(at);
	return at;
}

static void check_damage(uint64_t at)
{
	uint64_t block = at - at % SUM_BLOCK;
	uint8_t *bytes = found + block;

	check(h.driver.read(h.sum, bytes, SUM_BLOCK, block) == -EIO, "byte %" PRIu64, at);
	check(h.driver.read(h.sum, bytes + at % SUM_BLOCK, 1, at) == -EIO, "byte %" PRIu64, at);
	damage(at);
	check(h.driver.read(h.sum, bytes, SUM_BLOCK, block) == 0);
}

/* Later writes succeed, and damage is found. */
static void go_on(void)
{
	uint64_t off = next_random(&seed) % (CAP - 5000), len = 1 + next_random(&seed) % 5000, at;
	uint8_t *want = malloc(CAP);

	if (next_random(&seed) % 2)
		check(h.driver.resize(h.sum, CAP) == 0);
	read_store();
	memcpy(want, found, CAP);
	fill(want + off, len, off, 3);
	check(h.driver.write(h.sum, want + off, len, off) == 0);
	close_store();
	at = damage_before_opening();
	open_store();
	check(at != UINT64_MAX, "nothing is in doubt after a close");
	check_damage(at);
	read_store();
	check(memcmp(found, want, CAP) == 0);
	free(want);
}

static void check_cut(struct power_replay *replay, size_t k)
{
	uint64_t at;

	power_cut(replay, k, seed);
	at = damage_before_opening();
	open_store();
	if (at != UINT64_MAX)
		check_damage(at);
	check_found(k);
	go_on();
	close_store();
}

/* Recovery is cut off itself, over and over. */
static void check_recoveries(struct power_replay *replay, size_t k)
{
	power_cut(replay, k, seed);
	for (int i = 0; i < 6; i++) {
		struct power_record recovery;
		struct power_replay again;

		power_record_begin(&recovery);
		open_store();
		check_found(k);
		close_store();
		power_replay_begin(&again, &recovery);
		power_cut(&again, next_random(&seed) % (recovery.n + 1), seed);
		power_replay_end(&again);
		power_record_free(&recovery);
	}
	open_store();
	check_found(k);
	go_on();
	close_store();
}

/* A process is killed, the next one opens the store and writes, and then power is lost. */
static void check_killed_before(struct power_replay *replay, size_t k)
{
	struct power_record recovery;
	struct power_replay again;
	size_t first = power_kill(replay, k, &recovery);

	open_store();
	check_found(k);
	check(h.driver.write(h.sum, found, found_size, 0) == 0);
	if (next_random(&seed) % 2)
		check(h.driver.flush(h.sum, 0, UINT64_MAX) == 0);
	if (next_random(&seed) % 2)
		close_store();
	power_replay_begin(&again, &recovery);
	power_cut(&again, first + next_random(&seed) % (recovery.n + 1 - first), seed);
	power_replay_end(&again);
	power_record_free(&recovery);
	open_store();
	check_found(k);
	go_on();
	close_store();
}

/* ---- The tests ---- */

/* The filter needs a file of the store's name. */
static void begin(void)
{
	check(chdir(temp_dir()) == 0);
	setenv("UMMAP_LOG", "error", 1);
	close(open("store", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	cuts_begin();
	found = malloc(CAP + SUM_BLOCK);
}

static void cut_workloads(size_t cuts, void (*check_one)(struct power_replay *, size_t),
			  size_t step)
{
	begin();
	while (cuts > 0) {
		run_workload();
		cuts = cuts_at_all(&record, cuts, check_one, step);
		power_record_free(&record);
	}
}

Test(sum_cuts, at_every_request)
{
	cut_workloads(cuts_wanted(), check_cut, 1);
}

Test(sum_cuts, recovery_is_cut_off)
{
	cut_workloads(cuts_wanted() / 10, check_recoveries, 7);
}

Test(sum_cuts, after_a_kill)
{
	cut_workloads(cuts_wanted() / 2, check_killed_before, 1);
}

/* The process that makes the file of checksums is killed. */
Test(sum_cuts, killed_in_creation)
{
	begin();
	for (size_t cuts = cuts_wanted() / 2; cuts > 0;) {
		make_store(false);
		power_record_begin(&record);
		open_store();
		close_store();
		cuts = cuts_at_all(&record, cuts, check_killed_before, 1);
		power_record_free(&record);
	}
}

/* ---- A write during the flush that removes doubt ---- */

static bool writes_in_flush;

/* The first write is that of another thread, after the flush of the store. */
static void write_in_flush(const struct power_file *file)
{
	if (!writes_in_flush || strcmp(file->name, "sums") != 0)
		return;
	writes_in_flush = false;
	check(h.driver.write(h.sum, moments[0].bytes + 100, 5000, 300) == 0);
}

Test(sum_cuts, written_during_flush)
{
	begin();
	make_store(true);
	power_record_begin(&record);
	open_store();
	check(h.driver.write(h.sum, moments[0].bytes, 5000, 300) == 0);
	power_before_flush = write_in_flush;
	for (unsigned i = 1; i <= 2 * SUM_CLEAR_FLUSHES; i++) {
		writes_in_flush = i == 2 * SUM_CLEAR_FLUSHES;
		check(h.driver.flush(h.sum, 0, UINT64_MAX) == 0);
	}
	check(!writes_in_flush, "the last flush has removed no doubt");
	power_before_flush = NULL;
	for (uint64_t cut = 0; cut < 20; cut++) {
		struct power_replay replay;

		power_replay_begin(&replay, &record);
		power_cut(&replay, record.n, cut);
		power_replay_end(&replay);
		open_store();
		read_store();
	}
}
