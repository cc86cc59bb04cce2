/* SPDX-License-Identifier: BSD-3-Clause */
/* objects.h - mappings of the objects that prog_http and prog_s3 put on their servers. */
#ifndef TESTS_HTTP_OBJECTS_H
#define TESTS_HTTP_OBJECTS_H

#include "common.h"

#define SEED 3
#define SIZE (6 * MIB + 1234)
#define SEG (64 * KIB)

static inline uint8_t *map_object(const char *at)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	attr.seg_size = SEG;
	check(ummap_open(at, SIZE, 0, PROT_READ, &attr, &addr) == 0, "%s", umerrormsg());
	return addr;
}

static inline void check_map(const char *at)
{
	uint8_t *bytes = map_object(at);

	check_bytes(bytes + SIZE - 3, 3, SIZE - 3, SEED);
	check_bytes(bytes, SIZE, 0, SEED);
	check(umunmap(bytes, 0) == 0);
}

static inline void check_not_open(const char *at, int error, const char *text)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *addr;

	check(ummap_open(at, SIZE, 0, PROT_READ, &attr, &addr) == -1 && errno == error, "%s: %s",
	      at, strerror(errno));
	check(strstr(umerrormsg(), text), "%s", umerrormsg());
}

#endif
