/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pool: which frames are taken, and how much memory all frames have. A frame is unpopulated (never had memory),
 * free (has memory), released (gave its memory back) or taken. One leaf lock, never held while memory is populated or
 * released. Allocates nothing but address space.
 */
#include "memory/frame.h"

#include "memory/freelist.h"
#include "base/sys.h"
#include "engine/userfaultfd.h"

#include <string.h>
#include <sys/mman.h>

#define SIZES 64
#define CLASSES (FRAME_KINDS * SIZES)
/* With fewer huge pages than this in the budget, a whole one at a time would be too coarse. */
#define COARSE_MIN 16
/* How many unused frames of one size are freed at a time; the caller has other things to do. */
#define AGE_MOST 65536
/* So much address space of one size may lie idle before it is used again on small pages. */
#define RELEASED_BYTES ((size_t)256 << 20)

struct size_class {
	struct freelist free; /* its `least` is of the time since frame_age() looked */
	_Atomic uint32_t released; /* head of a list, FRAME_NONE at the end */
	uint32_t released_count;        /* ... and its length */
	uint32_t arena;      /* the latest, ARENA_NONE before the first */
	uint32_t with_memory; /* frames that are free or taken */
};

static struct size_class classes[CLASSES];
static _Atomic uint32_t lock;
static _Atomic size_t held, peak;
static _Atomic uint32_t used;
static _Atomic uint32_t used_max;

static struct size_class *class_of(enum frame_kind kind, size_t len)
{
	return &classes[kind * SIZES + __builtin_ctzl(len)];
}

static struct size_class *own_class(uint32_t frame)
{
	return class_of(arena_of(frame)->kind, arena_of(frame)->len);
}

static void count_taken(enum frame_kind kind, int more)
{
	/* Unsigned numbers wrap. */
	used += arena_maps(kind) ? (uint32_t)more : 0;
}

static uint32_t *link_of(uint32_t frame)
{
	return &arena_of(frame)->next[frame & 0xffff];
}

static bool *readonly_of(uint32_t frame)
{
	return &arena_of(frame)->readonly[frame & 0xffff];
}

static bool *blank_of(uint32_t frame)
{
	return &arena_of(frame)->blank[frame & 0xffff];
}

static _Atomic bool *split_of(uint32_t first)
{
	return &arena_of(first)->split[first & 0xffff];
}

bool frame_writable(uint32_t frame)
{
	return !*readonly_of(frame);
}

void frame_note_split(uint32_t first, unsigned n)
{
	uint32_t block = arena_per_huge(arena_of(first)->len), end = first + n;

	for (uint32_t at = first - first % block; at < end; at += block) {
		if ((at < first || at + block > end) && !*split_of(at))
			*split_of(at) = true;
	}
}

void frame_set_writable(uint32_t first, unsigned n, bool writable)
{
	/* Its rights stay behind with its place in the pool. */
	if (!arena_maps(arena_of(first)->kind))
		return;
	frame_note_split(first, n);
	for (uint32_t frame = first; frame < first + n; frame++) {
		if (*readonly_of(frame) == writable)
			*readonly_of(frame) = !writable;
	}
}

bool frame_follows(uint32_t first, uint32_t second)
{
	return second == first + 1 && arena_of(first) == arena_of(second);
}

bool frame_on_one(uint32_t first, uint32_t second)
{
	return frame_follows(first, second) && second % arena_per_huge(arena_of(first)->len) != 0;
}

int frame_make_writable(uint32_t frame, unsigned n)
{
	bool *readonly = readonly_of(frame);

	if (!memchr(readonly, true, n))
		return 0;
	if (mprotect(arena_addr(frame), n * arena_of(frame)->len, PROT_READ | PROT_WRITE) < 0)
		return -errno;
	memset(readonly, false, n);
	frame_note_split(frame, n);
	return 0;
}

bool frame_use_blank(uint32_t frame)
{
	bool *blank = blank_of(frame), was = *blank;

	if (was)
		*blank = false;
	return was;
}

bool frame_is_blank(uint32_t frame)
{
	return *blank_of(frame);
}

void frame_set_away(uint32_t frame, bool away)
{
	if (arena_of(frame)->kind == FRAME_COPIED)
		*blank_of(frame) = away;
}

