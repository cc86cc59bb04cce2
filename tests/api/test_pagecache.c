/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Page-cache mappings: which loads map pages of the kernel's page cache, stores to such segments,
 * what unmaps them, and the budget.
 */
#include <criterion/criterion.h>
#include <sched.h>

#include "common.h"
#include "uffd.h"

#define SEG (64 * KIB)
#define SEGS ((size_t)128)
#define SIZE (SEGS * SEG)
#define BUDGET (16 * SIZE)
#define OLD 1
#define NEW 2

static const struct ummap_attr init = UMMAP_ATTR_INIT;

static void start(void)
{
	set_budget(BUDGET);
	set_env("UMMAP_CACHED", "map");
}

/* Returns a file that is in the page cache completely, because it was just written. */
static int cached_file(size_t size)
{
	return filled_file(size, OLD);
}

static size_t mapped_bytes(const void *m)
{
	return stat_of(m).pagecache_bytes;
}

/* Returns the number of bytes of a file that the page cache has. */
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

/* Removes a file from the page cache. */
static void uncache(int fd, size_t size)
{
	check(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	check(cached_bytes(fd, size) == 0, "%zu", cached_bytes(fd, size));
	check(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
}

/* ---- Which segments are mapped ---- */

/* Whole segments are mapped without a copy, a request, or memory of the budget. */
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
	check(st.pagecache_bytes == SIZE && st.resident_bytes == SEG && st.inactive_bytes == 0,
		"%" PRIu64 " mapped, %" PRIu64
	      " resident", st.pagecache_bytes, st.resident_bytes);
	check(st.read_bytes == odd && st.read_requests == 1, "%" PRIu64 " bytes read",
	      st.read_bytes);
	check(st.read_faults < SEGS / 8, "%" PRIu64 " faults", st.read_faults);
	check(stat_of(NULL).pagecache_bytes == SIZE);
	check(umunmap(m, 0) == 0);
	st = stat_of(NULL);
	check(st.pagecache_bytes == 0 && st.mappings == 0);
}

Test(pagecache_map, all_that_is_cached)
{
	check_exits(run_child(load_all, "posix"), 0);
	if (has_driver("uring"))
		check_exits(run_child(load_all, "uring"), 0);
}

/* A part of the file that begins at a page, in a read-only mapping. */
Test(pagecache_map, part_of_a_file)
{
	const size_t at = 12 * KIB;
	uint8_t *m;

	start();
	m = map_file(cached_file(SIZE + at), SIZE, SEG, PROT_READ, at);
	check_bytes(m, SIZE, at, OLD);
	check(mapped_bytes(m) == SIZE);
	check(umunmap(m, 0) == 0);
}

/* Offsets that are not multiples of a page. */
Test(pagecache_map, not_between_pages)
{
	uint8_t *m;

	start();
	m = map_file(cached_file(SIZE + 1), SIZE, SEG, READ_WRITE, 1);
	check_bytes(m, SIZE, 1, OLD);
	check(mapped_bytes(m) == 0);
	check(umunmap(m, 0) == 0);
}

/* Bytes after the end of the file read as zeros. */
Test(pagecache_map, not_behind_the_end)
{
	const size_t has = SIZE / 2 + 5000;
	uint8_t *m;

	start();
	m = map_file(cached_file(has), SIZE, SEG, READ_WRITE, 0);
	check_bytes(m, has, 0, OLD);
	check_zeros(m + has, SIZE - has);
	check(mapped_bytes(m) == SIZE / 2, "%zu", mapped_bytes(m));
	check(umunmap(m, 1) == 0);
}

/* Bytes that were not written read as zeros in a blank mapping. */
Test(pagecache_map, not_what_is_not_to_be_read)
{
	int fd;
	void *m;

	start();
	fd = cached_file(SIZE);
	check(ummap(SIZE, SEG, READ_WRITE, fd, 0, -1, 0, UMMAP_PTYPE_FIFO, &m) == 0);
	check_zeros(m, SIZE);
	check(mapped_bytes(m) == 0);
	check(umunmap(m, 0) == 0);
}

/* The page cache has some of the segments. */
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
	check(st.pagecache_bytes == 0 && st.read_bytes == SIZE);
	check(umsync(m, 1) == 0);
	check_file(fd, 7 * SEG, SEG, 7 * SEG, OLD); /* the page cache has this segment now */
	check_bytes(m, SIZE, 0, OLD);
	check(mapped_bytes(m) == SEG && stat_of(m).read_bytes == 2 * SIZE - SEG, "%zu",
		mapped_bytes(m));
	check(umunmap(m, 0) == 0);
}

