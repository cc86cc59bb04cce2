/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A use reads all of a segment of 2 MiB with all cores of a socket. The costs are those of
 * published measurements of a Xeon Max with HBM2e and DDR5 (about 590 and 220 GB/s), and of memory
 * behind four CXL links (about 55 GB/s). One core copies a segment at 10 GB/s.
 */
#include "kit/tiers.h"

#include <stdbool.h>

#include "kit/common.h"
#include "kit/simulate.h"

#define COPY_US 210.0
/* The library's constants (lib/paging/tuning.h), and the measured costs of its samples. */
#define SAMPLE_US 5.0
#define SAMPLE_FAULT_US 10.0
#define ROUND_US 1e6
#define SAMPLES_PER_TIER 200
#define COLD_MS 1000
#define VICTIMS 32
#define PROMOTION_LEVELS 2
#define PROMOTION_ROUND_US 1e4
#define MAX_PROMOTION_US 1e5

static const double use_us[3] = { 3.5, 9.5, 38 };

const char *const tier_policies[] = { "first-touch", "LRU", "ummap", "Belady", NULL };

struct segment {
	uint32_t at;       /* position in its tier */
	double sampled;    /* time of its sample in ms; 0: none */
	uint8_t tier;
	uint8_t level;     /* logarithm of the time from a sample to a use; 0: unknown */
	bool is_loaded;
};

struct tiers {
	struct segment *segment;
	uint32_t *of[3];   /* segment at each position of a tier */
	uint32_t room[3], count[3], victims[3], samples[3]; /* the last two: hands of clocks */
	uint32_t round;
	double promotion_us; /* time that promotions may still take */
	struct tier_result result;
};

static struct segment *at_hand(struct tiers *t, unsigned tier, uint32_t *hand)
{
	*hand = (*hand + 1) % t->count[tier];
	return &t->segment[t->of[tier][*hand]];
}

static void swap(struct tiers *t, struct segment *a, struct segment *b)
{
	struct segment old = *a;

	a->tier = b->tier;
	a->at = b->at;
	b->tier = old.tier;
	b->at = old.at;
	t->of[a->tier][a->at] = (uint32_t)(a - t->segment);
	t->of[b->tier][b->at] = (uint32_t)(b - t->segment);
}

static double now_ms(const struct tiers *t)
{
	return t->result.seconds * 1e3 + (double)t->result.copies * COPY_US / 1e3 + 1;
}

static unsigned level_of(double ms)
{
	return 64 - (unsigned)__builtin_clzll((uint64_t)ms + 1);
}

/* As exchange_frame of the library. */
static struct segment *find_victim(struct tiers *t, unsigned tier, unsigned least)
{
	for (unsigned n = 0; n < VICTIMS && t->count[tier]; n++) {
		struct segment *s = at_hand(t, tier, &t->victims[tier]);

		if ((s->sampled ? level_of(now_ms(t) - s->sampled) : s->level) >= least)
			return s;
	}
	return NULL;
}

static void load(struct tiers *t, struct segment *s, bool moves)
{
	unsigned tier = 0;

	while (t->count[tier] == t->room[tier])
		tier++;
	s->tier = (uint8_t)tier;
	s->at = t->count[tier]++;
	s->is_loaded = true;
	t->of[tier][s->at] = (uint32_t)(s - t->segment);
	while (moves && tier-- > 0) {
		struct segment *victim = find_victim(t, tier, level_of(COLD_MS));

		if (!victim)
			continue;
		swap(t, s, victim);
		victim->sampled = victim->level = 0;
		t->result.copies++;
	}
}

static void note_use(struct tiers *t, struct segment *s)
{
	struct segment *victim;
	unsigned before = s->level, level;

	if (!s->sampled)
		return;
	s->level = (uint8_t)level_of(now_ms(t) - s->sampled);
	s->sampled = 0;
	t->result.seconds += SAMPLE_FAULT_US / 1e6;
	if (!before || s->tier == 0 || t->promotion_us <= 0)
		return;
	level = before > s->level ? before : s->level;
	victim = find_victim(t, 0, level + PROMOTION_LEVELS);
	if (!victim)
		return;
	swap(t, s, victim);
	s->level = victim->level = 0;
	victim->sampled = 0;
	t->result.copies += 2;
	t->promotion_us -= 2 * COPY_US;
}

