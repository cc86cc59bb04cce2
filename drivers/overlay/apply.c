/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes blocks of commits to the store (overlay.h: orders 5 and 8). A pass first notes the places
 * of all blocks of the commit that the store lacks, then sends them (send.c). While it runs, `hold`
 * keeps these slots from being retired, so that it needs no lock to read them.
 *
 * Lock: `lock`, for MAX_VISITED entries of the index at a time, because writers wait for it.
 */
#include "overlay.h"

#include "common/futex.h"
#include "common/minmax.h"

#include <errno.h>

#define MAX_VISITED 256 /* entries of the index */

struct pass {
	struct overlay_sending s;
	_Atomic uint64_t bad;          /* block that differs from its sum; OVERLAY_EMPTY: none */
};

/* ---- The blocks of a commit ---- */

struct found {
	uint64_t block, place;
};

/*
 * The slot that has the block at commit `number`, if the store lacks it; OVERLAY_NO_SLOT: none. A
 * slot behind `older` may have been freed and taken again since, and then has a later commit than
 * the slot before it, or none. The caller holds the lock.
 */
static uint32_t find_version(const struct overlay *o, uint32_t slot, uint64_t number, uint64_t home)
{
	uint64_t later = overlay_slot(o, slot)->commit;

	while (later > number) {
		slot = overlay_slot(o, slot)->older;
		if (slot == OVERLAY_NO_SLOT || overlay_slot(o, slot)->commit >= later)
			return OVERLAY_NO_SLOT;
		later = overlay_slot(o, slot)->commit;
	}
	return later > home ? slot : OVERLAY_NO_SLOT;
}

/* Notes the places of blocks from *block on. Returns how many entries of the index it has visited;
 * *n is the number of places. */
static unsigned visit_some(struct overlay *o, uint64_t number, uint64_t home, uint64_t *block,
			   struct found *found, unsigned *n)
{
	unsigned visited = 0;
	uint64_t place;

	*n = 0;
	futex_lock(&o->lock);
	for (; visited < MAX_VISITED && blockmap_next(&o->index, block, &place); ++*block) {
		uint32_t slot = find_version(o, overlay_slot_at(o, place), number, home);

		visited++;
		if (slot != OVERLAY_NO_SLOT)
			found[(*n)++] = (struct found){ *block, overlay_block_at(o, slot) };
	}
	futex_unlock(&o->lock);
	return visited;
}

static int note_places(struct overlay_sending *s, uint64_t number, uint64_t home)
{
	struct found found[MAX_VISITED];
	uint64_t block = 0;
	unsigned n;
	int err = 0;

	while (!err && visit_some(s->o, number, home, &block, found, &n) > 0) {
		for (unsigned i = 0; i < n && !err; i++) {
			err = blockmap_reserve(&s->places, found[i].block, 1);
			if (!err)
				blockmap_set(&s->places, found[i].block, found[i].place);
		}
	}
	return err;
}

/* ---- Writing ---- */

/* Compares n blocks in memory with their sums. */
static int check_sums(struct overlay_sending *s, uint64_t first, uint64_t n, const char *blocks)
{
	struct overlay *o = s->o;

	for (uint64_t k = 0; k < n; k++) {
		uint32_t slot = overlay_slot_at(o, blockmap_get(&s->places, first + k));

		if (overlay_sum(blocks + k * OVERLAY_BLOCK) == overlay_slot(o, slot)->data)
			continue;
		((struct pass *)s)->bad = first + k;
		return -EBADMSG;
	}
	return 0;
}

int overlay_apply(struct overlay *o, uint64_t number, struct behind *store, uint64_t *block)
{
	struct pass p = { .s = { .o = o, .store = store, .max_senders = 1 + OVERLAY_SENDERS,
				 .check = check_sums }, .bad = OVERLAY_EMPTY };
	struct overlay_commit commit;
	uint64_t home;
	int err;

	futex_lock(&o->file_lock);
	overlay_find_commit(o, number, &commit);
	home = o->head.home;
	futex_unlock(&o->file_lock);
	p.s.size = commit.size;
	err = note_places(&p.s, number, home);
	if (!err && o->store_end < OVERLAY_NEVER)
		err = overlay_shorten_store(store, min_u64(o->store_end, commit.size));
	if (!err)
		err = overlay_send(&p.s);
	/* The store may have been longer at the commit than any block says. */
	if (!err)
		err = overlay_lengthen_store(store, commit.size);
	if (!err)
		err = behind_flush(store, 0, UINT64_MAX);
	blockmap_free(&p.s.places);
	*block = p.bad;
	return err > 0 ? -err : err;
}

/* ---- Afterwards ---- */

/* Some of the blocks from *block on: those whose newest contents are of a commit up to `number` are
 * in the store. Returns how many entries of the index it has visited. */
static unsigned drop_some(struct overlay *o, uint64_t number, uint64_t *block)
{
	unsigned visited = 0;
	uint64_t place;

	futex_lock(&o->lock);
	for (; visited < MAX_VISITED && blockmap_next(&o->index, block, &place); ++*block) {
		uint32_t slot = overlay_slot_at(o, place);

		visited++;
		if (overlay_slot(o, slot)->commit > number)
			continue;
		blockmap_drop(&o->index, *block, place);
		overlay_retire(o, slot);
	}
	futex_unlock(&o->lock);
	return visited;
}

int overlay_set_home(struct overlay *o, uint64_t number)
{
	struct overlay_commit commit;
	struct overlay_head before;
	uint64_t block = 0;
	int err;

	futex_lock(&o->file_lock);
	before = o->head;
	overlay_find_commit(o, number, &commit);
	o->head.home = number;
	o->head.home_slots = commit.slots;
	o->head.floor = max_u64(o->head.floor, number);
	err = overlay_write_head(o);
	/* The file may have either header. Until a later call succeeds, all slots stay, and so
	 * either header is right. */
	if (err)
		o->head = before;
	futex_unlock(&o->file_lock);
	while (!err && drop_some(o, number, &block) > 0)
		;
	futex_lock(&o->lock);
	overlay_end_hold(o);
	futex_unlock(&o->lock);
	return err;
}
