/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Epochs with an operation: the assert of a lock names one, and puts and gets of the epoch combine
 * (thesis, Section 7.4). A put is an accumulate. A get fetches the target's elements by an
 * accumulate that changes nothing, and combines them into the origin at once: it is complete when
 * the call returns. The features behind this one decide how these are made, so any window can have
 * such epochs. Where MPI would make an accumulate and its result is known to be wrong
 * (op_is_right), a put combines here, and changes each element by MPI_Compare_and_swap. That needs
 * the displacement unit of the target, on which ranks agree when they make a window.
 * Takes no lock: an attribute of the window has its operations, one for each target.
 */
#include "pmpi/error.h"
#include "pmpi/pmpi.h"
#include "pmpi/request.h"
#include "rma/local.h"
#include "rma/operation.h"
#include "rma/shm.h"
#include "transport/engine.h"
#include "window/window.h"

#include <pthread.h>
#include <stdlib.h>
#include <ummap-mpi.h>

static struct pmpi_feature merges;

/* The attribute of a window. */
struct merging {
	int64_t unit;            /* displacement unit of all ranks; 0: they have several */
	int ranks;               /* number of ranks */
	MPI_Op all;              /* operation of MPI_Win_lock_all; MPI_OP_NULL: none */
	MPI_Op ops[];            /* operation of each rank's lock */
};

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static int key = MPI_KEYVAL_INVALID;

/* Number of epochs with an operation, in all windows. If it is 0, puts and gets do not look for
 * their window's attribute. */
static atomic_int epochs;

/* Returns NULL if the window has no attribute, because memory was short. */
static struct merging *find_merging(MPI_Win win)
{
	void *m;
	int found;

	if (key == MPI_KEYVAL_INVALID)
		return NULL;
	return PMPI_Win_get_attr(win, key, &m, &found) == MPI_SUCCESS && found ? m : NULL;
}

/* Returns the address of the operation of a rank's lock, or of MPI_Win_lock_all if the rank is -1.
 * Returns NULL if the window has no memory for operations. */
static MPI_Op *find_op(MPI_Win win, int rank)
{
	struct merging *m = find_merging(win);

	if (!m || rank >= m->ranks)
		return NULL;
	return rank < 0 ? &m->all : &m->ops[rank];
}

/* Returns the operation of puts and gets, or MPI_OP_NULL if the epoch has none. */
static inline MPI_Op op_at(MPI_Win win, int rank)
{
	struct merging *m;

	if (!atomic_load_explicit(&epochs, memory_order_relaxed) || rank < 0)
		return MPI_OP_NULL;
	m = find_merging(win);
	if (!m || rank >= m->ranks)
		return MPI_OP_NULL;
	return m->all != MPI_OP_NULL ? m->all : m->ops[rank];
}

/* ---- New windows ---- */

static int free_merging(MPI_Win win, int keyval, void *value, void *extra)
{
	(void)win, (void)keyval, (void)extra;
	free(value);
	return MPI_SUCCESS;
}

static void make_key(void)
{
	PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, free_merging, &key, NULL);
}

/* Gives a new window its attribute. */
static int add_merging(MPI_Win win, int64_t unit, MPI_Comm comm)
{
	struct merging *m;
	int ranks;

	PMPI_Comm_size(comm, &ranks);
	m = malloc(sizeof(*m) + (size_t)ranks * sizeof(MPI_Op));
	if (!m)
		return MPI_SUCCESS;
	*m = (struct merging){ .unit = unit, .ranks = ranks, .all = MPI_OP_NULL };
	for (int i = 0; i < ranks; i++)
		m->ops[i] = MPI_OP_NULL;
	pthread_once(&key_once, make_key);
	return PMPI_Win_set_attr(win, key, m);
}

/* Collective, if a window has been made: agrees on the displacement unit. Returns an MPI code. */
static int agree_on_unit(int code, const MPI_Win *win, MPI_Aint unit, MPI_Comm comm)
{
	int64_t bounds[] = { unit, -(int64_t)unit };

	if (code == MPI_SUCCESS)
		code = PMPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_INT64_T, MPI_MAX, comm);
	if (code != MPI_SUCCESS)
		return code;
	return add_merging(*win, bounds[0] == -bounds[1] ? unit : 0, comm);
}

