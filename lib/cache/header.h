/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The header of a segment: 32 bytes, all zeros for a segment that was never accessed (thesis,
 * Section 6.1.1). Only the holder of its lock changes the header. Other threads may read `head`.
 */
#ifndef HEADER_H
#define HEADER_H

#include "base/sys.h"

#include <ummap-policy.h>

struct seg {
	_Atomic uint64_t head;       /* the bits and fields below */
	_Atomic uint32_t lock;       /* futex, which counts no waiters, unlike the thesis */
	uint32_t frame;              /* number of the frame, if VALID; time, if LEFT_BEHIND */
	struct ummap_node node;      /* node of the policy, or of cache.c while inactive */
};

_Static_assert(sizeof(struct seg) == 32, "the thesis's segment structure");

/* The bits of a header, which lib/STATES.md explains. */
#define SEG_VALID 0x01ull     /* has a frame with its contents */
#define SEG_INACTIVE 0x02ull  /* the frame is in the pool, not in the mapped range */
#define SEG_DIRTY 0x04ull     /* changed since it was read or written */
#define SEG_WRITABLE 0x08ull  /* the program can store to it without a fault */
#define SEG_STORED 0x10ull    /* was written to the store, and is read from there */
#define SEG_AHEAD 0x20ull     /* inactive; read ahead and not accessed yet */
#define SEG_DEVICE 0x40ull    /* pinned for writing: may change without a fault */
#define SEG_POISONED 0x80ull  /* loading has failed, so its slot cannot be accessed */

#define SEG_BACKING_SHIFT 8   /* number of the backing store that holds its contents, 1 bit */
#define SEG_BACKINGS 2
#define SEG_LABEL_SHIFT 9     /* label that its policy gave it when it was last resident, 2 bits */
#define SEG_LABELS 4
#define SEG_LEFT_BEHIND (1ull << 11) /* absent; dropped behind a sequential run (recycle.c) */
#define SEG_PINS_SHIFT 12     /* number of pins, 11 bits */
#define SEG_PINS_MAX 2047
#define SEG_COMMIT (1ull << 23) /* dirty; the commit in flight needs these contents (commit.c) */
#define SEG_TIME_SHIFT 24     /* time of the first change in ms, 37 bits */
#define SEG_PAGECACHE (1ull << 61)  /* absent, but its slot has a page-cache mapping, read-only */
#define SEG_POISON_OLD (1ull << 62) /* poisoned since before the background thread's last round */
#define SEG_EXPOSED (1ull << 63)    /* was writable at some time since it became resident */

static inline uint64_t seg_head(const struct seg *s)
{
	return atomic_load_explicit(&s->head, memory_order_relaxed);
}

static inline bool seg_has(const struct seg *s, uint64_t bits)
{
	return (seg_head(s) & bits) == bits;
}

static inline void seg_change(struct seg *s, uint64_t clear, uint64_t set)
{
	/* Release: another process that sees a bit also sees the frame in the state that the bit
	 * describes. */
	atomic_store_explicit(&s->head, (seg_head(s) & ~clear) | set, memory_order_release);
}

/* Whether the contents are those that were loaded: the segment is clean, no flush is in doubt about
 * it, and it was not writable since it became resident. */
static inline bool seg_as_loaded(const struct seg *s)
{
	return !(seg_head(s) & (SEG_DIRTY | SEG_EXPOSED));
}

static inline unsigned seg_backing(const struct seg *s)
{
	return (seg_head(s) >> SEG_BACKING_SHIFT) & (SEG_BACKINGS - 1);
}

static inline void seg_set_backing(struct seg *s, unsigned backing)
{
	seg_change(s, (uint64_t)(SEG_BACKINGS - 1) << SEG_BACKING_SHIFT,
		   (uint64_t)backing << SEG_BACKING_SHIFT);
}

static inline unsigned seg_label(const struct seg *s)
{
	return (seg_head(s) >> SEG_LABEL_SHIFT) & (SEG_LABELS - 1);
}

static inline void seg_set_label(struct seg *s, unsigned label)
{
	seg_change(s, (uint64_t)(SEG_LABELS - 1) << SEG_LABEL_SHIFT,
		   (uint64_t)(label & (SEG_LABELS - 1)) << SEG_LABEL_SHIFT);
}

static inline unsigned seg_pins(const struct seg *s)
{
	return (seg_head(s) >> SEG_PINS_SHIFT) & SEG_PINS_MAX;
}

static inline void seg_set_pins(struct seg *s, unsigned pins)
{
	seg_change(s, (uint64_t)SEG_PINS_MAX << SEG_PINS_SHIFT, (uint64_t)pins << SEG_PINS_SHIFT);
}

#define SEG_TIME_MASK ((1ull << 37) - 1)

static inline uint64_t seg_time(const struct seg *s)
{
	return seg_head(s) >> SEG_TIME_SHIFT & SEG_TIME_MASK;
}

static inline void seg_set_time(struct seg *s, uint64_t now)
{
	seg_change(s, SEG_TIME_MASK << SEG_TIME_SHIFT, (now & SEG_TIME_MASK) << SEG_TIME_SHIFT);
}

static inline void seg_lock(struct seg *s)
{
	futex_lock(&s->lock);
}

static inline bool seg_trylock(struct seg *s)
{
	return futex_trylock(&s->lock);
}

static inline void seg_unlock(struct seg *s)
{
	futex_unlock(&s->lock);
}

#endif
