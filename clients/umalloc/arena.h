/* SPDX-License-Identifier: BSD-3-Clause */
/* A heap, and its arenas of jemalloc. */
#ifndef UMALLOC_ARENA_H
#define UMALLOC_ARENA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The names of the copy of jemalloc that is linked in. rules.mk renames them, because the program
 * may have a jemalloc of its own. */
#define mallocx umalloc_je_mallocx
#define rallocx umalloc_je_rallocx
#define dallocx umalloc_je_dallocx
#define sallocx umalloc_je_sallocx
#define nallocx umalloc_je_nallocx
#define xallocx umalloc_je_xallocx
#define mallctl umalloc_je_mallctl
#define malloc_conf umalloc_je_malloc_conf
#include <jemalloc/jemalloc.h>

#define MAX_ARENAS 16
#define NO_ARENA UINT32_MAX

struct umalloc_heap {
	extent_hooks_t hooks;        /* hooks of all arenas; their address leads to the heap */
	char *base;                  /* first address of the mapping */
	size_t size;                 /* bytes of the mapping, in whole segments */
	size_t seg_size;             /* bytes of a segment */
	size_t page;                 /* bytes of a page */
	bool is_parents;             /* the process is a forked child: nothing is mapped at base */
	_Atomic bool is_ending;      /* arenas are being destroyed, with their extents */
	_Atomic uint64_t *large;     /* a bit for the first page of each allocation that is
					discarded when it is freed */
	_Atomic uint64_t discarded;  /* bytes of discarded segments so far */
	pthread_mutex_t lock;        /* protects the fields down to refused_ms; taken last */
	size_t used;                 /* bytes from base on that arenas have or had */
	uint64_t *dead;              /* a bit for each page that no arena uses */
	uint64_t *zero;              /* a bit for each dead page that reads as zeros */
	uint64_t dead_pages;         /* number of bits in `dead` */
	uint64_t write_errors;       /* writes that the store had refused when the heap last grew */
	int refused_errno;           /* error for which the heap last could not grow; 0: none */
	uint64_t refused_ms;         /* time of that error */
	pthread_mutex_t arena_lock;  /* taken while an arena is created */
	unsigned arenas;             /* number of arenas that the heap may have */
	_Atomic uint32_t arena[MAX_ARENAS]; /* jemalloc's numbers; NO_ARENA: not created yet */
	_Atomic unsigned next_arena; /* arena of the next thread */
	struct binding *bindings;    /* threads that use the heap; under the lock of thread.c */
	struct umalloc_heap *next;   /* heaps of the process; under the lock of heap.c */
};

/* Returns jemalloc's number of the heap's arena k, which it creates if necessary. -1 with errno:
 * the arena cannot be created. */
long arena_number(struct umalloc_heap *heap, unsigned k);
/* Calls jemalloc's arena.NUMBER.NAME for each arena. */
void arena_control_all(struct umalloc_heap *heap, const char *name);

#endif
