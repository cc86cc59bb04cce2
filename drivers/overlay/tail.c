/* SPDX-License-Identifier: BSD-3-Clause */
/* The tail of the store (overlay.h: THE TAIL): writing to it, and cutting off uncommitted bytes. */
#include "overlay.h"

#include "../keys.h"
#include "common/futex.h"
#include "common/minmax.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t overlay_tail_bytes = (size_t)64 << 10;

/* ---- Writing ---- */

/* A flush of a remote store would take too long for a commit, and a filter may need its own order
 * of writes. */
void overlay_use_tail(struct overlay *o)
{
	o->tail = o->size;
	o->uses_tail = o->writable && o->grows && o->store.driver.resize &&
		       !o->store.driver.filter && !(o->store.caps & UMMAP_CAP_REMOTE);
}

bool overlay_is_for_tail(struct overlay *o, uint64_t off, size_t bytes)
{
	uint64_t place, blocks = bytes / OVERLAY_BLOCK;

	return o->uses_tail && off >= o->tail && bytes >= overlay_tail_bytes &&
	       blockmap_run(&o->index, off / OVERLAY_BLOCK, blocks, OVERLAY_BLOCK, &place) ==
		       blocks && !place;
}

/* Order 15. The mark stays, because earlier commits end earlier. */
static int mark_tail(struct overlay *o)
{
	int err = 0;

	futex_lock(&o->file_lock);
	if (!o->tail_marked) {
		o->head.flags |= OVERLAY_TAIL;
		err = overlay_write_head(o);
	}
	if (err)
		o->head.flags &= ~(uint64_t)OVERLAY_TAIL;
	else
		o->tail_marked = true;
	futex_unlock(&o->file_lock);
	return err;
}

/* A commit that begins before the store counts as longer does not have the blocks. */
int overlay_write_tail(struct overlay *o, const struct iovec *iov, int n, uint64_t off,
		       size_t bytes)
{
	int err = o->broken ? -EIO : o->tail_marked ? 0 : mark_tail(o);

	if (!err)
		err = behind_writev(&o->store, iov, n, off);
	if (err)
		return err;
	o->tail_due = true;
	overlay_grow(o, off + bytes);
	return 0;
}

int overlay_flush_tail(struct overlay *o)
{
	int err = atomic_exchange(&o->tail_due, false) ?
		  behind_flush(&o->store, 0, UINT64_MAX) : 0;

	if (err)
		o->tail_due = true;
	if (err < 0)
		o->broken = true;
	return err > 0 ? -err : err;
}

/* ---- Bytes without a commit ---- */

int overlay_cut_tail(struct overlay *o, uint64_t length)
{
	uint64_t size;
	int err = behind_size(&o->store, &size);

	if (!err && size > o->newest.size)
		err = behind_resize(&o->store, o->newest.size);
	if (!err)
		err = behind_flush(&o->store, 0, UINT64_MAX);
	if (!err && length > o->newest.size)
		err = behind_resize(&o->store, length);
	return err > 0 ? -err : err;
}

int overlay_cut_found_tail(struct overlay *o, struct ummap_geom *geom)
{
	int err = o->writable ? overlay_cut_tail(o, 0) : 0;

	geom->size = min_u64(geom->size, o->newest.size);
	if (!o->writable)
		o->store_end = o->newest.size;
	o->tail_marked = true;
	return err ? keys_refuse(geom, -err, "cannot cut off the bytes of the store that were "
				 "written after the last commit: %s", strerror(-err)) : 0;
}
