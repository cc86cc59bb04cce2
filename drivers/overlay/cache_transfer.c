/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading and writing through cache+. A write goes to dirty slots of the near file if the mode and
 * the limit of dirty slots allow it, or if its block has a dirty slot already. All other writes go
 * to the far store, past the near file, and then to clean slots, unless the mode forbids it.
 *
 * Concurrent writes have no byte in common, but may share a part of a block. The lock `parts` is
 * held around each write of less than a part.
 */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LOOKUP ((size_t)8 << 20)   /* bytes of the far store that are looked up at once */
#define MAX_ROW 64                     /* slots that are filled at once */
#define MAX_PAST_BLOCKS 1024           /* blocks of one write past the near file */
#define NEIGHBORS 16                   /* blocks whose slots become doubtful together */

static uint64_t block_of(const struct cache *c, uint64_t off)
{
	return off >> c->shift;
}

/* The parts of a block that a range touches. */
static uint64_t parts_of(const struct cache *c, uint64_t block, uint64_t off, uint64_t end)
{
	uint64_t base = block << c->shift;
	unsigned from = off > base ? (unsigned)((off - base) / OVERLAY_PART) : 0;
	unsigned to = (unsigned)((min_u64(end, base + cache_block_bytes(c)) - 1 - base) /
				 OVERLAY_PART);

	return cache_parts(from, to - from + 1);
}

static uint64_t parts_in(struct cache *c, uint32_t s)
{
	return s == CACHE_NO_SLOT ? 0 : cache_slot(c, s)->valid;
}

/* ---- Checksums of clean slots (cache.verify) ---- */

int cache_sum_parts(struct cache *c, uint32_t s, uint64_t parts, uint64_t *sum)
{
	char part[OVERLAY_PART];
	int err = 0;

	*sum = 0;
	for (; c->o.verifies && parts && !err; parts &= parts - 1) {
		unsigned k = (unsigned)__builtin_ctzll(parts);

		err = side_read(&c->o.file, part, sizeof(part),
				overlay_block_at(&c->o, s) + k * OVERLAY_PART);
		*sum ^= checksum(part, sizeof(part), k);
	}
	return err;
}

/* Whether a slot has the bytes that it had when it was filled, as far as it has a sum. Its parts
 * may change meanwhile. As a reader. */
static bool is_intact(struct cache *c, uint32_t s)
{
	struct overlay_slot *slot = cache_slot(c, s), was;
	bool is_same;
	uint64_t sum;

	futex_lock(&c->o.lock);
	was = *slot;
	futex_unlock(&c->o.lock);
	/* read_near finds errors of reading. */
	if (!(was.flags & SLOT_SUMMED) || cache_sum_parts(c, s, was.valid, &sum) ||
	    sum == was.data)
		return true;
	futex_lock(&c->o.lock);
	is_same = slot->flags & SLOT_SUMMED && slot->valid == was.valid && slot->data == was.data;
	futex_unlock(&c->o.lock);
	if (!is_same)
		return true;
	c->damaged = was.block;
	c->failed[CACHE_SUM] = EBADMSG;
	cache_wake(c);
	return false;
}

/* ---- Reading ---- */

struct source {
	uint32_t slot;                 /* CACHE_NO_SLOT: the far store */
	uint64_t sum;                  /* of a guest: checksum of the slot's record */
	uint64_t place;                /* offset in the near file */
	size_t len;
};

/* The slot that has a part of a block; CACHE_NO_SLOT: none. */
static uint32_t find_part(struct cache *c, uint64_t block, unsigned part)
{
	uint32_t s = cache_find(&c->index, block, true);

	if (!(parts_in(c, s) >> part & 1))
		s = cache_find(&c->index, block, false);
	return parts_in(c, s) >> part & 1 ? s : CACHE_NO_SLOT;
}

