/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and gets of all ranks. One rank begins a version, all put chunks, one commits. A chunk is put by the rank whose block has most
 * of it, to which the others send their parts. Every rank goes through the chunks that its block touches in the order of their
 * numbers: of those that are under way, everybody who takes part in the lowest one is at it, so nobody waits for ever. A rank that
 * has failed goes on with messages, and no more, so that the others come to the end, where all learn of it.
 */
#include "object/error.h"
#include "object/shape.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ummap-object-mpi.h>

/* Bytes of parts on their way from one rank, more or less, and of one message. */
#define UNDER_WAY ((uint64_t)64 << 20)
#define MESSAGE ((uint64_t)1 << 20)
#define SENTENCE 1024

/* What a rank has of the array. */
struct blocks {
	MPI_Comm comm;             /* ours */
	const struct umobject_shape *shape;
	struct box *all;           /* of each rank */
	int rank, ranks;
	const char *data;
};

/* A part that is sent. */
struct sent {
	struct sent *next;
	char *data;
	uint64_t size;
	int n;                     /* messages */
	MPI_Request requests[];
};

/* From the oldest on. */
struct sends {
	struct sent *first, **last;
	uint64_t bytes;
};

/* A failure, kept while what has failed is cleaned up. */
struct why {
	int error;
	char text[SENTENCE];
};

/* ---- Errors ---- */

static struct why keep(void)
{
	struct why w = { .error = errno };

	snprintf(w.text, sizeof(w.text), "%s", umobject_errormsg());
	return w;
}

static int fail_again(const struct why *w)
{
	return object_fail(w->error, "%s", w->text);
}

/* Collective: if some rank has failed, all have, with the sentence of the lowest one. */
static int agree(MPI_Comm comm, int result)
{
	struct why w = keep();
	int rank, ranks, failed, first;

	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &ranks);
	failed = result < 0 ? rank : ranks;
	MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, comm);
	if (first == ranks)
		return 0;
	MPI_Bcast(&w, sizeof(w), MPI_BYTE, first, comm);
	/* What was agreed on before says its rank. */
	if (strncmp(w.text, "rank ", 5) == 0)
		return fail_again(&w);
	return object_fail(w.error, "rank %d: %.*s", first, SENTENCE - 32, w.text);
}

static int no_memory(void)
{
	return object_fail(ENOMEM, "cannot put the array: no memory for its parts");
}

/* Collective: what all ranks have to give alike. */
static int check_same(MPI_Comm comm, const char *name, const struct umobject_shape *shape)
{
	char first[UMOBJECT_NAME_MAX + 1] = "";
	struct umobject_shape of_first = *shape;
	bool same;

	snprintf(first, sizeof(first), "%s", name);
	MPI_Bcast(first, sizeof(first), MPI_CHAR, 0, comm);
	MPI_Bcast(&of_first, sizeof(of_first), MPI_BYTE, 0, comm);
	same = strncmp(name, first, sizeof(first) - 1) == 0 && of_first.type == shape->type && of_first.rank == shape->rank &&
	       memcmp(of_first.dims, shape->dims, shape->rank * sizeof(*shape->dims)) == 0 &&
	       memcmp(of_first.chunk, shape->chunk, shape->rank * sizeof(*shape->chunk)) == 0;
	return agree(comm, same ? 0 : object_fail(EINVAL, "cannot put the array: the name or the "
			"shape differs from that of rank 0"));
}

/* ---- Blocks ---- */

/* Chunks of another shape would be read as if they were of this one. */
static int check_shape(const umobject_put *put, const struct umobject_shape *given, struct umobject_shape *shape)
{
	struct umobject_shape begun;

	if (shape_complete(given, shape) < 0)
		return -1;
	umobject_put_shape(put, &begun);
	return memcmp(&begun, shape, sizeof(begun)) == 0 ? 0 :
		object_fail(EINVAL, "cannot put the array: its shape differs from the shape with "
			    "which the put began");
}

static bool is_empty(const struct umobject_shape *shape, const struct box *b)
{
	for (unsigned d = 0; d < shape->rank; d++) {
		if (b->count[d] == 0)
			return true;
	}
	return false;
}

/* No count: nothing. An array of no dimensions is rank 0's. */
static struct box box_of(const struct umobject_shape *shape, const uint64_t *start, const uint64_t *count)
{
	struct box b = { { 0 }, { 0 } };

	if (!count)
		return b;
	memcpy(b.count, count, shape->rank * sizeof(*count));
	if (start)
		memcpy(b.start, start, shape->rank * sizeof(*start));
	return b;
}

