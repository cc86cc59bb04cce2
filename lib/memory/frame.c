/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pool records which frames are taken, and how much memory all frames have. A frame is
 * unpopulated (never had memory), free (has memory), released (gave its memory back) or taken.
 * Lock: `lock`, a leaf lock that is never held while memory is populated or released. Allocates
 * nothing but address space.
 */
#include "memory/frame.h"

#include "base/sys.h"
#include "engine/discard.h"

#include <string.h>
#include <sys/mman.h>

#define MAX_CLASSES 256
/* If the limit has fewer huge pages than this, memory does not come as whole huge pages. */
#define MIN_HUGE_PAGES 16
/* Frames of one class that are freed at a time, because the caller has other work. */
#define MAX_AGED_FRAMES 65536
/* Frames at which frame_next_user looks, because the pool is locked meanwhile. */
#define MAX_SWEPT_FRAMES 256
/* Address space of one class that may be idle before it is used again, on small pages. */
#define MAX_RELEASED_BYTES ((size_t)256 << 20)

static struct frame_class classes[MAX_CLASSES];
static _Atomic uint32_t class_count;
static _Atomic uint32_t lock;
static _Atomic size_t held, peak;
static _Atomic size_t place_held[MAX_PLACES], place_pinned[MAX_PLACES];
static _Atomic uint32_t used;
static _Atomic uint32_t used_max;

/* ---- Rights, zeros, and huge pages of a frame ---- */

bool frame_follows(uint32_t first, uint32_t second)
{
	return second == first + 1 && arena_of(first) == arena_of(second);
}

bool frame_on_one(uint32_t first, uint32_t second)
{
	return frame_follows(first, second) &&
	       second % arena_per_huge(arena_of(first)->len) != 0;
}

void frame_note_split(uint32_t first, unsigned n)
{
	struct arena *a = arena_of(first);
	uint32_t block = arena_per_huge(a->len), at = first & 0xffff, end = at + n;

	if (!a->type->whole)
		return;
	for (uint32_t huge = at - at % block; huge < end; huge += block) {
		if ((huge < at || huge + block > end) && !a->split[huge])
			a->split[huge] = true;
	}
}

/* Records the rights of frames that move as a whole: their memory takes its rights along. */
static void note_rights(uint32_t first, unsigned n, bool writable)
{
	bool *readonly = &arena_of(first)->readonly[first & 0xffff];

	frame_note_split(first, n);
	for (unsigned i = 0; i < n; i++) {
		if (readonly[i] == writable)
			readonly[i] = !writable;
	}
}

void frame_note_mapped(uint32_t first, unsigned n, bool writable, bool entire)
{
	struct arena *a = arena_of(first);

	if (a->type->whole)
		note_rights(first, n, writable);
	else if (a->type->copied && entire)
		memset(&a->blank[first & 0xffff], true, n);
}

void frame_note_unmapped(uint32_t first, unsigned n, bool writable)
{
	struct arena *a = arena_of(first);

	if (a->type->whole)
		note_rights(first, n, writable);
	else if (a->type->copied)
		memset(&a->blank[first & 0xffff], false, n);
}

int frame_make_writable(uint32_t frame, unsigned n)
{
	const struct arena *a = arena_of(frame);
	bool *readonly = &a->readonly[frame & 0xffff];

	if (!memchr(readonly, true, n))
		return 0;
	if (mprotect(arena_addr(frame), n * a->len, PROT_READ | PROT_WRITE) < 0)
		return -errno;
	memset(readonly, false, n);
	frame_note_split(frame, n);
	return 0;
}

bool frame_is_split(uint32_t first)
{
	const struct arena *a = arena_of(first);

	return a->type->whole && a->file < 0 && a->split[first & 0xffff];
}

void frame_collapse(uint32_t first, unsigned n)
{
	struct arena *a = arena_of(first);
	bool writable;

	if (!arena_collapse(first, n * a->len, &writable))
		return;
	memset(&a->readonly[first & 0xffff], !writable, n);
	a->split[first & 0xffff] = false;
}

/* ---- Counters ---- */

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

size_t frame_held_at(unsigned place)
{
	return atomic_load_explicit(&place_held[place], memory_order_relaxed);
}

void frame_count_pin(uint32_t frame, bool is_pinned)
{
	size_t len = arena_of(frame)->len;

	/* Unsigned numbers wrap, so this adds or subtracts. */
	place_pinned[frame_place(frame)] += is_pinned ? len : -len;
}

