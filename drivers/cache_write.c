/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writing, for cache+. A write goes to dirty slots of the near file, where the mode says so and there may be more of these, or
 * where its block has one already; else to the far store, past the cache, and then to clean slots, too. The first kind waits
 * for the near file only. Writes that run at once have no byte in common, but may have sectors.
 */
#include "cache.h"

#include <errno.h>
#include <string.h>

#define RUN_BLOCKS 1024                /* that one write past the cache has, at most */

/* ---- Stamps: who reads a part of a sector from the far store finds out whether it has changed meanwhile ---- */

static void stamps_add(struct cache *c, uint64_t first, uint64_t blocks, uint64_t what)
{
	for (uint64_t k = 0; k < blocks && k < CACHE_STAMPS; k++)
		c->stamp[(first + k) % CACHE_STAMPS] += what;
	c->direct += what;
}

static void stamps_begin(struct cache *c, uint64_t first, uint64_t blocks)
{
	stamps_add(c, first, blocks, 1);
}

static void stamps_end(struct cache *c, uint64_t first, uint64_t blocks)
{
	stamps_add(c, first, blocks, CACHE_DIRECT_END);
}

/* ---- Past the cache ---- */

/* How far the blocks of a range have no dirty slot. */
static uint64_t find_clean_end(struct cache *c, uint64_t off, uint64_t end)
{
	uint64_t block = cache_block_of(c, off);

	while (block << c->near.block_shift < end && cache_find(&c->near.index, block, true) == CACHE_NO_SLOT)
		block++;
	return min_u64(end, block << c->near.block_shift);
}

/* Under the lock: clean slots do not have these bytes any more. Whether a pass has to come first. */
static bool give_up_clean(struct cache *c, uint64_t off, uint64_t end)
{
	struct cache_near *n = &c->near;
	bool may_count = n->index.list[CACHE_FREEING].count > 0, must = !n->head.touched;

	n->next.touched = 1;
	for (uint64_t block = cache_block_of(c, off); block << n->block_shift < end; block++) {
		uint32_t s = cache_find(&n->index, block, false);

		if (s != CACHE_NO_SLOT)
			cache_set_valid(&n->index, s, cache_valid(&n->index.slot[s]) & ~cache_sectors_of(c, block, off, end));
		must |= (may_count || s != CACHE_NO_SLOT) && !cache_intends(n->sure, block);
		n->next.intent[cache_region(block) / 64] |= (uint64_t)1 << cache_region(block) % 64;
	}
	return must;
}

/* What was written is not kept: slots that it has left without sectors are of no use. */
static void shed_clean(struct cache *c, uint64_t off, uint64_t end)
{
	cache_lock(c);
	for (uint64_t block = cache_block_of(c, off); block << c->near.block_shift < end; block++) {
		uint32_t s = cache_find(&c->near.index, block, false);

		if (s != CACHE_NO_SLOT)
			cache_shed(&c->near.index, s);
	}
	cache_unlock(c);
}

static int write_far(struct cache *c, struct cursor from, uint64_t end)
{
	int err = 0;

	while (from.off < end && !err) {
		struct iovec iov[CACHE_SLICES];
		int n;
		size_t bytes = cursor_slice(&from, end - from.off, iov, CACHE_SLICES, &n);

		err = behind_writev(&c->far, iov, n, from.off);
		cursor_advance(&from, bytes);
	}
	return err;
}

/* As far as there are no dirty slots; goes on by what was written, which may be nothing if there is one meanwhile. */
static int write_past(struct cache *c, struct cursor *cursor)
{
	uint64_t off = cursor->off, first = cache_block_of(c, off), end;
	uint64_t most = min_u64(cursor->end, (first + RUN_BLOCKS) << c->near.block_shift);
	uint64_t blocks = cache_block_of(c, most - 1) - first + 1;
	struct cursor written = *cursor;
	bool must = false;
	int err = 0;

	stamps_begin(c, first, blocks);
	cache_lock(c);
	end = find_clean_end(c, off, most);
	if (end > off)
		must = give_up_clean(c, off, end);
	cache_unlock(c);
	if (must)
		err = cache_make_durable(c);
	if (!err && end > off) {
		/* Before, for a flush that fails meanwhile, and again, for one that has come too early. */
		c->far_unflushed = CACHE_UNFLUSHED;
		err = write_far(c, *cursor, end);
		c->far_unflushed = CACHE_UNFLUSHED;
		cache_far_was(c, err);
	}
	if (!err && end > off) {
		cursor_advance(cursor, end - off);
		cache_has_grown(c, end);
		written.end = end;
		if (c->mode != CACHE_READ)
			cache_keep(c, written);
	}
	if (c->mode == CACHE_READ || err)
		shed_clean(c, off, end);
	stamps_end(c, first, blocks);
	return err;
}