static int create(void *base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm,
		  MPI_Win *win)
{
	return agree_on_unit(merges.next.Win_create(base, size, unit, info, comm, win), win, unit,
			     comm);
}

static int create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	int code = merges.next.Win_create_dynamic(info, comm, win);

	return code == MPI_SUCCESS ? add_merging(*win, 1, comm) : code;
}

static int allocate(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
		    MPI_Win *win)
{
	return agree_on_unit(merges.next.Win_allocate(size, unit, info, comm, base, win), win, unit,
			     comm);
}

static int allocate_shared(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base,
			   MPI_Win *win)
{
	return agree_on_unit(merges.next.Win_allocate_shared(size, unit, info, comm, base, win),
			     win, unit, comm);
}

/* ---- Epochs ---- */

static int report_error(MPI_Win win, int class, const char *sentence)
{
	struct error e = { 0 };

	error_set(&e, class, "UMMPI_OP: %s", sentence);
	return error_tell_win(win, &e);
}

static int report_no_memory(MPI_Win win)
{
	return report_error(win, MPI_ERR_NO_MEM,
			    "cannot allocate the operations of the epoch: not enough memory");
}

/* Returns the operation that the assert names. Reports an unknown one, and returns MPI_OP_NULL. */
static MPI_Op find_named_op(int assert, MPI_Win win, int *code)
{
	const MPI_Op ops[] = UMMPI_OPS;
	int number = (assert & UMMPI_OP_MASK) >> UMMPI_OP_SHIFT;

	if (number > 0 && number <= (int)(sizeof(ops) / sizeof(*ops)))
		return ops[number - 1];
	*code = report_error(win, MPI_ERR_OP,
			     "cannot begin the epoch: the operation is neither MPI_REPLACE nor a "
			     "predefined operation of MPI_Reduce");
	return MPI_OP_NULL;
}

/* Sets the operation of an epoch that has begun. Returns false if the window has no memory for
 * it. */
static bool set_op(MPI_Win win, int rank, MPI_Op op)
{
	MPI_Op *at = find_op(win, rank);

	if (!at)
		return false;
	if (*at == MPI_OP_NULL)
		atomic_fetch_add(&epochs, 1);
	*at = op;
	return true;
}

static void clear_op(MPI_Win win, int rank)
{
	MPI_Op *at = atomic_load(&epochs) ? find_op(win, rank) : NULL;

	if (!at || *at == MPI_OP_NULL)
		return;
	*at = MPI_OP_NULL;
	atomic_fetch_sub(&epochs, 1);
}

static int lock(int type, int rank, int assert, MPI_Win win)
{
	MPI_Op op;
	int code;

	if (!(assert & UMMPI_OP_MASK))
		return merges.next.Win_lock(type, rank, assert, win);
	op = find_named_op(assert, win, &code);
	if (op == MPI_OP_NULL)
		return code;
	code = merges.next.Win_lock(type, rank, assert & ~UMMPI_OP_MASK, win);
	if (code != MPI_SUCCESS || rank < 0 || set_op(win, rank, op))
		return code;
	merges.next.Win_unlock(rank, win);
	return report_no_memory(win);
}

static int lock_all(int assert, MPI_Win win)
{
	MPI_Op op;
	int code;

	if (!(assert & UMMPI_OP_MASK))
		return merges.next.Win_lock_all(assert, win);
	op = find_named_op(assert, win, &code);
	if (op == MPI_OP_NULL)
		return code;
	code = merges.next.Win_lock_all(assert & ~UMMPI_OP_MASK, win);
	if (code != MPI_SUCCESS || set_op(win, -1, op))
		return code;
	merges.next.Win_unlock_all(win);
	return report_no_memory(win);
}

static int unlock(int rank, MPI_Win win)
{
	int code = merges.next.Win_unlock(rank, win);

	if (code == MPI_SUCCESS && rank >= 0)
		clear_op(win, rank);
	return code;
}

static int unlock_all(MPI_Win win)
{
	int code = merges.next.Win_unlock_all(win);

	if (code == MPI_SUCCESS)
		clear_op(win, -1);
	return code;
}

/* ---- Types ---- */

