/* SPDX-License-Identifier: BSD-3-Clause */
/* Where frames live: arenas of address space, and the memory behind them. */
#ifndef ARENA_H
#define ARENA_H

#include "base/sys.h"

#define FRAME_NONE UINT32_MAX
#define ARENA_NONE UINT32_MAX

/* How a frame moves into a mapped range. */
enum frame_kind {
	FRAME_MAPPED,  /* as a VMA of its own, whose number is limited: on huge pages */
	FRAME_PAGED,   /* page by page: on small pages, and always writable in the pool */
	FRAME_COPIED,  /* the same, as a copy: it has memory in the pool only while there is something in it (`blank`) */
	FRAME_SHARED,  /* like FRAME_MAPPED, in memory that other processes can map, too */
	FRAME_KINDS
};

/* Frames of one size; frame f is number f & 0xffff of arena f >> 16. */
struct arena {
	char *base;
	size_t len;          /* of a frame */
	enum frame_kind kind;
	uint32_t frames;
	uint32_t unpopulated; /* frames from here on never had memory; under the pool's lock, as is `next` */
	uint32_t *next, *prev; /* links of the pool's lists, by frame */
	uint8_t *free;       /* by the first frame of a huge page: how many of its frames are free; under the pool's lock */
	bool *readonly;      /* by frame: read-only in the pool; changed by the holder of the frame; lazy memory behind `next` */
	_Atomic bool *split; /* by the first frame of a huge page: parts of it have moved, so small pages map it */
	bool *blank;         /* by frame: in the pool, it has its initial zeros still or (FRAME_COPIED) no memory, which reads as
			      * zeros; changed by the holder of the frame */
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

/* It moves as a whole, as a VMA of its own. */
static inline bool arena_maps(enum frame_kind kind)
{
	return kind != FRAME_PAGED && kind != FRAME_COPIED;
}

/* Frames of len bytes on one huge page, or that take one or more each. */
static inline uint32_t arena_per_huge(size_t len)
{
	return len < HUGE_PAGE ? (uint32_t)(HUGE_PAGE / len) : 1;
}

/* How many frames of len bytes an arena has. */
size_t arena_frames(size_t len);
/* Bytes of memory that are populated at a time for frames of len bytes, if the limit allows it. */
size_t arena_block(enum frame_kind kind, size_t len);

/* Adds an arena, in front of `older` in the list: its number, or ARENA_NONE. The caller holds the pool's lock. */
uint32_t arena_add(enum frame_kind kind, size_t len, uint32_t older);
/* Before the first use of frame number `first` of an arena, in ascending order: memory that comes with the first bytes
 * may be used from then on. The caller holds the pool's lock. */
bool arena_open(const struct arena *a, uint32_t first);
/* Populates [frame, frame + len) with writable memory; false: there is none. */
bool arena_populate(uint32_t frame, size_t len);
/* Frees the memory of [frame, frame + len), wherever it is mapped. */
void arena_drop(uint32_t frame, size_t len);
/* Puts [frame, frame + len), private and in the pool, on huge pages again, without its contents. *writable: whether it
 * may be written, which can fail for lack of VMAs. false: nothing has changed. */
bool arena_collapse(uint32_t frame, size_t len, bool *writable);
/* Resets an arena none of whose frames has memory to its state when it was added; false: that failed. */
bool arena_renew(struct arena *a);
/* Removes locks of mlockall(2) from the memory of the pool. The caller holds the pool's lock. */
void arena_unlock(void);
/* In a forked child: there are no arenas. */
void arena_forget(void);

#endif