/* ---- To the near file ---- */

/* The dirty slot of a block, for writing; one more if that is wanted and may be. */
static uint32_t acquire(struct cache *c, uint64_t block, bool wanted)
{
	struct cache_index *ix = &c->near.index;
	uint32_t s;

	cache_lock(c);
	while (c->near.mending) {
		cache_unlock(c);
		nanosleep(&cache_moment, NULL);
		cache_lock(c);
	}
	s = cache_find(ix, block, true);
	if (s == CACHE_NO_SLOT && wanted) {
		s = cache_take(ix, block, true);
		if (s != CACHE_NO_SLOT)
			cache_put(ix, s, block, true, 0, cache_now());
	}
	if (s != CACHE_NO_SLOT) {
		cache_pin(ix, s);
		ix->slot[s].writers++;
		ix->slot[s].rewritten = 1;
	}
	cache_unlock(c);
	return s;
}

static void release(struct cache *c, uint32_t s)
{
	struct cache_index *ix = &c->near.index;

	cache_lock(c);
	ix->slot[s].writers--;
	if (!cache_valid(&ix->slot[s]) && !ix->slot[s].writers && !ix->slot[s].flying)
		cache_drop(ix, s);
	cache_unpin(ix, s);
	cache_unlock(c);
}

/* They are in a dirty slot now, so that no clean one has them. */
static void has_sectors(struct cache *c, uint32_t s, uint64_t block, cache_mask sectors)
{
	struct cache_index *ix = &c->near.index;
	uint32_t clean = cache_find(ix, block, false);

	if ((cache_valid(&ix->slot[s]) & sectors) != sectors)
		cache_set_valid(ix, s, cache_valid(&ix->slot[s]) | sectors);
	if (clean != CACHE_NO_SLOT && cache_valid(&ix->slot[clean]) & sectors) {
		cache_set_valid(ix, clean, cache_valid(&ix->slot[clean]) & ~sectors);
		cache_shed(ix, clean);
	}
}

static int write_file(struct cache *c, uint32_t s, size_t skip, const struct iovec *iov, int n)
{
	int err = side_writev(&c->near.file, iov, n, cache_place(&c->near, s, skip));

	if (err)
		cache_near_failed(c, err);
	return err;
}

/* Whole sectors of one block, from its byte `skip` on. */
static int write_sectors(struct cache *c, uint32_t s, uint64_t block, size_t skip, size_t bytes, const struct iovec *iov, int n)
{
	unsigned shift = c->near.sector_shift;
	int err = write_file(c, s, skip, iov, n);

	if (err)
		return err;
	cache_lock(c);
	has_sectors(c, s, block, cache_mask_of((unsigned)(skip >> shift), (unsigned)(bytes >> shift)));
	cache_unlock(c);
	return 0;
}

static void gather(struct cursor *cursor, char *to, size_t bytes)
{
	for (size_t len; bytes > 0; bytes -= len, to += len) {
		len = cursor->piece->iov_len - cursor->skip < bytes ? cursor->piece->iov_len - cursor->skip : bytes;
		memcpy(to, (char *)cursor->piece->iov_base + cursor->skip, len);
		cursor_advance(cursor, len);
	}
}

/* A part of a sector that is written as a whole. */
struct part {
	uint32_t slot;
	uint64_t block;
	size_t skip, bytes;            /* where the part is in the block */
	unsigned sector;               /* its number there */
	struct cursor from;
};

/* The sector has all but the part. */
static int write_merged(struct cache *c, struct part *p, char *sector)
{
	size_t size = (size_t)1 << c->near.sector_shift, inside = p->skip % size;
	struct iovec whole = { sector, size };

	gather(&p->from, sector + inside, p->bytes);
	return write_sectors(c, p->slot, p->block, p->skip - inside, size, &whole, 1);
}

/* Whether the dirty slot has the sector; if not, *stamp is one to be compared. */
static bool has_sector(struct cache *c, const struct part *p, uint64_t *stamp)
{
	bool has;

	cache_lock(c);
	*stamp = c->stamp[p->block % CACHE_STAMPS];
	has = cache_valid(&c->near.index.slot[p->slot]) >> p->sector & 1;
	cache_unlock(c);
	return has;
}

