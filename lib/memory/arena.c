/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frames of one class are in arenas of address space; a frame keeps its address for life.
 * Frames that move as a whole get memory in blocks of a huge page (or of a frame, if that is
 * larger), so that a frame is contiguous for devices and cheap to move. A frame that moves page by
 * page gains nothing from huge pages, and would split them. Allocates nothing but address space.
 * Takes no lock: the pool does not change one frame's memory in two threads at once, and lists of
 * free frames need its lock.
 */
#include "memory/arena.h"

#include "memory/shared_pool.h"
#include "memory/tiers.h"
#include "base/sys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_MAX_FRAMES 65536
#define ARENA_MIN_FRAMES 16
#define ARENA_BYTES ((size_t)1 << 30)

struct arena arenas[SHARED_POOL_SPANS];
bool arena_has_guesses;
static uint32_t arena_count;
static int64_t file_end[MAX_PLACES]; /* end of the arenas in the file of each place */

size_t arena_frames(size_t len)
{
	return max_size(min_size(ARENA_BYTES / len, ARENA_MAX_FRAMES), ARENA_MIN_FRAMES);
}

static size_t tables_len(size_t frames)
{
	return frames * (2 * sizeof(uint32_t) + sizeof(uint8_t) +
			 2 * sizeof(bool) + sizeof(_Atomic bool));
}

static void unmap_tables(const struct arena *a)
{
	if (a->next)
		raw_munmap(a->next, tables_len(a->frames));
	if (a->guess)
		raw_munmap(a->guess, a->frames * sizeof(*a->guess));
	if (a->use)
		raw_munmap(a->use, a->frames * sizeof(*a->use));
}

/* Guesses and uses have tables only in processes that need them, because mlockall(2) gives memory
 * to each table. If it fails, some of the tables may be mapped. */
static bool map_tables(struct arena *a)
{
	bool guesses = arena_has_guesses && a->type->copied, uses = tier_count > 0;

	a->next = sys_map_anonymous(tables_len(a->frames));
	a->guess = guesses ? sys_map_anonymous(a->frames * sizeof(*a->guess)) : NULL;
	a->use = uses ? sys_map_anonymous(a->frames * sizeof(*a->use)) : NULL;
	return a->next && guesses == (a->guess != NULL) && uses == (a->use != NULL);
}

static bool keep_from_children(char *pool, size_t len)
{
	bool kept = raw_madvise(pool, len, MADV_DONTFORK) == 0;

	if (!kept)
		sys_note_failure("madvise(2) with MADV_DONTFORK");
	return kept;
}

/* Maps pool addresses of private frames without rights, in place of any contents. They get rights
 * together with memory, because mlockall(2) populates addresses that have rights. */
static bool map_private(char *pool, size_t len)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;

	return sys_map_inaccessible(pool, len, flags, -1, 0) != MAP_FAILED &&
	       keep_from_children(pool, len);
}

/* Maps the first len bytes of an arena. */
static bool map_arena(const struct arena *a, size_t len)
{
	int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;

	if (a->file < 0)
		return map_private(a->base, len);
	return sys_map_inaccessible(a->base, len, flags, a->file, a->offset) != MAP_FAILED &&
	       keep_from_children(a->base, len);
}

static bool prepare_arena(const struct arena *a, size_t len)
{
	if (!map_arena(a, len))
		return false;
	if (!a->type->whole)
		raw_madvise(a->base, len, MADV_NOHUGEPAGE);
	return !a->type->prepare || a->type->prepare(a->base, len) == 0;
}

