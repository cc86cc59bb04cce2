/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Committing the changed slots of an overlay (overlay.h: orders 2, 3 and 7, and flushes that fail),
 * and writing its header. All functions may run in signal handlers.
 */
#include "overlay.h"

#include "common/futex.h"
#include "common/memory_calls.h"
#include "common/minmax.h"
#include "common/random.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define RETAINED_GROUPS 64 /* groups of a file that begins anew which it need not give back */

/* ---- After a flush that failed ---- */

/* Whether the commit still needs the slot: another thread may have superseded it meanwhile. */
static bool is_needed(struct overlay *o, uint32_t slot)
{
	const struct overlay_group *group = overlay_group(o, slot / OVERLAY_GROUP);
	const struct overlay_slot *s = &group->slot[slot % OVERLAY_GROUP];
	bool needed;

	futex_lock(&o->lock);
	needed = overlay_has_bit(group->changed, slot) && s->block != OVERLAY_EMPTY &&
		 !(s->flags & SLOT_CUT);
	futex_unlock(&o->lock);
	return needed;
}

static int write_block_again(struct overlay *o, uint32_t slot)
{
	uint64_t place = overlay_block_at(o, slot);
	char block[OVERLAY_BLOCK];
	int err = side_read(&o->file, block, sizeof(block), place);

	if (err)
		return err;
	if (overlay_sum(block) == overlay_slot(o, slot)->data)
		return side_write(&o->file, block, sizeof(block), place);
	o->broken = is_needed(o, slot);
	return o->broken ? -EIO : 0;
}

/* As a reader, so that no slot is taken anew meanwhile. Blocks that are published later were
 * written after the failure (overlay.failures). */
static int write_blocks_again(struct overlay *o)
{
	unsigned ticket = overlay_enter(o);
	uint32_t next;
	int err = 0;

	futex_lock(&o->lock);
	next = o->first_changed;
	futex_unlock(&o->lock);
	while (next && !err) {
		uint32_t first = (next - 1) * OVERLAY_GROUP;

		for (unsigned k = 0; k < OVERLAY_GROUP && !err; k++)
			if (is_needed(o, first + k))
				err = write_block_again(o, first + k);
		next = overlay_group(o, next - 1)->next_changed;
	}
	overlay_leave(o, ticket);
	return err;
}

static void note_failure(struct overlay *o)
{
	futex_lock(&o->lock);
	o->unsure = true;
	o->failures++;
	futex_unlock(&o->lock);
	if (o->policy->has_failed)
		o->policy->has_failed(o);
}

/* Flushes the file; under file_lock. */
static int flush(struct overlay *o)
{
	int err = side_flush(&o->file);

	if (!err) {
		header_set_flushed(&o->slots);
		return 0;
	}
	header_repeat(&o->slots);
	note_failure(o);
	return err;
}

/* ---- A commit ---- */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void take_group(struct overlay *o, uint32_t g, struct overlay_commit *c)
{
	struct overlay_group *group = overlay_group(o, g);

	group->queued = false;
	group->next_taken = group->next_changed;
	memcpy(group->taken, group->changed, sizeof(group->taken));
	memset(group->changed, 0, sizeof(group->changed));
	for (unsigned k = 0; k < OVERLAY_GROUP; k++) {
		if (!overlay_has_bit(group->taken, k))
			continue;
		group->slot[k].flags |= SLOT_ATTEMPTED;
		c->slots += group->slot[k].block != OVERLAY_EMPTY;
	}
}

/* Takes all changed slots. What changes from now on belongs to the commit after this one. */
static void begin_commit(struct overlay *o, struct overlay_commit *c)
{
	futex_lock(&o->lock);
	*c = o->newest;
	c->number++;
	c->time = now_ns();
	c->size = o->size;
	if (c->number >= o->keep)
		c->floor = max_u64(c->floor, c->number - o->keep + 1);
	o->first_taken = o->first_changed;
	o->first_changed = 0;
	o->nchanged = 0;
	for (uint32_t next = o->first_taken; next;) {
		uint32_t g = next - 1;

		next = overlay_group(o, g)->next_changed;
		take_group(o, g, c);
	}
	o->next = c->number + 1;
	if (o->tail < c->size)
		o->tail = (c->size + OVERLAY_BLOCK - 1) / OVERLAY_BLOCK * OVERLAY_BLOCK;
	futex_unlock(&o->lock);
}

/* Makes the records of the slots from `first` on that are taken, and whose records go to the same
 * table. Returns how many. Slots of the policy cache may change at any time, so that the lock is
 * needed. */
