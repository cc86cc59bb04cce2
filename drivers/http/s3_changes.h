/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writing to an object of S3. Blocks that were written are in a temporary file without a name. A
 * flush replaces the object by a new version of the whole object, in one step for all readers.
 */
#ifndef DRIVERS_HTTP_S3_CHANGES_H
#define DRIVERS_HTTP_S3_CHANGES_H

#include "http.h"

struct changes;

/* remote: an open handle. Returns 0, or a negative errno value with a message in geom->why. */
int changes_open(struct remote *remote, struct changes **changes, struct ummap_geom *geom);
/* is_foreign: whether this is a forked child, which must not end connections of its parent. */
void changes_close(struct changes *c, bool is_foreign);
/* Whether the bytes are inside the object and were not written. */
bool changes_are_remote(struct changes *c, uint64_t off, size_t len);
/* Functions of struct ummap_driver. They take locks, so they must not run in a signal handler. */
int changes_read(struct changes *c, void *buf, size_t len, uint64_t off);
int changes_write(struct changes *c, const void *buf, size_t len, uint64_t off);
int changes_resize(struct changes *c, uint64_t size);
int changes_flush(struct changes *c);
/* The length of the mapping's store. In a signal handler, too. */
uint64_t changes_size(const struct changes *c);

#endif
