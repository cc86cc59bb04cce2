/* SPDX-License-Identifier: BSD-3-Clause */
/* Holes of sparse files read as zeros without a request, also while the file changes. */
#include <criterion/criterion.h>

#include "common.h"

#define SEG (64 * KIB)
#define SEGS ((size_t)256)
#define SIZE (SEGS * SEG)
#define OLD 1
#define NEW 2

static const struct ummap_attr init = UMMAP_ATTR_INIT;

static bool is_data(size_t i)
{
	return mix(i / 3) % 3 == 0;
}

/* Fills the file with sequences of data and holes. Returns the number of segments with data. */
static size_t fill_some(int fd)
{
	size_t n = 0;

	for (size_t i = 0; i < SEGS; i++) {
		if (is_data(i))
			file_fill(fd, i * SEG, SEG, i * SEG, OLD);
		n += is_data(i);
	}
	check(lseek(fd, 0, SEEK_HOLE) < (off_t)SIZE, "the file system of %s has no holes",
	      temp_dir());
	return n;
}

static void check_segment(const uint8_t *m, size_t i)
{
	if (is_data(i))
		check_bytes(m + i * SEG, SEG, i * SEG, OLD);
	else
		check_zeros(m + i * SEG, SEG);
}

/* Maps with copies, because page-cache mappings do not look for holes. */
static uint8_t *map_random(int fd, size_t size, int prot)
{
	uint8_t *m;

	set_env("UMMAP_CACHED", "copy");
	m = map_file(fd, size, SEG, prot, 0);

	check(umadvise(m, size, UMMAP_ADV_RANDOM) == 0);
	return m;
}

static void load_all(void *driver)
{
	int fd = temp_file(SIZE);
	size_t data = fill_some(fd);
	struct umstat st;
	uint8_t *m;

	set_budget(4 * MIB);
	set_env("UMMAP_DRIVER", driver);
	m = map_random(fd, SIZE, PROT_READ);
	for (size_t i = 0; i < SEGS; i++)
		check_segment(m, i * 37 % SEGS);
	st = stat_of(m);
	check(st.read_requests == data && st.read_bytes == data * SEG,
	      "%" PRIu64 " requests for %zu segments of data", st.read_requests, data);
	check(umadvise(m, SIZE, UMMAP_ADV_NORMAL) == 0 && umsync(m, 1) == 0);
	/* Readahead of holes makes no requests either. */
	for (size_t i = 0; i < SEGS; i++)
		check_segment(m, i);
	check(stat_of(m).readahead_loads > 0);
	check(stat_of(m).read_bytes <= 3 * data * SEG, "%" PRIu64 " bytes for %zu of data",
	      stat_of(m).read_bytes, data * SEG);
	check(umunmap(m, 0) == 0);
}

Test(holes, are_not_read)
{
	check_exits(run_child(load_all, "posix"), 0);
	check_exits(run_child(load_all, "posix:?direct=never"), 0);
	if (has_driver("uring"))
		check_exits(run_child(load_all, "uring"), 0);
}

static void store_all(void *driver)
{
	int fd = temp_file(SIZE);
	uint8_t *m;

	set_budget(4 * MIB);
	set_env("UMMAP_DRIVER", driver);
	m = map_random(fd, SIZE, READ_WRITE);
	for (size_t i = 0; i < SEGS; i++)
		m[i * 37 % SEGS * SEG + 5] = 7;
	check(stat_of(m).read_requests == 0, "%" PRIu64, stat_of(m).read_requests);
	/* Segments that were evicted are data now. */
	for (size_t i = 0; i < SEGS; i++) {
		check(m[i * SEG + 5] == 7, "segment %zu", i);
		m[i * SEG + 5] = 0;
		check_zeros(m + i * SEG, SEG);
	}
	check(stat_of(m).read_requests > 0);
	check(umunmap(m, 1) == 0);
	check_file_zeros(fd, 0, SIZE);
}

Test(holes, are_stored_to)
{
	check_exits(run_child(store_all, "posix"), 0);
	if (has_driver("uring"))
		check_exits(run_child(store_all, "uring"), 0);
}

