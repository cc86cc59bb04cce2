/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_modes.c - the rules of static and dynamic mode, without other processes: what is wanted, and what is granted
 * so that the sum stays under the limit.
 */
#include <criterion/criterion.h>

#include "common.h"
#include "node/mode.h"

#define LIMIT (1024 * MIB)
#define STEP (LIMIT / 128)

static struct mode mode_of(bool dynamic, unsigned live, size_t budget)
{
	return (struct mode){ .dynamic = dynamic, .limit = LIMIT, .step = STEP, .budget = budget,
			      .share = LIMIT / live };
}

static struct node_view view_of(unsigned live, size_t others)
{
	return (struct node_view){ .live = live, .limit = LIMIT, .others = others };
}

Test(modes, static_wants_its_share)
{
	struct mode m = mode_of(false, 4, 0);
	struct node_view v = view_of(4, 0);

	check(mode_wanted(&m, &v, 0, false) == LIMIT / 4);
	check(mode_wanted(&m, &v, LIMIT, true) == LIMIT / 4);
	m.budget = LIMIT;
	check(mode_wanted(&m, &v, LIMIT, false) == LIMIT / 4, "it comes down");
}

Test(modes, who_is_alone_has_the_limit)
{
	struct node_view v = view_of(1, 0);

	for (int dynamic = 0; dynamic < 2; dynamic++) {
		struct mode m = mode_of(dynamic, 1, 0);

		check(mode_wanted(&m, &v, 0, false) == LIMIT);
		check(mode_wanted(&m, &v, 0, true) == LIMIT);
		check(mode_granted(&m, &v, LIMIT) == LIMIT);
	}
}

Test(modes, dynamic_has_what_it_uses_and_a_bit)
{
	struct mode m = mode_of(true, 2, 0);
	struct node_view v = view_of(2, 0);
	size_t held = 0;

	check(mode_wanted(&m, &v, 0, false) == STEP);
	m.budget = LIMIT;
	check(mode_wanted(&m, &v, STEP, false) == 2 * STEP, "what is not used is not kept");
	/* It uses all that it gets. */
	m.budget = STEP;
	for (int i = 1; i < 128; i++) {
		held = m.budget;
		m.budget = mode_wanted(&m, &v, held, false);
		check(m.budget == held + STEP, "additive");
	}
	check(m.budget == LIMIT && mode_wanted(&m, &v, LIMIT, false) == LIMIT);
}

Test(modes, dynamic_halves_its_excess)
{
	struct mode m = mode_of(true, 4, LIMIT);
	struct node_view v = view_of(4, 0);
	size_t excess = LIMIT - LIMIT / 4;
	int times = 0;

	for (; m.budget > m.share; times++) {
		size_t to = mode_wanted(&m, &v, m.budget, true);

		check(to - m.share == (excess > STEP ? excess / 2 : 0), "multiplicative");
		excess = to - m.share;
		m.budget = to;
	}
	check(times == 8, "%d", times);
	check(mode_wanted(&m, &v, m.share, true) == m.share, "no less than the share");
	m.budget = LIMIT;
	check(mode_wanted(&m, &v, m.share / 2, true) == m.share, "what is not used goes first");
}

/* However long writing takes, it takes nothing back of what it gives up; what is over and stays does not count as that. */
Test(modes, who_comes_down_wants_no_more)
{
	struct mode m = mode_of(true, 2, LIMIT);
	struct node_view v = view_of(2, 0);

	m.budget = mode_wanted(&m, &v, LIMIT, true);
	check(m.budget == LIMIT * 3 / 4);
	for (m.held = LIMIT; m.held > m.budget; m.held -= STEP)
		check(mode_wanted(&m, &v, m.held - 1, false) == m.budget);
	check(mode_wanted(&m, &v, m.budget, false) == m.budget + STEP, "it uses all of it");
	m.held = m.budget + STEP;
	check(mode_wanted(&m, &v, m.budget + STEP, false) == m.budget + STEP, "it cannot do with less");
}

Test(modes, who_waits_comes_first)
{
	struct mode m = mode_of(true, 4, LIMIT / 2);
	struct node_view v = view_of(4, 0);

	check(mode_wanted(&m, &v, LIMIT / 2, false) == LIMIT / 2 + STEP);
	v.waiting = true;
	check(mode_wanted(&m, &v, LIMIT / 2, false) == LIMIT / 2);
	m.budget = LIMIT / 8;
	check(mode_wanted(&m, &v, LIMIT / 8, false) == LIMIT / 8 + STEP, "that is its due");
}

Test(modes, no_more_than_there_is)
{
	uint64_t random = 7;

	for (int i = 0; i < 100000; i++) {
		unsigned live = next_random(&random) % 9 + 2;
		struct mode m = mode_of(next_random(&random) % 2, live, next_random(&random) % LIMIT);
		struct node_view v = view_of(live, next_random(&random) % (2 * LIMIT));
		size_t wanted = next_random(&random) % (LIMIT + 1), got = mode_granted(&m, &v, wanted);

		check(got <= max_size(wanted, m.budget));
		check(got <= m.budget || got + v.others <= LIMIT, "%zu of %zu, others %zu", got, wanted, v.others);
		check(wanted > m.budget || got == wanted, "less can be had at any time");
		check(got == wanted || got >= m.budget, "nothing is taken away");
		check(got == wanted || got == m.budget || got + v.others == LIMIT, "all that there is");
	}
}

/* Another process grants more: what is due may be taken from that, what goes beyond it may not. */
Test(modes, limits_differ)
{
	struct mode m = mode_of(true, 2, 0);
	struct node_view v = view_of(2, 2 * LIMIT);

	v.limit = 4 * LIMIT;
	check(mode_granted(&m, &v, LIMIT) == LIMIT / 2);
	m.budget = LIMIT / 2;
	check(mode_granted(&m, &v, LIMIT) == LIMIT / 2);
}

/* Numbers out of a damaged table. */
Test(modes, absurd_numbers_are_bounded)
{
	const size_t absurd[] = { 0, 1, LIMIT, SIZE_MAX / 2, SIZE_MAX - 1, SIZE_MAX };

	for (unsigned i = 0; i < 6 * 6 * 6 * 2; i++) {
		struct node_view v = { .live = 1024, .limit = absurd[i % 6], .others = absurd[i / 6 % 6] };
		struct mode m = mode_of(i / 216, 1024, LIMIT / 16);
		size_t wanted = mode_wanted(&m, &v, absurd[i / 36 % 6], i % 2);

		check(wanted <= LIMIT, "%zu", wanted);
		check(mode_granted(&m, &v, wanted) <= LIMIT);
	}
}