/*
 * Whether MPI defines the operation for a type of KIND_OTHER. If not, both MPIs would end the
 * program, whatever the window's error handler. A list may have MPI_DATATYPE_NULL, for a type that
 * this MPI was built without.
 */
static bool suits_other(MPI_Datatype type, enum op op)
{
	const MPI_Datatype pairs[] = {
		MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT,
		MPI_LONG_DOUBLE_INT, MPI_2REAL, MPI_2DOUBLE_PRECISION, MPI_2INTEGER,
	};
	const MPI_Datatype complex[] = {
		MPI_C_COMPLEX, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX,
		MPI_C_LONG_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8,
		MPI_COMPLEX16, MPI_COMPLEX32, MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX,
		MPI_CXX_LONG_DOUBLE_COMPLEX,
	};
	const MPI_Datatype logical[] = { MPI_C_BOOL, MPI_CXX_BOOL, MPI_LOGICAL };
	const MPI_Datatype real[] = { MPI_LONG_DOUBLE, MPI_REAL16 };
	const MPI_Datatype text[] = { MPI_CHAR, MPI_WCHAR, MPI_CHARACTER, MPI_PACKED };

	if (op == OP_REPLACE)
		return true;
	if (type_is_one_of(type, pairs, sizeof(pairs) / sizeof(*pairs)))
		return op == OP_PAIR;
	if (type_is_one_of(type, complex, sizeof(complex) / sizeof(*complex)))
		return op == OP_SUM || op == OP_PROD;
	if (type_is_one_of(type, logical, sizeof(logical) / sizeof(*logical)))
		return op == OP_LAND || op == OP_LOR || op == OP_LXOR;
	if (type_is_one_of(type, real, sizeof(real) / sizeof(*real)))
		return op_suits(KIND_FLOAT, op);
	return op != OP_PAIR && !type_is_one_of(type, text, sizeof(text) / sizeof(*text));
}

/* Returns the predefined type of both sides, if MPI defines the operation for it. Otherwise reports
 * an error, sets *code, and returns NULL. */
static const struct basic *find_basic(const struct pmpi_operation *o, MPI_Datatype type, int *code)
{
	const struct layout *l = layout_of(type), *target = layout_of(o->target_type);
	const struct basic *b = target ? &target->basic : NULL;
	enum op op = op_of(o->op);

	if (!l || !target || l->mixed || target->mixed || l->basic.type != b->type) {
		*code = report_error(o->win, MPI_ERR_TYPE,
				     "cannot put or get in an epoch with an operation: both sides "
				     "must consist of the same predefined type");
		return NULL;
	}
	if (b->kind == KIND_OTHER ? suits_other(b->type, op) : op_suits(b->kind, op))
		return b;
	*code = report_error(o->win, MPI_ERR_OP,
			     "cannot put or get: MPI does not define the epoch's operation for "
			     "this datatype");
	return NULL;
}

/* ---- Operations that the MPI computes wrongly ---- */

static bool is_ours(MPI_Win win)
{
	const struct window *w = window_of(win);

	return w && w->shm && w->shm->ours;
}

/*
 * Open MPI 4.1 ends the program at MPI_MAXLOC or MPI_MINLOC on its own windows, and osc/rdma of
 * Open MPI 5 gives wrong results for pairs with gaps. Both cases are refused.
 */
static bool is_beyond_mpi(const struct pmpi_operation *o, const struct basic *b)
{
#ifdef OPEN_MPI
	return !is_ours(o->win) && (op_of(o->op) == OP_PAIR ||
				    (basic_has_gaps(b) && !transport_accumulates_right()));
#else
	(void)o, (void)b;
	return false;
#endif
}

/* Whether this file must make a put, because the MPI would compute a wrong result. */
static bool is_beyond_accumulate(const struct pmpi_operation *o, const struct basic *b)
{
	enum op op = op_of(o->op);

	if (is_ours(o->win) || b->kind == KIND_OTHER)
		return false;
	if (b->kind != KIND_FLOAT && op > OP_NO_OP && !transport_accumulates_right())
		return true;
	return !op_is_right(b, op, o->op);
}

/*
 * Number of elements that are changed together: one flush completes all their swaps. With many
 * more, osc/pt2pt deadlocks.
 */