/* All know all blocks, so all find the same; -1 with a sentence: they are not the array. */
static int check_blocks(const struct blocks *b)
{
	uint64_t bytes = 0;
	struct box common;

	for (int i = 0; i < b->ranks; i++) {
		if (is_empty(b->shape, &b->all[i]))
			continue;
		if (!box_within(b->shape, &b->all[i]))
			return object_fail(EINVAL, "cannot put the array: the block of rank %d is "
					   "not within it", i);
		bytes += box_bytes(b->shape, &b->all[i]);
		for (int j = 0; j < i; j++) {
			if (!is_empty(b->shape, &b->all[j]) && box_meet(b->shape->rank, &b->all[i], &b->all[j], &common))
				return object_fail(EINVAL, "cannot put the array: the blocks of "
						"ranks %d and %d have elements in common", j, i);
		}
	}
	if (bytes != shape_bytes(b->shape))
		return object_fail(EINVAL, "cannot put the array: the blocks of all ranks have "
				   "%llu bytes, and the array has %llu", (unsigned long long)bytes,
				   (unsigned long long)shape_bytes(b->shape));
	return 0;
}

/* The bytes of a chunk that a rank has; 0: none. */
static uint64_t part_of(const struct blocks *b, int rank, const struct box *chunk, struct box *part)
{
	if (is_empty(b->shape, &b->all[rank]) || !box_meet(b->shape->rank, &b->all[rank], chunk, part))
		return 0;
	return box_bytes(b->shape, part);
}

/* Who puts a chunk. */
static int putter_of(const struct blocks *b, const struct box *chunk)
{
	uint64_t most = 0;
	struct box part;
	int putter = 0;

	for (int i = 0; i < b->ranks; i++) {
		uint64_t bytes = part_of(b, i, chunk, &part);

		if (bytes > most) {
			most = bytes;
			putter = i;
		}
	}
	return putter;
}

/* The part of both, from memory that has the box `from` to memory that has the box `to`. */
static void copy_part(const struct umobject_shape *shape, const struct box *part, const char *data, const struct box *from, char *there,
		      const struct box *to)
{
	struct runs r;

	runs_begin(&r, shape, part, from, to);
	do
		memcpy(there + r.b, data + r.a, r.run);
	while (runs_next(&r));
}

/* ---- Messages ---- */

static int messages_of(uint64_t bytes)
{
	return (int)((bytes + MESSAGE - 1) / MESSAGE);
}

static int message_size(uint64_t bytes, int i)
{
	uint64_t left = bytes - (uint64_t)i * MESSAGE;

	return (int)(left < MESSAGE ? left : MESSAGE);
}

static void end_oldest(struct sends *s)
{
	struct sent *oldest = s->first;

	for (int i = 0; i < oldest->n; i++)
		MPI_Wait(&oldest->requests[i], MPI_STATUS_IGNORE);
	s->first = oldest->next;
	if (!s->first)
		s->last = &s->first;
	s->bytes -= oldest->size;
	free(oldest->data);
	free(oldest);
}

/* Without memory, messages without bytes go to those who wait: the put has failed. */
static int send_part(const struct blocks *b, struct sends *s, const struct box *part, uint64_t bytes, int to)
{
	int n = messages_of(bytes);
	struct sent *one = malloc(sizeof(*one) + (size_t)n * sizeof(*one->requests));
	char *data = one ? malloc(bytes) : NULL;

	while (s->first && (!data || s->bytes > UNDER_WAY)) {
		end_oldest(s);
		if (!one)
			one = malloc(sizeof(*one) + (size_t)n * sizeof(*one->requests));
		if (one && !data)
			data = malloc(bytes);
	}
	if (!data) {
		free(one);
		for (int i = 0; i < n; i++)
			MPI_Send(NULL, 0, MPI_BYTE, to, 0, b->comm);
		return no_memory();
	}
	copy_part(b->shape, part, b->data, &b->all[b->rank], data, part);
	*one = (struct sent){ .data = data, .size = bytes, .n = n };
	for (int i = 0; i < n; i++)
		MPI_Isend(data + (uint64_t)i * MESSAGE, message_size(bytes, i), MPI_BYTE, to, 0, b->comm, &one->requests[i]);
	*s->last = one;
	s->last = &one->next;
	s->bytes += bytes;
	return 0;
}

/* For what there is no memory for. */
static char away[MESSAGE];