/* The rest of it is somewhere else: it goes to the slot with the part, if nobody writes it meanwhile. */
static int try_to_merge(struct cache *c, struct part *p, uint64_t before, bool *done)
{
	char sector[CACHE_SECTOR_MAX] __attribute__((aligned(16)));
	size_t size = (size_t)1 << c->near.sector_shift;
	struct iovec whole = { sector, size };
	struct cursor rest = cursor_begin(&whole, 1, p->from.off - p->skip % size);
	uint64_t after;
	int err = 0;

	if (p->skip % size == 0 && p->from.off + p->bytes >= c->size)
		memset(sector, 0, size);
	else
		err = cache_read_at(c, &rest, false);
	if (err)
		return err;
	futex_lock(&c->odd);
	*done = !has_sector(c, p, &after) && after == before;
	if (*done)
		err = write_merged(c, p, sector);
	futex_unlock(&c->odd);
	return err;
}

static int write_part(struct cache *c, struct part *p, const struct iovec *iov, int n)
{
	uint64_t stamp;
	bool done = false;
	int err = 0;

	while (!done && !err) {
		if (has_sector(c, p, &stamp))
			return write_file(c, p->slot, p->skip, iov, n);
		if ((uint32_t)stamp)
			nanosleep(&cache_moment, NULL);
		else
			err = try_to_merge(c, p, stamp, &done);
	}
	return err;
}

/* Some bytes of a block, to its dirty slot. */
static int write_some(struct cache *c, uint32_t s, struct cursor *cursor)
{
	size_t sector = (size_t)1 << c->near.sector_shift, block_size = (size_t)1 << c->near.block_shift;
	uint64_t block = cache_block_of(c, cursor->off);
	size_t skip = cursor->off & (block_size - 1), bytes = min_u64(block_size - skip, cursor->end - cursor->off);
	struct iovec iov[CACHE_SLICES];
	int n, err;

	bytes = cursor_slice(cursor, bytes, iov, CACHE_SLICES, &n);
	if (skip % sector || bytes < sector) {
		bytes = cursor_slice(cursor, min_u64(sector - skip % sector, cursor->end - cursor->off), iov, CACHE_SLICES, &n);
		err = write_part(c, &(struct part){ s, block, skip, bytes, (unsigned)(skip / sector), *cursor }, iov, n);
	} else {
		bytes = cursor_slice(cursor, bytes - bytes % sector, iov, CACHE_SLICES, &n);
		err = write_sectors(c, s, block, skip, bytes, iov, n);
	}
	if (err)
		return err;
	cursor_advance(cursor, bytes);
	cache_has_grown(c, cursor->off);
	return 0;
}

static int write_near(struct cache *c, uint32_t s, struct cursor *cursor)
{
	uint64_t end = min_u64(cursor->end, (cache_block_of(c, cursor->off) + 1) << c->near.block_shift);
	int err = 0;

	while (cursor->off < end && !err)
		err = write_some(c, s, cursor);
	release(c, s);
	return err;
}

/* Whether more may become dirty. What the far store does not take has to stay near. */
static bool may_be_dirty(struct cache *c)
{
	if (c->mode != CACHE_BACK || c->trouble & CACHE_NEAR_FAILS)
		return false;
	return c->near.index.list[CACHE_DIRTY].count < c->dirty_most || c->trouble & CACHE_FAR_FAILS;
}

/* Where one store begins to fail, the other one is tried. */
static int write_next(struct cache *c, struct cursor *cursor)
{
	uint64_t block = cache_block_of(c, cursor->off);
	bool wanted = may_be_dirty(c);
	uint32_t s = acquire(c, block, wanted), before = c->trouble;
	int err;

	if (s == CACHE_NO_SLOT && wanted) {
		cache_make_room(c);
		s = acquire(c, block, true);
	}
	if (s != CACHE_NO_SLOT) {
		err = write_near(c, s, cursor);
		return c->trouble & ~before & CACHE_NEAR_FAILS ? 0 : err;
	}
	cache_tell(c);
	err = write_past(c, cursor);
	return err && c->mode == CACHE_BACK && c->trouble & ~before & CACHE_FAR_FAILS ? 0 : err;
}

int cache_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct cache *c = h;
	struct cursor cursor = cursor_begin(iov, n, off);
	int err = 0;

	if (!c->writable)
		return -EBADF;
	if (cursor.end > c->size && !c->grows)
		return -ENOSPC;
	while (cursor.off < cursor.end && !err)
		err = write_next(c, &cursor);
	return err;
}
