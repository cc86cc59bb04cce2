/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_pmem.c - the driver pmem with each granularity forced upon it, on tmpfs and on a disk: in place with the
 * finer two, through segments with pages. Each case runs in a process of its own, because libpmem2 and the
 * library read the environment.
 */
#include <criterion/criterion.h>

#include "common.h"

#define SEG (16 * KIB)
#define SIZE (8 * SEG)
#define OLD 1    /* seeds: what files hold before, */
#define NEW 2    /* what is stored into mappings, */
#define OTHER 3  /* and what other files hold */

struct kind {
	const char *dir, *granularity;
	bool in_place;
};

static struct kind kinds[] = {
	{ "/dev/shm", "byte", true }, { "/dev/shm", "cache_line", true }, { "/dev/shm", "page", false },
	{ NULL, "byte", true },       { NULL, "cache_line", true },       { NULL, "page", false },
};

#define EACH_KIND (sizeof(kinds) / sizeof(*kinds))
static struct kind *const byte_on_disk = &kinds[3], *const line_in_memory = &kinds[1],
	*const page_on_disk = &kinds[5];

static void settle(const struct kind *kind)
{
	set_env("PMEM2_FORCE_GRANULARITY", kind->granularity);
	set_env("UMMAP_DRIVER", "pmem");
	if (kind->dir)
		set_env("TMPDIR", kind->dir);
}

static void for_each_kind(void (*body)(void *))
{
	for (size_t i = 0; i < EACH_KIND; i++) {
		int status = run_child(body, &kinds[i]);

		check(status == 0, "%s, %s: wait status %#x", kinds[i].dir ? kinds[i].dir : "disk",
		      kinds[i].granularity, status);
	}
}

static int file_of(size_t size, uint64_t seed)
{
	int fd = temp_file(0);

	file_fill(fd, 0, size, 0, seed);
	return fd;
}

/* A descriptor's file by name, also where it has none any more. */
static const char *uri_of(int fd, const char *scheme, const char *keys)
{
	static char uri[128];

	snprintf(uri, sizeof(uri), "%s:/proc/self/fd/%d%s", scheme, fd, keys);
	return uri;
}

static uint8_t *map_uri(const char *uri, size_t size, int prot, off_t offset)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr = NULL;

	attr.seg_size = SEG;
	check(ummap_open(uri, size, offset, prot, &attr, &addr) == 0, "%s", uri);
	return addr;
}

/* In place, a store is in the file at once, and nothing ever faults. */
static void check_in_place(uint8_t *m, size_t at, int fd, off_t off, bool wanted)
{
	uint8_t before = m[at], byte;

	m[at] = (uint8_t)~before;
	check(pread(fd, &byte, 1, off) == 1);
	check((byte == m[at]) == wanted, "the file holds %#x, the mapping %#x", byte, m[at]);
	m[at] = before;
}

static void check_no_faults(const void *m)
{
	struct umstat st = stat_of(m);

	check(st.read_faults + st.write_faults + st.upgrade_faults + st.read_requests + st.write_requests == 0);
	check(st.resident_bytes + st.standby_bytes + st.dirty_bytes == 0);
}

/* ---- Contents. ---- */

static void contents(void *arg)
{
	const struct kind *kind = arg;
	size_t page = 4096, size = SIZE - 2 * page - 100;
	int fd;
	uint8_t *m;

	settle(kind);
	fd = file_of(SIZE, OLD);
	m = map_uri(uri_of(fd, "pmem", ""), size, READ_WRITE, page);
	check_bytes(m, size, page, OLD);
	check_in_place(m, 5, fd, page + 5, kind->in_place);
	fill(m + SEG, SEG, page + SEG, NEW);
	check(umsync(m, 1) == 0);
	check_file(fd, 0, page + SEG, 0, OLD);
	check_file(fd, page + SEG, SEG, page + SEG, NEW);
	check_file(fd, page + 2 * SEG, SIZE - page - 2 * SEG, page + 2 * SEG, OLD);
	check_bytes(m + SEG, SEG, page + SEG, NEW);
	check(stat_of(m).flushes >= 1);
	if (kind->in_place)
		check_no_faults(m);
	fill(m, 64, page, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, page, 64, page, NEW);
	check(file_size(fd) == SIZE);
}

