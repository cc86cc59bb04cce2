/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulates caches of all block sizes, and chooses the best one. Takes no lock, and allocates
 * nothing. Time is counted in nanoseconds. */
#include "paging/residency/transfer_size.h"

#include "common/minmax.h"
#include "paging/tuning.h"

#include <string.h>

/* Blocks of level k which the sampled part of memory holds. */
static uint32_t count_room(const struct transfer_size *t, unsigned level)
{
	return (uint32_t)max_size(t->memory >> t->sample_shift >> level, 1);
}

/* Blocks leave memory for several others. */
unsigned transfer_max_level(const struct transfer_size *t)
{
	unsigned level = t->levels - 1;

	while (level > 0 && (size_t)TRANSFER_MEMORY_PART << level > t->memory)
		level--;
	return level;
}

/* Samples as few areas as represent the mapping: those of which memory holds several, and which
 * are several of the mapping. A sixteenth is added to memory, because some segments of a power of
 * two are often missing: without it, the sample would change again and again. */
static unsigned choose_sample_shift(const struct transfer_size *t)
{
	size_t areas = t->segs >> (t->levels - 1);
	size_t held = (t->memory + t->memory / 16) >> (t->levels - 1);
	unsigned shift = 0;

	while (shift < MAX_SAMPLE_SHIFT && held >> shift >= 2 * MIN_SAMPLED_AREAS &&
	       areas >> shift >= 4 * MIN_SAMPLED_AREAS)
		shift++;
	return shift;
}

void transfer_begin(struct transfer_size *t, uint32_t *stamps, size_t segs, unsigned shift,
		    size_t memory)
{
	memset(t, 0, sizeof(*t));
	t->stamps = stamps;
	t->levels = TRANSFER_AREA_SHIFT - shift + 1;
	t->stored = (uint16_t *)(stamps + (((segs >> (t->levels - 1)) + 1) << t->levels));
	t->segs = segs;
	t->memory = memory;
	t->request_ns = REQUEST_NS;
	t->sample_shift = choose_sample_shift(t);
	t->level = (uint32_t)min_size(FIRST_TRANSFER_SHIFT - shift, transfer_max_level(t));
	t->resolution = t->floor = t->level / 2;
	t->hold_factor = 2;
	t->gap = 1;
}

bool transfer_is_sampled(const struct transfer_size *t, size_t i)
{
	/* The high bits of the product depend on all bits of the number. Each smaller sample is a
	 * part of the larger ones. */
	uint32_t hash = (uint32_t)(i >> (t->levels - 1)) * 0x9e3779b1u >> 8;

	return i < t->segs && !(hash & ((1u << t->sample_shift) - 1));
}

/* Nanoseconds of the transfer of n segments. */
static uint64_t transfer_time(const struct transfer_size *t, size_t n)
{
	return ((uint64_t)n << (TRANSFER_AREA_SHIFT - t->levels + 1)) / BYTES_PER_NS;
}

/* Nanoseconds of the load of n segments. */
static uint64_t load_time(const struct transfer_size *t, size_t n)
{
	uint64_t ns = t->request_ns + transfer_time(t, n);

	return t->huge && n >> (t->levels - 1) ? ns * HUGE_LOAD_PERCENT / 100 : ns;
}

void transfer_count_load(struct transfer_size *t, size_t n)
{
	atomic_fetch_add_explicit(&t->load_cost, load_time(t, n), memory_order_relaxed);
}

void transfer_count_writes(struct transfer_size *t, uint64_t all)
{
	atomic_fetch_add_explicit(&t->load_cost, (all - t->counted_writes) * t->request_ns,
				  memory_order_relaxed);
	t->counted_writes = all;
}

/* Threads that report at the same time may lose a measurement, which does no harm. */
void transfer_note_time(struct transfer_size *t, size_t n, uint64_t ns)
{
	uint64_t bytes_ns = transfer_time(t, n), was = t->request_ns;
	uint64_t now = max_u64(ns > bytes_ns ? ns - bytes_ns : 0, REQUEST_NS);

	t->request_ns = was - (was >> REQUEST_AVERAGE_SHIFT) + (now >> REQUEST_AVERAGE_SHIFT);
}

void transfer_count_return(struct transfer_size *t)
{
	atomic_fetch_add_explicit(&t->return_cost, RETURN_NS, memory_order_relaxed);
}

/* Accesses segment i in all simulated caches. The stamps of an area are a heap: block b of level k
 * is number 2^(last level - k) + b. */
static void simulate(struct transfer_size *t, size_t i)
{
	size_t last = t->levels - 1, in_area = i & (((size_t)1 << last) - 1);
	uint32_t *stamps = t->stamps + (i >> last << t->levels);

	for (unsigned k = 0; k <= last; k++) {
		size_t first = (size_t)1 << (last - k);
		uint32_t *stamp = &stamps[first + (in_area >> k)];

		if (*stamp && t->loads[k] - *stamp < count_room(t, k))
			continue;
		*stamp = ++t->loads[k];
		t->misses[k]++;
		for (size_t n = 0; n < (size_t)1 << k; n++)
			t->stored[(i >> k << k) + n] &= (uint16_t)~(1u << k);
	}
}

/* Whether the program has stored to segment `at` since the block of level k around segment i, to
 * which it belongs, was loaded. */
static bool is_stored(const struct transfer_size *t, size_t at, size_t i, unsigned k)
{
	return at >> k == i >> k && t->stored[at] >> k & 1;
}