/* The bytes from `off` on, at most `most`, that no slot has. */
static size_t find_far_run(struct cache *c, uint64_t off, size_t most)
{
	unsigned nparts = (unsigned)(cache_block_bytes(c) / OVERLAY_PART);
	unsigned from = (unsigned)(off / OVERLAY_PART & (nparts - 1)), to = nparts;
	uint64_t end = off + most, at = off;

	for (; at < end && to == nparts; from = 0) {
		uint64_t block = block_of(c, at);
		uint64_t parts = parts_in(c, cache_find(&c->index, block, true)) |
				 parts_in(c, cache_find(&c->index, block, false));

		if (parts >> from & 1)
			break;
		to = from + cache_run(parts, from, nparts - from);
		at = (block << c->shift) + to * OVERLAY_PART;
	}
	return (size_t)(min_u64(at, end) - off);
}

/* Finds the next bytes; under the lock. Slots that are consecutive are one source. */
static struct source find_source(struct cache *c, uint64_t off, size_t len)
{
	unsigned nparts = (unsigned)(cache_block_bytes(c) / OVERLAY_PART);
	size_t skip = off & (cache_block_bytes(c) - 1), found = 0;
	unsigned part = (unsigned)(skip / OVERLAY_PART), n;
	uint64_t block = block_of(c, off);
	struct source src = { .slot = find_part(c, block, part) };
	uint32_t s = src.slot;

	if (s == CACHE_NO_SLOT) {
		src.len = find_far_run(c, off, min_size(len, MAX_LOOKUP));
		return src;
	}
	src.place = overlay_block_at(&c->o, s) + skip;
	src.sum = cache_slot(c, s)->sum;
	do {
		n = cache_run(parts_in(c, s), part, nparts - part);
		found += n * OVERLAY_PART;
		src.len = min_size(len, found - skip % OVERLAY_PART);
		cache_hit(&c->index, s);
		/* Slots are verified one by one. */
		if (part + n < nparts || src.len == len || c->o.verifies || c->is_guest)
			break;
		part = 0;
		s = find_part(c, ++block, 0);
	} while (s != CACHE_NO_SLOT &&
		 overlay_block_at(&c->o, s) == src.place - skip % OVERLAY_PART + found);
	return src;
}

/* Empties the clean slots of a range that cannot be read. false: some of the bytes are dirty. */
static bool forget_clean(struct cache *c, uint64_t off, uint64_t end)
{
	bool is_clean = true;

	futex_lock(&c->o.lock);
	for (uint64_t block = block_of(c, off); block << c->shift < end; block++) {
		uint32_t clean = cache_find(&c->index, block, false);
		uint64_t dirty = parts_in(c, cache_find(&c->index, block, true));

		is_clean = is_clean && !(dirty & parts_of(c, block, off, end));
		if (clean != CACHE_NO_SLOT)
			cache_drop(c, clean);
	}
	futex_unlock(&c->o.lock);
	return is_clean;
}

/* Clean bytes that cannot be read come from the far store: *bytes is 0 then. */
static int read_near(struct cache *c, const struct source *src, uint64_t off, struct iovec *iov,
		     int n, size_t *bytes)
{
	bool is_bad = c->o.verifies && !c->is_guest && !is_intact(c, src->slot);
	int err = is_bad ? -EBADMSG : side_readv(&c->o.file, iov, n, src->place);

	if (c->is_guest) {
		*bytes = cache_guest_check(c, src->slot, src->sum, !err) ? *bytes : 0;
		return 0;
	}
	if (!err)
		return 0;
	if (!is_bad)
		cache_near_failed(c, err);
	if (!forget_clean(c, off, off + *bytes))
		return err;
	*bytes = 0;
	return 0;
}

static int read_far(struct cache *c, const struct cursor *cursor, struct iovec *iov, int n,
		    size_t bytes, bool keeps)
{
	struct cursor was = *cursor;
	int err;

	c->far_readers++;
	err = behind_readv(&c->o.store, iov, n, cursor->off);
	c->far_readers--;
	cache_far_was(c, err);
	was.end = was.off + bytes;
	if (!err && keeps)
		cache_keep(c, was, NULL);
	return err;
}

