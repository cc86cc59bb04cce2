/* SPDX-License-Identifier: BSD-3-Clause */
/* Window memory: memory that hints place in storage, entirely or in part. It is found by its
 * address. */
#ifndef REGION_H
#define REGION_H

#include "pmpi/error.h"
#include "window/kernel.h"
#include "window/hints.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ummap-driver.h>

/* Bytes that other processes can map, too: bytes [from, from + len) of the window memory are those
 * from `at` on of the file fd. */
struct object {
	int fd;                /* descriptor; -1: none, or closed */
	uint64_t at;
	size_t from, len;
};

struct consistent;
struct versioned;

/* An open store that window memory maps, in place of a file that the hints name. */
struct region_store {
	struct ummap_driver driver;
	void *handle;
	struct ummap_geom geom;
	bool completes;        /* closing the memory writes all changes, and returns an error if the
				  store lacks some of them */
};

struct region {
	struct region *next;
	char *base;            /* address; NULL: the memory has no bytes */
	size_t size;           /* bytes of the window */
	char *stored;          /* address of the part in storage; the rest is memory */
	size_t stored_from;    /* offset of that part in the window */
	size_t stored_len;     /* bytes of that part; 0: all is memory */
	char *path;            /* path of a file to unlink at the end; NULL: none */
	struct extent extent;  /* bytes of the file */
	struct object object;
	bool kernel;           /* the kernel maps the file (storage_alloc_engine=kernel) */
	bool shared;           /* other processes can import the mapping (UMMAP_SHARED) */
	bool completes;        /* as in struct region_store */
	struct umsync_handle *commit;  /* sync in the background; NULL: none */
	const struct region_store *store; /* during region_open only */
	struct versioned *versioned;   /* object of an object window; NULL: none */
	struct consistent *consistent; /* with storage_alloc_consistent; NULL: without */
	struct hints hints;    /* hints in use, complete with defaults */
};

/* The driver that the hints or the environment request. */
const char *region_driver(const struct hints *h);
/* The same driver, "scheme:?keys", behind wal+ with a log that keeps commits for a moment of all
 * ranks, and one more key or "". */
void region_log_driver(char *to, size_t room, const char *driver, const char *key);
/* Makes "scheme:path?keys" of "scheme:?keys" and a path, which is encoded. */
void region_uri(char *uri, size_t room, const char *driver, const char *path);
/* store: the store to map; NULL: the hints name it. The handle belongs to the memory, also if the
 * call fails. NULL with an error, and nothing left behind. */
struct region *region_open(size_t size, const struct hints *hints,
			   const struct region_store *store, struct error *e);
/* Makes the stored bytes of [addr, addr + len) durable. */
void region_sync(struct region *region, const void *addr, size_t len, struct error *e);
/* Begins to make all stored bytes durable, which the next sync, or the end, waits for. */
void region_begin_sync(struct region *region, struct error *e);
/* Waits for that, and reports its error. */
void region_wait_sync(struct region *region, struct error *e);
/* Closes the descriptor for other processes, after the last of them has mapped it. */
void region_close_object(struct region *region);
/* Drops changes that are not durable, unless the kernel maps the file or the store `completes`.
 * Returns 0, or an errno value: the store lacks changes; with EUCLEAN a filter has them. */
int region_close(struct region *region);
/* Closes window memory that was never used: its file stays, whatever the hints say. */
void region_abandon(struct region *region);

/* The window memory that contains addr; NULL: none. */
struct region *region_find(const void *addr);

#endif
