/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings that the driver pmem cannot make in place use segments. */
#include <criterion/criterion.h>

#include "pmem.h"

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
	/* The mapping still uses segments, and the file has its new length. */
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
	attr.flags = UMMAP_CREATE | UMMAP_GROWS;
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
	snprintf(uri, sizeof(uri), "%s", uri_of(fd, "error+pmem", "?error.op=read&error.nth=2"));
	m = map_uri(uri, SIZE, READ_WRITE, 0);
	check(umadvise(m, SIZE, UMMAP_ADV_RANDOM) == 0);
	check(try_load(m, &value));
	check(!try_load(m + SEG, &value) && bus_info.si_addr == m + SEG);
	check(try_load(m + SEG, &value));
	check(umunmap(m, 0) == 0);
	snprintf(uri, sizeof(uri), "%s",
		 uri_of(fd, "error+pmem", "?error.op=write&error.errno=ENOSPC"));
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
	/* This file system has no DAX, so ummap() does not choose pmem by itself. */
	check_in_place(m, 0, fd, 0, false);
	check(umunmap(m, 0) == 0);
}

Test(segments, file_without_dax)
{
	set_env("PMEM2_FORCE_GRANULARITY", "byte");
	check_exits(run_child(chosen_by_default, NULL), 0);
}
