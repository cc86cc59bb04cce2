/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers between a program's buffer and the cache of a file. */
#ifndef IOCACHE_TRANSFER_H
#define IOCACHE_TRANSFER_H

#include "iocache/open_file.h"

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
