/* SPDX-License-Identifier: BSD-3-Clause */
/* umremap of mappings in place, which stay in place if the new range permits it. */
#include <criterion/criterion.h>

#include "engine/messages.h"
#include "pmem.h"

/* The linker replaces the calls of messages_next (Makefile). */
bool __real_messages_next(struct fault *fault, bool wait);
bool __wrap_messages_next(struct fault *fault, bool wait);

static unsigned delay_ms; /* time before a message about an access is served */

bool __wrap_messages_next(struct fault *fault, bool wait)
{
	bool got = __real_messages_next(fault, wait);

	if (got && delay_ms)
		pause_ms(delay_ms);
	return got;
}

static void migration(void *arg)
{
	const struct kind *kind = arg;
	int from, to;
	void *base = NULL;
	uint8_t *m;

	settle(kind);
	from = file_of(SIZE, OLD);
	to = temp_file(0);
	m = map_file(from, SIZE, SEG, READ_WRITE, 0);
	fill(m + SEG, SEG, SEG, NEW);
	memset(m + SIZE - 3 * SEG, 0, 3 * SEG);
	check(umremap(m, 0, to, 2 * SEG, UMMAP_SYNC, &base) == 0 && base == m);
	check_bytes(m, SEG, 0, OLD);
	check_bytes(m + SEG, SEG, SEG, NEW);
	m[0] = 0;
	check(umsync(m, 0) == 0);
	check_file_zeros(to, 0, 2 * SEG);
	check_file(to, 2 * SEG + 1, SEG - 1, 1, OLD);
	check_file(to, 3 * SEG, SEG, SEG, NEW);
	check_file(to, 4 * SEG, SIZE - 5 * SEG, 2 * SEG, OLD);
	check_file(from, 0, SEG, 0, OLD);  /* the store after umremap went to the new file */
	check_file(from, SEG, SEG, SEG, NEW);
	if (kind->in_place)
		check(file_size(to) == 2 * SEG + SIZE, "%" PRIu64, file_size(to));
	check_in_place(m, 9, to, 2 * SEG + 9, kind->in_place);
	check_in_place(m, 9, from, 9, false);
	check(umunmap(m, 1) == 0);
}

Test(remap, migration)
{
	for_each_kind(migration);
}

/* The new range overlaps the old one. */
static void carry_over(void *arg)
{
	const struct kind *kind = arg;
	void *base = NULL;
	uint8_t *m;
	int fd;

	settle(kind);
	fd = file_of(2 * SIZE, OLD);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 2 * SEG);
	check(umremap(m, 0, -1, 3 * SEG, 0, &base) == 0);
	check_bytes(m, SIZE, 2 * SEG, OLD);
	check_in_place(m, 9, fd, 3 * SEG + 9, kind->in_place);
	check(umremap(m, 0, -1, SEG, 0, &base) == 0);
	check_bytes(m, SIZE, 2 * SEG, OLD);
	check(umsync(m, 0) == 0);
	check_file(fd, SEG, SIZE, 2 * SEG, OLD);
	check(umunmap(m, 0) == 0);
}

Test(remap, carry_to_an_overlapping_place)
{
	for_each_kind(carry_over);
}

/* The new range begins inside a page, so it cannot be mapped in place. */
static void carry_away(void *arg)
{
	void *base = NULL;
	uint8_t *m;
	int from, to;

	settle(arg);
	from = file_of(SIZE, OLD);
	to = temp_file(0);
	m = map_file(from, SIZE, SEG, READ_WRITE, 0);
	fill(m, SEG, 0, NEW);
	check(umremap(m, 0, to, 33, 0, &base) == 0);
	check_bytes(m, SEG, 0, NEW);
	check_in_place(m, SIZE - 1, from, SIZE - 1, false);
	check(umsync(m, 0) == 0);
	check_file(to, 33, SEG, 0, NEW);
	check_file(to, 33 + SEG, SIZE - SEG, SEG, OLD);
	check(umunmap(m, 0) == 0);
}

Test(remap, carry_to_where_segments_are_needed)
{
	for_each_kind(carry_away);
}

static void carry_to_posix(void *arg)
{
	void *base = NULL;
	uint8_t *m;
	int from, to;

	settle(arg);
	set_env("UMMAP_DRIVER", "posix");
	from = file_of(SIZE, OLD);
	to = temp_file(0);
	m = map_uri(uri_of(from, "pmem", ""), SIZE, READ_WRITE, 0);
	fill(m, SEG, 0, NEW);
	check(umremap(m, 0, to, 0, 0, &base) == 0);
	check_bytes(m, SEG, 0, NEW);
	check_in_place(m, 0, from, 0, false);
	check(umsync(m, 1) == 0);
	check_file(to, 0, SEG, 0, NEW);
	check_file(to, SEG, SIZE - SEG, SEG, OLD);
	check(umunmap(m, 0) == 0);
}

