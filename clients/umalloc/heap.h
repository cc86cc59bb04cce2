/* SPDX-License-Identifier: BSD-3-Clause */
/* A heap, and what its threads have of it. */
#ifndef UMALLOC_HEAP_H
#define UMALLOC_HEAP_H

#include "umalloc/jemalloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENAS_MAX 16
#define NO_ARENA UINT32_MAX

struct umalloc_heap {
	extent_hooks_t hooks;            /* of all its arenas: leads back here (extent.c) */
	char *base;                      /* the mapping */
	size_t size;                     /* ... whole segments */
	size_t seg_size;
	size_t page;
	bool forked;                     /* it is the parent's: nothing stands at base */
	_Atomic bool ending;             /* arenas are being destroyed: their extents are nobody's any more */
	pthread_mutex_t lock;            /* of the fields down to `failed`, but `large`; the last one to be taken (extent.c) */
	size_t used;                     /* bytes from base on that arenas have or had */
	uint64_t *dead;                  /* a bit for each page that no arena uses */
	uint64_t *zero;                  /* ... and that reads as zeros */
	uint64_t dead_pages;
	_Atomic uint64_t *large;         /* a bit for each page with which an allocation begins that is given up when it is freed */
	_Atomic uint64_t discarded;      /* bytes */
	uint64_t failed;                 /* writes that storage had refused when the heap last grew */
	int refused;                     /* the error of the last time that it did not; 0: none */
	uint64_t refused_at;             /* when that was, in ms */
	pthread_mutex_t making;          /* of the arenas */
	unsigned arenas;                 /* how many there may be */
	_Atomic uint32_t arena[ARENAS_MAX]; /* jemalloc's numbers of them; NO_ARENA: not made yet */
	_Atomic unsigned next_arena;     /* for the next thread */
	struct binding *bindings;        /* of threads: under the lock of thread.c */
	struct umalloc_heap *next;       /* of the process's: under the lock of heap.c */
};

/* The k-th arena of the heap, made if it is not there: jemalloc's number of it. -1 with errno: there is none. */
long heap_arena(struct umalloc_heap *heap, unsigned k);
/* Bytes of its bitmaps, of one. */
size_t heap_bitmap_size(const struct umalloc_heap *heap);

#endif
