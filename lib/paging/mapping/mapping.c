/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The segments of a mapping, and its users. Headers and marks are in lazily populated memory, so a
 * mapping takes no memory for them until it is used. Takes only the locks of segments that it
 * visits: the fields here change only while the mapping has no other user, and marks are atomic.
 */
#include "paging/mapping/mapping.h"

#include "base/log.h"

#include <string.h>
#include <sys/mman.h>

#define GROUP ((size_t)1 << MARK_GROUP_SHIFT)

static size_t count_segs(const struct mapping *map, size_t size)
{
	return (size >> map->shift) + ((size & (map->seg_size - 1)) != 0);
}

static size_t marks_bytes(size_t segs)
{
	size_t groups = (segs + GROUP - 1) / GROUP;

	return round_up((groups + 63) / 64 * sizeof(uint64_t), sys_page());
}

/* Other processes see the headers of the first extent of a shared mapping. */
static int make_headers(struct mapping *map, struct extent *e)
{
	if (map->shared && e->first == 0) {
		int err = export_open(&map->export, map->size, map->seg_size, e->count);

		e->segs = map->export.segs;
		return err;
	}
	e->segs = sys_map_anonymous(e->count * sizeof(struct seg));
	if (!e->segs)
		return fail(ENOMEM, "cannot map %zu segments: no address space for their headers. "
			    "Try a larger RLIMIT_AS (ulimit -v)", e->count);
	raw_madvise(e->segs, e->count * sizeof(struct seg), MADV_DONTFORK);
	return 0;
}

/* Bytes of the numbers of twins, one for each segment, and of a bit for each byte. They take no
 * memory until one is set. */
static size_t twins_len(const struct mapping *map, const struct extent *e)
{
	return e->count * sizeof(*e->twins) + e->count * map->seg_size / 8;
}

static int make_twins(struct mapping *map, struct extent *e)
{
	e->twins = map->writers ? sys_map_anonymous(twins_len(map, e)) : NULL;
	if (map->writers && !e->twins)
		return fail(ENOMEM, "cannot map %zu segments with UMMAP_WRITERS: no address space "
			    "for the records of changes. Try a larger RLIMIT_AS (ulimit -v)",
			    e->count);
	e->unsure = e->twins ? (uint8_t *)(e->twins + e->count) : NULL;
	if (e->twins)
		raw_madvise(e->twins, twins_len(map, e), MADV_DONTFORK);
	return 0;
}

static void drop_twins(const struct mapping *map, const struct extent *e)
{
	if (e->twins)
		raw_munmap(e->twins, twins_len(map, e));
}

int map_make_copies(struct mapping *map)
{
	for (unsigned i = 0; i < map->life.extents_used; i++) {
		struct extent *e = &map->life.extents[i];
		size_t len = e->count * sizeof(*e->copies);

		if (e->copies)
			continue;
		e->copies = sys_map_anonymous(len);
		if (!e->copies)
			return fail(ENOMEM, "cannot begin the commit: no address space for the "
				    "records of %zu segments. Try a larger RLIMIT_AS (ulimit -v)",
				    e->count);
		raw_madvise(e->copies, len, MADV_DONTFORK);
	}
	return 0;
}

static void drop_headers(struct mapping *map, unsigned i)
{
	struct extent *e = &map->life.extents[i];

	drop_twins(map, e);
	if (e->copies)
		raw_munmap(e->copies, e->count * sizeof(*e->copies));
	e->copies = NULL;
	if (map->shared && i == 0)
		export_close(&map->export);
	else
		raw_munmap(e->segs, e->count * sizeof(struct seg));
}

static int add_extent(struct mapping *map, size_t first, size_t count)
{
	struct extent *e = &map->life.extents[map->life.extents_used];
	int err;

	if (map->life.extents_used == MAX_EXTENTS)
		return fail(ENOMEM, "cannot grow the mapping of '%s': it was grown too often. Try "
			    "to end it and to map the store again", map->name);
	e->first = first;
	e->count = count;
	e->copies = NULL;
	err = make_twins(map, e);
	if (err)
		return err;
	err = make_headers(map, e);
	if (err) {
		drop_twins(map, e);
		return err;
	}
	map->life.extents_used++;
	if (!cache_add_headers(&map->member, e->segs, count)) {
		drop_headers(map, --map->life.extents_used);
		return fail(ENOMEM, "cannot list the segments of the mapping: no memory");
	}
	return 0;
}

static void drop_marks(struct mapping *map)
{
	if (map->life.touched)
		raw_munmap(map->life.touched, map->life.marks_len);
	if (map->life.dirty)
		raw_munmap(map->life.dirty, map->life.marks_len);
}

