/* SPDX-License-Identifier: BSD-3-Clause */
/* Rights on the view: what can be loaded and stored there, and how frames get there and back. */
#ifndef ENGINE_H
#define ENGINE_H

#include "engine/chain.h"

#include <stdbool.h>
#include <stddef.h>

/* By what a mapping learns of accesses to what is absent. */
enum engine {
	ENGINE_SEGV,      /* SIGSEGV and mremap */
	ENGINE_UFFD,      /* userfaultfd */
	ENGINE_UFFD_READ  /* the same, for a mapping that is only loaded from */
};

/* SIGSEGVs in views are handed to `fault` from then on. Returns 0 or -errno with a sentence. */
int engine_start(enum chain_answer (*fault)(const struct chain_fault *));
/* `threads` that run `serve` are there for what comes by userfaultfd, unless there are some. Returns 0 or -errno with a
 * sentence. */
int engine_start_uffd(unsigned threads, void *(*serve)(void *));
/* For these threads, the next access that cannot go on; waits for it if `wait`. false: there is none just now, or
 * another thread sees to it. */
bool engine_next(struct chain_fault *fault, bool wait);
/* Whether they are told of accesses by the kernel and other processes, too. */
bool engine_sees_kernel(void);
/* In a forked child: there are none. */
void engine_forget(void);
/* Before a thread of these may wait for long, so that another one is there for the next access. For any thread. */
void engine_relieve(void);

/* Address space in which every access faults, with whole pages before and after it that are nobody's; NULL: none left. */
char *engine_attach(enum engine e, size_t len, size_t seg_size, size_t before, size_t after);
/* More of it right behind a view. false: something else is there. */
bool engine_extend(enum engine e, char *view, size_t len, size_t more);
/* A view in which something else was mapped is one in which every access faults again. 0 or -errno. */
int engine_reset(enum engine e, char *view, size_t len);
/* Whoever waits for something there faults at an address that is nobody's. */
void engine_detach(enum engine e, char *view, size_t len);
/* Whoever waits for an access to the view tries it again. */
void engine_wake(enum engine e, char *view, size_t len);

/*
 * The frame at home, which may be stored to there or not (`was_writable`), appears in the view, whole and with
 * its final rights at once. All of these return 0, or -errno and have changed nothing.
 */
int engine_publish(enum engine e, char *view, char *home, size_t len, bool was_writable, bool writable);
/* Whether what stands there, at home or in the view, can be moved at one stroke. Several segments may be several mappings
 * of the kernel's, which Linux 6.17 moves one by one: if it runs short on the way, some have moved. */
bool engine_is_one(enum engine e, char *at, size_t len);
/* What stands in the view may be stored to, or no longer. */
int engine_protect(enum engine e, char *view, size_t len, bool writable);
/* Between these two no view comes about, or grows, where places are empty. The caller waits for no such call. */
void engine_hold_places(void);
void engine_release_places(void);
/* The frame goes home, and keeps its rights (`writable`); the view's place faults. `exposed`: it could be stored to at
 * some time since it was published. -EBUSY: the kernel works on it, and may store to it at any moment. */
int engine_retract(enum engine e, char *view, char *home, size_t len, bool writable, bool exposed);
/*
 * Between these two the calling thread's frames, as they are published and go home, may leave copies behind that are
 * given back together in the end. Until then their segments stay locked. Not nested.
 */
void engine_gather(void);
void engine_settle(void);
/* The same where nobody uses the view any more: the place stays empty until it is discarded, and has to be before
 * engine_release_places. -EOPNOTSUPP: only engine_retract can do that. */
int engine_leave(enum engine e, char *view, char *home, size_t len);
/* The view's place faults and what stood there is lost: the way out when no mapping may be added. */
int engine_discard(enum engine e, char *view, size_t len);

/* For userfaultfd: every access to the absent place raises SIGSEGV, or gets EFAULT; and no longer. */
int engine_bar(char *view, size_t len);
int engine_unbar(enum engine e, char *view, size_t len);

/* ---- The two ways of doing so, for engine.c. ---- */

int engine_segv_publish(char *view, char *home, size_t len, bool was_writable, bool writable);
bool engine_segv_is_one(char *at, size_t len);
int engine_segv_protect(char *view, size_t len, bool writable);
int engine_segv_retract(char *view, char *home, size_t len, bool writable);
int engine_segv_leave(char *view, char *home, size_t len);
int engine_segv_discard(char *view, size_t len);

void engine_uffd_forget(void);
/* Reserved addresses become a view. 0 or -errno. */
int engine_uffd_adopt(enum engine e, char *view, size_t len);
int engine_uffd_publish(char *view, char *home, size_t len, bool writable);
int engine_uffd_protect(char *view, size_t len, bool writable);
int engine_uffd_retract(enum engine e, char *view, char *home, size_t len, bool writable, bool exposed);
int engine_uffd_discard(char *view, size_t len);

#endif
