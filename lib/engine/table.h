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
	/* Rights that the engine needs, and what to try instead: a part of a sentence. */
	const char *needs;
	const struct engine *stored_to; /* replaces this engine for writable mappings */

	/* Capabilities. */
	bool vma_each;           /* each mapped segment is a VMA; vm.max_map_count limits them */
	bool moves_huge;         /* one call maps or unmaps neighbours, and whole huge pages */
	bool page_cache;         /* a place may map pages of the kernel's page cache */
	bool by_message;         /* threads of the library serve accesses, so an error reaches the
				    accessing thread only by poison */
	bool by_bus;             /* an access raises SIGBUS, not SIGSEGV */
	bool drops;              /* the mapped range has copies: copy_in makes them, and discard
				    drops clean ones */
	bool pins_block;         /* unmap returns -EBUSY if the kernel has pinned a page */

	/* Private to the engine. */
	struct userfaultfd *uffd; /* descriptor with which its memory is registered; or NULL */
	bool loads_only;         /* its mappings are never stored to */

	/*
	 * Operations return 0, or -errno after which nothing has changed, unless their comment
	 * says otherwise. The caller holds the locks of the segments; an operation takes no lock
	 * of a segment.
	 */

	/* Makes a mapped range of reserved addresses: every access faults. */
	int (*adopt)(const struct engine *e, char *range, size_t len);
	/* Prepares memory whose pages will be moved to mapped ranges. */
	int (*adopt_pool)(const struct engine *e, char *pool, size_t len);
	/* Maps the frame at `pool` into the mapped range, as a whole and with its final rights at
	 * once. was_writable: the memory at `pool` is writable. */
	int (*map)(const struct engine *e, char *range, char *pool, size_t len, bool was_writable,
		   bool writable);
	/* Maps a copy of memory that belongs to no frame, and stays as it is. Needs `drops`. */
	int (*copy_in)(const struct engine *e, char *range, const char *from, size_t len,
		       bool writable);
	/* Returns whether one atomic call can move the memory, in the pool or in the mapped range.
	 * Several segments may be several VMAs, which Linux 6.17 moves one by one: after an error
	 * some of them have moved. */
	bool (*is_one)(char *at, size_t len);
	/* Allows or forbids stores to a part of the mapped range. */
	int (*protect)(const struct engine *e, char *range, size_t len, bool writable);
	/* Returns the frame to the pool, where it keeps its rights (`writable`); its place faults.
	 * exposed: the frame was writable at some time since it was mapped. -EBUSY: the kernel has
	 * pinned it, and may store to it at any moment. */
	int (*unmap)(const struct engine *e, char *range, char *pool, size_t len, bool writable,
		     bool exposed);
	/* Like unmap, for a range that no thread uses any more. The place stays empty, and the
	 * caller must discard it before engine_release_places. -EOPNOTSUPP: use unmap. */
	int (*unmap_last)(char *range, char *pool, size_t len);
	/* Makes the place fault, and drops its contents. Works also if no VMA can be added. */
	int (*discard)(char *range, size_t len);
	/* Makes threads that wait for an access to the range repeat it. */
	void (*wake)(const struct engine *e, char *range, size_t len);
	/* poison makes every access to the absent place raise SIGSEGV or get EFAULT; unpoison ends
	 * that. Only for engines by message. */
	int (*poison)(const struct engine *e, char *range, size_t len);
	int (*unpoison)(const struct engine *e, char *range, size_t len);
};

/* segv uses SIGSEGV and mremap(2). uffd gets messages of userfaultfd(2), and sigbus its signals;
 * the engines `_read` are for mappings that are never stored to. */
extern const struct engine engine_segv, engine_uffd, engine_uffd_read, engine_sigbus,
	engine_sigbus_read;

#endif