static unsigned make_records(struct overlay *o, uint32_t first, uint64_t number,
			     struct overlay_record *records, uint32_t *table)
{
	struct overlay_group *group = overlay_group(o, first / OVERLAY_GROUP);
	unsigned k = first % OVERLAY_GROUP, n;
	uint32_t copy;

	futex_lock(&o->lock);
	copy = group->slot[k].flags & SLOT_COPY;
	*table = !copy;
	for (n = 0; k + n < OVERLAY_GROUP && overlay_has_bit(group->taken, k + n) &&
		    (group->slot[k + n].flags & SLOT_COPY) == copy; n++) {
		struct overlay_slot *s = &group->slot[k + n];

		records[n] = overlay_make_record(o, first + n, number);
		o->digest ^= s->sum ^ records[n].sum;
		s->sum = records[n].sum;
		/* Until the commit has ended, either record may count. */
		s->flags &= ~(SLOT_DOUBTS_NEXT | SLOT_DOUBTS_DURABLY * !(s->flags & SLOT_DOUBTFUL));
		s->flags |= s->flags & SLOT_DOUBTFUL ? SLOT_DOUBTS_NEXT : 0;
	}
	futex_unlock(&o->lock);
	return n;
}

/* Neighbors whose records go to the same table are written by one request. */
static int write_records(struct overlay *o, uint32_t g, uint64_t number)
{
	const struct overlay_group *group = overlay_group(o, g);
	struct overlay_record records[OVERLAY_GROUP];
	int err = 0;

	for (unsigned k = 0, n; k < OVERLAY_GROUP && !err; k += n) {
		uint32_t slot = g * OVERLAY_GROUP + k, table;

		n = 1;
		if (!overlay_has_bit(group->taken, k))
			continue;
		n = make_records(o, slot, number, records, &table);
		err = side_write(&o->file, records, n * sizeof(*records),
				 overlay_record_at(o, slot, table));
	}
	return err;
}

/* Blocks of the policy cache have no sums, so they are durable before the commit record (2). The
 * store is as long as all of its records say, some of which are newer than the beginning. */
static int flush_blocks(struct overlay *o, struct overlay_commit *c)
{
	int err = flush(o);

	futex_lock(&o->lock);
	c->size = o->size;
	futex_unlock(&o->lock);
	return err;
}

static int write_commit(struct overlay *o, struct overlay_commit *c)
{
	int err = overlay_flush_tail(o);

	for (uint32_t next = o->first_taken; next && !err;) {
		err = write_records(o, next - 1, c->number);
		next = overlay_group(o, next - 1)->next_taken;
	}
	if (!err && overlay_is_cache(o))
		err = flush_blocks(o, c);
	c->digest = o->digest;
	return err ? err : overlay_write_commit(o, c);
}

/* The records of the commit count. */
static void end_group(struct overlay *o, uint32_t g, const struct overlay_commit *c)
{
	struct overlay_group *group = overlay_group(o, g);

	for (unsigned k = 0; k < OVERLAY_GROUP; k++) {
		struct overlay_slot *s = &group->slot[k];
		uint32_t slot = g * OVERLAY_GROUP + k;

		if (!overlay_has_bit(group->taken, k))
			continue;
		s->commit = c->number;
		s->flags = (s->flags ^ SLOT_COPY) & ~SLOT_ATTEMPTED;
		s->flags |= s->flags & SLOT_DOUBTS_NEXT ? SLOT_DOUBTS_DURABLY : 0;
		if (s->block == OVERLAY_EMPTY && !overlay_has_bit(group->changed, k))
			overlay_make_old(o, slot, c->number);
	}
	memset(group->taken, 0, sizeof(group->taken));
}

static void end_commit(struct overlay *o, const struct overlay_commit *c)
{
	futex_lock(&o->lock);
	for (uint32_t next = o->first_taken; next;) {
		end_group(o, next - 1, c);
		next = overlay_group(o, next - 1)->next_taken;
	}
	o->first_taken = 0;
	o->newest = o->commits[c->number % OVERLAY_COMMITS] = *c;
	o->unsure = false;
	overlay_release(o);
	futex_unlock(&o->lock);
	/* Nothing depends on this write. */
	overlay_acknowledge(o, c->number);
}

/* A slot of the failed commit has become old meanwhile: its record will be empty. */
static void empty_slot(struct overlay *o, uint32_t slot)
{
	struct overlay_slot *s = overlay_slot(o, slot);
	uint32_t head = overlay_slot_at(o, blockmap_get(&o->index, s->block));

	overlay_slot(o, head)->older = s->older;
	s->block = OVERLAY_EMPTY;
}