static int read_at(struct cache *c, struct cursor *cursor, bool keeps)
{
	int err = 0;

	while (cursor->off < cursor->end && !err) {
		unsigned ticket = overlay_enter(&c->o);
		struct iovec iov[CACHE_PIECES];
		struct source src;
		size_t bytes;
		int n;

		futex_lock(&c->o.lock);
		src = find_source(c, cursor->off, cursor->end - cursor->off);
		futex_unlock(&c->o.lock);
		bytes = cursor_slice(cursor, src.len, iov, CACHE_PIECES, &n);
		if (src.slot != CACHE_NO_SLOT)
			err = read_near(c, &src, cursor->off, iov, n, &bytes);
		overlay_leave(&c->o, ticket);
		if (src.slot == CACHE_NO_SLOT && cache_guest_look(c))
			continue;
		if (src.slot == CACHE_NO_SLOT)
			err = read_far(c, cursor, iov, n, bytes, keeps);
		if (!err)
			cursor_advance(cursor, bytes);
	}
	return err;
}

int cache_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct cursor cursor = cursor_begin(iov, n, off);

	return read_at(h, &cursor, true);
}

int cache_read(void *h, void *buf, size_t len, uint64_t off)
{
	return cache_readv(h, &(struct iovec){ buf, len }, 1, off);
}

/* ---- Keeping ---- */

/* Consecutive slots for consecutive blocks, whose parts are written at once. */
struct row {
	uint64_t off, end;             /* range of the store */
	uint32_t slot;
	unsigned n;                    /* number of slots; 0: there is no room */
	bool is_new;                   /* whether the slots were free */
	uint64_t sums[MAX_ROW];        /* sums of the parts that are written to each slot */
	uint64_t failures;             /* overlay.failures before the blocks were written */
};

/* The number of blocks from `first` on, at most n, that have no clean slot, or no slot at all. */
static unsigned count_missing(struct cache *c, uint64_t first, unsigned n, bool new_only)
{
	unsigned k = 0;

	while (k < n && cache_find(&c->index, first + k, false) == CACHE_NO_SLOT &&
	       !(new_only && cache_find(&c->index, first + k, true) != CACHE_NO_SLOT))
		k++;
	return k;
}

static struct row begin_row(struct cache *c, uint64_t off, uint64_t end, bool new_only)
{
	uint64_t first = block_of(c, off);
	unsigned most = (unsigned)min_u64(block_of(c, end - 1) - first + 1, MAX_ROW);
	struct row row = { .off = off, .is_new = true };
	bool few;

	futex_lock(&c->o.lock);
	row.failures = c->o.failures;
	row.n = count_missing(c, first, most, new_only);
	if (row.n > 0) {
		row.n = cache_take(c, row.n, &row.slot);
	} else if (!new_only) {
		row.slot = cache_find(&c->index, first, false);
		row.is_new = false;
		while (++row.n < most && (row.slot + row.n) % OVERLAY_GROUP &&
		       cache_find(&c->index, first + row.n, false) == row.slot + row.n)
			;
	}
	few = c->o.limit - c->o.used < cache_reserve(c);
	futex_unlock(&c->o.lock);
	row.end = min_u64(end, (first + row.n) << c->shift);
	if (few)
		cache_wake(c);
	return row;
}

/* One slot of a row. Another thread may have added or removed slots of its block meanwhile. */
static void end_slot(struct cache *c, const struct row *row, uint32_t s, uint64_t block, bool is_ok)
{
	uint64_t parts = parts_of(c, block, row->off, row->end) &
			 ~parts_in(c, cache_find(&c->index, block, true));
	uint32_t clean = cache_find(&c->index, block, false);
	struct overlay_slot before = *cache_slot(c, s);

	is_ok = is_ok && parts && clean == (row->is_new ? CACHE_NO_SLOT : s);
	if (row->is_new && is_ok)
		cache_put(c, s, block, false, parts);
	else if (row->is_new)
		overlay_give_back(&c->o, s, 1);
	else if (is_ok)
		cache_set_parts(c, s, parts_in(c, s) | parts);
	if (!is_ok)
		return;
	cache_doubt(c, s);
	if (parts == parts_of(c, block, row->off, row->end) && !(before.valid & parts) &&
	    (!before.valid || before.flags & SLOT_SUMMED))
		cache_add_sum(c, s, before.valid ? before.data : 0, row->sums[s - row->slot]);
}

