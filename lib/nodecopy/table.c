/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The protocol of table.h. Takes no lock and allocates nothing; waits on `changed`. Words of other
 * processes are input: numbers that are used as indices are checked.
 */
#include "nodecopy/table.h"

#include "common/futex.h"

/* How long a waiter sleeps before it asks whether the owner lives, in ms. */
#define WAIT_MS 20
/* A segment that was evicted less than one round of the hand ago, and is loaded again, is passed
 * over this many times, as in S3-FIFO's main queue. With 3, a process that reads 256 MiB with a
 * Zipf distribution and a fourth of that memory reads 1 % less. */
#define CHANCES 1
/* Pins of a copy whose slots suffice for all segments. */
#define MIN_PINS 64

/* ---- Words ---- */

enum { ABSENT, LOADING, RESIDENT, EVICTING };

#define NO_SLOT UINT32_MAX

static uint64_t make_word(unsigned state, unsigned chances, uint64_t owner, uint32_t slot)
{
	return state | (uint64_t)chances << 2 | owner << 4 | (uint64_t)slot << 32;
}

static unsigned state_of(uint64_t word)
{
	return word & 3;
}

static unsigned chances_of(uint64_t word)
{
	return word >> 2 & 3;
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
uint64_t nodecopy_max_pins(uint64_t segments, uint64_t slots)
{
	return slots < segments || slots > 2 * MIN_PINS ? slots / 2 : MIN_PINS;
}

size_t nodecopy_table_bytes(uint64_t segments, uint64_t slots)
{
	uint64_t words = segments + slots + nodecopy_max_pins(segments, slots);

	return (sizeof(struct nodecopy_table) + words * sizeof(uint64_t) + 4095) & ~(size_t)4095;
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
static void drop_segment(const struct nodecopy_view *v, uint64_t segment)
{
	struct nodecopy_table *t = v->table;

	v->drop(v, segment);
	*word_at(t, segment) = make_word(ABSENT, 0, 0, (uint32_t)t->hand | 1);
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
		change(word, w, make_word(RESIDENT, chances_of(w) - 1, owner_of(w), slot));
		return false;
	}
	/* A pinned segment whose evictor was killed stays as it is, because its pages are there. */
	if (state_of(w) != RESIDENT && (!is_orphan(v, owner_of(w)) || is_pinned(v, segment)))
		return false;
	if (!change(word, w, make_word(EVICTING, 0, v->owner, slot)))
		return false;
	if (state_of(w) == RESIDENT && owner_of(w) && is_pinned(v, segment)) {
		*word = make_word(RESIDENT, CHANCES, MAY_BE_PINNED, slot);
		tell_others(v->table);
		return false;
	}
	drop_segment(v, segment);
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

/* Takes one of the first `slots` slots, within a few rounds of the hand. */
static uint32_t take_one_slot(const struct nodecopy_view *v, uint64_t segment, uint64_t slots)
{
	for (uint64_t n = 0; n < (2 + CHANCES) * slots; n++) {
		uint32_t slot = (uint32_t)(v->table->hand++ % slots);

		if (try_slot(v, slot, segment))
			return slot;
	}
	return NO_SLOT;
}

/* Takes a slot for a segment that this process loads. Returns NO_SLOT if all slots belong to
 * segments that are pinned or being loaded. */
static uint32_t take_slot(const struct nodecopy_view *v, uint64_t segment)
{
	uint64_t limit = v->table->limit, slots = v->table->slots;
	uint32_t slot = NO_SLOT;

	if (limit > 0 && limit < slots)
		slot = take_one_slot(v, segment, limit);
	return slot == NO_SLOT ? take_one_slot(v, segment, slots) : slot;
}

/* The hand goes on at the first slot that becomes usable if that is free, because the others may
 * have segments. It only moves forward, because stamps are made of it. */
void nodecopy_set_limit(struct nodecopy_table *t, uint64_t slots)
{
	uint64_t before = t->limit, hand = t->hand;

	t->limit = slots = slots < t->slots ? slots : t->slots;
	if (slots > before && *slot_at(t, before) == 0)
		change(&t->hand, hand, hand + (before + slots - hand % slots) % slots);
}

bool nodecopy_is_full(struct nodecopy_table *t)
{
	uint64_t limit = t->limit;

	return limit > 0 && limit < t->slots && *slot_at(t, t->hand % limit) != 0;
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
static bool assign_slot(const struct nodecopy_view *v, uint64_t segment, bool wait)
{
	struct nodecopy_table *t = v->table;
	uint32_t slot, seen;

	for (;;) {
		seen = t->changed;
		slot = take_slot(v, segment);
		if (slot != NO_SLOT || !wait)
			break;
		wait_for_change(t, seen);
	}
	if (slot == NO_SLOT)
		*word_at(t, segment) = make_word(ABSENT, 0, 0, 0);
	else
		*word_at(t, segment) = make_word(LOADING, 0, v->owner, slot);
	return slot != NO_SLOT;
}

enum nodecopy_claim nodecopy_claim(const struct nodecopy_view *v, uint64_t segment, bool wait)
{
	struct nodecopy_table *t = v->table;
	_Atomic uint64_t *word = word_at(t, segment);

	for (;;) {
		uint32_t seen = t->changed;
		uint64_t w = *word;
		bool recent = state_of(w) == ABSENT && slot_of(w) &&
			      (uint32_t)t->hand - slot_of(w) < t->slots;

		if (state_of(w) == RESIDENT)
			return CLAIM_RESIDENT;
		if (state_of(w) == ABSENT || is_orphan(v, owner_of(w))) {
			/* The chances of a segment that returns stay in the word while it is
			 * loaded. */
			if (!change(word, w, make_word(LOADING, 0, v->owner, NO_SLOT)))
				continue;
			if (!assign_slot(v, segment, wait)) {
				tell_others(t);
				return CLAIM_BUSY;
			}
			if (recent)
				atomic_fetch_or(word, (uint64_t)CHANCES << 2);
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
		*word = make_word(RESIDENT, chances_of(w), 0, slot);
	} else {
		/* A segment that is pinned has all of its pages, or its loader has failed. */
		if (!is_pinned(v, segment))
			v->drop(v, segment);
		*word = make_word(ABSENT, 0, 0, 0);
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

bool nodecopy_evicted_since(const struct nodecopy_table *t, uint64_t segment, uint32_t hand)
{
	uint64_t w = t->words[segment];

	return state_of(w) == ABSENT && slot_of(w) && (int32_t)(slot_of(w) - hand) >= 0;
}

uint64_t nodecopy_count(const struct nodecopy_table *t)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < t->slots; i++)
		n += t->words[t->segments + i] != 0;
	return n;
}
