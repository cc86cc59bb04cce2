/* SPDX-License-Identifier: BSD-3-Clause */
/* The pool: frames of real memory, on huge pages where they can be. */
#ifndef FRAME_H
#define FRAME_H

#include "memory/arena.h"

/* The longest frame that can be shared. */
#define FRAME_SHARED_MAX ((size_t)1 << 32)

/* At most `most` frames that are mapped may be taken at a time. */
void frame_start(uint32_t most);
/* In a forked child: the pool's memory is not there. */
void frame_forget(void);

/*
 * Takes a frame of len bytes (a power of two); its contents are anything, and so is whether it may be written.
 * New memory is charged only up to `limit` bytes in all. FRAME_NONE: there is none within the limit.
 */
uint32_t frame_take(enum frame_kind kind, size_t len, size_t limit);
/* Address space for such frames is there from then on; false: there is none. */
bool frame_prepare(enum frame_kind kind, size_t len);
/* The process has locked its memory (mlockall(2)): the pool's is not, and what that has filled without need is empty
 * again. */
void frame_unlock(void);
/* ... and so is the place in the pool of one that is away as a whole. */
void frame_drop_memory(uint32_t frame);
/* Gives a frame back; it must be in the pool. Its memory stays in the pool. */
void frame_free(uint32_t frame);
/* The same, and its memory goes back to the system; it need not be in the pool, if it was discarded elsewhere. */
void frame_free_to_system(uint32_t frame);
/* How many frames of len bytes come at a time, as one huge page: 1, where they move page by page or `limit` is too little
 * to have huge pages whole. */
uint32_t frame_block(enum frame_kind kind, size_t len, size_t limit);
/* Whether frame_take would find one just now. */
bool frame_spare(enum frame_kind kind, size_t len, size_t limit);
/* Sees to it that frame_take finds one that has memory and may be written, where the limit allows that. */
void frame_stock(enum frame_kind kind, size_t len, size_t limit);
/* Lets the system have the memory of free frames other than these (of any, if except_len is 0). true: some was
 * freed. */
bool frame_shrink(enum frame_kind except, size_t except_len);
/* Now and then: lets the system have the memory of frames that have been free since the last time. */
void frame_age(void);

/* Its address when it is in the pool. */
static inline char *frame_addr(uint32_t frame)
{
	return arena_addr(frame);
}

/* Whether the second of two frames stands right behind the first in the pool; and on the same huge page. */
bool frame_follows(uint32_t first, uint32_t second);
bool frame_on_one(uint32_t first, uint32_t second);
/* Whether a frame that its caller has taken may be written in the pool; makes n that follow one another so (0 or -errno);
 * notes it of n that have moved by one call. */
bool frame_writable(uint32_t frame);
int frame_make_writable(uint32_t frame, unsigned n);
void frame_set_writable(uint32_t first, unsigned n, bool writable);
/* Something will be put into a frame that its caller has taken: whether it still has the zeros that it came with. */
bool frame_use_blank(uint32_t frame);
/* n frames have moved, or got other rights, by one call: if they are only parts of huge pages, these are mapped by small
 * ones from then on. */
void frame_note_split(uint32_t first, unsigned n);
/* Whether that has happened to the private huge page that begins with `first`. */
bool frame_is_split(uint32_t first);
/* Its n frames, which are taken and in the pool, and whose contents nobody needs, are on a huge page again, if there is one. */
void frame_collapse(uint32_t first, unsigned n);
/* Bytes of memory that the pool holds, free frames included. */
size_t frame_held(void);
/* The most that it ever held. */
size_t frame_peak(void);
/* The number of mapped (and shared) frames that are taken. */
uint32_t frame_used(void);
uint32_t frame_most(void);
/* Lowers how many may be taken; never raises it. */
void frame_restrict(uint32_t most);

#endif
