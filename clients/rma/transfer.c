/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Put, MPI_Get and their variants with a request, as copies (rma/reach.h): of bytes without
 * gaps in all windows, and of any datatype whose layout is known in windows that are ours.
 */
#include "rma/epoch.h"
#include "rma/local.h"
#include "rma/reach.h"

static struct pmpi_feature operations;

/* The origin's side of an operation. */
struct origin {
	void *buf;
	int64_t n;
	MPI_Datatype type;
};

/* The number of bytes, if they have no gaps on both sides and are as many; else 0. */
static inline uint64_t plain_bytes(const struct pmpi_operation *o, const struct origin *origin)
{
	uint64_t bytes = type_bytes(origin->type, origin->n);

	if (origin->type == o->target_type)
		return origin->n == o->target_n ? bytes : 0;
	return bytes == type_bytes(o->target_type, o->target_n) ? bytes : 0;
}

static inline void note_put(struct target *t, bool put)
{
	if (put)
		atomic_store_explicit(&t->stored, true, memory_order_relaxed);
}

/* Copies items whose bytes are in order at `here`. Items without gaps are one block. */
static bool copy_blocks(struct reach *r, struct items *items, char *here, bool put)
{
	const struct layout *l = items->at.layout;
	int64_t base = items->at.base;

	if (layout_has_no_gaps(l))
		return reach_copy(r, (uint64_t)(base + l->blocks->at), here, items->bytes, put);
	for (int64_t i = 0; i < items->at.items; i++, base += l->extent) {
		for (size_t k = 0; k < l->n; here += l->blocks[k++].len) {
			if (!reach_copy(r, (uint64_t)(base + l->blocks[k].at), here,
					l->blocks[k].len, put))
				return false;
		}
	}
	return true;
}

/* Copies items of any datatypes, in a window that is ours. */
static int copy_items(struct window *w, const struct pmpi_operation *o,
		      const struct origin *origin, bool put)
{
	struct reach_buffers buffers;
	struct items items;
	struct local local;
	struct reach r;
	bool good;

	if (!epoch_allows(w, o) ||
	    !reach_find_items(w->shm, &items, o->rank, o->disp, o->target_n, o->target_type) ||
	    local_size(origin->type, origin->n) != items.bytes ||
	    !local_take(&local, origin->buf, origin->type, origin->n,
			reach_allows(items.target, origin->buf, items.bytes), put))
		return LEFT_TO_MPI;
	reach_begin(&r, &buffers, w->shm, o->rank, put);
	note_put(items.target, put);
	good = copy_blocks(&r, &items, local.at, put);
	good = reach_end(&r) && good;
	if (good && !put)
		local_return(&local, origin->buf, origin->type, origin->n);
	local_drop(&local);
	return good ? epoch_finish(w, o) : shm_fail(w, o->rank);
}

/* Returns an MPI code, or LEFT_TO_MPI. */
static inline __attribute__((always_inline)) int
copy(const struct pmpi_operation *o, const struct origin *origin, bool put)
{
	struct window *w = window_of(o->win);
	uint64_t at, bytes;
	struct target *t;

	if (put && epoch_refuses(w, o))
		return epoch_refuse(o);
	if (!w || !w->shm)
		return LEFT_TO_MPI;
	bytes = plain_bytes(o, origin);
	t = bytes ? reach_find_target(w->shm, o->rank, o->disp, bytes, &at) : NULL;
	if (t && epoch_allows(w, o) && reach_copy_now(t, at, origin->buf, bytes, put)) {
		note_put(t, put);
		return epoch_finish(w, o);
	}
	return w->shm->ours ? copy_items(w, o, origin, put) : LEFT_TO_MPI;
}

static int put(const struct pmpi_operation *o)
{
	const struct origin origin = { (void *)o->from, o->n, o->type };
	int code = copy(o, &origin, true);

	return code == LEFT_TO_MPI ? epoch_leave(o, operations.next.Put) : code;
}

static int get(const struct pmpi_operation *o)
{
	const struct origin origin = { o->to, o->to_n, o->to_type };
	int code = copy(o, &origin, false);

	return code == LEFT_TO_MPI ? epoch_leave(o, operations.next.Get) : code;
}

static struct pmpi_feature operations = {
	.place = PMPI_RMA,
	.take = { .Put = put, .Get = get },
};
PMPI_FEATURE(operations)
