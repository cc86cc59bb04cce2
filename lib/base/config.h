/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings that environment variables hold. They are read once, at the first mapping. */
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of a segment if neither the program nor UMMAP_SEG_SIZE tells them. */
#define DEFAULT_SEG_SIZE ((size_t)2 << 20)

struct config {
	size_t mem_limit;          /* limit of the memory group in bytes; 0: mem_share counts */
	double mem_share;          /* limit as a part of the memory that the process may use */
	const char *limit_text;    /* value of UMMAP_MEM_LIMIT; NULL: not set */
	bool dynamic;              /* processes may exceed their share while the group has room */
	const char *group;         /* name of the memory group; NULL: the user's default group */
	bool bulk_sync;            /* adjacent dirty segments are written together */
	size_t seg_size;           /* default segment size, or UMMAP_SEG_AUTO; 0: not set */
	const char *seg_size_text; /* value of UMMAP_SEG_SIZE; NULL: not set */
	const char *driver;        /* default driver, a URI without a path; NULL: the best one */
	const char *driver_path;   /* folders of drivers and policies, with colons; or NULL */
	const char *direct;        /* default of the key "direct" */
	const char *cached;        /* default of the key "cached" */
	const char *engine;        /* engine of mappings that request none; engine.c checks it */
	unsigned fault_threads;    /* number of threads that handle messages of userfaultfd */
	size_t readahead;          /* maximum readahead in bytes; 0: none */
	size_t remote_readahead;   /* maximum readahead for stores behind a network; 0: none */
	size_t flush_rate;         /* bytes per second that a commit writes at most; 0: no limit */
	bool lock;                 /* writable mappings lock their ranges of files */
	bool writers;              /* all writable mappings have UMMAP_WRITERS */
	bool node_cache;           /* read-only mappings have UMMAP_NODE where it can be used */
	bool bus_when_full;        /* stores that would wait for failing writes raise SIGBUS */
	size_t over_bytes;         /* maximum excess over a budget in bytes; 0: over_share counts */
	double over_share;         /* maximum excess as a multiple of the budget */
	bool over_is_default;      /* the memory that the limit leaves bounds the excess, too */
	const char *tiers;         /* value of UMMAP_TIERS; tiers.c checks it */
	const char *tiers_policy;  /* name of the policy for tiers; plugin.c checks it */
	const char *stats;         /* file for counters at exit; "1": standard error; NULL: none */
};

extern struct config config;

/* Reads all variables. Returns 0, or -errno with a message that names the variable. */
int config_load(void);

/* Maximum length of the name of a memory group. */
#define CONFIG_NAME_MAX 31
/* Whether the text is a valid name of a memory group. */
bool config_is_name(const char *text);

#endif
