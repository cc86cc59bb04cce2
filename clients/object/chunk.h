/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of a chunk as they are stored: a head of ours, which HDF5 skips as a user block, and an HDF5 file of one dataset. The head says
 * where the data is, and has checksums of its blocks: what is read is always checked, block by block.
 */
#ifndef OBJECT_CHUNK_H
#define OBJECT_CHUNK_H

#include "object/backend.h"
#include "object/hdf5.h"

#include <stdint.h>
#include <sys/uio.h>

/* Bytes under one checksum. */
#define CHUNK_BLOCK 32768

/* To write chunks of one shape; those at the ends have others, and change the frame. */
struct chunk_writer {
	struct frame frame;
	uint64_t count[UMOBJECT_RANK_MAX];
	bool ready;
};

/* The stored form of a chunk: head, data as the caller has it, end. Valid until the writer is used again. */
int chunk_prepare(struct chunk_writer *w, const struct umobject_shape *shape, const struct umobject_id *id, uint64_t number,
		  const void *data, struct iovec iov[3]);
void chunk_writer_free(struct chunk_writer *w);

/* One that is read. */
struct chunk {
	struct stored *stored;
	struct umobject_id id;
	uint64_t number, size, data; /* bytes, and where they begin in what is stored */
	uint64_t *sums;
	char *window;                /* blocks that have been read and checked */
	uint64_t window_at;
	size_t window_size;          /* 0: nothing yet */
};

/* -1 with a sentence: ENODATA, it is not there; EBADMSG, it is damaged or another one. size: bytes that it has to have. */
int chunk_open(struct backend *b, const struct umobject_id *id, uint64_t number, uint64_t size, struct chunk **chunk);
void chunk_close(struct chunk *c);
/* Reads bytes of the chunk, checked; `more`: so many behind them will be read next. */
int chunk_read(struct chunk *c, void *to, size_t size, uint64_t at, uint64_t more);

#endif
