/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several writers of the same segments (UMMAP_WRITERS), in several processes and as several
 * mappings of one process. At the end, each byte has the value that its owner stored, and no store
 * was undone: with a small budget, after failures of the store, with pins, umremap, umimport_put
 * and fork.
 */
#include "common.h"

#define SEG (64 * KIB)
#define SIZE (32 * SEG)
#define BUDGET (SIZE / 4)
#define WRITERS_MAX 4
#define OLD 1
#define NEW 2
#define THEIRS 3

static uint8_t *open_writer(int fd, size_t size, size_t seg_size, unsigned flags)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	void *addr;

	attr.seg_size = seg_size;
	attr.flags = UMMAP_WRITERS | flags;
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	check(ummap_open(uri, size, 0, READ_WRITE, &attr, &addr) == 0);
	return addr;
}

static uint8_t *map_writer(int fd, size_t size)
{
	return open_writer(fd, size, SEG, 0);
}

/* The budget includes twins. A few segments may be in use by threads at the moment. */
static void check_budget(void)
{
	check(stat_of(NULL).over_budget_peak <= BUDGET / 2, "%" PRIu64,
	      stat_of(NULL).over_budget_peak);
}

/* ---- Records, by processes ---- */

/* Record size of the benchmark IO500, whose "hard" files are written alternately by all writers. */
#define RECORD 47008
#define RECORD_SEG MIB
#define RECORDS ((int)by_time(150, 400))
#define RECORDS_SIZE ((size_t)RECORDS * RECORD)

struct record_job {
	int fd, writers, rank;
};

static void write_records(void *arg)
{
	const struct record_job *job = arg;
	uint8_t *m;

	set_budget(6 * RECORD_SEG);
	m = open_writer(job->fd, RECORDS_SIZE, RECORD_SEG, 0);
	for (int i = job->rank; i < RECORDS; i += job->writers)
		fill(m + (size_t)i * RECORD, RECORD, (uint64_t)i * RECORD, NEW);
	check(umsync(m, 0) == 0);
	for (int i = job->rank; i < RECORDS; i += job->writers)
		check_bytes(m + (size_t)i * RECORD, RECORD, (uint64_t)i * RECORD, NEW);
	check(umunmap(m, 1) == 0);
}

static void records(int writers, uint64_t there)
{
	struct record_job job = { .fd = temp_file(0), .writers = writers };
	pid_t pid[WRITERS_MAX];

	if (there)
		file_fill(job.fd, 0, there, 0, OLD);
	for (job.rank = 0; job.rank < writers; job.rank++)
		pid[job.rank] = start_child(write_records, &job);
	for (int i = 0; i < writers; i++)
		check_exits(wait_child(pid[i]), 0);
	check_file(job.fd, 0, RECORDS_SIZE, 0, NEW);
	close(job.fd);
}

/* ---- Single bytes ---- */

static bool is_mine(size_t byte, int writers, int rank)
{
	return mix(byte) % (unsigned)writers == (unsigned)rank;
}

static void write_bytes(void *arg)
{
	const struct record_job *job = arg;
	uint8_t *m;

	set_budget(4 * SEG);
	m = map_writer(job->fd, SIZE / 4);
	for (size_t i = 0; i < SIZE / 4; i++)
		if (is_mine(i, job->writers, job->rank))
			m[i] = pattern(i, NEW);
	check(umunmap(m, 1) == 0);
}

static void bytes_by_processes(void)
{
	struct record_job job = { .fd = filled_file(SIZE / 4, OLD), .writers = 3 };
	pid_t pid[3];

	for (job.rank = 0; job.rank < 3; job.rank++)
		pid[job.rank] = start_child(write_bytes, &job);
	for (int i = 0; i < 3; i++)
		check_exits(wait_child(pid[i]), 0);
	check_file(job.fd, 0, SIZE / 4, 0, NEW);
	close(job.fd);
}

#define BURSTS ((int)by_time(250, 2500))
#define BURST 4000
#define BURST_AREA 1024 /* bytes that the stores of a burst are in: it bounds the pieces */