/* Evicted segments are written to the page cache, which keeps them and adjacent segments. */
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
	check(cached_bytes(fd, SIZE) == SIZE, "%zu of %zu are cached", cached_bytes(fd, SIZE),
	      SIZE);
	check(umunmap(m, 0) == 0);
}

Test(pagecache_map, keeps_what_is_written)
{
	check_exits(run_child(write_all, "posix"), 0);
	if (has_driver("uring"))
		check_exits(run_child(write_all, "uring"), 0);
}

/* Opens a cached file by a URI with its path, and checks that no page is mapped. */
static void not_mapped(const char *uri_of_path, int engine)
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
	check(mapped_bytes(m) == 0);
	check(umunmap(m, 0) == 0);
}

/* A filter that sees all requests would miss some. */
Test(pagecache_map, not_past_a_filter)
{
	not_mapped("error+posix:%s?error.op=read&error.nth=999999", UMMAP_ENGINE_DEFAULT);
}

/* The engine uffd cannot watch page-cache mappings. */
Test(pagecache_map, not_with_uffd)
{
	if (!has_uffd())
		cr_skip_test(NO_UFFD);
	not_mapped("posix:%s", UMMAP_ENGINE_UFFD);
}

static size_t mapped_by(const char *uri, int prot, size_t seg)
{
	struct ummap_attr attr = init;
	size_t is;
	void *m;

	attr.seg_size = seg;
	check(ummap_open(uri, SIZE, 0, prot, &attr, &m) == 0);
	check_bytes(m, SIZE, 0, OLD);
	is = mapped_bytes(m);
	check(umunmap(m, 0) == 0);
	return is;
}

/* Without a setting, only read-only mappings are used so, whatever the segment size and engine. */
Test(pagecache_map, untold)
{
	char path[320], uri[400];

	set_budget(BUDGET);
	file_fill(temp_named("file", 0, path), 0, SIZE, 0, OLD);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	check(mapped_by(uri, PROT_READ, SEG) == SIZE && mapped_by(uri, PROT_READ, 4 * KIB) == SIZE);
	check(mapped_by(uri, READ_WRITE, SEG) == 0 && mapped_by(uri, READ_WRITE, 4 * KIB) == 0);
	strcat(uri, "?cached=copy");
	check(mapped_by(uri, PROT_READ, SEG) == 0 && mapped_by(uri, PROT_READ, 4 * KIB) == 0);
}

/* A key of the URI decides for one mapping. */
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
	check(mapped_bytes(m) == 0);
	check(umunmap(m, 0) == 0);
	snprintf(uri, sizeof(uri), "posix:%s?cached=map", path);
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &init, &m) == 0);
	check_bytes(m, SIZE, 0, OLD);
	check(mapped_bytes(m) == SIZE);
	check(umunmap(m, 0) == 0);
	snprintf(uri, sizeof(uri), "posix:%s?cached=maps", path);
	check_fails(ummap_open(uri, SIZE, 0, READ_WRITE, &init, &m), EINVAL);
	check(strstr(umerrormsg(), "cached is \"maps\": it must be auto, map or copy"), "%s",
	      umerrormsg());
}

