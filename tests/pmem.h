/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that the tests of the driver pmem share. Each test runs with each granularity, on tmpfs
 * and on a disk. With `byte` and `cache_line`, mappings are in place; with `page`, they are paged.
 * Each case runs in its own process, because libpmem2 and the library read the environment.
 */
#ifndef TESTS_PMEM_H
#define TESTS_PMEM_H

#include "common.h"

#define SEG (16 * KIB)
#define SIZE (8 * SEG)
#define OLD 1    /* seed of the contents of files before the test */
#define NEW 2    /* seed of the data stored into mappings */
#define OTHER 3  /* seed of the contents of other files */

struct kind {
	const char *dir, *granularity;
	bool in_place;
};

static struct kind kinds[] = {
	{ "/dev/shm", "byte", true },  { "/dev/shm", "cache_line", true },
	{ "/dev/shm", "page", false }, { NULL, "byte", true },
	{ NULL, "cache_line", true },  { NULL, "page", false },
};

#define EACH_KIND (sizeof(kinds) / sizeof(*kinds))
static inline void settle(const struct kind *kind)
{
	set_env("PMEM2_FORCE_GRANULARITY", kind->granularity);
	set_env("UMMAP_DRIVER", "pmem");
	if (kind->dir)
		set_env("TMPDIR", kind->dir);
}

static inline void for_each_kind(void (*body)(void *))
{
	for (size_t i = 0; i < EACH_KIND; i++) {
		int status = run_child(body, &kinds[i]);

		check(status == 0, "%s, %s: wait status %#x", kinds[i].dir ? kinds[i].dir : "disk",
		      kinds[i].granularity, status);
	}
}

static inline int file_of(size_t size, uint64_t seed)
{
	int fd = temp_file(0);

	file_fill(fd, 0, size, 0, seed);
	return fd;
}

/* Returns a URI of the descriptor's file, which need not have a name. */
static inline const char *uri_of(int fd, const char *scheme, const char *keys)
{
	static char uri[128];

	snprintf(uri, sizeof(uri), "%s:/proc/self/fd/%d%s", scheme, fd, keys);
	return uri;
}

static inline uint8_t *map_uri(const char *uri, size_t size, int prot, off_t offset)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr = NULL;

	attr.seg_size = SEG;
	check(ummap_open(uri, size, offset, prot, &attr, &addr) == 0, "%s", uri);
	return addr;
}

/* Checks whether a store appears in the file at once, as it does in place. */
static inline void check_in_place(uint8_t *m, size_t at, int fd, off_t off, bool wanted)
{
	uint8_t before = m[at], byte;

	m[at] = (uint8_t)~before;
	check(pread(fd, &byte, 1, off) == 1);
	check((byte == m[at]) == wanted, "the file holds %#x, the mapping %#x", byte, m[at]);
	m[at] = before;
}

static inline void check_no_faults(const void *m)
{
	struct umstat st = stat_of(m);

	check(st.read_faults + st.write_faults + st.upgrade_faults == 0);
	check(st.read_requests + st.write_requests == 0);
	check(st.resident_bytes + st.inactive_bytes + st.dirty_bytes == 0);
}

#endif
