/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of ummap-run(1), which it passes in the environment variable UMRUN_OPTIONS. */
#ifndef UMRUN_CONFIG_H
#define UMRUN_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

struct config {
	uint64_t min;            /* least bytes of a mapping that the library takes; 0: none */
	const char *only;        /* pattern for the paths of files to take; NULL: all */
	const char *driver;      /* driver with its keys; NULL: uring, or posix if uring fails */
	const char *policy;      /* policy; NULL: the library's default */
	const char *heap;        /* folder of the heap for large allocations; NULL: no heap */
	uint64_t heap_min;       /* least bytes of an allocation from the heap */
	uint64_t segment;        /* bytes of a segment of the heap (UMMAP_SEG_SIZE) */
	bool finds_size;         /* UMMAP_SEG_SIZE is not set: read-only mappings find their
				    transfer size, and others have `segment` */
	bool node_cache;         /* programs share all read-only mappings (UMMAP_NODE_CACHE=1) */
	bool announces;          /* they share those that others have, too (no value) */
	bool pins;               /* the engine does not serve the kernel's accesses */
	const char *exclusive;   /* not NULL: no other process uses the files */
	const char *quiet;       /* not NULL: no line at the end about mappings of the kernel */
	const char *stats;       /* not NULL: statistics go to stderr at the end */
	const char *verbose;     /* not NULL: prints each mapping of the kernel, with the reason */
};

extern struct config config;
/* Reads the options once, whichever part of the library starts first. */
void config_read(void);

#endif
