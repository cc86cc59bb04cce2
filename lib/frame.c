/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of one size live in arenas of address space; a frame keeps its address for life. Memory comes in blocks of a
 * huge page (or of a frame, where that is larger), so that a frame is contiguous for devices and cheap to move; but a
 * frame that moves page by page gains nothing from that, and would break them up. A frame is fresh (never had memory),
 * free (has memory), raw (gave its memory back) or taken.
 * One leaf lock, never held while memory is populated or released. Allocates nothing but address space.
 */
#include "frame.h"

#include "log.h"
#include "object.h"
#include "sys.h"
#include "uffd.h"

#include <string.h>
#include <sys/mman.h>

#define ARENA_FRAMES_MAX 65536
#define ARENA_FRAMES_MIN 16
#define ARENA_BYTES ((size_t)1 << 30)
#ifndef MADV_COLLAPSE /* of Linux 6.1 */
#define MADV_COLLAPSE 25
#endif
#define SIZES 64
#define CLASSES (FRAME_KINDS * SIZES)
/* With fewer huge pages than this in the budget, a whole one at a time would be too coarse. */
#define COARSE_MIN 16
/* Small pages come so many bytes at a time: a fault waits for all of them. */
#define PAGED_BLOCK ((size_t)64 << 10)
/* So much address space of one size may lie idle before it is used again on small pages. */
#define RAW_BYTES ((size_t)256 << 20)

struct arena {
	char *base;
	size_t len;          /* of a frame */
	enum frame_kind kind;
	uint32_t frames;
	uint32_t fresh;      /* frames from here on never had memory */
	uint32_t *next;      /* links of the free and raw lists, by frame */
	bool *sealed;        /* may only be read at home, by frame; the taker's, lazy memory behind `next` */
	uint32_t older;      /* the arena before it of the same size */
};

struct size_class {
	_Atomic uint32_t free, raw; /* heads of lists, FRAME_NONE at the end */
	uint32_t arena;      /* the arena that has fresh frames, FRAME_NONE before the first */
	uint32_t with_memory; /* frames that are free or taken */
	uint32_t raws;       /* length of the raw list */
};

static struct arena arenas[OBJECT_SPANS];
static uint32_t arena_count;
static struct size_class classes[CLASSES];
static _Atomic uint32_t lock;
static _Atomic size_t held, peak;
static _Atomic uint32_t used;
static _Atomic uint32_t used_max;

static struct size_class *class_of(enum frame_kind kind, size_t len)
{
	return &classes[kind * SIZES + __builtin_ctzl(len)];
}

static struct arena *arena_of(uint32_t frame)
{
	return &arenas[frame >> 16];
}

static struct size_class *own_class(uint32_t frame)
{
	return class_of(arena_of(frame)->kind, arena_of(frame)->len);
}

/* It moves as a whole, by a mapping of its own. */
static bool is_mapped(enum frame_kind kind)
{
	return kind != FRAME_PAGED;
}

static void count_taken(enum frame_kind kind, int more)
{
	/* Unsigned numbers wrap. */
	used += is_mapped(kind) ? (uint32_t)more : 0;
}

static uint32_t *link_of(uint32_t frame)
{
	return &arena_of(frame)->next[frame & 0xffff];
}

char *frame_home(uint32_t frame)
{
	const struct arena *a = arena_of(frame);

	return a->base + (size_t)(frame & 0xffff) * a->len;
}

static bool *seal_of(uint32_t frame)
{
	return &arena_of(frame)->sealed[frame & 0xffff];
}

bool frame_writable(uint32_t frame)
{
	return !*seal_of(frame);
}

void frame_set_writable(uint32_t frame, bool writable)
{
	/* Its rights stay behind with its home. */
	if (!is_mapped(arena_of(frame)->kind))
		return;
	if (*seal_of(frame) == writable)
		*seal_of(frame) = !writable;
}

bool frame_follows(uint32_t first, uint32_t second)
{
	return second == first + 1 && arena_of(first) == arena_of(second);
}

int frame_make_writable(uint32_t frame, unsigned n)
{
	bool *sealed = seal_of(frame);

	if (!memchr(sealed, true, n))
		return 0;
	if (mprotect(frame_home(frame), n * arena_of(frame)->len, PROT_READ | PROT_WRITE) < 0)
		return -errno;
	memset(sealed, false, n);
	return 0;
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
		classes[i] = (struct size_class){ FRAME_NONE, FRAME_NONE, FRAME_NONE, 0, 0 };
}

static size_t tables_len(size_t frames)
{
	return frames * (sizeof(uint32_t) + sizeof(bool));
}

