/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The protocol of table.h. Takes no lock and allocates nothing; waits on `changed`. Words of other
 * processes are input: numbers that are used as indices are checked.
 */
#include "nodecopy/table.h"

#include "common/futex.h"
#include "common/minmax.h"

/* How long a waiter sleeps before it asks whether the owner lives, in ms. */
#define WAIT_MS 20
/* Pins of a copy whose slots suffice for all segments. */
#define MIN_PINS 64

/* How many times the hand passes over a segment that has returned to the main queue from there.
 * Without that, reads with a Zipf distribution, whose memory is an eighth, a quarter and a half of
 * the file, load 5 % more; with 3, 1 % less, but if the distribution changes, 0.5 % more. */
#define CHANCES 2

/* ---- Words ---- */

enum { ABSENT, LOADING, RESIDENT, EVICTING };

#define NO_SLOT UINT32_MAX

static uint64_t make_word(unsigned state, uint64_t owner, uint32_t slot)
{
	return state | owner << 4 | (uint64_t)slot << 32;
}

static unsigned state_of(uint64_t word)
{
	return word & 3;
}

/* The word of an evicted segment: the queue that it left, and the stamp of its eviction. */
static uint64_t make_absent(unsigned queue, uint32_t stamp)
{
	return ABSENT | (uint64_t)queue << 2 | (uint64_t)stamp << 32;
}

static unsigned left_queue(uint64_t word)
{
	return word >> 2 & 1;
}

/* Of a segment that is loaded or resident. */
static unsigned chances_of(uint64_t word)
{
	return word >> 2 & 3;
}

static uint64_t with_chances(uint64_t word, unsigned chances)
{
	return (word & ~((uint64_t)3 << 2)) | (uint64_t)chances << 2;
}

static uint64_t owner_of(uint64_t word)
{
	return word >> 4 & (NODECOPY_OWNERS - 1);
}

/* In place of the owner of a resident segment: a process may have pinned it. */
#define MAY_BE_PINNED 1

