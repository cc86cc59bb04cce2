/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of pairs in a window: buckets and sorted runs. A stream is a sequence of bytes in blocks,
 * and a pair may cross a boundary of blocks. With storage, the extent of a stream can be saved, and
 * another job can open the stream again.
 *
 * Only its own rank writes a stream. Other ranks read it after the rank has published it and its
 * status says so. From then on it does not change until all ranks have finished, so a reader needs
 * no synchronization but a lock of MPI for its epoch.
 */
#ifndef MAPREDUCE_STREAM_H
#define MAPREDUCE_STREAM_H

#include "mapreduce/pair.h"
#include "mapreduce/window.h"

#include <stdbool.h>
#include <stdio.h>

/* The extent of a stream in the file of its window. All blocks except the last are full. */
struct saved_stream {
	uint64_t blocks;                     /* number of blocks */
	uint64_t used;                       /* bytes in the last block */
	uint64_t offsets[MAX_STREAM_BLOCKS]; /* offset of each block in the file */
};

struct stream {
	struct pair_window *window;          /* window of the blocks */
	unsigned blocks;                     /* number of blocks */
	bool keeps_ranges;                   /* whether its ranges of the file stay reserved */
	char *memory[MAX_STREAM_BLOCKS];     /* address of each block */
	struct block block[MAX_STREAM_BLOCKS];
	uint64_t offsets[MAX_STREAM_BLOCKS]; /* offset of each block in the file */
};

/* Makes an empty stream. */
void stream_open(struct stream *s, struct pair_window *window);
void stream_close(struct stream *s);

int stream_append(struct stream *s, const struct pair *p);

/* Writes the bytes to a file. Returns -1 with errno, without a message. */
int stream_write(const struct stream *s, FILE *out);

/* Lists the blocks as those of this rank's stream with this number, for other ranks. */
void stream_publish(struct stream *s, unsigned number);

/* Starts write-back of the stream without waiting for it, so that window_sync has less to do. */
int stream_start_write(const struct stream *s);

void stream_save(const struct stream *s, struct saved_stream *to);

/* Drops all bytes that were appended after stream_save. */
void stream_truncate(struct stream *s, const struct saved_stream *saved);

/* Opens a stream that this job or an earlier one has saved. */
int stream_restore(struct stream *s, struct pair_window *window, const struct saved_stream *saved);

#endif