Test(pmem, contents)
{
	for_each_kind(contents);
}

static void read_by_another(void *arg)
{
	check_file(*(int *)arg, SEG, SEG, SEG, NEW);
}

static void another_process(void *arg)
{
	uint8_t *m;
	int fd;

	settle(arg);
	fd = file_of(SIZE, OLD);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	fill(m + SEG, SEG, SEG, NEW);
	check(umsync_range(m + SEG, SEG, 0) == 0);
	check_exits(run_child(read_by_another, &fd), 0);
	check(umunmap(m, 0) == 0);
}

Test(pmem, another_process_sees_what_was_synced)
{
	for_each_kind(another_process);
}

/* More than what is flushed line by line. */
static void large(void *arg)
{
	const struct kind *kind = arg;
	size_t size = 40 * MIB;
	uint8_t *m;
	int fd;

	settle(kind);
	fd = temp_file(size);
	m = map_uri(uri_of(fd, "pmem", ""), size, READ_WRITE, 0);
	fill(m + 17 * MIB, 5000, 0, NEW);
	fill(m + size - 5000, 5000, 0, NEW);
	check(umsync(m, 0) == 0);
	check_file(fd, 17 * MIB, 5000, 0, NEW);
	check_file(fd, size - 5000, 5000, 0, NEW);
	check(umunmap(m, 0) == 0);
}

Test(pmem, large)
{
	for_each_kind(large);
}

/* ---- What cannot be in place goes through segments. ---- */

static void growth(void *arg)
{
	uint8_t *m;
	int fd;

	settle(arg);
	fd = file_of(100, OLD);
	m = map_uri(uri_of(fd, "pmem", ""), SIZE, READ_WRITE, 0);
	check_bytes(m, 100, 0, OLD);
	check_zeros(m + 100, SIZE - 100);
	fill(m + SEG + 10, 20, 0, NEW);
	check_in_place(m, 0, fd, 0, false);
	check(umsync(m, 0) == 0);
	check(file_size(fd) == SEG + 30, "%" PRIu64, file_size(fd));
	check_file(fd, SEG + 10, 20, 0, NEW);
	/* Not in place afterwards either, but as long as the file then is. */
	file_fill(fd, 2 * SEG, 10, 0, OTHER);
	check_bytes(m + SEG + 10, 20, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, 2 * SEG, 10, 0, OTHER);
}

Test(segments, file_too_short)
{
	for_each_kind(growth);
}

static void created(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char path[320], uri[400];
	void *m;

	settle(arg);
	close(temp_named("created", 0, path));
	check(unlink(path) == 0);
	snprintf(uri, sizeof(uri), "pmem:%s", path);
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &m), ENOENT);
	attr.flags = UMMAP_CREATE;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &m) == 0);
	fill(m, SIZE, 0, NEW);
	check(umunmap(m, 1) == 0);
	m = map_uri(uri, SIZE, PROT_READ, 0);
	check_bytes(m, SIZE, 0, NEW);
	check(umunmap(m, 0) == 0);
}

Test(segments, created)
{
	for_each_kind(created);
}

static void odd_offset(void *arg)
{
	uint8_t *m;
	int fd;

	settle(arg);
	fd = file_of(SIZE, OLD);
	m = map_uri(uri_of(fd, "pmem", ""), SIZE / 2, READ_WRITE, 77);
	check_bytes(m, SIZE / 2, 77, OLD);
	check_in_place(m, 9, fd, 77 + 9, false);
	fill(m, SEG, 77, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, 77, 0, OLD);
	check_file(fd, 77, SEG, 77, NEW);
	check_file(fd, 77 + SEG, SIZE - 77 - SEG, 77 + SEG, OLD);
}

Test(segments, offset_inside_a_page)
{
	for_each_kind(odd_offset);
}