#define MAX_SWAPS 16

/* A put of elements, each by compare-and-swap. */
struct swapping {
	const struct pmpi_operation *put; /* the put */
	const struct basic *b;            /* type of the elements */
	int64_t unit;                     /* displacement unit */
	struct layout_cursor at;          /* the next element of the target */
	const char *origin;               /* the next element of the origin */
	char *fetched;                    /* the next element of the target, as it was fetched */
};

/* One element of a round. */
struct swap {
	MPI_Aint disp;                    /* its displacement */
	uint64_t origin;                  /* element of the origin */
	uint64_t old, new, found;         /* target: expected, wanted and found values */
};

/* Prepares n swaps. Returns false if the unit does not divide their positions. */
static bool place_swaps(struct swapping *s, struct swap *swaps, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t len;
		int64_t from = layout_cursor_address(&s->at, &len);

		if (s->unit == 0 ? from != 0 : from % s->unit != 0)
			return false;
		swaps[i].disp = s->put->disp + (s->unit ? from / s->unit : 0);
		swaps[i].origin = word_of(s->origin, s->b->size);
		swaps[i].old = word_of(s->fetched, s->b->size);
		s->origin += s->b->size;
		s->fetched += s->b->size;
		layout_cursor_advance(&s->at, s->b->size);
	}
	return true;
}

/* Repeats each swap until no other rank has changed the element in between. */
static int make_swaps(const struct swapping *s, struct swap *swaps, size_t n)
{
	struct pmpi_operation o = { .type = s->b->type, .rank = s->put->rank, .win = s->put->win };
	const uint64_t size = s->b->size;
	int code = MPI_SUCCESS;

	while (n > 0 && code == MPI_SUCCESS) {
		size_t left = 0;

		for (size_t i = 0; i < n && code == MPI_SUCCESS; i++) {
			put_word(&swaps[i].new, op_word(s->b->kind, op_of(s->put->op), size,
							swaps[i].old, swaps[i].origin), size);
			o.from = &swaps[i].new;
			o.compare = &swaps[i].old;
			o.to = &swaps[i].found;
			o.disp = swaps[i].disp;
			code = merges.next.Compare_and_swap(&o);
		}
		if (code == MPI_SUCCESS)
			code = merges.next.Win_flush(o.rank, o.win);
		for (size_t i = 0; i < n; i++) {
			if (word_of(&swaps[i].found, size) == word_of(&swaps[i].old, size))
				continue;
			swaps[left] = swaps[i];
			swaps[left].old = word_of(&swaps[i].found, size);
			left++;
		}
		n = left;
	}
	return code;
}

static int swap_elements(struct swapping *s, uint64_t elements)
{
	struct swap swaps[MAX_SWAPS] = { 0 };
	int code = MPI_SUCCESS;

	for (uint64_t done = 0, n; done < elements && code == MPI_SUCCESS; done += n) {
		n = elements - done < MAX_SWAPS ? elements - done : MAX_SWAPS;
		if (place_swaps(s, swaps, n))
			code = make_swaps(s, swaps, n);
		else
			code = report_error(s->put->win, MPI_ERR_DISP,
					    "cannot put several elements: this MPI computes the "
					    "operation wrongly, and the displacement unit of the "
					    "window does not divide their positions. Try a unit of "
					    "1 byte, or of the elements' size, at all ranks");
	}
	return code;
}

/* Fetches the target's elements. */
static int fetch(const struct pmpi_operation *o, const struct basic *b, void *fetched, uint64_t n)
{
	struct pmpi_operation fetch = *o;
	int code;

	fetch.from = NULL;
	fetch.n = 0;
	fetch.to = fetched;
	fetch.to_n = (MPI_Count)n;
	fetch.type = fetch.to_type = b->type;
	fetch.op = MPI_NO_OP;
	fetch.request = NULL;
	code = merges.next.Get_accumulate(&fetch);
	return code == MPI_SUCCESS ? merges.next.Win_flush_local(o->rank, o->win) : code;
}

