/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulates caches of all block sizes, and chooses the best one. Takes no lock, and allocates
 * nothing. Time is counted in the time that storage takes to transfer one segment. */
#include "paging/residency/transfer_size.h"

#include "common/minmax.h"
#include "paging/tuning.h"

#include <string.h>

/* Blocks of level k which the sampled part of memory holds. */
static uint32_t count_room(const struct transfer_size *t, unsigned level)
{
	return (uint32_t)max_size(t->memory >> t->sample_shift >> level, 1);
}

/* The largest level that leaves memory for several blocks. */
static unsigned max_level(const struct transfer_size *t)
{
	unsigned level = TRANSFER_LEVELS - 1;

	while (level > 0 && (size_t)TRANSFER_MEMORY_PART << level > t->memory)
		level--;
	return level;
}

/* Samples as few areas as represent the mapping: those of which memory holds several, and which
 * are several of the mapping. */
static unsigned choose_sample_shift(const struct transfer_size *t)
{
	size_t areas = t->segs >> TRANSFER_AREA_SHIFT, held = t->memory >> TRANSFER_AREA_SHIFT;
	unsigned shift = 0;

	while (shift < MAX_SAMPLE_SHIFT && held >> shift >= 2 * MIN_SAMPLED_AREAS &&
	       areas >> shift >= 4 * MIN_SAMPLED_AREAS)
		shift++;
	return shift;
}

void transfer_begin(struct transfer_size *t, uint32_t *stamps, size_t segs, size_t memory)
{
	memset(t, 0, sizeof(*t));
	t->stamps = stamps;
	t->segs = segs;
	t->memory = memory;
	t->sample_shift = choose_sample_shift(t);
	t->level = (uint32_t)min_size(FIRST_TRANSFER_LEVEL, max_level(t));
	t->resolution = t->level / 2;
	t->hold_factor = 2;
	t->gap = 1;
}

bool transfer_is_sampled(const struct transfer_size *t, size_t i)
{
	/* The high bits of the product depend on all bits of the number. Each smaller sample is a
	 * part of the larger ones. */
	uint32_t hash = (uint32_t)(i >> TRANSFER_AREA_SHIFT) * 0x9e3779b1u >> 8;

	return i < t->segs && !(hash & ((1u << t->sample_shift) - 1));
}

void transfer_count_load(struct transfer_size *t, size_t n)
{
	atomic_fetch_add_explicit(&t->load_cost, TRANSFER_LATENCY + n, memory_order_relaxed);
}

void transfer_count_return(struct transfer_size *t)
{
	atomic_fetch_add_explicit(&t->return_cost, TRANSFER_RETURN, memory_order_relaxed);
}

/* Accesses segment i in all simulated caches. The stamps of an area are a heap: block b of level k
 * is number 2^(last level - k) + b. */
static void simulate(struct transfer_size *t, size_t i)
{
	uint32_t *stamps = t->stamps + (i >> TRANSFER_AREA_SHIFT) * TRANSFER_AREA_STAMPS;
	size_t in_area = i & (((size_t)1 << TRANSFER_AREA_SHIFT) - 1);

	for (unsigned k = 0; k < TRANSFER_LEVELS; k++) {
		size_t first = (size_t)1 << (TRANSFER_AREA_SHIFT - k);
		uint32_t *stamp = &stamps[first + (in_area >> k)];

		if (*stamp && t->loads[k] - *stamp < count_room(t, k))
			continue;
		*stamp = ++t->loads[k];
		t->misses[k]++;
	}
	t->touches++;
}

static uint64_t cost_of(const struct transfer_size *t, unsigned level)
{
	return t->misses[level] * (uint64_t)(TRANSFER_LATENCY + (1u << level));
}

/* Chooses the cheapest level that the resolution shows. A larger block must be clearly better, and
 * so must a change. */
