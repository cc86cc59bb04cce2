/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The slots of an overlay in memory: which are free, which have changed, and which wait until
 * commits or readers need them no more. overlay.h has the states of a slot. The functions run
 * under the lock, and allocate only by mmap(2).
 */
#include "overlay.h"

#include "common/memory_calls.h"
#include "common/minmax.h"

#include <errno.h>
#include <sys/mman.h>

#define MEMORY_BYTES ((size_t)256 << 10)  /* of a mapping with groups */

/* A mapping that groups and tables are cut out of. */
struct overlay_memory {
	struct overlay_memory *next;
	size_t used; /* bytes */
};

static void *allocate(struct overlay *o, size_t bytes)
{
	struct overlay_memory *m = o->memory;
	char *at;

	bytes = (bytes + 63) & ~(size_t)63;
	if (!m || m->used + bytes > MEMORY_BYTES) {
		m = raw_mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (m == MAP_FAILED)
			return NULL;
		*m = (struct overlay_memory){ .next = o->memory, .used = 64 };
		o->memory = m;
	}
	at = (char *)m + m->used;
	m->used += bytes;
	return at;
}

static int add_group(struct overlay *o)
{
	uint32_t g = o->ngroups;
	struct overlay_group **table, *group;

	if (g == OVERLAY_GROUPS_MAX)
		return -ENOSPC;
	if (!o->groups)
		o->groups = allocate(o, OVERLAY_TABLE * sizeof(*o->groups));
	if (!o->groups)
		return -ENOMEM;
	table = o->groups[g / OVERLAY_TABLE];
	if (!table)
		table = o->groups[g / OVERLAY_TABLE] = allocate(o, OVERLAY_TABLE * sizeof(*table));
	group = table ? allocate(o, sizeof(*group)) : NULL;
	if (!group)
		return -ENOMEM;
	for (int i = 0; i < OVERLAY_GROUP; i++)
		group->slot[i] = (struct overlay_slot){
			.block = OVERLAY_EMPTY, .commit = OVERLAY_NEVER,
			.older = OVERLAY_NO_SLOT, .next = OVERLAY_NO_SLOT,
		};
	table[g % OVERLAY_TABLE] = group;
	o->ngroups++;
	return 0;
}

int overlay_add_groups(struct overlay *o, uint32_t ngroups)
{
	int err = 0;

	while (o->ngroups < ngroups && !err)
		err = add_group(o);
	return err;
}

void overlay_forget_groups(struct overlay *o)
{
	while (o->memory) {
		struct overlay_memory *m = o->memory;

		o->memory = m->next;
		raw_munmap(m, MEMORY_BYTES);
	}
	o->groups = NULL;
	o->ngroups = o->cursor = 0;
	o->used = o->nchanged = 0;
	o->first_changed = o->first_taken = 0;
	o->released = 0;
	o->hold = OVERLAY_NEVER;
	o->held_old = o->retired[0] = o->retired[1] = o->cuts = OVERLAY_NO_SLOT;
	o->store_end = OVERLAY_NEVER;
	for (int i = 0; i < OVERLAY_COMMITS; i++)
		o->old[i] = OVERLAY_NO_SLOT;
}

void overlay_forget_slots(struct overlay *o)
{
	blockmap_free(&o->index);
	overlay_forget_groups(o);
}

/* ---- Lists of slots, and bit sets of groups ---- */

static void push(struct overlay *o, uint32_t *list, uint32_t slot)
{
	overlay_slot(o, slot)->next = *list;
	*list = slot;
}

static uint32_t pop(struct overlay *o, uint32_t *list)
{
	uint32_t slot = *list;

	if (slot != OVERLAY_NO_SLOT)
		*list = overlay_slot(o, slot)->next;
	return slot;
}

static void clear_bit(uint64_t *set, uint32_t slot)
{
	set[slot % OVERLAY_GROUP / 64] &= ~((uint64_t)1 << slot % 64);
}

static struct overlay_group *group_of(const struct overlay *o, uint32_t slot)
{
	return overlay_group(o, slot / OVERLAY_GROUP);
}

/* ---- Readers and retired slots ---- */

/* A reader that has read the generation before it changed would count in the wrong one. */
unsigned overlay_enter(struct overlay *o)
{
	for (;;) {
		unsigned generation = o->generation;

		o->readers[generation]++;
		if (generation == o->generation)
			return generation;
		o->readers[generation]--;
	}
}

void overlay_leave(struct overlay *o, unsigned ticket)
{
	o->readers[ticket]--;
}

