/* SPDX-License-Identifier: BSD-3-Clause */
/* The pool: frames of memory, on huge pages where possible. */
#ifndef FRAME_H
#define FRAME_H

#include "memory/arena.h"

/* The largest frame that can be shared. */
#define FRAME_SHARED_MAX ((size_t)1 << 32)

/* At most `most` mapped (and shared) frames may be taken at a time. */
void frame_start(uint32_t most);
/* In a forked child: the pool is empty. */
void frame_forget(void);

/*
 * Takes a frame of len bytes (a power of two); its contents are undefined, and it may be read-only (frame_writable).
 * New memory is allocated only up to `limit` bytes in all. FRAME_NONE: there is none within the limit.
 */
#define FRAME_ONE_MORE 0 /* as a limit: memory for this one, whatever all others have */
uint32_t frame_take(enum frame_kind kind, size_t len, size_t limit);
/* Takes all frames of a huge page that has had no memory before, mapped ones of len bytes: the first of them. Never, where
 * more address space would lie idle than the pool has memory. It does not count for frame_peak. */
uint32_t frame_take_huge(size_t len, size_t limit);
/* Reserves address space for such frames; false: there is none. */
bool frame_prepare(enum frame_kind kind, size_t len);
/* The process has locked its memory (mlockall(2)): unlocks that of the pool, and frees the memory that the lock has
 * filled needlessly. */
void frame_unlock(void);
/* Frees what the lock has filled at the pool address of a frame that is mapped as a whole. */
void frame_drop_memory(uint32_t frame);
/* Frees a frame, which must be in the pool, and keeps its memory. */
void frame_free(uint32_t frame);
/* Frees a frame, and its memory to the system; the frame need not be in the pool, if its memory was discarded
 * elsewhere. */
void frame_free_to_system(uint32_t frame);
/* Those that are copied, and are in the pool, give their memory to the system, by one call where it can. */
void frame_empty(const uint32_t *frames, unsigned n);
/* How many frames of len bytes are populated at a time, as one huge page: 1, where they move page by page or `limit` is
 * too small for whole huge pages. */
uint32_t frame_block(enum frame_kind kind, size_t len, size_t limit);
/* Whether frame_take would find one at the moment. */
bool frame_spare(enum frame_kind kind, size_t len, size_t limit);
/* Prepares a free frame with writable memory for the next frame_take, if the limit allows it. */
void frame_stock(enum frame_kind kind, size_t len, size_t limit);
/* Frees to the system the memory of free frames other than these (of all, if except_len is 0). true: some was
 * freed. */
bool frame_shrink(enum frame_kind except, size_t except_len);
/* Called now and then: frees to the system the memory of frames that have been free since the last call. */
void frame_age(void);

/* Its address in the pool. */
static inline char *frame_addr(uint32_t frame)
{
	return arena_addr(frame);
}

/* Whether the second of two frames is right behind the first in the pool; and whether on the same huge page. */
bool frame_follows(uint32_t first, uint32_t second);
bool frame_on_one(uint32_t first, uint32_t second);
/* Whether a frame that the caller has taken is writable in the pool; makes n consecutive ones writable (0 or -errno);
 * records it for n that have moved by one call. */
bool frame_writable(uint32_t frame);
int frame_make_writable(uint32_t frame, unsigned n);
void frame_set_writable(uint32_t first, unsigned n, bool writable);
/* Called before a frame that the caller has taken is filled: whether it still has its initial zeros. */
bool frame_use_blank(uint32_t frame);
/* ... looks only. */
bool frame_is_blank(uint32_t frame);
/* A whole frame is mapped now, and its place in the pool empty; or it is in the pool again. */
void frame_set_away(uint32_t frame, bool away);
/* n frames have moved, or got other rights, by one call: if they are only parts of huge pages, small pages map these
 * from then on. */
void frame_note_split(uint32_t first, unsigned n);
/* Whether that has happened to the private huge page that begins with `first`. */
bool frame_is_split(uint32_t first);
/* Puts the n frames of a huge page, which are taken, in the pool and without needed contents, on a huge page again, if
 * there is one. */
void frame_collapse(uint32_t first, unsigned n);
/* Bytes of memory that the pool holds, free frames included. */
size_t frame_held(void);
/* The most that it ever held. */
size_t frame_peak(void);
/* The number of mapped (and shared) frames that are taken. */
uint32_t frame_used(void);
uint32_t frame_most(void);
/* Lowers the number that may be taken; never raises it. */
void frame_restrict(uint32_t most);

#endif
