/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver pmem: contents of mappings and files, the calls other than umremap, and stores that
 * cannot be used.
 */
#include <criterion/criterion.h>

#include "pmem.h"

/* ---- Contents ---- */

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

/* A file of more bytes than the driver flushes by cache lines. */
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

static void traced(void *arg)
{
	const struct kind *kind = arg;
	char path[320], uri[400], line[256];
	bool persisted = false;
	uint8_t *m;
	FILE *f;
	int fd;

	settle(kind);
	fd = file_of(SIZE, OLD);
	snprintf(path, sizeof(path), "%s/trace-%s", temp_dir(), kind->granularity);
	check(unlink(path) == 0 || errno == ENOENT);
	snprintf(uri, sizeof(uri), "trace+pmem:/proc/self/fd/%d?trace.file=%s", fd, path);
	m = map_uri(uri, SIZE, READ_WRITE, 0);
	check_bytes(m, SIZE, 0, OLD);
	check_in_place(m, 7, fd, 7, kind->in_place);
	check(umunmap(m, 1) == 0);
	f = fopen(path, "re");
	check(f, "%s", path);
	while (fgets(line, sizeof(line), f))
		persisted |= strstr(line, ",persist,0,") != NULL;
	check(persisted == kind->in_place);
	fclose(f);
}

Test(pmem, under_a_filter_that_passes_it_on)
{
	for_each_kind(traced);
}

/* ---- Other calls ---- */

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
		/* A mapping in place uses no memory of the budget, so no advice can exceed it. */
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
	void *m, *base = NULL;
	int fd;

	settle(arg);
	fd = file_of(SIZE, OLD);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	m = map_file(open(path, O_RDONLY | O_CLOEXEC), SIZE, SEG, PROT_READ, 0);
	check_bytes(m, SIZE, 0, OLD);
	check(umsync(m, 1) == 0);
	check_fails(umpin(m, 1, READ_WRITE), EACCES);
	check_fails(umremap(m, 0, temp_file(SIZE), 0, 0, &base), EACCES);
	check(umremap(m, SIZE / 2, -1, -1, 0, &base) == 0);
	check_bytes(m, SIZE / 2, 0, OLD);
	check_fails(
		ummap(SIZE, SEG, READ_WRITE, open(path, O_RDONLY | O_CLOEXEC), 0, -1, 1, 0, &base),
		EACCES);
	check(umunmap(m, 1) == 0);
	check_killed(run_child(store_to_read_only, arg), SIGSEGV);
}

Test(calls, read_only)
{
	for_each_kind(map_read_only);
}

#define ROUNDS 20

static void leaves_nothing(void *arg)
{
	void *base;
	int fds[2], before, maps;

	settle(arg);
	fds[0] = file_of(SIZE, OLD);
	fds[1] = temp_file(0);
	check(umunmap(map_file(fds[0], SIZE, SEG, READ_WRITE, 0), 0) == 0);
	before = count_fds();
	maps = count_maps();
	for (int i = 0; i < ROUNDS; i++) {
		uint8_t *m = map_file(fds[0], SIZE, SEG, READ_WRITE, 0);

		base = NULL;
		m[i]++;
		base = NULL;
		check(umremap(m, 0, fds[1], 0, 0, &base) == 0);
		check(umunmap(m, i % 2) == 0);
	}
	check(count_fds() == before, "%d, then %d", before, count_fds());
	/* malloc may make some mappings of its own. */
	check(count_maps() < maps + ROUNDS, "%d, then %d", maps, count_maps());
}

Test(calls, leave_nothing_behind)
{
	for_each_kind(leaves_nothing);
}

/* ---- Errors ---- */

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
	const char *const keys[] = { "?granularity=auto", "?granularity=page",
				     "?granularity=cacheline", "?granularity=byte" };
	unsigned allowed = strcmp(kind->granularity, "page") == 0 ? 2 :
			   strcmp(kind->granularity, "byte") == 0 ? 4 : 3;
	void *m;
	int fd;

	settle(kind);
	fd = file_of(SIZE, OLD);
	for (unsigned i = 0; i < 4; i++) {
		if (i < allowed)
			check(umunmap(map_uri(uri_of(fd, "pmem", keys[i]), SIZE, READ_WRITE, 0),
				      1) == 0);
		else
			check_fails(ummap_open(uri_of(fd, "pmem", keys[i]), SIZE, 0, READ_WRITE,
					       &attr, &m),
				    EOPNOTSUPP);
	}
	check_fails(
		ummap_open(uri_of(temp_file(0), "pmem", keys[2]), SIZE, 0, READ_WRITE, &attr, &m),
		EOPNOTSUPP);
	check_fails(
		ummap_open(uri_of(fd, "pmem", "?granularity=word"), SIZE, 0, READ_WRITE, &attr, &m),
		EINVAL);
	check_fails(ummap_open(uri_of(fd, "pmem", "?grain=page"), SIZE, 0, READ_WRITE, &attr, &m),
		    EINVAL);
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
	for_each_kind(not_stores);
}
