/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of an engine: how a mapping learns of accesses to absent segments, how frames move to
 * the mapped range and back to the pool, and how frames get and lose memory. Another engine is
 * another file with such a table, and a line in engines.def. Callers look at capabilities, never at
 * which engine it is.
 */
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A fault, and its result. */
struct fault {
	void *addr;
	bool write;
	int signal; /* SIGSEGV or SIGBUS; 0: no signal */
	int error;  /* a negative errno value, if the answer is FAULT_FAILED */
};

enum fault_answer { FAULT_SERVED, FAULT_FOREIGN, FAULT_FAILED };

/* Properties that a mapping requires of its engine. */
struct engine_wish {
	int wanted;              /* number of the engine (UMMAP_ENGINE_*) */
	bool kernel, shared;     /* UMMAP_KERNEL, UMMAP_SHARED */
	bool node;               /* UMMAP_NODE */
	bool whole;              /* frames that move as a whole are preferred, for tiers */
	size_t seg_size;         /* requested size of the segments */
};

/* How frames get and lose memory in the pool (memory/frame.h). */
struct frame_type {
	/* A frame moves as a whole: in the mapped range it is a VMA of its own, so vm.max_map_count
	 * limits the number of frames. Its memory is on huge pages, which it shares with its
	 * neighbors, and it has its own rights in the pool. Frames of other types move page by
	 * page, on small pages, and are always writable in the pool. */
	bool whole;
	/* The mapped range has a copy of the frame. The frame has memory in the pool only while its
	 * contents are there. An engine with such frames has copy_in. */
	bool copied;
	/* Bytes that get memory at a time, if they are more than a frame. */
	size_t block;
	/* Prepares reserved addresses of the pool, whose memory will be moved to mapped ranges.
	 * Returns 0 or -errno. NULL: nothing to prepare. */
	int (*prepare)(char *pool, size_t len);
};

struct engine {
	const char *name;        /* value of UMMAP_ENGINE */
	int number;              /* UMMAP_ENGINE_* */
	/* Rights that the engine needs, and what to try instead: a part of a sentence. */
	const char *needs;
	const struct frame_type *frames;
	/* Type of the frames of mappings whose faults bring in neighbors. The mapped range has
	 * copies of these frames. If the type differs from `frames`, only read-only mappings can
	 * use it. NULL: faults bring in no neighbors. */
	const struct frame_type *copied_frames;
	void *data;              /* private to the engine */

	/* Capabilities. */
	int signal;              /* signal of an access to an absent place: SIGSEGV or SIGBUS; 0:
				    an access raises no signal, and waits until it is served */
	bool pagecache;          /* the mapped range may have page-cache mappings */
	bool shares;             /* frames can be shared with other processes (UMMAP_SHARED) */
	bool refuses_kernel;     /* naming this engine with UMMAP_KERNEL is an error; the other
				    engines are replaced by one that sees accesses of the kernel */
	bool refuses_pinned;     /* unmap returns -EBUSY if the kernel has pinned a page */
	size_t best_up_to;       /* segments up to this size get this engine automatically if no
				    engine with a smaller bound exists; 0: never automatically */

	/* Starts the engine in this process, unless it has started. Returns 0, or -errno with a
	 * sentence if it cannot serve such a mapping. NULL: nothing to start. */
	int (*start)(const struct engine_wish *wish);
	/* In a forked child: the engine has not started. May be NULL. */
	void (*forget)(void);
	/* Returns whether accesses of system calls and other processes are served; after start.
	 * NULL: never. */
	bool (*sees_kernel)(void);

	/*
	 * Operations return 0, or -errno after which nothing has changed, unless their comment
	 * says otherwise. The caller holds the locks of the segments; an operation takes no lock
	 * of a segment.
	 */