/* All changes belong to the next attempt, which has the same number. */
static void abandon_commit(struct overlay *o, uint64_t number)
{
	uint32_t *list, slot;

	futex_lock(&o->lock);
	list = &o->old[o->next % OVERLAY_COMMITS];
	for (slot = *list, *list = OVERLAY_NO_SLOT; slot != OVERLAY_NO_SLOT;) {
		uint32_t next = overlay_slot(o, slot)->next;

		if (overlay_has_bit(overlay_group(o, slot / OVERLAY_GROUP)->taken, slot))
			empty_slot(o, slot);
		else
			overlay_make_old(o, slot, number);
		slot = next;
	}
	o->next = number;
	for (uint32_t next = o->first_taken; next;) {
		struct overlay_group *group = overlay_group(o, next - 1);

		for (unsigned k = 0; k < OVERLAY_GROUP; k++)
			if (overlay_has_bit(group->taken, k))
				overlay_mark_changed(o, (next - 1) * OVERLAY_GROUP + k);
		memset(group->taken, 0, sizeof(group->taken));
		next = group->next_taken;
	}
	o->first_taken = 0;
	futex_unlock(&o->lock);
}

static int attempt(struct overlay *o)
{
	struct overlay_commit c;
	int err;

	begin_commit(o, &c);
	err = write_commit(o, &c);
	if (!err)
		err = flush(o);
	if (err)
		abandon_commit(o, c.number);
	else
		end_commit(o, &c);
	return err;
}

/* Whether a commit would change anything. */
static bool is_due(struct overlay *o)
{
	bool due;

	futex_lock(&o->lock);
	due = o->nchanged > 0 || o->size != o->newest.size || o->unsure || o->head_due;
	futex_unlock(&o->lock);
	return due;
}

static int commit_locked(struct overlay *o)
{
	int err = o->broken ? -EIO : !o->unsure ? 0 :
		  o->policy->mend ? o->policy->mend(o) : write_blocks_again(o);

	if (!err && o->head_due)
		err = overlay_write_head(o);
	if (!err)
		err = attempt(o);
	/* The file has all changes still, and the next attempt finds out if it has not. */
	return err < 0 && !o->broken ? -err : err;
}

int overlay_commit(struct overlay *o)
{
	int err;

	futex_lock(&o->file_lock);
	err = commit_locked(o);
	futex_unlock(&o->file_lock);
	return err;
}

/* A commit under way may have the changes of the caller, which must wait for it. */
int overlay_commit_changes(struct overlay *o)
{
	int err;

	futex_lock(&o->file_lock);
	err = is_due(o) ? commit_locked(o) : 0;
	futex_unlock(&o->file_lock);
	return err;
}

/* ---- The header ---- */

/* After a failure, the file may have either header. The next commit writes it again first. */
int overlay_write_head(struct overlay *o)
{
	int err = header_write_both(&o->slots, &o->file, &o->head, sizeof(o->head));

	o->head_due = err != 0;
	if (err)
		note_failure(o);
	return err;
}

int overlay_forget_commits(struct overlay *o)
{
	uint64_t before;
	int err;

	futex_lock(&o->file_lock);
	before = o->head.floor;
	o->head.floor = o->newest.number;
	err = overlay_write_head(o);
	if (err)
		o->head.floor = before;
	futex_lock(&o->lock);
	if (!err)
		o->newest.floor = o->newest.number;
	overlay_release(o);
	futex_unlock(&o->lock);
	futex_unlock(&o->file_lock);
	return err;
}

/* Under the lock. The floor lies between `home` and the newest commit. */
static bool is_unused(struct overlay *o)
{
	return overlay_is_empty(o) && o->newest.number == o->head.home;
}

bool overlay_is_unused(struct overlay *o)
{
	bool is;

	futex_lock(&o->lock);
	is = is_unused(o);
	futex_unlock(&o->lock);
	return is;
}

/* The lock is held across the writes, since no slot may be taken with the old salt. */
int overlay_begin_anew(struct overlay *o)
{
	int err = 0;

	futex_lock(&o->file_lock);
	futex_lock(&o->lock);
	if (o->ngroups > RETAINED_GROUPS && is_unused(o)) {
		o->head.salt = random_id();
		o->head.base = o->head.floor = o->newest.number;
		o->acked = o->newest.number;
		o->head.base_size = o->newest.size;
		o->head.home_slots = o->newest.slots = o->newest.digest = o->digest = 0;
		memset(o->commits, 0, sizeof(o->commits));
		overlay_forget_groups(o);
		o->released = o->newest.number;
		err = header_write_both(&o->slots, &o->file, &o->head, sizeof(o->head));
		o->head_due = err != 0;
		o->unsure |= err != 0;
		if (!err)
			side_resize(&o->file, overlay_record_at(o, 0, 0));
	}
	futex_unlock(&o->lock);
	futex_unlock(&o->file_lock);
	return err;
}
