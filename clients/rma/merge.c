/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Epochs with an operation: the assert of a lock names one, and puts and gets of the epoch combine
 * (thesis, Section 7.4). A put is an accumulate. A get fetches what the target has by an accumulate
 * that changes nothing, and combines that into the origin at once: it is complete when the call
 * returns. Whether a copy, a lock of ours or MPI makes these is for what comes behind this feature,
 * so any window can have such epochs. Where MPI would make an accumulate and its result is known to
 * be wrong (op_is_right), a put combines here, and changes each element by MPI_Compare_and_swap.
 * That needs the displacement unit of the target, on which ranks agree when they make a window.
 * Lock: around the list of them; who has none does not look.
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

/* A window in which some epoch has an operation. */
struct merging {
	struct merging *next;
	MPI_Win win;
	int ranks, epochs;       /* how many ranks there are, and how many of them have one */
	MPI_Op all, *ops;        /* of lock_all, and of each rank; MPI_OP_NULL: none */
};

static pthread_mutex_t lock_of_list = PTHREAD_MUTEX_INITIALIZER;
static struct merging *list;
static atomic_int merging;

static struct merging **find_locked(MPI_Win win)
{
	struct merging **m = &list;

	while (*m && (*m)->win != win)
		m = &(*m)->next;
	return m;
}

/* MPI_OP_NULL: puts and gets are what they always are. */
static inline MPI_Op op_at(MPI_Win win, int rank)
{
	MPI_Op op = MPI_OP_NULL;
	struct merging *m;

	if (!atomic_load_explicit(&merging, memory_order_relaxed))
		return op;
	pthread_mutex_lock(&lock_of_list);
	m = *find_locked(win);
	if (m && rank >= 0 && rank < m->ranks)
		op = m->all != MPI_OP_NULL ? m->all : m->ops[rank];
	pthread_mutex_unlock(&lock_of_list);
	return op;
}

/* ---- Epochs ---- */

static struct merging *new_merging(MPI_Win win)
{
	struct merging *m = calloc(1, sizeof(*m));
	MPI_Group group;

	if (!m || PMPI_Win_get_group(win, &group) != MPI_SUCCESS) {
		free(m);
		return NULL;
	}
	PMPI_Group_size(group, &m->ranks);
	PMPI_Group_free(&group);
	m->win = win;
	m->all = MPI_OP_NULL;
	m->ops = malloc((size_t)m->ranks * sizeof(*m->ops));
	for (int i = 0; m->ops && i < m->ranks; i++)
		m->ops[i] = MPI_OP_NULL;
	if (m->ops)
		return m;
	free(m);
	return NULL;
}

static void forget_locked(struct merging **at)
{
	struct merging *m = *at;

	*at = m->next;
	free(m->ops);
	free(m);
	atomic_fetch_sub(&merging, 1);
}

/* rank -1: all. */
static bool remember(MPI_Win win, int rank, MPI_Op op)
{
	struct merging **at, *m;

	pthread_mutex_lock(&lock_of_list);
	at = find_locked(win);
	if (!*at && (*at = new_merging(win)))
		atomic_fetch_add(&merging, 1);
	m = *at;
	if (m && rank < 0)
		m->all = op;
	else if (m)
		m->ops[rank] = op;
	if (m)
		m->epochs++;
	pthread_mutex_unlock(&lock_of_list);
	return m;
}

static void forget(MPI_Win win, int rank)
{
	struct merging **at, *m;

	if (!atomic_load(&merging))
		return;
	pthread_mutex_lock(&lock_of_list);
	at = find_locked(win);
	m = *at;
	if (m && rank < m->ranks) {
		MPI_Op *op = rank < 0 ? &m->all : &m->ops[rank];

		m->epochs -= *op != MPI_OP_NULL;
		*op = MPI_OP_NULL;
		if (m->epochs == 0)
			forget_locked(at);
	}
	pthread_mutex_unlock(&lock_of_list);
}

static int tell(MPI_Win win, int class, const char *sentence)
{
	struct error e = { 0 };

	error_set(&e, class, "%s", sentence);
	return error_tell_win(win, &e);
}

/* What the assert asks for; MPI_OP_NULL: no operation, or one that there is not. */
static MPI_Op asked(int assert)
{
	const MPI_Op ops[] = UMMPI_OPS;
	int number = (assert & UMMPI_OP_MASK) >> UMMPI_OP_SHIFT;

	return number > 0 && number <= (int)(sizeof(ops) / sizeof(*ops)) ? ops[number - 1] : MPI_OP_NULL;
}

