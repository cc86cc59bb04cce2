/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guests: handles that read a near file while another handle, its host, has the lock and fills it.
 * Both only read the far store, and the far store shows the same bytes to both, because its
 * identity is that of the header.
 *
 * A guest writes nothing and waits for nobody. Its index has the slots whose newest record says
 * that they are clean. It reads the bytes of a slot first, and then the records of the slot: if the
 * newest one is still the same, the bytes are those of the block. For the host writes a part of a
 * clean slot only if no record that counts, or may count, says that the slot has it (order 11 in
 * overlay.h), and a new record of a slot is in the file before its bytes are written for another
 * block. A record that is just being written is not whole; then the bytes have not been written
 * over yet. All this holds when a process is killed at any time. The page cache shows all writes to
 * all processes of the machine at once, so the header names the machine of the host.
 *
 * A later host may write the far store. It changes the header before (order 14). From then on, the
 * guest looks for no more slots; those that it has are of the far store as it was.
 */
#include "cache.h"

#include "../keys.h"
#include "common/process.h"

#include <errno.h>
#include <string.h>

#define LOOK_MS 20              /* time from one look at the slots to the next one */
#define LOOK_SLOTS 16384        /* slots that are looked at together */

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t machine_of(const struct cache *c)
{
	uint64_t machine;

	memcpy(&machine, c->o.head.data, sizeof(machine));
	return machine;
}

int cache_note_machine(struct cache *c)
{
	uint64_t machine = process_machine();

	if (!cache_may_share(c) || machine_of(c) == machine)
		return 0;
	memcpy(c->o.head.data, &machine, sizeof(machine));
	return overlay_write_head(&c->o);
}

/* ---- Looking at slots ---- */

static bool is_usable(const struct overlay_record *r)
{
	return r->block != OVERLAY_EMPTY && r->valid[0] &&
	       !(r->flags & (OVERLAY_DIRTY | OVERLAY_DOUBTFUL));
}

/* Under the lock. */
static void remove_slot(struct cache *c, uint32_t s)
{
	if (c->index.slots[s].key != CACHE_NO_KEY)
		cache_unlist(&c->index, s);
	cache_slot(c, s)->valid = 0;
	cache_slot(c, s)->sum = 0;
}

/* Puts a slot into the index as its record says. Returns whether the index has changed. */
static bool take_record(struct cache *c, uint32_t s, const struct overlay_record *r)
{
	struct overlay_slot *slot = cache_slot(c, s);
	uint32_t other;

	if (slot->sum == r->sum && slot->valid)
		return false;
	remove_slot(c, s);
	if (!is_usable(r))
		return false;
	/* The host may have moved the block. */
	other = cache_find(&c->index, r->block, false);
	if (other != CACHE_NO_SLOT)
		remove_slot(c, other);
	slot->block = r->block;
	slot->valid = r->valid[0];
	slot->sum = r->sum;
	slot->flags = SLOT_CLEAN;
	cache_add(&c->index, s, r->block, false, 0);
	return true;
}

/* Looks at up to n slots. *has_dirty: whether a slot is dirty. */
static bool look_at(struct cache *c, uint32_t n, bool *has_dirty)
{
	struct overlay_record records[OVERLAY_NEWEST_MAX];
	bool has_changed = false;

	while (n > 0) {
		uint32_t first = c->guest_next % c->index.nslots;
		unsigned some = (unsigned)min_u64(min_u64(n, OVERLAY_NEWEST_MAX),
						  min_u64(c->index.nslots - first,
							  OVERLAY_GROUP - first % OVERLAY_GROUP));
		bool ok = overlay_read_newest(&c->o, first, some, records) == 0 &&
			  overlay_has_head(&c->o);

		if (!ok) {
			c->guest_is_out = true;
			return has_changed;
		}
		futex_lock(&c->o.lock);
		for (unsigned k = 0; k < some; k++) {
			has_changed |= take_record(c, first + k, &records[k]);
			*has_dirty |= records[k].block != OVERLAY_EMPTY &&
				      records[k].flags & OVERLAY_DIRTY;
		}
		futex_unlock(&c->o.lock);
		c->guest_next = first + some;
		n -= some;
	}
	return has_changed;
}

bool cache_guest_look(struct cache *c)
{
	uint64_t before = c->guest_time, now = now_ms();
	bool has_changed = false, has_dirty = false;

	if (!c->is_guest || c->guest_is_out || now - before < LOOK_MS ||
	    !atomic_compare_exchange_strong(&c->guest_time, &before, now))
		return false;
	if (!futex_trylock(&c->homing))
		return false;
	has_changed = look_at(c, (uint32_t)min_u64(LOOK_SLOTS, c->index.nslots), &has_dirty);
	futex_unlock(&c->homing);
	return has_changed;
}

bool cache_guest_check(struct cache *c, uint32_t s, uint64_t sum, bool is_read)
{
	struct overlay_record now[OVERLAY_NEWEST_MAX];
	bool is_same = is_read && overlay_read_newest(&c->o, s, 1, now) == 0 &&
		       now[0].block != OVERLAY_EMPTY && now[0].sum == sum;

	if (is_same)
		return true;
	futex_lock(&c->o.lock);
	if (cache_slot(c, s)->sum == sum)
		remove_slot(c, s);
	futex_unlock(&c->o.lock);
	return false;
}

/* ---- Opening ---- */

/* geom->why has the message of the attempt to lock the file. */
int cache_guest_open(struct cache *c, const char *path, struct ummap_geom *geom)
{
	struct ummap_geom own = { .size = 0 };

	memcpy(own.id, geom->id, sizeof(own.id));
	if (overlay_open_head(&c->o, path, &own) != 0)
		return -EAGAIN;
	if (machine_of(c) != process_machine() || c->o.head.flags & OVERLAY_TOUCHED) {
		overlay_close(&c->o);
		return -EAGAIN;
	}
	*geom->why = '\0';
	c->is_guest = true;
	return 0;
}

int cache_guest_start(struct cache *c, struct ummap_geom *geom)
{
	uint32_t nslots = (uint32_t)c->o.head.slots_max;
	bool has_dirty = false;
	int err = cache_index_init(&c->index, nslots);

	c->shift = (unsigned)__builtin_ctzll(c->o.head.block);
	if (!err)
		err = overlay_add_groups(&c->o, (nslots - 1) / OVERLAY_GROUP + 1);
	if (err)
		return err;
	look_at(c, nslots, &has_dirty);
	if (has_dirty)
		return keys_refuse(geom, EBUSY, "cannot share '%.140s': it has changes that the "
				   "far store lacks. Try again when its mapping has ended",
				   c->o.file.path);
	return 0;
}
