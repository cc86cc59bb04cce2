/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accumulates, and what fetches with them, made by the calling process in windows that are ours. Each rank's part has a lock
 * for them (rma/control.c). Few words, aligned, are changed by processor instructions, and share the lock; everything else
 * has it alone, and is a loop of MPI's own (MPI_Reduce_local); and so has all that is reached by copies. So any two operations on one word are atomic to each
 * other, whatever they are, and however their types differ. A program that has locked the part alone needs no second lock.
 *
 * The lock comes before any segment is held, and what the program passes is copied before, where touching it could fault.
 */
#include "pmpi/pmpi.h"
#include "rma/local.h"
#include "rma/operation.h"
#include "rma/shm.h"
#include "window/window.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static struct pmpi_feature atomics;

/* Elements, for which sharing the lock is worth it. */
#define FEW 8
/* Bytes of one call of MPI_Reduce_local, for which a segment is held. */
#define MOST ((size_t)256 << 10)
/* No code of MPI's. */
#define LEFT (-1)


/* The arguments of a call; to NULL: nothing is fetched. */
struct update {
	const void *from;
	int64_t count;
	MPI_Datatype type;
	void *to;
	int64_t to_count;
	MPI_Datatype to_type;
	int rank;
	MPI_Aint disp;
	int64_t target_count;
	MPI_Datatype target_type;
	MPI_Op mpi_op;
	enum op op;
};

/* ---- One word ---- */

static inline uint64_t load(const void *p, uint64_t size)
{
	switch (size) {
	case 1: return __atomic_load_n((const uint8_t *)p, __ATOMIC_SEQ_CST);
	case 2: return __atomic_load_n((const uint16_t *)p, __ATOMIC_SEQ_CST);
	case 4: return __atomic_load_n((const uint32_t *)p, __ATOMIC_SEQ_CST);
	default: return __atomic_load_n((const uint64_t *)p, __ATOMIC_SEQ_CST);
	}
}