static void not_read(void *arg)
{
	void *addr;
	uint8_t *m;
	int fd;

	settle(arg);
	fd = file_of(SIZE, OLD);
	check(ummap(SIZE, SEG, READ_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &addr) == 0);
	m = addr;
	check_zeros(m, SIZE);
	m[SEG] = 1;
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SEG, 0, OLD);
	check_file_zeros(fd, SEG + 1, SEG - 1);
}

Test(segments, file_that_is_not_to_be_read)
{
	for_each_kind(not_read);
}

static void faulty(void *arg)
{
	char uri[160];
	uint64_t value;
	uint8_t *m;
	int fd;

	settle(arg);
	catch_sigbus();
	fd = file_of(SIZE, OLD);
	snprintf(uri, sizeof(uri), "%s", uri_of(fd, "fault+pmem", "?fault.op=read&fault.nth=2"));
	m = map_uri(uri, SIZE, READ_WRITE, 0);
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	check(try_load(m, &value));
	check(!try_load(m + SEG, &value) && bus_info.si_addr == m + SEG);
	check(try_load(m + SEG, &value));
	check(umunmap(m, 0) == 0);
	snprintf(uri, sizeof(uri), "%s", uri_of(fd, "fault+pmem", "?fault.op=write&fault.errno=ENOSPC"));
	m = map_uri(uri, SIZE, READ_WRITE, 0);
	m[7] ^= 1;
	check_fails(umsync(m, 0), ENOSPC);
	check(umsync(m, 0) == 0);
	check_in_place(m, 3, fd, 3, false);
	check(umunmap(m, 0) == 0);
}

Test(segments, under_a_filter_that_cannot_be_in_place)
{
	for_each_kind(faulty);
}

static void chosen_by_default(void *unused)
{
	int fd = file_of(SIZE, OLD);
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);

	(void)unused;
	/* This file system has no DAX, so that `ummap` does not take pmem of its own accord. */
	check_in_place(m, 0, fd, 0, false);
	check(umunmap(m, 0) == 0);
}

Test(segments, file_without_dax)
{
	set_env("PMEM2_FORCE_GRANULARITY", "byte");
	check_exits(run_child(chosen_by_default, NULL), 0);
}

/* ---- umremap. ---- */

static void carry(void *arg)
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
	check_file(from, 0, SEG, 0, OLD);  /* the later store went to the new file */
	check_file(from, SEG, SEG, SEG, NEW);
	if (kind->in_place)
		check(file_size(to) == 2 * SEG + SIZE, "%" PRIu64, file_size(to));
	check_in_place(m, 9, to, 2 * SEG + 9, kind->in_place);
	check_in_place(m, 9, from, 9, false);
	check(umunmap(m, 1) == 0);
}

Test(remap, carry)
{
	for_each_kind(carry);
}

/* Where the new place overlaps the old one. */
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

/* The new target cannot be in place: an offset inside a page, and a full device. */
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
	set_env("UMMAP_DRIVER", "fault+pmem:?fault.op=write&fault.errno=ENOSPC");
	from = file_of(SIZE, OLD);
	m = map_uri(uri_of(from, "pmem", ""), SIZE, READ_WRITE, 0);
	fill(m, SEG, 0, NEW);
	check(umremap(m, 0, temp_file(0), 0, 0, &base) == 0);
	check_fails(umsync(m, 0), ENOSPC);
	check_bytes(m, SEG, 0, NEW);
	check(umsync(m, 0) == 0);
	check_bytes(m, SEG, 0, NEW);
	check_bytes(m + SEG, SIZE - SEG, SEG, OLD);
	/* What is refused leaves the mapping as it was. */
	check_fails(umremap(m, 0, 9999, 0, 0, &base), EBADF);
	check(umunmap(m, 0) == 0);
}

Test(remap, carry_that_fails)
{
	for_each_kind(carry_fails);
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
	check_in_place(m, SIZE - 1, fd, SIZE - 1, kind->in_place);
	check(umremap(m, SEG + 1, -1, -1, 0, &base) == 0 && base == m);
	check_bytes(m, SEG + 1, 0, OLD);
	check_in_place(m, 4, fd, 4, kind->in_place);
	/* Behind the end of the file: with segments, from here on. */
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
	uint64_t *_Atomic counters;
	_Atomic bool stop;
	uint64_t counted[2];
	int number;
};

