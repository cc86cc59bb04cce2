/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layouts of datatypes, from the arguments that made the types. The layout is an attribute of its
 * type, so that it ends with the type, whose handle may be another type's later. Lock: while a
 * layout is made.
 */
#include "rma/layout.h"

#include <pthread.h>
#include <stdlib.h>

/* Number of blocks of one item. The layout of a type with more is unknown. */
#define MAX_BLOCKS ((size_t)1 << 24)

/* A layout that grows. */
struct list {
	struct block *blocks;    /* the blocks */
	size_t n, room;          /* number of blocks, and room for them */
	bool any;                /* `basic` is set */
	bool mixed;              /* it consists of several predefined types */
	struct basic basic;      /* the first of these */
};

/* The arguments that a type was made of. */
struct contents {
	int *ints;               /* arguments that are integers */
	MPI_Aint *addresses;     /* arguments that are addresses */
	MPI_Datatype *types;     /* arguments that are types */
	int n_types;             /* number of these */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int keyval = MPI_KEYVAL_INVALID;

static bool flatten(MPI_Datatype type, struct list *l);

/* ---- Lists of blocks ---- */

static bool grow_list(struct list *l)
{
	size_t room = l->room ? 2 * l->room : 8;
	struct block *more = room <= MAX_BLOCKS ? realloc(l->blocks, room * sizeof(*more)) : NULL;

	if (!more)
		return false;
	l->blocks = more;
	l->room = room;
	return true;
}

static bool add_block(struct list *l, int64_t at, uint64_t len)
{
	struct block *last = l->n ? &l->blocks[l->n - 1] : NULL;

	if (len == 0)
		return true;
	if (last && last->at + (int64_t)last->len == at) {
		last->len += len;
		return true;
	}
	if (l->n == l->room && !grow_list(l))
		return false;
	l->blocks[l->n++] = (struct block){ at, len };
	return true;
}

/* Notes the predefined types of an item. */
static void note_basic(struct list *l, const struct list *item)
{
	l->mixed = l->mixed || item->mixed ||
		   (l->any && item->any && l->basic.type != item->basic.type);
	if (!l->any && item->any)
		l->basic = item->basic;
	l->any = l->any || item->any;
}

/* The item of which a type is made, repeatedly. */
struct base {
	struct list item;        /* the item */
	int64_t extent;          /* distance between items */
};

/* Adds n items, the first of them at `at`. */
static bool add_items(struct list *l, const struct base *b, int64_t at, int64_t n)
{
	const struct block *blocks = b->item.blocks;

	if (n > 0)
		note_basic(l, &b->item);
	if (b->item.n == 1 && blocks->len == (uint64_t)b->extent)
		return n <= 0 || add_block(l, at + blocks->at, (uint64_t)n * blocks->len);
	for (int64_t k = 0; k < n; k++, at += b->extent) {
		for (size_t i = 0; i < b->item.n; i++) {
			if (!add_block(l, at + blocks[i].at, blocks[i].len))
				return false;
		}
	}
	return true;
}

/* ---- Predefined types ---- */

/* Offset of the second member of a pair, and size of the first; 0: the type is no pair. */
static int64_t find_second(MPI_Datatype type, uint64_t *first)
{
	struct { float a; int b; } f;
	struct { double a; int b; } d;
	struct { long a; int b; } l;
	struct { short a; int b; } s;
	struct { long double a; int b; } e;
	const struct { MPI_Datatype type; const void *begin, *second; size_t first; } pairs[] = {
		{ MPI_FLOAT_INT, &f, &f.b, sizeof(f.a) },
		{ MPI_DOUBLE_INT, &d, &d.b, sizeof(d.a) },
		{ MPI_LONG_INT, &l, &l.b, sizeof(l.a) },
		{ MPI_SHORT_INT, &s, &s.b, sizeof(s.a) },
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
	int64_t second = find_second(type, &first);

	l->any = type_basic(type, &l->basic);
	if (!l->any)
		return false;
	if (!second)
		return add_block(l, 0, l->basic.size);
	return add_block(l, 0, first) && add_block(l, second, sizeof(int));
}

/* ---- Derived types ---- */

static bool make_base(MPI_Datatype type, struct base *b)
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

/* A dimension of an array: the indices that belong to the type. Dimensions go from slow to fast. */
struct dimension {
	int64_t size;            /* size of the array */
	int *index;              /* the indices */
	int64_t n;               /* number of these */
};

static bool add_array(struct list *l, const struct base *b, const struct dimension *d, int dims,
		      int64_t at)
{
	if (dims == 0)
		return add_items(l, b, at * b->extent, 1);
	for (int64_t i = 0, run; i < d->n; i += run) {
		int64_t place = at * d->size + d->index[i];

		run = 1;
		while (dims == 1 && i + run < d->n && d->index[i + run] == d->index[i] + (int)run)
			run++;
		if (dims == 1 ? !add_items(l, b, place * b->extent, run) :
				!add_array(l, b, d + 1, dims - 1, place))
			return false;
	}
	return true;
}

/* Sets the indices [start, start + n). */
static bool set_dimension(struct dimension *d, int size, int start, int n)
{
	d->size = size;
	d->n = n;
	d->index = malloc(((size_t)n + 1) * sizeof(int));
	for (int i = 0; d->index && i < n; i++)
		d->index[i] = start + i;
	return d->index;
}

static bool add_dimensions(struct list *l, const struct base *b, struct dimension *d, int dims,
			   bool ready)
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

/* Sets the indices of process `me` of `n`, among which blocks of `block` indices go in turn. */
static bool set_distributed(struct dimension *d, int size, int how, int block, int me, int n)
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

/* Processes are numbered in the order of C, even if the order of the array is Fortran's. */
static bool add_darray(struct list *l, const struct base *b, const struct contents *c)
{
	int rank = c->ints[1], dims = c->ints[2];
	const int *sizes = c->ints + 3, *hows = sizes + dims, *blocks = hows + dims;
	const int *grid = blocks + dims;
	bool fortran = c->ints[3 + 4 * dims] == MPI_ORDER_FORTRAN, ready = true;
	struct dimension *d = calloc((size_t)dims + 1, sizeof(*d));

	for (int k = dims - 1; d && k >= 0; k--) {
		struct dimension *to = &d[fortran ? dims - 1 - k : k];

		ready = set_distributed(to, sizes[k], hows[k], blocks[k], rank % grid[k],
					grid[k]) && ready;
		rank /= grid[k];
	}
	return d && add_dimensions(l, b, d, dims, ready);
}

/* Adds a type that is made of one other type by the combiner `how`. */
static bool add_combined(struct list *l, const struct base *b, const struct contents *c, int how)
{
	const int *ints = c->ints;
	int n = how == MPI_COMBINER_DUP || how == MPI_COMBINER_RESIZED ? 1 : ints[0];
	bool indexed = how == MPI_COMBINER_INDEXED || how == MPI_COMBINER_HINDEXED;
	bool good = true;

	switch (how) {
	case MPI_COMBINER_DUP:
	case MPI_COMBINER_RESIZED:
	case MPI_COMBINER_CONTIGUOUS:
		return add_items(l, b, 0, n);
	case MPI_COMBINER_VECTOR:
	case MPI_COMBINER_HVECTOR:
		for (int64_t i = 0; i < n && good; i++) {
			int64_t step = how == MPI_COMBINER_VECTOR ? ints[2] * b->extent :
								    c->addresses[0];

			good = add_items(l, b, i * step, ints[1]);
		}
		return good;
	case MPI_COMBINER_INDEXED:
	case MPI_COMBINER_INDEXED_BLOCK:
		for (int i = 0; i < n && good; i++)
			good = add_items(l, b, ints[(indexed ? 1 + n : 2) + i] * b->extent,
					 ints[indexed ? 1 + i : 1]);
		return good;
	case MPI_COMBINER_HINDEXED:
	case MPI_COMBINER_HINDEXED_BLOCK:
		for (int i = 0; i < n && good; i++)
			good = add_items(l, b, c->addresses[i], ints[indexed ? 1 + i : 1]);
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

		good = make_base(c->types[i], &b);
		if (!good)
			break;
		good = add_items(l, &b, c->addresses[i], c->ints[1 + i]);
		free(b.item.blocks);
	}
	return good;
}

static void free_contents(struct contents *c)
{
	for (int i = 0; c->types && i < c->n_types; i++) {
		int a, b, t, combiner;

		/* MPI_Type_get_contents returns new handles, except for predefined types. */
		if (c->types[i] != MPI_DATATYPE_NULL &&
		    PMPI_Type_get_envelope(c->types[i], &a, &b, &t, &combiner) == MPI_SUCCESS &&
		    !type_is_predefined(combiner))
			PMPI_Type_free(&c->types[i]);
	}
	free(c->ints);
	free(c->addresses);
	free(c->types);
}

static bool flatten_derived(MPI_Datatype type, int n_ints, int n_addresses, int n_types, int how,
			    struct list *l)
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
	good = good && PMPI_Type_get_contents(type, n_ints, n_addresses, n_types, c.ints,
					      c.addresses, c.types) == MPI_SUCCESS;
	if (good && how == MPI_COMBINER_STRUCT) {
		good = add_struct(l, &c);
	} else if (good) {
		good = n_types == 1 && make_base(c.types[0], &b);
		if (good) {
			good = add_combined(l, &b, &c, how);
			free(b.item.blocks);
		}
	}
	free_contents(&c);
	return good;
}

static bool flatten(MPI_Datatype type, struct list *l)
{
	int ints, addresses, types, how;

	if (PMPI_Type_get_envelope(type, &ints, &addresses, &types, &how) != MPI_SUCCESS)
		return false;
	if (type_is_predefined(how))
		return add_named(type, l);
	return flatten_derived(type, ints, addresses, types, how, l);
}

/* ---- Layouts as attributes ---- */

static int free_layout(MPI_Datatype type, int key, void *value, void *extra)
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
	PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, free_layout, &keyval, NULL);
}

