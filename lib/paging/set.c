/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The geometry of a mapping. Headers and marks lie in lazily touched memory, so that a set costs nothing
 * until it is used. Takes no lock but those of segments that it walks over: the fields here change only while nobody
 * else uses the set, and marks are atomic.
 */
#include "paging/set.h"

#include "base/log.h"

#include <string.h>
#include <sys/mman.h>

#define GROUP ((size_t)1 << MARK_SHIFT)
/* Bytes; one cache line. */
#define END_SLACK 64

static _Atomic size_t pinned; /* bytes, of all sets */

static size_t count_segs(const struct set *set, size_t size)
{
	return (size >> set->shift) + ((size & (set->seg_size - 1)) != 0);
}

static size_t marks_bytes(size_t segs)
{
	size_t groups = (segs + GROUP - 1) / GROUP;

	return round_up((groups + 63) / 64 * sizeof(uint64_t), sys_page());
}

/* Others see those that a shared mapping begins with. */
static int make_headers(struct set *set, struct extent *e)
{
	if (set->shared && e->first == 0) {
		int err = reach_open(&set->reach, set->size, set->seg_size, e->count);

		e->segs = set->reach.segs;
		return err;
	}
	e->segs = sys_lazy(e->count * sizeof(struct seg));
	if (!e->segs)
		return fail(ENOMEM, "no address space for the headers of %zu segments", e->count);
	madvise(e->segs, e->count * sizeof(struct seg), MADV_DONTFORK);
	return 0;
}

/* A number for each segment, and a bit for each byte, which take no memory until one is set. */
static size_t twins_len(const struct set *set, const struct extent *e)
{
	return e->count * sizeof(*e->twins) + e->count * set->seg_size / 8;
}

static int make_twins(struct set *set, struct extent *e)
{
	e->twins = set->writers ? sys_lazy(twins_len(set, e)) : NULL;
	if (set->writers && !e->twins)
		return fail(ENOMEM, "no address space for the twins of %zu segments", e->count);
	e->unsure = e->twins ? (uint8_t *)(e->twins + e->count) : NULL;
	if (e->twins)
		madvise(e->twins, twins_len(set, e), MADV_DONTFORK);
	return 0;
}

static void drop_twins(const struct set *set, const struct extent *e)
{
	if (e->twins)
		munmap(e->twins, twins_len(set, e));
}

static void drop_headers(struct set *set, unsigned i)
{
	drop_twins(set, &set->extents[i]);
	if (set->shared && i == 0)
		reach_close(&set->reach);
	else
		munmap(set->extents[i].segs, set->extents[i].count * sizeof(struct seg));
}

static int add_extent(struct set *set, size_t first, size_t count)
{
	struct extent *e = &set->extents[set->extents_used];
	int err;

	e->first = first;
	e->count = count;
	if (set->extents_used == EXTENTS_MAX)
		return fail(ENOMEM, "the mapping was grown too often");
	err = make_twins(set, e);
	if (err)
		return err;
	err = make_headers(set, e);
	if (err) {
		drop_twins(set, e);
		return err;
	}
	set->extents_used++;
	if (!cache_own(&set->member, e->segs, count)) {
		drop_headers(set, --set->extents_used);
		return fail(ENOMEM, "no memory to remember a mapping");
	}
	return 0;
}

static void drop_marks(struct set *set)
{
	if (set->touched)
		munmap(set->touched, set->marks_len);
	if (set->dirty)
		munmap(set->dirty, set->marks_len);
}

static int make_marks(struct set *set, size_t segs)
{
	size_t len = marks_bytes(segs);
	_Atomic uint64_t *touched = sys_lazy(len), *dirty = sys_lazy(len);

	if (!touched || !dirty) {
		if (touched)
			munmap(touched, len);
		if (dirty)
			munmap(dirty, len);
		return fail(ENOMEM, "no address space for the marks of %zu segments", segs);
	}
	if (set->touched) {
		memcpy(touched, set->touched, min_size(len, set->marks_len));
		memcpy(dirty, set->dirty, min_size(len, set->marks_len));
	}
	drop_marks(set);
	set->touched = touched;
	set->dirty = dirty;
	set->marks_len = len;
	return 0;
}

int set_create(struct set *set)
{
	int err;

	set->shift = (unsigned)__builtin_ctzl(set->seg_size);
	set->segs = count_segs(set, set->size);
	err = add_extent(set, 0, set->segs);
	if (!err)
		err = make_marks(set, set->segs);
	if (err)
		set_destroy(set);
	return err;
}

void set_destroy(struct set *set)
{
	drop_marks(set);
	cache_disown(&set->member);
	for (unsigned i = 0; i < set->extents_used; i++)
		drop_headers(set, i);
	set->extents_used = 0;
	set->touched = set->dirty = NULL;
}

