/* SPDX-License-Identifier: BSD-3-Clause */
/* The index of cache+: see cache_index.h. */
#include "cache_index.h"

#include "common/memory_calls.h"

#include <errno.h>
#include <sys/mman.h>

#define GHOST_WAYS 8                   /* places that a ghost may have */
#define GHOST_TICKS 4096               /* units of a ghost's life */

/* ---- Hashes ---- */

static uint64_t mix_bits(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93u;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

static uint32_t *bucket_of(const struct cache_index *ix, uint64_t key)
{
	return &ix->buckets[mix_bits(key) & (ix->nbuckets - 1)];
}

static void insert_in_bucket(struct cache_index *ix, uint32_t s, uint64_t key)
{
	uint32_t *bucket = bucket_of(ix, key);

	ix->slots[s].key = key;
	ix->slots[s].chain = *bucket;
	*bucket = s;
}

static void remove_from_bucket(struct cache_index *ix, uint32_t s)
{
	uint32_t *at = bucket_of(ix, ix->slots[s].key);

	while (*at != s)
		at = &ix->slots[*at].chain;
	*at = ix->slots[s].chain;
	ix->slots[s].key = CACHE_NO_KEY;
}

uint32_t cache_find(const struct cache_index *ix, uint64_t block, bool dirty)
{
	uint64_t key = block << 1 | dirty;
	uint32_t s = *bucket_of(ix, key);

	while (s != CACHE_NO_SLOT && ix->slots[s].key != key)
		s = ix->slots[s].chain;
	return s;
}

/* ---- Lists ---- */

static void append_to_list(struct cache_index *ix, uint32_t s, enum cache_list list)
{
	struct cache_queue *q = &ix->lists[list];
	struct cache_slot *slot = &ix->slots[s];

	slot->list = list;
	slot->next = CACHE_NO_SLOT;
	slot->prev = q->last;
	if (q->last == CACHE_NO_SLOT)
		q->first = s;
	else
		ix->slots[q->last].next = s;
	q->last = s;
	q->count++;
}

static void remove_from_list(struct cache_index *ix, uint32_t s)
{
	struct cache_slot *slot = &ix->slots[s];
	struct cache_queue *q = &ix->lists[slot->list];

	if (slot->prev == CACHE_NO_SLOT)
		q->first = slot->next;
	else
		ix->slots[slot->prev].next = slot->next;
	if (slot->next == CACHE_NO_SLOT)
		q->last = slot->prev;
	else
		ix->slots[slot->next].prev = slot->prev;
	q->count--;
}

static void move_slot(struct cache_index *ix, uint32_t s, enum cache_list list)
{
	remove_from_list(ix, s);
	append_to_list(ix, s, list);
}

/* ---- Ghosts: half of a hash and a time, in one of the few places that the hash allows ---- */

static uint32_t *ghost_places(const struct cache_index *ix, uint64_t hash)
{
	return &ix->ghosts[(hash >> 16) % (ix->nghosts / GHOST_WAYS) * GHOST_WAYS];
}

static uint16_t ghost_tick(const struct cache_index *ix)
{
	return (uint16_t)(ix->ghost_clock * GHOST_TICKS / ix->nghosts);
}

static void add_ghost(struct cache_index *ix, uint64_t block)
{
	uint64_t hash = mix_bits(block);
	uint32_t *places = ghost_places(ix, hash), *oldest = places;
	uint16_t now = ghost_tick(ix);

	for (uint32_t *p = places; p < places + GHOST_WAYS; p++)
		if (!*p || (*oldest && (uint16_t)(now - *p) > (uint16_t)(now - *oldest)))
			oldest = p;
	/* A place that is 0 is free. */
	*oldest = ((uint32_t)(uint16_t)hash | 1) << 16 | now;
	ix->ghost_clock++;
}

/* Removes a ghost. Returns whether the block has left recently. */
static bool take_ghost(struct cache_index *ix, uint64_t block)
{
	uint64_t hash = mix_bits(block);
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

static void append_new(struct cache_index *ix, uint32_t s)
{
	struct cache_slot *slot = &ix->slots[s];
	bool dirty = slot->key & 1;

	slot->freq = slot->flying = slot->rewritten = 0;
	append_to_list(ix, s, dirty ? CACHE_DIRTY : take_ghost(ix, slot->key >> 1) ? CACHE_MAIN :
		CACHE_SMALL);
}

void cache_add(struct cache_index *ix, uint32_t s, uint64_t block, bool dirty, uint32_t now)
{
	ix->slots[s].since = now;
	ix->slots[s].writers = 0;
	insert_in_bucket(ix, s, block << 1 | dirty);
	append_new(ix, s);
}

static void remove_slot(struct cache_index *ix, uint32_t s)
{
	remove_from_bucket(ix, s);
	remove_from_list(ix, s);
}

void cache_hit(struct cache_index *ix, uint32_t s)
{
	if (ix->slots[s].freq < CACHE_MAX_FREQ)
		ix->slots[s].freq++;
}

void cache_unlist(struct cache_index *ix, uint32_t s)
{
	if (ix->slots[s].list == CACHE_MAIN)
		add_ghost(ix, ix->slots[s].key >> 1);
	remove_slot(ix, s);
}

void cache_stay_dirty(struct cache_index *ix, uint32_t s, uint32_t now)
{
	ix->slots[s].since = now;
	ix->slots[s].flying = 0;
	move_slot(ix, s, CACHE_DIRTY);
}

void cache_make_clean(struct cache_index *ix, uint32_t s)
{
	uint64_t block = ix->slots[s].key >> 1;

	remove_slot(ix, s);
	insert_in_bucket(ix, s, block << 1);
	append_new(ix, s);
}

/* ---- Eviction ---- */

static uint32_t evict_main(struct cache_index *ix)
{
	uint32_t s;

	while ((s = ix->lists[CACHE_MAIN].first) != CACHE_NO_SLOT && ix->slots[s].freq) {
		ix->slots[s].freq--;
		move_slot(ix, s, CACHE_MAIN);
	}
	if (s != CACHE_NO_SLOT)
		remove_slot(ix, s);
	return s;
}

static uint32_t evict_small(struct cache_index *ix)
{
	uint32_t s;

	while ((s = ix->lists[CACHE_SMALL].first) != CACHE_NO_SLOT && ix->slots[s].freq > 1) {
		ix->slots[s].freq = 0;
		move_slot(ix, s, CACHE_MAIN);
	}
	if (s == CACHE_NO_SLOT)
		return s;
	add_ghost(ix, ix->slots[s].key >> 1);
	remove_slot(ix, s);
	return s;
}

uint32_t cache_evict(struct cache_index *ix)
{
	uint32_t small = ix->lists[CACHE_SMALL].count, s = CACHE_NO_SLOT;

	if (small > 0 && small >= (small + ix->lists[CACHE_MAIN].count) / 10)
		s = evict_small(ix);
	if (s == CACHE_NO_SLOT)
		s = evict_main(ix);
	return s == CACHE_NO_SLOT ? evict_small(ix) : s;
}

/* ---- Beginning and end ---- */

static size_t align_size(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

int cache_index_init(struct cache_index *ix, uint32_t nslots)
{
	size_t slots = align_size(nslots * sizeof(struct cache_slot)), buckets;
	char *at;

	*ix = (struct cache_index){ .nslots = nslots, .nbuckets = 1 };
	while (ix->nbuckets <= nslots / 2)
		ix->nbuckets *= 2;
	ix->nghosts = (nslots - nslots / 10 + GHOST_WAYS - 1) / GHOST_WAYS * GHOST_WAYS;
	buckets = align_size(ix->nbuckets * sizeof(uint32_t));
	ix->bytes = slots + buckets + ix->nghosts * sizeof(uint32_t);
	at = mmap(NULL, ix->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	ix->memory = at;
	ix->slots = (struct cache_slot *)(void *)at;
	ix->buckets = (uint32_t *)(void *)(at + slots);
	ix->ghosts = (uint32_t *)(void *)(at + slots + buckets);
	for (uint32_t b = 0; b < ix->nbuckets; b++)
		ix->buckets[b] = CACHE_NO_SLOT;
	for (int l = 0; l < CACHE_LISTS; l++)
		ix->lists[l] = (struct cache_queue){ CACHE_NO_SLOT, CACHE_NO_SLOT, 0 };
	for (uint32_t s = 0; s < nslots; s++)
		ix->slots[s].key = CACHE_NO_KEY;
	return 0;
}

void cache_index_end(struct cache_index *ix)
{
	if (ix->memory)
		raw_munmap(ix->memory, ix->bytes);
	ix->memory = NULL;
}