static void end_row(struct cache *c, const struct row *row, bool is_ok, const uint64_t *new_only)
{
	uint64_t first = block_of(c, row->off);

	futex_lock(&c->o.lock);
	is_ok = is_ok && c->o.failures == row->failures &&
		!(new_only && c->far_changes != *new_only);
	for (unsigned k = 0; k < row->n; k++)
		end_slot(c, row, row->slot + k, first + k, is_ok);
	futex_unlock(&c->o.lock);
	if (is_ok && cache_may_share(c) && !atomic_exchange(&c->commit_due, true))
		cache_wake(c);
}

static int sum_row(struct cache *c, struct row *row)
{
	uint64_t first = block_of(c, row->off);
	int err = 0;

	for (unsigned k = 0; k < row->n && !err; k++)
		err = cache_sum_parts(c, row->slot + k,
				      parts_of(c, first + k, row->off, row->end), &row->sums[k]);
	return err;
}

static int write_row(struct cache *c, struct row *row, struct cursor at)
{
	uint64_t place = overlay_block_at(&c->o, row->slot) +
			 (row->off & (cache_block_bytes(c) - 1)) - row->off;
	int err = 0;

	while (at.off < row->end && !err) {
		struct iovec iov[CACHE_PIECES];
		int n;
		size_t bytes = cursor_slice(&at, row->end - at.off, iov, CACHE_PIECES, &n);

		err = side_writev(&c->o.file, iov, n, place + at.off);
		cache_has_written(c, bytes);
		cursor_advance(&at, bytes);
	}
	if (!err)
		err = sum_row(c, row);
	if (err)
		cache_near_failed(c, err);
	return err;
}

void cache_keep(struct cache *c, struct cursor cursor, const uint64_t *new_only)
{
	uint64_t mask = OVERLAY_PART - 1, first = (cursor.off + mask) & ~mask;
	uint64_t end = min_u64(cursor.end, (c->o.size + mask) & ~mask) & ~mask;
	int err = 0;

	if (c->is_guest || c->trouble & CACHE_NEAR_FAILS || first >= end)
		return;
	cursor_advance(&cursor, first - cursor.off);
	while (cursor.off < end && !err) {
		unsigned ticket = overlay_enter(&c->o);
		struct row row = begin_row(c, cursor.off, end, new_only);

		if (row.n > 0)
			err = write_row(c, &row, cursor);
		end_row(c, &row, !err, new_only);
		overlay_leave(&c->o, ticket);
		if (row.n == 0 && !new_only)
			return;
		if (row.n == 0)
			row.end = min_u64(end, (block_of(c, row.off) + 1) << c->shift);
		cursor_advance(&cursor, row.end - row.off);
	}
}

/* ---- Writing past the near file ---- */

/* The end of the blocks from `off` on that have no dirty slot. */
static uint64_t find_dirty(struct cache *c, uint64_t off, uint64_t end)
{
	uint64_t block = block_of(c, off);

	while (block << c->shift < end && cache_find(&c->index, block, true) == CACHE_NO_SLOT)
		block++;
	return min_u64(end, block << c->shift);
}

static void make_doubtful(struct cache *c, uint32_t s)
{
	cache_slot(c, s)->flags |= SLOT_DOUBTFUL;
	overlay_mark_changed(&c->o, s);
}

/* Neighbors become doubtful, too, so that writes to them need no commit of their own. */
static void doubt_neighbors(struct cache *c, uint64_t off, uint64_t end)
{
	uint64_t block = block_of(c, off) / NEIGHBORS * NEIGHBORS;
	uint64_t last = block_of(c, end - 1) / NEIGHBORS * NEIGHBORS + NEIGHBORS - 1;

	for (; block <= last; block++) {
		uint32_t s = cache_find(&c->index, block, false);

		if (s != CACHE_NO_SLOT)
			make_doubtful(c, s);
	}
}