static int no_op(MPI_Win win)
{
	return tell(win, MPI_ERR_OP,
		    "UMMPI_OP: cannot begin the epoch: the operation is neither MPI_REPLACE nor a "
		    "predefined operation of MPI_Reduce");
}

static int no_memory(MPI_Win win)
{
	return tell(win, MPI_ERR_NO_MEM,
		    "UMMPI_OP: cannot allocate the operations of the epoch: not enough memory");
}

static int lock(int type, int rank, int assert, MPI_Win win)
{
	MPI_Op op = asked(assert);
	int code;

	if (!(assert & UMMPI_OP_MASK))
		return merges.next.Win_lock(type, rank, assert, win);
	if (op == MPI_OP_NULL)
		return no_op(win);
	code = merges.next.Win_lock(type, rank, assert & ~UMMPI_OP_MASK, win);
	if (code != MPI_SUCCESS || rank < 0 || remember(win, rank, op))
		return code;
	merges.next.Win_unlock(rank, win);
	return no_memory(win);
}

static int lock_all(int assert, MPI_Win win)
{
	MPI_Op op = asked(assert);
	int code;

	if (!(assert & UMMPI_OP_MASK))
		return merges.next.Win_lock_all(assert, win);
	if (op == MPI_OP_NULL)
		return no_op(win);
	code = merges.next.Win_lock_all(assert & ~UMMPI_OP_MASK, win);
	if (code != MPI_SUCCESS || remember(win, -1, op))
		return code;
	merges.next.Win_unlock_all(win);
	return no_memory(win);
}

static int unlock(int rank, MPI_Win win)
{
	int code = merges.next.Win_unlock(rank, win);

	if (code == MPI_SUCCESS && rank >= 0)
		forget(win, rank);
	return code;
}

static int unlock_all(MPI_Win win)
{
	int code = merges.next.Win_unlock_all(win);

	if (code == MPI_SUCCESS)
		forget(win, -1);
	return code;
}

/* ---- Types ---- */

static bool is_one_of(MPI_Datatype type, const MPI_Datatype *types, size_t n)
{
	size_t i = 0;

	while (i < n && types[i] != type)
		i++;
	return i < n;
}

/*
 * Whether MPI has the operation for a type of KIND_OTHER. Both MPIs end the program where it has not, whatever the window's
 * error handler. A list may have MPI_DATATYPE_NULL, for a type that this MPI was built without.
 */
static bool suits_other(MPI_Datatype type, enum op op)
{
	const MPI_Datatype pairs[] = { MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT, MPI_LONG_DOUBLE_INT,
				       MPI_2REAL, MPI_2DOUBLE_PRECISION, MPI_2INTEGER };
	const MPI_Datatype complex[] = { MPI_C_COMPLEX, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX,
					 MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8, MPI_COMPLEX16, MPI_COMPLEX32,
					 MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX, MPI_CXX_LONG_DOUBLE_COMPLEX };
	const MPI_Datatype logical[] = { MPI_C_BOOL, MPI_CXX_BOOL, MPI_LOGICAL };
	const MPI_Datatype real[] = { MPI_LONG_DOUBLE, MPI_REAL16 };
	const MPI_Datatype text[] = { MPI_CHAR, MPI_WCHAR, MPI_CHARACTER, MPI_PACKED };

	if (op == OP_REPLACE)
		return true;
	if (is_one_of(type, pairs, sizeof(pairs) / sizeof(*pairs)))
		return op == OP_PAIR;
	if (is_one_of(type, complex, sizeof(complex) / sizeof(*complex)))
		return op == OP_SUM || op == OP_PROD;
	if (is_one_of(type, logical, sizeof(logical) / sizeof(*logical)))
		return op == OP_LAND || op == OP_LOR || op == OP_LXOR;
	if (is_one_of(type, real, sizeof(real) / sizeof(*real)))
		return op_suits(KIND_FLOAT, op);
	return op != OP_PAIR && !is_one_of(type, text, sizeof(text) / sizeof(*text));
}