static int make_marks(struct mapping *map, size_t segs)
{
	size_t len = marks_bytes(segs);
	_Atomic uint64_t *touched = sys_map_anonymous(len), *dirty = sys_map_anonymous(len);

	if (!touched || !dirty) {
		if (touched)
			raw_munmap(touched, len);
		if (dirty)
			raw_munmap(dirty, len);
		return fail(ENOMEM, "cannot map %zu segments: no address space for their marks. "
			    "Try a larger RLIMIT_AS (ulimit -v)", segs);
	}
	if (map->life.touched) {
		memcpy(touched, map->life.touched, min_size(len, map->life.marks_len));
		memcpy(dirty, map->life.dirty, min_size(len, map->life.marks_len));
	}
	drop_marks(map);
	map->life.touched = touched;
	map->life.dirty = dirty;
	map->life.marks_len = len;
	return 0;
}

int map_create(struct mapping *map)
{
	const struct backing *t = &map->backings[0];
	int err;

	map->shift = (unsigned)__builtin_ctzl(map->seg_size);
	map->segs = count_segs(map, map->size);
	map->life.stored = map_stored_in(t->store, t->offset, map->size);
	err = add_extent(map, 0, map->segs);
	if (!err)
		err = make_marks(map, map->segs);
	if (err)
		map_destroy(map);
	return err;
}

void map_destroy(struct mapping *map)
{
	drop_marks(map);
	cache_remove_headers(&map->member);
	for (unsigned i = 0; i < map->life.extents_used; i++)
		drop_headers(map, i);
	map->life.extents_used = 0;
	map->life.touched = map->life.dirty = NULL;
}

int map_resize(struct mapping *map, size_t size)
{
	const struct extent *last = &map->life.extents[map->life.extents_used - 1];
	size_t segs = count_segs(map, size), room = last->first + last->count;
	int err;

	if (marks_bytes(segs) > map->life.marks_len) {
		err = make_marks(map, segs);
		if (err)
			return err;
	}
	/* The new extent is at least as long as all others, so that a mapping that grows often
	 * needs few of them. */
	if (segs > room) {
		err = add_extent(map, room, max_size(segs - room, room));
		if (err)
			return err;
	}
	map->size = size;
	map->segs = segs;
	export_resize(&map->export, size);
	return 0;
}

bool map_freeze(struct mapping *map)
{
	uint32_t thawed = 0;

	if (!atomic_compare_exchange_strong(&map->life.frozen, &thawed, 1))
		return false;
	map_quiesce(map);
	return true;
}

void map_quiesce(struct mapping *map)
{
	uint32_t users;

	while ((users = map->life.users) > 1)
		futex_wait(&map->life.users, users, 100);
}

void map_thaw(struct mapping *map)
{
	map->life.frozen = 0;
	futex_wake(&map->life.frozen, INT32_MAX);
	engine_wake(map->engine, map->range, map->size);
}

void map_wait(struct mapping *map)
{
	futex_wait(&map->life.frozen, 1, 100);
}

void map_reset(struct mapping *map, size_t first)
{
	for (size_t i = first; i < map->segs; i++) {
		struct seg *s = map_seg(map, i);

		/* The check avoids memory for headers that were never written. */
		if (seg_head(s))
			atomic_store_explicit(&s->head, 0, memory_order_relaxed);
		if (s->node.next)
			s->node = (struct ummap_node){ NULL, NULL };
	}
}

const struct extent *map_find_extent(const struct mapping *map, size_t i)
{
	const struct extent *e = &map->life.extents[map->life.extents_used - 1];

	while (i < e->first)
		e--;
	return e;
}

size_t map_index(const struct mapping *map, const struct seg *s)
{
	const struct extent *e = map->life.extents;

	while (s < e->segs || s >= e->segs + e->count)
		e++;
	return e->first + (size_t)(s - e->segs);
}

void map_mark_dirty(struct mapping *map, size_t i, struct seg *s)
{
	if (!seg_has(s, SEG_DIRTY))
		seg_set_time(s, sys_now());
	seg_change(s, 0, SEG_DIRTY);
	map_note_dirty(map, i);
}

/* The number of bytes up to the last one that is not zero. */
static size_t trim_zeros(const char *buf, size_t len)
{
	while (len >= 64 && !memcmp(buf + len - 64, (const char[64]){ 0 }, 64))
		len -= 64;
	while (len > 0 && buf[len - 1] == 0)
		len--;
	return len;
}

uint64_t map_stored_in(struct store *store, uint64_t offset, size_t size)
{
	uint64_t have = io_size(store);

	have = have > offset ? have - offset : 0;
	return have < size ? have : size;
}

