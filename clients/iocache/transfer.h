/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes between a program's buffer and the cache of a file. */
#ifndef FILE_TRANSFER_H
#define FILE_TRANSFER_H

#include "iocache/open_file.h"

/* What the program passes. */
struct request {
	void *buf;
	int64_t count;
	MPI_Datatype type;
	bool writing;
};

/* Checks it, as far as MPI would; *bytes: of data. */
void transfer_check(const struct cached *c, const struct request *r, int64_t *bytes, struct error *e);
/* Moves the data of a request to or from what the view shows from etype `at` on. Returns the bytes that were moved: less at the end
 * of the file, or with an error. */
int64_t transfer(struct cached *c, const struct request *r, int64_t at, struct error *e);

#endif