Test(remap, carry_to_another_driver)
{
	for_each_kind(carry_to_posix);
}

static void carry_fails(void *arg)
{
	const struct kind *kind = arg;
	void *base = NULL;
	uint8_t *m;
	int from;

	settle(kind);
	set_env("UMMAP_DRIVER", "error+pmem:?error.op=write&error.errno=ENOSPC");
	from = file_of(SIZE, OLD);
	m = map_uri(uri_of(from, "pmem", ""), SIZE, READ_WRITE, 0);
	fill(m, SEG, 0, NEW);
	check(umremap(m, 0, temp_file(0), 0, 0, &base) == 0);
	check_fails(umsync(m, 0), ENOSPC);
	check_bytes(m, SEG, 0, NEW);
	check(umsync(m, 0) == 0);
	check_bytes(m, SEG, 0, NEW);
	check_bytes(m + SEG, SIZE - SEG, SEG, OLD);
	/* A refused umremap leaves the mapping unchanged. */
	check_fails(umremap(m, 0, 9999, 0, 0, &base), EBADF);
	check(umunmap(m, 0) == 0);
}

Test(remap, carry_that_fails)
{
	for_each_kind(carry_fails);
}

static void limit_files(rlim_t bytes)
{
	check(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ bytes, RLIM_INFINITY }) == 0);
}

/* Writes fail after half of the contents: the rest stays in memory, and a later sync writes it. */
static void carry_half(void *arg)
{
	void *base = NULL;
	uint8_t *m;
	int from, to;

	settle(arg);
	signal(SIGXFSZ, SIG_IGN);
	from = file_of(SIZE, OLD);
	to = temp_file(0);
	m = map_file(from, SIZE, SEG, READ_WRITE, 0);
	limit_files(SIZE / 2);
	check(umremap(m, 0, to, 0, 0, &base) == 0);
	check_fails(umsync(m, 0), EFBIG);
	check_bytes(m, SIZE, 0, OLD);
	fill(m, SEG, 0, NEW);
	limit_files(RLIM_INFINITY);
	check(umsync(m, 0) == 0);
	check_file(to, 0, SEG, 0, NEW);
	check_file(to, SEG, SIZE - SEG, SEG, OLD);
	check_file(from, 0, SIZE, 0, OLD);
	check(umunmap(m, 1) == 0);
}

Test(remap, carry_that_storage_stops_halfway)
{
	for_each_kind(carry_half);
}

/* An error of the background thread is reported once, in spite of an umremap in between. */
static void carry_keeps_errors(void *arg)
{
	const struct kind *kind = arg;
	void *addr, *base = NULL;
	uint8_t *m;
	int from, to;

	settle(kind);
	if (!kind->in_place)
		return;
	from = file_of(SIZE, OLD);
	to = temp_file(0);
	check(ummap(SIZE, SEG, READ_WRITE, from, 0, 1, 1, UMMAP_PTYPE_FIFO, &addr) == 0);
	m = addr;
	check(ftruncate(from, SEG) == 0);
	for (int tries = 0; stat_of(m).write_errors == 0 && tries < 10000; tries++)
		pause_ms(1);
	check(ftruncate(from, SIZE) == 0);
	check(umremap(m, 0, to, 0, 0, &base) == 0);
	check_in_place(m, 9, to, 9, true);
	check_fails(umsync(m, 0), EIO);
	check(umsync(m, 0) == 0);
	check(umunmap(m, 0) == 0);
}

Test(remap, carry_keeps_errors)
{
	for_each_kind(carry_keeps_errors);
}

static void switch_over(void *arg)
{
	const struct kind *kind = arg;
	void *base = NULL;
	int from, to;
	uint8_t *m;

	settle(kind);
	from = file_of(SIZE, OLD);
	to = file_of(SIZE, OTHER);
	m = map_file(from, SIZE, SEG, READ_WRITE, 0);
	check_bytes(m, SIZE, 0, OLD);
	check(umremap(m, SIZE / 2, to, SEG, UMMAP_SWITCH, &base) == 0);
	check_bytes(m, SIZE / 2, SEG, OTHER);
	check_in_place(m, 1, to, SEG + 1, kind->in_place);
	check(umunmap(m, 1) == 0);
	check_file(from, 0, SIZE, 0, OLD);
	check_file(to, 0, SIZE, 0, OTHER);
}

