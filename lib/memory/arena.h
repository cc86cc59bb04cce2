/* SPDX-License-Identifier: BSD-3-Clause */
/* Where frames live: arenas of address space, and the memory behind them. */
#ifndef ARENA_H
#define ARENA_H

#include "base/sys.h"

#define FRAME_NONE UINT32_MAX
#define ARENA_NONE UINT32_MAX

/* How a frame gets into a mapped range. */
enum frame_kind {
	FRAME_MAPPED,  /* by a mapping of its own: it is on huge pages, and there are at most so many */
	FRAME_PAGED,   /* page by page: it is on small pages, and may always be written in the pool */
	FRAME_SHARED,  /* as FRAME_MAPPED, of memory that other processes can map, too */
	FRAME_KINDS
};

/* Frames of one size; frame f is number f & 0xffff of arena f >> 16. */
struct arena {
	char *base;
	size_t len;          /* of a frame */
	enum frame_kind kind;
	uint32_t frames;
	uint32_t unpopulated;      /* frames from here on never had memory; the pool's, as is `next` */
	uint32_t *next, *prev; /* links of the pool's lists, by frame */
	uint8_t *free;       /* by the first frame of a huge page: how many of its frames are free; the pool's */
	bool *readonly;        /* may only be read in the pool, by frame; the taker's, lazy memory behind `next` */
	_Atomic bool *split; /* by the first frame of a huge page: parts of it have moved, so it is mapped by small ones */
	bool *blank;         /* has the zeros that it came with, by frame; the taker's */
	uint32_t older;      /* the arena before it of the same size */
};

extern struct arena arenas[];

static inline struct arena *arena_of(uint32_t frame)
{
	return &arenas[frame >> 16];
}

static inline char *arena_addr(uint32_t frame)
{
	const struct arena *a = arena_of(frame);

	return a->base + (size_t)(frame & 0xffff) * a->len;
}

/* It moves as a whole, by a mapping of its own. */
static inline bool arena_maps(enum frame_kind kind)
{
	return kind != FRAME_PAGED;
}

/* Frames of len bytes on one huge page, or that take one or more each. */
static inline uint32_t arena_per_huge(size_t len)
{
	return len < HUGE_PAGE ? (uint32_t)(HUGE_PAGE / len) : 1;
}

/* How many frames of len bytes an arena has. */
size_t arena_frames(size_t len);
/* Bytes of memory that come at a time for frames of len bytes, where there is no need to count them. */
size_t arena_block(enum frame_kind kind, size_t len);

/* Makes one more arena, which stands before `older`: its number, or ARENA_NONE. The caller's lock is held. */
uint32_t arena_add(enum frame_kind kind, size_t len, uint32_t older);
/* Gives [frame, frame + len) memory, all of which may be written; false: there is none. */
bool arena_populate(uint32_t frame, size_t len);
/* [frame, frame + len) has no memory any more, whoever has it mapped. */
void arena_drop(uint32_t frame, size_t len);
/* [frame, frame + len), private and in the pool, is on huge pages again, may be written (or not, where no right can be had just now), and has nothing of what was in it;
 * false: it is as it was. */
bool arena_collapse(uint32_t frame, size_t len, bool *writable);
/* An arena none of whose frames has memory is as it was when it was added; false: it could not be done. */
bool arena_renew(struct arena *a);
/* No lock on memory (mlockall(2)) holds what is in the pool. The caller's lock is held. */
void arena_unlock(void);
/* In a forked child: there is none. */
void arena_forget(void);

#endif
