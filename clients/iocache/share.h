/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of an open cache: its windows, headers and sizes. */
#ifndef IOCACHE_SHARE_H
#define IOCACHE_SHARE_H

#include "iocache/open_file.h"

enum share_end { SHARE_FLUSH, SHARE_KEEP, SHARE_DROP };

/* Collective: opens the cache, with the data that an earlier job has left in it. */
void share_open(struct cached *c, struct error *e);
/* Collective. */
void share_close(struct cached *c, enum share_end how, struct error *e);
/* Makes this rank's part durable, if it has one. */
void share_sync(struct cached *c, struct error *e);
/* Notes in the header of this rank's part that this job changes the file. */
void share_mark(struct cached *c, struct error *e);
/* The size of the file, of which each owner knows a lower bound. */
int64_t share_size(struct cached *c, struct error *e);
/* Whether the file, of `now` bytes, can be cut to `size` while its parts stay open: few bytes are
 * cut off, and all of them are in parts. */
bool share_can_cut(const struct cached *c, int64_t now, int64_t size);
/*
 * Collective, in this order, while no rank makes another call. After share_begin_cut, no part
 * writes beyond the new size. share_undo_cut: the file could not be cut, and has `now` bytes.
 * share_end_cut: the file has been cut; the bytes of the parts beyond its size become zeros,
 * durably.
 */
void share_begin_cut(struct cached *c, int64_t size, struct error *e);
void share_undo_cut(struct cached *c, int64_t now);
void share_end_cut(struct cached *c, int64_t now, int64_t size, struct error *e);
/* Notes that the file ends at `end` or later, because of bytes in a node's part. Returns an MPI
 * code. */
int share_reach(struct cached *c, uint32_t node, int64_t end);
/* An atomic operation on a word; returns the old value. */
int64_t share_word(struct cached *c, int node, enum word word, int64_t value, MPI_Op op,
		   struct error *e);
/* Makes earlier writes to a node's part durable. */
void share_commit(struct cached *c, uint32_t node, struct error *e);
/* Collective: makes c->turn. */
void share_open_turn(struct cached *c, struct error *e);
void share_close_turn(struct cached *c);
/* Sets the error of an MPI call. */
void share_explain(struct error *e, int code);

#endif