void overlay_retire(struct overlay *o, uint32_t slot)
{
	push(o, &o->retired[o->generation], slot);
}

static void make_free(struct overlay *o, uint32_t slot)
{
	struct overlay_slot *s = overlay_slot(o, slot);

	s->block = OVERLAY_EMPTY;
	s->commit = OVERLAY_NEVER;
	s->older = OVERLAY_NO_SLOT;
	s->valid = 0;
	s->flags &= SLOT_COPY;
	clear_bit(group_of(o, slot)->used, slot);
	o->used--;
}

/* Makes retired slots free, if their readers have left. Twice, because without readers both
 * generations can be freed. */
void overlay_reclaim(struct overlay *o)
{
	for (int i = 0; i < 2; i++) {
		unsigned other = !o->generation;
		uint32_t slot;

		if (o->readers[other] > 0)
			return;
		while ((slot = pop(o, &o->retired[other])) != OVERLAY_NO_SLOT)
			make_free(o, slot);
		o->generation = other;
	}
}

bool overlay_is_empty(struct overlay *o)
{
	overlay_reclaim(o);
	return o->used == 0;
}

/* ---- Taking slots ---- */

/* The first free slot of a group from `from` on; OVERLAY_GROUP: there is none. */
static unsigned find_free(const struct overlay_group *group, unsigned from)
{
	while (from < OVERLAY_GROUP) {
		uint64_t free = ~group->used[from / 64] >> from % 64;

		if (free)
			return from + (unsigned)__builtin_ctzll(free);
		from = (from / 64 + 1) * 64;
	}
	return OVERLAY_GROUP;
}

/* Finds a free slot from the cursor on, and then from the beginning. */
static bool find_slot(const struct overlay *o, uint32_t *slot)
{
	uint32_t first = o->cursor / OVERLAY_GROUP;

	for (uint32_t i = 0; i <= o->ngroups; i++) {
		uint32_t g = (first + i) % o->ngroups;
		unsigned from = i == 0 ? o->cursor % OVERLAY_GROUP : 0,
			 k = find_free(overlay_group(o, g), from);

		*slot = g * OVERLAY_GROUP + k;
		if (k < OVERLAY_GROUP && *slot < o->limit)
			return true;
	}
	return false;
}

static int find_or_add_slot(struct overlay *o, uint32_t *slot)
{
	int err;

	if (overlay_is_empty(o) || o->cursor >= o->ngroups * OVERLAY_GROUP)
		o->cursor = 0;
	if (o->used < (uint64_t)o->ngroups * OVERLAY_GROUP && find_slot(o, slot))
		return 0;
	*slot = o->ngroups * OVERLAY_GROUP;
	if (*slot >= o->limit)
		return -ENOSPC;
	err = add_group(o);
	return err;
}

int overlay_take(struct overlay *o, unsigned n, uint32_t *first)
{
	struct overlay_group *group;
	unsigned taken = 0;
	int err = find_or_add_slot(o, first);

	if (err)
		return err;
	group = group_of(o, *first);
	n = (unsigned)min_u64(n, min_u64(OVERLAY_GROUP - *first % OVERLAY_GROUP,
					 o->limit - *first));
	while (taken < n && !overlay_has_bit(group->used, *first + taken))
		overlay_set_bit(group->used, *first + taken++);
	o->used += taken;
	o->cursor = *first + taken;
	return (int)taken;
}

void overlay_give_back(struct overlay *o, uint32_t first, unsigned n)
{
	while (n-- > 0)
		make_free(o, first + n);
}

/* ---- Contents of slots ---- */

void overlay_mark_changed(struct overlay *o, uint32_t slot)
{
	struct overlay_group *group = group_of(o, slot);

	o->nchanged += !overlay_has_bit(group->changed, slot);
	overlay_set_bit(group->changed, slot);
	if (group->queued)
		return;
	group->queued = true;
	group->next_changed = o->first_changed;
	o->first_changed = slot / OVERLAY_GROUP + 1;
}

void overlay_make_old(struct overlay *o, uint32_t slot, uint64_t number)
{
	push(o, &o->old[number % OVERLAY_COMMITS], slot);
}

/* The slot had the newest contents of a block, and has them no more. Returns the slot with the
 * contents of the newest commit, or of the one under way. */
