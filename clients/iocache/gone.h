/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Caches of files that are deleted. MPI_File_delete is a call of one process, which removes the parts of the cache that it can
 * reach. The owners of other nodes find out by looking whether files that they have cached are still there: a few of them at each
 * MPI_File_open of a file with a cache, and all in MPI_Finalize. They remove only parts that the file lacks nothing of, because
 * a file can also have been renamed.
 */
#ifndef FILE_GONE_H
#define FILE_GONE_H

#include "iocache/open_file.h"

#include <stdint.h>

/* Remembered files that an owner looks for at each open. */
#define GONE_CHECKS_PER_OPEN 2

/* A file that is going to be deleted. */
struct gone {
	char *name;              /* as the program has it */
	char *path;              /* from the root; NULL: there is no such file, or no cache of it */
	uint64_t ino;
};

void gone_find(struct gone *g, const char *name, MPI_Info info);
/* After it has been deleted. */
void gone_remove(const struct gone *g, MPI_Info info);
void gone_free(struct gone *g);

/* Remembers where a file has a cache. */
void gone_note(const struct cached *c);
/* Looks whether at most so many remembered files are there, and removes the caches of the others. */
void gone_sweep(size_t most);

#endif