void frame_forget(void)
{
	/* The homes were kept out of the child, but the links are ordinary lazy memory. */
	for (uint32_t i = 0; i < arena_count; i++)
		munmap(arenas[i].next, tables_len(arenas[i].frames));
	memset(arenas, 0, arena_count * sizeof(*arenas));
	object_forget();
	arena_count = 0;
	lock = 0;
	held = peak = 0;
	used = 0;
	frame_start(used_max);
}

static uint32_t pop(_Atomic uint32_t *list)
{
	uint32_t frame = *list;

	if (frame != FRAME_NONE)
		*list = *link_of(frame);
	return frame;
}

static void push(_Atomic uint32_t *list, uint32_t frame)
{
	*link_of(frame) = *list;
	*list = frame;
}

static size_t block_len(enum frame_kind kind, size_t len)
{
	return max_size(len, is_mapped(kind) ? HUGE_PAGE : PAGED_BLOCK);
}

/* [frame, frame + len) has no memory any more, whoever has it mapped. */
static void drop_pages(uint32_t frame, size_t len)
{
	const struct arena *a = arena_of(frame);
	char *home = frame_home(frame);

	if (a->kind == FRAME_SHARED)
		object_drop(frame >> 16, (size_t)(home - a->base), len);
	else
		madvise(home, len, MADV_DONTNEED);
}

/* The first len bytes of an arena, which were reserved or something that is not needed any more. */
static bool map_arena(const struct arena *a, size_t len)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	bool ok = a->kind == FRAME_SHARED ? object_map((uint32_t)(a - arenas), a->base, len) :
		  mmap(a->base, len, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;

	return ok && madvise(a->base, len, MADV_DONTFORK) == 0;
}

/* What the kernel has to know of an arena's memory. */
static bool prepare_arena(const struct arena *a, size_t len)
{
	if (!map_arena(a, len))
		return false;
	if (is_mapped(a->kind))
		return true;
	madvise(a->base, len, MADV_NOHUGEPAGE);
	return uffd_register(a->base, len, false) == 0;
}

size_t frame_arena(size_t len)
{
	return max_size(min_size(ARENA_BYTES / len, ARENA_FRAMES_MAX), ARENA_FRAMES_MIN);
}

/* Makes an arena for frames of len bytes. Under the lock: rare, and only address space. */
static bool add_arena(struct size_class *c, enum frame_kind kind, size_t len)
{
	struct arena *a = &arenas[arena_count];
	size_t n = frame_arena(len);

	if (arena_count == OBJECT_SPANS)
		return false;
	a->base = sys_reserve(n * len, HUGE_PAGE);
	if (!a->base)
		return false;
	a->kind = kind;
	a->next = sys_lazy(tables_len(n));
	if (!a->next || !prepare_arena(a, n * len)) {
		munmap(a->base, n * len);
		if (a->next)
			munmap(a->next, tables_len(n));
		return false;
	}
	a->sealed = (bool *)(a->next + n);
	a->len = len;
	a->frames = (uint32_t)n;
	a->fresh = 0;
	a->older = c->arena;
	c->arena = arena_count++;
	return true;
}

/* Gives [frame, frame + len) memory, on huge pages if they fit and suit, and keeps the system from regrouping it
 * later: pages that were given back would return unasked. */
static bool populate(uint32_t frame, size_t len)
{
	bool mapped = is_mapped(arena_of(frame)->kind);
	char *p = frame_home(frame);

	/* A frame that was lost left its home with the rights it went away with. */
	if (mapped)
		mprotect(p, len, PROT_READ | PROT_WRITE);
	if (mapped && len >= HUGE_PAGE)
		madvise(p, len, MADV_HUGEPAGE);
	if (madvise(p, len, MADV_POPULATE_WRITE) < 0) {
		if (errno != EINVAL) {
			drop_pages(frame, len);
			return false;
		}
		for (size_t i = 0; i < len; i += sys_page())
			((volatile char *)p)[i] = 0;
	}
	/* Shared memory has huge pages by itself only where the system was told to. */
	if (arena_of(frame)->kind == FRAME_SHARED && len >= HUGE_PAGE)
		madvise(p, len, MADV_COLLAPSE);
	if (mapped)
		madvise(p, len, MADV_NOHUGEPAGE);
	return true;
}

/* Under the lock: no frame of this size has memory, so all arenas can start again, and on huge pages: that
 * needs the small pages' tables gone, which only a new mapping is sure to do. */
static void restart(struct size_class *c)
{
	c->raw = FRAME_NONE;
	c->raws = 0;
	for (uint32_t i = c->arena; i != FRAME_NONE; i = arenas[i].older) {
		struct arena *a = &arenas[i];
		size_t len = (size_t)a->fresh * a->len;

		if (len && !map_arena(a, len))
			continue; /* its frames stay unused */
		memset(a->sealed, 0, a->fresh);
		a->fresh = 0;
	}
}

