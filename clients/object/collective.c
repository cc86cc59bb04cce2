/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and gets of all ranks. Rank 0 begins a version, all ranks put chunks, and rank 0 commits. A
 * chunk is put by the rank whose block has most of it. The other ranks send it their parts.
 *
 * Every rank visits the chunks that its block touches in the order of their numbers. All ranks that
 * take part in the lowest chunk in progress work on that chunk, so there is no deadlock. A rank
 * that has failed continues to exchange messages, with arbitrary contents, so that all ranks come
 * to the end, where they agree on the failure.
 */
#include "object/error.h"
#include "object/shape.h"

#include <stdlib.h>
#include <string.h>
#include <ummap-object-mpi.h>

/* Bytes of the parts that a rank has sent and that have not arrived; from then on it waits. */
#define MAX_IN_FLIGHT ((uint64_t)64 << 20)
#define MESSAGE_BYTES ((uint64_t)1 << 20)

/* The blocks of an array that the ranks have. */
struct blocks {
	MPI_Comm comm;
	const struct umobject_shape *shape;
	struct box *all;        /* block of each rank */
	int rank, ranks;
	const char *data;       /* elements of this rank's block */
};

/* A part that is sent to another rank. */
struct sent {
	struct sent *next;
	uint64_t size;
	int n;                  /* number of messages */
	MPI_Request *requests;
	char data[];
};

struct sends {
	struct sent *first, **last;
	uint64_t bytes;
};

/* ---- Errors ---- */

/* Collective. If a rank has failed, returns -1 on all ranks, with the message of the lowest one. */
static int agree_on(MPI_Comm comm, int result)
{
	struct failure why;
	int rank, ranks, failed, first;

	failure_keep(&why);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &ranks);
	failed = result < 0 ? rank : ranks;
	MPI_Allreduce(&failed, &first, 1, MPI_INT, MPI_MIN, comm);
	if (first == ranks)
		return 0;
	MPI_Bcast(&why, sizeof(why), MPI_BYTE, first, comm);
	/* The message of an earlier agreement begins with its rank. */
	if (strncmp(why.text, "rank ", 5) == 0)
		return failure_restore(&why);
	return object_fail(why.error, "rank %d: %s", first, why.text);
}

/* Returns -1. */
static int abandon_put(umobject_put *put)
{
	struct failure why;

	failure_keep(&why);
	umobject_abandon(put);
	return failure_restore(&why);
}

/* Collective. Checks that all ranks give the same name and shape. */
static int check_same(MPI_Comm comm, const char *name, const struct umobject_shape *shape)
{
	char first[UMOBJECT_NAME_MAX + 1] = "";
	struct umobject_shape s = *shape;
	bool same;

	snprintf(first, sizeof(first), "%s", name);
	MPI_Bcast(first, sizeof(first), MPI_CHAR, 0, comm);
	MPI_Bcast(&s, sizeof(s), MPI_BYTE, 0, comm);
	same = strncmp(name, first, sizeof(first) - 1) == 0 && s.type == shape->type &&
	       s.rank == shape->rank &&
	       memcmp(s.dims, shape->dims, s.rank * sizeof(*s.dims)) == 0 &&
	       memcmp(s.chunk, shape->chunk, s.rank * sizeof(*s.chunk)) == 0;
	return agree_on(comm, same ? 0 : object_fail(EINVAL, "cannot put the array: the name or "
						     "the shape differs from that of rank 0"));
}

/* ---- Blocks ---- */

/* count NULL: an empty box. An array without dimensions belongs to rank 0. */
static struct box make_box(const struct umobject_shape *shape, const uint64_t *start,
			   const uint64_t *count)
{
	struct box b = { { 0 }, { 0 } };

	if (count)
		memcpy(b.count, count, shape->rank * sizeof(*count));
	if (count && start)
		memcpy(b.start, start, shape->rank * sizeof(*start));
	return b;
}

