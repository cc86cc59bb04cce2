/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rules of static and dynamic mode, without other processes: which budget a process wants, and
 * which one it is granted so that the sum stays within the limit.
 */
#include <criterion/criterion.h>

#include "common.h"
#include "budget/share.h"

#define LIMIT (1024 * MIB)
#define STEP (LIMIT / 128)

static struct share share_of(bool dynamic, unsigned live, size_t budget)
{
	return (struct share){ .dynamic = dynamic, .limit = LIMIT, .step = STEP, .budget = budget,
			      .bytes = LIMIT / live };
}

static struct share_view view_of(unsigned live, size_t others)
{
	return (struct share_view){ .live = live, .limit = LIMIT, .others = others };
}

Test(modes, static_wants_its_share)
{
	struct share m = share_of(false, 4, 0);
	struct share_view v = view_of(4, 0);

	check(share_wanted(&m, &v, 0, false) == LIMIT / 4);
	check(share_wanted(&m, &v, LIMIT, true) == LIMIT / 4);
	m.budget = LIMIT;
	check(share_wanted(&m, &v, LIMIT, false) == LIMIT / 4,
	      "the budget is reduced to the share");
}

Test(modes, who_is_alone_has_the_limit)
{
	struct share_view v = view_of(1, 0);

	for (int dynamic = 0; dynamic < 2; dynamic++) {
		struct share m = share_of(dynamic, 1, 0);

		check(share_wanted(&m, &v, 0, false) == LIMIT);
		check(share_wanted(&m, &v, 0, true) == LIMIT);
		check(share_granted(&m, &v, LIMIT) == LIMIT);
	}
}

Test(modes, dynamic_has_what_it_uses_and_a_bit)
{
	struct share m = share_of(true, 2, 0);
	struct share_view v = view_of(2, 0);
	size_t held = 0;

	check(share_wanted(&m, &v, 0, false) == STEP);
	m.budget = LIMIT;
	check(share_wanted(&m, &v, STEP, false) == 2 * STEP, "unused budget is given up");
	/* The process uses its whole budget. */
	m.budget = STEP;
	for (int i = 1; i < 128; i++) {
		held = m.budget;
		m.budget = share_wanted(&m, &v, held, false);
		check(m.budget == held + STEP, "additive increase");
	}
	check(m.budget == LIMIT && share_wanted(&m, &v, LIMIT, false) == LIMIT);
}

Test(modes, dynamic_halves_its_excess)
{
	struct share m = share_of(true, 4, LIMIT);
	struct share_view v = view_of(4, 0);
	size_t excess = LIMIT - LIMIT / 4;
	int times = 0;

	for (; m.budget > m.bytes; times++) {
		size_t to = share_wanted(&m, &v, m.budget, true);

		check(to - m.bytes == (excess > STEP ? excess / 2 : 0), "multiplicative decrease");
		excess = to - m.bytes;
		m.budget = to;
	}
	check(times == 8, "%d", times);
	check(share_wanted(&m, &v, m.bytes, true) == m.bytes, "no less than the share");
	m.budget = LIMIT;
	check(share_wanted(&m, &v, m.bytes / 2, true) == m.bytes, "unused budget goes first");
}

/* While a process reduces its budget, it does not want more, however long its writes take. Memory
 * that it cannot free does not count. */
Test(modes, who_comes_down_wants_no_more)
{
	struct share m = share_of(true, 2, LIMIT);
	struct share_view v = view_of(2, 0);

	m.budget = share_wanted(&m, &v, LIMIT, true);
	check(m.budget == LIMIT * 3 / 4);
	for (m.held = LIMIT; m.held > m.budget; m.held -= STEP)
		check(share_wanted(&m, &v, m.held - 1, false) == m.budget);
	check(share_wanted(&m, &v, m.budget, false) == m.budget + STEP,
	      "all of the budget is used");
	m.held = m.budget + STEP;
	check(share_wanted(&m, &v, m.budget + STEP, false) == m.budget + STEP,
	      "the excess cannot be freed");
}

Test(modes, who_waits_comes_first)
{
	struct share m = share_of(true, 4, LIMIT / 2);
	struct share_view v = view_of(4, 0);

	check(share_wanted(&m, &v, LIMIT / 2, false) == LIMIT / 2 + STEP);
	v.waiting = true;
	check(share_wanted(&m, &v, LIMIT / 2, false) == LIMIT / 2);
	m.budget = LIMIT / 8;
	check(share_wanted(&m, &v, LIMIT / 8, false) == LIMIT / 8 + STEP, "the share is due");
}

Test(modes, no_more_than_there_is)
{
	uint64_t random = 7;

	for (int i = 0; i < 100000; i++) {
		unsigned live = next_random(&random) % 9 + 2;
		struct share m =
			share_of(next_random(&random) % 2, live, next_random(&random) % LIMIT);
		struct share_view v = view_of(live, next_random(&random) % (2 * LIMIT));
		size_t wanted = next_random(&random) % (LIMIT + 1),
		       got = share_granted(&m, &v, wanted);

		check(got <= max_size(wanted, m.budget));
		check(got <= m.budget || got + v.others <= LIMIT, "%zu of %zu, others %zu", got,
		      wanted, v.others);
		check(wanted > m.budget || got == wanted, "a smaller budget is always granted");
		check(got == wanted || got >= m.budget, "the budget is not reduced");
		check(got == wanted || got == m.budget || got + v.others == LIMIT,
		      "the limit is used");
	}
}

/* Another process has a larger limit: a share may be taken from the difference, an excess may not.
 * */
Test(modes, limits_differ)
{
	struct share m = share_of(true, 2, 0);
	struct share_view v = view_of(2, 2 * LIMIT);

	v.limit = 4 * LIMIT;
	check(share_granted(&m, &v, LIMIT) == LIMIT / 2);
	m.budget = LIMIT / 2;
	check(share_granted(&m, &v, LIMIT) == LIMIT / 2);
}

/* Values from a damaged table. */
Test(modes, absurd_numbers_are_bounded)
{
	const size_t absurd[] = { 0, 1, LIMIT, SIZE_MAX / 2, SIZE_MAX - 1, SIZE_MAX };

	for (unsigned i = 0; i < 6 * 6 * 6 * 2; i++) {
		struct share_view v = { .live = 1024,
					.limit = absurd[i % 6],
					.others = absurd[i / 6 % 6] };
		struct share m = share_of(i / 216, 1024, LIMIT / 16);
		size_t wanted = share_wanted(&m, &v, absurd[i / 36 % 6], i % 2);

		check(wanted <= LIMIT, "%zu", wanted);
		check(share_granted(&m, &v, wanted) <= LIMIT);
	}
}
