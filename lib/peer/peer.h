/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies to and from what another process's mapping has in memory. */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <ummap.h>

/* 0, or -errno with a sentence. */
int peer_open(const struct umoffer *offer, struct umpeer **peer);
void peer_close(struct umpeer *peer);
/* Copies as much of [offset, offset + len) from its front as is there; says how much. What buf is must never wait
 * for a mapping: the other process may wait for us meanwhile. */
size_t peer_get(struct umpeer *peer, void *buf, size_t len, uint64_t offset);
size_t peer_put(struct umpeer *peer, const void *buf, size_t len, uint64_t offset);

#endif
