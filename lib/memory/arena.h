/* SPDX-License-Identifier: BSD-3-Clause */
/* Arenas: address space for frames, the memory behind it, and lists of the free ones. */
#ifndef ARENA_H
#define ARENA_H

#include "base/place.h"
#include "base/sys.h"
#include "engine/table.h"

#define FRAME_NONE UINT32_MAX
#define ARENA_NONE UINT32_MAX
/* Huge pages with more frames than this are not tracked as wholes (struct freelist). */
#define ARENA_MAX_TRACKED 32

struct frame_class;

/* The use of the segment of a frame (paging/residency/tiering.c). */
struct frame_use {
	_Atomic(void *) user;   /* segment that has had the frame last, or NULL */
	uint32_t sampled;       /* time (ms) at which the segment lost its rights; 0: it has them */
	uint32_t interval[2];   /* times (ms) from the last two samples to the next use, the newest
				   first; 0: unknown */
};

/* A frame whose segment became writable before a store (paging/sync/guess.h). */
struct frame_guess {
	unsigned __int128 sum;  /* checksum of its contents at that time; 0: there is none */
	uint64_t first_sum;     /* checksum of its first bytes */
	uint64_t time;          /* time in the header of its segment before */
};

/* Frames of one class; frame f is number f & 0xffff of arena f >> 16. */
struct arena {
	char *base;
	size_t len;             /* bytes of a frame */
	const struct frame_type *type; /* how its frames get and lose memory */
	int file;               /* file that has the memory: the object of the process for shared
				   frames (shared_pool.h), or that of the place; -1: none */
	int64_t offset;         /* offset of the first frame in the file */
	struct frame_class *owner; /* class of its frames */
	unsigned place;         /* place that their memory comes from */
	uint32_t frames;        /* number of frames */
	uint32_t tracked;       /* frames of a huge page that the list of free frames tracks
				   together; 1: it tracks none */
	uint32_t unpopulated;   /* first frame that never had memory; under the pool's lock */
	uint32_t *next, *prev;  /* links of the pool's lists, by frame; under the pool's lock */
	uint8_t *free;          /* number of free frames of a huge page, by its first frame; under
				   the pool's lock */
	bool *readonly;         /* whether the frame is read-only in the pool, by frame; changed by
				   the holder of the frame */
	_Atomic bool *split;    /* whether parts of a huge page have moved, so that small pages map
				   it, by its first frame */
	bool *blank;            /* whether the frame reads as zeros in the pool, by frame: its
				   memory is new, or a copied frame has none; changed by the holder
				   of the frame */
	struct frame_guess *guess; /* by frame; changed by the holder of the frame; sum is 0 while
				   the frame is clean or free; NULL: there are no guesses */
	struct frame_use *use;  /* use of the segment, by frame; changed by the holder of the
				   segment's lock; NULL: there are no tiers */
	uint32_t older;         /* the preceding arena of the class, or ARENA_NONE */
};

extern struct arena arenas[];
/* Whether new arenas of copied frames can record guesses. */
extern bool arena_has_guesses;

static inline struct arena *arena_of(uint32_t frame)
{
	return &arenas[frame >> 16];
}

static inline char *arena_addr(uint32_t frame)
{
	const struct arena *a = arena_of(frame);

	return a->base + (size_t)(frame & 0xffff) * a->len;
}

/* Returns how many frames of len bytes are on one huge page; 1 if a frame takes one or more. */
static inline uint32_t arena_per_huge(size_t len)
{
	return len < HUGE_PAGE ? (uint32_t)(HUGE_PAGE / len) : 1;
}

/* Returns how many frames of len bytes an arena has. */
size_t arena_frames(size_t len);

/* Adds an arena in front of `older`. Returns its number, or ARENA_NONE. The caller holds the pool's
 * lock. */
uint32_t arena_add(struct frame_class *owner, const struct frame_type *type, bool shared,
		   size_t len, unsigned place, uint32_t older);
/* Called before the first use of the first unpopulated frame of an arena whose frames are copied:
 * memory that comes with the first bytes may be used from then on. The caller holds the pool's
 * lock. */
bool arena_open(const struct arena *a);
/* Populates [frame, frame + len) with writable memory. Returns false if there is none. */
bool arena_populate(uint32_t frame, size_t len);
/* Frees the memory of [frame, frame + len), wherever it is mapped. */
void arena_drop(uint32_t frame, size_t len);
/* Puts [frame, frame + len), private and in the pool, on huge pages again, without its contents.
 * *writable: whether the memory may be written, which can fail for lack of VMAs. Returns false if
 * nothing has changed. */
bool arena_collapse(uint32_t frame, size_t len, bool *writable);
/* Resets an arena none of whose frames has memory to its state when it was added. Returns false if
 * that failed. */
bool arena_renew(struct arena *a);
/* Removes locks of mlockall(2) from the memory of the pool. The caller holds the pool's lock. */
void arena_unlock(void);
/* In a forked child: there are no arenas. */
void arena_forget(void);

/* ---- The free frames of one class ---- */

/* Two lists: frames whose huge page is free as a whole, and all others. */
struct freelist {
	_Atomic uint32_t loose, whole; /* heads of the lists, FRAME_NONE at the end; last in, first
					  out */
	uint32_t count;      /* frames in both lists */
	uint32_t least;      /* least value of count since this was set */
};

#define FREELIST_EMPTY (struct freelist){ .loose = FRAME_NONE, .whole = FRAME_NONE }

/* These need the pool's lock. */

void freelist_push(struct freelist *l, uint32_t frame);
/* Returns a loose frame, if there is one; otherwise, one after the other, the frames of a whole
 * huge page from the first to the last. FRAME_NONE: both lists are empty. */
uint32_t freelist_pop(struct freelist *l);

/* Returns the first frame of a whole huge page and removes all of its frames; FRAME_NONE: no huge
 * page is free as a whole. */
uint32_t freelist_pop_whole(struct freelist *l);

/* May be called without the lock. */
static inline bool freelist_is_empty(const struct freelist *l)
{
	return l->loose == FRAME_NONE && l->whole == FRAME_NONE;
}

#endif