/* Also the stamp of an absent segment. */
static uint32_t slot_of(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

#define TAKEN ((uint64_t)1 << 63)

static uint64_t taken_slot(uint64_t owner, uint64_t segment)
{
	return TAKEN | owner << 35 | (segment + 1);
}

/* The stamp makes the word differ from that of an earlier load into the same slot: otherwise a
 * process that has read the earlier word could take the slot from under the segment. */
static uint64_t resident_slot(uint64_t segment, uint64_t stamp)
{
	return (stamp & (NODECOPY_OWNERS - 1)) << 35 | (segment + 1);
}

static uint64_t slot_owner(uint64_t slot)
{
	return slot >> 35 & (NODECOPY_OWNERS - 1);
}

static uint64_t slot_segment(uint64_t slot)
{
	return (slot & (((uint64_t)1 << 35) - 1)) - 1;
}

static _Atomic uint64_t *word_at(struct nodecopy_table *t, uint64_t segment)
{
	return &t->words[segment];
}

static _Atomic uint64_t *slot_at(struct nodecopy_table *t, uint64_t slot)
{
	return &t->words[t->segments + slot];
}

static _Atomic uint64_t *pin_at(struct nodecopy_table *t, uint64_t pin)
{
	return &t->words[t->segments + t->slots + pin];
}

static bool change(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong(word, &from, to);
}

/* If the slots do not suffice for all segments, half of them are left for loads. */
static uint64_t max_pins(uint64_t segments, uint64_t slots)
{
	return slots < segments || slots > 2 * MIN_PINS ? slots / 2 : MIN_PINS;
}

size_t nodecopy_table_bytes(uint64_t segments, uint64_t slots)
{
	uint64_t words = segments + slots + max_pins(segments, slots);

	return (sizeof(struct nodecopy_table) + words * sizeof(uint64_t) + 4095) & ~(size_t)4095;
}

void nodecopy_init(struct nodecopy_table *t, uint64_t segments, uint64_t slots)
{
	t->segments = segments;
	t->slots = slots;
	t->limit = slots; /* clang 14 does not take an atomic object as a value */
	t->pins = max_pins(segments, slots);
	queues_init(&t->queues);
}

static void tell_others(struct nodecopy_table *t)
{
	t->changed++;
	futex_wake_shared(&t->changed);
}

/* Whether a word of LOADING or EVICTING belongs to a process that was killed. */
static bool is_orphan(const struct nodecopy_view *v, uint64_t owner)
{
	return owner != v->owner && !v->lives(v, owner);
}

/* ---- Pins ---- */

static bool is_pinned(const struct nodecopy_view *v, uint64_t segment)
{
	for (uint64_t k = 0; k < v->table->pins; k++) {
		uint64_t pin = *pin_at(v->table, k);

		if (pin && slot_segment(pin) == segment && !is_orphan(v, slot_owner(pin)))
			return true;
	}
	return false;
}

/* Takes a free pin; or, if orphans, one of a killed process. */
static bool take_pin(const struct nodecopy_view *v, uint64_t segment, bool orphans)
{
	for (uint64_t k = 0; k < v->table->pins; k++) {
		_Atomic uint64_t *at = pin_at(v->table, k);
		uint64_t pin = *at;

		if ((!pin || (orphans && is_orphan(v, slot_owner(pin)))) &&
		    change(at, pin, taken_slot(v->owner, segment)))
			return true;
	}
	return false;
}

bool nodecopy_pin(const struct nodecopy_view *v, uint64_t segment)
{
	return take_pin(v, segment, false) || take_pin(v, segment, true);
}

bool nodecopy_keeps(const struct nodecopy_view *v, uint64_t segment)
{
	_Atomic uint64_t *word = word_at(v->table, segment);
	uint64_t w = *word;

	return state_of(w) == RESIDENT &&
	       (owner_of(w) || change(word, w, w | (uint64_t)MAY_BE_PINNED << 4));
}

void nodecopy_unpin(const struct nodecopy_view *v, uint64_t segment)
{
	uint64_t mine = taken_slot(v->owner, segment);

	for (uint64_t k = 0; k < v->table->pins; k++) {
		if (change(pin_at(v->table, k), mine, 0))
			return;
	}
}

/* ---- Slots ---- */

/* Drops a segment that this process has made EVICTING. */
static void drop_segment(const struct nodecopy_view *v, uint64_t segment, uint32_t slot)
{
	struct nodecopy_table *t = v->table;
	unsigned queue = queues_of_slot(&t->queues, slot, t->limit);
	uint32_t stamp;

	v->drop(v, segment);
	stamp = queues_evict(&t->queues, queue, t->limit);
	*word_at(t, segment) = make_absent(queue, stamp);
	tell_others(t);
}

/* Frees what the word of a segment says about a slot. Returns whether the slot is free then (rule
 * 5); false: its segment stays. */
static bool release_slot(const struct nodecopy_view *v, uint64_t segment, uint32_t slot)
{
	_Atomic uint64_t *word;
	uint64_t w;

	if (segment >= v->table->segments)
		return true;
	word = word_at(v->table, segment);
	w = *word;
	if (state_of(w) == ABSENT || slot_of(w) != slot)
		return true;
	if (state_of(w) == RESIDENT && chances_of(w)) {
		change(word, w, with_chances(w, chances_of(w) - 1));
		return false;
	}
	/* A pinned segment whose evictor was killed stays as it is, because its pages are there. */
	if (state_of(w) != RESIDENT && (!is_orphan(v, owner_of(w)) || is_pinned(v, segment)))
		return false;
	if (!change(word, w, make_word(EVICTING, v->owner, slot)))
		return false;
	if (state_of(w) == RESIDENT && owner_of(w) && is_pinned(v, segment)) {
		*word = make_word(RESIDENT, MAY_BE_PINNED, slot);
		tell_others(v->table);
		return false;
	}
	drop_segment(v, segment, slot);
	return true;
}

/* Tries to take one slot for a segment. */
static bool try_slot(const struct nodecopy_view *v, uint32_t slot, uint64_t segment)
{
	_Atomic uint64_t *at = slot_at(v->table, slot);
	uint64_t s = *at;

	if (s & TAKEN && !is_orphan(v, slot_owner(s)))
		return false;
	if (s && !release_slot(v, slot_segment(s), slot))
		return false;
	return change(at, s, taken_slot(v->owner, segment));
}

/* Takes a slot that has not been used since the limit grew. Returns NO_SLOT if there is none. */
static uint32_t take_unused_slot(const struct nodecopy_view *v, uint64_t segment)
{
	struct nodecopy_table *t = v->table;
	uint64_t slot;

	while ((slot = t->filled) < min_u64(t->limit, t->slots)) {
		if (change(&t->filled, slot, slot + 1) &&
		    change(slot_at(t, slot), 0, taken_slot(v->owner, segment)))
			return (uint32_t)slot;
	}
	return NO_SLOT;
}

/* The number of loads since a slot was filled; 0: it is free, or its segment is being loaded. */
static uint64_t age_of(struct nodecopy_table *t, uint32_t slot)
{
	uint64_t s = *slot_at(t, slot);

	return !s || s & TAKEN ? 0 : (t->loads - (s >> 35)) & (NODECOPY_OWNERS - 1);
}

/* Whether the next segment that the small queue evicts is older than that of the main queue. */
static bool is_small_older(struct nodecopy_table *t, uint64_t slots)
{
	return age_of(t, queues_next_slot(&t->queues, SMALL_QUEUE, slots, false)) >
	       age_of(t, queues_next_slot(&t->queues, MAIN_QUEUE, slots, false));
}

/* Takes a slot of a queue, within a few rounds of its hand. */
static uint32_t take_slot_of(const struct nodecopy_view *v, uint64_t segment, unsigned queue,
			     uint64_t slots)
{
	struct nodecopy_queues *q = &v->table->queues;
	uint64_t tries = (2 + CHANCES) * (queues_count_slots(q, queue, slots) + 1);

	for (uint64_t n = 0; n < tries; n++) {
		uint32_t slot = queues_next_slot(q, queue, slots, true);

		if (try_slot(v, slot, segment))
			return slot;
	}
	return NO_SLOT;
}

/* Takes one of the first `slots` slots: of the queue that the segment enters, or the other one. */
static uint32_t take_one_slot(const struct nodecopy_view *v, uint64_t segment, unsigned queue,
			      uint64_t slots)
{
	uint32_t slot;

	if (queue == MAIN_QUEUE && is_small_older(v->table, slots))
		queue = SMALL_QUEUE;
	slot = take_slot_of(v, segment, queue, slots);
	return slot == NO_SLOT ? take_slot_of(v, segment, !queue, slots) : slot;
}

/* Takes a slot for a segment that this process loads. Returns NO_SLOT if all slots belong to
 * segments that are pinned or being loaded. */
static uint32_t take_slot(const struct nodecopy_view *v, uint64_t segment, unsigned queue)
{
	uint64_t limit = v->table->limit, slots = v->table->slots;
	uint32_t slot = take_unused_slot(v, segment);

	if (slot == NO_SLOT && limit > 0 && limit < slots)
		slot = take_one_slot(v, segment, queue, limit);
	return slot == NO_SLOT ? take_one_slot(v, segment, queue, slots) : slot;
}

/* Slots that become usable are used first. */
void nodecopy_set_limit(struct nodecopy_table *t, uint64_t slots)
{
	uint64_t before = t->limit, filled = t->filled;

	t->limit = slots = slots < t->slots ? slots : t->slots;
	if (slots > before && filled > before)
		change(&t->filled, filled, before);
}

bool nodecopy_is_full(struct nodecopy_table *t)
{
	uint64_t limit = t->limit;

	return limit > 0 && limit < t->slots && t->filled >= limit;
}

void nodecopy_trim(const struct nodecopy_view *v)
{
	for (uint64_t k = v->table->limit; k < v->table->slots; k++) {
		_Atomic uint64_t *at = slot_at(v->table, k);
		uint64_t s = *at;

		if (s && (!(s & TAKEN) || is_orphan(v, slot_owner(s))) &&
		    release_slot(v, slot_segment(s), (uint32_t)k))
			change(at, s, 0);
	}
}

/* ---- Segments ---- */

static void wait_for_change(struct nodecopy_table *t, uint32_t seen)
{
	futex_wait_shared(&t->changed, seen, WAIT_MS);
}

/* Takes a slot for a claimed segment. Returns false, and gives the claim up, if there is none and
 * the caller does not wait. */
static bool assign_slot(const struct nodecopy_view *v, uint64_t segment, unsigned queue,
			bool wait)
{
	struct nodecopy_table *t = v->table;
	uint32_t slot, seen;

	for (;;) {
		seen = t->changed;
		slot = take_slot(v, segment, queue);
		if (slot != NO_SLOT || !wait)
			break;
		wait_for_change(t, seen);
	}
	if (slot == NO_SLOT)
		*word_at(t, segment) = make_absent(0, 0);
	else
		*word_at(t, segment) = make_word(LOADING, v->owner, slot);
	return slot != NO_SLOT;
}

/* Chooses the queue for a segment with the word w, which is loaded, and its chances. */
static unsigned choose_queue(struct nodecopy_table *t, uint64_t w, enum nodecopy_load why,
			     unsigned *chances)
{
	uint32_t stamp = state_of(w) == ABSENT ? slot_of(w) : 0;
	unsigned queue;

	*chances = 0;
	if (why != LOAD_AT_RANDOM)
		return MAIN_QUEUE;
	queue = queues_choose(&t->queues, stamp, left_queue(w), min_u64(t->limit, t->slots));
	if (queue == MAIN_QUEUE && left_queue(w) == MAIN_QUEUE)
		*chances = CHANCES;
	return queue;
}

enum nodecopy_claim nodecopy_claim(const struct nodecopy_view *v, uint64_t segment,
				   enum nodecopy_load why, bool wait)
{
	struct nodecopy_table *t = v->table;
	_Atomic uint64_t *word = word_at(t, segment);

	for (;;) {
		uint32_t seen = t->changed;
		uint64_t w = *word;

		if (state_of(w) == RESIDENT)
			return CLAIM_RESIDENT;
		if (state_of(w) == ABSENT || is_orphan(v, owner_of(w))) {
			unsigned queue, chances;

			if (!change(word, w, make_word(LOADING, v->owner, NO_SLOT)))
				continue;
			queue = choose_queue(t, w, why, &chances);
			if (!assign_slot(v, segment, queue, wait)) {
				tell_others(t);
				return CLAIM_BUSY;
			}
			atomic_fetch_or(word, with_chances(0, chances));
			return CLAIM_LOAD;
		}
		if (!wait)
			return CLAIM_BUSY;
		wait_for_change(t, seen);
	}
}

static void end_claim(const struct nodecopy_view *v, uint64_t segment, bool loaded)
{
	struct nodecopy_table *t = v->table;
	_Atomic uint64_t *word = word_at(t, segment);
	uint64_t w = *word;
	uint32_t slot = slot_of(w);

	if (loaded) {
		*slot_at(t, slot) = resident_slot(segment, t->loads++);
		*word = with_chances(make_word(RESIDENT, 0, slot), chances_of(w));
	} else {
		/* A segment that is pinned has all of its pages, or its loader has failed. */
		if (!is_pinned(v, segment))
			v->drop(v, segment);
		*word = make_absent(0, 0);
		*slot_at(t, slot) = 0;
	}
}

void nodecopy_done(const struct nodecopy_view *v, uint64_t segment, size_t n, bool loaded)
{
	for (uint64_t end = segment + n; segment < end; segment++)
		end_claim(v, segment, loaded);
	tell_others(v->table);
}

bool nodecopy_has(const struct nodecopy_table *t, uint64_t segment)
{
	return state_of(t->words[segment]) != ABSENT;
}

bool nodecopy_evicted_since(const struct nodecopy_table *t, uint64_t segment, uint32_t clock)
{
	uint64_t w = t->words[segment];

	return state_of(w) == ABSENT && slot_of(w) && (int32_t)(slot_of(w) - clock) >= 0;
}

uint64_t nodecopy_count(const struct nodecopy_table *t)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < t->slots; i++)
		n += t->words[t->segments + i] != 0;
	return n;
}