static void *count(void *arg)
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

static uint64_t sum(const uint64_t *counters)
{
	uint64_t all = 0;

	for (size_t i = 0; i < COUNTERS; i++)
		all += counters[i * STRIDE];
	return all;
}

/* Threads store all the while a mapping moves from file to file: no store may be lost. */
static void stores_meanwhile(void *arg)
{
	struct counting c[2] = { { .number = 0 }, { .number = 1 } };
	pthread_t threads[2];
	void *base = NULL;
	uint8_t *m;
	int fds[2];

	settle(arg);
	fds[0] = temp_file(SIZE);
	fds[1] = temp_file(SIZE);
	m = map_file(fds[0], SIZE, SEG, READ_WRITE, 0);
	for (int i = 0; i < 2; i++) {
		c[i].counters = (uint64_t *)m;
		check(pthread_create(&threads[i], NULL, count, &c[i]) == 0);
	}
	for (int i = 1; i <= 40; i++) {
		check(umremap(m, 0, fds[i % 2], 0, i % 3 ? 0 : UMMAP_SYNC, &base) == 0);
		pause_ms(2);
	}
	for (int i = 0; i < 2; i++) {
		c[i].stop = true;
		check(pthread_join(threads[i], NULL) == 0);
		check(sum((uint64_t *)(m + i * SIZE / 2)) == c[i].counted[i], "%" PRIu64 " of %" PRIu64,
		      sum((uint64_t *)(m + i * SIZE / 2)), c[i].counted[i]);
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

/* ---- The other calls. ---- */

static void ranges(void *arg)
{
	const struct kind *kind = arg;
	uint64_t before;
	uint8_t *m;
	int fd;

	settle(kind);
	fd = file_of(SIZE, OLD);
	m = map_file(fd, SIZE - 5, SEG, READ_WRITE, 0);
	fill(m, SIZE - 5, 0, NEW);
	before = stat_of(m).flushes;
	check(umsync_range(m + 100, SEG, UMMAP_NOFLUSH) == 0);
	check(stat_of(m).flushes == before);
	check(umsync_range(m + 100, 1, 0) == 0);
	check(stat_of(m).flushes == before + 1);
	check_file(fd, 0, SEG, 0, NEW);
	check(umsync_range(m + SIZE - 6, 1, UMMAP_EVICT) == 0);
	check_file(fd, SIZE - SEG, SEG - 5, SIZE - SEG, NEW);
	check(umsync_range(m + SEG, SEG, UMMAP_ASYNC) == 0);
	for (int tries = 0; stat_of(m).flushes < before + 3 && tries < 5000; tries++)
		pause_ms(1);
	check_file(fd, SEG, SEG, SEG, NEW);
	check_fails(umsync_range(m + SIZE - 6, 2, 0), ENOMEM);
	check_fails(umsync_range(m, 1, 64), EINVAL);
	check(umunmap(m, 0) == 0);
}

Test(calls, umsync_range)
{
	for_each_kind(ranges);
}

static void advice_and_pins(void *arg)
{
	const struct kind *kind = arg;
	void *base = NULL;
	uint8_t *m;
	int fd, out;

	settle(kind);
	set_budget(4 * SEG);
	fd = file_of(SIZE, OLD);
	out = temp_file(0);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	for (int advice = UMMAP_ADV_NORMAL; advice <= UMMAP_ADV_DONTNEED; advice++)
		check(umadvise(m, SIZE, advice) == 0);
	check_fails(umadvise(m, SIZE, 99), EINVAL);
	if (kind->in_place) {
		/* Holds no memory, so that there is nothing to run out of. */
		check(umpin(m, SIZE, READ_WRITE) == 0);
		check(write(out, m, SIZE) == (ssize_t)SIZE);
		check(umunpin(m, SIZE) == 0);
		check_no_faults(m);
	}
	check(umpin(m + SEG, 1, PROT_READ) == 0);
	check(umpin(m + SEG, 1, READ_WRITE) == 0);
	check(stat_of(m).pinned_bytes == SEG);
	check_fails(umremap(m, 0, temp_file(SIZE), 0, 0, &base), EBUSY);
	check(umunpin(m + SEG, 1) == 0);
	check_fails(umremap(m, 2 * SIZE, -1, -1, 0, &base), EBUSY);
	check(umunpin(m + SEG, 1) == 0);
	check_fails(umunpin(m + SEG, 1), EINVAL);
	check(stat_of(m).pinned_bytes == 0);
	check(umremap(m, 0, temp_file(SIZE), 0, 0, &base) == 0);
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 0) == 0);
}