size_t frame_pinned_at(unsigned place)
{
	return place_pinned[place];
}

size_t frame_limit_at(unsigned place)
{
	size_t limit;

	futex_lock(&lock);
	limit = all_places[place].limit;
	futex_unlock(&lock);
	return limit ? limit : SIZE_MAX;
}

bool frame_exceeds_limit(uint32_t frame)
{
	unsigned place = frame_place(frame);

	return place_held[place] > frame_limit_at(place);
}

void frame_add_limit(unsigned place, size_t bytes)
{
	futex_lock(&lock);
	all_places[place].limit += bytes;
	futex_unlock(&lock);
}

void frame_restrict(uint32_t most)
{
	if (most < used_max)
		used_max = most;
}

/* ---- Classes ---- */

void frame_start(uint32_t most)
{
	used_max = most;
	class_count = 0;
}

void frame_forget(void)
{
	arena_forget();
	lock = 0;
	held = peak = 0;
	memset((void *)place_held, 0, sizeof(place_held));
	memset((void *)place_pinned, 0, sizeof(place_pinned));
	used = 0;
	class_count = 0;
}

static uint32_t add_arena(struct frame_class *c, unsigned place)
{
	struct frame_stock *stock = &c->at[place];
	uint32_t arena = arena_add(c, c->type, c->shared, c->len, place, stock->arena);

	if (arena != ARENA_NONE)
		stock->arena = arena;
	return arena;
}

static void init_class(struct frame_class *c, const struct frame_type *type, bool shared,
		       size_t len)
{
	*c = (struct frame_class){ .type = type, .shared = shared, .len = len,
				   .block = (uint32_t)(max_size(len, type->block) / len) };
	for (unsigned i = 0; i < place_count; i++)
		c->at[i] = (struct frame_stock){ .free = FREELIST_EMPTY, .released = FRAME_NONE,
						 .arena = ARENA_NONE,
						 .hand = { FRAME_NONE, FRAME_NONE } };
}

struct frame_class *frame_nth_class(unsigned n)
{
	return n < class_count ? &classes[n] : NULL;
}

struct frame_class *frame_find_class(const struct frame_type *type, bool shared, size_t len)
{
	struct frame_class *c = classes;

	futex_lock(&lock);
	while (c < classes + class_count &&
	       (c->type != type || c->shared != shared || c->len != len))
		c++;
	if (c == classes + MAX_CLASSES) {
		c = NULL;
	} else if (c == classes + class_count) {
		init_class(c, type, shared, len);
		class_count++;
	}
	futex_unlock(&lock);
	return c;
}

bool frame_prepare(struct frame_class *c)
{
	bool prepared;

	futex_lock(&lock);
	prepared = c->at->arena != ARENA_NONE || add_arena(c, 0) != ARENA_NONE;
	futex_unlock(&lock);
	return prepared;
}

/* Returns how many frames get memory at a time within the limit. */
static uint32_t block_frames(const struct frame_class *c, size_t limit)
{
	return limit >= MIN_HUGE_PAGES * c->block * c->len ? c->block : 1;
}

uint32_t frame_block(const struct frame_class *c, size_t limit)
{
	return c->type->whole ? block_frames(c, limit) : 1;
}

/* ---- Taking frames ---- */

/* The caller holds the lock. */
static void push_released(uint32_t frame)
{
	struct frame_stock *stock = frame_stock_of(frame);

	arena_of(frame)->next[frame & 0xffff] = stock->released;
	stock->released = frame;
	stock->released_count++;
}

/* The caller holds the lock. */
static uint32_t pop_released(struct frame_stock *stock)
{
	uint32_t frame = stock->released;

	stock->released = arena_of(frame)->next[frame & 0xffff];
	stock->released_count--;
	return frame;
}

/* Counts n more frames of the class with memory, or fewer. The caller holds the lock. */
static void count_memory(struct frame_class *c, unsigned place, int n)
{
	size_t bytes = (size_t)n * c->len;

	c->at[place].with_memory += (uint32_t)n;
	place_held[place] += bytes;
	held += place_has_file(place) ? 0 : bytes;
}

/* Returns the limit on all frames that also keeps the limit of a place. A place with a file has
 * only its own limit, because its frames do not count. The caller holds the lock. */
static size_t limit_at(unsigned place, size_t limit)
{
	size_t own = all_places[place].limit, has = place_held[place];
	size_t most = own ? held + (own > has ? own - has : 0) : SIZE_MAX;

	return place_has_file(place) ? most : min_size(limit, most);
}

