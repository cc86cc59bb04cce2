/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine: how a mapping learns of accesses to absent segments, and how frames move to the mapped range and back to
 * the pool. Each has one table of capabilities and operations; another engine is another file with such a table, and a
 * line in engine.c. Callers look at the capabilities of an engine, never at which one it is.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include "engine/sigsegv.h"

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

/* What a mapping requires of its engine. */
struct engine_wish {
	int wanted;              /* UMMAP_ENGINE_* */
	bool kernel, shared;     /* UMMAP_KERNEL, UMMAP_SHARED */
	bool small;              /* its segments are small */
	bool writable;
};

/* From now on faults in mapped ranges are passed to `fault`, and threads that serve messages run `serve`.
 * Returns 0 or -errno with a sentence. */
int engine_start(enum fault_answer (*fault)(struct fault *), void *(*serve)(void *));
/* Chooses the engine for a mapping and starts it. 0, or -errno with a sentence. */
int engine_choose(const struct engine_wish *wish, const struct engine **e);
/* In a forked child: none is started. */
void engine_forget(void);
/* As UMMAP_ENGINE_* has it. */
int engine_number(const struct engine *e);
/* Whether accesses by system calls and other processes fault, too. */
bool engine_sees_kernel(const struct engine *e);
/* Which system call was refused (sys_failure), or only -errno; and what to do. `what`: the sentence's begin. Returns
 * -errno. */
int engine_fail(const struct engine *e, const char *what, int err);

/* ---- Mapped ranges ---- */

/* Address space in which every access faults, with whole reserved pages before and after it. 0, or -errno with a
 * sentence. */
int engine_attach(const struct engine *e, size_t len, size_t seg_size, size_t before, size_t after, char **range);
/* More of it right behind a range. false: something else is there. */
bool engine_extend(const struct engine *e, char *range, size_t len, size_t more);
/* Makes every access to a range fault again, in which something else was mapped. 0 or -errno. */
int engine_reset(const struct engine *e, char *range, size_t len);
/* Frees a range; a thread that waits for a segment there then faults at an address of no mapping. */
void engine_detach(const struct engine *e, char *range, size_t len);
/* As engine_detach; what is mapped at `with` moves there with no moment between. 0, or -errno: it has not moved. */
int engine_replace(const struct engine *e, char *range, size_t len, void *with);
/* Between these two no mapped range is made, or grown, into places that are empty for the moment. The caller must not
 * wait for such a call. */
void engine_hold_places(void);
void engine_release_places(void);

/*
 * Between these two, frames that the calling thread maps and unmaps may leave copies behind, and places that it discards
 * may keep them, which are freed together at the end; or before it, when such copies have `most` bytes. Until then their
 * segments stay locked, and discarded ones keep their frames. Not nested.
 */
void engine_batch_begin(size_t most);
void engine_batch_end(void);

/* ---- Accesses by message: for the threads that serve them ---- */

/* The next access that waits to be served; waits for one if `wait`. false: there is none at the moment, or another
 * thread serves it. */
bool engine_next(struct fault *fault, bool wait);
/* Called before a serving thread may wait for long, so that another one takes the next access. Any thread may
 * call it. */
void engine_hand_off(void);

#endif
