/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_lend.c - cached=map: loads of what the page cache holds show its own pages. What is lent and what is not, stores
 * to it, and all that takes it back.
 */
#include <criterion/criterion.h>
#include <sched.h>

#include "common.h"
#include "uffd.h"

#define SEG (64 * KIB)
#define SEGS ((size_t)128)
#define SIZE (SEGS * SEG)
#define BUDGET (1 * MIB)
#define OLD 1
#define NEW 2

static const struct ummap_attr init = UMMAP_ATTR_INIT;

static void start(void)
{
	set_budget(BUDGET);
	set_env("UMMAP_CACHED", "map");
}

/* All of it is in the page cache, since it was just written. */
static int cached_file(size_t size)
{
	return filled_file(size, OLD);
}

static size_t lent(const void *m)
{
	return stat_of(m).lent_bytes;
}

/* How much of a file the page cache has. */
static size_t cached_bytes(int fd, size_t size)
{
	size_t pages = size / (4 * KIB), n = 0;
	unsigned char *in = malloc(pages);
	void *m = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	check(m != MAP_FAILED && mincore(m, size, in) == 0);
	for (size_t i = 0; i < pages; i++)
		n += in[i] & 1;
	munmap(m, size);
	free(in);
	return n * 4 * KIB;
}

/* Takes a file out of the page cache. */
static void uncache(int fd, size_t size)
{
	check(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	check(cached_bytes(fd, size) == 0, "%zu", cached_bytes(fd, size));
	check(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
}

/* ---- What is lent ---- */

/* Whole segments, without a copy, a request, or memory of the budget. */
static void load_all(void *driver)
{
	const size_t odd = 1234;
	struct umstat st;
	uint8_t *m;
	int fd;

	start();
	set_env("UMMAP_DRIVER", driver);
	fd = cached_file(SIZE + odd);
	m = map_file(fd, SIZE + odd, SEG, READ_WRITE, 0);
	check_bytes(m, SIZE + odd, 0, OLD);
	st = stat_of(m);
	check(st.lent_bytes == SIZE && st.resident_bytes == SEG && st.standby_bytes == 0, "%" PRIu64 " lent, %" PRIu64
	      " resident", st.lent_bytes, st.resident_bytes);
	check(st.read_bytes == odd && st.read_requests == 1, "%" PRIu64 " bytes read", st.read_bytes);
	check(st.read_faults < SEGS / 8, "%" PRIu64 " faults", st.read_faults);
	check(stat_of(NULL).lent_bytes == SIZE);
	check(umunmap(m, 0) == 0);
	st = stat_of(NULL);
	check(st.lent_bytes == 0 && st.mappings == 0);
}

Test(pagecache_map, all_that_is_cached)
{
	check_exits(run_child(load_all, "posix"), 0);
	if (has_driver("uring"))
		check_exits(run_child(load_all, "uring"), 0);
}

/* A part of the file that begins at a page, and is only loaded from. */
Test(pagecache_map, part_of_a_file)
{
	const size_t at = 12 * KIB;
	uint8_t *m;

	start();
	m = map_file(cached_file(SIZE + at), SIZE, SEG, PROT_READ, at);
	check_bytes(m, SIZE, at, OLD);
	check(lent(m) == SIZE);
	check(umunmap(m, 0) == 0);
}

/* Not where a page of the file would show bytes at another place of a page. */
Test(pagecache_map, not_between_pages)
{
	uint8_t *m;

	start();
	m = map_file(cached_file(SIZE + 1), SIZE, SEG, READ_WRITE, 1);
	check_bytes(m, SIZE, 1, OLD);
	check(lent(m) == 0);
	check(umunmap(m, 0) == 0);
}

/* What lies behind the end of the file reads as zeros, as ever. */
Test(pagecache_map, not_behind_the_end)
{
	const size_t has = SIZE / 2 + 5000;
	uint8_t *m;

	start();
	m = map_file(cached_file(has), SIZE, SEG, READ_WRITE, 0);
	check_bytes(m, has, 0, OLD);
	check_zeros(m + has, SIZE - has);
	check(lent(m) == SIZE / 2, "%zu", lent(m));
	check(umunmap(m, 1) == 0);
}

/* What nothing was written to reads as zeros where the mapping says so. */
Test(pagecache_map, not_what_is_not_to_be_read)
{
	int fd;
	void *m;

	start();
	fd = cached_file(SIZE);
	check(ummap(SIZE, SEG, READ_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &m) == 0);
	check_zeros(m, SIZE);
	check(lent(m) == 0);
	check(umunmap(m, 0) == 0);
}

/* Segment by segment, where the cache has only some. */
Test(pagecache_map, not_what_the_cache_lacks)
{
	struct umstat st;
	uint8_t *m;
	int fd;

	start();
	fd = cached_file(SIZE);
	uncache(fd, SIZE);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	check_bytes(m, SIZE, 0, OLD);
	st = stat_of(m);
	check(st.lent_bytes == 0 && st.read_bytes == SIZE);
	check(umsync(m, 1) == 0);
	check_file(fd, 7 * SEG, SEG, 7 * SEG, OLD); /* now it has this one */
	check_bytes(m, SIZE, 0, OLD);
	check(lent(m) == SEG && stat_of(m).read_bytes == 2 * SIZE - SEG, "%zu", lent(m));
	check(umunmap(m, 0) == 0);
}

/* Evicted segments go to the file through the page cache, which keeps them and their neighbours. */
static void write_all(void *driver)
{
	uint8_t *m;
	int fd;

	start();
	set_env("UMMAP_DRIVER", driver);
	fd = cached_file(SIZE);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	for (size_t i = 0; i < SEGS; i += 3)
		fill(m + i * SEG, SEG, i * SEG, NEW);
	check(umsync(m, 1) == 0);
	check(cached_bytes(fd, SIZE) == SIZE, "%zu of %zu are cached", cached_bytes(fd, SIZE), SIZE);
	check(umunmap(m, 0) == 0);
}

Test(pagecache_map, keeps_what_is_written)
{
	check_exits(run_child(write_all, "posix"), 0);
	if (has_driver("uring"))
		check_exits(run_child(write_all, "uring"), 0);
}

/* A file that is cached, opened by a URI with its path in it. */
static void not_lent(const char *uri_of_path, int engine)
{
	struct ummap_attr attr = init;
	char path[320], uri[400];
	void *m;

	start();
	file_fill(temp_named("file", 0, path), 0, SIZE, 0, OLD);
	snprintf(uri, sizeof(uri), uri_of_path, path);
	attr.engine = engine;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &m) == 0);
	check_bytes(m, SIZE, 0, OLD);
	check(lent(m) == 0);
	check(umunmap(m, 0) == 0);
}