static int put_by_swaps(const struct pmpi_operation *o, const struct basic *b, uint64_t elements)
{
	const struct merging *m = find_merging(o->win);
	struct swapping s = { .put = o, .b = b, .unit = m ? m->unit : 0 };
	char *fetched = calloc(elements, b->size);
	struct local here = { 0 };
	int code;

	s.at = layout_cursor_begin(layout_of(o->target_type), 0, o->target_n);
	if (fetched && local_take_elements(&here, o->from, o->type, o->n, b, true, true)) {
		code = fetch(o, b, fetched, elements);
		s.origin = here.at;
		s.fetched = fetched;
		if (code == MPI_SUCCESS)
			code = swap_elements(&s, elements);
	} else {
		code = report_no_memory(o->win);
	}
	local_drop(&here);
	free(fetched);
	return code;
}

/* ---- Puts and gets ---- */

static int finish(const struct pmpi_operation *o, int code)
{
	return code == MPI_SUCCESS && o->request ? request_complete(NULL, o->request) : code;
}

static int put(const struct pmpi_operation *put)
{
	struct pmpi_operation o;
	const struct basic *b;
	uint64_t bytes;
	int code;

	if (op_at(put->win, put->rank) == MPI_OP_NULL)
		return merges.next.Put(put);
	o = *put;
	o.op = op_at(put->win, put->rank);
	b = find_basic(&o, o.type, &code);
	if (!b)
		return code;
	if (is_beyond_mpi(&o, b))
		return report_error(o.win, MPI_ERR_OP,
				    "cannot put pairs: Open MPI cannot combine them in a window of "
				    "its own");
	bytes = local_size(o.type, o.n);
	/* The MPI handles empty puts, and puts whose sizes differ on the two sides. */
	if (bytes && bytes == local_size(o.target_type, o.target_n) && is_beyond_accumulate(&o, b))
		return finish(&o, put_by_swaps(&o, b, bytes / b->size));
	return merges.next.Accumulate(&o);
}

/* Combines elements of the target into those of the origin. MPI counts in ints. */
static void combine(const struct pmpi_operation *o, const struct basic *b, const char *fetched,
		    char *here, uint64_t elements)
{
	const uint64_t max_elements = 1 << 20, extent = (uint64_t)b->extent;

	for (uint64_t done = 0, n; done < elements; done += n) {
		n = elements - done < max_elements ? elements - done : max_elements;
		op_combine(op_of(o->op), o->op, b, fetched + done * extent, here + done * extent,
			   (int)n);
	}
}

static int get(const struct pmpi_operation *get)
{
	uint64_t elements, bytes = 0;
	struct pmpi_operation o;
	struct local here = { 0 };
	const struct basic *b;
	char *fetched;
	int code;

	if (op_at(get->win, get->rank) == MPI_OP_NULL)
		return merges.next.Get(get);
	o = *get;
	o.op = op_at(get->win, get->rank);
	b = find_basic(&o, o.to_type, &code);
	bytes = b ? local_size(o.to_type, o.to_n) : 0;
	if (!bytes)
		return b ? merges.next.Get(get) : code;
	elements = bytes / b->size;
	fetched = calloc(elements, (size_t)b->extent);
	if (fetched && local_take_elements(&here, o.to, o.to_type, o.to_n, b, true, true)) {
		code = fetch(&o, b, fetched, elements);
		if (code == MPI_SUCCESS) {
			combine(&o, b, fetched, here.at, elements);
			local_return_elements(&here, o.to, o.to_type, o.to_n, b);
		}
	} else {
		code = report_no_memory(o.win);
	}
	local_drop(&here);
	free(fetched);
	return finish(&o, code);
}

static struct pmpi_feature merges = {
	.place = PMPI_MERGES,
	.take = {
		.Win_create = create,
		.Win_create_dynamic = create_dynamic,
		.Win_allocate = allocate,
		.Win_allocate_shared = allocate_shared,
		.Win_lock = lock,
		.Win_lock_all = lock_all,
		.Win_unlock = unlock,
		.Win_unlock_all = unlock_all,
		.Put = put,
		.Get = get,
	},
};
PMPI_FEATURE(merges)

/* For Fortran, whose handles are numbers. */
int ummpi_op_(const MPI_Fint *op) __attribute__((visibility("default")));
int ummpi_op_(const MPI_Fint *op)
{
	return ummpi_op(PMPI_Op_f2c(*op));
}