uint32_t arena_add(struct frame_class *owner, const struct frame_type *type, bool shared,
		   size_t len, unsigned place, uint32_t older)
{
	struct arena *a = &arenas[arena_count];
	size_t n = arena_frames(len);

	if (arena_count == SHARED_POOL_SPANS)
		return ARENA_NONE;
	/* If address space is scarce (RLIMIT_AS), the arena gets fewer frames. */
	while (!(a->base = sys_reserve(n * len, HUGE_PAGE)) && n > ARENA_MIN_FRAMES)
		n /= 2;
	if (!a->base)
		return ARENA_NONE;
	a->type = type;
	a->file = shared ? shared_pool_fd() : all_places[place].file;
	a->offset = shared ? (int64_t)arena_count << SHARED_POOL_SPAN_SHIFT : file_end[place];
	a->frames = (uint32_t)n;
	if (!map_tables(a) || !prepare_arena(a, n * len)) {
		unmap_tables(a);
		raw_munmap(a->base, n * len);
		return ARENA_NONE;
	}
	if (!shared && place_has_file(place))
		file_end[place] += (int64_t)round_up(n * len, HUGE_PAGE);
	a->prev = a->next + n;
	a->free = (uint8_t *)(a->prev + n);
	a->readonly = (bool *)(a->free + n);
	a->blank = a->readonly + n;
	a->split = (_Atomic bool *)(a->blank + n);
	a->len = len;
	a->tracked = type->whole && arena_per_huge(len) <= ARENA_MAX_TRACKED ?
		     arena_per_huge(len) : 1;
	a->unpopulated = 0;
	a->owner = owner;
	a->place = place;
	a->older = older;
	return arena_count++;
}

void arena_drop(uint32_t frame, size_t len)
{
	const struct arena *a = arena_of(frame);
	char *pool = arena_addr(frame);

	if (a->file >= 0)
		fallocate(a->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  a->offset + (pool - a->base), (off_t)len);
	else
		sys_discard_pages(pool, len);
}

bool arena_open(const struct arena *a)
{
	size_t off = a->unpopulated * a->len;
	size_t end = min_size(round_up(off + a->len, HUGE_PAGE), a->frames * a->len);

	if (off % HUGE_PAGE != 0)
		return true;
	return mprotect(a->base + off, end - off, PROT_READ | PROT_WRITE) == 0;
}

/* Populates writable memory. Returns false if there is none. */
static bool populate_pages(const struct arena *a, char *p, size_t len)
{
	struct place_policy before;
	bool done;

	place_begin(a->place, &before);
	done = raw_madvise(p, len, MADV_POPULATE_WRITE) == 0;
	/* Older kernels do not know the advice, and filters of system calls may refuse unknown
	 * ones. */
	if (!done && (errno == EINVAL || errno == EPERM || errno == EACCES || errno == ENOSYS)) {
		for (size_t i = 0; i < len; i += sys_page())
			((volatile char *)p)[i] = 0;
		done = true;
	}
	place_end(&before);
	return done;
}

/* Uses huge pages if they fit and suit. The kernel is kept from collapsing the memory later,
 * because pages that were given back would return. */
bool arena_populate(uint32_t frame, size_t len)
{
	const struct arena *a = arena_of(frame);
	char *p = arena_addr(frame);

	if (a->type->copied)
		return true;
	/* Without space in its file system, an access to a page would raise SIGBUS. */
	if (place_has_file(a->place) &&
	    fallocate(a->file, 0, a->offset + (p - a->base), (off_t)len) < 0)
		return false;
	/* A frame that was lost left its place in the pool with the rights of its last move. */
	if (mprotect(p, len, PROT_READ | PROT_WRITE) < 0)
		return false;
	if (a->type->whole && len >= HUGE_PAGE)
		raw_madvise(p, len, MADV_HUGEPAGE);
	if (!populate_pages(a, p, len)) {
		arena_drop(frame, len);
		raw_madvise(p, len, MADV_NOHUGEPAGE);
		return false;
	}
	/* Shared memory has huge pages by itself only if the system is configured so. */
	if (a->file >= 0 && len >= HUGE_PAGE)
		raw_madvise(p, len, MADV_COLLAPSE);
	if (a->type->whole)
		raw_madvise(p, len, MADV_NOHUGEPAGE);
	return true;
}

