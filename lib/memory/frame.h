/* SPDX-License-Identifier: BSD-3-Clause */
/* The pool: frames of memory, on huge pages where possible. */
#ifndef FRAME_H
#define FRAME_H

#include "memory/arena.h"
#include "memory/tiers.h"

/* The frames of a class whose memory is of one place. */
struct frame_stock {
	struct freelist free;    /* free frames; its `least` counts from the last frame_age() */
	uint32_t released;       /* list of released frames, FRAME_NONE at the end */
	uint32_t released_count; /* length of that list */
	uint32_t arena;          /* newest arena; ARENA_NONE before the first */
	uint32_t with_memory;    /* number of frames that are free or taken */
	uint32_t hand[2];        /* next frame of frame_next_user for each hand; FRAME_NONE: the
				    first one */
};

/* Frames of one type and size. */
struct frame_class {
	const struct frame_type *type; /* how they get and lose memory */
	bool shared;             /* other processes can map them */
	size_t len;              /* bytes of a frame, a power of two */
	uint32_t block;          /* frames that get memory at a time, if the limit allows it */
	struct frame_stock at[MAX_PLACES];
};

/* Starts the pool: at most `most` frames that move as a whole may be taken at a time. */
void frame_start(uint32_t most);
/* In a forked child: the pool is empty. */
void frame_forget(void);
/* Returns the class of the frames of this type and size; NULL if there are too many classes. */
struct frame_class *frame_find_class(const struct frame_type *type, bool shared, size_t len);
/* Reserves address space for frames of the class. Returns false if there is none. */
bool frame_prepare(struct frame_class *c);

/* Returns whether frames move as a whole, each as a VMA of the kernel, whose number is limited. */
static inline bool frames_are_whole(const struct frame_class *c)
{
	return c->type->whole;
}

/* Returns whether the mapped range has copies of frames: a clean segment then leaves without its
 * frame, and a frame has memory in the pool only while its contents are there. */
static inline bool frames_are_copied(const struct frame_class *c)
{
	return c->type->copied;
}

/* A limit that allows memory for one frame, however much other frames have. */
#define FRAME_ONE_MORE 0
/* Bytes of memory that the frames of a place hold, free frames included. */
size_t frame_held_at(unsigned place);
/* Bytes that frames of a place may have; SIZE_MAX: it has no limit of its own. */
size_t frame_limit_at(unsigned place);
/* Whether the frames of the place of a frame exceed that limit. */
bool frame_exceeds_limit(uint32_t frame);
/* Raises that limit. */
void frame_add_limit(unsigned place, size_t bytes);

/* Sets of places have a bit for each place. */
/* Takes a frame of the first place of `places` that has one. Its contents are undefined, and it may
 * be read-only (frame_writable). New memory is allocated only up to `limit` bytes of all frames.
 * FRAME_NONE: there is no frame within the limit. */
uint32_t frame_take(struct frame_class *c, unsigned places, size_t limit);
/* Takes all frames of a huge page that is free as a whole, of the first place that has one, and
 * returns the first frame. Their contents are undefined, and some may be read-only. */
uint32_t frame_take_whole(struct frame_class *c, unsigned places);
/* Takes all frames of a huge page that has had no memory before, and returns the first. Fails if
 * more address space would be idle than the pool has memory. Does not count for frame_peak. */
uint32_t frame_take_huge(struct frame_class *c, unsigned place, size_t limit);
/* Frees a frame, which must be in the pool, and keeps its memory. */
void frame_free(uint32_t frame);
/* Frees a frame, and its memory to the system. The frame need not be in the pool if its memory was
 * discarded elsewhere. */
void frame_free_to_system(uint32_t frame);
/* Gives the memory of copied frames that are in the pool to the system, by one call if possible. */
void frame_empty(const uint32_t *frames, unsigned n);
/* Returns how many frames get memory at a time, as one huge page; 1 if they move page by page, or
 * `limit` is too small for whole huge pages. */
uint32_t frame_block(const struct frame_class *c, size_t limit);
/* Returns whether frame_take would find a frame at the moment. */
bool frame_is_available(struct frame_class *c, unsigned places, size_t limit);
/* Returns the same, and prepares a free frame with writable memory for the next frame_take. */
bool frame_prepare_next(struct frame_class *c, unsigned places, size_t limit);
/* Frees the memory of a free frame to the system, but not of one that frame_take would find in
 * these places of class `except` (NULL: none). Returns false if there is no such frame. */
bool frame_shrink(const struct frame_class *except, unsigned places);
/* Called regularly: frees to the system the memory of frames that have been free since the last
 * call. */
void frame_age(void);
/* The process has locked its memory (mlockall(2)): unlocks that of the pool, and frees the memory
 * that the lock has filled needlessly. */
