/* SPDX-License-Identifier: BSD-3-Clause */
/* Datatypes as the bytes that they stand for. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an item of a predefined type is, for operations on it. */
enum kind { KIND_OTHER, KIND_SIGNED, KIND_UNSIGNED, KIND_FLOAT, KIND_BYTE };

struct basic {
	MPI_Datatype type;
	uint64_t size;           /* of its data, and ... */
	int64_t extent;          /* ... from one to the next; of pairs there may be gaps */
	enum kind kind;          /* others than KIND_OTHER have 1, 2, 4 or 8 bytes, without gaps */
};

static inline bool basic_has_gaps(const struct basic *b)
{
	return b->extent != (int64_t)b->size;
}

struct block {
	int64_t at;
	uint64_t len;
};

/* One item of a type: blocks in the order of its data. */
struct layout {
	struct block *blocks;
	size_t n;
	uint64_t size;           /* of all blocks */
	int64_t extent;
	int64_t low, high;       /* between these are all of them */
	bool mixed;              /* of several predefined types; if not, of this: */
	struct basic basic;
};

/* MPI packs no more bytes at once, for it counts them in ints. */
#define LAYOUT_PACKED ((int64_t)1 << 30)

/* Bytes of `count` items of type, one behind the other without gaps; 0: none, or there are gaps. */
uint64_t type_bytes(MPI_Datatype type, int64_t count);
/* Those that were asked for: a place belongs to the first that comes. The key is the handle; 0: free. Written last. */
struct type_entry {
	_Atomic uintptr_t key;
	struct basic basic;
};

#define TYPE_PLACES_LOG2 8
#define TYPE_PLACES (1 << TYPE_PLACES_LOG2)
extern struct type_entry type_table[TYPE_PLACES] __attribute__((visibility("hidden")));

/* Handles are pointers or numbers, whose low bits say most. */
static inline struct type_entry *type_entry(MPI_Datatype type)
{
	return &type_table[((uintptr_t)type * 0x9E3779B97F4A7C15ull) >> (64 - TYPE_PLACES_LOG2)];
}

/* NULL: it has not been asked for, or has no place. */
static inline const struct basic *type_known(MPI_Datatype type)
{
	const struct type_entry *e = type_entry(type);

	return atomic_load_explicit(&e->key, memory_order_acquire) == (uintptr_t)type ? &e->basic : NULL;
}

/* What a predefined type is; false: it is none. */
bool type_basic(MPI_Datatype type, struct basic *basic);
static inline bool type_is_predefined(int combiner)
{
	return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL || combiner == MPI_COMBINER_F90_COMPLEX ||
	       combiner == MPI_COMBINER_F90_INTEGER;
}

/* NULL: only MPI can tell. Stays as long as the type. */
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

/* Where the next bytes are, and how many of them are in one piece. Not at the end. */
static inline int64_t layout_cursor_address(const struct layout_cursor *c, uint64_t *len)
{
	const struct block *b = &c->layout->blocks[c->block];

	*len = b->len - c->done;
	/* Items without gaps are one piece. */
	if (c->layout->n == 1 && b->len == (uint64_t)c->layout->extent)
		*len += (uint64_t)(c->items - 1) * b->len;
	return c->base + b->at + (int64_t)c->done;
}

static inline void layout_cursor_advance(struct layout_cursor *c, uint64_t len)
{
	const struct layout *l = c->layout;

	c->done += len;
	if (l->n == 1 && l->blocks->len == (uint64_t)l->extent) {
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