static void choose_level(struct transfer_size *t)
{
	unsigned best = t->resolution, last = max_level(t);

	for (unsigned k = best + 1; k <= last; k++) {
		if (cost_of(t, k) * 100 < cost_of(t, best) * MAX_COST_OF_LARGER_PERCENT)
			best = k;
	}
	if (best > t->level && t->hold)
		return;
	if (t->level > last ||
	    cost_of(t, best) * 100 < cost_of(t, t->level) * MAX_COST_OF_CHANGE_PERCENT)
		t->level = best;
	if (t->resolution >= t->level)
		t->resolution = t->level ? t->level - 1 : 0;
}

/* Makes old accesses count half as much as new ones. */
static void age_misses(struct transfer_size *t)
{
	while (t->touches > MAX_RECENT_TOUCHES) {
		t->touches /= 2;
		for (unsigned k = 0; k < TRANSFER_LEVELS; k++)
			t->misses[k] /= 2;
	}
}

/* Accesses of an exploration that lasts n fillings of the sampled memory. */
static size_t exploration_len(const struct transfer_size *t, unsigned n)
{
	return n * (size_t)count_room(t, 0);
}

/* Begins an exploration if its returns take a small part of the time of the loads so far. */
static bool begin_exploration(struct transfer_size *t)
{
	size_t len = exploration_len(t, EXPLORATION_FILLINGS);

	if (!t->resolution || t->credit < len * TRANSFER_RETURN * t->gap / 4)
		return false;
	t->credit = 0;
	t->exploring = len;
	t->resolution = 0;
	return true;
}

/* Accesses that find memory as it was before do not count. If a lower level is better, the level
 * stays for a time, in which accesses to resident segments are not seen, so that the higher levels
 * look better than they are. */
static void explore(struct transfer_size *t)
{
	unsigned before = t->level;

	if (--t->exploring == exploration_len(t, EXPLORATION_FILLINGS - 1)) {
		memset(t->misses, 0, sizeof(t->misses));
		t->touches = 0;
	}
	if (t->exploring)
		return;
	choose_level(t);
	if (t->level < before) {
		t->hold = exploration_len(t, t->hold_factor);
		t->hold_factor = (unsigned)min_size(2 * t->hold_factor, MAX_HOLD_FILLINGS);
	} else if (t->gap < MAX_EXPLORATION_GAP) {
		t->gap *= 2;
	}
	t->resolution = t->level > 3 ? t->level - 3 : 0;
	t->undecided = 0;
	age_misses(t);
}

/* Makes the resolution finer or coarser, so that returns take a bounded part of the time. */
static void tune_resolution(struct transfer_size *t, uint64_t load_cost, uint64_t return_cost)
{
	if (return_cost * 100 > load_cost * MAX_RETURN_PERCENT) {
		if (t->resolution + 1 < t->level)
			t->resolution++;
	} else if (return_cost * 200 < load_cost * MAX_RETURN_PERCENT && t->resolution) {
		/* The finer level was not seen. Until it is, it counts as the worst possible. */
		t->misses[t->resolution - 1] = 2 * t->misses[t->resolution];
		t->resolution--;
	}
}

static void decide(struct transfer_size *t)
{
	uint64_t load_cost = atomic_exchange(&t->load_cost, 0);
	uint64_t return_cost = atomic_exchange(&t->return_cost, 0);

	t->undecided = 0;
	t->hold -= min_size(t->hold, TOUCHES_PER_DECISION);
	t->credit += load_cost * MAX_EXPLORATION_PERCENT / 100;
	t->sample_shift = choose_sample_shift(t);
	if (begin_exploration(t))
		return;
	choose_level(t);
	tune_resolution(t, load_cost, return_cost);
	age_misses(t);
}

void transfer_touch(struct transfer_size *t, size_t i, size_t memory)
{
	t->memory = memory;
	simulate(t, i);
	if (t->exploring)
		explore(t);
	else if (++t->undecided >= TOUCHES_PER_DECISION)
		decide(t);
}