/* The page tables of the small pages must go, which only a new mapping is sure to achieve. If there
 * is no memory at the moment, it comes with the first stores. */
bool arena_collapse(uint32_t frame, size_t len, bool *writable)
{
	if (!map_private(arena_addr(frame), len))
		return false;
	*writable = arena_populate(frame, len) ||
		    mprotect(arena_addr(frame), len, PROT_READ | PROT_WRITE) == 0;
	return true;
}

/* Maps the arena anew, because page tables of small pages must go, as in arena_collapse. */
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
	/* The child does not have the frames, but the tables are ordinary lazy memory. */
	for (uint32_t i = 0; i < arena_count; i++)
		unmap_tables(&arenas[i]);
	memset(arenas, 0, arena_count * sizeof(*arenas));
	shared_pool_forget();
	memset(file_end, 0, sizeof(file_end));
	arena_count = 0;
}

/* ---- Free frames ---- */

/* A request for one frame gets a frame of a partly used huge page, so that other huge pages stay
 * whole for requests that need all of one. */

static void link_in(_Atomic uint32_t *head, uint32_t frame)
{
	struct arena *a = arena_of(frame);

	a->prev[frame & 0xffff] = FRAME_NONE;
	a->next[frame & 0xffff] = *head;
	if (*head != FRAME_NONE)
		arena_of(*head)->prev[*head & 0xffff] = frame;
	*head = frame;
}

static void link_out(_Atomic uint32_t *head, uint32_t frame)
{
	const struct arena *a = arena_of(frame);
	uint32_t prev = a->prev[frame & 0xffff], next = a->next[frame & 0xffff];

	if (prev == FRAME_NONE)
		*head = next;
	else
		arena_of(prev)->next[prev & 0xffff] = next;
	if (next != FRAME_NONE)
		arena_of(next)->prev[next & 0xffff] = prev;
}

/* Moves all frames of a huge page except `frame` from one list to the other, so that the lowest is
 * taken first. */
static void move_others(uint32_t frame, uint32_t n, _Atomic uint32_t *from, _Atomic uint32_t *to)
{
	uint32_t first = frame - frame % n;

	for (uint32_t i = n; i-- > 0;) {
		if (first + i == frame)
			continue;
		link_out(from, first + i);
		link_in(to, first + i);
	}
}

void freelist_push(struct freelist *l, uint32_t frame)
{
	struct arena *a = arena_of(frame);
	uint32_t n = a->tracked, first = (frame & 0xffff) / n * n;

	l->count++;
	if (++a->free[first] == n && n > 1) {
		move_others(frame, n, &l->loose, &l->whole);
		link_in(&l->whole, frame);
	} else {
		link_in(&l->loose, frame);
	}
}

/* Records that n frames have left the lists. */
static void count_popped(struct freelist *l, uint32_t n)
{
	l->count -= n;
	if (l->count < l->least)
		l->least = l->count;
}

uint32_t freelist_pop_whole(struct freelist *l)
{
	uint32_t frame = l->whole, n;

	if (frame == FRAME_NONE)
		return FRAME_NONE;
	n = arena_of(frame)->tracked;
	frame -= frame % n;
	for (uint32_t i = 0; i < n; i++)
		link_out(&l->whole, frame + i);
	arena_of(frame)->free[frame & 0xffff] = 0;
	count_popped(l, n);
	return frame;
}

uint32_t freelist_pop(struct freelist *l)
{
	bool is_loose = l->loose != FRAME_NONE;
	uint32_t frame = is_loose ? l->loose : l->whole, n;

	if (frame == FRAME_NONE)
		return FRAME_NONE;
	n = arena_of(frame)->tracked;
	if (is_loose) {
		link_out(&l->loose, frame);
	} else {
		frame -= frame % n;
		link_out(&l->whole, frame);
		move_others(frame, n, &l->whole, &l->loose);
	}
	arena_of(frame)->free[(frame & 0xffff) / n * n]--;
	count_popped(l, 1);
	return frame;
}