/* Two mappings store 1 or 10 million bytes at random, alternately. Each byte has one owner. */
static void stores_by_mappings(void *unused)
{
	uint8_t *m[2], *model = malloc(SIZE), *in_file = malloc(SIZE);
	int fd = filled_file(SIZE, OLD);
	uint64_t state = 5;

	(void)unused;
	set_budget(BUDGET);
	m[0] = map_writer(fd, SIZE);
	m[1] = map_writer(fd, SIZE);
	check(pread(fd, model, SIZE, 0) == (ssize_t)SIZE);
	for (int burst = 0; burst < BURSTS; burst++) {
		size_t at = next_random(&state) % (SIZE - BURST_AREA);

		for (int i = 0; i < BURST; i++) {
			uint64_t random = next_random(&state);
			size_t byte = at + random % BURST_AREA;

			m[is_mine(byte, 2, 1)][byte] = model[byte] = (uint8_t)(random >> 32);
		}
		if (burst % 100 == 0)
			check(umsync(m[burst / 100 % 2], burst % 300 == 0) == 0);
	}
	check(umsync(m[0], 0) == 0 && umsync(m[1], 0) == 0);
	check(pread(fd, in_file, SIZE, 0) == (ssize_t)SIZE);
	for (size_t i = 0; i < SIZE; i++)
		check(in_file[i] == model[i], "byte %zu is %#x, not %#x", i, in_file[i], model[i]);
	check(umsync(m[0], 1) == 0 && umsync(m[1], 1) == 0);
	check(memcmp(m[0], model, SIZE) == 0 && memcmp(m[1], model, SIZE) == 0,
	      "both mappings after eviction");
	check_budget();
}

/* ---- Threads ---- */

#define LARGE (8 * MIB) /* segment size for which the copy of a twin takes long */
#define ROUNDS ((int)by_time(40, 200))
#define LATER 150 /* number of stores */

struct second {
	uint8_t *m;
	pthread_barrier_t start, end;
};

static uint64_t upgrades_of(const uint8_t *m)
{
	return stat_of(m).upgrade_faults;
}

/* Stores to the end of the segment as soon as the first store of the other thread may have given
 * write access. */
static void *store_later(void *arg)
{
	struct second *s = arg;

	for (int round = 1; round <= ROUNDS; round++) {
		double seen;

		pthread_barrier_wait(&s->start);
		while (upgrades_of(s->m) == 0)
			;
		/* Without write access, the store would wait until the other thread has ended. */
		for (seen = now(); now() < seen + 1e-5 * (round % 10);)
			;
		for (int i = 0; i < LATER; i++)
			s->m[LARGE - 1 - i] = (uint8_t)(round % 255 + 1);
		pthread_barrier_wait(&s->end);
	}
	return NULL;
}

/* A thread may store without a fault only after the twin is complete. */
static void first_stores_of_threads(void *unused)
{
	int fd = temp_file(LARGE);
	struct second s = { .m = NULL };
	pthread_t thread;
	uint8_t bytes[LATER];

	(void)unused;
	pthread_barrier_init(&s.start, NULL, 2);
	pthread_barrier_init(&s.end, NULL, 2);
	check(pthread_create(&thread, NULL, store_later, &s) == 0);
	for (int round = 1; round <= ROUNDS; round++) {
		/* A twin exists as long as its segment is in memory. */
		s.m = open_writer(fd, LARGE, LARGE, 0);
		(void)*(volatile uint8_t *)s.m;
		pthread_barrier_wait(&s.start);
		s.m[round] = 1;
		pthread_barrier_wait(&s.end);
		check(umunmap(s.m, 1) == 0);
		check(pread(fd, bytes, LATER, LARGE - LATER) == LATER);
		for (int i = 0; i < LATER; i++)
			check(bytes[i] == round % 255 + 1, "round %d, byte %d is %d", round, i,
			      bytes[i]);
	}
	check(pthread_join(thread, NULL) == 0);
}

/* ---- Stores of other writers, and the end of segments ---- */

static void others_are_seen(void *unused)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *a = map_writer(fd, SIZE), *b = map_writer(fd, SIZE);

	(void)unused;
	fill(a, 1000, 0, NEW);
	fill(b + 1000, 1000, 1000, THEIRS);
	check(umsync(a, 0) == 0);
	check_bytes(a + 1000, 1000, 1000, OLD);
	check(umsync(b, 1) == 0);
	check_bytes(b, 1000, 0, NEW);
	check(umsync(a, 1) == 0);
	check_bytes(a + 1000, 1000, 1000, THEIRS);
	/* Discarded changes are not written. */
	fill(a + SEG, SEG, SEG, NEW);
	check(umunmap(a, 0) == 0);
	check(umunmap(b, 1) == 0);
	check_file(fd, 0, 1000, 0, NEW);
	check_file(fd, 1000, 1000, 1000, THEIRS);
	check_file(fd, 2000, SIZE - 2000, 2000, OLD);
}

