/* SPDX-License-Identifier: BSD-3-Clause */
/* A region: memory that hints have placed, in storage or partly so, and where it is found by its address. */
#ifndef REGION_H
#define REGION_H

#include "window/extent.h"
#include "window/hints.h"
#include "pmpi/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What other processes can map, too: bytes [from, from + len) of a region, which are those from `at` on behind fd. */
struct object {
	int fd;                /* -1: nothing, or closed */
	uint64_t at;
	size_t from, len;
};

struct consistent;
struct versioned;

struct region {
	struct region *next;
	char *base;            /* NULL: no bytes */
	size_t size;
	char *stored;          /* the part that is in storage; what is before or behind it is memory */
	size_t stored_from;    /* where in the region it begins */
	size_t stored_len;     /* 0: all is memory */
	char *path;            /* to unlink in the end; NULL: nothing */
	struct extent extent;
	struct object object;
	bool kernel;           /* storage is the kernel's mapping of its file */
	bool shared;           /* what the library pages can be offered to other processes */
	struct versioned *versioned; /* of an object window, whose it is; NULL: none */
	struct consistent *consistent; /* with the hint storage_alloc_consistent; NULL: without */
	struct hints hints;    /* in use: what was left to us is filled in */
};

/* The driver that hints, or the environment, ask for. */
const char *region_driver(const struct hints *h);
/* The same driver, "scheme:?keys", behind wal+ with a log that keeps commits for a moment of all
 * ranks, and one more key or "". */
void region_log_driver(char *to, size_t room, const char *driver, const char *key);
/* "scheme:?keys" and a path make "scheme:path?keys"; characters with a meaning in URIs are encoded.
 */
void region_uri(char *uri, size_t room, const char *driver, const char *path);
/* NULL with an error, and nothing left behind. */
struct region *region_open(size_t size, const struct hints *hints, struct error *e);
/* Makes what is in storage of [addr, addr + len) durable. */
void region_sync(const struct region *region, const void *addr, size_t len, struct error *e);
/* Nobody else is going to map it any more. */
void region_close_object(struct region *region);
/* What is not durable yet is dropped; what the kernel has mapped is not. */
void region_close(struct region *region);
/* What ending the last one of this thread came to, if it was the share of a file: 0, or an errno; then what the file lacks is near. */
int region_ended_with(void);
/* The same for one that nobody has used: its file stays, whatever the hints say. */
void region_abandon(struct region *region);

/* The region that holds addr; NULL: none. */
struct region *region_find(const void *addr);

#endif