static void measure_layout(struct layout *l)
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
	       PMPI_Type_get_extent(type, &low, &extent) == MPI_SUCCESS &&
	       PMPI_Type_size_x(type, &size) == MPI_SUCCESS && flatten(type, &list) && list.n;
	if (good) {
		*l = (struct layout){ .blocks = list.blocks, .n = list.n, .extent = extent,
				      .mixed = list.mixed, .basic = list.basic };
		measure_layout(l);
		/* Open MPI 4.1 has other bounds for types with negative strides. */
		good = l->size == (uint64_t)size && l->low == true_low &&
		       l->high == true_low + true_extent;
	}
	if (good)
		return l;
	free(list.blocks);
	free(l);
	return NULL;
}

static bool has_layout(MPI_Datatype type, void *known)
{
	int found;

	return PMPI_Type_get_attr(type, keyval, known, &found) == MPI_SUCCESS && found;
}

/* The attribute is NULL if the layout is unknown. */
static struct layout *learn_layout(MPI_Datatype type)
{
	struct layout *l = make_layout(type);

	if (PMPI_Type_set_attr(type, keyval, l) == MPI_SUCCESS)
		return l;
	free_layout(type, keyval, l, NULL);
	return NULL;
}

const struct layout *layout_of(MPI_Datatype type)
{
	void *known;

	pthread_once(&once, make_keyval);
	if (keyval == MPI_KEYVAL_INVALID || type == MPI_DATATYPE_NULL)
		return NULL;
	if (has_layout(type, &known))
		return known;
	pthread_mutex_lock(&lock);
	if (!has_layout(type, &known))
		known = learn_layout(type);
	pthread_mutex_unlock(&lock);
	return known;
}