/* Twins are freed when their segments are clean: otherwise the budget would soon be exhausted. */
static void twins_go(void *unused)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m;

	(void)unused;
	set_budget(BUDGET);
	m = map_writer(fd, SIZE);
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < SIZE; i += SEG / 2)
			m[i + (size_t)round] = (uint8_t)round;
		check((round % 2 ? umsync(m, round % 4 == 1) :
				   umadvise(m, SIZE, UMMAP_ADV_DONTNEED)) == 0);
		if (round == 10) {
			m[0] = 0xff;
			check(umunmap(m, 0) == 0);
			m = map_writer(fd, SIZE);
		}
		check(stat_of(NULL).dirty_bytes == 0);
	}
	check_budget();
	check(umunmap(m, 1) == 0);
}

static void pins(void *unused)
{
	int fd = filled_file(2 * SEG, OLD);
	uint8_t *m = map_writer(fd, 2 * SEG), byte = 77;

	(void)unused;
	check(umpin(m, SEG, READ_WRITE) == 0);
	fill(m, 5000, 0, NEW);
	check(umsync(m, 0) == 0);
	check_file(fd, 0, 5000, 0, NEW);
	/* A store of another writer stays, also where this mapping stored before. */
	check(pwrite(fd, &byte, 1, 100) == 1 && pwrite(fd, &byte, 1, 6000) == 1);
	fill(m + 5000, 500, 5000, NEW);
	check(umsync(m, 0) == 0);
	check(umunpin(m, SEG) == 0);
	m[7000] = 5;
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, 100, 0, NEW);
	check_file(fd, 101, 5399, 101, NEW);
	check_file(fd, 5500, 500, 5500, OLD);
	check(pread(fd, &byte, 1, 100) == 1 && byte == 77);
	check(pread(fd, &byte, 1, 6000) == 1 && byte == 77);
	check(pread(fd, &byte, 1, 7000) == 1 && byte == 5);
}

/* Stores beyond the end of the file, and to a last segment that is short. */
static void growing_file(void *unused)
{
	size_t size = 2 * SEG + 777;
	int fd = filled_file(100, OLD);
	uint8_t *a = map_writer(fd, size), *b = map_writer(fd, size);

	(void)unused;
	for (size_t i = 100; i < size; i++)
		(i % 2 ? a : b)[i] = pattern(i, NEW);
	check(umunmap(a, 1) == 0 && umunmap(b, 1) == 0);
	check(file_size(fd) == size, "%" PRIu64, file_size(fd));
	check_file(fd, 0, 100, 0, OLD);
	check_file(fd, 100, size - 100, 100, NEW);
}

/* ---- umremap ---- */

static uint8_t *remap(uint8_t *m, size_t size, int fd, off_t offset, int sync)
{
	void *base = NULL;

	check(umremap(m, size, fd, offset, sync, &base) == 0);
	return base;
}

static void put_theirs(int fd, uint64_t at, size_t len)
{
	file_fill(fd, at, len, at, THEIRS);
}

static void resizing(void *unused)
{
	size_t size = 3 * SEG + 300;
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_writer(fd, size);

	(void)unused;
	m[3 * SEG] = 99;
	m = remap(m, size + 5000, -1, -1, 0);
	check_bytes(m + size, 5000, size, OLD);
	put_theirs(fd, 3 * SEG + 1, 299);
	put_theirs(fd, size, 2000);
	fill(m + size + 2000, 3000, size + 2000, NEW);
	check(umsync(m, 0) == 0);
	/* A clean mapping that is extended writes nothing. */
	m = remap(m, size + 6000, -1, -1, 0);
	put_theirs(fd, size + 5000, 1000);
	check(umsync(m, 0) == 0);
	m = remap(m, size, -1, -1, 0);
	fill(m, SEG, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SEG, 0, NEW);
	check_file(fd, 3 * SEG + 1, 299 + 2000, 3 * SEG + 1, THEIRS);
	check_file(fd, size + 2000, 3000, size + 2000, NEW);
	check_file(fd, size + 5000, 1000, size + 5000, THEIRS);
	check_file(fd, size + 6000, SIZE - size - 6000, size + 6000, OLD);
}