static uint32_t supersede(struct overlay *o, uint32_t slot)
{
	struct overlay_slot *s = overlay_slot(o, slot);
	struct overlay_group *group = group_of(o, slot);
	uint32_t older = s->older;

	if (!overlay_has_bit(group->changed, slot)) {
		overlay_make_old(o, slot, o->next);
		return slot;
	}
	if (s->flags & SLOT_ATTEMPTED) {
		s->block = OVERLAY_EMPTY;
		return older;
	}
	clear_bit(group->changed, slot);
	o->nchanged--;
	overlay_retire(o, slot);
	return older;
}

void overlay_empty(struct overlay *o, uint32_t slot)
{
	struct overlay_slot *s = overlay_slot(o, slot);
	struct overlay_group *group = group_of(o, slot);

	s->block = OVERLAY_EMPTY;
	s->valid = 0;
	s->flags &= ~(SLOT_CLEAN | SLOT_DOUBTFUL | SLOT_SUMMED);
	if (s->commit != OVERLAY_NEVER || s->flags & SLOT_ATTEMPTED) {
		overlay_mark_changed(o, slot);
		return;
	}
	o->nchanged -= overlay_has_bit(group->changed, slot);
	clear_bit(group->changed, slot);
	overlay_retire(o, slot);
}

void overlay_publish(struct overlay *o, uint32_t slot, uint64_t block, uint64_t data)
{
	struct overlay_slot *s = overlay_slot(o, slot);
	uint64_t place = blockmap_get(&o->index, block);

	s->block = block;
	s->data = data;
	/* Slots are retired when the index leads to them no more. */
	blockmap_set(&o->index, block, overlay_block_at(o, slot));
	s->older = place ? supersede(o, overlay_slot_at(o, place)) : OVERLAY_NO_SLOT;
	overlay_mark_changed(o, slot);
}

/* ---- Cuts ---- */

/* Supersedes the cuts from `block` on, and leaves out those that are free. */
static void supersede_cuts(struct overlay *o, uint64_t block)
{
	uint32_t slot = o->cuts;

	o->cuts = OVERLAY_NO_SLOT;
	while (slot != OVERLAY_NO_SLOT) {
		uint32_t next = overlay_slot(o, slot)->next;

		if (overlay_slot(o, slot)->block < block)
			push(o, &o->cuts, slot);
		else if (overlay_slot(o, slot)->block != OVERLAY_EMPTY)
			supersede(o, slot);
		slot = next;
	}
}

static void add_cut(struct overlay *o, uint32_t slot)
{
	push(o, &o->cuts, slot);
	o->store_end = min_u64(o->store_end, overlay_slot(o, slot)->block * OVERLAY_BLOCK);
}

void overlay_publish_cut(struct overlay *o, uint32_t slot, uint64_t block)
{
	struct overlay_slot *s = overlay_slot(o, slot);
	uint64_t place;

	supersede_cuts(o, block);
	s->block = block;
	s->flags |= SLOT_CUT;
	/* Before the index changes: readers must not find bytes of the store. */
	add_cut(o, slot);
	for (; blockmap_next(&o->index, &block, &place); block++) {
		blockmap_drop(&o->index, block, place);
		supersede(o, overlay_slot_at(o, place));
	}
	overlay_mark_changed(o, slot);
}

void overlay_note_cuts(struct overlay *o)
{
	for (uint32_t slot = 0; slot < o->ngroups * OVERLAY_GROUP; slot++)
		if (overlay_slot(o, slot)->flags & SLOT_CUT)
			add_cut(o, slot);
}

void overlay_forget_free_cuts(struct overlay *o)
{
	supersede_cuts(o, OVERLAY_EMPTY);
}

bool overlay_is_cut(const struct overlay *o, uint64_t block, uint64_t commit)
{
	uint32_t slot = o->cuts;

	while (slot != OVERLAY_NO_SLOT && (overlay_slot(o, slot)->block > block ||
					   overlay_slot(o, slot)->commit <= commit))
		slot = overlay_slot(o, slot)->next;
	return slot != OVERLAY_NO_SLOT;
}

void overlay_release(struct overlay *o)
{
	uint32_t slot;

	while (o->released < o->newest.floor) {
		uint32_t *list = &o->old[++o->released % OVERLAY_COMMITS];

		while ((slot = pop(o, list)) != OVERLAY_NO_SLOT) {
			if (o->released > o->hold)
				push(o, &o->held_old, slot);
			else
				overlay_retire(o, slot);
		}
	}
}

void overlay_end_hold(struct overlay *o)
{
	uint32_t slot;

	o->hold = OVERLAY_NEVER;
	while ((slot = pop(o, &o->held_old)) != OVERLAY_NO_SLOT)
		overlay_retire(o, slot);
}