/* Clean slots lose the parts that are about to be written (order 13). Returns whether a commit must
 * come first. Records of slots that were emptied lately may say that they have the parts. */
static bool give_up_clean(struct cache *c, uint64_t off, uint64_t end)
{
	bool must = c->last_drop > c->o.newest.number;

	for (uint64_t block = block_of(c, off); block << c->shift < end; block++) {
		uint32_t s = cache_find(&c->index, block, false);
		const struct overlay_slot *slot;

		if (s == CACHE_NO_SLOT)
			continue;
		slot = cache_slot(c, s);
		must |= (slot->commit != OVERLAY_NEVER || slot->flags & SLOT_ATTEMPTED) &&
			!(slot->flags & SLOT_DOUBTS_DURABLY);
		cache_set_parts(c, s, slot->valid & ~parts_of(c, block, off, end));
		make_doubtful(c, s);
	}
	if (must)
		doubt_neighbors(c, off, end);
	return must;
}

/* Empties slots that a write past the near file has left without parts. */
static void shed_empty(struct cache *c, uint64_t off, uint64_t end)
{
	futex_lock(&c->o.lock);
	for (uint64_t block = block_of(c, off); block << c->shift < end; block++) {
		uint32_t s = cache_find(&c->index, block, false);

		if (s != CACHE_NO_SLOT && !parts_in(c, s))
			cache_drop(c, s);
	}
	futex_unlock(&c->o.lock);
}

static int write_far(struct cache *c, struct cursor from, uint64_t end)
{
	int err = 0;

	/* Set before the write, for a flush that fails meanwhile, and after it, for a flush that
	 * came too early. */
	c->far_unflushed = CACHE_UNFLUSHED;
	while (from.off < end && !err) {
		struct iovec iov[CACHE_PIECES];
		int n;
		size_t bytes = cursor_slice(&from, end - from.off, iov, CACHE_PIECES, &n);

		err = behind_writev(&c->o.store, iov, n, from.off);
		cursor_advance(&from, bytes);
	}
	c->far_unflushed = CACHE_UNFLUSHED;
	cache_far_was(c, err);
	return err;
}

/* Writes blocks up to the first one with a dirty slot, which may be none. */
static int write_past(struct cache *c, struct cursor *cursor)
{
	uint64_t off = cursor->off, end;
	uint64_t most = (block_of(c, off) + MAX_PAST_BLOCKS) << c->shift;
	struct cursor written = *cursor;
	bool must = false;
	int err;

	c->past += CACHE_WRITE_BEGINS;
	c->far_changes++;
	futex_lock(&c->o.lock);
	end = find_dirty(c, off, min_u64(cursor->end, most));
	if (end > off)
		must = give_up_clean(c, off, end);
	futex_unlock(&c->o.lock);
	err = must ? cache_commit(c) : 0;
	if (!err && end > off)
		err = cache_touch_far(c);
	if (!err && end > off)
		err = write_far(c, *cursor, end);
	if (!err && end > off) {
		cursor_advance(cursor, end - off);
		overlay_grow(&c->o, end);
		written.end = end;
		if (c->mode != CACHE_READ)
			cache_keep(c, written, NULL);
	}
	if (c->mode == CACHE_READ || err)
		shed_empty(c, off, end);
	c->far_changes++;
	c->past += CACHE_WRITE_ENDS;
	return err;
}

/* ---- Writing to the near file ---- */

/* The dirty slot of a block, for a writer. If `wanted`, a free slot becomes it. */
static uint32_t acquire_dirty_slot(struct cache *c, uint64_t block, bool wanted)
{
	struct cache_index *ix = &c->index;
	uint32_t s;

	futex_lock(&c->o.lock);
	while (c->mending) {
		futex_unlock(&c->o.lock);
		cache_pause();
		futex_lock(&c->o.lock);
	}
	s = cache_find(ix, block, true);
	if (s == CACHE_NO_SLOT && wanted && cache_take(c, 1, &s) == 1)
		cache_put(c, s, block, true, 0);
	if (s != CACHE_NO_SLOT) {
		ix->slots[s].writers++;
		ix->slots[s].rewritten = 1;
	}
	futex_unlock(&c->o.lock);
	return s;
}