/* The predefined type that both sides are made of, if the operation can be done; NULL: it cannot, and *code says so. */
static const struct basic *type_for(MPI_Op mpi_op, MPI_Datatype type, MPI_Datatype target_type, MPI_Win win, int *code)
{
	const struct layout *l = type == MPI_DATATYPE_NULL ? NULL : layout_of(type);
	const struct layout *target = target_type == MPI_DATATYPE_NULL ? NULL : layout_of(target_type);
	const struct basic *b = target ? &target->basic : NULL;
	enum op op = op_of(mpi_op);

	if (!l || !target || l->mixed || target->mixed || l->basic.type != target->basic.type) {
		*code = tell(win, MPI_ERR_TYPE,
			     "UMMPI_OP: cannot put or get in an epoch with an operation: both "
			     "sides must consist of the same predefined type");
		return NULL;
	}
	if (b->kind == KIND_OTHER ? suits_other(b->type, op) : op_suits(b->kind, op))
		return b;
	*code = tell(win, MPI_ERR_OP,
		     "UMMPI_OP: cannot put or get: MPI does not define the epoch's operation for "
		     "this datatype");
	return NULL;
}

/* ---- Puts and gets ---- */

/*
 * Open MPI 4.1 ends the program at MPI_MAXLOC or MPI_MINLOC on its own windows, and osc/rdma of
 * Open MPI 5 gives wrong results for pairs with gaps. Both cases are refused.
 */
static bool is_beyond_mpi(MPI_Op op, const struct basic *b, MPI_Win win)
{
#ifdef OPEN_MPI
	struct window *w = window_of(win);

	if (w && w->shm && w->shm->ours)
		return false;
	return op_of(op) == OP_PAIR || (basic_has_gaps(b) && !transport_accumulates_right());
#else
	(void)op, (void)b, (void)win;
	return false;
#endif
}

/* ---- Operations that the MPI computes wrongly ---- */

static pthread_once_t unit_once = PTHREAD_ONCE_INIT;
static int unit_key = MPI_KEYVAL_INVALID;

static void make_unit_key(void)
{
	PMPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &unit_key, NULL);
}

/* Collective: keeps the displacement unit with a new window if it is the same at all ranks.
 * Returns an MPI code. */
static int keep_unit(MPI_Win win, MPI_Aint unit, MPI_Comm comm)
{
	int64_t bounds[] = { unit, -(int64_t)unit };
	int code = PMPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_INT64_T, MPI_MAX, comm);

	if (code != MPI_SUCCESS || bounds[0] != -bounds[1])
		return code;
	pthread_once(&unit_once, make_unit_key);
	return PMPI_Win_set_attr(win, unit_key, (void *)(intptr_t)unit);
}

/* The displacement unit of all ranks; 0: it is not known. */
static int64_t unit_of(MPI_Win win)
{
	int *flavor, found = 0;
	void *unit;

	if (PMPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &found) == MPI_SUCCESS && found &&
	    *flavor == MPI_WIN_FLAVOR_DYNAMIC)
		return 1;
	pthread_once(&unit_once, make_unit_key);
	return PMPI_Win_get_attr(win, unit_key, &unit, &found) == MPI_SUCCESS && found ? (int64_t)(intptr_t)unit : 0;
}

/* Whether this file must make a put, because the MPI would compute a wrong result. */
static bool is_beyond_accumulate(MPI_Op op, const struct basic *b, MPI_Win win)
{
	struct window *w = window_of(win);
	enum op number = op_of(op);

	if ((w && w->shm && w->shm->ours) || b->kind == KIND_OTHER)
		return false;
	if (b->kind != KIND_FLOAT && number > OP_NO_OP && !transport_accumulates_right())
		return true;
	return !op_is_right(b, number, op);
}

/* Number of elements that are changed together: one flush completes all their swaps. With many
 * more, osc/pt2pt deadlocks. */
#define MAX_SWAPS 16

/* A put of elements, each by compare-and-swap. */
struct swapping {
	enum op op;
	const struct basic *b;
	int rank;
	MPI_Aint disp;
	int64_t unit;
	MPI_Win win;
	struct layout_cursor at;          /* the next element of the target */
	const char *mine;          /* ... of the origin */
	char *there;               /* ... as it was fetched */
};

/* One element of a round. */
struct swap {
	MPI_Aint disp;
	uint64_t mine, old, new, found;
};

static bool place_swaps(struct swapping *s, struct swap *swaps, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t len;
		int64_t from = layout_cursor_address(&s->at, &len);

		if (s->unit == 0 ? from != 0 : from % s->unit != 0)
			return false;
		swaps[i].disp = s->disp + (s->unit ? from / s->unit : 0);
		swaps[i].mine = word_of(s->mine, s->b->size);
		swaps[i].old = word_of(s->there, s->b->size);
		s->mine += s->b->size;
		s->there += s->b->size;
		layout_cursor_advance(&s->at, s->b->size);
	}
	return true;
}