/* Under the lock: an arena that has fresh frames, or FRAME_NONE. */
static uint32_t fresh_arena(const struct size_class *c)
{
	uint32_t i = c->arena;

	while (i != FRAME_NONE && arenas[i].fresh == arenas[i].frames)
		i = arenas[i].older;
	return i;
}

/* Under the lock: frames that never had memory, a block of them where that is within the limit. */
static uint32_t claim_fresh(uint32_t i, size_t len, size_t limit, uint32_t *count)
{
	size_t block = block_len(arenas[i].kind, len);
	uint32_t frame;

	frame = i << 16 | arenas[i].fresh;
	*count = 1;
	if (limit >= COARSE_MIN * block && held + block <= limit && arenas[i].fresh % (block / len) == 0)
		*count = (uint32_t)(block / len);
	arenas[i].fresh += *count;
	return frame;
}

/* Under the lock: charges memory for frames that have none, and says how many of them, from which on. */
static uint32_t claim(struct size_class *c, enum frame_kind kind, size_t len, size_t limit, uint32_t *count)
{
	uint32_t frame = FRAME_NONE, arena;

	*count = 1;
	if (held + len > limit)
		return FRAME_NONE;
	if (is_mapped(kind) && c->with_memory == 0 && c->raw != FRAME_NONE)
		restart(c);
	/* A whole block is better than a frame that has given its memory back: it is a huge page. But address space
	 * and page tables are not for nothing. */
	arena = fresh_arena(c);
	if (c->raws && (arena == FRAME_NONE || held + block_len(kind, len) > limit || c->raws * len >= RAW_BYTES)) {
		frame = pop(&c->raw);
		c->raws--;
	}
	if (frame == FRAME_NONE) {
		if (arena == FRAME_NONE && !add_arena(c, kind, len))
			return FRAME_NONE;
		frame = claim_fresh(fresh_arena(c), len, limit, count);
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
	if (is_mapped(kind) && used >= used_max) {
		futex_unlock(&lock);
		return FRAME_NONE;
	}
	count_taken(kind, 1);
	frame = pop(&c->free);
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

	ok = populate(frame, len * count);
	for (uint32_t i = 0; i < count; i++)
		frame_set_writable(frame + i, true);
	futex_lock(&lock);
	if (!ok) {
		count_taken(kind, -1);
		held -= len * count;
		c->with_memory -= count;
	}
	/* The list is last in, first out: the lowest address should come first. */
	for (uint32_t i = count; i-- > (ok ? 1 : 0);)
		push(ok ? &c->free : &c->raw, frame + i);
	c->raws += ok ? 0 : count;
	futex_unlock(&lock);
	return ok ? frame : FRAME_NONE;
}

void frame_give(uint32_t frame)
{
	futex_lock(&lock);
	push(&own_class(frame)->free, frame);
	count_taken(arena_of(frame)->kind, -1);
	futex_unlock(&lock);
}

bool frame_spare(enum frame_kind kind, size_t len, size_t limit)
{
	bool spare;

	futex_lock(&lock);
	spare = (!is_mapped(kind) || used < used_max) &&
		(class_of(kind, len)->free != FRAME_NONE || held + len <= limit);
	futex_unlock(&lock);
	return spare;
}

void frame_stock(enum frame_kind kind, size_t len, size_t limit)
{
	uint32_t frame;

	/* A look first: mostly there is one. */
	if (class_of(kind, len)->free != FRAME_NONE)
		return;
	frame = frame_take(kind, len, limit);
	if (frame != FRAME_NONE)
		frame_give(frame);
}

static void become_raw(uint32_t frame)
{
	size_t len = arena_of(frame)->len;
	struct size_class *c = own_class(frame);

	futex_lock(&lock);
	push(&c->raw, frame);
	c->raws++;
	c->with_memory--;
	held -= len;
	futex_unlock(&lock);
}

/* Whatever of its memory is at home: for a short segment, the part that never was in the view. */
static void drop_memory(uint32_t frame)
{
	drop_pages(frame, arena_of(frame)->len);
	/* So that its place merges with those beside it. */
	frame_make_writable(frame, 1);
	become_raw(frame);
}

void frame_release(uint32_t frame)
{
	drop_memory(frame);
	count_taken(arena_of(frame)->kind, -1);
}

bool frame_shrink(enum frame_kind except, size_t except_len)
{
	const struct size_class *spared = except_len ? class_of(except, except_len) : NULL;

	for (unsigned i = 0; i < CLASSES; i++) {
		uint32_t frame;

		/* A look first: most have none. */
		if (&classes[i] == spared || classes[i].free == FRAME_NONE)
			continue;
		futex_lock(&lock);
		frame = pop(&classes[i].free);
		futex_unlock(&lock);
		if (frame != FRAME_NONE) {
			drop_memory(frame);
			return true;
		}
	}
	return false;
}