	/* Makes a mapped range of reserved addresses: every access faults. writable: the program
	 * may store to the mapping. NULL: reserved addresses need no preparation. */
	int (*prepare)(const struct engine *e, char *range, size_t len, bool writable);
	/* Maps the frame at `pool` into the mapped range, as a whole and with its final rights at
	 * once. was_writable: the memory at `pool` is writable. */
	int (*map)(const struct engine *e, char *range, char *pool, size_t len, bool was_writable,
		   bool writable);
	/* Maps a copy of memory that belongs to no frame, and stays as it is. */
	int (*copy_in)(const struct engine *e, char *range, const char *from, size_t len,
		       bool writable);
	/* Moves memory that belongs to no frame to an empty part of the mapped range, and back,
	 * where its contents may be lost. The memory is a huge page, or as fast as small pages.
	 * writable: whether the program may store to the mapping, and so to what has moved. NULL:
	 * only copy_in. */
	int (*move_in)(const struct engine *e, char *range, char *from, size_t len, bool writable);
	int (*move_out)(const struct engine *e, char *range, char *to, size_t len, bool writable);
	/* Returns whether one atomic call can move the memory, in the pool or in the mapped range.
	 * Several segments may be several VMAs, which Linux 6.17 moves one by one: after an error
	 * some of them have moved. Only for frames that move as a whole. */
	bool (*is_one)(char *at, size_t len);
	/* Allows or forbids stores to a part of the mapped range. */
	int (*protect)(const struct engine *e, char *range, size_t len, bool writable);
	/* Returns the frame to the pool, where it keeps its rights (`writable`); its place faults.
	 * exposed: the frame was writable at some time since it was mapped. -EBUSY: the kernel has
	 * pinned it, and may store to it at any moment. */
	int (*unmap)(const struct engine *e, char *range, char *pool, size_t len, bool writable,
		     bool exposed);
	/* Like unmap, for a range that no thread uses any more. The place stays empty, and the
	 * caller must discard it before engine_release_addresses. NULL or -EOPNOTSUPP: use
	 * unmap. */
	int (*unmap_last)(char *range, char *pool, size_t len);
	/* Makes the place fault, and drops its contents. Works also if no VMA can be added. */
	int (*discard)(char *range, size_t len);
	/* Makes a place that has a page-cache mapping ready for `map`. NULL: map replaces such a
	 * mapping. */
	int (*end_pagecache)(const struct engine *e, char *range, size_t len, bool writable);
	/* Makes threads that wait for an access to the range repeat it. NULL: no thread waits. */
	void (*wake)(const struct engine *e, char *range, size_t len);
	/* For an engine that can share the pages of an object in memory among processes; NULL for
	 * others. share maps the object from `off` on for reading: an access to a page that the
	 * object lacks faults. fill gives the object the pages that it lacks, each as a whole. */
	int (*share)(char *range, size_t len, int object, int64_t off);
	int (*fill)(char *range, const char *from, size_t len);
	/* For an engine whose threads serve accesses, so that an error reaches the accessing thread
	 * only by poison; NULL for others. poison makes every access to the absent place raise
	 * SIGSEGV or get EFAULT; unpoison ends that. writable: as for prepare. */
	int (*poison)(const struct engine *e, char *range, size_t len);
	int (*unpoison)(const struct engine *e, char *range, size_t len, bool writable);
};

/* All engines, up to NULL. */
extern const struct engine *const engines[];

/* Functions of paging/fault, set before an engine starts: serve_fault serves a fault of the calling
 * thread; serve_messages runs in the threads that serve the faults of others (messages.h). */
extern enum fault_answer (*engine_serve_fault)(struct fault *fault);
extern void *(*engine_serve_messages)(void *);

/* Returns whether accesses of system calls and other processes are served, too. */
static inline bool engine_sees_kernel(const struct engine *e)
{
	return e->sees_kernel && e->sees_kernel();
}

static inline void engine_wake(const struct engine *e, char *range, size_t len)
{
	if (e->wake)
		e->wake(e, range, len);
}

#endif
