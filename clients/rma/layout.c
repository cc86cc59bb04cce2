/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datatypes, taken apart by what MPI says of how they were made. What is learnt of a type is an attribute of it, so that it
 * goes with the type: a handle may be another type's later. Lock: while one is learnt.
 */
#include "rma/layout.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Blocks of one item; a type of more is for MPI. */
#define MOST_BLOCKS ((size_t)1 << 24)

struct list {
	struct block *blocks;
	size_t n, room;
	bool mixed, any;
	struct basic basic;
};

/* The arguments that a type was made of. */
struct contents {
	int *ints;
	MPI_Aint *addresses;
	MPI_Datatype *types;
	int n_types;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int keyval = MPI_KEYVAL_INVALID;

static bool flatten(MPI_Datatype type, struct list *l);

/* ---- Lists of blocks ---- */

static bool grow(struct list *l)
{
	size_t room = l->room ? 2 * l->room : 8;
	struct block *more = room <= MOST_BLOCKS ? realloc(l->blocks, room * sizeof(*more)) : NULL;

	if (!more)
		return false;
	l->blocks = more;
	l->room = room;
	return true;
}

static bool add(struct list *l, int64_t at, uint64_t len)
{
	struct block *last = l->n ? &l->blocks[l->n - 1] : NULL;

	if (len == 0)
		return true;
	if (last && last->at + (int64_t)last->len == at) {
		last->len += len;
		return true;
	}
	if (l->n == l->room && !grow(l))
		return false;
	l->blocks[l->n++] = (struct block){ at, len };
	return true;
}

/* What an item is made of: one type of MPI's, or several. */
static void note_basic(struct list *l, const struct list *item)
{
	l->mixed = l->mixed || item->mixed || (l->any && item->any && l->basic.type != item->basic.type);
	if (!l->any && item->any)
		l->basic = item->basic;
	l->any = l->any || item->any;
}

/* n items, the first at `at`, `step` bytes from one to the next. */
static bool add_items(struct list *l, const struct list *item, int64_t extent, int64_t at, int64_t n)
{
	if (n > 0)
		note_basic(l, item);
	if (item->n == 1 && item->blocks[0].len == (uint64_t)extent)
		return n <= 0 || add(l, at + item->blocks[0].at, (uint64_t)n * item->blocks[0].len);
	for (int64_t k = 0; k < n; k++) {
		for (size_t b = 0; b < item->n; b++) {
			if (!add(l, at + k * extent + item->blocks[b].at, item->blocks[b].len))
				return false;
		}
	}
	return true;
}

/* ---- Predefined types ---- */

/* Where the second of a pair is; 0: it is no pair. */
static int64_t second_of(MPI_Datatype type, uint64_t *first)
{
	struct { float a; int b; } f;
	struct { double a; int b; } d;
	struct { long a; int b; } l;
	struct { short a; int b; } s;
	struct { long double a; int b; } e;
	const struct { MPI_Datatype type; const void *begin, *second; size_t first; } pairs[] = {
		{ MPI_FLOAT_INT, &f, &f.b, sizeof(f.a) }, { MPI_DOUBLE_INT, &d, &d.b, sizeof(d.a) },
		{ MPI_LONG_INT, &l, &l.b, sizeof(l.a) }, { MPI_SHORT_INT, &s, &s.b, sizeof(s.a) },
		{ MPI_LONG_DOUBLE_INT, &e, &e.b, sizeof(e.a) },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		if (pairs[i].type != type)
			continue;
		*first = pairs[i].first;
		return (const char *)pairs[i].second - (const char *)pairs[i].begin;
	}
	return 0;
}

static bool add_named(MPI_Datatype type, struct list *l)
{
	uint64_t first;
	int64_t second = second_of(type, &first);

	l->any = type_basic(type, &l->basic);
	if (!l->any)
		return false;
	return second ? add(l, 0, first) && add(l, second, sizeof(int)) : add(l, 0, l->basic.size);
}

/* ---- Derived types ---- */

/* The base, once, and where it is repeated. */
struct base {
	struct list item;
	int64_t extent;
};

static bool take_base(MPI_Datatype type, struct base *b)
{
	MPI_Aint low, extent;

	*b = (struct base){ 0 };
	if (PMPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS || !flatten(type, &b->item)) {
		free(b->item.blocks);
		return false;
	}
	b->extent = extent;
	return true;
}

/* A place of an array, dimension by dimension, the slowest first: which of its indices belong to the type. */
struct dimension {
	int64_t size;            /* of the array */
	int *index;
	int64_t n;
};

static bool add_array(struct list *l, const struct base *b, const struct dimension *d, int dims, int64_t at)
{
	int64_t i = 0, run;

	if (dims == 0)
		return add_items(l, &b->item, b->extent, at * b->extent, 1);
	for (; i < d->n; i += run) {
		run = 1;
		while (dims == 1 && i + run < d->n && d->index[i + run] == d->index[i] + (int)run)
			run++;
		if (dims == 1 ? !add_items(l, &b->item, b->extent, (at * d->size + d->index[i]) * b->extent, run) :
		    !add_array(l, b, d + 1, dims - 1, at * d->size + d->index[i]))
			return false;
	}
	return true;
}

/* Indices [start, start + n). */
static bool set_dimension(struct dimension *d, int size, int start, int n)
{
	d->size = size;
	d->n = n;
	d->index = malloc(((size_t)n + 1) * sizeof(int));
	for (int i = 0; d->index && i < n; i++)
		d->index[i] = start + i;
	return d->index;
}

static bool add_dimensions(struct list *l, const struct base *b, struct dimension *d, int dims, bool ready)
{
	bool good = ready && add_array(l, b, d, dims, 0);

	for (int i = 0; i < dims; i++)
		free(d[i].index);
	free(d);
	return good;
}

static bool add_subarray(struct list *l, const struct base *b, const struct contents *c)
{
	int dims = c->ints[0];
	const int *sizes = c->ints + 1, *counts = sizes + dims, *starts = counts + dims;
	bool fortran = c->ints[1 + 3 * dims] == MPI_ORDER_FORTRAN, ready = true;
	struct dimension *d = calloc((size_t)dims + 1, sizeof(*d));

	for (int i = 0; d && i < dims; i++) {
		int k = fortran ? dims - 1 - i : i;

		ready = set_dimension(&d[i], sizes[k], starts[k], counts[k]) && ready;
	}
	return d && add_dimensions(l, b, d, dims, ready);
}

/* The indices of process `me` of `n`, which take turns with blocks of `block`. */
static bool share_out(struct dimension *d, int size, int how, int block, int me, int n)
{
	int count = 0;

	if (how == MPI_DISTRIBUTE_NONE)
		return set_dimension(d, size, 0, size);
	if (block == MPI_DISTRIBUTE_DFLT_DARG)
		block = how == MPI_DISTRIBUTE_BLOCK ? (size + n - 1) / n : 1;
	if (!set_dimension(d, size, 0, size))
		return false;
	for (int64_t from = (int64_t)me * block; from < size; from += (int64_t)n * block) {
		for (int64_t i = from; i < from + block && i < size; i++)
			d->index[count++] = (int)i;
		if (how == MPI_DISTRIBUTE_BLOCK)
			break;
	}
	d->n = count;
	return true;
}

/* Processes are numbered as in C, whatever the order of the array is. */
static bool add_darray(struct list *l, const struct base *b, const struct contents *c)
{
	int rank = c->ints[1], dims = c->ints[2];
	const int *sizes = c->ints + 3, *hows = sizes + dims, *blocks = hows + dims, *grid = blocks + dims;
	bool fortran = c->ints[3 + 4 * dims] == MPI_ORDER_FORTRAN, ready = true;
	struct dimension *d = calloc((size_t)dims + 1, sizeof(*d));

	for (int k = dims - 1; d && k >= 0; k--) {
		struct dimension *to = &d[fortran ? dims - 1 - k : k];

		ready = share_out(to, sizes[k], hows[k], blocks[k], rank % grid[k], grid[k]) && ready;
		rank /= grid[k];
	}
	return d && add_dimensions(l, b, d, dims, ready);
}

/* Of types that are made of one other: `how` is the combiner. */
static bool add_made(struct list *l, const struct base *b, const struct contents *c, int how)
{
	const int *ints = c->ints;
	int n = how == MPI_COMBINER_DUP || how == MPI_COMBINER_RESIZED ? 1 : ints[0];
	bool good = true;

	switch (how) {
	case MPI_COMBINER_DUP:
	case MPI_COMBINER_RESIZED:
	case MPI_COMBINER_CONTIGUOUS:
		return add_items(l, &b->item, b->extent, 0, n);
	case MPI_COMBINER_VECTOR:
	case MPI_COMBINER_HVECTOR:
		for (int64_t i = 0; i < n && good; i++) {
			int64_t step = how == MPI_COMBINER_VECTOR ? ints[2] * b->extent : c->addresses[0];

			good = add_items(l, &b->item, b->extent, i * step, ints[1]);
		}
		return good;
	case MPI_COMBINER_INDEXED:
		for (int i = 0; i < n && good; i++)
			good = add_items(l, &b->item, b->extent, ints[1 + n + i] * b->extent, ints[1 + i]);
		return good;
	case MPI_COMBINER_HINDEXED:
		for (int i = 0; i < n && good; i++)
			good = add_items(l, &b->item, b->extent, c->addresses[i], ints[1 + i]);
		return good;
	case MPI_COMBINER_INDEXED_BLOCK:
		for (int i = 0; i < n && good; i++)
			good = add_items(l, &b->item, b->extent, ints[2 + i] * b->extent, ints[1]);
		return good;
	case MPI_COMBINER_HINDEXED_BLOCK:
		for (int i = 0; i < n && good; i++)
			good = add_items(l, &b->item, b->extent, c->addresses[i], ints[1]);
		return good;
	case MPI_COMBINER_SUBARRAY:
		return add_subarray(l, b, c);
	case MPI_COMBINER_DARRAY:
		return add_darray(l, b, c);
	default:
		return false;
	}
}

static bool add_struct(struct list *l, const struct contents *c)
{
	bool good = true;

	for (int i = 0; i < c->ints[0] && good; i++) {
		struct base b;

		good = take_base(c->types[i], &b);
		if (!good)
			break;
		good = add_items(l, &b.item, b.extent, c->addresses[i], c->ints[1 + i]);
		free(b.item.blocks);
	}
	return good;
}

static void drop_contents(struct contents *c)
{
	for (int i = 0; c->types && i < c->n_types; i++) {
		int a, b, t, combiner;

		/* What is handed out has to be freed, unless it is predefined. */
		if (c->types[i] != MPI_DATATYPE_NULL &&
		    PMPI_Type_get_envelope(c->types[i], &a, &b, &t, &combiner) == MPI_SUCCESS && !type_is_predefined(combiner))
			PMPI_Type_free(&c->types[i]);
	}
	free(c->ints);
	free(c->addresses);
	free(c->types);
}

static bool flatten_derived(MPI_Datatype type, int n_ints, int n_addresses, int n_types, int how, struct list *l)
{
	struct contents c = {
		.ints = calloc((size_t)n_ints + 1, sizeof(int)),
		.addresses = calloc((size_t)n_addresses + 1, sizeof(MPI_Aint)),
		.types = malloc(((size_t)n_types + 1) * sizeof(MPI_Datatype)),
		.n_types = n_types,
	};
	bool good = c.ints && c.addresses && c.types;
	struct base b;

	for (int i = 0; good && i < n_types; i++)
		c.types[i] = MPI_DATATYPE_NULL;
	good = good && PMPI_Type_get_contents(type, n_ints, n_addresses, n_types, c.ints, c.addresses, c.types) == MPI_SUCCESS;
	if (good && how == MPI_COMBINER_STRUCT) {
		good = add_struct(l, &c);
	} else if (good) {
		good = n_types == 1 && take_base(c.types[0], &b);
		if (good) {
			good = add_made(l, &b, &c, how);
			free(b.item.blocks);
		}
	}
	drop_contents(&c);
	return good;
}

static bool flatten(MPI_Datatype type, struct list *l)
{
	int ints, addresses, types, how;

	if (PMPI_Type_get_envelope(type, &ints, &addresses, &types, &how) != MPI_SUCCESS)
		return false;
	return type_is_predefined(how) ? add_named(type, l) : flatten_derived(type, ints, addresses, types, how, l);
}

/* ---- What is learnt ---- */

static int drop_layout(MPI_Datatype type, int key, void *value, void *extra)
{
	struct layout *l = value;

	(void)type, (void)key, (void)extra;
	if (l)
		free(l->blocks);
	free(l);
	return MPI_SUCCESS;
}

static void make_keyval(void)
{
	PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, drop_layout, &keyval, NULL);
}

