/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A heap of the library's for large allocations, and for private memory that the program maps (--heap). libumrun-heap has it;
 * libumrun is the same without, so that nothing stands between a program and its malloc.
 */
#ifndef UMRUN_HEAP_H
#define UMRUN_HEAP_H

#include <stdbool.h>
#include <stddef.h>

/* What the calls that map memory, and those that are given memory, ask of it. */
struct heap_calls {
	/* How many bytes there are from addr on in the heap of this process; 0: it is elsewhere. */
	size_t (*left)(const void *addr);
	/* NULL: it is to be left to the kernel. */
	void *(*map)(void *addr, size_t len, int prot, int flags);
	/* These have left(addr) > 0; they are what the kernel's calls are. */
	int (*unmap)(void *addr, size_t len);
	void *(*remap)(void *old, size_t old_len, size_t len, int flags);
	int (*advise)(void *addr, size_t len, int advice);
	/* MADV_DONTNEED of what a child of fork has from its parent's heap; false: it is elsewhere. */
	bool (*clear_inherited)(void *addr, size_t len);
	/* mremap that makes such memory larger; NULL: it is the kernel's to do. */
	void *(*grow_inherited)(void *old, size_t old_len, size_t len, int flags);
};

/* NULL: the program has no heap, nor will it. */
extern const struct heap_calls *heap_calls;

static inline size_t heap_left(const void *addr)
{
	return heap_calls ? heap_calls->left(addr) : 0;
}

/* ---- For malloc.c: those that take memory are given what heap_has says is here. ---- */

/* Where the process may have one: whether it is there for this thread's next allocation. It is made if need be. */
bool heap_ready(void);
bool heap_has(const void *memory);
void *heap_alloc(size_t size);
void *heap_alloc_zeros(size_t count, size_t size);
void *heap_alloc_aligned(size_t alignment, size_t size);
void heap_free(void *memory);
/* NULL: it cannot be, and `old` stays. The size is one of the heap's. */
void *heap_realloc(void *old, size_t size);
size_t heap_usable_size(const void *memory);
/* Allocates as memalign(3) does; next: a function of the C library. */
typedef void *(*align_call)(size_t alignment, size_t size);
void *take_memalign(const void *caller, align_call next, size_t alignment, size_t size);
size_t page_size(void);
/* Where the program's malloc comes from, if it is not the C library's: its path; NULL. */
const char *heap_of_program(void);

#endif
