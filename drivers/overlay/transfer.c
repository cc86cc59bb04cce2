/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of a driver that all policies share: reading and writing through an overlay. A write
 * copies whole blocks to a draft, takes slots, writes the blocks there, and publishes the slots. A
 * part of a block is read, changed and written as a whole.
 */
#include "overlay.h"

#include "common/cursor.h"
#include "common/futex.h"
#include "common/minmax.h"

#include <errno.h>
#include <string.h>

#define MAX_PIECES 60    /* pieces of memory in one draft */
#define START_BLOCKS 2048 /* written blocks with which storage begins before the next flush */

/* ---- Reading ---- */

/* Bytes from `off` on, at most len, that are consecutive in one file: at *place, which is the place
 * of the first block, or in the store if that is 0. */
static size_t find_run(struct overlay *o, size_t len, uint64_t off, uint64_t *place)
{
	size_t skip = off % OVERLAY_BLOCK;
	uint64_t blocks = (skip + len + OVERLAY_BLOCK - 1) / OVERLAY_BLOCK;
	uint64_t run = blockmap_run(&o->index, off / OVERLAY_BLOCK, blocks, OVERLAY_BLOCK, place);

	return (size_t)min_u64(run * OVERLAY_BLOCK - skip, len);
}

static int check_block(struct overlay *o, const void *bytes, uint64_t place)
{
	const struct overlay_slot *s = overlay_slot(o, overlay_slot_at(o, place));

	if (overlay_sum(bytes) == s->data)
		return 0;
	notice_give(&o->notice, "%s+: cannot read block %ju (of 4 KiB) of the store: its contents "
		    "in '%.150s' differ from their checksum", o->policy->scheme,
		    (uintmax_t)s->block, o->file.path);
	return -EIO;
}

/* Reads some bytes of blocks that are consecutive in the file: *bytes, at most len. */
static int read_verified(struct overlay *o, char *buf, size_t len, size_t skip, uint64_t place,
			 size_t *bytes)
{
	char block[OVERLAY_BLOCK];
	bool whole = skip == 0 && len >= OVERLAY_BLOCK;
	char *to = whole ? buf : block;
	size_t n = whole ? len / OVERLAY_BLOCK : 1;
	int err = side_read(&o->file, to, n * OVERLAY_BLOCK, place);

	for (size_t k = 0; k < n && !err; k++)
		err = check_block(o, to + k * OVERLAY_BLOCK, place + k * OVERLAY_BLOCK);
	*bytes = min_size(n * OVERLAY_BLOCK - skip, len);
	if (!whole && !err)
		memcpy(buf, block + skip, *bytes);
	return err;
}

static int read_store(struct overlay *o, char *buf, size_t len, uint64_t off)
{
	uint64_t end = o->store_end;
	size_t have = off < end ? (size_t)min_u64(len, end - off) : 0;

	memset(buf + have, 0, len - have);
	return have ? behind_read(&o->store, buf, have, off) : 0;
}

/* As a reader: slots to which the index leads stay as they are. */
static int read_piece(struct overlay *o, char *buf, size_t len, uint64_t off)
{
	int err = 0;

	for (size_t bytes; len > 0 && !err; buf += bytes, off += bytes, len -= bytes) {
		size_t skip = off % OVERLAY_BLOCK;
		uint64_t place;

		bytes = find_run(o, len, off, &place);
		if (!place)
			err = read_store(o, buf, bytes, off);
		else if (o->verifies)
			err = read_verified(o, buf, bytes, skip, place, &bytes);
		else
			err = side_read(&o->file, buf, bytes, place + skip);
	}
	return err;
}

int overlay_readv(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct overlay *o = h;
	unsigned ticket;
	int err = 0;

	if (o->index.count == 0 && o->store_end == OVERLAY_NEVER)
		return behind_readv(&o->store, iov, n, off);
	ticket = overlay_enter(o);
	for (int i = 0; i < n && !err; off += iov[i++].iov_len)
		err = read_piece(o, iov[i].iov_base, iov[i].iov_len, off);
	overlay_leave(o, ticket);
	return err;
}

int overlay_read(void *h, void *buf, size_t len, uint64_t off)
{
	return overlay_readv(h, &(struct iovec){ buf, len }, 1, off);
}

/* ---- Writing ---- */

/* The next bytes: whole blocks, as far as there are pieces. The cursor does not move. */
static size_t slice_blocks(const struct cursor *c, struct iovec *iov, int *n)
{
	size_t bytes = cursor_slice(c, OVERLAY_RUN_BYTES, iov, MAX_PIECES, n);
	size_t over = bytes % OVERLAY_BLOCK;

	bytes -= over;
	while (over > 0 && *n > 0) {
		struct iovec *last = &iov[*n - 1];
		size_t cut = min_size(over, last->iov_len);

		last->iov_len -= cut;
		over -= cut;
		*n -= last->iov_len == 0;
	}
	return bytes;
}