/* Lets all arenas start again, because no frame of them has memory. Frames of an arena for
 * which that fails stay unused. The caller holds the lock. */
static void renew_arenas(struct frame_stock *stock)
{
	stock->released = FRAME_NONE;
	stock->released_count = 0;
	for (uint32_t i = stock->arena; i != ARENA_NONE; i = arenas[i].older)
		arena_renew(&arenas[i]);
}

/* Finds an arena that has unpopulated frames, or returns ARENA_NONE. The caller holds the lock. */
static uint32_t find_unpopulated(const struct frame_stock *stock)
{
	uint32_t i = stock->arena;

	while (i != ARENA_NONE && arenas[i].unpopulated == arenas[i].frames)
		i = arenas[i].older;
	return i;
}

/* Claims frames of arena i that never had memory: a block of them if it is within the limit. The
 * caller holds the lock. */
static uint32_t claim_unpopulated(const struct frame_class *c, uint32_t i, size_t limit,
				  uint32_t *count)
{
	struct arena *a = &arenas[i];
	uint32_t first = a->unpopulated, block = block_frames(c, limit);

	*count = first % block == 0 && held + block * c->len <= limit ? block : 1;
	a->unpopulated += *count;
	/* Shared memory may return with its old contents. */
	if (!c->shared)
		memset(&a->blank[first], true, *count);
	return i << 16 | first;
}

/* Counts memory for frames that have none. Returns the first, and how many in *count; FRAME_NONE if
 * the limit does not allow it. A whole block is better than a released frame, because it is a huge
 * page; but address space and page tables have a cost. The caller holds the lock. */
static uint32_t claim_memory(struct frame_class *c, unsigned place, size_t limit, uint32_t *count)
{
	struct frame_stock *stock = &c->at[place];
	uint32_t frame, arena;

	if (held + c->len > limit)
		return FRAME_NONE;
	if (c->type->whole && stock->with_memory == 0 && stock->released_count)
		renew_arenas(stock);
	arena = find_unpopulated(stock);
	if (stock->released_count && (arena == ARENA_NONE || c->type->copied ||
				      held + c->block * c->len > limit ||
				      stock->released_count * c->len >= MAX_RELEASED_BYTES)) {
		frame = pop_released(stock);
		*count = 1;
	} else {
		arena = arena == ARENA_NONE ? add_arena(c, place) : arena;
		if (arena == ARENA_NONE || (c->type->copied && !arena_open(&arenas[arena])))
			return FRAME_NONE;
		frame = claim_unpopulated(c, arena, limit, count);
	}
	count_memory(c, place, (int)*count);
	if (held > peak)
		peak = held;
	return frame;
}

/* Populates `count` claimed frames, of which the first is taken and the others become free. Returns
 * the first, or FRAME_NONE. */
static uint32_t populate_claimed(struct frame_class *c, uint32_t frame, uint32_t count)
{
	bool ok = arena_populate(frame, c->len * count);
	unsigned place = frame_place(frame);

	if (c->type->whole)
		note_rights(frame, count, true);
	futex_lock(&lock);
	if (!ok) {
		used -= c->type->whole;
		count_memory(c, place, -(int)count);
		/* The file system is full, and to try again with each fault would be slow. */
		if (place_has_file(place))
			all_places[place].limit = max_size(place_held[place], 1);
	}
	/* The list is last in, first out: the lowest address must come first. */
	for (uint32_t i = count; i-- > ok;)
		ok ? freelist_push(&frame_stock_of(frame)->free, frame + i) :
		     push_released(frame + i);
	futex_unlock(&lock);
	return ok ? frame : FRAME_NONE;
}

uint32_t frame_take(struct frame_class *c, unsigned places, size_t limit)
{
	uint32_t frame = FRAME_NONE, count = 0;

	futex_lock(&lock);
	if (c->type->whole && used >= used_max)
		places = 0;
	for (unsigned p = 0; p < place_count && frame == FRAME_NONE; p++) {
		if (!(places >> p & 1))
			continue;
		frame = freelist_pop(&c->at[p].free);
		if (frame == FRAME_NONE)
			frame = claim_memory(c, p, limit == FRAME_ONE_MORE ? held + c->len :
					     limit_at(p, limit), &count);
	}
	if (frame != FRAME_NONE)
		used += c->type->whole;
	futex_unlock(&lock);
	return count ? populate_claimed(c, frame, count) : frame;
}

