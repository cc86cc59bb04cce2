/* SPDX-License-Identifier: BSD-3-Clause */
/* The index of cache+: see cache_index.h. */
#include "cache_index.h"

#include "common/memory_calls.h"

#include <errno.h>
#include <sys/mman.h>

#define GHOST_WAYS 8                   /* places that a ghost may have */
#define GHOST_TICKS 4096               /* in which the age of one is counted, until it is none any more */

/* ---- Hashes ---- */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93u;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

static uint32_t *bucket_of(const struct cache_index *ix, uint64_t key)
{
	return &ix->bucket[mix(key) & (ix->buckets - 1)];
}

static void hash_in(struct cache_index *ix, uint32_t s)
{
	uint32_t *bucket = bucket_of(ix, ix->slot[s].key);

	ix->slot[s].chain = *bucket;
	*bucket = s;
}

static void hash_out(struct cache_index *ix, uint32_t s)
{
	uint32_t *at = bucket_of(ix, ix->slot[s].key);

	while (*at != s)
		at = &ix->slot[*at].chain;
	*at = ix->slot[s].chain;
}

uint32_t cache_find(const struct cache_index *ix, uint64_t block, bool dirty)
{
	uint64_t key = block << 1 | dirty;
	uint32_t s = *bucket_of(ix, key);

	while (s != CACHE_NO_SLOT && ix->slot[s].key != key)
		s = ix->slot[s].chain;
	return s;
}

/* ---- Lists ---- */

static void list_in(struct cache_index *ix, uint32_t s, enum cache_list list)
{
	struct cache_queue *q = &ix->list[list];
	struct cache_slot *slot = &ix->slot[s];

	slot->list = list;
	slot->next = CACHE_NO_SLOT;
	slot->prev = q->last;
	if (q->last == CACHE_NO_SLOT)
		q->first = s;
	else
		ix->slot[q->last].next = s;
	q->last = s;
	q->count++;
}

static void list_out(struct cache_index *ix, uint32_t s)
{
	struct cache_slot *slot = &ix->slot[s];
	struct cache_queue *q = &ix->list[slot->list];

	if (slot->prev == CACHE_NO_SLOT)
		q->first = slot->next;
	else
		ix->slot[slot->prev].next = slot->next;
	if (slot->next == CACHE_NO_SLOT)
		q->last = slot->prev;
	else
		ix->slot[slot->next].prev = slot->prev;
	q->count--;
	slot->list = CACHE_PRIVATE;
}

static void move(struct cache_index *ix, uint32_t s, enum cache_list list)
{
	list_out(ix, s);
	list_in(ix, s, list);
}

/* ---- Ghosts: of each, half its hash and when it came, in one of the few places that its hash allows ---- */

static uint32_t *ghost_places(const struct cache_index *ix, uint64_t hash)
{
	return &ix->ghost[(hash >> 16) % (ix->ghosts / GHOST_WAYS) * GHOST_WAYS];
}

static uint16_t ghost_tick(const struct cache_index *ix)
{
	return (uint16_t)(ix->ghost_clock * GHOST_TICKS / ix->ghosts);
}

static void ghost_add(struct cache_index *ix, uint64_t block)
{
	uint64_t hash = mix(block);
	uint32_t *places = ghost_places(ix, hash), *oldest = places;
	uint16_t now = ghost_tick(ix);

	for (uint32_t *p = places; p < places + GHOST_WAYS; p++)
		if (!*p || (*oldest && (uint16_t)(now - *p) > (uint16_t)(now - *oldest)))
			oldest = p;
	/* All zeros is none. */
	*oldest = ((uint32_t)(uint16_t)hash | 1) << 16 | now;
	ix->ghost_clock++;
}

static bool ghost_take(struct cache_index *ix, uint64_t block)
{
	uint64_t hash = mix(block);
	uint32_t *places = ghost_places(ix, hash);
	uint16_t now = ghost_tick(ix);

	for (uint32_t *p = places; p < places + GHOST_WAYS; p++) {
		bool young = (uint16_t)(now - *p) < GHOST_TICKS;

		if (!*p || *p >> 16 != ((uint16_t)hash | 1))
			continue;
		*p = 0;
		return young;
	}
	return false;
}