int set_resize(struct set *set, size_t size)
{
	const struct extent *last = &set->extents[set->extents_used - 1];
	size_t segs = count_segs(set, size), room = last->first + last->count;
	int err;

	if (marks_bytes(segs) > set->marks_len) {
		err = make_marks(set, segs);
		if (err)
			return err;
	}
	/* At least as many again, so that few arrays serve a mapping that grows and grows. */
	if (segs > room) {
		err = add_extent(set, room, max_size(segs - room, room));
		if (err)
			return err;
	}
	set->size = size;
	set->segs = segs;
	reach_resize(&set->reach, size);
	return 0;
}

bool set_get(struct set *set)
{
	set->users++;
	if (!set->frozen)
		return true;
	set_put(set);
	return false;
}

void set_put(struct set *set)
{
	/* The structure outlives the set: whoever froze it may have ended it since. */
	set->users--;
	if (set->frozen)
		sys_wake(&set->users, INT32_MAX);
}

bool set_freeze(struct set *set)
{
	uint32_t thawed = 0;

	if (!atomic_compare_exchange_strong(&set->frozen, &thawed, 1))
		return false;
	set_quiesce(set);
	return true;
}

void set_quiesce(struct set *set)
{
	uint32_t users;

	while ((users = set->users) > 1)
		sys_wait(&set->users, users, 100);
}

void set_thaw(struct set *set)
{
	set->frozen = 0;
	sys_wake(&set->frozen, INT32_MAX);
	set->engine->wake(set->view, set->size);
}

void set_wait(struct set *set)
{
	sys_wait(&set->frozen, 1, 100);
}

void set_reset(struct set *set, size_t first)
{
	for (size_t i = first; i < set->segs; i++) {
		struct seg *s = set_seg(set, i);

		set->lent -= seg_has(s, SEG_LENT);
		/* A look first: memory that was never written need not be now. */
		if (seg_head(s))
			atomic_store_explicit(&s->head, 0, memory_order_relaxed);
	}
}

const struct extent *set_extent(const struct set *set, size_t i)
{
	const struct extent *e = set->extents;

	while (i - e->first >= e->count)
		e++;
	return e;
}

struct seg *set_seg(const struct set *set, size_t i)
{
	const struct extent *e = set_extent(set, i);

	return &e->segs[i - e->first];
}

size_t set_index(const struct set *set, const struct seg *s)
{
	const struct extent *e = set->extents;

	while (s < e->segs || s >= e->segs + e->count)
		e++;
	return e->first + (size_t)(s - e->segs);
}

size_t set_len(const struct set *set, size_t i)
{
	return min_size(set->seg_size, set->size - (i << set->shift));
}

size_t set_view_len(const struct set *set, size_t i)
{
	return round_up(set_len(set, i), sys_page());
}

bool set_reads(const struct set *set, const struct seg *s)
{
	return seg_has(s, SEG_STORED) || set->targets[seg_target(s)].read;
}

bool set_must_write(const struct set *set, const struct seg *s)
{
	return seg_has(s, SEG_DIRTY) || seg_target(s) != set->current;
}

void set_mark_dirty(struct set *set, size_t i, struct seg *s)
{
	if (!seg_has(s, SEG_DIRTY))
		seg_set_time(s, sys_now());
	seg_change(s, 0, SEG_DIRTY);
	set_mark(set->dirty, i);
}

/* Bytes up to the last one that is not zero. */
static size_t trimmed(const char *buf, size_t len)
{
	while (len >= 64 && !memcmp(buf + len - 64, (const char[64]){ 0 }, 64))
		len -= 64;
	while (len > 0 && buf[len - 1] == 0)
		len--;
	return len;
}

size_t set_write_len(struct set *set, size_t i, const char *buf)
{
	const struct target *t = &set->targets[set->current];
	size_t len = set_len(set, i), keep = 0;
	uint64_t begin = (uint64_t)i << set->shift, size;

	if (begin + len <= set->stored)
		return len;
	/* Somebody else may have made the store longer meanwhile: then its bytes count as there. */
	size = io_size(t->store);
	size = size > t->offset ? size - t->offset : 0;
	size = size > set->stored ? size : set->stored;
	if (begin + len <= size)
		return len;
	if (size > begin)
		keep = size - begin;
	keep = max_size(keep, trimmed(buf, len));
	/* Which zeros were stored cannot be seen. Where only a few are missing to the mapping's end, they were:
	 * numbers end in zeros. */
	if (keep && begin + keep + END_SLACK > set->size)
		keep = len;
	return keep;
}

