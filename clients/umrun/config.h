/* SPDX-License-Identifier: BSD-3-Clause */
/* What umrun(1) asks for, by variables of the environment that it sets. */
#ifndef UMRUN_CONFIG_H
#define UMRUN_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

struct config {
	size_t min;              /* mappings of fewer bytes are the kernel's; 0: all are */
	const char *only;        /* so are files whose path does not match; NULL: all match */
	const char *driver;      /* with its keys, as in "trace+posix?trace.file=a"; NULL: uring, or posix where it cannot be */
	const char *policy;      /* NULL: the library's default */
	const char *heap;        /* the folder for what of large allocations is not in memory; NULL: they are the C library's */
	size_t heap_min;         /* allocations of fewer bytes are so, too */
	size_t segment;          /* of the heap */
	bool pins;               /* its engine does not see the kernel's accesses: what calls are given is pinned */
	bool exclusive;          /* the user says that no other process uses the files */
	bool quiet;              /* no line at the end about mappings that stayed with the kernel */
	bool stats;              /* what was mapped and read goes to stderr at the end */
	bool verbose;            /* ... and each mapping that is left to the kernel, with the reason */
};

extern struct config config;
void config_read(void);
/* The URI by which a driver opens the file of a descriptor; same: by the descriptor's own
 * description. false: it is too long. */
bool config_uri(char *to, size_t room, const char *driver, int fd, bool same);

#endif