Test(calls, advice_and_pins)
{
	for_each_kind(advice_and_pins);
}

static void in_the_background(void *arg)
{
	void *addr;
	uint8_t *m;
	int fd;

	settle(arg);
	fd = file_of(SIZE, OLD);
	check(ummap(SIZE, SEG, READ_WRITE, fd, 0, 1, 1, UMMAP_PTYPE_FIFO, &addr) == 0);
	m = addr;
	m[100] = 0;
	for (int tries = 0; stat_of(m).flushes == 0 && tries < 10000; tries++)
		pause_ms(1);
	check(stat_of(m).flushes > 0);
	check_file_zeros(fd, 100, 1);
	check(umunmap(m, 0) == 0);
}

Test(calls, flush_interval)
{
	for_each_kind(in_the_background);
}

static void touch(void *m)
{
	*(volatile uint8_t *)m;
}

static void forked(void *arg)
{
	uint8_t *m;
	int fd;

	settle(arg);
	fd = file_of(SIZE, OLD);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	fill(m, SEG, 0, NEW);
	check_killed(run_child(touch, m), SIGSEGV);
	check_bytes(m, SEG, 0, NEW);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, SEG, 0, NEW);
}

Test(calls, forked_child_has_no_mapping)
{
	for_each_kind(forked);
}

static void store(void *m)
{
	*(volatile uint8_t *)m = 1;
}

static struct { void *m; int fd; } read_only;

static void store_to_read_only(void *arg)
{
	int fd;

	settle(arg);
	fd = file_of(SIZE, OLD);
	store(map_file(fd, SIZE, SEG, PROT_READ, 0));
}

static void map_read_only(void *arg)
{
	char path[64];
	void *base = NULL;

	settle(arg);
	read_only.fd = file_of(SIZE, OLD);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", read_only.fd);
	read_only.m = map_file(open(path, O_RDONLY | O_CLOEXEC), SIZE, SEG, PROT_READ, 0);
	check_bytes(read_only.m, SIZE, 0, OLD);
	check(umsync(read_only.m, 1) == 0);
	check_fails(umpin(read_only.m, 1, READ_WRITE), EACCES);
	check_fails(umremap(read_only.m, 0, temp_file(SIZE), 0, 0, &base), EACCES);
	check(umremap(read_only.m, SIZE / 2, -1, -1, 0, &base) == 0);
	check_bytes(read_only.m, SIZE / 2, 0, OLD);
	check_fails(ummap(SIZE, SEG, READ_WRITE, open(path, O_RDONLY | O_CLOEXEC), 0, -1, 1, 0, &base), EACCES);
	check(umunmap(read_only.m, 1) == 0);
	check_killed(run_child(store_to_read_only, arg), SIGSEGV);
}

Test(calls, read_only)
{
	for_each_kind(map_read_only);
}

/* ---- What goes wrong. ---- */

static void cut(void *arg)
{
	const struct kind *kind = arg;
	uint64_t value;
	uint8_t *m;
	int fd;

	settle(kind);
	catch_sigbus();
	fd = file_of(SIZE, OLD);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	check(try_store(m + SIZE - SEG, 7));
	check(umsync(m, 1) == 0);
	check(ftruncate(fd, SEG) == 0);
	if (kind->in_place) {
		check(!try_load(m + SIZE - SEG, &value));
		check_fails(umsync(m, 0), EIO);
		check(umsync_range(m, SEG, 0) == 0);
		check_fails(umsync_range(m, SEG + 1, 0), EIO);
		check_fails(umunmap(m, 1), EIO);
	} else {
		check(try_load(m + SIZE - SEG, &value) && value == 0);
		check(umsync(m, 0) == 0);
	}
	check_bytes(m, SEG, 0, OLD);
	check(umunmap(m, 0) == 0);
}

