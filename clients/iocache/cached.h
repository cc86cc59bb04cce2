/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of all ranks on a file that has a cache. */
#ifndef IOCACHE_CACHED_H
#define IOCACHE_CACHED_H

#include "iocache/open_file.h"

/* Collective, after MPI has opened the file. NULL with an error, at all ranks. */
struct cached *cached_open(MPI_Comm comm, const char *name, int amode, MPI_File file,
			   const struct config *config, struct error *e);
/* Collective. The cache is flushed, kept or dropped. The file is closed unless its data cannot be
 * made durable. */
void cached_close(struct cached *c, struct error *e);
/* Collective: makes the writes of all ranks durable. */
void cached_sync(struct cached *c, struct error *e);
/* Makes the writes durable that this rank has made past the cache. */
void cached_sync_far(struct cached *c, struct error *e);
/* Collective: the file gets this size; or, with `allocate`, at least this size and storage for
 * it. */
void cached_resize(struct cached *c, int64_t size, bool allocate, struct error *e);
/* Collective: writes the cache back and ends it. The file is left to MPI. */
void cached_leave(struct cached *c, struct error *e);

/* ---- transfer.c ---- */

/* Arguments of a read or write. */
struct request {
	void *buf;
	int64_t count;
	MPI_Datatype type;
	bool writing;
};

/* Checks a request as MPI does. *bytes: result, the bytes of data. */
void transfer_check(const struct cached *c, const struct request *r, int64_t *bytes,
		    struct error *e);
/* Moves the data of a request, from etype `at` of the view on. Returns the bytes that were moved,
 * which are fewer at the end of the file or after an error. */
int64_t transfer(struct cached *c, const struct request *r, int64_t at, struct error *e);

#endif
