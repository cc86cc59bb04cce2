/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies to and from what another process's mapping has in memory. */
#ifndef IMPORT_H
#define IMPORT_H

#include <stdbool.h>
#include <ummap.h>

/* 0, or -errno with a sentence. */
int import_open(const struct umoffer *offer, struct umpeer **peer);
void import_close(struct umpeer *peer);
/* Copies as much of [offset, offset + len) from its front as is there; says how much. What buf is must never wait
 * for a mapping: the other process may wait for us meanwhile. */
size_t import_get(struct umpeer *peer, void *buf, size_t len, uint64_t offset);
size_t import_put(struct umpeer *peer, const void *buf, size_t len, uint64_t offset);

#endif