/* Takes a draft that is free, or waits for the first one. */
static struct overlay_draft *take_draft(struct overlay *o)
{
	for (struct overlay_draft *d = o->drafts; d < o->drafts + OVERLAY_DRAFTS; d++)
		if (futex_trylock(&d->lock))
			return d;
	futex_lock(&o->drafts->lock);
	return o->drafts;
}

static void fill_draft(struct overlay_draft *d, uint64_t first, unsigned blocks,
		       const struct iovec *iov, int n)
{
	char *to = d->blocks;

	for (int i = 0; i < n; to += iov[i++].iov_len)
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
	d->first = first;
	d->nblocks = blocks;
	d->done = 0;
	for (unsigned k = 0; k < blocks; k++)
		d->sums[k] = overlay_sum(d->blocks + k * OVERLAY_BLOCK);
}

void overlay_grow(struct overlay *o, uint64_t end)
{
	futex_lock(&o->lock);
	o->size = max_u64(o->size, end);
	futex_unlock(&o->lock);
}

/* Publishes slots whose blocks were written, unless a flush has failed meanwhile, which may have
 * lost the blocks. */
static bool publish(struct overlay *o, struct overlay_draft *d, uint32_t slot, unsigned n,
		    uint64_t end, uint64_t *failures)
{
	bool lost, starts;

	futex_lock(&o->lock);
	lost = o->failures != *failures;
	*failures = o->failures;
	for (unsigned k = 0; k < n && !lost; k++, d->done++)
		overlay_publish(o, slot + k, d->first + d->done, d->sums[d->done]);
	if (!lost) {
		o->size = max_u64(o->size, min_u64(end, (d->first + d->done) * OVERLAY_BLOCK));
		o->unstarted += n;
	}
	starts = o->unstarted >= START_BLOCKS;
	o->unstarted = starts ? 0 : o->unstarted;
	futex_unlock(&o->lock);
	if (starts)
		side_start(&o->file, 0, 0);
	return !lost;
}

/* Writes the next blocks of a draft, as many as get consecutive slots. */
static int write_run(struct overlay *o, struct overlay_draft *d, uint64_t end)
{
	const char *from = d->blocks + d->done * OVERLAY_BLOCK;
	uint64_t failures;
	uint32_t slot;
	int n, err;

	futex_lock(&o->lock);
	n = o->broken ? -EIO : overlay_take(o, d->nblocks - d->done, &slot);
	failures = o->failures;
	futex_unlock(&o->lock);
	if (n < 0)
		return n;
	do
		err = side_write(&o->file, from, (size_t)n * OVERLAY_BLOCK,
				 overlay_block_at(o, slot));
	while (!err && !publish(o, d, slot, (unsigned)n, end, &failures));
	if (err) {
		futex_lock(&o->lock);
		overlay_give_back(o, slot, (unsigned)n);
		futex_unlock(&o->lock);
	}
	return err;
}

static int write_draft(struct overlay *o, struct overlay_draft *d, uint64_t end)
{
	int err = 0;

	while (d->done < d->nblocks && !err)
		err = write_run(o, d, end);
	return err;
}

/* Writes whole blocks. The store ends at `end` then, if it ended earlier. */
static int write_blocks(struct overlay *o, uint64_t first, unsigned blocks,
			const struct iovec *iov, int n, uint64_t end)
{
	bool (*make_room)(struct overlay *) = o->policy->make_room;
	int err = blockmap_reserve(&o->index, first, blocks);
	struct overlay_draft *d;

	if (err)
		return err;
	d = take_draft(o);
	fill_draft(d, first, blocks, iov, n);
	err = write_draft(o, d, end);
	/* Other threads may take the slots that have become free. */
	while ((err == -ENOSPC || err == -EDQUOT) && make_room && make_room(o))
		err = write_draft(o, d, end);
	futex_unlock(&d->lock);
	if (!err && o->policy->has_written)
		o->policy->has_written(o);
	return err;
}

/* Writes a part of one block. The rest of the block stays as it is. */
static int write_part(struct overlay *o, struct cursor *c)
{
	uint64_t block = c->off / OVERLAY_BLOCK, from = c->off % OVERLAY_BLOCK;
	size_t len = (size_t)min_u64(OVERLAY_BLOCK - from, c->end - c->off);
	uint64_t end = c->off + len;
	int err = 0;

	futex_lock(&o->parts);
	if (from == 0 && end >= o->size)
		memset(o->part, 0, OVERLAY_BLOCK);
	else
		err = overlay_read(o, o->part, OVERLAY_BLOCK, block * OVERLAY_BLOCK);
	if (!err)
		cursor_copy(c, o->part + from, len, false);
	if (!err)
		err = write_blocks(o, block, 1, &(struct iovec){ o->part, OVERLAY_BLOCK }, 1, end);
	futex_unlock(&o->parts);
	return err;
}