Test(mistakes, file_cut_under_the_mapping)
{
	for_each_kind(cut);
}

static void required(void *arg)
{
	const struct kind *kind = arg;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	const char *const keys[] = { "?granularity=auto", "?granularity=page", "?granularity=cacheline",
				     "?granularity=byte" };
	unsigned allowed = strcmp(kind->granularity, "page") == 0 ? 2 :
			   strcmp(kind->granularity, "byte") == 0 ? 4 : 3;
	void *m;
	int fd;

	settle(kind);
	fd = file_of(SIZE, OLD);
	for (unsigned i = 0; i < 4; i++) {
		if (i < allowed)
			check(umunmap(map_uri(uri_of(fd, "pmem", keys[i]), SIZE, READ_WRITE, 0), 1) == 0);
		else
			check_fails(ummap_open(uri_of(fd, "pmem", keys[i]), SIZE, 0, READ_WRITE, &attr, &m), EOPNOTSUPP);
	}
	check_fails(ummap_open(uri_of(temp_file(0), "pmem", keys[2]), SIZE, 0, READ_WRITE, &attr, &m), EOPNOTSUPP);
	check_fails(ummap_open(uri_of(fd, "pmem", "?granularity=word"), SIZE, 0, READ_WRITE, &attr, &m), EINVAL);
	check_fails(ummap_open(uri_of(fd, "pmem", "?grain=page"), SIZE, 0, READ_WRITE, &attr, &m), EINVAL);
}

Test(mistakes, granularity_that_is_not_there)
{
	for_each_kind(required);
}

static void not_stores(void *arg)
{
	int ends[2], before;
	void *m;

	settle(arg);
	check(umunmap(map_file(temp_file(SIZE), SIZE, SEG, READ_WRITE, 0), 0) == 0);
	check(pipe(ends) == 0);
	before = count_fds();
	check_fails(ummap_open("pmem:", SIZE, 0, PROT_READ, NULL, &m), EINVAL);
	check_fails(ummap_open("pmem:/", SIZE, 0, PROT_READ, NULL, &m), ENODEV);
	check_fails(ummap_open("pmem:/dev/null", SIZE, 0, PROT_READ, NULL, &m), ENODEV);
	check_fails(ummap_open("pmem:/no/such/file", SIZE, 0, PROT_READ, NULL, &m), ENOENT);
	check_fails(ummap(SIZE, SEG, PROT_READ, ends[0], 0, -1, 1, 0, &m), ENODEV);
	check_fails(ummap(SIZE, SEG, PROT_READ, 9999, 0, -1, 1, 0, &m), EBADF);
	check(count_fds() == before);
}

Test(mistakes, no_store)
{
	check_exits(run_child(not_stores, byte_on_disk), 0);
	check_exits(run_child(not_stores, line_in_memory), 0);
	check_exits(run_child(not_stores, page_on_disk), 0);
}

static void leaves_nothing(void *arg)
{
	void *base = NULL;
	int fds[2], before, maps;

	settle(arg);
	fds[0] = file_of(SIZE, OLD);
	fds[1] = temp_file(0);
	check(umunmap(map_file(fds[0], SIZE, SEG, READ_WRITE, 0), 0) == 0);
	before = count_fds();
	maps = count_maps();
	for (int i = 0; i < 20; i++) {
		uint8_t *m = map_file(fds[0], SIZE, SEG, READ_WRITE, 0);

		m[i]++;
		check(umremap(m, 0, fds[1], 0, 0, &base) == 0);
		check(umunmap(m, i % 2) == 0);
	}
	check(count_fds() == before, "%d, then %d", before, count_fds());
	check(count_maps() <= maps + 4, "%d, then %d", maps, count_maps());
}

Test(calls, leave_nothing_behind)
{
	for_each_kind(leaves_nothing);
}