/* ---- Calls and changes ---- */

/* A store makes a copy of one segment, which a sync writes to the file. */
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
	check(mapped_bytes(m) == SIZE - (SEGS + 2) / 3 * SEG, "%zu", mapped_bytes(m));
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

/* Writes of other programs appear until a store to the segment. */
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

/* Bytes that are cut off the file while its pages are mapped read as zeros, as with copies. */
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
	check(mapped_bytes(m) == SIZE);
	check(ftruncate(fd, (off_t)left) == 0);
	check_bytes(m, left, 0, OLD);
	check_zeros(m + left, SIZE - left);
	check(mapped_bytes(m) < SIZE && umunmap(m, 0) == 0);
}

Test(pagecache_map, others_cut_off)
{
	check_exits(run_child(cut_off, "segv"), 0);
	check_exits(run_child(cut_off, "sigbus"), 0);
}

static uint8_t *load_mapped(int fd)
{
	uint8_t *m = map_file(fd, SIZE, SEG, READ_WRITE, 0);

	check_bytes(m, SIZE, 0, OLD);
	check(mapped_bytes(m) == SIZE);
	return m;
}

/* A pin needs memory that stays. */
Test(pagecache_map, pins)
{
	uint8_t *m;

	start();
	m = load_mapped(cached_file(SIZE));
	check(umpin(m + 3 * SEG, 2 * SEG, PROT_READ) == 0);
	check(umpin(m + 9 * SEG, SEG, READ_WRITE) == 0);
	check(mapped_bytes(m) == SIZE - 3 * SEG && stat_of(m).resident_bytes == 3 * SEG);
	check_bytes(m, SIZE, 0, OLD);
	check(umunpin(m + 3 * SEG, 2 * SEG) == 0 && umunpin(m + 9 * SEG, SEG) == 0);
	check(umunmap(m, 1) == 0);
}

Test(pagecache_map, eviction)
{
	uint8_t *m;

	start();
	m = load_mapped(cached_file(SIZE));
	check(umadvise(m + 10 * SEG, 5 * SEG, UMMAP_ADV_DONTNEED) == 0);
	check(mapped_bytes(m) == SIZE - 5 * SEG);
	check(umsync_range(m + 20 * SEG + 1, SEG, UMMAP_EVICT) == 0);
	check(mapped_bytes(m) == SIZE - 7 * SEG);
	check_bytes(m, SIZE, 0, OLD);
	check(mapped_bytes(m) == SIZE);
	check(umsync(m, 1) == 0);
	check(mapped_bytes(m) == 0);
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 0) == 0);
}

/* A migrating mapping does not change with its old file. */
Test(pagecache_map, carrying)
{
	int from, to = temp_file(0);
	uint8_t *m;
	void *new = NULL;

	start();
	from = cached_file(SIZE);
	file_fill(to, 0, SIZE, 0, NEW);
	m = load_mapped(from);
	check(umremap(m, 0, to, 0, 0, &new) == 0 && new == m);
	check(mapped_bytes(m) == 0);
	check_bytes(m, SIZE / 2, 0, OLD);
	check(mapped_bytes(m) == 0, "no page of either file is mapped");
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
	m = load_mapped(cached_file(SIZE));
	check(umremap(m, 0, other, 0, UMMAP_SWITCH, &(void *){ NULL }) == 0);
	check(mapped_bytes(m) == 0);
	check_bytes(m, SIZE, 0, NEW);
	check(mapped_bytes(m) == SIZE);
	check(umunmap(m, 0) == 0);
}

Test(pagecache_map, resizing)
{
	uint8_t *m;
	void *new = NULL;
	int fd;

	start();
	fd = cached_file(2 * SIZE);
	m = load_mapped(fd);
	check(umremap(m, SIZE / 2 + 100, -1, -1, 0, &new) == 0 && new == m);
	check_bytes(m, SIZE / 2 + 100, 0, OLD);
	check(mapped_bytes(m) == SIZE / 2, "%zu", mapped_bytes(m));
	check(umremap(m, 2 * SIZE, -1, -1, 0, &new) == 0);
	m = new;
	check_bytes(m, 2 * SIZE, 0, OLD);
	check(umunmap(m, 1) == 0);
	check_file(fd, 0, 2 * SIZE, 0, OLD);
}

