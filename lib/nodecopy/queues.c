/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Takes no lock, and tolerates updates that other processes overwrite. A hand never goes back, to
 * the newest segments.
 */
#include "nodecopy/queues.h"

/* The portion of the slots that the small queue has, in units of 1/PORTION_UNIT: its initial value,
 * its limits, and the largest change that one load causes. */
#define PORTION_UNIT (1u << 20)
#define INITIAL_PORTION (PORTION_UNIT / 10)
#define MIN_PORTION (PORTION_UNIT / 20)
#define MAX_PORTION (PORTION_UNIT / 10 * 9)
#define PORTION_STEP (PORTION_UNIT / 1024)
/* Slots that the small queue has at least, unless there are no more. In fewer slots, processes that
 * load at the same time would evict each other's segments before they are used. */
#define MIN_SMALL_SLOTS 4
/* Minimum number of evictions that `evicted` counts before it is halved. */
#define MIN_EVICTED 64

void queues_init(struct nodecopy_queues *q)
{
	q->portion = INITIAL_PORTION;
	/* A stamp of 0 is that of no eviction. */
	q->clock = 1;
}

/* The portion of the small queue, of `slots` slots. */
static uint32_t portion_of(const struct nodecopy_queues *q, uint64_t slots)
{
	uint64_t least = (uint64_t)PORTION_UNIT * MIN_SMALL_SLOTS / (slots ? slots : 1);
	uint32_t portion = q->portion;

	least = least < MAX_PORTION ? least : MAX_PORTION;
	return portion < least ? (uint32_t)least : portion;
}

/* The golden ratio spreads consecutive numbers evenly over all values (Knuth, 6.4). */
unsigned queues_of_slot(const struct nodecopy_queues *q, uint32_t slot, uint64_t slots)
{
	uint32_t place = slot * 2654435769u;

	return place / (UINT32_MAX / PORTION_UNIT + 1) < portion_of(q, slots) ? SMALL_QUEUE
									      : MAIN_QUEUE;
}

uint32_t queues_next_slot(struct nodecopy_queues *q, unsigned queue, uint64_t slots, bool pass)
{
	uint64_t begin = q->hands[queue], hand = begin;
	uint32_t slot;

	for (uint64_t n = 0;; n++) {
		slot = (uint32_t)(hand++ % slots);
		if (n == slots || queues_of_slot(q, slot, slots) == queue)
			break;
	}
	if (pass)
		atomic_compare_exchange_strong(&q->hands[queue], &begin, hand);
	return slot;
}

uint64_t queues_count_slots(const struct nodecopy_queues *q, unsigned queue, uint64_t slots)
{
	uint64_t small = slots * portion_of(q, slots) / PORTION_UNIT;

	return queue == SMALL_QUEUE ? small : slots - small;
}

uint32_t queues_evict(struct nodecopy_queues *q, unsigned queue, uint64_t slots)
{
	q->evicted[queue]++;
	if (q->evicted[SMALL_QUEUE] + q->evicted[MAIN_QUEUE] > slots / 2 + MIN_EVICTED) {
		q->evicted[SMALL_QUEUE] /= 2;
		q->evicted[MAIN_QUEUE] /= 2;
	}
	return q->clock++;
}

/* A queue whose segments return grows. More segments return to the queue with more evictions, so
 * each step is proportional to the evictions from the other queue. */
static void adapt_portion(struct nodecopy_queues *q, unsigned queue)
{
	uint64_t small = q->evicted[SMALL_QUEUE], main = q->evicted[MAIN_QUEUE];
	uint64_t other = queue == SMALL_QUEUE ? main : small, all = small + main;
	uint32_t step = all ? (uint32_t)(PORTION_STEP * other / all) : 0, portion = q->portion;

	if (queue == SMALL_QUEUE)
		q->portion = portion + step < MAX_PORTION ? portion + step : MAX_PORTION;
	else
		q->portion = portion > MIN_PORTION + step ? portion - step : MIN_PORTION;
}

unsigned queues_choose(struct nodecopy_queues *q, uint32_t stamp, unsigned left, uint64_t slots)
{
	if (!stamp || q->clock - stamp > slots)
		return SMALL_QUEUE;
	adapt_portion(q, left);
	return MAIN_QUEUE;
}
