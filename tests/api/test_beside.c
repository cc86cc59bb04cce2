/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses before and after a mapping that the caller reserves: the mapping never touches them,
 * they outlive it, and if no mapping can be made, they are freed.
 */
#include <criterion/criterion.h>

#include "common.h"

#define SEG (64 * KIB)
#define SIZE (16 * SEG - 1000)    /* ends within a page */
#define BEFORE (5 * 4096)
#define AFTER (40 * SEG)

static uint8_t *open_between(int fd)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	void *addr;

	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	attr.seg_size = SEG;
	attr.before = BEFORE;
	attr.after = AFTER;
	check(ummap_open(uri, SIZE, 0, READ_WRITE, &attr, &addr) == 0, "%s", umerrormsg());
	return addr;
}

/* Maps memory of the caller there. Other mappings cannot have these addresses. */
static void map_memory_at(uint8_t *at, size_t len, int with)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	check(mmap(at, len, READ_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED &&
	      errno == EEXIST);
	check(mmap(at + len - 4096, 4096, READ_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0) ==
		      MAP_FAILED &&
	      errno == EEXIST);
	check(mmap(at, len, READ_WRITE, flags | MAP_FIXED, -1, 0) == at);
	memset(at, with, len);
}

static bool holds(const uint8_t *at, size_t len, int with)
{
	for (size_t i = 0; i < len; i++) {
		if (at[i] != with)
			return false;
	}
	return true;
}

/* Accesses all segments in order, so that readahead reaches both ends. */
static void walk(volatile uint8_t *m, uint8_t add)
{
	for (size_t i = 0; i < SIZE; i += 512)
		m[i] = (uint8_t)(m[i] + add);
	for (size_t i = SIZE; i > 512; i -= 512)
		m[i - 1] = (uint8_t)(m[i - 1] + add);
}

/* A mapping and the memory on both sides of it. */
struct row {
	int fd;
	uint8_t *before, *m, *after;
};

static struct row open_row(void)
{
	struct row r = { .fd = temp_file(16 * SEG) };

	r.m = open_between(r.fd);
	r.before = r.m - BEFORE;
	r.after = r.m + (SIZE + 4095) / 4096 * 4096;
	map_memory_at(r.before, BEFORE, 0xbe);
	map_memory_at(r.after, AFTER, 0xaf);
	return r;
}

static void check_neighbours(const struct row *r)
{
	check(holds(r->before, BEFORE, 0xbe), "the memory before the mapping has changed");
	check(holds(r->after, AFTER, 0xaf), "the memory after the mapping has changed");
}

/* Ends the mapping, which may have moved, and then the memory beside it, which has not changed. */
static void close_row(const struct row *r, void *m)
{
	check_neighbours(r);
	check(umunmap(m, 0) == 0);
	check_neighbours(r);
	check(munmap(r->before, BEFORE) == 0 && munmap(r->after, AFTER) == 0);
	close(r->fd);
}

Test(beside, belongs_to_the_caller)
{
	struct row r;

	/* The budget is smaller than the mapping, so that segments are evicted. */
	set_budget(6 * SEG);
	r = open_row();
	for (int turn = 0; turn < 5; turn++) {
		walk(r.m, 1);
		check_neighbours(&r);
	}
	check(umsync(r.m, 1) == 0);
	close_row(&r, r.m);
}

/* A mapping that grows does not take the addresses after it, but moves. */
Test(beside, stays_when_the_mapping_moves)
{
	struct row r = open_row();
	void *moved = NULL;

	r.m[0] = 7;
	check(umremap(r.m, 32 * SEG, -1, -1, 0, &moved) == 0, "%s", umerrormsg());
	check(moved != r.m && *(uint8_t *)moved == 7);
	walk(moved, 1);
	close_row(&r, moved);
}

Test(beside, goes_with_a_mapping_that_fails)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int fd = temp_file(4 * SEG);
	void *first, *addr;
	char uri[64];

	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	attr.seg_size = SEG;
	attr.group = "beside";
	check(ummap_open(uri, SEG, 0, READ_WRITE, &attr, &first) == 0);
	/* The group is checked last. All mappings together need more addresses than there are. */
	attr.policy = "prnd";
	attr.before = attr.after = (size_t)1 << 40;
	for (int i = 0; i < 200; i++)
		check_fails(ummap_open(uri, SEG, SEG, READ_WRITE, &attr, &addr), EINVAL);
	attr.policy = NULL;
	check(ummap_open(uri, SEG, SEG, READ_WRITE, &attr, &addr) == 0, "%s", umerrormsg());
	map_memory_at((uint8_t *)addr - 4096, 4096, 1);
	map_memory_at((uint8_t *)addr + SEG + attr.after - 4096, 4096, 1);
	check(umunmap(addr, 0) == 0 && umunmap(first, 0) == 0);
	check(munmap((uint8_t *)addr - attr.before, attr.before) == 0);
	check(munmap((uint8_t *)addr + SEG, attr.after) == 0);
	close(fd);
}

static void refuse(size_t before, size_t after, int error)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.before = before;
	attr.after = after;
	check_fails(ummap_open("null:1M", SEG, 0, PROT_READ, &attr, &addr), error);
}

Test(beside, comes_in_pages_and_within_reason)
{
	refuse(1, 0, EINVAL);
	refuse(4096, 100, EINVAL);
	refuse((size_t)1 << 62, 0, ENOMEM);
	refuse(0, (size_t)-4096, ENOMEM);
	refuse((size_t)1 << 60, (size_t)1 << 60, ENOMEM);
	check(stat_of(NULL).mappings == 0);
}