/* The kernel may reclaim the pages. Then the library loads the segments again. */
Test(pagecache_map, kernel_takes_pages_back)
{
	double end = now() + 30;
	uint8_t *m;
	int fd;

	start();
	fd = cached_file(SIZE);
	check(fsync(fd) == 0);
	m = load_mapped(fd);
	while (mapped_bytes(m) > SIZE / 2 && now() < end) {
		check(madvise(m, SIZE, MADV_PAGEOUT) == 0);
		pause_ms(50);
	}
	check(mapped_bytes(m) <= SIZE / 2, "%zu are mapped, %zu cached", mapped_bytes(m),
		cached_bytes(fd, SIZE));
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 0) == 0);
}

/* Each separate mapping may take a VMA, of which there are few. */
Test(pagecache_map, many_pieces)
{
	const size_t seg = 4 * KIB, segs = 18000, limit = 8192;
	struct ummap_attr attr = init;
	char path[320], uri[400];
	uint8_t *m;
	int fd;

	start();
	set_budget(256 * MIB);
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
		check(mapped_bytes(m) <= limit * seg, "%zu", mapped_bytes(m));
	}
	check(mapped_bytes(m) > 0);
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
	m = load_mapped(cached_file(SIZE));
	check_killed(run_child(touch, m), SIGSEGV);
	check_bytes(m, SIZE, 0, OLD);
	check(umunmap(m, 0) == 0);
}

/* ---- Threads ---- */

static struct {
	uint8_t *m;
	atomic_bool over;
} shared;

/* Each thread has one word of each segment, and knows its value. */
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

