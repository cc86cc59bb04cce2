/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stream is written by its rank alone, and read only after it was published and the rank's status says so; from then on
 * it does not change until all ranks are through. So readers need no more than a lock of MPI's for their epoch.
 */
#include "mapreduce/stream.h"

#include "mapreduce/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Blocks of files begin at multiples of this. */
#define FILE_STEP ((uint64_t)1 << 16)

/* ---- Windows ---- */

static void set_hints(const struct space *s)
{
	char offset[24];

	snprintf(offset, sizeof(offset), "%llu", (unsigned long long)s->file_end);
	MPI_Info_set(s->info, "alloc_type", "storage");
	MPI_Info_set(s->info, "storage_alloc_filename", s->file);
	MPI_Info_set(s->info, "storage_alloc_offset", offset);
	MPI_Info_set(s->info, "storage_alloc_discard", "true");
}

int space_open(struct space *s, MPI_Comm comm, unsigned streams, size_t first_block, size_t transfer_limit, int lock,
	       MPI_Info info, char *file)
{
	MPI_Aint size = (MPI_Aint)(streams * STREAM_BLOCKS * sizeof(struct block));

	*s = (struct space){ .win = MPI_WIN_NULL, .places = MPI_WIN_NULL, .info = info, .file = file, .first_block = first_block,
			     .transfer_limit = transfer_limit, .lock = lock };
	MPI_Comm_rank(comm, &s->rank);
	if (check_mpi(MPI_Win_create_dynamic(info, comm, &s->win), "a dynamic window cannot be made") < 0 ||
	    check_mpi(MPI_Win_allocate(size, 1, MPI_INFO_NULL, comm, &s->mine, &s->places),
		      "a Displacement window cannot be made") < 0)
		return -1;
	MPI_Win_set_errhandler(s->win, MPI_ERRORS_RETURN);
	MPI_Win_lock_all(0, s->places);
	return 0;
}

void space_open_local(struct space *s, int rank, size_t first_block, size_t transfer_limit)
{
	*s = (struct space){ .win = MPI_WIN_NULL, .places = MPI_WIN_NULL, .info = MPI_INFO_NULL, .first_block = first_block,
			     .transfer_limit = transfer_limit, .rank = rank };
}

void space_close(struct space *s)
{
	if (s->places != MPI_WIN_NULL) {
		MPI_Win_unlock_all(s->places);
		MPI_Win_free(&s->places);
	}
	if (s->win != MPI_WIN_NULL)
		MPI_Win_free(&s->win);
	if (s->info != MPI_INFO_NULL)
		MPI_Info_free(&s->info);
	if (s->file)
		unlink(s->file);
	free(s->file);
	s->file = NULL;
}

int space_sync(struct space *s)
{
	return s->file ? check_mpi(MPI_Win_sync(s->win), s->file) : 0;
}

/* ---- Writing ---- */

void stream_open(struct stream *s, struct space *space)
{
	*s = (struct stream){ .space = space };
}

void stream_close(struct stream *s)
{
	for (unsigned i = 0; i < s->blocks; i++) {
		if (s->space->win == MPI_WIN_NULL) {
			free(s->memory[i]);
			continue;
		}
		MPI_Win_detach(s->space->win, s->memory[i]);
		MPI_Free_mem(s->memory[i]);
	}
	s->blocks = 0;
}

static size_t size_of(const struct stream *s, unsigned block)
{
	return s->space->first_block << block;
}

/* MPI_Alloc_mem reports to MPI_COMM_WORLD's error handler, which would end the program without our sentence. */
static int allocate(MPI_Aint size, MPI_Info info, char **memory)
{
	MPI_Errhandler handler;
	int code;

	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	code = MPI_Alloc_mem(size, info, memory);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
	if (handler != MPI_ERRORS_ARE_FATAL && handler != MPI_ERRORS_RETURN)
		MPI_Errhandler_free(&handler);
	return check_mpi(code, "a window for pairs cannot grow");
}

static char *local_memory(size_t size)
{
	char *memory = malloc(size);

	if (!memory)
		fail(ENOMEM, "no memory for %zu bytes of pairs: use more ranks, or UMMR_METHOD_1S with storage", size);
	return memory;
}

/* In the space's window, and its file. */
static char *window_memory(struct space *space, size_t size)
{
	char *memory;

	if (space->file)
		set_hints(space);
	if (allocate((MPI_Aint)size, space->info, &memory) < 0)
		return NULL;
	if (space->file && access(space->file, F_OK) != 0) {
		MPI_Free_mem(memory);
		fail(ENOSYS, "%s: MPI has made no file for a window: the program has to be linked with libummap-mpi-* "
			     "before MPI, or to preload it", space->file);
		return NULL;
	}
	if (check_mpi(MPI_Win_attach(space->win, memory, (MPI_Aint)size), "a window for pairs cannot grow") < 0) {
		MPI_Free_mem(memory);
		return NULL;
	}
	space->file_end += (size + FILE_STEP - 1) / FILE_STEP * FILE_STEP;
	return memory;
}

static int add_block(struct stream *s)
{
	size_t size = size_of(s, s->blocks);
	char *memory;

	if (s->blocks == STREAM_BLOCKS || size > PTRDIFF_MAX / 2)
		return fail(EFBIG, "a window for pairs cannot grow any more: use a larger bucket_size, or more ranks");
	memory = s->space->win == MPI_WIN_NULL ? local_memory(size) : window_memory(s->space, size);
	if (!memory)
		return -1;
	MPI_Get_address(memory, &s->block[s->blocks].at);
	s->block[s->blocks].used = 0;
	s->memory[s->blocks++] = memory;
	return 0;
}