/* Checks that the blocks make up the array. All ranks come to the same result. */
static int check_blocks(const struct blocks *b)
{
	uint64_t bytes = 0;
	struct box common;

	for (int i = 0; i < b->ranks; i++) {
		if (!box_bytes(b->shape, &b->all[i]))
			continue;
		if (!box_within(b->shape, &b->all[i]))
			return object_fail(EINVAL, "cannot put the array: the block of rank %d is "
					   "not within it", i);
		bytes += box_bytes(b->shape, &b->all[i]);
		for (int j = 0; j < i; j++)
			if (box_meet(b->shape->rank, &b->all[i], &b->all[j], &common))
				return object_fail(EINVAL, "cannot put the array: the blocks of "
						   "ranks %d and %d have elements in common", j, i);
	}
	return bytes == shape_bytes(b->shape) ? 0 :
		object_fail(EINVAL, "cannot put the array: the blocks of all ranks have %llu "
			    "bytes, and the array has %llu", (unsigned long long)bytes,
			    (unsigned long long)shape_bytes(b->shape));
}

/* Finds the part of a chunk that a rank has. Returns its bytes; 0: the rank has none. */
static uint64_t find_part(const struct blocks *b, int rank, const struct box *chunk,
			  struct box *part)
{
	return box_meet(b->shape->rank, &b->all[rank], chunk, part) ? box_bytes(b->shape, part) : 0;
}

/* The rank that puts a chunk. */
static int find_putter(const struct blocks *b, const struct box *chunk)
{
	uint64_t most = 0;
	struct box part;
	int putter = 0;

	for (int i = 0; i < b->ranks; i++) {
		uint64_t bytes = find_part(b, i, chunk, &part);

		if (bytes > most) {
			most = bytes;
			putter = i;
		}
	}
	return putter;
}

/* ---- Messages ---- */

/* Contents of messages of a rank without memory. */
static char scratch[MESSAGE_BYTES];

static int count_messages(uint64_t bytes)
{
	return (int)((bytes + MESSAGE_BYTES - 1) / MESSAGE_BYTES);
}

static int message_size(uint64_t bytes, int i)
{
	return (int)min_u64(bytes - (uint64_t)i * MESSAGE_BYTES, MESSAGE_BYTES);
}

static void finish_oldest(struct sends *s)
{
	struct sent *oldest = s->first;

	for (int i = 0; i < oldest->n; i++)
		MPI_Wait(&oldest->requests[i], MPI_STATUS_IGNORE);
	s->first = oldest->next;
	if (!s->first)
		s->last = &s->first;
	s->bytes -= oldest->size;
	free(oldest->requests);
	free(oldest);
}

static struct sent *make_sent(uint64_t bytes)
{
	int n = count_messages(bytes);
	struct sent *part = malloc(sizeof(*part) + bytes);
	MPI_Request *requests = malloc((size_t)n * sizeof(*requests));

	if (part && requests) {
		*part = (struct sent){ .size = bytes, .n = n, .requests = requests };
		return part;
	}
	free(part);
	free(requests);
	return NULL;
}

/* Sends this rank's part of a chunk. Waits for older parts if there are too many, or no memory. */
static int send_part(const struct blocks *b, struct sends *s, const struct box *part,
		     uint64_t bytes, int to)
{
	struct sent *sent = make_sent(bytes);

	while (s->first && (!sent || s->bytes > MAX_IN_FLIGHT)) {
		finish_oldest(s);
		if (!sent)
			sent = make_sent(bytes);
	}
	if (!sent) {
		for (int i = 0; i < count_messages(bytes); i++)
			MPI_Send(scratch, message_size(bytes, i), MPI_BYTE, to, 0, b->comm);
		return fail_no_memory("put the array");
	}
	box_copy(b->shape, part, b->data, &b->all[b->rank], sent->data, part);
	for (int i = 0; i < sent->n; i++)
		MPI_Isend(sent->data + (uint64_t)i * MESSAGE_BYTES, message_size(bytes, i),
			  MPI_BYTE, to, 0, b->comm, &sent->requests[i]);
	*s->last = sent;
	s->last = &sent->next;
	s->bytes += bytes;
	return 0;
}

