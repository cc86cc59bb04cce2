/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment, read once at the first mapping. */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stddef.h>

struct config {
	size_t mem_limit;      /* bytes; 0: use mem_share */
	double mem_share;      /* of the memory that the process may use */
	const char *limit_name, *limit_text; /* the variable that sets the limit, and its value */
	bool dynamic;          /* the share of the node's memory may be exceeded while there is room */
	const char *group;     /* of processes that share it; NULL: those of the user that name none */
	bool bulk_sync;        /* neighbours are written together */
	size_t seg_size;       /* default segment */
	const char *seg_size_text; /* as given; NULL: not given */
	const char *driver;    /* for descriptors: a URI without a path; NULL: the best there is */
	const char *driver_path; /* folders of loadable drivers and policies, with colons between them; or NULL */
	const char *direct;    /* "auto", "always" or "never" */
	const char *cached;    /* "auto", "copy" or "map" */
	int engine;            /* UMMAP_ENGINE_* */
	unsigned fault_threads; /* threads that serve accesses that userfaultfd reports */
	size_t readahead;      /* bytes of the window; 0: off */
	bool lock;             /* a writable mapping locks its range */
	bool writers;          /* all writable mappings are UMMAP_WRITERS */
	bool bus_when_full;    /* a store that would have to wait for storage raises SIGBUS */
	size_t over_bytes;     /* bytes that may be held beyond a budget while writes fail; 0: over_share counts */
	double over_share;     /* the same bound as a part of the budget */
	bool over_is_default;  /* UMMAP_OVER_BUDGET is not set: the memory that the limit leaves also bounds the excess */
	const char *stats;     /* NULL, "1" or a path with a '/' */
};

extern struct config config;

/* Returns 0, or -EINVAL with a sentence that names the variable. */
int config_load(void);

/* Whether a text is a valid name of a group: up to CONFIG_NAME_MAX letters, digits, '-', '_' and '.'. */
#define CONFIG_NAME_MAX 31
bool config_is_name(const char *text);

#endif