int stream_append_bytes(struct stream *s, const void *data, size_t size)
{
	while (size > 0) {
		struct block *b = s->blocks > 0 ? &s->block[s->blocks - 1] : NULL;
		size_t part = b ? size_of(s, s->blocks - 1) - (size_t)b->used : 0;

		if (part == 0) {
			if (add_block(s) < 0)
				return -1;
			continue;
		}
		if (part > size)
			part = size;
		memcpy(s->memory[s->blocks - 1] + b->used, data, part);
		b->used += (MPI_Aint)part;
		data = (const char *)data + part;
		size -= part;
	}
	return 0;
}

static int append_padded(struct stream *s, const void *data, size_t size)
{
	static const char zeros[8];

	if (stream_append_bytes(s, data, size) < 0)
		return -1;
	return stream_append_bytes(s, zeros, padded(size) - size);
}

int stream_append(struct stream *s, const struct pair *p)
{
	if (stream_append_bytes(s, &p->head, sizeof(p->head)) < 0 || append_padded(s, p->key, p->head.key_size) < 0)
		return -1;
	return append_padded(s, p->value, p->head.value_size);
}

uint64_t stream_size(const struct stream *s)
{
	uint64_t size = 0;

	for (unsigned i = 0; i < s->blocks; i++)
		size += (uint64_t)s->block[i].used;
	return size;
}

void stream_copy(const struct stream *s, char *to)
{
	for (unsigned i = 0; i < s->blocks; i++) {
		memcpy(to, s->memory[i], (size_t)s->block[i].used);
		to += s->block[i].used;
	}
}

void stream_publish(struct stream *s, unsigned number)
{
	memcpy(&s->space->mine[number * STREAM_BLOCKS], s->block, s->blocks * sizeof(struct block));
	if (s->blocks < STREAM_BLOCKS)
		s->space->mine[number * STREAM_BLOCKS + s->blocks].used = 0;
	MPI_Win_sync(s->space->places);
}

/* ---- Reading ---- */

int reader_open(struct reader *r, struct space *space, int rank, unsigned number)
{
	*r = (struct reader){ .space = space, .rank = rank };
	MPI_Get(r->block, sizeof(r->block), MPI_BYTE, rank, (MPI_Aint)(number * sizeof(r->block)), sizeof(r->block), MPI_BYTE,
		space->places);
	MPI_Win_flush(rank, space->places);
	if (check_mpi(MPI_Win_lock(space->lock, rank, 0, space->win), "another rank's window cannot be locked") == 0)
		return 0;
	r->space = NULL;
	return -1;
}

void reader_open_own(struct reader *r, const struct stream *stream)
{
	*r = (struct reader){ .space = stream->space, .stream = stream, .rank = stream->space->rank };
	memcpy(r->block, stream->block, stream->blocks * sizeof(struct block));
}

void reader_close(struct reader *r)
{
	if (r->space && !r->stream)
		MPI_Win_unlock(r->rank, r->space->win);
	free(r->buffer);
	*r = (struct reader){ 0 };
}

void reader_rewind(struct reader *r)
{
	r->current = 0;
	r->at = 0;
	r->from = r->to = 0;
}

static int fetch(struct reader *r, MPI_Aint size)
{
	char *to = r->buffer + r->to;

	if (r->stream) {
		memcpy(to, r->stream->memory[r->current] + r->at, (size_t)size);
		return 0;
	}
	if (check_mpi(MPI_Get(to, (int)size, MPI_BYTE, r->rank, r->block[r->current].at + r->at, (int)size, MPI_BYTE,
			      r->space->win), "pairs of another rank cannot be read") < 0)
		return -1;
	return check_mpi(MPI_Win_flush(r->rank, r->space->win), "pairs of another rank cannot be read");
}

/* Room for so many bytes from r->from on, and for a transfer at least. */
static int make_room(struct reader *r, size_t need)
{
	size_t room = need > r->space->transfer_limit ? need : r->space->transfer_limit;
	char *buffer;

	if (r->from > 0)
		memmove(r->buffer, r->buffer + r->from, r->to - r->from);
	r->to -= r->from;
	r->from = 0;
	if (room <= r->room)
		return 0;
	buffer = realloc(r->buffer, room);
	if (!buffer)
		return fail(ENOMEM, "no memory for a pair of %zu bytes", need);
	r->buffer = buffer;
	r->room = room;
	return 0;
}

/* So many bytes are in the buffer: 1; 0: the stream ends before. */
static int have(struct reader *r, size_t need)
{
	if (r->to - r->from >= need)
		return 1;
	if (make_room(r, need) < 0)
		return -1;
	while (r->to < need) {
		MPI_Aint size;

		if (r->current == STREAM_BLOCKS || r->block[r->current].used == 0)
			return 0;
		size = r->block[r->current].used - r->at;
		if (size > (MPI_Aint)r->space->transfer_limit)
			size = (MPI_Aint)r->space->transfer_limit;
		if (size > (MPI_Aint)(r->room - r->to))
			size = (MPI_Aint)(r->room - r->to);
		if (fetch(r, size) < 0)
			return -1;
		r->to += (size_t)size;
		r->at += size;
		if (r->at == r->block[r->current].used) {
			r->current++;
			r->at = 0;
		}
	}
	return 1;
}

int reader_next(struct reader *r, struct pair *p)
{
	size_t size;
	int there = have(r, sizeof(p->head));

	if (there <= 0)
		return there;
	memcpy(&p->head, r->buffer + r->from, sizeof(p->head));
	size = sizeof(p->head) + padded(p->head.key_size) + padded(p->head.value_size);
	if (have(r, size) < 0)
		return -1;
	p->key = r->buffer + r->from + sizeof(p->head);
	p->value = (const char *)p->key + padded(p->head.key_size);
	r->from += size;
	return 1;
}
