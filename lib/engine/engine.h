/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine: how a mapping learns of accesses to what is absent, and how frames get to the mapped range and back to the
 * pool. One table of capabilities and operations each; another engine is another file with such a table, and a line in
 * engine.c. What callers want to know of an engine they ask its capabilities, never which one it is.
 */
#ifndef ENGINE_H
#define ENGINE_H

#include "engine/sigsegv.h"

#include <stdbool.h>
#include <stddef.h>

struct engine {
	const char *needs;       /* what a process must be allowed for it, and what to try instead: for a sentence */
	const struct engine *stored_to; /* this one for mappings that may be stored to */

	/* Capabilities. */
	bool vma_each;           /* each mapped segment is a mapping of the kernel's, of which there are vm.max_map_count */
	bool moves_huge;         /* neighbours, and whole huge pages, are mapped and unmapped by one call */
	bool page_cache;         /* a place may show pages of the kernel's page cache */
	bool by_message;         /* accesses are served by threads of ours: who waits can be told an error by poison only */
	bool pins_block;         /* unmap finds out whether the kernel works on a page (-EBUSY) */

	/*
	 * Operations: 0, or -errno and nothing has changed, unless said otherwise. The caller holds the locks of the
	 * segments; none takes one of its own.
	 */

	/* Reserved addresses become a mapped range: every access faults. */
	int (*adopt)(char *range, size_t len);
	/* Memory whose pages are going to stand in mapped ranges. */
	int (*adopt_pool)(char *pool, size_t len);
	/* The frame at `pool`, which may be stored to there or not (`was_writable`), appears in the mapped range, whole and
	 * with its final rights at once. */
	int (*map)(char *range, char *pool, size_t len, bool was_writable, bool writable);
	/* Whether what stands there, in the pool or in the mapped range, can be moved at one stroke. Several segments may be
	 * several mappings of the kernel's, which Linux 6.17 moves one by one: if it runs short on the way, some have moved. */
	bool (*is_one)(char *at, size_t len);
	/* What stands in the mapped range may be stored to, or no longer. */
	int (*protect)(char *range, size_t len, bool writable);
	/* The frame goes back to the pool, and keeps its rights (`writable`); its place faults. `exposed`: it could be stored
	 * to at some time since it was mapped. -EBUSY: the kernel works on it, and may store to it at any moment. */
	int (*unmap)(char *range, char *pool, size_t len, bool writable, bool exposed);
	/* The same where nobody uses the range any more: the place stays empty until it is discarded, and has to be before
	 * engine_release_places. -EOPNOTSUPP: only unmap can do that. */
	int (*unmap_last)(char *range, char *pool, size_t len);
	/* The place faults and what stood there is lost: the way out when no mapping may be added. */
	int (*discard)(char *range, size_t len);
	/* Whoever waits for an access to the range tries it again. */
	void (*wake)(char *range, size_t len);
	/* Every access to the absent place raises SIGSEGV, or gets EFAULT; and no longer. For engines by message. */
	int (*poison)(char *range, size_t len);
	int (*unpoison)(char *range, size_t len);
};

/* SIGSEGV and mremap; userfaultfd; the same for mappings that are only loaded from. */
extern const struct engine engine_segv, engine_uffd, engine_uffd_read;

/* What a mapping asks of its engine. */
struct engine_wish {
	int wanted;              /* UMMAP_ENGINE_* */
	bool kernel, shared;     /* UMMAP_KERNEL, UMMAP_SHARED */
	bool small;              /* its segments are */
	bool writable;
};

/* Faults in mapped ranges are handed to `fault` from then on, and `serve` is what threads run that serve messages.
 * Returns 0 or -errno with a sentence. */
int engine_start(enum fault_answer (*fault)(const struct fault *), void *(*serve)(void *));
/* The engine for a mapping, which is started. 0, or -errno with a sentence. */
int engine_choose(const struct engine_wish *wish, const struct engine **e);
/* In a forked child: none is started. */
void engine_forget(void);

/* ---- Mapped ranges ---- */

/* Address space in which every access faults, with whole pages before and after it that are nobody's; NULL: none left. */
char *engine_attach(const struct engine *e, size_t len, size_t seg_size, size_t before, size_t after);
/* More of it right behind a range. false: something else is there. */
bool engine_extend(const struct engine *e, char *range, size_t len, size_t more);
/* A range in which something else was mapped is one in which every access faults again. 0 or -errno. */
int engine_reset(const struct engine *e, char *range, size_t len);
/* Whoever waits for something there faults at an address that is nobody's. */
void engine_detach(const struct engine *e, char *range, size_t len);
/* Between these two no mapped range comes about, or grows, where places are empty. The caller waits for no such call. */
void engine_hold_places(void);
void engine_release_places(void);

/*
 * Between these two the calling thread's frames, as they are mapped and unmapped, may leave copies behind that are
 * given back together in the end. Until then their segments stay locked. Not nested.
 */
void engine_batch_begin(void);
void engine_batch_end(void);

/* ---- Accesses by message: for the threads that serve them ---- */

/* The next access that cannot go on; waits for it if `wait`. false: there is none just now, or another thread sees to it. */
bool engine_next(struct fault *fault, bool wait);
/* Before a thread of these may wait for long, so that another one is there for the next access. For any thread. */
void engine_hand_off(void);

#endif
