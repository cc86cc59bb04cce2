/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of ummap-run(1), which it passes in environment variables. */
#ifndef UMRUN_CONFIG_H
#define UMRUN_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

struct config {
	size_t min;              /* least bytes of a mapping that the library takes; 0: none */
	const char *only;        /* pattern for the paths of files to take; NULL: all */
	const char *driver;      /* driver with its keys; NULL: uring, or posix if uring fails */
	const char *policy;      /* policy; NULL: the library's default */
	const char *heap;        /* folder of the heap for large allocations; NULL: no heap */
	size_t heap_min;         /* least bytes of an allocation from the heap */
	size_t segment;          /* bytes of a segment of the heap */
	bool pins;               /* the engine does not serve the kernel's accesses */
	bool exclusive;          /* no other process uses the files */
	bool quiet;              /* no line at the end about mappings that stayed with the kernel */
	bool stats;              /* statistics go to stderr at the end */
	bool verbose;            /* prints each mapping that the kernel has, with the reason */
};

extern struct config config;
void config_read(void);
/* Writes the URI by which a driver opens the file of a descriptor; same: by the descriptor's own
 * description. Returns false if it is too long. */
bool config_uri(char *to, size_t room, const char *driver, int fd, bool same);

#endif