static void take_samples(struct tiers *t)
{
	t->round++;
	if (t->promotion_us < MAX_PROMOTION_US)
		t->promotion_us += PROMOTION_ROUND_US;
	for (unsigned tier = 0; tier < 3; tier++) {
		for (unsigned k = 0; k < SAMPLES_PER_TIER && t->count[tier]; k++) {
			struct segment *s = at_hand(t, tier, &t->samples[tier]);

			t->result.seconds += SAMPLE_US / 1e6;
			if (!s->sampled)
				s->sampled = now_ms(t);
		}
	}
}

static struct tier_result play(const uint32_t *uses, size_t n, uint32_t segments,
			       const uint32_t room[2], bool moves)
{
	struct tiers t = { .room = { room[0], room[1], segments }, .round = 1,
			   .promotion_us = PROMOTION_ROUND_US };
	struct tier_result *r = &t.result;

	t.segment = calloc(segments, sizeof(*t.segment));
	for (unsigned tier = 0; tier < 3; tier++)
		t.of[tier] = malloc((t.room[tier] + 1) * sizeof(*t.of[tier]));
	if (!t.segment || !t.of[0] || !t.of[1] || !t.of[2])
		die("no memory for %u segments", segments);
	for (size_t i = 0; i < n; i++) {
		struct segment *s = &t.segment[uses[i]];

		if (!s->is_loaded)
			load(&t, s, moves);
		else if (moves)
			note_use(&t, s);
		r->uses[s->tier]++;
		r->seconds += use_us[s->tier] / 1e6;
		if (moves && r->seconds + (double)r->copies * COPY_US / 1e6 >
				     t.round * ROUND_US / 1e6)
			take_samples(&t);
	}
	for (unsigned tier = 0; tier < 3; tier++)
		free(t.of[tier]);
	free(t.segment);
	r->seconds += (double)r->copies * COPY_US / 1e6;
	return *r;
}

static uint32_t count_used(const uint32_t *uses, size_t n, uint32_t segments)
{
	char *used = calloc(segments, 1);
	uint32_t count = 0;

	if (!used)
		die("no memory for %u segments", segments);
	for (size_t i = 0; i < n; i++) {
		count += !used[uses[i]];
		used[uses[i]] = 1;
	}
	free(used);
	return count;
}

/* Policies that bring a segment to the first tier with each use: the misses of a memory of the
 * first tier's size, and of both, tell in which tier each use finds its segment. */
static struct tier_result play_stack(const char *policy, const uint32_t *uses, size_t n,
				     uint32_t segments, const uint32_t room[2], bool copies)
{
	uint32_t used = count_used(uses, n, segments), both = room[0] + room[1];
	size_t first = simulate(policy, uses, n, segments, room[0]),
	       second = simulate(policy, uses, n, segments, both);
	struct tier_result r = { { n - first + used, first - second, second - used }, 0, 0 };

	if (copies)
		r.copies = 2 * r.uses[1] + 3 * r.uses[2] + (used > room[0] ? used - room[0] : 0) +
			   (used > both ? used - both : 0);
	for (unsigned tier = 0; tier < 3; tier++)
		r.seconds += (double)r.uses[tier] * use_us[tier] / 1e6;
	r.seconds += (double)r.copies * COPY_US / 1e6;
	return r;
}

struct tier_result simulate_tiers(const char *policy, const uint32_t *uses, size_t n,
				  uint32_t segments, const uint32_t room[2])
{
	if (strcmp(policy, "LRU") == 0 || strcmp(policy, "Belady") == 0)
		return play_stack(policy, uses, n, segments, room, policy[0] == 'L');
	return play(uses, n, segments, room, strcmp(policy, "ummap") == 0);
}