/* data NULL: there is no memory for it, and it is taken off the way. */
static int receive_part(const struct blocks *b, char *data, uint64_t bytes, int from)
{
	int result = 0;

	for (int i = 0, n = messages_of(bytes); i < n; i++) {
		int size = message_size(bytes, i), got;
		MPI_Status status;
		MPI_Message message;

		MPI_Mprobe(from, 0, b->comm, &message, &status);
		MPI_Get_count(&status, MPI_BYTE, &got);
		if (data || got == 0) {
			MPI_Mrecv(data ? data + (uint64_t)i * MESSAGE : NULL, got, MPI_BYTE, &message, &status);
		} else {
			MPI_Mrecv(away, got, MPI_BYTE, &message, &status);
		}
		if (got != size)
			result = object_fail(ENOMEM, "cannot put a chunk: rank %d had no memory "
					"for its part", from);
	}
	return data ? result : no_memory();
}

/* ---- Chunks ---- */

static int put_own(const struct blocks *b, umobject_put *put, uint64_t number, const struct box *chunk)
{
	char *data = malloc(box_bytes(b->shape, chunk));
	int result;

	if (!data)
		return no_memory();
	copy_part(b->shape, chunk, b->data, &b->all[b->rank], data, chunk);
	result = umobject_put_chunk(put, number, data);
	free(data);
	return result;
}

/* From all who have some of it. */
static int gather_chunk(const struct blocks *b, umobject_put *put, uint64_t number, const struct box *chunk, bool failed)
{
	char *data = malloc(box_bytes(b->shape, chunk)), *theirs;
	int result = data ? 0 : no_memory();
	struct box part;

	for (int i = 0; i < b->ranks; i++) {
		uint64_t bytes = part_of(b, i, chunk, &part);

		if (bytes && i == b->rank && data)
			copy_part(b->shape, &part, b->data, &b->all[i], data, chunk);
		if (!bytes || i == b->rank)
			continue;
		theirs = malloc(bytes);
		if (receive_part(b, theirs, bytes, i) < 0)
			result = -1;
		else if (data)
			copy_part(b->shape, &part, theirs, &part, data, chunk);
		free(theirs);
	}
	if (result == 0 && !failed)
		result = umobject_put_chunk(put, number, data);
	free(data);
	return result;
}

static int take_part(const struct blocks *b, umobject_put *put, struct sends *s, uint64_t number, bool failed)
{
	struct box chunk, part;
	uint64_t bytes;
	int putter;

	umobject_chunk(b->shape, number, chunk.start, chunk.count);
	bytes = part_of(b, b->rank, &chunk, &part);
	if (bytes == box_bytes(b->shape, &chunk))
		return failed ? 0 : put_own(b, put, number, &chunk);
	putter = putter_of(b, &chunk);
	return putter == b->rank ? gather_chunk(b, put, number, &chunk, failed) : send_part(b, s, &part, bytes, putter);
}

/* The next place in a grid of chunks, in the order of numbers. */
static bool next_place(unsigned rank, const struct box *grid, uint64_t *place)
{
	for (unsigned d = rank; d-- > 0;) {
		if (++place[d] < grid->start[d] + grid->count[d])
			return true;
		place[d] = grid->start[d];
	}
	return false;
}

static int put_parts(const struct blocks *b, umobject_put *put)
{
	struct sends s = { .last = &s.first };
	struct why first;
	uint64_t place[UMOBJECT_RANK_MAX];
	bool failed = false;
	struct box grid;

	if (is_empty(b->shape, &b->all[b->rank]))
		return 0;
	shape_grid(b->shape, &b->all[b->rank], &grid);
	memcpy(place, grid.start, sizeof(place));
	do {
		if (take_part(b, put, &s, shape_number(b->shape, place), failed) < 0 && !failed) {
			first = keep();
			failed = true;
		}
	} while (next_place(b->shape->rank, &grid, place));
	while (s.first)
		end_oldest(&s);
	return failed ? fail_again(&first) : 0;
}

/* ---- The calls ---- */

int umobject_begin_all(MPI_Comm comm, umobject_container *container, const char *name, const struct umobject_shape *shape,
		       umobject_put **put)
{
	struct umobject_id id = { { 0 } };
	int rank, result = 0;

	*put = NULL;
	MPI_Comm_rank(comm, &rank);
	if (agree(comm, name && shape && shape->rank <= UMOBJECT_RANK_MAX ? 0 : object_fail(EINVAL,
			"cannot put the array: the name or the shape is NULL, or the shape's rank "
			"is too large")) < 0 ||
	    check_same(comm, name, shape) < 0)
		return -1;
	if (rank == 0)
		result = umobject_begin(container, name, shape, put, &id);
	if (agree(comm, result) < 0)
		return -1;
	MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, comm);
	if (rank > 0)
		result = umobject_join(container, &id, put);
	if (result < 0)
		*put = NULL;
	if (agree(comm, result) == 0)
		return 0;
	if (*put)
		umobject_abandon(*put);
	*put = NULL;
	return -1;
}

