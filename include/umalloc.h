/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umalloc.h - heaps larger than memory; see umalloc(3).
 *
 * A heap is a mapping of libummap in which jemalloc allocates memory. The allocator's own data are
 * in ordinary memory, so that freeing accesses no storage. Any thread may make any of these calls.
 * A call that fails returns NULL or -1 and sets errno; umalloc_errormsg() returns the error
 * message.
 */
#ifndef UMALLOC_H
#define UMALLOC_H

#include <stddef.h>
#include <stdint.h>
#include <ummap.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct umalloc_heap umalloc_heap;

/*
 * Creates a heap of `size` bytes, rounded up to whole segments. uri: the store, as for ummap_open;
 * its contents are lost. NULL: an unlinked file in $TMPDIR, or in /var/tmp. attr: as for
 * ummap_open, except that seg_size 0 means 256 KiB. NULL: the defaults. Returns NULL on failure.
 * Errors: those of ummap_open and of creating the file; EINVAL; ENOMEM.
 */
umalloc_heap *umalloc_create(const char *uri, size_t size, const struct ummap_attr *attr);

/* Ends the heap and all allocations in it, which no thread may use any more. NULL: no effect. */
void umalloc_destroy(umalloc_heap *heap);

/*
 * Allocate memory in a heap as malloc, calloc, realloc and aligned_alloc do. A size of 0 counts as
 * 1; urealloc never frees. Return NULL on failure. Errors: ENOMEM (the heap is full); EINVAL (the
 * alignment is no power of two); ENXIO (the heap belongs to the process from which this one was
 * forked); the errors of the store, such as ENOSPC, if it does not accept evicted segments.
 */
void *umalloc(umalloc_heap *heap, size_t size);
void *ucalloc(umalloc_heap *heap, size_t count, size_t size);
void *urealloc(umalloc_heap *heap, void *old, size_t size);
void *ualigned_alloc(umalloc_heap *heap, size_t alignment, size_t size);

/* Frees memory of the heap, without changing errno. An address outside of the heap ends the process
 * by abort(3). In a forked child the call has no effect on the parent's heap. NULL: no effect. */
void ufree(umalloc_heap *heap, void *memory);

/* Returns the usable bytes of an allocation, at least as many as were requested. NULL: 0. */
size_t umalloc_usable_size(umalloc_heap *heap, const void *memory);

/* Counters of a heap. */
struct umalloc_stats {
	size_t struct_size; /* input: sizeof(struct umalloc_stats) */
	const void *base;   /* first address of the heap, with which umstat() returns the counters
			       of its mapping */
	uint64_t size;      /* bytes that the heap can have */
	uint64_t used;      /* bytes from base on that have ever been in use */
	uint64_t allocated; /* bytes in allocations now, and freed bytes that threads keep */
	uint64_t free;      /* bytes of discarded segments now; the library writes none of them to
			       storage, and reads none when the heap uses a segment again */
	uint64_t discarded; /* bytes of segments discarded since the heap was created */
};

/* Fills *stats. Returns 0, or -1 with errno EINVAL if stats is NULL or struct_size is invalid. */
int umalloc_stats(umalloc_heap *heap, struct umalloc_stats *stats);

/* The same as umerrormsg(), the message about this thread's last call that has failed. */
const char *umalloc_errormsg(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
