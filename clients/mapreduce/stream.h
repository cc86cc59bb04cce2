/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of pairs in windows that other ranks read: buckets, and sorted runs. A stream is bytes in blocks, each twice as
 * long as the one before and attached to a dynamic window when it is needed; pairs may lie across blocks. Where the blocks of
 * a finished stream are stands in the Displacement window. In storage, a stream can be saved as a list of places, and opened
 * again by another job.
 */
#ifndef MAPREDUCE_STREAM_H
#define MAPREDUCE_STREAM_H

#include "mapreduce/pair.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>

#define STREAM_BLOCKS 48

struct block {
	MPI_Aint at; /* in the window */
	MPI_Aint used;
};

/* How far a stream goes, and where its blocks are in the space's file. All blocks but the last are full. */
struct saved_stream {
	uint64_t blocks;
	uint64_t used;    /* of the last one */
	uint64_t place[STREAM_BLOCKS];
};

struct spare;

/* A dynamic window, and what its memory is. */
struct space {
	MPI_Win win, places;    /* places: the Displacement window. MPI_WIN_NULL: the space is local */
	struct block *mine;     /* in that, STREAM_BLOCKS for each stream */
	MPI_Info info;          /* for its memory; the space's own */
	const char *file;       /* NULL: in memory */
	uint64_t file_end;      /* behind all blocks */
	unsigned blocks;        /* that there are of all streams */
	struct spare *spares;   /* places in the file that are free */
	size_t first_block;     /* bytes */
	size_t transfer_limit;
	int lock;               /* MPI_LOCK_* of those who read */
	int rank;
};

struct stream {
	struct space *space;
	unsigned blocks;
	bool kept;           /* its places are not given to others */
	char *memory[STREAM_BLOCKS];
	struct block block[STREAM_BLOCKS];
	uint64_t place[STREAM_BLOCKS];
};

/* Collective, both. `streams` can be published at each rank. info is taken over. */
int space_open(struct space *s, MPI_Comm comm, unsigned streams, size_t first_block, size_t transfer_limit, int lock,
	       MPI_Info info);
/* One without windows: its streams lie in plain memory, and no other rank reads them. */
void space_open_local(struct space *s, int rank, size_t first_block, size_t transfer_limit);
void space_close(struct space *s);
/* New streams are in this file, or in memory if it is NULL. Streams in another file may still be there. */
void space_use_file(struct space *s, const char *file);
/* Makes this rank's streams durable; nothing where they are in memory. */
int space_sync(struct space *s);

void stream_open(struct stream *s, struct space *space);
void stream_close(struct stream *s);
int stream_append(struct stream *s, const struct pair *p);
int stream_append_bytes(struct stream *s, const void *data, size_t size);
uint64_t stream_size(const struct stream *s);
/* All of its bytes. */
void stream_copy(const struct stream *s, char *to);
/* The same to a file; -1, with errno: they do not go there. */
int stream_write(const struct stream *s, FILE *out);
/* Storage begins to write what it has not yet, and this does not wait: the next space_sync finds less to do. */
int stream_start_write(const struct stream *s);
void stream_save(const struct stream *s, struct saved_stream *to);
/* Goes no further than when it was saved. */
void stream_cut(struct stream *s, const struct saved_stream *saved);
/* As it was saved, by this job or an earlier one. */
int stream_restore(struct stream *s, struct space *space, const struct saved_stream *saved);
/* As this rank's stream of that number. */
void stream_publish(struct stream *s, unsigned number);

/* Reads pairs in order: of a stream of this rank's, or of one that another rank has published. */
struct reader {
	struct space *space;
	const struct stream *stream; /* NULL: of another rank */
	int rank;
	struct block block[STREAM_BLOCKS];
	unsigned current;
	MPI_Aint at;                 /* in that block: the next byte to fetch */
	char *buffer;
	size_t room, from, to;       /* of the buffer; what is in it */
};

int reader_open(struct reader *r, struct space *space, int rank, unsigned number);
void reader_open_own(struct reader *r, const struct stream *stream);
void reader_close(struct reader *r);
void reader_rewind(struct reader *r);
/* 1, 0 behind the last, or -1. The pair is good until the next call. */
int reader_next(struct reader *r, struct pair *p);

#endif