static void measure(struct layout *l)
{
	l->low = INT64_MAX;
	l->high = INT64_MIN;
	for (size_t i = 0; i < l->n; i++) {
		const struct block *b = &l->blocks[i];

		l->size += b->len;
		l->low = b->at < l->low ? b->at : l->low;
		l->high = b->at + (int64_t)b->len > l->high ? b->at + (int64_t)b->len : l->high;
	}
}

static struct layout *make_layout(MPI_Datatype type)
{
	struct layout *l = calloc(1, sizeof(*l));
	MPI_Aint low, extent, true_low, true_extent;
	struct list list = { 0 };
	MPI_Count size;
	bool good;

	good = l && PMPI_Type_get_true_extent(type, &true_low, &true_extent) == MPI_SUCCESS &&
	       PMPI_Type_get_extent(type, &low, &extent) == MPI_SUCCESS && PMPI_Type_size_x(type, &size) == MPI_SUCCESS &&
	       flatten(type, &list) && list.n;
	if (good) {
		*l = (struct layout){ .blocks = list.blocks, .n = list.n, .extent = extent, .mixed = list.mixed,
				      .basic = list.basic };
		measure(l);
		/* Else it is not understood, or not by MPI: OpenMPI 4.1 has strides of less than nothing begin elsewhere. */
		good = l->size == (uint64_t)size && l->low == true_low && l->high == true_low + true_extent;
	}
	if (good)
		return l;
	free(list.blocks);
	free(l);
	return NULL;
}

static bool is_known(MPI_Datatype type, void *known)
{
	int found;

	return PMPI_Type_get_attr(type, keyval, known, &found) == MPI_SUCCESS && found;
}

/* That it is not understood is learnt, too. */
static struct layout *learn(MPI_Datatype type)
{
	struct layout *l = make_layout(type);

	if (PMPI_Type_set_attr(type, keyval, l) == MPI_SUCCESS)
		return l;
	drop_layout(type, keyval, l, NULL);
	return NULL;
}

const struct layout *layout_of(MPI_Datatype type)
{
	void *known;

	pthread_once(&once, make_keyval);
	if (keyval == MPI_KEYVAL_INVALID || type == MPI_DATATYPE_NULL)
		return NULL;
	if (is_known(type, &known))
		return known;
	pthread_mutex_lock(&lock);
	if (!is_known(type, &known))
		known = learn(type);
	pthread_mutex_unlock(&lock);
	return known;
}
