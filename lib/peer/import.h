/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies to and from segments that another process has in memory. */
#ifndef IMPORT_H
#define IMPORT_H

#include <stdbool.h>
#include <ummap.h>

/* 0, or -errno with a sentence. */
int import_open(const struct umexport *offer, struct umimport **peer);
void import_close(struct umimport *peer);
/* Copies [offset, offset + len) from its beginning, as far as segments are in memory; returns how much. Accesses to buf
 * must never wait for a mapping, because the other process may wait for this one meanwhile. */
size_t import_get(struct umimport *peer, void *buf, size_t len, uint64_t offset);
size_t import_put(struct umimport *peer, const void *buf, size_t len, uint64_t offset);
/* The bytes from offset on in place, until they are released; -1: they cannot be accessed just now. */
int import_hold(struct umimport *peer, uint64_t offset, bool store, struct umhold *hold);
void import_release(struct umhold *hold);

#endif