/* Stores of which only one in 2^resolution segments is seen count for all of them. */
void transfer_store(struct transfer_size *t, size_t i)
{
	size_t step = (size_t)1 << t->resolution, at = i & ~(step - 1);

	for (unsigned k = t->resolution; k < t->levels; k++) {
		if (is_stored(t, at, at, k))
			continue;
		t->stored[at] |= (uint16_t)(1u << k);
		if (!is_stored(t, at - step, at, k) && !is_stored(t, at + step, at, k))
			t->writes[k]++;
	}
}

static uint64_t cost_of(const struct transfer_size *t, unsigned level)
{
	return t->misses[level] * load_time(t, (size_t)1 << level) +
	       t->writes[level] * t->request_ns;
}

/* Accesses in which the sampled part of memory is filled n times. */
static size_t count_fillings(const struct transfer_size *t, unsigned n)
{
	return n * (size_t)count_room(t, 0);
}

/* Chooses the cheapest level that has been seen. A larger block must be clearly better than smaller
 * ones. A smaller one need not be: it takes less memory and bandwidth from others. */
static void choose_level(struct transfer_size *t)
{
	unsigned best = t->floor, last = transfer_max_level(t), percent;

	for (unsigned k = best + 1; k <= last; k++) {
		if (cost_of(t, k) * 100 < cost_of(t, best) * MAX_COST_OF_LARGER_PERCENT)
			best = k;
	}
	if (best > t->level && t->hold)
		return;
	/* If an exploration finds a much lower level, memory holds what the program uses in passes.
	 * Then accesses to resident segments are not seen, so that higher levels look better than
	 * they are. */
	if (t->exploring && best + MIN_HOLD_LEVELS <= t->level) {
		t->hold = count_fillings(t, t->hold_factor);
		t->hold_factor = (unsigned)min_size(2 * t->hold_factor, MAX_HOLD_FILLINGS);
	}
	percent = best < t->level ? 100 : MAX_COST_OF_LARGER_PERCENT;
	if (t->level > last || cost_of(t, best) * 100 < cost_of(t, t->level) * percent)
		t->level = best;
}

/* Makes old accesses count half as much as new ones. */
static void age_misses(struct transfer_size *t)
{
	while (t->misses[t->level] > MAX_RECENT_MISSES) {
		for (unsigned k = 0; k < t->levels; k++) {
			t->misses[k] /= 2;
			t->writes[k] /= 2;
		}
	}
}

/* Empties the simulated caches of levels before `end`, which were not told of all accesses. */
static void empty_caches(struct transfer_size *t, unsigned end)
{
	for (unsigned k = 0; k < end; k++)
		t->loads[k] += count_room(t, k);
}

/* The simulated caches know nothing of areas that were not sampled before. */
static void change_sample(struct transfer_size *t)
{
	unsigned before = t->sample_shift;

	t->sample_shift = choose_sample_shift(t);
	if (t->sample_shift < before)
		empty_caches(t, t->levels);
}

/* Makes the resolution finer or coarser, so that returns take a bounded part of the time. */
static void tune_resolution(struct transfer_size *t, uint64_t load_cost, uint64_t return_cost)
{
	if (t->resolution >= t->level || return_cost * 100 > load_cost * MAX_RETURN_PERCENT) {
		if (t->resolution + 1 < t->level)
			t->resolution++;
		else
			t->resolution = t->level ? t->level - 1 : 0;
	} else if (return_cost * 200 < load_cost * MAX_RETURN_PERCENT && t->resolution) {
		/* The finer level was not seen. Until it is, it counts as the worst possible. */
		t->misses[t->resolution - 1] = 2 * t->misses[t->resolution];
		t->writes[t->resolution - 1] = 2 * t->writes[t->resolution];
		empty_caches(t, t->resolution);
		t->resolution--;
	}
	t->floor = t->resolution;
}

/* Begins an exploration if its returns take a small part of the time of the loads and writes so
 * far. The finer levels are considered when the memory that is simulated for them has been
 * filled. */
static void begin_exploration(struct transfer_size *t)
{
	size_t len = count_fillings(t, EXPLORATION_FILLINGS);

	if (!t->resolution || t->credit < len * EXPLORED_RETURN_NS * t->gap / 4)
		return;
	t->credit = 0;
	t->exploring = len;
	t->explored_level = t->level;
	empty_caches(t, t->resolution);
	t->resolution = 0;
}

static void continue_exploration(struct transfer_size *t)
{
	t->exploring -= min_size(t->exploring, TOUCHES_PER_DECISION);
	if (t->exploring < count_fillings(t, EXPLORATION_FILLINGS - 1))
		t->floor = 0;
	if (t->exploring)
		return;
	if (t->level == t->explored_level && t->gap < MAX_EXPLORATION_GAP)
		t->gap *= 2;
	t->resolution = t->level > 3 ? t->level - 3 : 0;
}

static void decide(struct transfer_size *t)
{
	uint64_t load_cost = atomic_exchange(&t->load_cost, 0);
	uint64_t return_cost = atomic_exchange(&t->return_cost, 0);

	t->undecided = 0;
	t->hold -= min_size(t->hold, TOUCHES_PER_DECISION);
	t->credit += load_cost * MAX_EXPLORATION_PERCENT / 100;
	change_sample(t);
	choose_level(t);
	age_misses(t);
	if (t->exploring)
		continue_exploration(t);
	else
		tune_resolution(t, load_cost, return_cost);
	if (!t->exploring)
		begin_exploration(t);
}

void transfer_touch(struct transfer_size *t, size_t i)
{
	simulate(t, i);
	if (++t->undecided >= TOUCHES_PER_DECISION)
		decide(t);
}