/* Syncs and evicts all segments meanwhile, again and again. */
static void *disturb(void *unused)
{
	uint64_t random = 99;

	while (!shared.over) {
		size_t first = next_random(&random) % SEGS,
		       n = 1 + next_random(&random) % (SEGS - first);

		if (next_random(&random) % 2)
			check(umsync_range(shared.m + first * SEG, n * SEG,
					   UMMAP_EVICT | UMMAP_NOFLUSH) == 0);
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
	/* Frames and page-cache mappings displace each other. */
	set_budget(SIZE / 4);
	set_env("UMMAP_DIRECT", "never"); /* written data stay in the page cache */
	shared.m = map_file(fd, SIZE, SEG, READ_WRITE, 0);
	for (size_t t = 0; t < 4; t++)
		check(pthread_create(&workers[t], NULL, load_and_store, (void *)(uintptr_t)t) == 0);
	check(pthread_create(&other, NULL, disturb, NULL) == 0);
	for (int n = 0; n < 20; n++) {
		size_t is = mapped_bytes(shared.m);

		most = is > most ? is : most;
		pause_ms(5);
	}
	for (size_t t = 0; t < 4; t++)
		check(pthread_join(workers[t], NULL) == 0);
	shared.over = true;
	check(pthread_join(other, NULL) == 0);
	check(most > 0 && most <= SIZE, "%" PRIu64, most);
	check(umsync(shared.m, 1) == 0);
	check(mapped_bytes(shared.m) == 0, "%zu", mapped_bytes(shared.m));
	check(umunmap(shared.m, 1) == 0);
}

/* Each run may take two VMAs, of which a process has few. */
#define SCATTERED 24

static void scattered(void *unused)
{
	int fd = filled_file(32 * MIB, 6), before, rest;
	uint8_t *m[SCATTERED], page[1];

	(void)unused;
	set_env("UMMAP_ENGINE", "segv");
	set_budget(SCATTERED * 32 * MIB);
	check(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 &&
	      posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
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
	check(rest < 40000, "%d VMAs", rest);
	for (int k = 0; k < SCATTERED; k++)
		check(umunmap(m[k], 0) == 0);
}

Test(pagecache_map, scattered_in_many_mappings)
{
	check_exits(run_child(scattered, NULL), 0);
}

/* ---- The budget ---- */

#define SMALL_BUDGET (8 * MIB)
#define BIG_FILE (64 * MIB)
/* A process needs memory beside frames and page-cache mappings: headers of segments, stacks, and
 * pages of libraries that are touched for the first time. */
#define RSS_MARGIN (3 * MIB)

/* Resident bytes of this process, as the kernel finds them in its page tables. */
static size_t resident(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	char line[200];
	size_t kib = 0;

	check(f != NULL);
	while (fgets(line, sizeof(line), f) && sscanf(line, "Rss: %zu", &kib) != 1)
		;
	fclose(f);
	check(kib > 0);
	return kib * KIB;
}

static void check_counted(size_t budget)
{
	struct umstat st = stat_of(NULL);

	check(st.held_bytes + st.pagecache_bytes <= budget,
		"%" PRIu64 " of frames, %" PRIu64 " of page-cache mappings",
	      st.held_bytes, st.pagecache_bytes);
}

static void check_budget(size_t budget, size_t before)
{
	size_t now = resident();

	check_counted(budget);
	check(SANITIZED || now <= before + budget + RSS_MARGIN,
		"%zu bytes are resident, %zu before", now, before);
}

/* Loads one byte of each page of a segment. */
static void load_segment(const uint8_t *m, size_t seg, size_t i)
{
	for (size_t at = i * seg; at < (i + 1) * seg; at += 4 * KIB)
		check(m[at] == pattern(at, OLD));
}

static void load_within_budget(const char *engine, size_t seg, bool at_random)
{
	uint64_t random = 1;
	size_t before, segs = BIG_FILE / seg;
	uint8_t *m;
	int fd;

	set_env("UMMAP_ENGINE", engine);
	set_budget(SMALL_BUDGET);
	fd = cached_file(BIG_FILE);
	m = map_file(fd, BIG_FILE, seg, PROT_READ, 0);
	load_segment(m, seg, 0);
	before = resident();
	for (size_t n = 0; n < segs; n++) {
		load_segment(m, seg, at_random ? next_random(&random) % segs : n);
		if (n % (segs / 64) == 0)
			check_budget(SMALL_BUDGET, before);
	}
	check(mapped_bytes(m) >= SMALL_BUDGET / 2, "%zu", mapped_bytes(m));
	check(umunmap(m, 0) == 0);
	check(stat_of(NULL).pagecache_bytes == 0);
}

static void load_all_within_budget(void *engine)
{
	load_within_budget(engine, 4 * KIB, false);
	load_within_budget(engine, 4 * KIB, true);
	load_within_budget(engine, SEG, false);
	load_within_budget(engine, SEG, true);
}

Test(pagecache_budget, of_the_process)
{
	check_exits(run_child(load_all_within_budget, "segv"), 0);
	check_exits(run_child(load_all_within_budget, "sigbus"), 0);
}

/* The budget of a mapping includes its page-cache mappings. */
Test(pagecache_budget, of_a_group)
{
	struct ummap_attr attr = init;
	char path[320], uri[400];
	uint8_t *m, *other;

	set_budget(BIG_FILE);
	file_fill(temp_named("file", 0, path), 0, BIG_FILE, 0, OLD);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	attr.seg_size = SEG;
	check(ummap_open(uri, BIG_FILE, 0, PROT_READ, &attr, (void **)&other) == 0);
	attr.budget = SMALL_BUDGET;
	check(ummap_open(uri, BIG_FILE, 0, PROT_READ, &attr, (void **)&m) == 0);
	for (size_t i = 0; i < BIG_FILE / SEG; i++) {
		load_segment(m, SEG, i);
		check(mapped_bytes(m) <= SMALL_BUDGET, "%zu", mapped_bytes(m));
	}
	check(mapped_bytes(m) > SMALL_BUDGET / 2, "%zu", mapped_bytes(m));
	check_bytes(other, BIG_FILE / 2, 0, OLD);
	check(mapped_bytes(other) == BIG_FILE / 2 && mapped_bytes(m) > SMALL_BUDGET / 2);
	/* The budget that one mapping leaves is available to the other. */
	check(umunmap(m, 0) == 0);
	check_bytes(other, BIG_FILE, 0, OLD);
	check(mapped_bytes(other) == BIG_FILE);
	check(umunmap(other, 0) == 0);
}

/* The sum of the budgets of two groups exceeds the budget of the process, which they share. */
Test(pagecache_budget, of_two_groups)
{
	struct ummap_attr attr = init;
	char path[320], uri[400];
	uint8_t *m[2];

	set_budget(SMALL_BUDGET);
	file_fill(temp_named("file", 0, path), 0, BIG_FILE, 0, OLD);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	attr.seg_size = SEG;
	attr.budget = SMALL_BUDGET * 3 / 4;
	for (int k = 0; k < 2; k++)
		check(ummap_open(uri, BIG_FILE, 0, PROT_READ, &attr, (void **)&m[k]) == 0);
	for (size_t i = 0; i < BIG_FILE / SEG; i++) {
		load_segment(m[i % 2], SEG, i);
		check_counted(SMALL_BUDGET);
	}
	check(mapped_bytes(m[0]) > 0 && mapped_bytes(m[1]) > 0);
	check(umunmap(m[0], 0) == 0 && umunmap(m[1], 0) == 0);
}

/* Stores need frames, and page-cache mappings give way to them, except for a part of the budget.
 * When the budget is full of frames, page-cache mappings get this part. */
Test(pagecache_budget, shared_with_frames)
{
	uint8_t *loaded, *stored;
	int fd, to;

	set_budget(SMALL_BUDGET);
	fd = cached_file(BIG_FILE);
	to = temp_file(BIG_FILE);
	loaded = map_file(fd, BIG_FILE, SEG, PROT_READ, 0);
	stored = map_file(to, BIG_FILE, SEG, READ_WRITE, 0);
	for (size_t i = 0; i < BIG_FILE / SEG; i++)
		load_segment(loaded, SEG, i);
	check(mapped_bytes(loaded) > SMALL_BUDGET / 2);
	for (size_t i = 0; i < BIG_FILE / SEG; i++) {
		fill(stored + i * SEG, SEG, i * SEG, NEW);
		check_counted(SMALL_BUDGET);
	}
	check(mapped_bytes(loaded) <= SMALL_BUDGET / 2 && mapped_bytes(loaded) > 0, "%zu",
		mapped_bytes(loaded));
	check(umsync(loaded, 1) == 0 && mapped_bytes(loaded) == 0);
	check_bytes(stored, BIG_FILE, 0, NEW);
	for (size_t i = 0; i < BIG_FILE / SEG; i++) {
		load_segment(loaded, SEG, i);
		check_counted(SMALL_BUDGET);
	}
	check(mapped_bytes(loaded) > 0);
	check(umunmap(loaded, 0) == 0 && umunmap(stored, 1) == 0);
	check_file(to, 0, BIG_FILE, 0, NEW);
}

/* A budget of few segments has frames only, because an instruction may need several at once. */
Test(pagecache_budget, of_few_segments)
{
	uint8_t *m;

	set_budget(8 * SEG);
	m = map_file(cached_file(SIZE), SIZE, SEG, PROT_READ, 0);
	check_bytes(m, SIZE, 0, OLD);
	check(mapped_bytes(m) == 0);
	check(umunmap(m, 0) == 0);
}

/* Loads random pages of a file that does not fit. */
static void *load_at_random(void *seed)
{
	uint64_t random = (uintptr_t)seed;

	for (unsigned n = 0; n < by_time(2000, 20000); n++) {
		size_t at = next_random(&random) % BIG_FILE;

		check(shared.m[at] == pattern(at, OLD));
		if (n % 64 == 0)
			check(stat_of(NULL).pagecache_bytes <= SMALL_BUDGET);
	}
	return NULL;
}

Test(pagecache_budget, threads)
{
	pthread_t threads[4];

	set_budget(SMALL_BUDGET);
	shared.m = map_file(cached_file(BIG_FILE), BIG_FILE, SEG, PROT_READ, 0);
	for (size_t t = 0; t < 4; t++)
		check(pthread_create(&threads[t], NULL, load_at_random, (void *)(t + 1)) == 0);
	for (size_t t = 0; t < 4; t++)
		check(pthread_join(threads[t], NULL) == 0);
	check(umunmap(shared.m, 0) == 0);
	check(stat_of(NULL).pagecache_bytes == 0);
}

/* ---- The kernel's readahead ---- */

#define COLD_FILE (16 * MIB)

/* Returns a file of which read(2) has loaded the beginning, and the kernel perhaps more: the last
 * page that the kernel has read ahead is marked, and an access to it causes more readahead. */
static int read_ahead_file(void)
{
	uint8_t page[4 * KIB];
	int fd = cached_file(COLD_FILE);

	uncache(fd, COLD_FILE);
	check(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL) == 0);
	check(pread(fd, page, sizeof(page), 0) == sizeof(page));
	check(pread(fd, page, sizeof(page), sizeof(page)) == sizeof(page));
	return fd;
}

/* The library reads missing pages with direct transfers, and causes no readahead of the kernel,
 * whether it maps the cached pages or copies them. */
static void read_beside_cache(size_t seg, int advice)
{
	size_t before;
	uint8_t *m;
	int fd = read_ahead_file();

	m = map_file(fd, COLD_FILE, seg, PROT_READ, 0);
	check(umadvise(m, COLD_FILE, advice) == 0);
	/* Readahead for the calls above may still be running. */
	pause_ms(100);
	before = cached_bytes(fd, COLD_FILE);
	for (size_t i = 0; i < COLD_FILE / seg; i++)
		load_segment(m, seg, i);
	check(cached_bytes(fd, COLD_FILE) <= before,
		"segments of %zu, advice %d: %zu bytes are in the page cache, %zu before",
	      seg, advice, cached_bytes(fd, COLD_FILE), before);
	check(stat_of(m).read_bytes + before >= COLD_FILE);
	check(umunmap(m, 0) == 0);
}

static void read_each_way(void *cached)
{
	set_env("UMMAP_CACHED", cached);
	set_budget(SMALL_BUDGET);
	read_beside_cache(16 * KIB, UMMAP_ADV_RANDOM);
	read_beside_cache(4 * KIB, UMMAP_ADV_NORMAL);
	read_beside_cache(SEG, UMMAP_ADV_SEQUENTIAL);
}

static void read_by_driver(const char *driver)
{
	set_env("UMMAP_DRIVER", driver);
	check_exits(run_child(read_each_way, "auto"), 0);
	check_exits(run_child(read_each_way, "copy"), 0);
}

/* Whether this file system has direct transfers. */
static bool takes_direct(void)
{
	char path[320];
	int fd = temp_named("direct", 4 * KIB, path);
	int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	bool takes = direct >= 0;

	if (takes)
		close(direct);
	close(fd);
	return takes;
}

Test(pagecache_readahead, no_more_than_was_there)
{
	if (!takes_direct())
		cr_skip_test("the file system of the temporary files takes no direct transfers");
	read_by_driver("posix");
	if (has_driver("uring"))
		read_by_driver("uring");
}