/* The last byte of a segment may be its only data. */
Test(holes, segments_that_are_almost_holes)
{
	int fd = temp_file(SIZE);
	uint8_t *m;

	for (size_t i = 0; i < SEGS; i += 2)
		check(pwrite(fd, &(uint8_t){ 9 }, 1, (off_t)((i + 1) * SEG - 1)) == 1);
	m = map_random(fd, SIZE, PROT_READ);
	for (size_t i = 0; i < SEGS; i++) {
		check_zeros(m + i * SEG, SEG - 1);
		check(m[(i + 1) * SEG - 1] == (i % 2 ? 0 : 9), "segment %zu", i);
	}
	check(umunmap(m, 0) == 0);
}

/* ---- The file changes ---- */

Test(holes, filled_by_others)
{
	int fd = temp_file(SIZE);
	uint8_t *m = map_random(fd, SIZE, PROT_READ);
	void *shared = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED, fd, 0);

	check(shared != MAP_FAILED);
	for (size_t i = 0; i < SEGS; i++) {
		size_t at = i * 37 % SEGS * SEG;

		if (i % 4 == 0)
			file_fill(fd, at, SEG, at, NEW);
		else if (i % 4 == 1)
			fill((uint8_t *)shared + at, SEG, at, NEW);
		if (i % 4 < 2)
			check_bytes(m + at, SEG, at, NEW);
		else
			check_zeros(m + at, SEG);
	}
	/* A segment that was loaded as a hole is loaded again after its eviction. */
	file_fill(fd, 0, SIZE, 0, NEW);
	check(umsync(m, 1) == 0);
	check_bytes(m, SIZE, 0, NEW);
	check(munmap(shared, SIZE) == 0 && umunmap(m, 0) == 0);
}

Test(holes, made_by_others)
{
	int fd = filled_file(SIZE, OLD);
	uint8_t *m = map_random(fd, SIZE, PROT_READ);

	check_bytes(m, SIZE, 0, OLD);
	check(umsync(m, 1) == 0);
	check(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10 * SEG, 50 * SEG) == 0);
	check_bytes(m, 10 * SEG, 0, OLD);
	check_zeros(m + 10 * SEG, 50 * SEG);
	check_bytes(m + 60 * SEG, SIZE - 60 * SEG, 60 * SEG, OLD);
	check(umunmap(m, 0) == 0);
}

/* Space that is allocated but not written. */
Test(holes, reserved)
{
	int fd = temp_file(SIZE);
	uint8_t *m;

	check(fallocate(fd, 0, 0, SIZE / 2) == 0);
	file_fill(fd, 3 * SEG, SEG, 3 * SEG, OLD);
	m = map_random(fd, SIZE, PROT_READ);
	for (size_t i = 0; i < SEGS; i++) {
		if (i == 3)
			check_bytes(m + i * SEG, SEG, i * SEG, OLD);
		else
			check_zeros(m + i * SEG, SEG);
	}
	check(umunmap(m, 0) == 0);
}

Test(holes, of_a_file_that_grows)
{
	int fd = temp_file(4 * SEG);
	uint8_t *m = map_random(fd, 4 * SEG, READ_WRITE);
	void *new = NULL;

	m[0] = 1;
	check(umremap(m, SIZE, -1, -1, 0, &new) == 0);
	m = new;
	check_zeros(m + SIZE / 2, SEG);
	check(ftruncate(fd, SIZE) == 0);
	file_fill(fd, SIZE - SEG, SEG, SIZE - SEG, NEW);
	check_zeros(m + SIZE - 2 * SEG, SEG);
	check_bytes(m + SIZE - SEG, SEG, SIZE - SEG, NEW);
	check(stat_of(m).read_bytes == SEG, "%" PRIu64, stat_of(m).read_bytes);
	check(umunmap(m, 1) == 0);
}