/* Who sees to all requests would miss some. */
Test(pagecache_map, not_past_a_filter)
{
	not_lent("error+posix:%s?error.op=read&error.nth=999999", UMMAP_ENGINE_DEFAULT);
}

/* Its views are for userfaultfd to watch. */
Test(pagecache_map, not_with_uffd)
{
	if (!has_uffd())
		cr_skip_test(NO_UFFD);
	not_lent("posix:%s", UMMAP_ENGINE_UFFD);
}

static size_t lent_by(const char *uri, int prot, size_t seg)
{
	struct ummap_attr attr = init;
	size_t is;
	void *m;

	attr.seg_size = seg;
	check(ummap_open(uri, SIZE, 0, prot, &attr, &m) == 0);
	check_bytes(m, SIZE, 0, OLD);
	is = lent(m);
	check(umunmap(m, 0) == 0);
	return is;
}

/* What nobody asks for: only to who only loads, whatever the size of segments and with it the engine. */
Test(pagecache_map, untold)
{
	char path[320], uri[400];

	set_budget(BUDGET);
	file_fill(temp_named("file", 0, path), 0, SIZE, 0, OLD);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	check(lent_by(uri, PROT_READ, SEG) == SIZE && lent_by(uri, PROT_READ, 4 * KIB) == SIZE);
	check(lent_by(uri, READ_WRITE, SEG) == 0 && lent_by(uri, READ_WRITE, 4 * KIB) == 0);
	strcat(uri, "?cached=copy");
	check(lent_by(uri, PROT_READ, SEG) == 0 && lent_by(uri, PROT_READ, 4 * KIB) == 0);
}