static void release_dirty_slot(struct cache *c, uint32_t s)
{
	struct cache_slot *slot = &c->index.slots[s];

	futex_lock(&c->o.lock);
	slot->writers--;
	if (!parts_in(c, s) && !slot->writers && !slot->flying)
		cache_drop(c, s);
	futex_unlock(&c->o.lock);
}

/* A dirty slot has parts that were written. The store ends at `end`, if it ended earlier. */
static void add_parts(struct cache *c, uint32_t s, uint64_t block, uint64_t parts, uint64_t end)
{
	uint32_t clean;

	futex_lock(&c->o.lock);
	c->o.size = max_u64(c->o.size, end);
	/* Also if it had the parts: the next commit must flush them. */
	cache_set_parts(c, s, parts_in(c, s) | parts);
	clean = cache_find(&c->index, block, false);
	if (parts_in(c, clean) & parts) {
		cache_set_parts(c, clean, parts_in(c, clean) & ~parts);
		if (!parts_in(c, clean))
			cache_drop(c, clean);
	}
	futex_unlock(&c->o.lock);
}

/* Some bytes of one part, which is written as a whole: the other bytes stay as they are. */
static int write_one_part(struct cache *c, struct cursor *cursor, size_t bytes, uint64_t place)
{
	_Alignas(16) char part[OVERLAY_PART];
	size_t skip = cursor->off % OVERLAY_PART;
	struct iovec whole = { part, sizeof(part) };
	struct cursor rest = cursor_begin(&whole, 1, cursor->off - skip);
	int err = 0;

	if (skip == 0 && cursor->off + bytes >= c->o.size)
		memset(part, 0, sizeof(part));
	else if (bytes < sizeof(part))
		err = read_at(c, &rest, false);
	if (err)
		return err;
	cursor_copy(cursor, part + skip, bytes, false);
	err = side_write(&c->o.file, part, sizeof(part), place - skip);
	if (err)
		cache_near_failed(c, err);
	return err;
}

/* Whether a slot has the part of a block at an offset. */
static bool has_part(struct cache *c, uint32_t s, uint64_t off)
{
	unsigned part = (unsigned)((off & (cache_block_bytes(c) - 1)) / OVERLAY_PART);
	bool has;

	futex_lock(&c->o.lock);
	has = parts_in(c, s) >> part & 1;
	futex_unlock(&c->o.lock);
	return has;
}

/* The next bytes of a block, to its dirty slot. */
static int write_parts(struct cache *c, uint32_t s, struct cursor *cursor, uint64_t end)
{
	uint64_t block = block_of(c, cursor->off), off = cursor->off;
	uint64_t place = overlay_block_at(&c->o, s) + (off & (cache_block_bytes(c) - 1));
	size_t in_part = min_size(end - off, OVERLAY_PART - off % OVERLAY_PART);
	struct iovec iov[CACHE_PIECES];
	int n, err;
	size_t bytes = cursor_slice(cursor, end - off, iov, CACHE_PIECES, &n);
	/* Either the whole range consists of whole parts, or it is in one part. */
	bool is_partial = off % OVERLAY_PART || bytes < OVERLAY_PART;

	if (is_partial && !has_part(c, s, off)) {
		bytes = in_part;
		err = write_one_part(c, cursor, bytes, place);
	} else {
		bytes = is_partial ? in_part : bytes & ~(OVERLAY_PART - 1);
		bytes = cursor_slice(cursor, bytes, iov, CACHE_PIECES, &n);
		err = side_writev(&c->o.file, iov, n, place);
		if (err)
			cache_near_failed(c, err);
		cursor_advance(cursor, bytes);
	}
	if (!err)
		add_parts(c, s, block, parts_of(c, block, off, off + bytes), off + bytes);
	return err;
}