Test(remap, switch_over)
{
	for_each_kind(switch_over);
}

static void resize(void *arg)
{
	const struct kind *kind = arg;
	size_t odd = SIZE / 2 + 333;
	void *base = NULL;
	uint8_t *m;
	int fd;

	settle(kind);
	fd = file_of(SIZE, OLD);
	m = map_file(fd, odd, SEG, READ_WRITE, 0);
	check_in_place(m, 4, fd, 4, kind->in_place);
	m[SIZE / 4] = 0;
	check(umremap(m, SIZE, -1, -1, 0, &base) == 0);
	m = base;
	check(m[SIZE / 4] == 0);
	check_bytes(m + odd, SIZE - odd, odd, OLD);
	if (kind->in_place)
		check_no_faults(m);
	check_in_place(m, SIZE - 1, fd, SIZE - 1, kind->in_place);
	check(umremap(m, SEG + 1, -1, -1, 0, &base) == 0 && base == m);
	check_bytes(m, SEG + 1, 0, OLD);
	check_in_place(m, 4, fd, 4, kind->in_place);
	/* The mapping now extends behind the end of the file, so it uses segments. */
	base = m;
	check(umremap(m, 2 * SIZE, -1, -1, 0, &base) == 0);
	m = base;
	check(m[SIZE / 4] == (kind->in_place ? 0 : pattern(SIZE / 4, OLD)));
	check_bytes(m + odd, SIZE - odd, odd, OLD);
	check_zeros(m + SIZE, SIZE);
	fill(m, SEG, 0, NEW);
	check_in_place(m, 4, fd, 4, false);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SEG, 0, NEW);
	check(file_size(fd) == SIZE);
}

Test(remap, grow_and_shrink)
{
	for_each_kind(resize);
}

#define COUNTERS 64
#define STRIDE (SIZE / 2 / COUNTERS / sizeof(uint64_t))

struct counting {
	uint64_t *_Atomic counters; /* counters in the mapping */
	_Atomic bool stop;          /* whether the threads end */
	uint64_t counted[2];        /* expected sums of the counters */
	int number;                 /* number of the thread */
};

static void *increment_counters(void *arg)
{
	struct counting *c = arg;
	volatile uint64_t *own = c->counters + c->number * SIZE / 2 / sizeof(uint64_t);

	while (!c->stop)
		for (size_t i = 0; i < COUNTERS; i++) {
			own[i * STRIDE]++;
			c->counted[c->number]++;
		}
	return NULL;
}

static uint64_t sum_counters(const uint64_t *counters)
{
	uint64_t all = 0;

	for (size_t i = 0; i < COUNTERS; i++)
		all += counters[i * STRIDE];
	return all;
}

/* Threads store while a mapping moves between files. No store may be lost. */
static void stores_meanwhile(void *arg)
{
	struct counting c[2] = { { .number = 0 }, { .number = 1 } };
	pthread_t threads[2];
	void *base = NULL;
	uint64_t all;
	uint8_t *m;
	int fds[2];

	settle(arg);
	fds[0] = temp_file(SIZE);
	fds[1] = temp_file(SIZE);
	m = map_file(fds[0], SIZE, SEG, READ_WRITE, 0);
	for (int i = 0; i < 2; i++) {
		c[i].counters = (uint64_t *)m;
		check(pthread_create(&threads[i], NULL, increment_counters, &c[i]) == 0);
	}
	for (int i = 1; i <= 100; i++) {
		check(umremap(m, 0, fds[i % 2], 0, i % 3 ? 0 : UMMAP_SYNC, &base) == 0);
		pause_ms(2 + 2 * delay_ms);
	}
	for (int i = 0; i < 2; i++) {
		c[i].stop = true;
		check(pthread_join(threads[i], NULL) == 0);
		all = sum_counters((uint64_t *)(m + i * SIZE / 2));
		check(all == c[i].counted[i], "%" PRIu64 " of %" PRIu64, all, c[i].counted[i]);
	}
	check(umsync(m, 0) == 0);
	base = malloc(SIZE);
	check(pread(fds[0], base, SIZE, 0) == (ssize_t)SIZE && memcmp(base, m, SIZE) == 0);
	free(base);
	check(umunmap(m, 0) == 0);
}

Test(remap, stores_meanwhile)
{
	for_each_kind(stores_meanwhile);
}

/* Messages are served when the mapping is in place again. */
Test(remap, late_messages)
{
	delay_ms = 3;
	for_each_kind(stores_meanwhile);
}