/* ---- Slots ---- */

static bool bit(const struct cache_index *ix, uint32_t s)
{
	return (ix->changed[s / 64] | ix->taken[s / 64]) >> s % 64 & 1;
}

void cache_mark_changed(struct cache_index *ix, uint32_t s)
{
	ix->changed[s / 64] |= (uint64_t)1 << s % 64;
}

void cache_set_valid(struct cache_index *ix, uint32_t s, cache_mask valid)
{
	ix->slot[s].valid[0] = (uint64_t)valid;
	ix->slot[s].valid[1] = (uint64_t)(valid >> 64);
	cache_mark_changed(ix, s);
}

uint32_t cache_take(struct cache_index *ix, uint64_t block, bool dirty)
{
	uint32_t before = cache_find(ix, block - 1, dirty), s = ix->list[CACHE_FREE].first;

	if (before < ix->slots - 1 && ix->slot[before + 1].list == CACHE_FREE)
		s = before + 1;
	if (s != CACHE_NO_SLOT)
		list_out(ix, s);
	return s;
}

void cache_untake(struct cache_index *ix, uint32_t s)
{
	list_in(ix, s, CACHE_FREE);
}

static enum cache_list queue_for(struct cache_index *ix, uint64_t block)
{
	return ghost_take(ix, block) ? CACHE_MAIN : CACHE_SMALL;
}

void cache_put(struct cache_index *ix, uint32_t s, uint64_t block, bool dirty, cache_mask valid, uint32_t now)
{
	struct cache_slot *slot = &ix->slot[s];

	slot->key = block << 1 | dirty;
	slot->since = now;
	slot->freq = slot->flying = slot->rewritten = 0;
	cache_set_valid(ix, s, valid);
	hash_in(ix, s);
	list_in(ix, s, dirty ? CACHE_DIRTY : queue_for(ix, block));
}

void cache_hit(struct cache_index *ix, uint32_t s)
{
	if (ix->slot[s].freq < CACHE_FREQ_MAX)
		ix->slot[s].freq++;
}

void cache_drop(struct cache_index *ix, uint32_t s)
{
	hash_out(ix, s);
	ix->slot[s].key = CACHE_NO_KEY;
	cache_set_valid(ix, s, 0);
	move(ix, s, CACHE_FREEING);
}

void cache_stay_dirty(struct cache_index *ix, uint32_t s, uint32_t now)
{
	ix->slot[s].since = now;
	ix->slot[s].flying = 0;
	move(ix, s, CACHE_DIRTY);
}

void cache_make_clean(struct cache_index *ix, uint32_t s)
{
	struct cache_slot *slot = &ix->slot[s];

	hash_out(ix, s);
	slot->key--;
	slot->freq = slot->flying = slot->rewritten = 0;
	hash_in(ix, s);
	move(ix, s, queue_for(ix, slot->key >> 1));
	cache_mark_changed(ix, s);
}

void cache_pin(struct cache_index *ix, uint32_t s)
{
	ix->slot[s].pins++;
}

void cache_settle(struct cache_index *ix, uint32_t s)
{
	if (ix->slot[s].list == CACHE_FREEING && !ix->slot[s].pins && !bit(ix, s))
		move(ix, s, CACHE_FREE);
}

void cache_shed(struct cache_index *ix, uint32_t s)
{
	struct cache_slot *slot = &ix->slot[s];

	if (slot->pins || !cache_is_clean(ix, s) || cache_valid(slot))
		return;
	if (slot->list == CACHE_MAIN)
		ghost_add(ix, slot->key >> 1);
	cache_drop(ix, s);
}

void cache_unpin(struct cache_index *ix, uint32_t s)
{
	ix->slot[s].pins--;
	cache_shed(ix, s);
	cache_settle(ix, s);
}

