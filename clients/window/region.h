/* SPDX-License-Identifier: BSD-3-Clause */
/* An area: memory that hints have placed, in storage or partly so, and where it is found by its address. */
#ifndef AREA_H
#define AREA_H

#include "window/extent.h"
#include "window/hints.h"
#include "pmpi/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What other processes can map, too: bytes [from, from + len) of an area, which are those from `at` on behind fd. */
struct object {
	int fd;                /* -1: nothing, or closed */
	uint64_t at;
	size_t from, len;
};

struct area {
	struct area *next;
	char *base;            /* NULL: no bytes */
	size_t size;
	char *stored;          /* the part that is in storage; what is before or behind it is memory */
	size_t stored_from;    /* where in the area it begins */
	size_t stored_len;     /* 0: all is memory */
	char *path;            /* to unlink in the end; NULL: nothing */
	struct claim claim;
	struct object object;
	bool kernel;           /* storage is the kernel's mapping of its file */
	bool shared;           /* what the library pages can be offered to other processes */
	struct hints hints;    /* in use: what was left to us is filled in */
};

/* NULL with trouble, and nothing left behind. */
struct area *area_open(size_t size, const struct hints *hints, struct trouble *t);
/* Makes what is in storage of [addr, addr + len) durable. */
void area_sync(const struct area *area, const void *addr, size_t len, struct trouble *t);
/* Nobody else is going to map it any more. */
void area_close_object(struct area *area);
/* What is not durable yet is dropped; what the kernel has mapped is not. */
void area_close(struct area *area);
/* The same for one that nobody has used: its file stays, whatever the hints say. */
void area_abandon(struct area *area);

/* The area that holds addr; NULL: none. */
struct area *area_find(const void *addr);

#endif
