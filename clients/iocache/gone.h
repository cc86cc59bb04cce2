/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Caches of deleted files. One process calls MPI_File_delete, which removes the parts of the cache
 * that it can reach. The owners of other nodes check whether files that they have cached still
 * exist: some of them at each MPI_File_open of a file with a cache, and all in MPI_Finalize. They
 * remove only parts whose data the file has, because a missing file may have been renamed.
 */
#ifndef IOCACHE_GONE_H
#define IOCACHE_GONE_H

#include "iocache/open_file.h"

#include <stdint.h>

/* Number of files that an owner checks at each open. */
#define GONE_CHECKS_PER_OPEN 2

/* A file that is going to be deleted. */
struct gone {
	char *name;              /* name that the program uses */
	char *path;              /* absolute path; NULL: no such file, or no cache of it */
	uint64_t ino;
};

void gone_find(struct gone *g, const char *name, MPI_Info info);
/* Removes the parts after the file has been deleted. */
void gone_remove(const struct gone *g, MPI_Info info);
void gone_free(struct gone *g);

/* Adds a file to the list, with the folder of its cache. */
void gone_note(const struct cached *c);
/* Checks at most `most` files of the list, and removes the caches of missing files. */
void gone_sweep(size_t most);

#endif