void frame_unlock(void);
/* Frees the memory that a lock has filled at the pool address of a frame that is mapped as a
 * whole. */
void frame_drop_memory(uint32_t frame);

/* With tiers: the use of a frame. */
static inline struct frame_use *frame_use(uint32_t frame)
{
	return &arena_of(frame)->use[frame & 0xffff];
}
/* Records that a segment has got a frame. */
static inline void frame_set_user(uint32_t frame, void *user)
{
	frame_use(frame)->user = user;
	frame_use(frame)->sampled = 0;
	frame_use(frame)->interval[0] = frame_use(frame)->interval[1] = 0;
}
/* A frame is free: its record would only delay the clock. */
static inline void frame_forget_user(uint32_t frame)
{
	if (tier_count)
		frame_use(frame)->user = NULL;
}
/* Moves a hand of a clock over the frames of a place to the next one that has a user. Returns it,
 * or FRAME_NONE if there is none near. */
enum { FRAME_HAND_VICTIMS, FRAME_HAND_SAMPLES };
uint32_t frame_next_user(struct frame_class *c, unsigned place, unsigned hand, void **user);
/* Returns the n-th class; NULL: there are fewer. */
struct frame_class *frame_nth_class(unsigned n);

/* Counts a frame that becomes pinned, or is no longer pinned. */
void frame_count_pin(uint32_t frame, bool is_pinned);
/* Bytes of the pinned frames of a place. */
size_t frame_pinned_at(unsigned place);

/* Returns the address of a frame in the pool. */
static inline char *frame_addr(uint32_t frame)
{
	return arena_addr(frame);
}

/* Returns the place that the memory of a frame comes from. */
static inline unsigned frame_place(uint32_t frame)
{
	return arena_of(frame)->place;
}

/* Called before the engine moves a frame, and place_end afterwards. Where frames move page by page,
 * some pages are copied, and the copies come from the place of the frame. */
static inline void frame_begin_copies(uint32_t frame, struct place_policy *before)
{
	const struct frame_type *type = arena_of(frame)->type;

	before->is_changed = false;
	if (!type->whole && !type->copied)
		place_begin(arena_of(frame)->place, before);
}

static inline struct frame_stock *frame_stock_of(uint32_t frame)
{
	return &arena_of(frame)->owner->at[frame_place(frame)];
}

/* Returns whether the second frame directly follows the first in the pool; and whether it is also
 * on the same huge page. */
bool frame_follows(uint32_t first, uint32_t second);
bool frame_on_one(uint32_t first, uint32_t second);
/* Returns whether a frame that the caller has taken is writable in the pool. */
static inline bool frame_writable(uint32_t frame)
{
	return !arena_of(frame)->readonly[frame & 0xffff];
}
/* Makes n consecutive frames writable in the pool. Returns 0 or -errno. */
int frame_make_writable(uint32_t frame, unsigned n);
/* Records that n frames were mapped by one call, with these rights. entire: no part of them has
 * stayed in the pool. */
void frame_note_mapped(uint32_t first, unsigned n, bool writable, bool entire);
/* Records that n frames have returned to the pool by one call, with these rights. */
void frame_note_unmapped(uint32_t first, unsigned n, bool writable);
/* Records that n frames have moved, or got other rights, by one call: if they are only parts of
 * huge pages, small pages map these from then on. */
void frame_note_split(uint32_t first, unsigned n);
/* Returns whether that has happened to the private huge page that begins with `first`. */
bool frame_is_split(uint32_t first);
/* Puts the n frames of a huge page, which are taken, in the pool and without needed contents, on a
 * huge page again, if there is one. */
void frame_collapse(uint32_t first, unsigned n);
/* Returns whether a frame that the caller has taken reads as zeros in the pool. */
static inline bool frame_is_blank(uint32_t frame)
{
	return arena_of(frame)->blank[frame & 0xffff];
}
/* Returns the same, before the frame is filled: it is no longer blank then. */
static inline bool frame_use_blank(uint32_t frame)
{
	bool *blank = &arena_of(frame)->blank[frame & 0xffff], was = *blank;

	if (was)
		*blank = false;
	return was;
}

/* The guess of a frame, which the caller holds; NULL: its arena has none. */
static inline struct frame_guess *frame_guess(uint32_t frame)
{
	struct frame_guess *guess = arena_of(frame)->guess;

	return guess ? &guess[frame & 0xffff] : NULL;
}

/* Bytes of memory that the pool holds, free frames included; and the most that it ever held. Frames
 * of places with files do not count. */
size_t frame_held(void);
size_t frame_peak(void);
/* The number of frames taken that move as a whole, and its bound. */
uint32_t frame_used(void);
uint32_t frame_most(void);
/* Lowers the bound; never raises it. */
void frame_restrict(uint32_t most);

#endif
