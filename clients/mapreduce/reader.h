/* SPDX-License-Identifier: BSD-3-Clause */
/* Readers return the pairs of a stream in order: of a stream of this rank, or of one that another
 * rank has published. */
#ifndef MAPREDUCE_READER_H
#define MAPREDUCE_READER_H

#include "mapreduce/stream.h"

struct reader {
	struct pair_window *window;            /* window of the stream; NULL: no stream is open */
	const struct stream *stream;           /* stream of this rank; NULL: of another rank */
	int rank;                              /* rank of the stream */
	struct block block[MAX_STREAM_BLOCKS]; /* blocks of the stream */
	unsigned current;                      /* number of the block with the next byte to fetch */
	MPI_Aint offset;                       /* offset of this byte in the block */
	char *buffer;                          /* fetched bytes */
	size_t capacity;                       /* bytes of memory of the buffer */
	size_t begin, end;                     /* range of the buffer with unread bytes */
};

/* Opens a stream that another rank has published with this number. */
int reader_open_remote(struct reader *r, struct pair_window *window, int rank, unsigned number);
/* Opens a stream of this rank. */
void reader_open_local(struct reader *r, const struct stream *stream);
void reader_close(struct reader *r);

/* Makes the first pair the next one. */
void reader_rewind(struct reader *r);

/* Reads the next pair. Returns 1, 0 after the last pair, or -1. The pair is valid until the next
 * call. */
int reader_next(struct reader *r, struct pair *p);

#endif