static int write_near(struct cache *c, uint32_t s, struct cursor *cursor)
{
	uint64_t end = min_u64(cursor->end, (block_of(c, cursor->off) + 1) << c->shift);
	int err = 0;

	while (cursor->off < end && !err) {
		struct cursor before = *cursor;

		err = write_parts(c, s, cursor, end);
		if (err)
			*cursor = before;
	}
	release_dirty_slot(c, s);
	return err;
}

/* Whether more slots may become dirty if these files fail (enum cache_trouble). Changes that the
 * far store does not take stay near. */
static bool may_be_dirty(struct cache *c, uint32_t trouble)
{
	if (c->mode != CACHE_BACK || trouble & CACHE_NEAR_FAILS)
		return false;
	return c->index.lists[CACHE_DIRTY].count < c->max_dirty || trouble & CACHE_FAR_FAILS;
}

/* trouble: the files that fail. */
static int write_next(struct cache *c, struct cursor *cursor, uint32_t trouble)
{
	uint64_t block = block_of(c, cursor->off);
	bool wanted = may_be_dirty(c, trouble);
	uint32_t s = acquire_dirty_slot(c, block, wanted);

	if (s == CACHE_NO_SLOT && wanted) {
		cache_make_room(c);
		s = acquire_dirty_slot(c, block, true);
	}
	if (s != CACHE_NO_SLOT)
		return write_near(c, s, cursor);
	cache_wake(c);
	return write_past(c, cursor);
}

/* If a file begins to fail, the other one is tried. The counters of errors show this, because the
 * thread may find meanwhile that the file works again, and clear its bit of cache.trouble. */
static int write_to_either(struct cache *c, struct cursor *cursor)
{
	unsigned near_errors = c->nerrors[CACHE_NEAR], far_errors = c->nerrors[CACHE_FAR];
	uint32_t before = c->trouble, trouble = before;
	int err = write_next(c, cursor, before);

	if (!err || c->mode != CACHE_BACK)
		return err;
	if (c->nerrors[CACHE_NEAR] != near_errors)
		trouble |= CACHE_NEAR_FAILS;
	if (c->nerrors[CACHE_FAR] != far_errors)
		trouble |= CACHE_FAR_FAILS;
	return trouble != before ? write_next(c, cursor, trouble) : err;
}

/* Writes whole parts, or some bytes of one part. */
static int write_some(struct cache *c, struct cursor *cursor)
{
	uint64_t skip = cursor->off % OVERLAY_PART, end = cursor->end;
	bool whole = skip == 0 && end - cursor->off >= OVERLAY_PART;
	int err;

	cursor->end = whole ? end & ~(uint64_t)(OVERLAY_PART - 1) :
			      min_u64(end, cursor->off - skip + OVERLAY_PART);
	if (!whole)
		futex_lock(&c->o.parts);
	err = write_to_either(c, cursor);
	if (!whole)
		futex_unlock(&c->o.parts);
	cursor->end = end;
	return err;
}

int cache_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct cursor cursor = cursor_begin(iov, n, off);
	struct cache *c = h;
	int err = 0;

	if (!c->o.writable)
		return -EBADF;
	if (cursor.end > c->o.size && !c->o.grows)
		return -ENOSPC;
	while (cursor.off < cursor.end && !err)
		err = write_some(c, &cursor);
	return err;
}

