/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of an engine: how a mapping learns of accesses to absent segments, and how frames move
 * to the mapped range and back to the pool. Another engine is another file with such a table, and a
 * line in engine.c. Callers look at the capabilities of an engine, never at which one it is.
 */
#ifndef TABLE_H
#define TABLE_H

#include <stdbool.h>
#include <stddef.h>

struct engine {
	const char *needs;       /* which rights it needs, and what to try instead: part of a sentence */
	const struct engine *stored_to; /* the engine to use in its place for writable mappings */

	/* Capabilities. */
	bool vma_each;           /* each mapped segment is a VMA of the kernel, whose number vm.max_map_count limits */
	bool moves_huge;         /* neighbours, and whole huge pages, are mapped and unmapped by one call */
	bool page_cache;         /* a place may show pages of the kernel's page cache */
	bool by_message;         /* threads of the library serve accesses: an error reaches the accessing thread by poison only */
	bool by_bus;             /* an access raises SIGBUS, not SIGSEGV */
	bool drops;              /* the mapped range has copies, which appear by copy_in and, where they are clean, leave by discard */
	bool pins_block;         /* unmap finds out whether the kernel has pinned a page (-EBUSY) */

	/* Its own. */
	struct userfaultfd *uffd; /* what its memory is registered with; NULL: nothing */
	bool loads_only;         /* it is for mappings that are only loaded from */

	/*
	 * Operations: 0, or -errno and nothing has changed, unless said otherwise. The caller holds the locks of the
	 * segments; none takes one of its own.
	 */

	/* Reserved addresses become a mapped range: every access faults. */
	int (*adopt)(const struct engine *e, char *range, size_t len);
	/* Memory whose pages will be moved to mapped ranges. */
	int (*adopt_pool)(const struct engine *e, char *pool, size_t len);
	/* Maps the frame at `pool`, which may be stored to there or not (`was_writable`), into the mapped range, as a whole and
	 * with its final rights at once. */
	int (*map)(const struct engine *e, char *range, char *pool, size_t len, bool was_writable, bool writable);
	/* The same from memory that stays as it is, and is nobody's frame: only where `drops`. */
	int (*copy_in)(const struct engine *e, char *range, const char *from, size_t len, bool writable);
	/* Whether the memory there, in the pool or in the mapped range, can be moved by one atomic call. Several segments may be
	 * several VMAs, which Linux 6.17 moves one by one: if it fails on the way, some have moved. */
	bool (*is_one)(char *at, size_t len);
	/* Allows stores to a part of the mapped range, or forbids them. */
	int (*protect)(const struct engine *e, char *range, size_t len, bool writable);
	/* The frame goes back to the pool, and keeps its rights (`writable`); its place faults. `exposed`: it could be stored
	 * to at some time since it was mapped. -EBUSY: the kernel works on it, and may store to it at any moment. */
	int (*unmap)(const struct engine *e, char *range, char *pool, size_t len, bool writable, bool exposed);
	/* The same where nobody uses the range any more: the place stays empty until it is discarded, and has to be before
	 * engine_release_places. -EOPNOTSUPP: only unmap can do that. */
	int (*unmap_last)(char *range, char *pool, size_t len);
	/* The place faults and what stood there is lost: the way out when no mapping may be added. */
	int (*discard)(char *range, size_t len);
	/* Whoever waits for an access to the range tries it again. */
	void (*wake)(const struct engine *e, char *range, size_t len);
	/* Every access to the absent place raises SIGSEGV, or gets EFAULT; and no longer. For engines by message. */
	int (*poison)(const struct engine *e, char *range, size_t len);
	int (*unpoison)(const struct engine *e, char *range, size_t len);
};

/* SIGSEGV and mremap; userfaultfd by message, and by signal: with the same for mappings that are only loaded from. */
extern const struct engine engine_segv, engine_uffd, engine_uffd_read, engine_sigbus, engine_sigbus_read;

#endif
