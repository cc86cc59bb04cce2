/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts: the bytes that datatypes stand for. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kind of an item of a predefined type, for operations on it. */
enum kind { KIND_OTHER, KIND_SIGNED, KIND_UNSIGNED, KIND_FLOAT, KIND_BYTE };

struct basic {
	MPI_Datatype type;       /* the predefined type */
	uint64_t size;           /* bytes of its data */
	int64_t extent;          /* distance between items; pairs may have gaps */
	enum kind kind;          /* others than KIND_OTHER have 1, 2, 4 or 8 bytes, without gaps */
};

static inline bool basic_has_gaps(const struct basic *b)
{
	return b->extent != (int64_t)b->size;
}

struct block {
	int64_t at;              /* offset of its first byte */
	uint64_t len;            /* number of bytes */
};

/* One item of a type: blocks in the order of its data. */
struct layout {
	struct block *blocks;    /* the blocks */
	size_t n;                /* number of blocks */
	uint64_t size;           /* bytes of all blocks */
	int64_t extent;          /* distance between items */
	int64_t low, high;       /* bounds of all blocks */
	bool mixed;              /* it consists of several predefined types */
	struct basic basic;      /* the predefined type, if not mixed */
};

/* Whether several items are one block. */
static inline bool layout_has_no_gaps(const struct layout *l)
{
	return l->n == 1 && l->blocks->len == (uint64_t)l->extent;
}

/* Maximum that MPI is asked to pack at once, because it counts bytes in an int. */
#define LAYOUT_PACKED ((int64_t)1 << 30)

/* Bytes of `count` items of a type, if they have no gaps; else 0. */
uint64_t type_bytes(MPI_Datatype type, int64_t count);

/* Predefined types that are known. A place belongs to the first type that hashes to it. */
struct type_entry {
	_Atomic uintptr_t key;   /* handle, which is written last; 0: the place is free */
	struct basic basic;      /* properties of the type */
};

#define TYPE_PLACES_LOG2 8
#define TYPE_PLACES (1 << TYPE_PLACES_LOG2)
extern struct type_entry type_table[TYPE_PLACES] __attribute__((visibility("hidden")));

/* Handles are pointers or numbers, which differ in their low bits. */
static inline struct type_entry *type_entry(MPI_Datatype type)
{
	return &type_table[((uintptr_t)type * 0x9E3779B97F4A7C15ull) >> (64 - TYPE_PLACES_LOG2)];
}

/* NULL: the type is not known yet, or has no place. */
static inline const struct basic *type_known(MPI_Datatype type)
{
	const struct type_entry *e = type_entry(type);
	uintptr_t key = atomic_load_explicit(&e->key, memory_order_acquire);

	return key == (uintptr_t)type ? &e->basic : NULL;
}

/* The properties of a predefined type; false: it is none. */
bool type_basic(MPI_Datatype type, struct basic *basic);
static inline bool type_is_predefined(int combiner)
{
	return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
	       combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

bool type_is_one_of(MPI_Datatype type, const MPI_Datatype *types, size_t n);

/* NULL: only MPI knows the layout. It stays valid as long as the type. */
const struct layout *layout_of(MPI_Datatype type);

/* The position in the bytes of several items of a datatype, in the order of its type map. */
struct layout_cursor {
	const struct layout *layout;
	int64_t base;            /* address of the current item */
	int64_t items;           /* items left, including the current one */
	size_t block;            /* index of the current block */
	uint64_t done;           /* bytes of the current block that are done */
};

static inline struct layout_cursor layout_cursor_begin(const struct layout *l, int64_t base,
						       int64_t count)
{
	return (struct layout_cursor){ .layout = l, .base = base, .items = count };
}

/* The address of the next bytes, and the number of them that are adjacent. Not at the end. */
static inline int64_t layout_cursor_address(const struct layout_cursor *c, uint64_t *len)
{
	const struct block *b = &c->layout->blocks[c->block];

	*len = b->len - c->done;
	if (layout_has_no_gaps(c->layout))
		*len += (uint64_t)(c->items - 1) * b->len;
	return c->base + b->at + (int64_t)c->done;
}

static inline void layout_cursor_advance(struct layout_cursor *c, uint64_t len)
{
	const struct layout *l = c->layout;

	c->done += len;
	if (layout_has_no_gaps(l)) {
		int64_t whole = (int64_t)(c->done / l->blocks->len);

		c->done %= l->blocks->len;
		c->base += whole * l->extent;
		c->items -= whole;
		return;
	}
	while (c->items > 0 && c->done >= l->blocks[c->block].len) {
		c->done -= l->blocks[c->block].len;
		if (++c->block < l->n)
			continue;
		c->block = 0;
		c->base += l->extent;
		c->items--;
	}
}

#endif