bool frame_is_split(uint32_t first)
{
	return arena_of(first)->kind == FRAME_MAPPED && *split_of(first);
}

void frame_collapse(uint32_t first, unsigned n)
{
	size_t len = n * arena_of(first)->len;
	bool writable;

	if (!arena_collapse(first, len, &writable))
		return;
	memset(readonly_of(first), !writable, n);
	*split_of(first) = false;
}

size_t frame_held(void)
{
	return atomic_load_explicit(&held, memory_order_relaxed);
}

size_t frame_peak(void)
{
	return atomic_load_explicit(&peak, memory_order_relaxed);
}

uint32_t frame_used(void)
{
	return atomic_load_explicit(&used, memory_order_relaxed);
}

uint32_t frame_most(void)
{
	return used_max;
}

void frame_restrict(uint32_t most)
{
	if (most < used_max)
		used_max = most;
}

void frame_start(uint32_t most)
{
	used_max = most;
	for (unsigned i = 0; i < CLASSES; i++)
		classes[i] = (struct size_class){ .free = FREELIST_EMPTY, .released = FRAME_NONE, .arena = ARENA_NONE };
}

void frame_forget(void)
{
	arena_forget();
	lock = 0;
	held = peak = 0;
	used = 0;
	frame_start(used_max);
}

/* Under the lock. */
static uint32_t pop_released(struct size_class *c)
{
	uint32_t frame = c->released;

	c->released = *link_of(frame);
	c->released_count--;
	return frame;
}

/* Under the lock. */
static void push_released(uint32_t frame)
{
	struct size_class *c = own_class(frame);

	*link_of(frame) = c->released;
	c->released = frame;
	c->released_count++;
}

/* Under the lock. */
static void push_free(uint32_t frame)
{
	freelist_push(&own_class(frame)->free, frame);
}

/* Under the lock: no frame of this size has memory, so all arenas can start again. Frames of one that cannot stay
 * unused. */
static void restart(struct size_class *c)
{
	c->released = FRAME_NONE;
	c->released_count = 0;
	for (uint32_t i = c->arena; i != ARENA_NONE; i = arenas[i].older)
		arena_renew(&arenas[i]);
}

/* Under the lock: an arena that has unpopulated frames, or ARENA_NONE. */
static uint32_t unpopulated_arena(const struct size_class *c)
{
	uint32_t i = c->arena;

	while (i != ARENA_NONE && arenas[i].unpopulated == arenas[i].frames)
		i = arenas[i].older;
	return i;
}

static uint32_t coarse(enum frame_kind kind, size_t len, size_t limit)
{
	size_t block = arena_block(kind, len);

	return limit >= COARSE_MIN * block ? (uint32_t)(block / len) : 1;
}

uint32_t frame_block(enum frame_kind kind, size_t len, size_t limit)
{
	return arena_maps(kind) ? coarse(kind, len, limit) : 1;
}

/* Under the lock: frames that never had memory, a block of them where that is within the limit. */
static uint32_t claim_unpopulated(uint32_t i, size_t len, size_t limit, uint32_t *count)
{
	uint32_t frame = i << 16 | arenas[i].unpopulated, block = coarse(arenas[i].kind, len, limit);

	*count = arenas[i].unpopulated % block == 0 && held + block * len <= limit ? block : 1;
	arenas[i].unpopulated += *count;
	/* Shared memory may come back as it went. */
	if (arenas[i].kind != FRAME_SHARED)
		memset(blank_of(frame), true, *count);
	return frame;
}

/* Under the lock: the number of one more, or ARENA_NONE. */
static uint32_t add_arena(struct size_class *c, enum frame_kind kind, size_t len)
{
	uint32_t arena = arena_add(kind, len, c->arena);

	if (arena != ARENA_NONE)
		c->arena = arena;
	return arena;
}