static int abandoned(umobject_put *put)
{
	struct why why = keep();

	umobject_abandon(put);
	return fail_again(&why);
}

int umobject_put_blocks(MPI_Comm comm, umobject_put *put, const struct umobject_shape *given, const uint64_t *start, const uint64_t *count,
			const void *data)
{
	struct umobject_shape shape;
	struct blocks b = { .shape = &shape, .data = data };
	struct box mine;
	int result;

	MPI_Comm_rank(comm, &b.rank);
	MPI_Comm_size(comm, &b.ranks);
	result = check_shape(put, given, &shape);
	b.all = malloc((size_t)b.ranks * sizeof(*b.all));
	if (result == 0 && !b.all)
		result = no_memory();
	if (agree(comm, result) < 0) {
		free(b.all);
		return abandoned(put);
	}
	mine = box_of(&shape, start, count);
	MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, b.all, sizeof(mine), MPI_BYTE, comm);
	result = shape.rank ? check_blocks(&b) : 0;
	if (result == 0 && shape.rank && !is_empty(&shape, &mine) && !data)
		result = object_fail(EINVAL, "cannot transfer the block: data is NULL, and the "
				     "block is not empty");
	result = agree(comm, result);
	/* One element without dimensions is rank 0's. */
	if (result == 0 && shape.rank == 0) {
		result = agree(comm, b.rank == 0 ? umobject_put_chunk(put, 0, data) : 0);
	} else if (result == 0) {
		MPI_Comm_dup(comm, &b.comm);
		result = agree(comm, put_parts(&b, put));
		MPI_Comm_free(&b.comm);
	}
	free(b.all);
	return result < 0 ? abandoned(put) : 0;
}

int umobject_commit_all(MPI_Comm comm, umobject_put *put, unsigned flags, uint64_t *version)
{
	uint64_t made = 0;
	int rank, result;

	MPI_Comm_rank(comm, &rank);
	/* The others' chunks are durable, and theirs no more, before one commits. */
	if (agree(comm, rank > 0 ? umobject_put_end(put) : 0) < 0)
		return rank == 0 ? abandoned(put) : -1;
	result = agree(comm, rank == 0 ? umobject_commit(put, flags, &made) : 0);
	MPI_Bcast(&made, 1, MPI_UINT64_T, 0, comm);
	if (version)
		*version = made;
	return result;
}

int umobject_put_all(MPI_Comm comm, umobject_container *container, const char *name, const struct umobject_shape *shape,
		     const uint64_t *start, const uint64_t *count, const void *data)
{
	umobject_put *put;

	if (umobject_begin_all(comm, container, name, shape, &put) < 0 || umobject_put_blocks(comm, put, shape, start, count, data) < 0)
		return -1;
	return umobject_commit_all(comm, put, 0, NULL);
}

int umobject_get_all(MPI_Comm comm, umobject_container *container, const char *name, uint64_t version, const uint64_t *start,
		     const uint64_t *count, void *data)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };
	umobject_version *held = NULL;
	struct box mine;
	struct why why;
	int rank, result = 0;

	MPI_Comm_rank(comm, &rank);
	if (rank == 0)
		result = umobject_hold(container, name, version, &held) < 0 ? -1 : umobject_stat(held, &st);
	if (agree(comm, result) < 0)
		return -1;
	MPI_Bcast(&st, sizeof(st), MPI_BYTE, 0, comm);
	/* Rank 0 has it until all have. */
	if (rank > 0)
		result = umobject_hold_id(container, &st.id, &held);
	if (result < 0)
		held = NULL;
	if (agree(comm, result) < 0) {
		umobject_release(held);
		return -1;
	}
	mine = box_of(&st.shape, start, count);
	if ((st.shape.rank == 0 ? count != NULL : !is_empty(&st.shape, &mine)))
		result = umobject_read(held, mine.start, mine.count, data);
	result = agree(comm, result);
	why = keep();
	umobject_release(held);
	return result < 0 ? fail_again(&why) : 0;
}