/* *old: what is to be there, and what was there. */
static inline bool swap(void *p, uint64_t size, uint64_t *old, uint64_t new)
{
	uint8_t a = (uint8_t)*old;
	uint16_t b = (uint16_t)*old;
	uint32_t c = (uint32_t)*old;
	bool good;

	switch (size) {
	case 1:
		good = __atomic_compare_exchange_n((uint8_t *)p, &a, (uint8_t)new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		*old = a;
		return good;
	case 2:
		good = __atomic_compare_exchange_n((uint16_t *)p, &b, (uint16_t)new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		*old = b;
		return good;
	case 4:
		good = __atomic_compare_exchange_n((uint32_t *)p, &c, (uint32_t)new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		*old = c;
		return good;
	default:
		return __atomic_compare_exchange_n((uint64_t *)p, old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
}

/* Returns what was there. */
static inline uint64_t update_word(void *p, const struct basic *b, enum op op, uint64_t with)
{
	uint64_t old;

	if (op == OP_SUM && b->kind != KIND_FLOAT && b->size == 8)
		return __atomic_fetch_add((uint64_t *)p, with, __ATOMIC_SEQ_CST);
	if (op == OP_SUM && b->kind != KIND_FLOAT && b->size == 4)
		return __atomic_fetch_add((uint32_t *)p, (uint32_t)with, __ATOMIC_SEQ_CST);
	old = load(p, b->size);
	while (op != OP_NO_OP && !swap(p, b->size, &old, op_word(b->kind, op, b->size, old, with)))
		;
	return old;
}

/* ---- The lock ---- */

static inline void begin(const struct shm *shm, struct peer *p, bool alone)
{
	bool busy = false;

	while (shm->threads && !atomic_compare_exchange_weak(&p->busy, &busy, true)) {
		busy = false;
		sched_yield();
	}
	if (!p->exclusive)
		nodelock_take(p->atomics, &shm->locks, alone ? NODELOCK_EXCLUSIVE : NODELOCK_SHARED);
}

static inline void end(const struct shm *shm, struct peer *p)
{
	if (!p->exclusive)
		nodelock_drop(p->atomics, &shm->locks);
	if (shm->threads)
		atomic_store(&p->busy, false);
}

/* ---- ... for one word, which is not reached by copies ---- */

/* Its segment, if the owner has it in memory. Then that is a barrier. */
static inline char *hold_word(struct reach *r, uint64_t at)
{
	if (umimport_hold(r->peer->paged, at - r->peer->paged_from, r->store, &r->hold) < 0)
		return NULL;
	r->from = at;
	r->to = at + r->hold.len;
	return r->hold.addr;
}

/* NULL: it cannot be reached, as of reach_at. Where the word is in a segment of the owner's, the lock is shared before that is
 * held, and who wants it alone is looked for behind it. Nobody is waited for with a segment held. */
static inline char *begin_word(struct reach *r, struct peer *p, uint64_t at, size_t size)
{
	const struct nodelocks *locks = &r->shm->locks;
	char *word;

	if (!(at >= p->from && at < p->to) && !p->exclusive && !r->shm->threads) {
		nodelock_show(p->atomics, locks);
		word = hold_word(r, at);
		if (word && nodelock_is_shared(p->atomics, locks))
			return word;
		if (word)
			umimport_release(&r->hold);
		r->to = 0;
	}
	begin(r->shm, p, false);
	return reach_at(r, at, &size);
}

static inline void end_word(struct reach *r, struct peer *p)
{
	if (r->to)
		umimport_release(&r->hold);
	end(r->shm, p);
}

/* ---- Any number of elements of any type ---- */

/* Bytes of the target to ours, or back. */
static bool move_bytes(struct reach *r, uint64_t at, char *bytes, size_t len, bool there)
{
	for (size_t done = 0, n; done < len; done += n) {
		char *p;

		n = len - done;
		p = reach_at(r, at + done, &n);
		if (!p)
			return false;
		memcpy(there ? p : bytes + done, there ? bytes + done : p, n);
	}
	return true;
}

static void apply(const struct update *u, const struct basic *b, const char *from, char *to, char *target, int n)
{
	if (to)
		memcpy(to, target, (size_t)n * (size_t)b->extent);
	op_combine(u->op, u->mpi_op, b, from, target, n);
}

/* An element that lies over a border, or has gaps: its bytes up to `span` go to memory of ours and back. */
static bool apply_apart(struct reach *r, const struct update *u, const struct basic *b, size_t span, const char *from, char *to,
			uint64_t at)
{
	char word[64];

	if ((size_t)b->extent > sizeof(word)) {
		errno = EINVAL;
		return false;
	}
	if (!move_bytes(r, at, word, span, false))
		return false;
	apply(u, b, from, to, word, 1);
	return u->op == OP_NO_OP || move_bytes(r, at, word, span, true);
}

/* Elements one behind the other, n at most, from `at` on: returns how many it was; 0: they cannot be reached. */
static int apply_some(struct reach *r, const struct update *u, const struct basic *b, size_t span, const char *from, char *to,
		      uint64_t at, uint64_t n)
{
	size_t size = (size_t)b->extent, len;
	char *target;

	if (span != size)
		return apply_apart(r, u, b, span, from, to, at);
	n = n < MOST / size ? n : MOST / size;
	len = n * size;
	target = reach_at(r, at, &len);
	if (!target)
		return 0;
	if (len < size)
		return apply_apart(r, u, b, span, from, to, at);
	apply(u, b, from, to, target, (int)(len / size));
	return (int)(len / size);
}

static bool apply_all(struct reach *r, const struct update *u, struct target *t, const char *from, char *to)
{
	const struct basic *b = &t->at.layout->basic;
	size_t span = b->extent == (int64_t)b->size ? b->size : (size_t)layout_of(b->type)->high;

	for (uint64_t left = t->bytes / b->size; left > 0;) {
		uint64_t len, at = (uint64_t)layout_cursor_address(&t->at, &len), some = len / b->size;
		int n = apply_some(r, u, b, span, from, to, at, some == 0 ? 1 : some < left ? some : left);

		if (n == 0)
			return false;
		/* The owner waits no longer than for so many. */
		if (!reach_end(r))
			return false;
		layout_cursor_advance(&t->at, (uint64_t)n * b->size);
		left -= (uint64_t)n;
		from = from ? from + n * b->extent : NULL;
		to = to ? to + n * b->extent : NULL;
	}
	return true;
}

/* ---- What the program passes, as elements in memory ---- */

static bool take_from(struct local *l, const struct update *u, const struct target *t)
{
	*l = (struct local){ 0 };
	return u->op == OP_NO_OP || local_take_elements(l, u->from, u->type, u->count, &t->at.layout->basic,
							reach_allows(t->peer, u->from, t->bytes), true);
}

static bool take_to(struct local *l, const struct update *u, const struct target *t)
{
	*l = (struct local){ 0 };
	return !u->to || local_take_elements(l, u->to, u->to_type, u->to_count, &t->at.layout->basic,
					     reach_allows(t->peer, u->to, t->bytes), false);
}

static void return_to(const struct local *l, const struct update *u, const struct target *t)
{
	if (u->to)
		local_return_elements(l, u->to, u->to_type, u->to_count, &t->at.layout->basic);
}

static int run_locked(struct window *w, const struct update *u, struct target *t, const struct local *from,
		      const struct local *to)
{
	struct reach r;
	bool good;

	reach_begin(&r, w->shm, t->rank, u->op != OP_NO_OP);
	begin(w->shm, t->peer, true);
	good = apply_all(&r, u, t, from->at, to->at);
	good = reach_end(&r) && good;
	end(w->shm, t->peer);
	return good ? MPI_SUCCESS : shm_failed(w, t->rank);
}

/* Whether the sides are alike, and MPI has the operation for that type. */
static bool is_sound(const struct update *u, const struct target *t)
{
	const struct basic *b = &t->at.layout->basic;

	if (t->at.layout->mixed || u->op == OP_NONE || (b->kind != KIND_OTHER && !op_suits(b->kind, u->op)))
		return false;
	if (u->op != OP_NO_OP && local_size(u->type, u->count) != t->bytes)
		return false;
	return !u->to || local_size(u->to_type, u->to_count) == t->bytes;
}

static int run_any(struct window *w, const struct update *u, bool fences)
{
	struct target t = { .rank = u->rank };
	struct local from, to;
	int code;

	if (!reach_find(w, &t, u->disp, u->target_count, u->target_type, fences) || !is_sound(u, &t))
		return LEFT;
	if (take_from(&from, u, &t) && take_to(&to, u, &t)) {
		code = run_locked(w, u, &t, &from, &to);
		if (code == MPI_SUCCESS)
			return_to(&to, u, &t);
		local_drop(&to);
	} else {
		errno = ENOMEM;
		code = shm_failed(w, u->rank);
	}
	local_drop(&from);
	return code;
}

/* ---- Few words ---- */

/* Of words, which have a power of two of bytes: a division would take longer than all else. */
static inline bool is_aligned(uint64_t at, const struct basic *b)
{
	return (at & (b->size - 1)) == 0;
}

/* Where such words begin: in the part of a rank that may be accessed, aligned, and is not reached by copies; NULL:
 * elsewhere. */
static inline struct peer *find_words(struct window *w, int rank, MPI_Aint disp, const struct basic *b, int64_t count, bool fences,
			       uint64_t *at)
{
	struct peer *p;
	int64_t from;

	if (rank < 0 || rank >= w->shm->ranks || b->kind == KIND_OTHER || count <= 0 || count > FEW)
		return NULL;
	p = &w->shm->peers[rank];
	if (p->remote || disp < 0 || __builtin_mul_overflow((int64_t)disp, p->unit, &from) || (uint64_t)from > p->size ||
	    (uint64_t)count * b->size > p->size - (uint64_t)from || (!shm_is_open(p) && !shm_may_access(w, rank, fences)))
		return NULL;
	*at = (uint64_t)from;
	/* What is paged begins on a page. */
	if (*at >= p->from && *at < p->to)
		return is_aligned((uintptr_t)p->at + (*at - p->from), b) ? p : NULL;
	return is_aligned(*at - p->paged_from, b) ? p : NULL;
}

/* Copies what is there to `old`. */
static bool update_words(struct reach *r, enum op op, const struct basic *b, const char *from, char *old, uint64_t at, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		size_t len = bytes - done;
		char *p = reach_at(r, at + done, &len);

		if (!p)
			return false;
		for (size_t end_of = done + len; done < end_of; done += b->size, p += b->size) {
			uint64_t was = update_word(p, b, op, word_of(from + done, b->size));

			memcpy(old + done, &was, b->size);
		}
	}
	return true;
}

/* Whether a side has as many words as the target. */
static inline bool is_alike(const struct update *u, MPI_Datatype type, int64_t count, uint64_t bytes)
{
	return type == u->target_type ? count == u->target_count : type_bytes(type, count) == bytes;
}

/* The most common case by itself; to NULL: nothing is fetched. */
static inline int run_one(struct window *w, const void *from, void *to, MPI_Datatype type, int rank, MPI_Aint disp, enum op op)
{
	const struct basic *b = type_known(type);
	uint64_t at, with, was;
	struct basic asked;
	struct reach r;
	struct peer *p;
	char *word;

	if (!b)
		b = type_basic(type, &asked) ? &asked : NULL;
	if (!b || !op_suits(b->kind, op))
		return LEFT;
	p = find_words(w, rank, disp, b, 1, true, &at);
	if (!p)
		return LEFT;
	with = op == OP_NO_OP ? 0 : word_of(from, b->size);
	reach_begin(&r, w->shm, rank, op != OP_NO_OP);
	word = begin_word(&r, p, at, b->size);
	if (word)
		was = update_word(word, b, op, with);
	end_word(&r, p);
	if (!word)
		return shm_failed(w, rank);
	if (to)
		put_word(to, was, b->size);
	return MPI_SUCCESS;
}

static int run_few(struct window *w, const struct update *u, bool fences)
{
	uint64_t from[FEW], old[FEW], at, bytes;
	struct basic b;
	struct reach r;
	struct peer *p;
	bool good;

	if (!type_basic(u->target_type, &b) || !op_suits(b.kind, u->op))
		return LEFT;
	p = find_words(w, u->rank, u->disp, &b, u->target_count, fences, &at);
	bytes = (uint64_t)u->target_count * b.size;
	if (!p || (u->op != OP_NO_OP && !is_alike(u, u->type, u->count, bytes)) ||
	    (u->to && !is_alike(u, u->to_type, u->to_count, bytes)))
		return LEFT;
	if (u->op != OP_NO_OP)
		memcpy(from, u->from, bytes);
	reach_begin(&r, w->shm, u->rank, u->op != OP_NO_OP);
	begin(w->shm, p, false);
	good = update_words(&r, u->op, &b, (const char *)from, (char *)old, at, bytes);
	reach_end(&r);
	end(w->shm, p);
	if (good && u->to)
		memcpy(u->to, old, bytes);
	return good ? MPI_SUCCESS : shm_failed(w, u->rank);
}

/* ---- The calls ---- */

/* LEFT: it is for MPI. Else its code. */
static int run(struct update *u, MPI_Win win, MPI_Request *request)
{
	struct window *w = window_of(win);
	int code;

	if (!w || !w->shm || !w->shm->ours)
		return LEFT;
	u->op = op_of(u->mpi_op);
	code = run_few(w, u, !request);
	if (code == LEFT)
		code = run_any(w, u, !request);
	if (code == LEFT)
		shm_pass(w, u->rank);
	if (code == MPI_SUCCESS && request && !shm_request(w, request))
		return MPI_ERR_NO_MEM;
	return code;
}

/* MPI has taken an operation: passes on its code. */
static int noted(int code, int rank, MPI_Win win)
{
	struct window *w = window_of(win);

	if (w && w->shm)
		shm_note(w, rank);
	return code;
}

static int accumulate(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		      MPI_Datatype target_type, MPI_Op op, MPI_Win win)
{
	struct update u = { from, n, type, NULL, 0, MPI_DATATYPE_NULL, rank, disp, target_n, target_type, op, OP_NONE };
	struct window *w = window_of(win);
	int code = LEFT;

	if (w && w->shm && w->shm->ours && n == 1 && target_n == 1 && type == target_type)
		code = run_one(w, from, NULL, type, rank, disp, op_of(op));
	if (code == LEFT)
		code = run(&u, win, NULL);
	if (code != LEFT)
		return code;
	return noted(atomics.next.Accumulate(from, n, type, rank, disp, target_n, target_type, op, win), rank, win);
}

static int raccumulate(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		       MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request)
{
	struct update u = { from, n, type, NULL, 0, MPI_DATATYPE_NULL, rank, disp, target_n, target_type, op, OP_NONE };
	int code = run(&u, win, request);

	if (code != LEFT)
		return code;
	return noted(atomics.next.Raccumulate(from, n, type, rank, disp, target_n, target_type, op, win, request), rank,
		     win);
}

static int get_accumulate(const void *from, MPI_Count n, MPI_Datatype type, void *to, MPI_Count to_n,
			  MPI_Datatype to_type, int rank, MPI_Aint disp, MPI_Count target_n, MPI_Datatype target_type,
			  MPI_Op op, MPI_Win win)
{
	struct update u = { from, n, type, to, to_n, to_type, rank, disp, target_n, target_type, op, OP_NONE };
	int code = run(&u, win, NULL);

	if (code != LEFT)
		return code;
	return noted(atomics.next.Get_accumulate(from, n, type, to, to_n, to_type, rank, disp, target_n, target_type, op,
						 win), rank, win);
}

static int rget_accumulate(const void *from, MPI_Count n, MPI_Datatype type, void *to, MPI_Count to_n,
			   MPI_Datatype to_type, int rank, MPI_Aint disp, MPI_Count target_n,
			   MPI_Datatype target_type, MPI_Op op, MPI_Win win, MPI_Request *request)
{
	struct update u = { from, n, type, to, to_n, to_type, rank, disp, target_n, target_type, op, OP_NONE };
	int code = run(&u, win, request);

	if (code != LEFT)
		return code;
	return noted(atomics.next.Rget_accumulate(from, n, type, to, to_n, to_type, rank, disp, target_n, target_type, op,
						  win, request), rank, win);
}

static int fetch_and_op(const void *from, void *to, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Op op,
			MPI_Win win)
{
	struct update u = { from, 1, type, to, 1, type, rank, disp, 1, type, op, OP_NONE };
	struct window *w = window_of(win);
	int code = w && w->shm && w->shm->ours ? run_one(w, from, to, type, rank, disp, op_of(op)) : LEFT;

	if (code == LEFT)
		code = run(&u, win, NULL);
	if (code != LEFT)
		return code;
	return noted(atomics.next.Fetch_and_op(from, to, type, rank, disp, op, win), rank, win);
}

/* ---- Compare and swap ---- */

static int swap_word(struct window *w, struct peer *p, int rank, const struct basic *b, uint64_t at, uint64_t *old, uint64_t new)
{
	struct reach r;
	char *word;

	reach_begin(&r, w->shm, rank, true);
	word = begin_word(&r, p, at, b->size);
	if (word)
		swap(word, b->size, old, new);
	end_word(&r, p);
	return word ? MPI_SUCCESS : shm_failed(w, rank);
}

/* Bytes of one that is no number. */
#define SWAP_MOST 16

/* One that is not aligned, or no number. The program's memory is not touched while a segment is held. */
static int swap_any(struct window *w, struct target *t, const void *from, const void *compare, void *to)
{
	uint64_t len, at = (uint64_t)layout_cursor_address(&t->at, &len);
	char new[SWAP_MOST], wanted[SWAP_MOST], old[SWAP_MOST];
	struct reach r;
	bool good;

	memcpy(new, from, t->bytes);
	memcpy(wanted, compare, t->bytes);
	reach_begin(&r, w->shm, t->rank, true);
	begin(w->shm, t->peer, true);
	good = move_bytes(&r, at, old, t->bytes, false);
	r.store = good && memcmp(old, wanted, t->bytes) == 0;
	if (r.store)
		good = move_bytes(&r, at, new, t->bytes, true);
	good = reach_end(&r) && good;
	end(w->shm, t->peer);
	if (good)
		memcpy(to, old, t->bytes);
	return good ? MPI_SUCCESS : shm_failed(w, t->rank);
}

static int swap_here(struct window *w, const void *from, const void *compare, void *to, MPI_Datatype type, int rank, MPI_Aint disp)
{
	const struct basic *b = type_known(type);
	struct target t = { .rank = rank };
	struct basic asked;
	struct peer *p;
	uint64_t at, was;
	int code;

	if (!b)
		b = type_basic(type, &asked) ? &asked : NULL;
	if (!b || b->kind == KIND_FLOAT || basic_has_gaps(b) || b->size > SWAP_MOST)
		return LEFT;
	p = find_words(w, rank, disp, b, 1, true, &at);
	if (!p)
		return reach_find(w, &t, disp, 1, type, true) ? swap_any(w, &t, from, compare, to) : LEFT;
	was = word_of(compare, b->size);
	code = swap_word(w, p, rank, b, at, &was, word_of(from, b->size));
	if (code == MPI_SUCCESS)
		put_word(to, was, b->size);
	return code;
}

static int compare_and_swap(const void *from, const void *compare, void *to, MPI_Datatype type, int rank,
			    MPI_Aint disp, MPI_Win win)
{
	struct window *w = window_of(win);
	int code = w && w->shm && w->shm->ours ? swap_here(w, from, compare, to, type, rank, disp) : LEFT;

	if (code != LEFT)
		return code;
	if (w && w->shm)
		shm_pass(w, rank);
	return noted(atomics.next.Compare_and_swap(from, compare, to, type, rank, disp, win), rank, win);
}

static struct pmpi_feature atomics = {
	.place = PMPI_RMA,
	.take = {
		.Accumulate = accumulate,
		.Raccumulate = raccumulate,
		.Get_accumulate = get_accumulate,
		.Rget_accumulate = rget_accumulate,
		.Fetch_and_op = fetch_and_op,
		.Compare_and_swap = compare_and_swap,
	},
};
PMPI_FEATURE(atomics)