/* data NULL: there is no memory, and the contents are dropped. */
static void receive_part(const struct blocks *b, char *data, uint64_t bytes, int from)
{
	for (int i = 0; i < count_messages(bytes); i++)
		MPI_Recv(data ? data + (uint64_t)i * MESSAGE_BYTES : scratch,
			 message_size(bytes, i), MPI_BYTE, from, 0, b->comm, MPI_STATUS_IGNORE);
}

/* ---- Chunks ---- */

/* Puts a chunk with the parts of all ranks. failed: only exchanges messages. */
static int gather_chunk(const struct blocks *b, umobject_put *put, uint64_t number,
			const struct box *chunk, bool failed)
{
	char *data = malloc(box_bytes(b->shape, chunk));
	int result = data ? 0 : -1;
	struct box part;

	for (int i = 0; i < b->ranks; i++) {
		uint64_t bytes = find_part(b, i, chunk, &part);
		char *theirs = bytes && i != b->rank ? malloc(bytes) : NULL;

		if (bytes && i != b->rank)
			receive_part(b, theirs, bytes, i);
		if (bytes && i == b->rank && data)
			box_copy(b->shape, &part, b->data, &b->all[i], data, chunk);
		else if (bytes && theirs && data)
			box_copy(b->shape, &part, theirs, &part, data, chunk);
		else if (bytes)
			result = -1;
		free(theirs);
	}
	if (result < 0)
		fail_no_memory("put a chunk");
	else if (!failed)
		result = umobject_put_chunk(put, number, data);
	free(data);
	return result;
}

static int put_part(const struct blocks *b, umobject_put *put, struct sends *s, uint64_t number,
		    bool failed)
{
	struct box chunk = shape_chunk(b->shape, number), part;
	int putter = find_putter(b, &chunk);

	return putter == b->rank ? gather_chunk(b, put, number, &chunk, failed) :
		send_part(b, s, &part, find_part(b, b->rank, &chunk, &part), putter);
}

static int put_parts(const struct blocks *b, umobject_put *put)
{
	struct sends s = { .last = &s.first };
	struct failure why;
	bool failed = false;
	struct grid grid;

	if (!box_bytes(b->shape, &b->all[b->rank]))
		return 0;
	grid = grid_begin(b->shape, &b->all[b->rank]);
	do {
		if (put_part(b, put, &s, grid_number(b->shape, &grid), failed) < 0 && !failed) {
			failure_keep(&why);
			failed = true;
		}
	} while (grid_next(&grid));
	while (s.first)
		finish_oldest(&s);
	return failed ? failure_restore(&why) : 0;
}

/* ---- The calls ---- */

int umobject_begin_all(MPI_Comm comm, umobject_container *container, const char *name,
		       const struct umobject_shape *shape, umobject_put **put)
{
	bool valid = name && shape && shape->rank <= UMOBJECT_RANK_MAX;
	struct umobject_id id = { { 0 } };
	int rank, result = 0;

	*put = NULL;
	MPI_Comm_rank(comm, &rank);
	if (!valid)
		result = object_fail(EINVAL, "cannot put the array: the name or the shape is NULL, "
				     "or the shape's rank is too large");
	if (agree_on(comm, result) < 0 || check_same(comm, name, shape) < 0)
		return -1;
	if (rank == 0)
		result = umobject_begin(container, name, shape, put, &id);
	if (agree_on(comm, result) < 0)
		return -1;
	MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, comm);
	if (rank > 0)
		result = umobject_join(container, &id, put);
	if (agree_on(comm, result) == 0)
		return 0;
	if (result == 0)
		umobject_abandon(*put);
	*put = NULL;
	return -1;
}

