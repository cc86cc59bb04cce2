/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of one size live in arenas of address space; a frame keeps its address for life. Memory comes in blocks of a
 * huge page (or of a frame, where that is larger), so that a frame is contiguous for devices and cheap to move; but a
 * frame that moves page by page gains nothing from huge pages, and would split them. Allocates nothing but address
 * space. Takes no lock: the pool does not change one frame's memory in two threads at once.
 */
#include "memory/arena.h"

#include "memory/shared_pool.h"
#include "base/sys.h"
#include "engine/userfaultfd.h"

#include <string.h>
#include <sys/mman.h>

#define ARENA_FRAMES_MAX 65536
#define ARENA_FRAMES_MIN 16
#define ARENA_BYTES ((size_t)1 << 30)
/* Small pages come so many bytes at a time: a fault waits for all of them. */
#define PAGED_BLOCK ((size_t)64 << 10)

struct arena arenas[OBJECT_SPANS];
static uint32_t arena_count;

size_t arena_frames(size_t len)
{
	return max_size(min_size(ARENA_BYTES / len, ARENA_FRAMES_MAX), ARENA_FRAMES_MIN);
}

size_t arena_block(enum frame_kind kind, size_t len)
{
	if (kind == FRAME_COPIED)
		return len;
	return max_size(len, arena_maps(kind) ? HUGE_PAGE : PAGED_BLOCK);
}

static size_t tables_len(size_t frames)
{
	return frames * (2 * sizeof(uint32_t) + sizeof(uint8_t) + 2 * sizeof(bool) + sizeof(_Atomic bool));
}

static bool keep_from_children(char *pool, size_t len)
{
	bool kept = raw_madvise(pool, len, MADV_DONTFORK) == 0;

	if (!kept)
		sys_failed("madvise(2) with MADV_DONTFORK");
	return kept;
}

/* Pool addresses of private frames: reserved, or with contents that are not needed any more. They get rights together
 * with memory, so that they are not populated before (mlockall(2) populates what has rights). */
static bool map_homes(char *pool, size_t len)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;

	return sys_bare(pool, len, flags, -1, 0) != MAP_FAILED && keep_from_children(pool, len);
}

/* The first len bytes of an arena. */
static bool map_arena(const struct arena *a, size_t len)
{
	if (a->kind != FRAME_SHARED)
		return map_homes(a->base, len);
	return shared_pool_map((uint32_t)(a - arenas), a->base, len) && keep_from_children(a->base, len);
}

/* What the kernel has to know of an arena's memory. */
static bool prepare_arena(const struct arena *a, size_t len)
{
	if (!map_arena(a, len))
		return false;
	if (arena_maps(a->kind))
		return true;
	raw_madvise(a->base, len, MADV_NOHUGEPAGE);
	return userfaultfd_register(a->kind == FRAME_PAGED ? &userfaultfd_messages : &userfaultfd_signals, a->base, len,
				    false) == 0;
}

uint32_t arena_add(enum frame_kind kind, size_t len, uint32_t older)
{
	struct arena *a = &arenas[arena_count];
	size_t n = arena_frames(len);

	if (arena_count == OBJECT_SPANS)
		return ARENA_NONE;
	/* Where addresses are scarce (RLIMIT_AS), for less of them. */
	while (!(a->base = sys_reserve(n * len, HUGE_PAGE)) && n > ARENA_FRAMES_MIN)
		n /= 2;
	if (!a->base)
		return ARENA_NONE;
	a->kind = kind;
	a->next = sys_lazy(tables_len(n));
	if (!a->next || !prepare_arena(a, n * len)) {
		raw_munmap(a->base, n * len);
		if (a->next)
			raw_munmap(a->next, tables_len(n));
		return ARENA_NONE;
	}
	a->prev = a->next + n;
	a->free = (uint8_t *)(a->prev + n);
	a->readonly = (bool *)(a->free + n);
	a->blank = a->readonly + n;
	a->split = (_Atomic bool *)(a->blank + n);
	a->len = len;
	a->frames = (uint32_t)n;
	a->unpopulated = 0;
	a->older = older;
	return arena_count++;
}

void arena_drop(uint32_t frame, size_t len)
{
	const struct arena *a = arena_of(frame);
	char *pool = arena_addr(frame);

	if (a->kind == FRAME_SHARED)
		shared_pool_drop(frame >> 16, (size_t)(pool - a->base), len);
	else
		sys_drop(pool, len);
}

bool arena_open(const struct arena *a, uint32_t first)
{
	size_t off = first * a->len, end = min_size(round_up(off + a->len, HUGE_PAGE), a->frames * a->len);

	if (a->kind != FRAME_COPIED || off % HUGE_PAGE != 0)
		return true;
	return mprotect(a->base + off, end - off, PROT_READ | PROT_WRITE) == 0;
}

/* On huge pages if they fit and suit. The system is kept from regrouping it later: pages that were given back would
 * return unasked. */
bool arena_populate(uint32_t frame, size_t len)
{
	const struct arena *a = arena_of(frame);
	bool mapped = arena_maps(a->kind);
	char *p = arena_addr(frame);

	if (a->kind == FRAME_COPIED)
		return true;
	/* A frame that was lost left its place in the pool with the rights it went away with. */
	if (mprotect(p, len, PROT_READ | PROT_WRITE) < 0)
		return false;
	if (mapped && len >= HUGE_PAGE)
		raw_madvise(p, len, MADV_HUGEPAGE);
	if (raw_madvise(p, len, MADV_POPULATE_WRITE) < 0) {
		/* Older kernels do not know it, and filters of system calls may refuse what they do not know. */
		if (errno != EINVAL && errno != EPERM && errno != EACCES && errno != ENOSYS) {
			arena_drop(frame, len);
			raw_madvise(p, len, MADV_NOHUGEPAGE);
			return false;
		}
		for (size_t i = 0; i < len; i += sys_page())
			((volatile char *)p)[i] = 0;
	}
	/* Shared memory has huge pages by itself only where the system was told to. */
	if (a->kind == FRAME_SHARED && len >= HUGE_PAGE)
		raw_madvise(p, len, MADV_COLLAPSE);
	if (mapped)
		raw_madvise(p, len, MADV_NOHUGEPAGE);
	return true;
}

/* That needs the small pages' tables gone, which only a new mapping is sure to do. Where there is no memory just now,
 * it comes as it is needed. */
bool arena_collapse(uint32_t frame, size_t len, bool *writable)
{
	if (!map_homes(arena_addr(frame), len))
		return false;
	*writable = arena_populate(frame, len) || mprotect(arena_addr(frame), len, PROT_READ | PROT_WRITE) == 0;
	return true;
}

/* For the same reason. */
bool arena_renew(struct arena *a)
{
	size_t len = (size_t)a->unpopulated * a->len;

	if (len && !map_arena(a, len))
		return false;
	memset(a->readonly, 0, a->unpopulated);
	memset((void *)a->split, 0, a->unpopulated);
	a->unpopulated = 0;
	return true;
}

void arena_unlock(void)
{
	for (uint32_t i = 0; i < arena_count; i++)
		sys_unlock(arenas[i].base, arenas[i].frames * arenas[i].len);
}

void arena_forget(void)
{
	/* The homes were kept out of the child, but the links are ordinary lazy memory. */
	for (uint32_t i = 0; i < arena_count; i++)
		raw_munmap(arenas[i].next, tables_len(arenas[i].frames));
	memset(arenas, 0, arena_count * sizeof(*arenas));
	shared_pool_forget();
	arena_count = 0;
}
