/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stored form of a chunk: a header, which HDF5 skips as a user block, and an HDF5 file with one
 * dataset. The header tells where the data is, and has checksums of its blocks, so that every block
 * is checked when it is read.
 */
#ifndef OBJECT_CHUNK_H
#define OBJECT_CHUNK_H

#include "object/backend.h"
#include "object/hdf5.h"

/* Bytes under one checksum. */
#define CHUNK_BLOCK 32768
/* Pieces of memory that make up a stored chunk. */
#define CHUNK_PIECES 4

/* Writes chunks of one array. All but those at the ends have one shape, and share a frame. */
struct chunk_writer {
	struct frame *frame;       /* NULL: none yet */
	struct chunk_header *header;
};

/* Makes the stored form of a chunk around the caller's data. It is valid until the next call. */
int chunk_prepare(struct chunk_writer *w, const struct umobject_shape *shape,
		  const struct umobject_id *id, uint64_t number, const void *data,
		  struct iovec iov[CHUNK_PIECES]);
void chunk_writer_free(struct chunk_writer *w);

/* A chunk that is open for reading. */
struct chunk {
	struct stored *stored;
	struct umobject_id id;
	uint64_t number, size;
	uint64_t data;      /* offset of the data in the stored form */
	uint64_t *sums;     /* checksums of the blocks */
	char *window;       /* blocks that have been read and checked; NULL: none yet */
	uint64_t window_at; /* offset of the window in the chunk */
	size_t window_size; /* bytes in the window; 0: none */
};

/* Opens a chunk of `size` bytes. Returns NULL on an error: ENODATA (it is missing), EBADMSG (it is
 * damaged, or another chunk). */
struct chunk *chunk_open(struct backend *b, const struct umobject_id *id, uint64_t number,
			 uint64_t size);
void chunk_close(struct chunk *c);
/* Reads and checks bytes of the chunk. more: number of bytes behind them that are read next. */
int chunk_read(struct chunk *c, void *to, size_t size, uint64_t at, uint64_t more);

#endif