int umobject_put_blocks(MPI_Comm comm, umobject_put *put, const struct umobject_shape *given,
			const uint64_t *start, const uint64_t *count, const void *data)
{
	struct umobject_shape shape;
	struct blocks b = { .shape = &shape, .data = data };
	struct box mine;
	int result = 0;

	MPI_Comm_rank(comm, &b.rank);
	MPI_Comm_size(comm, &b.ranks);
	umobject_put_shape(put, &shape);
	b.all = malloc((size_t)b.ranks * sizeof(*b.all));
	if (!shape_equals(given, &shape))
		result = object_fail(EINVAL, "cannot put the array: its shape differs from the "
				     "shape with which the put began");
	else if (!b.all)
		result = fail_no_memory("put the array");
	if (agree_on(comm, result) < 0) {
		free(b.all);
		return abandon_put(put);
	}
	mine = make_box(&shape, start, count);
	MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, b.all, sizeof(mine), MPI_BYTE, comm);
	result = shape.rank ? check_blocks(&b) : 0;
	if (result == 0 && shape.rank && box_bytes(&shape, &mine) && !data)
		result = object_fail(EINVAL, "cannot transfer the block: data is NULL, and the "
				     "block is not empty");
	result = agree_on(comm, result);
	if (result == 0 && shape.rank == 0) {
		result = agree_on(comm, b.rank == 0 ? umobject_put_chunk(put, 0, data) : 0);
	} else if (result == 0) {
		MPI_Comm_dup(comm, &b.comm);
		result = agree_on(comm, put_parts(&b, put));
		MPI_Comm_free(&b.comm);
	}
	free(b.all);
	return result < 0 ? abandon_put(put) : 0;
}

int umobject_commit_all(MPI_Comm comm, umobject_put *put, unsigned flags, uint64_t *version)
{
	uint64_t made = 0;
	int rank, result;

	MPI_Comm_rank(comm, &rank);
	/* The chunks of the other ranks are durable, and their puts have ended, before rank 0
	 * commits. */
	if (agree_on(comm, rank > 0 ? umobject_put_end(put) : 0) < 0)
		return rank == 0 ? abandon_put(put) : -1;
	result = agree_on(comm, rank == 0 ? umobject_commit(put, flags, &made) : 0);
	MPI_Bcast(&made, 1, MPI_UINT64_T, 0, comm);
	if (version)
		*version = made;
	return result;
}

int umobject_put_all(MPI_Comm comm, umobject_container *container, const char *name,
		     const struct umobject_shape *shape, const uint64_t *start,
		     const uint64_t *count, const void *data)
{
	umobject_put *put;

	if (umobject_begin_all(comm, container, name, shape, &put) < 0 ||
	    umobject_put_blocks(comm, put, shape, start, count, data) < 0)
		return -1;
	return umobject_commit_all(comm, put, 0, NULL);
}

int umobject_get_all(MPI_Comm comm, umobject_container *container, const char *name,
		     uint64_t version, const uint64_t *start, const uint64_t *count, void *data)
{
	struct umobject_stat st = { .struct_size = sizeof(st) };
	umobject_version *held = NULL;
	struct failure why;
	struct box mine;
	int rank, result = 0;

	MPI_Comm_rank(comm, &rank);
	if (rank == 0 && (result = umobject_hold(container, name, version, &held)) == 0)
		result = umobject_stat(held, &st);
	result = agree_on(comm, result);
	if (result == 0) {
		MPI_Bcast(&st, sizeof(st), MPI_BYTE, 0, comm);
		/* Rank 0 holds the version until all ranks do. */
		result = agree_on(comm, rank > 0 ? umobject_hold_id(container, &st.id, &held) : 0);
	}
	if (result == 0) {
		mine = make_box(&st.shape, start, count);
		if (st.shape.rank == 0 ? count != NULL : box_bytes(&st.shape, &mine) > 0)
			result = umobject_read(held, mine.start, mine.count, data);
		result = agree_on(comm, result);
	}
	failure_keep(&why);
	umobject_release(held);
	return result < 0 ? failure_restore(&why) : 0;
}