/* A migration writes all data to the new place once. After that, only stored bytes are written. */
static void carrying(void *unused)
{
	int fd = filled_file(4 * SEG, OLD), to = filled_file(4 * SEG, THEIRS);
	uint8_t *m = map_writer(fd, 4 * SEG);

	(void)unused;
	fill(m, 100, 0, NEW);
	m = remap(m, 0, to, 0, 0);
	fill(m + 100, 100, 100, NEW);
	check(umsync(m, 0) == 0);
	check_file(to, 0, 200, 0, NEW);
	check_file(to, 200, 4 * SEG - 200, 200, OLD);
	put_theirs(to, 1000, 100);
	fill(m + 200, 100, 200, NEW);
	check(umsync(m, 0) == 0);
	check_file(to, 0, 300, 0, NEW);
	check_file(to, 1000, 100, 1000, THEIRS);
	m = remap(m, 0, fd, 0, UMMAP_SWITCH);
	fill(m + SEG, 100, SEG, NEW);
	put_theirs(fd, SEG + 100, 100);
	check(umunmap(m, 1) == 0);
	check_file(fd, SEG, 100, SEG, NEW);
	check_file(fd, SEG + 100, 100, SEG + 100, THEIRS);
}

/* ---- Failures ---- */

/* Returns a mapping of four segments whose store fails as the keys of the filter say. */
static uint8_t *open_failing(int fd, const char *keys)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[160];
	void *addr;

	snprintf(uri, sizeof(uri), "error+posix:/proc/self/fd/%d?%s", fd, keys);
	attr.seg_size = SEG;
	attr.flags = UMMAP_WRITERS;
	check(ummap_open(uri, 4 * SEG, 0, READ_WRITE, &attr, &addr) == 0);
	return addr;
}

/* One write fails: no data are lost, and no bytes of other writers are written. Exit status 1: no
 * write failed. */
static void failing_write(void *arg)
{
	int nth = *(int *)arg, fd = filled_file(4 * SEG, OLD);
	char keys[64];
	bool failed;
	uint8_t *m;

	snprintf(keys, sizeof(keys), "error.op=write&error.nth=%d&error.short=3", nth);
	m = open_failing(fd, keys);
	if (nth % 2)
		check(umpin(m, SEG, READ_WRITE) == 0);
	for (size_t i = 0; i < 4 * SEG; i += SEG / 8)
		fill(m + i, 700, i, NEW);
	put_theirs(fd, 1000, 1000);
	failed = umsync(m, 0) != 0;
	check(umsync(m, 0) == 0);
	if (nth % 2)
		check(umunpin(m, SEG) == 0);
	check(umunmap(m, 1) == 0);
	for (size_t i = 0; i < 4 * SEG; i += SEG / 8)
		check_file(fd, i, 700, i, NEW);
	check_file(fd, 1000, 1000, 1000, THEIRS);
	_exit(failed ? 0 : 1);
}

static void failing_writes(void)
{
	int nth = 1, status;

	do {
		status = run_child(failing_write, &nth);
		check(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "%d: wait status %#x", nth,
		      status);
	} while (WEXITSTATUS(status) == 0 && nth++ < 200);
	check(nth > 30 && nth < 200, "the write that is one too many is the %d-th", nth);
}

/* The twin does not show what a failed write has left in the file, so bytes that change back to
 * their old value are written. */
static void change_back(void *unused)
{
	int fd = filled_file(4 * SEG, OLD);
	uint8_t *m = open_failing(fd, "error.op=write&error.nth=3&error.times=2&error.short=300");

	(void)unused;
	for (size_t i = 0; i < 4 * SEG; i += SEG / 8)
		fill(m + i, 700, i, NEW);
	check(umsync(m, 0) != 0);
	for (size_t i = 0; i < 4 * SEG; i += SEG / 8)
		fill(m + i, 700, i, OLD);
	put_theirs(fd, 1000, 1000);
	while (umsync(m, 0) != 0)
		;
	check(umunmap(m, 1) == 0);
	for (size_t i = 0; i < 4 * SEG; i += SEG / 8)
		check_file(fd, i, 700, i, OLD);
	check_file(fd, 1000, 1000, 1000, THEIRS);
}

/* After a failed flush, it is unknown which stored bytes were written. No later call succeeds. */
static void failing_flush(void *unused)
{
	int fd = filled_file(4 * SEG, OLD);
	uint8_t *m = open_failing(fd, "error.op=flush&error.nth=1");

	(void)unused;
	fill(m, 100, 0, NEW);
	check_fails(umsync(m, 0), EIO);
	put_theirs(fd, 1000, 100);
	check_fails(umsync(m, 0), EIO);
	m[3 * SEG] = 9;
	check_fails(umunmap(m, 1), EIO);
	check(umunmap(m, 0) == 0);
	check_file(fd, 1000, 100, 1000, THEIRS);
}