/* Each mapping may have it its own way. */
Test(pagecache_map, by_a_key)
{
	char path[320], uri[400];
	void *m;
	int fd;

	set_budget(BUDGET);
	fd = temp_named("file", 0, path);
	file_fill(fd, 0, SIZE, 0, OLD);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	check_bytes(m, SIZE, 0, OLD);
	check(lent(m) == 0);
	check(umunmap(m, 0) == 0);
	snprintf(uri, sizeof(uri), "posix:%s?cached=map", path);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &init, &m) == 0);
	check_bytes(m, SIZE, 0, OLD);
	check(lent(m) == SIZE);
	check(umunmap(m, 0) == 0);
	snprintf(uri, sizeof(uri), "posix:%s?cached=maps", path);
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &init, &m), EINVAL);
	check(strstr(umerrormsg(), "cached must be auto, map or copy, not \"maps\""), "%s", umerrormsg());
}

/* ---- What is done to it ---- */

/* A store makes a copy of the one segment, which goes to the file when it is synced. */
Test(pagecache_map, stores)
{
	uint8_t *m;
	int fd;

	start();
	fd = cached_file(SIZE);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	check_bytes(m, SIZE, 0, OLD);
	for (size_t i = 0; i < SEGS; i += 3) {
		fill(m + i * SEG, 100, i * SEG, NEW);
		check_bytes(m + i * SEG + 100, SEG - 100, i * SEG + 100, OLD);
	}
	check(lent(m) == SIZE - (SEGS + 2) / 3 * SEG, "%zu", lent(m));
	check(umsync(m, 0) == 0);
	for (size_t i = 0; i < SEGS; i++) {
		size_t changed = i % 3 ? 0 : 100;

		check_bytes(m + i * SEG, changed, i * SEG, NEW);
		check_bytes(m + i * SEG + changed, SEG - changed, i * SEG + changed, OLD);
		check_file(fd, i * SEG, changed, i * SEG, NEW);
		check_file(fd, i * SEG + changed, SEG - changed, i * SEG + changed, OLD);
	}
	check(umunmap(m, 1) == 0);
}

/* It is the file's: what others write there shows, until it is stored to. */
Test(pagecache_map, others_write)
{
	uint8_t *m;
	int fd;

	start();
	fd = cached_file(SIZE);
	m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	check_bytes(m, SIZE, 0, OLD);
	m[0] = pattern(0, OLD);
	file_fill(fd, 0, SIZE, 0, NEW);
	check_bytes(m, SEG, 0, OLD);
	check_bytes(m + SEG, SIZE - SEG, SEG, NEW);
	check(umunmap(m, 0) == 0);
}

/* What is cut off the file while its pages are shown reads as zeros, as where they are copied. */
static void cut_off(void *engine)
{
	const size_t left = SIZE / 2 + 3 * KIB;
	uint8_t *m;
	int fd;

	start();
	set_env("UMMAP_ENGINE", engine);
	set_env("UMMAP_CACHED", "auto");
	fd = cached_file(SIZE);
	m = map_file(fd, SIZE, SEG, PROT_READ, 0);
	check_bytes(m, SIZE, 0, OLD);
	check(lent(m) == SIZE);
	check(ftruncate(fd, (off_t)left) == 0);
	check_bytes(m, left, 0, OLD);
	check_zeros(m + left, SIZE - left);
	check(lent(m) < SIZE && umunmap(m, 0) == 0);
}

Test(pagecache_map, others_cut_off)
{
	check_exits(run_child(cut_off, "segv"), 0);
	check_exits(run_child(cut_off, "sigbus"), 0);
}

static uint8_t *load_lent(int fd)
{
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);

	check_bytes(m, SIZE, 0, OLD);
	check(lent(m) == SIZE);
	return m;
}

/* Pins are about memory that stays. */
Test(pagecache_map, pins)
{
	uint8_t *m;

	start();
	m = load_lent(cached_file(SIZE));
	check(umpin(m + 3 * SEG, 2 * SEG, PROT_READ) == 0);
	check(umpin(m + 9 * SEG, SEG, READ_WRITE) == 0);
	check(lent(m) == SIZE - 3 * SEG && stat_of(m).resident_bytes == 3 * SEG);
	check_bytes(m, SIZE, 0, OLD);
	check(umunpin(m + 3 * SEG, 2 * SEG) == 0 && umunpin(m + 9 * SEG, SEG) == 0);
	check(umunmap(m, 1) == 0);
}