uint32_t frame_take_whole(struct frame_class *c, unsigned places)
{
	uint32_t n = arena_per_huge(c->len), frame = FRAME_NONE;

	futex_lock(&lock);
	if (used + n > used_max)
		places = 0;
	for (unsigned p = 0; p < place_count && frame == FRAME_NONE; p++)
		frame = places >> p & 1 ? freelist_pop_whole(&c->at[p].free) : FRAME_NONE;
	if (frame != FRAME_NONE)
		used += n;
	futex_unlock(&lock);
	return frame;
}

/* The caller holds the lock. */
static uint32_t claim_huge(struct frame_class *c, unsigned place, size_t limit)
{
	struct frame_stock *stock = &c->at[place];
	uint32_t n = arena_per_huge(c->len), arena = find_unpopulated(stock), frame, count;

	limit = limit_at(place, limit);
	if (used + n > used_max || held + HUGE_PAGE > limit || block_frames(c, limit) != n ||
	    stock->released_count * c->len > held + MAX_RELEASED_BYTES)
		return FRAME_NONE;
	arena = arena == ARENA_NONE ? add_arena(c, place) : arena;
	if (arena == ARENA_NONE || arenas[arena].unpopulated % n != 0)
		return FRAME_NONE;
	frame = claim_unpopulated(c, arena, limit, &count);
	count_memory(c, place, (int)n);
	used += n;
	return frame;
}

uint32_t frame_take_huge(struct frame_class *c, unsigned place, size_t limit)
{
	uint32_t n = arena_per_huge(c->len), frame;

	futex_lock(&lock);
	frame = claim_huge(c, place, limit);
	futex_unlock(&lock);
	if (frame == FRAME_NONE)
		return FRAME_NONE;
	if (arena_populate(frame, HUGE_PAGE)) {
		note_rights(frame, n, true);
		return frame;
	}
	for (uint32_t i = n; i-- > 0;)
		frame_free_to_system(frame + i);
	return FRAME_NONE;
}

bool frame_is_available(struct frame_class *c, unsigned places, size_t limit)
{
	bool available = false;

	futex_lock(&lock);
	if (c->type->whole && used >= used_max)
		places = 0;
	for (unsigned p = 0; p < place_count && !available; p++)
		available = places >> p & 1 && (!freelist_is_empty(&c->at[p].free) ||
						held + c->len <= limit_at(p, limit));
	futex_unlock(&lock);
	return available;
}

bool frame_prepare_next(struct frame_class *c, unsigned places, size_t limit)
{
	uint32_t frame;

	/* A copied frame needs no memory. */
	if (c->type->copied)
		return frame_is_available(c, places, limit);
	frame = frame_take(c, places, limit);
	if (frame == FRAME_NONE)
		return false;
	/* The frame that is freed last is taken next. */
	frame_make_writable(frame, 1);
	frame_free(frame);
	return true;
}

/* ---- Freeing frames ---- */

/* Counts a frame as released, after its memory was dropped. taken: it was taken before. */
static void release_frame(struct frame_class *c, uint32_t frame, bool taken)
{
	futex_lock(&lock);
	frame_forget_user(frame);
	push_released(frame);
	count_memory(c, frame_place(frame), -1);
	used -= taken && c->type->whole;
	futex_unlock(&lock);
}

/* Drops the memory that the frame has in the pool: all of it, or for a short segment the part that
 * is never mapped. */
static void drop_memory(uint32_t frame, size_t len)
{
	arena_drop(frame, len);
	frame_note_split(frame, 1);
	/* Writable addresses merge with those beside them. */
	frame_make_writable(frame, 1);
}

void frame_free_to_system(uint32_t frame)
{
	struct arena *a = arena_of(frame);

	if (!a->type->copied) {
		drop_memory(frame, a->len);
	} else if (!a->blank[frame & 0xffff]) {
		arena_drop(frame, a->len);
		a->blank[frame & 0xffff] = true;
	}
	/* The frame of a dirty segment that the program has discarded. */
	if (a->guess)
		a->guess[frame & 0xffff].sum = 0;
	release_frame(a->owner, frame, true);
}

void frame_free(uint32_t frame)
{
	struct frame_class *c = arena_of(frame)->owner;

	/* A copied frame keeps no memory, because the next load may not need it. */
	if (c->type->copied) {
		frame_free_to_system(frame);
		return;
	}
	futex_lock(&lock);
	frame_forget_user(frame);
	freelist_push(&frame_stock_of(frame)->free, frame);
	used -= c->type->whole;
	futex_unlock(&lock);
}

