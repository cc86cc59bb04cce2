/* SPDX-License-Identifier: BSD-3-Clause */
#include "mapreduce/reader.h"

#include "mapreduce/error.h"
#include "mapreduce/wait.h"

#include <errno.h>
#include <stdlib.h>

/* Sizes of keys and values below this limit can be added without overflow. */
#define MAX_SIZE ((uint64_t)1 << 60)

int reader_open_remote(struct reader *r, struct pair_window *window, int rank, unsigned number)
{
	MPI_Request request;

	*r = (struct reader){ .window = window, .rank = rank };
	MPI_Rget(r->block, sizeof(r->block), MPI_BYTE, rank,
		 (MPI_Aint)(number * sizeof(r->block)), sizeof(r->block), MPI_BYTE, window->lists,
		 &request);
	wait_for_request(&request);
	if (check_mpi(MPI_Win_lock(window->lock_type, rank, 0, window->win),
		      "cannot lock the window of another rank") == 0)
		return 0;
	r->window = NULL;
	return -1;
}

void reader_open_local(struct reader *r, const struct stream *stream)
{
	*r = (struct reader){ .window = stream->window, .stream = stream,
			      .rank = stream->window->rank };
	memcpy(r->block, stream->block, stream->blocks * sizeof(struct block));
}

void reader_close(struct reader *r)
{
	if (r->window && !r->stream)
		MPI_Win_unlock(r->rank, r->window->win);
	free(r->buffer);
	*r = (struct reader){ 0 };
}

void reader_rewind(struct reader *r)
{
	r->current = 0;
	r->offset = 0;
	r->begin = r->end = 0;
}

/* ---- Fetching bytes ---- */

static int fetch_remote(struct reader *r, size_t size)
{
	MPI_Request request;
	int code = MPI_Rget(r->buffer + r->end, (int)size, MPI_BYTE, r->rank,
			    r->block[r->current].address + r->offset, (int)size, MPI_BYTE,
			    r->window->win, &request);

	if (code == MPI_SUCCESS)
		code = wait_for_request(&request);
	return check_mpi(code, "cannot read pairs of another rank");
}

/* Appends up to this number of bytes of the current block to the buffer. */
static int fetch(struct reader *r, size_t size)
{
	if (!r->stream && size > r->window->transfer_size)
		size = r->window->transfer_size;
	if (r->stream)
		memcpy(r->buffer + r->end, r->stream->memory[r->current] + r->offset, size);
	else if (fetch_remote(r, size) < 0)
		return -1;
	r->end += size;
	r->offset += (MPI_Aint)size;
	if (r->offset == r->block[r->current].used) {
		r->current++;
		r->offset = 0;
	}
	return 0;
}

/* Moves the unread bytes to the beginning of the buffer, and makes its capacity sufficient for this
 * number of bytes, and for one transfer. */
static int reserve_buffer(struct reader *r, size_t size)
{
	size_t capacity = size > r->window->transfer_size ? size : r->window->transfer_size;
	char *buffer;

	if (r->begin > 0)
		memmove(r->buffer, r->buffer + r->begin, r->end - r->begin);
	r->end -= r->begin;
	r->begin = 0;
	if (capacity <= r->capacity)
		return 0;
	buffer = realloc(r->buffer, capacity);
	if (!buffer)
		return set_error(ENOMEM, "cannot read a pair of %zu bytes: no memory", size);
	r->buffer = buffer;
	r->capacity = capacity;
	return 0;
}

/* Returns the number of unread bytes of the stream. */
static size_t count_unread(const struct reader *r)
{
	size_t size = r->end - r->begin;

	for (unsigned i = r->current; i < MAX_STREAM_BLOCKS && r->block[i].used > 0; i++)
		size += (size_t)r->block[i].used;
	return size - (size_t)r->offset;
}

/* Fetches bytes until the buffer has at least `size` unread ones. Returns 1, 0 if the stream ends
 * before, or -1. */
static int fill_buffer(struct reader *r, size_t size)
{
	if (r->end - r->begin >= size)
		return 1;
	/* The size in a damaged header may be larger than memory. */
	if (count_unread(r) < size)
		return 0;
	if (reserve_buffer(r, size) < 0)
		return -1;
	while (r->end < size) {
		size_t block_rest = (size_t)(r->block[r->current].used - r->offset);
		size_t buffer_rest = r->capacity - r->end;

		if (fetch(r, block_rest < buffer_rest ? block_rest : buffer_rest) < 0)
			return -1;
	}
	return 1;
}

int reader_next(struct reader *r, struct pair *p)
{
	int found = fill_buffer(r, sizeof(p->header));
	const struct ummr_header *h = &p->header;

	if (found <= 0)
		return found;
	memcpy(&p->header, r->buffer + r->begin, sizeof(p->header));
	found = 0;
	if (h->key_size < MAX_SIZE && h->value_size < MAX_SIZE)
		found = fill_buffer(r, sizeof(*h) + padded_size(h->key_size) +
				    padded_size(h->value_size));
	if (found < 0)
		return -1;
	if (!found)
		return set_error(EIO, "cannot read the pairs of rank %d: they are damaged, and one "
				 "is longer than the rest of them", r->rank);
	r->begin += parse_pair(r->buffer + r->begin, p);
	return 1;
}