static int write_some(struct overlay *o, struct cursor *c)
{
	struct iovec iov[MAX_PIECES];
	size_t bytes = 0;
	int n, err;

	if (c->off % OVERLAY_BLOCK == 0)
		bytes = slice_blocks(c, iov, &n);
	if (bytes == 0)
		return write_part(o, c);
	if (overlay_is_for_tail(o, c->off, bytes))
		err = overlay_write_tail(o, iov, n, c->off, bytes);
	else
		err = write_blocks(o, c->off / OVERLAY_BLOCK, (unsigned)(bytes / OVERLAY_BLOCK),
				   iov, n, c->off + bytes);
	cursor_advance(c, bytes);
	return err;
}

int overlay_writev(void *h, const struct iovec *iov, int n, uint64_t off)
{
	struct overlay *o = h;
	struct cursor c = cursor_begin(iov, n, off);
	int err = 0;

	if (!o->writable)
		return -EBADF;
	if (c.end > o->size && !o->grows)
		return -ENOSPC;
	while (c.off < c.end && !err)
		err = write_some(o, &c);
	return err;
}

int overlay_write(void *h, const void *buf, size_t len, uint64_t off)
{
	return overlay_writev(h, &(struct iovec){ (void *)(uintptr_t)buf, len }, 1, off);
}

/* ---- A shorter store ---- */

/* Writes zeros behind the new end, up to the end of its block. */
static int clear_rest(struct overlay *o, uint64_t size)
{
	static const char zeros[OVERLAY_BLOCK];
	uint64_t rest = -size % OVERLAY_BLOCK;

	return rest ? overlay_write(o, zeros, min_u64(rest, o->size - size), size) : 0;
}

static int take_slot(struct overlay *o, uint32_t *slot)
{
	int n;

	futex_lock(&o->lock);
	n = o->broken ? -EIO : overlay_take(o, 1, slot);
	futex_unlock(&o->lock);
	return n < 0 ? n : 0;
}

/* Under file_lock, because no slot of a commit under way may be superseded by a cut. */
int overlay_shorten(struct overlay *o, uint64_t size)
{
	uint32_t slot;
	int err = take_slot(o, &slot);

	if (err)
		return err;
	err = clear_rest(o, size);
	futex_lock(&o->file_lock);
	futex_lock(&o->lock);
	if (err) {
		overlay_give_back(o, slot, 1);
	} else {
		overlay_publish_cut(o, slot, (size + OVERLAY_BLOCK - 1) / OVERLAY_BLOCK);
		o->size = size;
	}
	futex_unlock(&o->lock);
	futex_unlock(&o->file_lock);
	return err;
}

int overlay_size(void *h, uint64_t *size)
{
	struct overlay *o = h;

	if (!o->file.h)
		return behind_size(&o->store, size);
	*size = o->size;
	return 0;
}

void overlay_set_notice(void *h, ummap_notice *notice, void *arg)
{
	struct overlay *o = h;

	behind_set_notice(&o->store, notice, arg);
	notice_set(&o->notice, notice, arg);
}

int overlay_lock(void *h, uint64_t off, uint64_t len, int how, char why[160])
{
	return behind_lock(&((struct overlay *)h)->store, off, len, how, why);
}

int overlay_push(void *h)
{
	(void)h;
	return 0;
}

/* ---- Asynchronous requests ---- */

/* Whether the store has all bytes of a read. While the read is in flight, no block of it is written
 * to the store: it would have to be written to the file and committed first. */
static bool is_for_store(void *h, const struct ummap_io *io)
{
	struct overlay *o = h;
	uint64_t place;

	if (io->op != UMMAP_IO_READ || io->off + io->len > o->store_end)
		return false;
	return o->index.count == 0 ||
	       (find_run(o, io->len, io->off, &place) == io->len && !place);
}

int overlay_submit(void *h, struct ummap_io **io, unsigned n)
{
	static const struct ummap_driver own = { .read = overlay_read, .write = overlay_write };
	struct overlay *o = h;

	return held_submit(o->held, &o->store, &own, o, is_for_store, io, n);
}

int overlay_reap(void *h, struct ummap_io **done, unsigned max, unsigned min)
{
	struct overlay *o = h;

	return held_reap(o->held, &o->store, done, max, min);
}