void frame_empty(const uint32_t *frames, unsigned n)
{
	struct discard_list list = { .n = 0 };

	for (unsigned k = 0; k < n; k++) {
		struct arena *a = arena_of(frames[k]);
		bool *blank = &a->blank[frames[k] & 0xffff];

		if (!a->type->copied || *blank)
			continue;
		discard_later(&list, frame_addr(frames[k]), a->len);
		*blank = true;
	}
	discard_all(&list);
}

/* Frees the memory of a free frame of a place. Returns false if there is none. */
static bool shrink_stock(struct frame_class *c, unsigned place)
{
	struct freelist *free = &c->at[place].free;
	uint32_t frame;

	/* Most classes have no free frame. */
	if (freelist_is_empty(free))
		return false;
	futex_lock(&lock);
	frame = freelist_pop(free);
	futex_unlock(&lock);
	if (frame == FRAME_NONE)
		return false;
	drop_memory(frame, c->len);
	release_frame(c, frame, false);
	return true;
}

bool frame_shrink(const struct frame_class *except, unsigned places)
{
	for (uint32_t i = 0; i < class_count; i++) {
		for (unsigned p = 0; p < place_count; p++) {
			if ((&classes[i] != except || !(places >> p & 1)) &&
			    shrink_stock(&classes[i], p))
				return true;
		}
	}
	return false;
}

/* Returns how many frames have not been needed since the last call. While some frames are in use,
 * as many frames as get memory at a time are not idle, because they are the rest of a huge page.
 * The caller holds the lock. */
static uint32_t count_idle(struct frame_stock *stock, uint32_t block)
{
	uint32_t idle = stock->free.least;

	stock->free.least = stock->free.count;
	if (idle == 0 || stock->with_memory == stock->free.count)
		return idle;
	return idle > block ? idle - block : 0;
}

static void age_stock(struct frame_class *c, unsigned place)
{
	uint32_t idle;

	futex_lock(&lock);
	idle = count_idle(&c->at[place], c->block);
	futex_unlock(&lock);
	for (uint32_t n = 0; n < idle && n < MAX_AGED_FRAMES && shrink_stock(c, place); n++)
		;
}

void frame_age(void)
{
	for (uint32_t i = 0; i < class_count; i++) {
		for (unsigned p = 0; p < place_count; p++)
			age_stock(&classes[i], p);
	}
}

/* ---- Frames in use ---- */

/* Returns the first frame of the arena that follows that of `at` in the clock. */
static uint32_t next_arena(const struct frame_stock *stock, uint32_t at)
{
	uint32_t arena = at == FRAME_NONE ? ARENA_NONE : arena_of(at)->older;

	arena = arena == ARENA_NONE ? stock->arena : arena;
	return arena == ARENA_NONE ? FRAME_NONE : arena << 16;
}

uint32_t frame_next_user(struct frame_class *c, unsigned place, unsigned hand, void **user)
{
	struct frame_stock *stock = &c->at[place];
	uint32_t *at = &stock->hand[hand], found = FRAME_NONE;

	futex_lock(&lock);
	for (unsigned n = 0; n < MAX_SWEPT_FRAMES && found == FRAME_NONE; n++) {
		if (*at == FRAME_NONE || (*at & 0xffff) >= arena_of(*at)->unpopulated) {
			*at = next_arena(stock, *at);
			if (*at == FRAME_NONE)
				break;
			continue;
		}
		*user = frame_use(*at)->user;
		found = *user ? *at : FRAME_NONE;
		++*at;
	}
	futex_unlock(&lock);
	return found;
}

/* ---- Locked memory ---- */

void frame_unlock(void)
{
	futex_lock(&lock);
	arena_unlock();
	for (uint32_t i = 0; i < class_count * place_count; i++) {
		const struct frame_class *c = &classes[i / place_count];

		for (uint32_t frame = c->at[i % place_count].released; frame != FRAME_NONE;
		     frame = arena_of(frame)->next[frame & 0xffff])
			arena_drop(frame, c->len);
	}
	futex_unlock(&lock);
}

void frame_drop_memory(uint32_t frame)
{
	const struct arena *a = arena_of(frame);

	if (a->file < 0)
		arena_drop(frame, a->len);
}