Test(pagecache_map, eviction)
{
	uint8_t *m;

	start();
	m = load_lent(cached_file(SIZE));
	check(umadvise(m + 10 * SEG, 5 * SEG, UMMAP_ADV_DONTNEED) == 0);
	check(lent(m) == SIZE - 5 * SEG);
	check(umsync_range(m + 20 * SEG + 1, SEG, UMMAP_EVICT) == 0);
	check(lent(m) == SIZE - 7 * SEG);
	check_bytes(m, SIZE, 0, OLD);
	check(lent(m) == SIZE);
	check(umsync(m, 1) == 0);
	check(lent(m) == 0);
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 0) == 0);
}

/* What is carried does not change with the file that it comes from. */
Test(pagecache_map, carrying)
{
	int from, to = temp_file(0);
	uint8_t *m;
	void *new = NULL;

	start();
	from = cached_file(SIZE);
	file_fill(to, 0, SIZE, 0, NEW);
	m = load_lent(from);
	check(umremap(m, 0, to, 0, 0, &new) == 0 && new == m);
	check(lent(m) == 0);
	check_bytes(m, SIZE / 2, 0, OLD);
	check(lent(m) == 0, "neither file is shown");
	check(umsync(m, 0) == 0);
	check_file(to, 0, SIZE, 0, OLD);
	file_fill(from, 0, SIZE, 0, NEW);
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 0) == 0);
}

Test(pagecache_map, switching)
{
	int other;
	uint8_t *m;

	start();
	other = filled_file(SIZE, NEW);
	m = load_lent(cached_file(SIZE));
	check(umremap(m, 0, other, 0, UMMAP_SWITCH, &(void *){ NULL }) == 0);
	check(lent(m) == 0);
	check_bytes(m, SIZE, 0, NEW);
	check(lent(m) == SIZE);
	check(umunmap(m, 0) == 0);
}

Test(pagecache_map, resizing)
{
	uint8_t *m;
	void *new = NULL;
	int fd;

	start();
	fd = cached_file(2 * SIZE);
	m = load_lent(fd);
	check(umremap(m, SIZE / 2 + 100, -1, -1, 0, &new) == 0 && new == m);
	check_bytes(m, SIZE / 2 + 100, 0, OLD);
	check(lent(m) == SIZE / 2, "%zu", lent(m));
	check(umremap(m, 2 * SIZE, -1, -1, 0, &new) == 0);
	m = new;
	check_bytes(m, 2 * SIZE, 0, OLD);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, 2 * SIZE, 0, OLD);
}

/* The kernel may need the memory: then the library loads what is wanted again. */
Test(pagecache_map, kernel_takes_pages_back)
{
	double end = now() + 30;
	uint8_t *m;
	int fd;

	start();
	fd = cached_file(SIZE);
	check(fsync(fd) == 0);
	m = load_lent(fd);
	while (lent(m) > SIZE / 2 && now() < end) {
		check(madvise(m, SIZE, MADV_PAGEOUT) == 0);
		pause_ms(50);
	}
	check(lent(m) <= SIZE / 2, "%zu are lent, %zu cached", lent(m), cached_bytes(fd, SIZE));
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 0) == 0);
}

/* Each piece may be one of the kernel's mappings, of which there are not so many. */
Test(pagecache_map, many_pieces)
{
	const size_t seg = 4 * KIB, segs = 6000, limit = 2048;
	struct ummap_attr attr = init;
	char path[320], uri[400];
	uint8_t *m;
	int fd;

	start();
	set_budget(32 * MIB);
	fd = temp_named("file", 0, path);
	file_fill(fd, 0, segs * seg, 0, OLD);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	attr.seg_size = seg;
	attr.engine = UMMAP_ENGINE_SEGV;
	check(ummap_open(uri, segs * seg, 0, READ_WRITE, &attr, (void **)&m) == 0);
	for (size_t i = 0; i < segs; i += 2)
		m[i * seg] = pattern(i * seg, OLD);
	for (size_t i = 1; i < segs; i += 2) {
		check_bytes(m + i * seg, seg, i * seg, OLD);
		check(lent(m) <= limit * seg, "%zu", lent(m));
	}
	check(lent(m) > 0);
	check_bytes(m, segs * seg, 0, OLD);
	check(umunmap(m, 1) == 0);
}