/* Under the lock: charges memory for frames that have none, and says how many of them, from which on. */
static uint32_t claim(struct size_class *c, enum frame_kind kind, size_t len, size_t limit, uint32_t *count)
{
	uint32_t frame = FRAME_NONE, arena;

	*count = 1;
	if (held + len > limit)
		return FRAME_NONE;
	if (arena_maps(kind) && c->with_memory == 0 && c->released != FRAME_NONE)
		restart(c);
	/* A whole block is better than a frame that has given its memory back: it is a huge page. But address space
	 * and page tables are not for nothing. */
	arena = unpopulated_arena(c);
	if (c->released_count && (arena == ARENA_NONE || kind == FRAME_COPIED || held + arena_block(kind, len) > limit ||
				  c->released_count * len >= RELEASED_BYTES))
		frame = pop_released(c);
	if (frame == FRAME_NONE) {
		arena = arena == ARENA_NONE ? add_arena(c, kind, len) : arena;
		if (arena == ARENA_NONE || !arena_open(&arenas[arena], arenas[arena].unpopulated))
			return FRAME_NONE;
		frame = claim_unpopulated(arena, len, limit, count);
	}
	c->with_memory += *count;
	held += len * *count;
	if (held > peak)
		peak = held;
	return frame;
}

uint32_t frame_take(enum frame_kind kind, size_t len, size_t limit)
{
	struct size_class *c = class_of(kind, len);
	uint32_t frame, count;
	bool ok;

	futex_lock(&lock);
	limit = limit == FRAME_ONE_MORE ? held + len : limit;
	if (arena_maps(kind) && used >= used_max) {
		futex_unlock(&lock);
		return FRAME_NONE;
	}
	count_taken(kind, 1);
	frame = freelist_pop(&c->free);
	if (frame != FRAME_NONE) {
		futex_unlock(&lock);
		return frame;
	}
	frame = claim(c, kind, len, limit, &count);
	if (frame == FRAME_NONE)
		count_taken(kind, -1);
	futex_unlock(&lock);
	if (frame == FRAME_NONE)
		return FRAME_NONE;

	ok = arena_populate(frame, len * count);
	frame_set_writable(frame, count, true);
	futex_lock(&lock);
	if (!ok) {
		count_taken(kind, -1);
		held -= len * count;
		c->with_memory -= count;
	}
	/* The list is last in, first out: the lowest address should come first. */
	for (uint32_t i = count; i-- > (ok ? 1 : 0);)
		ok ? push_free(frame + i) : push_released(frame + i);
	futex_unlock(&lock);
	return ok ? frame : FRAME_NONE;
}

/* Under the lock. */
static uint32_t claim_huge(struct size_class *c, size_t len, size_t limit)
{
	uint32_t n = arena_per_huge(len), arena = unpopulated_arena(c), frame, count;

	if (used + n > used_max || held + HUGE_PAGE > limit || coarse(FRAME_MAPPED, len, limit) != n ||
	    c->released_count * len > held + RELEASED_BYTES)
		return FRAME_NONE;
	arena = arena == ARENA_NONE ? add_arena(c, FRAME_MAPPED, len) : arena;
	if (arena == ARENA_NONE || arenas[arena].unpopulated % n != 0)
		return FRAME_NONE;
	frame = claim_unpopulated(arena, len, limit, &count);
	c->with_memory += n;
	count_taken(FRAME_MAPPED, (int)n);
	held += HUGE_PAGE;
	return frame;
}

uint32_t frame_take_huge(size_t len, size_t limit)
{
	uint32_t n = arena_per_huge(len), frame;

	futex_lock(&lock);
	frame = claim_huge(class_of(FRAME_MAPPED, len), len, limit);
	futex_unlock(&lock);
	if (frame == FRAME_NONE)
		return FRAME_NONE;
	if (arena_populate(frame, HUGE_PAGE)) {
		frame_set_writable(frame, n, true);
		return frame;
	}
	for (uint32_t i = n; i-- > 0;)
		frame_free_to_system(frame + i);
	return FRAME_NONE;
}

bool frame_prepare(enum frame_kind kind, size_t len)
{
	struct size_class *c = class_of(kind, len);
	bool there;

	futex_lock(&lock);
	if (c->arena == ARENA_NONE)
		c->arena = arena_add(kind, len, ARENA_NONE);
	there = c->arena != ARENA_NONE;
	futex_unlock(&lock);
	return there;
}

void frame_unlock(void)
{
	futex_lock(&lock);
	arena_unlock();
	for (unsigned i = 0; i < CLASSES; i++) {
		for (uint32_t frame = classes[i].released; frame != FRAME_NONE; frame = *link_of(frame))
			arena_drop(frame, arena_of(frame)->len);
	}
	futex_unlock(&lock);
}