void map_extend_stored(struct mapping *map, uint64_t end)
{
	uint64_t stored = map->life.stored;

	while (end > stored && !atomic_compare_exchange_weak(&map->life.stored, &stored, end))
		;
}

size_t map_write_len(struct mapping *map, size_t i, const char *buf)
{
	const struct backing *t = &map->backings[map->current];
	size_t len = map_len(map, i), keep = 0;
	uint64_t begin = (uint64_t)i << map->shift, size;

	if (begin + len <= map->life.stored)
		return len;
	/* Another process may have made the store longer. Its bytes count as stored. */
	size = io_size(t->store);
	size = size > t->offset ? size - t->offset : 0;
	size = size > map->life.stored ? size : map->life.stored;
	if (begin + len <= size)
		return len;
	if (size > begin)
		keep = size - begin;
	keep = max_size(keep, trim_zeros(buf, len));
	/* Whether zeros were stored cannot be seen. If few bytes are missing to the end of the
	 * mapping, they are written, because stored numbers end in zeros. */
	if (keep && begin + keep + MAX_OMITTED_ZEROS > map->size)
		keep = len;
	return keep;
}

/* ---- Marks ---- */

size_t map_next_marked(const struct mapping *map, const _Atomic uint64_t *marks, size_t i)
{
	size_t group = i >> MARK_GROUP_SHIFT, groups = (map->segs + GROUP - 1) >> MARK_GROUP_SHIFT;

	while (group < groups) {
		uint64_t word = marks[group / 64] >> (group & 63);

		if (word) {
			group += (size_t)__builtin_ctzll(word);
			i = max_size(i, group << MARK_GROUP_SHIFT);
			return min_size(i, map->segs);
		}
		group = (group | 63) + 1;
	}
	return map->segs;
}

#ifndef NDEBUG
#include "paging/mapping/states.h"

#include <assert.h>
void map_check_state(const struct mapping *map, size_t i, const struct seg *s)
{
	assert(state_of(seg_head(s), map->in_place));
	assert(!seg_has(s, SEG_WRITABLE) || map->writable);
	assert(i < map->segs || map->segs == 0);
}
#endif

unsigned map_lock_cluster(struct mapping *map, size_t i, struct seg **list, size_t max,
			bool (*fits)(const struct seg *first, const struct seg *s))
{
	size_t cluster = map_cluster_size(map), whole = map->size >> map->shift;
	unsigned n = 1;

	max = i < whole ? min_size(min_size(cluster - i % cluster, whole - i), max) : 1;
	for (; n < max; n++) {
		struct seg *s = map_seg(map, i + n);
		uint32_t before = list[n - 1]->frame;

		if (!fits(list[0], s) || !seg_trylock(s))
			break;
		if (!fits(list[0], s) || !frame_on_one(before, s->frame) ||
		    (seg_has(s, SEG_INACTIVE) &&
		     frame_writable(before) != frame_writable(s->frame))) {
			map_unlock(map, i + n, s);
			break;
		}
		list[n] = s;
	}
	return n;
}

void map_unlock_cluster(const struct mapping *map, size_t i, struct seg **list, unsigned n)
{
	while (n-- > 1)
		map_unlock(map, i + n, list[n]);
}

bool map_lock_if(const struct mapping *map, size_t i, struct seg *s,
		 bool (*wanted)(const struct mapping *, size_t, const struct seg *))
{
	while (wanted(map, i, s)) {
		if (!futex_lock_within(&s->lock, LOCK_LOOK_MS))
			continue;
		if (wanted(map, i, s))
			return true;
		seg_unlock(s);
	}
	return false;
}

int map_for_valid(struct mapping *map, size_t first, size_t last,
		  int (*fn)(struct mapping *, size_t, struct seg *))
{
	int err = 0;

	for (size_t i = map_next_touched(map, first); i < last && !err;
	     i = map_next_touched(map, i + 1)) {
		struct seg *s = map_seg(map, i);

		if (!seg_has(s, SEG_VALID) &&
		    atomic_load_explicit(&s->lock, memory_order_acquire) == 0)
			continue;
		seg_lock(s);
		if (seg_has(s, SEG_VALID))
			err = fn(map, i, s);
		map_unlock(map, i, s);
	}
	return err;
}

void map_set_migration(struct mapping *map, enum migration how)
{
	map->migration = how;
	/* If segments migrate in order, no worker writes them. */
	map->member.retry = map_in_order(map) ? UINT64_MAX : 0;
}

void map_count_pin(struct mapping *map, const struct seg *s, bool more)
{
	/* Unsigned addition wraps around: the second case subtracts. */
	map->life.pinned += more ? map_hold(map) : -map_hold(map);
	account_count_pin(map_account(map), map_hold(map), more);
	frame_count_pin(s->frame, more);
}