/* ---- Imports and fork ---- */

static void peers(void *unused)
{
	int fd = filled_file(SEG, OLD);
	uint8_t *m = open_writer(fd, SEG, SEG, UMMAP_SHARED), bytes[100];
	struct umimport *peer;
	struct umexport offer;

	(void)unused;
	check(umexport(m, &offer) == 0 && umimport_open(&offer, &peer) == 0);
	fill(bytes, 100, 500, NEW);
	check(umimport_put(peer, bytes, 100, 500) == 0);
	m[0] = 9;
	check(umimport_put(peer, bytes, 100, 500) == 100);
	put_theirs(fd, 1000, 100);
	check(umsync(m, 0) == 0);
	check_file(fd, 500, 100, 500, NEW);
	check_file(fd, 1000, 100, 1000, THEIRS);
	umimport_close(peer);
	check(umunmap(m, 1) == 0);
}

static void be_a_child(void *fd)
{
	uint8_t *m = map_writer(*(int *)fd, SIZE);

	fill(m + SIZE / 2, SIZE / 2, SIZE / 2, THEIRS);
	check(umunmap(m, 1) == 0);
}

static void forks(void *unused)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_writer(fd, SIZE);

	(void)unused;
	fill(m, SIZE / 2, 0, NEW);
	check_exits(run_child(be_a_child, &fd), 0);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SIZE / 2, 0, NEW);
	check_file(fd, SIZE / 2, SIZE / 2, SIZE / 2, THEIRS);
}

/* ---- Attributes and environment ---- */

static bool says(const char *text)
{
	return strstr(umerrormsg(), text) != NULL;
}

static void attributes(void *unused)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_writer(fd, SIZE);
	char uri[128];
	void *addr;

	(void)unused;
	check_fails(ummap(SIZE, SEG, READ_WRITE, fd, 0, -1, 1, UMMAP_PTYPE_FIFO, &addr), EBUSY);
	check(says("UMMAP_WRITERS"), "%s", umerrormsg());
	check(umunmap(m, 0) == 0);
	check(ummap(SIZE, SEG, READ_WRITE, fd, 0, -1, 1, UMMAP_PTYPE_FIFO, (void **)&m) == 0);
	attr.flags = UMMAP_WRITERS;
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr), EBUSY);
	check(umunmap(m, 0) == 0);
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d?direct=always", fd);
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr), EINVAL);
	check(says("direct is \"always\": it must be auto or never"), "%s", umerrormsg());
	/* A read-only mapping does not write. */
	check(ummap_open(uri, SIZE, 0, PROT_READ, &attr, &addr) == 0);
	check(umunmap(addr, 0) == 0);
}

static void by_environment(void *unused)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *a, *b;
	void *addr;

	(void)unused;
	set_env("UMMAP_WRITERS", "1");
	a = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	b = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	check_fails(ummap(SIZE, SEG, READ_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &addr), EINVAL);
	fill(a, 100, 0, NEW);
	fill(b + 100, 100, 100, NEW);
	check(umunmap(a, 1) == 0 && umunmap(b, 1) == 0);
	check_file(fd, 0, 200, 0, NEW);
	check_file(fd, 200, SIZE - 200, 200, OLD);
}

static void run(const char *name, void (*body)(void *))
{
	double start = now();

	check_exits(run_child(body, NULL), 0);
	printf("%s: %.1f s\n", name, now() - start);
}

int main(void)
{
	set_group();
	for (int writers = 2; writers <= WRITERS_MAX; writers++)
		records(writers, writers % 2 ? RECORDS_SIZE : 0);
	bytes_by_processes();
	failing_writes();
	run("stores by mappings", stores_by_mappings);
	run("first stores of threads", first_stores_of_threads);
	run("others are seen", others_are_seen);
	run("twins go", twins_go);
	run("pins", pins);
	run("growing file", growing_file);
	run("resizing", resizing);
	run("carrying", carrying);
	run("change back", change_back);
	run("failing flush", failing_flush);
	if (engine_is("segv"))
		run("peers", peers);
	if (!SANITIZED)  /* a new thread may hold a lock of the sanitizer's allocator during fork */
		run("forks", forks);
	run("attributes", attributes);
	run("by environment", by_environment);
	return 0;
}
