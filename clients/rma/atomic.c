/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accumulates and fetches, made by the calling process in windows that are ours. Each target has a
 * lock for them (rma/control.c). Operations on a few aligned words change each word by a processor
 * instruction, and share the lock. All others hold it exclusively, and combine elements by
 * rma/operation.c; so do operations on memory that the kernel copies. So any two operations on one
 * word are atomic to each other, even if their types differ. A program that has locked the target
 * exclusively needs no second lock.
 *
 * The lock is taken before a segment is held. Buffers of the program are copied before, where a
 * touch of them could fault.
 */
#include "rma/epoch.h"
#include "rma/local.h"
#include "rma/operation.h"
#include "rma/reach.h"

#include <errno.h>
#include <sched.h>

static struct pmpi_feature atomics;

/* Number of words for which sharing the lock pays. */
#define MAX_WORDS 8
/* Bytes of one call of MPI_Reduce_local, for which a segment is held. */
#define MAX_COMBINED_BYTES ((size_t)256 << 10)

/* ---- One word ---- */

static inline uint64_t load_word(const void *p, uint64_t size)
{
	switch (size) {
	case 1: return __atomic_load_n((const uint8_t *)p, __ATOMIC_SEQ_CST);
	case 2: return __atomic_load_n((const uint16_t *)p, __ATOMIC_SEQ_CST);
	case 4: return __atomic_load_n((const uint32_t *)p, __ATOMIC_SEQ_CST);
	default: return __atomic_load_n((const uint64_t *)p, __ATOMIC_SEQ_CST);
	}
}