void set_mark(_Atomic uint64_t *marks, size_t i)
{
	size_t group = i >> MARK_SHIFT;
	uint64_t bit = 1ull << (group & 63);

	/* The change to the head must be seen before the mark is looked at: whoever takes the mark off looks
	 * at the heads next. */
	atomic_thread_fence(memory_order_seq_cst);
	/* A look first: most of the time the mark is there, and the line is shared. */
	if (!(atomic_load_explicit(&marks[group / 64], memory_order_relaxed) & bit))
		atomic_fetch_or(&marks[group / 64], bit);
}

size_t set_next(const struct set *set, const _Atomic uint64_t *marks, size_t i)
{
	size_t group = i >> MARK_SHIFT, groups = (set->segs + GROUP - 1) >> MARK_SHIFT;

	while (group < groups) {
		uint64_t word = marks[group / 64] >> (group & 63);

		if (word) {
			group += (size_t)__builtin_ctzll(word);
			i = max_size(i, group << MARK_SHIFT);
			return min_size(i, set->segs);
		}
		group = (group | 63) + 1;
	}
	return set->segs;
}

void set_unmark(_Atomic uint64_t *marks, size_t i)
{
	size_t group = i >> MARK_SHIFT;

	atomic_fetch_and(&marks[group / 64], ~(1ull << (group & 63)));
	atomic_thread_fence(memory_order_seq_cst);
}

#ifdef NDEBUG
static void check(const struct set *set, size_t i, const struct seg *s)
{
	(void)set;
	(void)i;
	(void)s;
}
#else
#include <assert.h>
/* At every unlock. */
static void check(const struct set *set, size_t i, const struct seg *s)
{
	uint64_t h = seg_head(s);

	assert(seg_has(s, SEG_VALID) || !(h & (SEG_STANDBY | SEG_DIRTY | SEG_WRITABLE | SEG_AHEAD)));
	assert(!(h & SEG_WRITABLE) || ((h & SEG_DIRTY) && !(h & SEG_STANDBY) && set->writable));
	assert(!(h & SEG_AHEAD) || ((h & SEG_STANDBY) && !(h & SEG_DIRTY)));
	assert(!seg_pins(s) || !(h & SEG_STANDBY));
	assert(!(h & SEG_LENT) || !(h & SEG_VALID));
	assert(i < set->segs || set->segs == 0);
}
#endif

void set_unlock(const struct set *set, size_t i, struct seg *s)
{
	check(set, i, s);
	seg_unlock(s);
}

unsigned set_lock_piece(struct set *set, size_t i, struct seg **list, size_t most,
			bool (*fits)(const struct seg *first, const struct seg *s))
{
	size_t piece = set_piece(set), whole = set->size >> set->shift;
	unsigned n = 1;

	most = i < whole ? min_size(min_size(piece - i % piece, whole - i), most) : 1;
	for (; n < most; n++) {
		struct seg *s = set_seg(set, i + n);
		uint32_t before = list[n - 1]->frame;

		if (!fits(list[0], s) || !seg_trylock(s))
			break;
		if (!fits(list[0], s) || !frame_on_one(before, s->frame) ||
		    (seg_has(s, SEG_STANDBY) && frame_writable(before) != frame_writable(s->frame))) {
			set_unlock(set, i + n, s);
			break;
		}
		list[n] = s;
	}
	return n;
}

void set_unlock_piece(const struct set *set, size_t i, struct seg **list, unsigned n)
{
	while (n-- > 1)
		set_unlock(set, i + n, list[n]);
}

int set_for_valid(struct set *set, size_t first, size_t last, int (*fn)(struct set *, size_t, struct seg *))
{
	int err = 0;

	for (size_t i = set_next(set, set->touched, first); i < last && !err;
	     i = set_next(set, set->touched, i + 1)) {
		struct seg *s = set_seg(set, i);

		if (!seg_has(s, SEG_VALID) && atomic_load_explicit(&s->lock, memory_order_acquire) == 0)
			continue;
		seg_lock(s);
		if (seg_has(s, SEG_VALID))
			err = fn(set, i, s);
		set_unlock(set, i, s);
	}
	return err;
}

void set_carry(struct set *set, enum carry how)
{
	set->carry = how;
	/* Nobody writes in the background what has an order. */
	set->member.retry = set_in_order(set) ? UINT64_MAX : 0;
}

void set_count_pin(struct set *set, bool more)
{
	/* Unsigned numbers wrap: this adds or takes away. */
	size_t change = more ? set_hold(set) : -set_hold(set);

	set->pinned += change;
	set_share(set)->pinned += change;
	pinned += change;
}

size_t set_pinned(void)
{
	return pinned;
}

void set_fork(void)
{
	pinned = 0;
}
