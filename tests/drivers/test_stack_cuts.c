/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_stack_cuts.c - power is lost at every request of a workload over two filters, each with a
 * file of its own. Each flush happens as a whole or not at all, and an acknowledged one is never
 * lost. UMMAP_TEST_CUTS is the number of cuts (400).
 */
#include <criterion/criterion.h>

#define POWER_FILES 3
#define POWER_CAP ((size_t)3072 << 10)
#include "drivers/side.h"
#include "cuts.h"

#define CAP (300 * KIB + 700)    /* bytes of the store */
#define START (250 * KIB + 300)
#define EPOCHS 8
#define MOMENTS 64

/* The store when a flush began. */
struct moment {
	uint8_t *bytes;              /* CAP bytes */
	uint64_t size;
	size_t begun, acked;         /* number of requests at the beginning and at the end */
};

static struct handle {
	struct ummap_driver driver;
	void *h;
	struct ummap_geom geom;
} h;

static const char *uri;          /* URI of the stack */
static struct moment moments[MOMENTS];
static unsigned nmoments;
static struct power_record record;
static uint8_t *present, *found;
static uint64_t present_size, found_size;

static void open_uri(const char *name)
{
	memset(&h, 0, sizeof(h));
	h.driver.struct_size = sizeof(h.driver);
	check(ummap_driver_open(name, UMMAP_O_WRITE, &h.driver, &h.h, &h.geom) == 0, "%s",
	      umerrormsg());
}

static void close_stack(void)
{
	check(h.driver.close(h.h) == 0);
}

static void read_stack(void)
{
	check(h.driver.size(h.h, &found_size) == 0 && found_size <= CAP);
	check(h.driver.read(h.h, found, CAP, 0) == 0);
}

/* ---- The workload ---- */

static void write_some(void)
{
	static const uint64_t longest[] = { 600, 9000, 9000, 40000 };
	uint64_t off = next_random(&seed) % (CAP - 1), len;

	len = 1 + next_random(&seed) % longest[next_random(&seed) % 4];
	if (next_random(&seed) % 3) {
		off &= ~(uint64_t)4095;
		len = (len + 4095) & ~(uint64_t)4095;
	}
	if (next_random(&seed) % 4)
		off %= START;
	len = len < CAP - off ? len : CAP - off;
	fill(present + off, len, off, next_random(&seed) % 1000);
	present_size = off + len > present_size ? off + len : present_size;
	check(h.driver.write(h.h, present + off, len, off) == 0);
}

static struct moment *add_moment(void)
{
	struct moment *m = &moments[nmoments++];

	check(nmoments < MOMENTS);
	m->bytes = m->bytes ? m->bytes : malloc(CAP);
	memcpy(m->bytes, present, CAP);
	m->size = present_size;
	m->begun = power_recording ? power_requests() : 0;
	m->acked = SIZE_MAX;
	return m;
}

static void flush_stack(void)
{
	struct moment *m = add_moment();

	check(h.driver.flush(h.h, 0, UINT64_MAX) == 0);
	m->acked = power_requests();
}

/* The last filter may find a log with commits, and the first one a file that was used. */
static void make_store(void)
{
	struct ummap_geom geom;
	void *store = NULL;

	power_erase();
	memset(&record, 0, sizeof(record));
	nmoments = 0;
	memset(present, 0, CAP);
	fill(present, START, 0, 7);
	present_size = START;
	check(power_open(&(struct ummap_uri){ .path = "store" }, UMMAP_O_CREATE, &store, &geom) ==
	      0);
	check(power_write(store, present, START, 0) == 0);
	if (strncmp(uri, "cow+wal+", 8) == 0) {
		open_uri("wal+power:store?wal.path=log&wal.keep=3");
		for (int i = 0; i < 3; i++) {
			write_some();
			check(h.driver.flush(h.h, 0, UINT64_MAX) == 0);
		}
		close_stack();
	}
	add_moment()->acked = 0;
}

static void run_workload(void)
{
	make_store();
	power_record_begin(&record);
	open_uri(uri);
	for (unsigned epoch = 1; epoch <= EPOCHS; epoch++) {
		for (unsigned i = next_random(&seed) % 5; i < 5; i++)
			write_some();
		flush_stack();
		if (next_random(&seed) % 3 == 0) {
			close_stack();
			open_uri(uri);
		}
	}
	close_stack();
}

/* ---- What is found ---- */

static void check_found(size_t k)
{
	const struct moment *m, *from = moments;

	for (m = moments; m < moments + nmoments; m++) {
		if (m->acked <= k)
			from = m;
	}
	read_stack();
	for (m = from; m < moments + nmoments && m->begun <= k; m++) {
		if (found_size == m->size && memcmp(found, m->bytes, CAP) == 0)
			return;
	}
	check(false, "cut at %zu of %zu: %" PRIu64 " bytes, which no flush had", k, record.n,
	      found_size);
}

static void go_on(void)
{
	memcpy(present, found, CAP);
	present_size = found_size;
	write_some();
	check(h.driver.flush(h.h, 0, UINT64_MAX) == 0);
	close_stack();
	open_uri(uri);
	read_stack();
	check(found_size == present_size && memcmp(found, present, CAP) == 0);
}

static void check_cut(struct power_replay *replay, size_t k)
{
	power_cut(replay, k, seed);
	open_uri(uri);
	check_found(k);
	go_on();
	close_stack();
}

/* A process is killed, the next one opens the stack, and then power is lost. */
static void check_killed_before(struct power_replay *replay, size_t k)
{
	struct power_record recovery;
	struct power_replay again;
	size_t first = power_kill(replay, k, &recovery);

	open_uri(uri);
	check_found(k);
	close_stack();
	power_replay_begin(&again, &recovery);
	power_cut(&again, first + next_random(&seed) % (recovery.n + 1 - first), seed);
	power_replay_end(&again);
	power_record_free(&recovery);
	open_uri(uri);
	check_found(k);
	go_on();
	close_stack();
}

static void cut_stack(const char *stack)
{
	size_t cuts = cuts_wanted(), kills = cuts / 4;

	uri = stack;
	/* The filter sum+ needs a file of the store's name. */
	check(chdir(temp_dir()) == 0);
	close(open("store", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	setenv("UMMAP_LOG", "error", 1);
	cuts_begin();
	present = malloc(CAP);
	found = malloc(CAP);
	while (cuts > 0) {
		run_workload();
		cuts = cuts_at_all(&record, cuts, check_cut, 1);
		if (kills > 0)
			kills = cuts_at_all(&record, kills, check_killed_before, 3);
		power_record_free(&record);
	}
}

Test(stack_cuts, wal_cow)
{
	cut_stack("wal+cow+power:store?wal.path=log&cow.path=changes");
}

Test(stack_cuts, cow_wal)
{
	cut_stack("cow+wal+power:store?wal.path=log&cow.path=changes");
}

Test(stack_cuts, sum_wal)
{
	cut_stack("sum+wal+power:store?wal.path=log&sum.path=sums");
}

Test(stack_cuts, wal_sum)
{
	cut_stack("wal+sum+power:store?wal.path=log&sum.path=sums");
}