/* Compare and swap: *old is the expected value, and becomes the value that was there. */
static inline bool swap_word(void *p, uint64_t size, uint64_t *old, uint64_t new)
{
	uint8_t a = (uint8_t)*old;
	uint16_t b = (uint16_t)*old;
	uint32_t c = (uint32_t)*old;
	bool good;

	switch (size) {
	case 1:
		good = __atomic_compare_exchange_n((uint8_t *)p, &a, (uint8_t)new, false,
						   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		*old = a;
		return good;
	case 2:
		good = __atomic_compare_exchange_n((uint16_t *)p, &b, (uint16_t)new, false,
						   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		*old = b;
		return good;
	case 4:
		good = __atomic_compare_exchange_n((uint32_t *)p, &c, (uint32_t)new, false,
						   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		*old = c;
		return good;
	default:
		return __atomic_compare_exchange_n((uint64_t *)p, old, new, false,
						   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
}

/* Returns the old value. */
static inline uint64_t update_word(void *p, const struct basic *b, enum op op, uint64_t with)
{
	uint64_t old;

	if (op == OP_SUM && b->kind != KIND_FLOAT && b->size == 8)
		return __atomic_fetch_add((uint64_t *)p, with, __ATOMIC_SEQ_CST);
	if (op == OP_SUM && b->kind != KIND_FLOAT && b->size == 4)
		return __atomic_fetch_add((uint32_t *)p, (uint32_t)with, __ATOMIC_SEQ_CST);
	old = load_word(p, b->size);
	while (op != OP_NO_OP && !swap_word(p, b->size, &old,
					      op_word(b->kind, op, b->size, old, with)))
		;
	return old;
}

/* ---- The lock of atomic operations ---- */

static inline void take_lock(const struct shm *shm, struct target *t, bool exclusive)
{
	bool busy = false;

	while (shm->threads && !atomic_compare_exchange_weak(&t->busy, &busy, true)) {
		busy = false;
		sched_yield();
	}
	if (!t->exclusive)
		nodelock_take(t->atomics, &shm->locks,
			      exclusive ? NODELOCK_EXCLUSIVE : NODELOCK_SHARED);
}

static inline void drop_lock(const struct shm *shm, struct target *t)
{
	if (!t->exclusive)
		nodelock_drop(t->atomics, &shm->locks);
	if (shm->threads)
		atomic_store(&t->busy, false);
}

/*
 * Takes the lock shared, and returns the address of a word, as reach_hold does. If the word is in
 * a segment that is in memory, holding the segment is the barrier between showing that the lock is
 * shared and looking for a rank that wants it exclusively. The thread never waits with a segment
 * held.
 */
static inline __attribute__((always_inline)) char *
lock_word(struct reach *r, uint64_t at, const struct piece *piece, size_t *len)
{
	struct target *t = r->target;
	char *word;

	*len = piece->len;
	if (piece->kind == PIECE_ADDRESS) {
		take_lock(r->shm, t, false);
		return piece->address;
	}
	if (!t->exclusive && !r->shm->threads) {
		nodelock_show(t->atomics, &r->shm->locks);
		word = reach_try_hold(r, at);
		if (word && nodelock_is_shared(t->atomics, &r->shm->locks)) {
			*len = *len < r->hold.len ? *len : r->hold.len;
			return word;
		}
		reach_end(r);
	}
	take_lock(r->shm, t, false);
	return reach_hold(r, at, len);
}

static inline void unlock_word(struct reach *r, const struct shm *shm, struct target *t)
{
	if (r->held)
		umimport_release(&r->hold);
	drop_lock(shm, t);
}

/* ---- A few words ---- */

/*
 * The target, if `n` words at a displacement can be changed by instructions: they are accessible
 * and aligned. Imports begin on pages. *piece: the first piece of the words. NULL: they cannot.
 */
static inline __attribute__((always_inline)) struct target *
find_words(struct window *w, const struct pmpi_operation *o, const struct basic *b, int64_t n,
	   uint64_t *at, struct piece *piece)
{
	uint64_t address;
	struct target *t;

	if (b->kind == KIND_OTHER || n <= 0 || n > MAX_WORDS)
		return NULL;
	t = reach_find_target(w->shm, o->rank, o->disp, (uint64_t)n * b->size, at);
	if (!t || !reach_has_words(t) || !epoch_allows(w, o))
		return NULL;
	*piece = reach_find_piece(t, *at, (uint64_t)n * b->size);
	address = piece->kind == PIECE_ADDRESS ? (uintptr_t)piece->address : piece->there;
	/* Sizes are powers of two: a division would take longer than all else. */
	return (address & (b->size - 1)) == 0 ? t : NULL;
}

/* Changes n words of a type. Returns an MPI code, or LEFT_TO_MPI. */
static inline __attribute__((always_inline)) int
run_words(struct window *w, const struct pmpi_operation *o, MPI_Datatype type, int64_t n,
	  enum op op)
{
	const struct basic *b = type_known(type);
	uint64_t with[MAX_WORDS] = { 0 }, old[MAX_WORDS], at;
	size_t len, done = 0;
	struct basic asked;
	struct piece piece;
	struct target *t;
	struct reach r;
	char *word;

	if (!b)
		b = type_basic(type, &asked) ? &asked : NULL;
	if (!b || !op_suits(b->kind, op))
		return LEFT_TO_MPI;
	t = find_words(w, o, b, n, &at, &piece);
	if (!t)
		return LEFT_TO_MPI;
	for (int64_t i = 0; op != OP_NO_OP && i < n; i++)
		with[i] = word_of((const char *)o->from + (uint64_t)i * b->size, b->size);
	reach_begin(&r, NULL, w->shm, o->rank, op != OP_NO_OP);
	word = lock_word(&r, at, &piece, &len);
	for (int64_t i = 0; word && i < n; i++, word += b->size, done += b->size) {
		if (done == len) {
			len = ((size_t)(n - i)) * b->size;
			word = reach_hold(&r, at + (uint64_t)i * b->size, &len);
			done = 0;
			if (!word)
				break;
		}
		old[i] = update_word(word, b, op, with[i]);
	}
	unlock_word(&r, w->shm, t);
	if (!word)
		return shm_fail(w, o->rank);
	for (int64_t i = 0; o->to && i < n; i++)
		put_word((char *)o->to + (uint64_t)i * b->size, old[i], b->size);
	return MPI_SUCCESS;
}

/* ---- Any number of elements of any type ---- */

/* Copies bytes of the target now. */
static bool copy_now(struct reach *r, uint64_t at, char *bytes, size_t len, bool put)
{
	return reach_copy(r, at, bytes, len, put) && reach_end(r);
}

static void combine(const struct pmpi_operation *o, enum op op, const struct basic *b,
		    const char *from, char *to, char *target, int n)
{
	if (to)
		memcpy(to, target, (size_t)n * (size_t)b->extent);
	op_combine(op, o->op, b, from, target, n);
}

/* Combines an element that spans two pieces or has gaps: `span` bytes are copied here and back. */
static bool combine_apart(struct reach *r, const struct pmpi_operation *o, const struct basic *b,
			  size_t span, const char *from, char *to, uint64_t at)
{
	enum op op = op_of(o->op);
	char word[64];

	if ((size_t)b->extent > sizeof(word)) {
		errno = EINVAL;
		return false;
	}
	if (!copy_now(r, at, word, span, false))
		return false;
	combine(o, op, b, from, to, word, 1);
	return op == OP_NO_OP || copy_now(r, at, word, span, true);
}

/* Combines at most n adjacent elements. Returns their number; 0: they cannot be accessed. */
static int combine_some(struct reach *r, const struct pmpi_operation *o, const struct basic *b,
			size_t span, const char *from, char *to, uint64_t at, uint64_t n)
{
	size_t size = (size_t)b->extent, len;
	char *target;

	if (span != size)
		return combine_apart(r, o, b, span, from, to, at);
	n = n < MAX_COMBINED_BYTES / size ? n : MAX_COMBINED_BYTES / size;
	len = n * size;
	target = reach_hold(r, at, &len);
	if (!target)
		return 0;
	if (len < size)
		return combine_apart(r, o, b, span, from, to, at);
	combine(o, op_of(o->op), b, from, to, target, (int)(len / size));
	return (int)(len / size);
}

static bool combine_all(struct reach *r, const struct pmpi_operation *o, struct items *items,
			const char *from, char *to)
{
	const struct basic *b = &items->at.layout->basic;
	size_t span = basic_has_gaps(b) ? (size_t)layout_of(b->type)->high : b->size;

	for (uint64_t left = items->bytes / b->size; left > 0;) {
		uint64_t len, at = (uint64_t)layout_cursor_address(&items->at, &len);
		uint64_t some = len < b->size ? 1 : len / b->size;
		int n = combine_some(r, o, b, span, from, to, at, some < left ? some : left);

		/* The segment is released, so the owner waits no longer than for these. */
		if (n == 0 || !reach_end(r))
			return false;
		layout_cursor_advance(&items->at, (uint64_t)n * b->size);
		left -= (uint64_t)n;
		from = from ? from + n * b->extent : NULL;
		to = to ? to + n * b->extent : NULL;
	}
	return true;
}

/* Whether both sides have as many elements, and MPI defines the operation for their type. */
static bool is_sound(const struct pmpi_operation *o, const struct items *items, enum op op)
{
	const struct basic *b = &items->at.layout->basic;

	if (items->at.layout->mixed || op == OP_NONE ||
	    (b->kind != KIND_OTHER && !op_suits(b->kind, op)))
		return false;
	if (op != OP_NO_OP && local_size(o->type, o->n) != items->bytes)
		return false;
	return !o->to || local_size(o->to_type, o->to_n) == items->bytes;
}

static int run_locked(struct window *w, const struct pmpi_operation *o, struct items *items,
		      const struct local *from, const struct local *to)
{
	struct reach_buffers buffers;
	struct reach r;
	bool good;

	reach_begin(&r, &buffers, w->shm, o->rank, op_of(o->op) != OP_NO_OP);
	take_lock(w->shm, items->target, true);
	good = combine_all(&r, o, items, from->at, to->at);
	good = reach_end(&r) && good;
	drop_lock(w->shm, items->target);
	return good ? MPI_SUCCESS : shm_fail(w, o->rank);
}

static int run_elements(struct window *w, const struct pmpi_operation *o, enum op op)
{
	struct local from = { 0 }, to = { 0 };
	const struct basic *b;
	struct items items;
	bool good;
	int code;

	if (!epoch_allows(w, o) ||
	    !reach_find_items(w->shm, &items, o->rank, o->disp, o->target_n, o->target_type) ||
	    !is_sound(o, &items, op))
		return LEFT_TO_MPI;
	b = &items.at.layout->basic;
	good = op == OP_NO_OP ||
	       local_take_elements(&from, o->from, o->type, o->n, b,
				   reach_allows(items.target, o->from, items.bytes), true);
	if (good && o->to)
		good = local_take_elements(&to, o->to, o->to_type, o->to_n, b,
					   reach_allows(items.target, o->to, items.bytes), false);
	if (good) {
		code = run_locked(w, o, &items, &from, &to);
		if (code == MPI_SUCCESS && o->to)
			local_return_elements(&to, o->to, o->to_type, o->to_n, b);
	} else {
		errno = ENOMEM;
		code = shm_fail(w, o->rank);
	}
	local_drop(&to);
	local_drop(&from);
	return code;
}

/* ---- Accumulates and fetches ---- */

/* Whether an operation would store to a read-only target. */
static inline bool is_refused(const struct pmpi_operation *o)
{
	return epoch_refuses(window_of(o->win), o) && op_of(o->op) != OP_NO_OP;
}

static inline struct window *find_ours(MPI_Win win)
{
	struct window *w = window_of(win);

	return w && w->shm && w->shm->ours ? w : NULL;
}

/* Whether a side has as many bytes without gaps as the target has words. */
static inline bool is_alike(const struct pmpi_operation *o, MPI_Datatype type, int64_t n)
{
	if (type == o->target_type)
		return n == o->target_n;
	return type_bytes(type, n) == type_bytes(o->target_type, o->target_n);
}

/* Returns an MPI code, or LEFT_TO_MPI. */
static int run(const struct pmpi_operation *o)
{
	struct window *w = find_ours(o->win);
	enum op op = op_of(o->op);
	int code = LEFT_TO_MPI;

	if (is_refused(o))
		return epoch_refuse(o);
	if (!w)
		return LEFT_TO_MPI;
	if (o->target_n <= MAX_WORDS && (op == OP_NO_OP || is_alike(o, o->type, o->n)) &&
	    (!o->to || is_alike(o, o->to_type, o->to_n)))
		code = run_words(w, o, o->target_type, o->target_n, op);
	if (code == LEFT_TO_MPI)
		code = run_elements(w, o, op);
	return code == MPI_SUCCESS ? epoch_finish(w, o) : code;
}

static int accumulate(const struct pmpi_operation *o)
{
	int code = run(o);

	return code == LEFT_TO_MPI ? epoch_leave(o, atomics.next.Accumulate) : code;
}

static int get_accumulate(const struct pmpi_operation *o)
{
	int code = run(o);

	return code == LEFT_TO_MPI ? epoch_leave(o, atomics.next.Get_accumulate) : code;
}

static int fetch_and_op(const struct pmpi_operation *o)
{
	struct window *w = find_ours(o->win);
	struct pmpi_operation whole;
	int code = LEFT_TO_MPI;

	if (is_refused(o))
		return epoch_refuse(o);
	if (w)
		code = run_words(w, o, o->type, 1, op_of(o->op));
	if (code == LEFT_TO_MPI && w) {
		whole = *o;
		whole.n = whole.to_n = whole.target_n = 1;
		whole.to_type = whole.target_type = o->type;
		code = run_elements(w, &whole, op_of(o->op));
	}
	return code == LEFT_TO_MPI ? epoch_leave(o, atomics.next.Fetch_and_op) : code;
}

/* ---- Compare and swap ---- */

/* Size of the largest element that is no number. */
#define MAX_SWAP_BYTES 16

/*
 * Swaps an element that is not an aligned number. The program's memory is not touched while a
 * segment is held.
 */
static int swap_bytes(struct window *w, const struct pmpi_operation *o, size_t size)
{
	char new[MAX_SWAP_BYTES], wanted[MAX_SWAP_BYTES], old[MAX_SWAP_BYTES];
	struct items items;
	struct reach r;
	struct reach_buffers buffers;
	uint64_t at, len;
	bool good;

	if (!epoch_allows(w, o) ||
	    !reach_find_items(w->shm, &items, o->rank, o->disp, 1, o->type))
		return LEFT_TO_MPI;
	at = (uint64_t)layout_cursor_address(&items.at, &len);
	memcpy(new, o->from, size);
	memcpy(wanted, o->compare, size);
	reach_begin(&r, &buffers, w->shm, o->rank, true);
	take_lock(w->shm, items.target, true);
	good = copy_now(&r, at, old, size, false);
	if (good && memcmp(old, wanted, size) == 0)
		good = copy_now(&r, at, new, size, true);
	drop_lock(w->shm, items.target);
	if (good)
		memcpy(o->to, old, size);
	return good ? MPI_SUCCESS : shm_fail(w, o->rank);
}

static int swap(struct window *w, const struct pmpi_operation *o)
{
	const struct basic *b = type_known(o->type);
	uint64_t at, old, new;
	struct basic asked;
	struct piece piece;
	struct target *t;
	struct reach r;
	size_t len;
	char *word;

	if (!b)
		b = type_basic(o->type, &asked) ? &asked : NULL;
	if (!b || b->kind == KIND_FLOAT || basic_has_gaps(b) || b->size > MAX_SWAP_BYTES)
		return LEFT_TO_MPI;
	t = find_words(w, o, b, 1, &at, &piece);
	if (!t)
		return swap_bytes(w, o, b->size);
	old = word_of(o->compare, b->size);
	new = word_of(o->from, b->size);
	reach_begin(&r, NULL, w->shm, o->rank, true);
	word = lock_word(&r, at, &piece, &len);
	if (word)
		swap_word(word, b->size, &old, new);
	unlock_word(&r, w->shm, t);
	if (!word)
		return shm_fail(w, o->rank);
	put_word(o->to, old, b->size);
	return MPI_SUCCESS;
}

static int compare_and_swap(const struct pmpi_operation *o)
{
	struct window *w = find_ours(o->win);
	int code;

	if (epoch_refuses(window_of(o->win), o))
		return epoch_refuse(o);
	code = w ? swap(w, o) : LEFT_TO_MPI;
	return code == LEFT_TO_MPI ? epoch_leave(o, atomics.next.Compare_and_swap) : code;
}

static struct pmpi_feature atomics = {
	.place = PMPI_RMA,
	.take = {
		.Accumulate = accumulate,
		.Get_accumulate = get_accumulate,
		.Fetch_and_op = fetch_and_op,
		.Compare_and_swap = compare_and_swap,
	},
};
PMPI_FEATURE(atomics)