void frame_drop_memory(uint32_t frame)
{
	if (arena_of(frame)->kind != FRAME_SHARED)
		arena_drop(frame, arena_of(frame)->len);
}

bool frame_spare(enum frame_kind kind, size_t len, size_t limit)
{
	bool spare;

	futex_lock(&lock);
	spare = (!arena_maps(kind) || used < used_max) &&
		(!freelist_is_empty(&class_of(kind, len)->free) || held + len <= limit);
	futex_unlock(&lock);
	return spare;
}

void frame_stock(enum frame_kind kind, size_t len, size_t limit)
{
	/* The last one that is given is the next one that is taken. */
	uint32_t frame = kind == FRAME_COPIED ? FRAME_NONE : frame_take(kind, len, limit);

	if (frame == FRAME_NONE)
		return;
	frame_make_writable(frame, 1);
	frame_free(frame);
}

static void become_released(uint32_t frame)
{
	size_t len = arena_of(frame)->len;

	futex_lock(&lock);
	push_released(frame);
	own_class(frame)->with_memory--;
	held -= len;
	futex_unlock(&lock);
}

/* Whatever of its memory is in the pool: for a short segment, the part that never was mapped. */
static void drop_memory(uint32_t frame)
{
	arena_drop(frame, arena_of(frame)->len);
	frame_note_split(frame, 1);
	/* So that its place merges with those beside it. */
	frame_make_writable(frame, 1);
	become_released(frame);
}

/* Nothing is gained by keeping what the next load may not need. */
static void free_copied(uint32_t frame)
{
	if (!*blank_of(frame))
		arena_drop(frame, arena_of(frame)->len);
	*blank_of(frame) = true;
	become_released(frame);
}

void frame_free_to_system(uint32_t frame)
{
	if (arena_of(frame)->kind == FRAME_COPIED) {
		free_copied(frame);
		return;
	}
	drop_memory(frame);
	count_taken(arena_of(frame)->kind, -1);
}

void frame_free(uint32_t frame)
{
	if (arena_of(frame)->kind == FRAME_COPIED) {
		free_copied(frame);
		return;
	}
	futex_lock(&lock);
	push_free(frame);
	count_taken(arena_of(frame)->kind, -1);
	futex_unlock(&lock);
}

void frame_empty(const uint32_t *frames, unsigned n)
{
	struct userfaultfd_drops drops = { .n = 0 };

	for (unsigned k = 0; k < n; k++) {
		if (arena_of(frames[k])->kind != FRAME_COPIED || *blank_of(frames[k]))
			continue;
		userfaultfd_drop_later(&drops, frame_addr(frames[k]), arena_of(frames[k])->len);
		*blank_of(frames[k]) = true;
	}
	userfaultfd_drop_all(&drops);
}

/* The memory of a free frame goes; false: there is none. */
static bool shrink(struct size_class *c)
{
	uint32_t frame;

	/* A look first: most have none. */
	if (freelist_is_empty(&c->free))
		return false;
	futex_lock(&lock);
	frame = freelist_pop(&c->free);
	futex_unlock(&lock);
	if (frame == FRAME_NONE)
		return false;
	drop_memory(frame);
	return true;
}

bool frame_shrink(enum frame_kind except, size_t except_len)
{
	const struct size_class *spared = except_len ? class_of(except, except_len) : NULL;

	for (unsigned i = 0; i < CLASSES; i++) {
		if (&classes[i] != spared && shrink(&classes[i]))
			return true;
	}
	return false;
}

/* Under the lock: how many frames have not been needed since the last look. While some are in use, as many as come at a
 * time are, too: they are what is left of a huge page. */
static uint32_t count_idle(struct size_class *c)
{
	uint32_t idle = c->free.least, block;

	c->free.least = c->free.count;
	if (idle == 0 || c->with_memory == c->free.count)
		return idle;
	block = (uint32_t)(arena_block(arenas[c->arena].kind, arenas[c->arena].len) / arenas[c->arena].len);
	return idle > block ? idle - block : 0;
}

void frame_age(void)
{
	for (unsigned i = 0; i < CLASSES; i++) {
		uint32_t idle;

		futex_lock(&lock);
		idle = count_idle(&classes[i]);
		futex_unlock(&lock);
		for (uint32_t n = 0; n < idle && n < AGE_MOST && shrink(&classes[i]); n++)
			;
	}
}
