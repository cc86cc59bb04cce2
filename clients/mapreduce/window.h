/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A window for streams of pairs, which other ranks read. The memory of a stream is a list of
 * blocks. A block is attached to a dynamic window when it is needed. The blocks of a finished
 * stream are listed in a second window, the Displacement window.
 *
 * With storage, the blocks are parts of a file. Parts that are no longer needed are used again.
 */
#ifndef MAPREDUCE_WINDOW_H
#define MAPREDUCE_WINDOW_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum number of blocks of a stream. Each block is twice as large as the one before. */
#define MAX_STREAM_BLOCKS 48

struct block {
	MPI_Aint address; /* displacement in the dynamic window */
	MPI_Aint used;    /* bytes of the stream in this block */
};

struct free_range;

struct pair_window {
	MPI_Win win;                /* the dynamic window, or MPI_WIN_NULL */
	MPI_Win lists;              /* the Displacement window, or MPI_WIN_NULL */
	struct block *mine;         /* this rank's lists: MAX_STREAM_BLOCKS for each stream */
	MPI_Info info;              /* hints for its memory, or MPI_INFO_NULL */
	const char *file;           /* name of the file of new blocks; NULL: memory */
	uint64_t file_end;          /* offset in the file behind all blocks */
	unsigned blocks;            /* number of blocks of all streams */
	struct free_range *free;    /* ranges of the file for new blocks */
	size_t first_block;         /* bytes of the first block of a stream */
	size_t transfer_size;       /* most bytes that one operation fetches */
	int lock_type;              /* MPI_LOCK_*, for ranks that read */
	int rank;                   /* number of this rank */
};

/* Collective. streams: number of streams that each rank can publish. The caller has set info,
 * first_block, transfer_size and lock_type, and the window owns info from then on. */
int window_open(struct pair_window *w, MPI_Comm comm, unsigned streams);
void window_close(struct pair_window *w);

/* Selects the file of new blocks, or memory if it is NULL. Existing blocks stay where they are. */
void window_use_file(struct pair_window *w, const char *file);

/* Makes this rank's streams in the file durable. */
int window_sync(struct pair_window *w);

/* Returns the size of the block with this number in its stream. */
uint64_t window_block_size(const struct pair_window *w, unsigned number);

/* Returns the offset of a range of the file for a block. */
uint64_t window_take_range(struct pair_window *w, unsigned number);
/* Marks a range of the file as used. */
void window_reserve_range(struct pair_window *w, uint64_t offset, unsigned number);
/* Makes a range of the file available for another block. */
void window_free_range(struct pair_window *w, uint64_t offset, unsigned number);

/* Returns memory for a block, attached to the window; NULL after an error. The offset counts only
 * if the window has a file. */
char *window_attach_block(struct pair_window *w, unsigned number, uint64_t offset);
void window_detach_block(struct pair_window *w, char *memory);

#endif
