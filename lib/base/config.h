/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment, read once at the first mapping. */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stddef.h>

struct config {
	size_t mem_limit;      /* bytes; 0: use mem_share */
	double mem_share;      /* of the memory that the process may use */
	const char *limit_name, *limit_text; /* the variable that says so, and what it is */
	bool dynamic;          /* the share of the node's memory may be exceeded while there is room */
	const char *group;     /* of processes that share it; NULL: those of the user that name none */
	bool bulk_sync;        /* neighbours leave together */
	size_t seg_size;       /* default segment */
	const char *seg_size_text; /* as it was given; NULL: it was not */
	const char *driver;    /* for descriptors: a URI without a path; NULL: the best there is */
	const char *driver_path; /* folders of loadable drivers and policies, with colons between them; or NULL */
	const char *direct;    /* "auto", "always" or "never" */
	const char *cached;    /* "copy" or "map" */
	int engine;            /* UMMAP_ENGINE_* */
	unsigned fault_threads; /* serve accesses that come by userfaultfd */
	size_t readahead;      /* bytes of the window; 0: off */
	bool lock;             /* whoever writes a range locks it */
	bool writers;          /* all writable mappings are UMMAP_WRITERS */
	const char *stats;     /* NULL, "1" or a path with a '/' */
};

extern struct config config;

/* Returns 0, or -EINVAL with a sentence that names the variable. */
int config_load(void);

/* Whether it can be the name of a group: letters, digits, '-', '_' and '.', and not too many. */
#define CONFIG_NAME_MAX 31
bool config_is_name(const char *text);

#endif