/* ---- Eviction ---- */

static bool evict_main(struct cache_index *ix)
{
	/* Each goes round as often as it was read, at most. */
	for (uint64_t n = (uint64_t)ix->list[CACHE_MAIN].count * (CACHE_FREQ_MAX + 1); n > 0; n--) {
		uint32_t s = ix->list[CACHE_MAIN].first;

		if (!ix->slot[s].freq && !ix->slot[s].pins) {
			cache_drop(ix, s);
			return true;
		}
		ix->slot[s].freq -= ix->slot[s].freq > 0;
		move(ix, s, CACHE_MAIN);
	}
	return false;
}

static bool evict_small(struct cache_index *ix)
{
	for (uint32_t n = ix->list[CACHE_SMALL].count; n > 0; n--) {
		uint32_t s = ix->list[CACHE_SMALL].first;

		if (ix->slot[s].freq > 1) {
			ix->slot[s].freq = 0;
			move(ix, s, CACHE_MAIN);
		} else if (ix->slot[s].pins) {
			move(ix, s, CACHE_SMALL);
		} else {
			ghost_add(ix, ix->slot[s].key >> 1);
			cache_drop(ix, s);
			return true;
		}
	}
	return false;
}

bool cache_evict(struct cache_index *ix)
{
	uint32_t small = ix->list[CACHE_SMALL].count, clean = small + ix->list[CACHE_MAIN].count;

	if (small > 0 && small >= clean / 10 && evict_small(ix))
		return true;
	return evict_main(ix) || evict_small(ix);
}

/* ---- Beginning and end ---- */

void cache_restore(struct cache_index *ix, uint32_t s, uint64_t key, const uint64_t valid[2], uint32_t now)
{
	uint64_t before = ix->changed[s / 64];

	list_out(ix, s);
	cache_put(ix, s, key >> 1, key & 1, (cache_mask)valid[1] << 64 | valid[0], now);
	ix->changed[s / 64] = before;
}

static size_t aligned(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

int cache_index_init(struct cache_index *ix, uint32_t slots)
{
	size_t bits = aligned((slots + 63) / 64 * sizeof(uint64_t)), bytes;
	char *at;

	ix->slots = slots;
	for (ix->buckets = 1; ix->buckets <= slots / 2; ix->buckets *= 2)
		;
	ix->ghosts = (slots - slots / 10 + GHOST_WAYS - 1) / GHOST_WAYS * GHOST_WAYS;
	bytes = aligned(slots * sizeof(struct cache_slot)) + aligned(ix->buckets * sizeof(uint32_t)) +
		aligned(ix->ghosts * sizeof(uint32_t)) + 2 * bits;
	ix->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ix->memory == MAP_FAILED) {
		ix->memory = NULL;
		return -ENOMEM;
	}
	ix->bytes = bytes;
	at = ix->memory;
	ix->slot = (struct cache_slot *)at;
	at += aligned(slots * sizeof(struct cache_slot));
	ix->bucket = (uint32_t *)at;
	at += aligned(ix->buckets * sizeof(uint32_t));
	ix->ghost = (uint32_t *)at;
	at += aligned(ix->ghosts * sizeof(uint32_t));
	ix->changed = (_Atomic uint64_t *)at;
	ix->taken = (uint64_t *)(at + bits);
	for (uint32_t b = 0; b < ix->buckets; b++)
		ix->bucket[b] = CACHE_NO_SLOT;
	for (int l = 0; l < CACHE_LISTS; l++)
		ix->list[l] = (struct cache_queue){ CACHE_NO_SLOT, CACHE_NO_SLOT, 0 };
	for (uint32_t s = 0; s < slots; s++) {
		ix->slot[s].key = CACHE_NO_KEY;
		list_in(ix, s, CACHE_FREE);
	}
	return 0;
}

void cache_index_end(struct cache_index *ix)
{
	if (ix->memory)
		raw_munmap(ix->memory, ix->bytes);
	ix->memory = NULL;
}
