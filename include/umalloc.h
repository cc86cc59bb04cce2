/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * umalloc.h - heaps larger than memory; see umalloc(3).
 *
 * A heap is a mapping of ummap(7)'s, of which jemalloc's arenas hand out the bytes. What the allocator itself has to know is
 * in ordinary memory. All calls may be made by any thread. Those that fail return NULL or -1 with errno set, and
 * umalloc_errormsg() has a sentence.
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
 * A heap of at most `size` bytes, which is rounded up to whole segments. uri: the store, as for ummap_open, of which nothing is
 * read; NULL: a file in $TMPDIR or /var/tmp that has no name any more, and takes the space of what has left memory. attr: as for
 * ummap_open, and seg_size 0 is 256 KiB; NULL: the defaults. Errors: as ummap_open; EINVAL, ENOMEM; those of making the file.
 */
umalloc_heap *umalloc_create(const char *uri, size_t size, const struct ummap_attr *attr);

/* Ends the heap and all that was allocated in it, which nobody uses any more. NULL: nothing happens. */
void umalloc_destroy(umalloc_heap *heap);

/*
 * As malloc, calloc, realloc, aligned_alloc and free, in a heap. A size of 0 is one of 1, but urealloc never frees. Errors:
 * ENOMEM (the heap is full); EINVAL (the alignment is no power of two); ENXIO (the heap is that of the process from which this
 * one was forked); the store's (it fails to take what leaves memory, so the heap does not grow).
 */
void *umalloc(umalloc_heap *heap, size_t size);
void *ucalloc(umalloc_heap *heap, size_t count, size_t size);
void *urealloc(umalloc_heap *heap, void *old, size_t size);
void *ualigned_alloc(umalloc_heap *heap, size_t alignment, size_t size);
/* Keeps errno. What is not of the heap ends the process; in a forked child it is left as it is. */
void ufree(umalloc_heap *heap, void *memory);

/* How many bytes may be used of an allocation, at least as many as were asked for. NULL: 0. */
size_t umalloc_usable_size(umalloc_heap *heap, const void *memory);

struct umalloc_stats {
	size_t struct_size;       /* in: sizeof(struct umalloc_stats) */
	const void *base;         /* where the heap begins: umstat(base) has what the mapping counts */
	uint64_t size;            /* bytes that the heap may have */
	uint64_t used;            /* of these, given to arenas at some time: from base on */
	uint64_t allocated;       /* in allocations now, with what threads keep to allocate it again */
	uint64_t free;            /* given up by the arenas now: not written, and not read when it is used again */
	uint64_t discarded;       /* bytes of segments given up since the heap began */
};

/* Fills *stats. Errors: EINVAL. */
int umalloc_stats(umalloc_heap *heap, struct umalloc_stats *stats);

/* The sentence behind this thread's last failure here; never NULL. */
const char *umalloc_errormsg(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
