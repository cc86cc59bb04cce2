/* SPDX-License-Identifier: BSD-3-Clause */
/* Access to segments that another process has in memory. */
#ifndef IMPORT_H
#define IMPORT_H

#include <stdbool.h>
#include <ummap.h>

/* 0, or -errno with a message. */
int import_open(const struct umexport *exported, struct umimport **imported);
void import_close(struct umimport *p);
/*
 * Copy bytes from or to [offset, offset + len) of the mapping until a segment is not accessible,
 * and return the number of bytes. An access to buf must never wait for a mapping, because the owner
 * may wait for the end of this access meanwhile.
 */
size_t import_get(struct umimport *p, void *buf, size_t len, uint64_t offset);
size_t import_put(struct umimport *p, const void *buf, size_t len, uint64_t offset);
/* Gives access to the bytes from offset on until import_release. -1: the segment is not accessible
 * at the moment. */
int import_hold(struct umimport *p, uint64_t offset, bool store, struct umhold *hold);
void import_release(struct umhold *hold);

#endif
