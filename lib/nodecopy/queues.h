/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order in which a node copy evicts segments: that of the policy s3fifo (policies/s3fifo.c),
 * without uses of resident segments, of which no faults tell.
 *
 * A segment that is loaded at random enters the main queue if it is one of the segments that were
 * evicted last, as many as there are slots; otherwise the small queue. Both are first in, first
 * out, but a segment that returns to the main queue from there has more chances (table.c).
 * The portion of the small queue adapts as in s3fifo. A segment that enters the main queue takes
 * the slot of the oldest segment of both queues. Therefore, a small queue that few segments enter
 * does not keep segments that are no longer used.
 *
 * A slot belongs to a queue as long as the portion stays the same. The slots of each queue are
 * spread over all slots, so that the portion holds for any limit. The hand of a queue goes round
 * its slots, and gives the slot of the oldest segment to a new one.
 *
 * The queues are shared memory. Processes change the fields at the same time, and may be killed at
 * any instruction: every value is valid, and only affects which segment is evicted.
 */
#ifndef NODECOPY_QUEUES_H
#define NODECOPY_QUEUES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { SMALL_QUEUE, MAIN_QUEUE, NODECOPY_QUEUES };

struct nodecopy_queues {
	_Atomic uint64_t hands[NODECOPY_QUEUES]; /* number of slots that each hand has passed */
	_Atomic uint64_t evicted[NODECOPY_QUEUES]; /* recent evictions; halved now and then */
	_Atomic uint32_t clock;        /* number of all evictions */
	_Atomic uint32_t portion;      /* portion of the small queue */
};

void queues_init(struct nodecopy_queues *q);
/* The queue of a slot, of `slots` in all. */
unsigned queues_of_slot(const struct nodecopy_queues *q, uint32_t slot, uint64_t slots);
/* The next of the first `slots` slots that the hand of a queue meets. pass: it passes this slot. */
uint32_t queues_next_slot(struct nodecopy_queues *q, unsigned queue, uint64_t slots, bool pass);
/* The approximate number of slots of a queue, of `slots` in all. */
uint64_t queues_count_slots(const struct nodecopy_queues *q, unsigned queue, uint64_t slots);
/* Counts an eviction, from one of `slots` slots. Returns its stamp. */
uint32_t queues_evict(struct nodecopy_queues *q, unsigned queue, uint64_t slots);
/* Chooses the queue of a segment that is loaded. stamp: of its last eviction, 0: there was none;
 * left: the queue that it left then. */
unsigned queues_choose(struct nodecopy_queues *q, uint32_t stamp, unsigned left, uint64_t slots);

#endif
