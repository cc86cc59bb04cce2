/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap for large allocations and for private memory that the program maps (--heap). Only
 * libumrun-heap has it, so that libumrun does not take the calls of malloc(3).
 */
#ifndef UMRUN_HEAP_H
#define UMRUN_HEAP_H

#include <stdbool.h>
#include <stddef.h>

/* The functions of the heap that libumrun calls. */
struct heap_calls {
	/* Bytes from addr to the end of this process's heap; 0: addr is not in the heap. */
	size_t (*left)(const void *addr);
	/* Maps memory in the heap. NULL: the kernel must map it. */
	void *(*map)(void *addr, size_t len, int prot, int flags);
	/* Do the kernel's calls on a range in the heap (left(addr) > 0). */
	int (*unmap)(void *addr, size_t len);
	void *(*remap)(void *old, size_t old_len, size_t len, int flags);
	int (*advise)(void *addr, size_t len, int advice);
	/* Does MADV_DONTNEED for memory that a forked child has from its parent's heap. false: the
	 * range is not there. */
	bool (*clear_inherited)(void *addr, size_t len);
	/* Makes such memory larger. NULL: the kernel must do it. */
	void *(*grow_inherited)(void *old, size_t old_len, size_t len, int flags);
};

/* NULL: the program never gets a heap. */
extern const struct heap_calls *heap_calls;

static inline size_t heap_left(const void *addr)
{
	return heap_calls ? heap_calls->left(addr) : 0;
}

/* ---- The rest is in libumrun-heap. Functions that take memory require heap_has for it. ---- */

#include <pthread.h>
#include <umalloc.h>

struct heap {
	umalloc_heap *heap;
	char *base;
	size_t size;             /* 0: there is no heap */
	struct heap *next;       /* next inherited heap */
};

/* The heap of this process, and those of its parents, whose contents this process has. */
extern struct heap own_heap, *inherited_heaps;
/* Protects the creation of the heap, and the bits of mapped.c. Locks of umalloc are taken under
 * it. */
extern pthread_mutex_t heap_lock;
/* Whether this thread runs code of the library, whose allocations come from the C library. */
extern _Thread_local bool is_inside;
extern _Atomic bool has_heap;
/* Called once, when the process has its first heap. */
extern void (*heap_on_begin)(void);

/* Creates the heap if necessary. Whether this thread may allocate from it. */
bool heap_ready(void);
bool heap_has(const void *memory);
/* The heap of a parent that has the memory, or NULL. */
struct heap *heap_find_inherited(const void *memory);
/* Creates a file without a name in the folder of the heap. -1 with errno: it cannot be made. */
int heap_file(void);
void *heap_alloc(size_t size);
void *heap_alloc_zeros(size_t count, size_t size);
void *heap_alloc_aligned(size_t alignment, size_t size);
void heap_free(void *memory);
/* Returns NULL on failure, and `old` stays valid. size is at least --heap-min. */
void *heap_realloc(void *old, size_t size);
size_t heap_usable_size(const void *memory);
/* The number of allocations. */
unsigned long heap_count(void);
/* Allocates as memalign(3) does; next: a function of the C library. */
typedef void *(*align_call)(size_t alignment, size_t size);
void *take_memalign(const void *caller, align_call next, size_t alignment, size_t size);

/* ---- Private memory that the program maps, by the kernel's calls (mapped.c) ---- */

size_t mapped_left(const void *addr);
void *mapped_map(void *addr, size_t len, int prot, int flags);
int mapped_unmap(void *addr, size_t len);
void *mapped_remap(void *old, size_t old_len, size_t len, int flags);
int mapped_advise(void *addr, size_t len, int advice);
/* The number of calls that have mapped memory. */
unsigned long mapped_count(void);

#endif