static void touch(void *m)
{
	struct rlimit none = { 0, 0 };

	setrlimit(RLIMIT_CORE, &none);
	(void)*(volatile uint8_t *)m;
}

Test(pagecache_map, children_have_nothing)
{
	uint8_t *m;

	start();
	m = load_lent(cached_file(SIZE));
	check_killed(run_child(touch, m), SIGSEGV);
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 0) == 0);
}

/* ---- Threads ---- */

static struct {
	uint8_t *m;
	atomic_bool over;
} shared;

/* Each has one word of every segment, and knows what is there. */
static void *load_and_store(void *number)
{
	size_t me = (size_t)(uintptr_t)number;
	uint64_t random = me, *is = calloc(SEGS, sizeof(*is));

	for (unsigned n = 0; n < by_time(8000, 40000); n++) {
		size_t i = next_random(&random) % SEGS;
		uint64_t *word = (uint64_t *)(shared.m + i * SEG) + me;

		check(*(volatile uint64_t *)word == is[i], "segment %zu", i);
		if (next_random(&random) % 8 == 0)
			*(volatile uint64_t *)word = is[i] = next_random(&random);
	}
	free(is);
	return NULL;
}

/* Meanwhile all is written and taken away, again and again. */
static void *disturb(void *unused)
{
	uint64_t random = 99;

	while (!shared.over) {
		size_t first = next_random(&random) % SEGS, n = 1 + next_random(&random) % (SEGS - first);

		if (next_random(&random) % 2)
			check(umsync_range(shared.m + first * SEG, n * SEG, UMMAP_EVICT | UMMAP_NOFLUSH) == 0);
		else
			check(umadvise(shared.m + first * SEG, n * SEG, UMMAP_ADV_DONTNEED) == 0);
		sched_yield();
	}
	return unused;
}

Test(pagecache_map, threads)
{
	pthread_t workers[4], other;
	uint64_t most = 0;
	int fd = temp_file(0);

	start();
	check(ftruncate(fd, SIZE) == 0);
	free(file_read(fd, 0, SIZE, __FILE__, __LINE__));
	set_env("UMMAP_DIRECT", "never"); /* what is written stays in the cache */
	shared.m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	for (size_t t = 0; t < 4; t++)
		check(pthread_create(&workers[t], NULL, load_and_store, (void *)(uintptr_t)t) == 0);
	check(pthread_create(&other, NULL, disturb, NULL) == 0);
	for (int n = 0; n < 20; n++) {
		size_t is = lent(shared.m);

		most = is > most ? is : most;
		pause_ms(5);
	}
	for (size_t t = 0; t < 4; t++)
		check(pthread_join(workers[t], NULL) == 0);
	shared.over = true;
	check(pthread_join(other, NULL) == 0);
	check(most > 0 && most <= SIZE, "%" PRIu64, most);
	check(umsync(shared.m, 1) == 0);
	check(lent(shared.m) == 0, "%zu", lent(shared.m));
	check(umunmap(shared.m, 1) == 0);
}

/* Each run may be two mappings of the kernel's, of which a process has few. */
#define SCATTERED 24

static void scattered(void *unused)
{
	int fd = filled_file(32 * MIB, 6), before, rest;
	uint8_t *m[SCATTERED], page[1];

	(void)unused;
	set_env("UMMAP_ENGINE", "segv");
	set_budget(16 * MIB);
	check(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
	for (size_t at = 0; at < 32 * MIB; at += 8 * KIB)
		check(pread(fd, page, 1, (off_t)at) == 1);
	before = count_maps();
	for (int k = 0; k < SCATTERED; k++) {
		m[k] = map_file(fd, 32 * MIB, 4 * KIB, PROT_READ, 0);
		check(umadvise(m[k], 32 * MIB, UMMAP_ADV_RANDOM) == 0);
		for (size_t at = 0; at < 32 * MIB; at += 8 * KIB)
			check(m[k][at] == pattern(at, 6));
	}
	rest = count_maps() - before;
	check(rest < 40000, "%d mappings of the kernel's", rest);
	for (int k = 0; k < SCATTERED; k++)
		check(umunmap(m[k], 0) == 0);
}

Test(pagecache_map, scattered_in_many_mappings)
{
	check_exits(run_child(scattered, NULL), 0);
}
