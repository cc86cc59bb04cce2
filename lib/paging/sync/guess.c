/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checksum is the universal hash NH with 64-bit words and a random key: whatever the two
 * contents, two that differ have the same checksum with a probability of 2^-64. A page takes less
 * than a microsecond, and a fault several.
 */
#include "paging/sync/guess.h"

#include "common/random.h"
#include "paging/sync/sync.h"

#include <string.h>

#define KEYS 512

static uint64_t keys[KEYS];
static _Atomic uint32_t starting;

void guess_start(void)
{
	arena_has_guesses = true;
	futex_lock(&starting);
	for (unsigned k = 0; k < KEYS && !keys[k]; k++)
		keys[k] = random_id();
	futex_unlock(&starting);
}

/* The checksum of a page, which is not 0. */
static unsigned __int128 sum_page(const char *buf, size_t len)
{
	unsigned __int128 sum = 0;

	for (size_t k = 0; k < len / sizeof(uint64_t); k += 2) {
		uint64_t word[2];

		memcpy(word, buf + k * sizeof(*word), sizeof(word));
		sum += (unsigned __int128)(word[0] + keys[k]) * (word[1] + keys[k + 1]);
	}
	return sum ? sum : 1;
}

/* The checksum of the first bytes: if a store has changed it, the rest need not be read. */
static uint64_t sum_first(const char *buf)
{
	return (uint64_t)sum_page(buf, GUESS_FIRST_BYTES);
}

static bool is_unchanged(const struct mapping *map, const struct frame_guess *guess,
			 const char *buf)
{
	return guess->first_sum == sum_first(buf) && guess->sum == sum_page(buf, map->seg_size);
}

/* ---- Making segments writable ---- */

/* The number of segments directly before segment i that are dirty, up to a bound. Looks at headers
 * without their locks. */
static size_t count_dirty_before(const struct mapping *map, size_t i)
{
	size_t n = 0;

	while (n < MAX_GUESSED_SEGMENTS && n < i &&
	       seg_has(map_seg(map, i - n - 1), SEG_VALID | SEG_DIRTY))
		n++;
	return n;
}

/* Whether segment i, which is locked, can become writable by a guess. */
static bool can_guess(const struct mapping *map, size_t i, const struct seg *s)
{
	return seg_has(s, SEG_VALID) && !(seg_head(s) & (SEG_INACTIVE | SEG_DIRTY)) &&
	       frame_guess(s->frame) && !seg_pins(s) && seg_backing(s) == map->current &&
	       map_len(map, i) == map->seg_size;
}

void guess_mark(struct mapping *map, size_t i, struct seg *s, const char *buf)
{
	*frame_guess(s->frame) = (struct frame_guess){
		.sum = sum_page(buf, map->seg_size), .first_sum = sum_first(buf),
		.time = seg_time(s) };
	map_mark_dirty(map, i, s);
	seg_change(s, 0, SEG_WRITABLE | SEG_EXPOSED);
	cache_touch(&map->member, s, UMMAP_EV_DIRTIED);
}

void guess_unmark(struct mapping *map, struct seg *s)
{
	cache_touch(&map->member, s, UMMAP_EV_CLEANED);
	seg_change(s, SEG_DIRTY | SEG_WRITABLE, 0);
	guess_end(s);
}

bool guess_may_come(const struct mapping *map)
{
	return !map->writers && map->seg_size <= sizeof(keys);
}

void guess_stores(struct mapping *map, size_t i)
{
	size_t end = i + 1, most;

	if (!guess_may_come(map))
		return;
	most = min_size(i + 1 + min_size(GUESS_FACTOR * count_dirty_before(map, i),
					 MAX_GUESSED_SEGMENTS), map->segs);
	for (; end < most; end++) {
		struct seg *s = map_seg(map, end);

		if (!seg_trylock(s))
			break;
		if (!can_guess(map, end, s)) {
			seg_unlock(s);
			break;
		}
		guess_mark(map, end, s, map_slot(map, end));
	}
	/* If it fails, the first store to a segment faults, and gives the right to store. */
	if (end > i + 1)
		map->engine->protect(map->engine, map_slot(map, i + 1),
				     (end - i - 1) << map->shift, true);
	while (end-- > i + 1)
		map_unlock(map, end, map_seg(map, end));
}

bool guess_was_stored(struct mapping *map, size_t i)
{
	struct seg *s = map_seg(map, i);
	bool stored = false;

	if (!seg_has(s, SEG_VALID | SEG_DIRTY) || !seg_trylock(s))
		return false;
	if (seg_has(s, SEG_VALID | SEG_DIRTY) && !seg_has(s, SEG_INACTIVE)) {
		const struct frame_guess *guess = frame_guess(s->frame);

		stored = !guess || !guess->sum || !is_unchanged(map, guess, map_slot(map, i));
	}
	map_unlock(map, i, s);
	return stored;
}

/* ---- Writing ---- */

bool guess_compare(struct mapping *map, struct seg *s, struct frame_guess *guess, const char *buf)
{
	if (seg_backing(s) == map->current && is_unchanged(map, guess, buf))
		return true;
	guess->sum = 0;
	return false;
}

void guess_end(struct seg *s)
{
	seg_set_time(s, frame_guess(s->frame)->time);
	frame_guess(s->frame)->sum = 0;
}

void guess_note_failure(struct mapping *map, struct seg *s)
{
	struct frame_guess *guess = frame_guess(s->frame);

	if (guess && guess->sum && flush_is_open(map, s, guess->time))
		guess->sum = 0;
}