/* Repeats each swap until no other rank has changed the element in between. */
static int make_swaps(const struct swapping *s, struct swap *swaps, size_t n)
{
	const uint64_t size = s->b->size;
	int code = MPI_SUCCESS;

	while (n > 0 && code == MPI_SUCCESS) {
		size_t left = 0;

		for (size_t i = 0; i < n && code == MPI_SUCCESS; i++) {
			put_word(&swaps[i].new, op_word(s->b->kind, s->op, size, swaps[i].old, swaps[i].mine), size);
			code = merges.next.Compare_and_swap(&swaps[i].new, &swaps[i].old, &swaps[i].found, s->b->type, s->rank,
							    swaps[i].disp, s->win);
		}
		if (code == MPI_SUCCESS)
			code = merges.next.Win_flush(s->rank, s->win);
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
	struct swap *swaps = calloc(elements < MAX_SWAPS ? elements : MAX_SWAPS, sizeof(*swaps));
	int code = swaps ? MPI_SUCCESS : no_memory(s->win);

	for (uint64_t done = 0, n; done < elements && code == MPI_SUCCESS; done += n) {
		n = elements - done < MAX_SWAPS ? elements - done : MAX_SWAPS;
		if (place_swaps(s, swaps, n))
			code = make_swaps(s, swaps, n);
		else
			code = tell(s->win, MPI_ERR_DISP, "UMMPI_OP: cannot put several elements: this MPI computes the "
				    "operation wrongly, and the displacement unit of the window "
				    "does not divide their positions. Try a unit of 1 byte, or of "
				    "the elements' size, at all ranks");
	}
	free(swaps);
	return code;
}

static int fetch(void *there, MPI_Count elements, const struct basic *b, int rank, MPI_Aint disp, MPI_Count target_n,
		 MPI_Datatype target_type, MPI_Win win);

static int put_by_swaps(MPI_Op op, const struct basic *b, const void *from, MPI_Count n, MPI_Datatype type, int rank,
			MPI_Aint disp, MPI_Count target_n, MPI_Datatype target_type, MPI_Win win)
{
	uint64_t elements = local_size(type, n) / b->size;
	struct swapping s = { .op = op_of(op), .b = b, .rank = rank, .disp = disp, .unit = unit_of(win), .win = win,
			      .at = layout_cursor_begin(layout_of(target_type), 0, target_n) };
	char *there = calloc(elements + 1, b->size);
	struct local here;
	int code;

	/* The MPI handles empty puts, and puts whose sizes differ on the two sides. */
	if (elements == 0 || rank == MPI_PROC_NULL || local_size(target_type, target_n) != elements * b->size) {
		free(there);
		return merges.next.Accumulate(from, n, type, rank, disp, target_n, target_type, op, win);
	}
	if (!there || !local_take_elements(&here, from, type, n, b, true, true)) {
		free(there);
		return no_memory(win);
	}
	code = fetch(there, (MPI_Count)elements, b, rank, disp, target_n, target_type, win);
	s.mine = here.at;
	s.there = there;
	if (code == MPI_SUCCESS)
		code = swap_elements(&s, elements);
	local_drop(&here);
	free(there);
	return code;
}

/* The type of the elements; NULL: the put cannot be made, and *code says why. */
static const struct basic *type_of_put(MPI_Op op, MPI_Datatype type, MPI_Datatype target_type, MPI_Win win, int *code)
{
	const struct basic *b = type_for(op, type, target_type, win, code);

	if (!b || !is_beyond_mpi(op, b, win))
		return b;
	*code = tell(win, MPI_ERR_OP, "UMMPI_OP: cannot put pairs: Open MPI cannot combine them in a "
		    "window of its own");
	return NULL;
}

static int put(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
	       MPI_Datatype target_type, MPI_Win win)
{
	MPI_Op op = op_at(win, rank);
	const struct basic *b;
	int code;

	if (op == MPI_OP_NULL)
		return merges.next.Put(from, n, type, rank, disp, target_n, target_type, win);
	b = type_of_put(op, type, target_type, win, &code);
	if (!b)
		return code;
	if (is_beyond_accumulate(op, b, win))
		return put_by_swaps(op, b, from, n, type, rank, disp, target_n,
				    target_type, win);
	return merges.next.Accumulate(from, n, type, rank, disp, target_n, target_type, op, win);
}

static int rput(const void *from, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
	MPI_Op op = op_at(win, rank);
	const struct basic *b;
	int code;

	if (op == MPI_OP_NULL)
		return merges.next.Rput(from, n, type, rank, disp, target_n, target_type, win, request);
	b = type_of_put(op, type, target_type, win, &code);
	if (!b)
		return code;
	if (is_beyond_accumulate(op, b, win)) {
		code = put_by_swaps(op, b, from, n, type, rank, disp, target_n,
				    target_type, win);
		return code == MPI_SUCCESS ? request_complete(NULL, request) : code;
	}
	return merges.next.Raccumulate(from, n, type, rank, disp, target_n, target_type, op, win, request);
}

/* What the target has, in elements. */
static int fetch(void *there, MPI_Count elements, const struct basic *b, int rank, MPI_Aint disp, MPI_Count target_n,
		 MPI_Datatype target_type, MPI_Win win)
{
	int code = merges.next.Get_accumulate(NULL, 0, b->type, there, elements, b->type, rank, disp, target_n, target_type,
					      MPI_NO_OP, win);

	return code == MPI_SUCCESS ? merges.next.Win_flush_local(rank, win) : code;
}

/* Elements of both sides, as they are in memory: `there` is combined into `here`. MPI counts in ints. */
static void combine(MPI_Op op, const struct basic *b, const char *there, char *here, uint64_t elements)
{
	const uint64_t most = 1 << 20;

	for (uint64_t done = 0, n; done < elements; done += n) {
		n = elements - done < most ? elements - done : most;
		op_combine(op_of(op), op, b, there + done * (uint64_t)b->extent, here + done * (uint64_t)b->extent, (int)n);
	}
}

static int merge(MPI_Op op, void *to, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		 MPI_Datatype target_type, MPI_Win win)
{
	uint64_t elements, bytes = local_size(type, n);
	const struct basic *b;
	struct local here;
	char *there;
	int code;

	b = type_for(op, type, target_type, win, &code);
	if (!b || bytes == 0)
		return b ? merges.next.Get(to, n, type, rank, disp, target_n, target_type, win) : code;
	elements = bytes / b->size;
	there = calloc(elements, (size_t)b->extent);
	if (!there || !local_take_elements(&here, to, type, n, b, true, true)) {
		free(there);
		return no_memory(win);
	}
	code = fetch(there, (MPI_Count)elements, b, rank, disp, target_n, target_type, win);
	if (code == MPI_SUCCESS) {
		combine(op, b, there, here.at, elements);
		local_return_elements(&here, to, type, n, b);
	}
	local_drop(&here);
	free(there);
	return code;
}

static int get(void *to, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
	       MPI_Datatype target_type, MPI_Win win)
{
	MPI_Op op = op_at(win, rank);

	if (op == MPI_OP_NULL)
		return merges.next.Get(to, n, type, rank, disp, target_n, target_type, win);
	return merge(op, to, n, type, rank, disp, target_n, target_type, win);
}

static int rget(void *to, MPI_Count n, MPI_Datatype type, int rank, MPI_Aint disp, MPI_Count target_n,
		MPI_Datatype target_type, MPI_Win win, MPI_Request *request)
{
	MPI_Op op = op_at(win, rank);
	int code;

	if (op == MPI_OP_NULL)
		return merges.next.Rget(to, n, type, rank, disp, target_n, target_type, win, request);
	code = merge(op, to, n, type, rank, disp, target_n, target_type, win);
	return code == MPI_SUCCESS ? request_complete(NULL, request) : code;
}

/* ---- New windows ---- */

static int create(void *base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)
{
	int code = merges.next.Win_create(base, size, unit, info, comm, win);

	return code == MPI_SUCCESS ? keep_unit(*win, unit, comm) : code;
}

static int allocate(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	int code = merges.next.Win_allocate(size, unit, info, comm, base, win);

	return code == MPI_SUCCESS ? keep_unit(*win, unit, comm) : code;
}

static int allocate_shared(MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win)
{
	int code = merges.next.Win_allocate_shared(size, unit, info, comm, base, win);

	return code == MPI_SUCCESS ? keep_unit(*win, unit, comm) : code;
}

static struct pmpi_feature merges = {
	.place = PMPI_MERGES,
	.take = {
		.Win_create = create,
		.Win_allocate = allocate,
		.Win_allocate_shared = allocate_shared,
		.Win_lock = lock,
		.Win_lock_all = lock_all,
		.Win_unlock = unlock,
		.Win_unlock_all = unlock_all,
		.Put = put,
		.Rput = rput,
		.Get = get,
		.Rget = rget,
	},
};
PMPI_FEATURE(merges)

/* For Fortran, whose handles are numbers. */
int ummpi_op_(const MPI_Fint *op) __attribute__((visibility("default")));
int ummpi_op_(const MPI_Fint *op)
{
	return ummpi_op(PMPI_Op_f2c(*op));
}