/* Migrating segments are holes if the old store has holes there. */
Test(holes, that_migrate)
{
	int from = temp_file(SIZE), to = filled_file(SIZE, NEW);
	uint8_t *m;

	fill_some(from);
	m = map_random(from, SIZE, READ_WRITE);
	check(umremap(m, 0, to, 0, 0, &(void *){ NULL }) == 0);
	for (size_t i = 0; i < SEGS; i += 2)
		check_segment(m, i);
	check(umunmap(m, 1) == 0);
	m = file_read(to, 0, SIZE, __FILE__, __LINE__);
	for (size_t i = 0; i < SEGS; i++)
		check_segment(m, i);
	free(m);
}

static uint8_t *map_writers(const char *uri)
{
	struct ummap_attr attr = init;
	void *m;

	attr.seg_size = SEG;
	attr.flags = UMMAP_WRITERS;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &m) == 0 &&
	      umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	return m;
}

/* Both mappings store into each segment. */
Test(holes, with_several_writers)
{
	char path[320], uri[400];
	uint8_t *a, *b;
	int fd = temp_named("file", SIZE, path);

	snprintf(uri, sizeof(uri), "posix:%s", path);
	a = map_writers(uri);
	b = map_writers(uri);
	for (size_t i = 0; i < SEGS; i++) {
		fill(a + i * SEG, SEG / 2, i * SEG, OLD);
		if (i % 2)
			check(umsync_range(a + i * SEG, SEG, UMMAP_NOFLUSH) == 0);
		fill(b + i * SEG + SEG / 2, SEG / 2, i * SEG + SEG / 2, OLD);
		if (i % 2)
			check_bytes(b + i * SEG, SEG, i * SEG, OLD);
	}
	check(umunmap(a, 1) == 0 && umunmap(b, 1) == 0);
	check_file(fd, 0, SIZE, 0, OLD);
}

/* A filter gets all requests, also for holes. */
Test(holes, behind_a_filter)
{
	char path[320], uri[400];
	uint8_t *m;

	temp_named("file", SIZE, path);
	snprintf(uri, sizeof(uri), "error+posix:%s?error.nth=999999", path);
	check(ummap_open(uri, SIZE, 0, PROT_READ, &init, (void **)&m) == 0);
	check_zeros(m, SIZE);
	check(stat_of(m).read_bytes == SIZE);
	check(umunmap(m, 0) == 0);
}

/* The offset of the program's descriptor does not change. */
Test(holes, leave_the_descriptor_alone)
{
	int fd = temp_file(SIZE);
	uint8_t *m;

	fill_some(fd);
	check(lseek(fd, 12345, SEEK_SET) == 12345);
	m = map_random(fd, SIZE, PROT_READ);
	for (size_t i = 0; i < SEGS; i++)
		check_segment(m, i);
	check(lseek(fd, 0, SEEK_CUR) == 12345);
	check(umunmap(m, 0) == 0);
}

/* ---- Changes during loads ---- */

static struct {
	int fd;
	_Atomic size_t written;
} shared;

static void *write_on(void *unused)
{
	for (size_t i = 0; i < SEGS; i++) {
		size_t at = i * 37 % SEGS * SEG;

		file_fill(shared.fd, at, SEG, at, NEW);
		shared.written = i + 1;
	}
	return unused;
}

/* Each thread loads data that were written before. */
static void *load_behind(void *m)
{
	for (size_t i = 0; i < SEGS; i++) {
		size_t at = i * 37 % SEGS * SEG;

		while (shared.written <= i)
			pause_ms(0);
		check_bytes((uint8_t *)m + at, SEG, at, NEW);
	}
	return NULL;
}

Test(holes, filled_under_way)
{
	pthread_t writer, readers[3];
	uint8_t *m;

	shared.fd = temp_file(SIZE);
	m = map_random(shared.fd, SIZE, PROT_READ);
	check(pthread_create(&writer, NULL, write_on, NULL) == 0);
	for (int t = 0; t < 3; t++)
		check(pthread_create(&readers[t], NULL, load_behind, m) == 0);
	check(pthread_join(writer, NULL) == 0);
	for (int t = 0; t < 3; t++)
		check(pthread_join(readers[t], NULL) == 0);
	check(umunmap(m, 0) == 0);
}