int cache_write(void *h, const void *buf, size_t len, uint64_t off)
{
	return cache_writev(h, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

/* ---- After a flush of the near file that failed ---- */

void cache_drop_all(struct cache *c, bool (*wants)(struct cache *c, uint32_t s))
{
	for (uint32_t s = 0; s < c->index.nslots; s++) {
		futex_lock(&c->o.lock);
		if (c->index.slots[s].key != CACHE_NO_KEY && !cache_is_dirty(&c->index, s) &&
		    wants(c, s))
			cache_drop(c, s);
		futex_unlock(&c->o.lock);
	}
}

static bool has_changed(struct cache *c, uint32_t s)
{
	const struct overlay_group *group = overlay_group(&c->o, s / OVERLAY_GROUP);

	return overlay_has_bit(group->changed, s) || overlay_has_bit(group->taken, s);
}

/* A failed flush may have lost clean parts. */
void cache_forget_unflushed(struct overlay *o)
{
	cache_drop_all(cache_of(o), has_changed);
}

/* Waits until no thread writes dirty slots. Threads that want to begin wait for the end of
 * mending. */
static void keep_writers_out(struct cache *c)
{
	struct cache_index *ix = &c->index;
	uint32_t s;

	futex_lock(&c->o.lock);
	c->mending = true;
	for (s = ix->lists[CACHE_DIRTY].first; s != CACHE_NO_SLOT;) {
		if (!ix->slots[s].writers) {
			s = ix->slots[s].next;
			continue;
		}
		futex_unlock(&c->o.lock);
		cache_pause();
		futex_lock(&c->o.lock);
		s = ix->lists[CACHE_DIRTY].first;
	}
	futex_unlock(&c->o.lock);
}

int cache_copy_parts(struct cache *c, uint32_t from, uint32_t to, uint64_t parts)
{
	char part[OVERLAY_PART];
	int err = 0;

	for (; parts && !err; parts &= parts - 1) {
		uint64_t skip = (unsigned)__builtin_ctzll(parts) * OVERLAY_PART;

		err = side_read(&c->o.file, part, sizeof(part),
				overlay_block_at(&c->o, from) + skip);
		if (!err)
			err = side_write(&c->o.file, part, sizeof(part),
					 overlay_block_at(&c->o, to) + skip);
	}
	return err;
}

/* Writes all dirty parts again. */
int cache_mend(struct overlay *o)
{
	struct cache *c = cache_of(o);
	int err = 0;

	keep_writers_out(c);
	for (uint32_t s = 0; s < c->index.nslots && !err; s++) {
		/* As a reader: the slot may be evicted, but gets no other block. */
		unsigned ticket = overlay_enter(o);
		uint64_t parts = 0;

		futex_lock(&o->lock);
		if (c->index.slots[s].key != CACHE_NO_KEY && cache_is_dirty(&c->index, s))
			parts = parts_in(c, s);
		futex_unlock(&o->lock);
		err = cache_copy_parts(c, s, s, parts);
		overlay_leave(o, ticket);
	}
	futex_lock(&o->lock);
	c->mending = false;
	futex_unlock(&o->lock);
	return err;
}

/* ---- Asynchronous requests: reads that need only the far store go there, all others are done at
 * once, and held ---- */

static bool is_far(void *h, const struct ummap_io *io)
{
	struct cache *c = h;
	struct source src;
	bool is;

	if (io->op != UMMAP_IO_READ)
		return false;
	cache_guest_look(c);
	futex_lock(&c->o.lock);
	src = find_source(c, io->off, io->len);
	futex_unlock(&c->o.lock);
	is = src.slot == CACHE_NO_SLOT && src.len == io->len;
	c->far_reads += is;
	return is;
}

int cache_submit(void *h, struct ummap_io **io, unsigned n)
{
	static const struct ummap_driver own = { .read = cache_read, .write = cache_write };
	struct cache *c = h;

	return held_submit(c->o.held, &c->o.store, &own, c, is_far, io, n);
}

int cache_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct cache *c = h;
	unsigned n = held_let_go(c->o.held, done, max);
	int got;

	if (n == max || (n > 0 && n >= min))
		return (int)n;
	got = c->o.store.driver.reap(c->o.store.h, done + n, max - n, min - n);
	for (int i = 0; i < got; i++) {
		struct ummap_io *io = done[n + (unsigned)i];
		struct iovec iov = { io->buf, io->len };

		cache_far_was(c, io->res);
		if (!io->res)
			cache_keep(c, cursor_begin(&iov, 1, io->off), NULL);
	}
	if (got < 0)
		return n > 0 ? (int)n : got;
	return (int)n + got;
}
