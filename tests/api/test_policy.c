/* SPDX-License-Identifier: BSD-3-Clause */
/* The policies by themselves: the order in which they propose, walks, arguments. */
#include "ummap-policy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern const struct ummap_policy ummap_policy_fifo, ummap_policy_lifo, ummap_policy_plru,
	ummap_policy_prnd, ummap_policy_wiro_f, ummap_policy_wiro_l;

static const struct ummap_policy *const policies[] = {
	&ummap_policy_fifo, &ummap_policy_lifo, &ummap_policy_plru,
	&ummap_policy_prnd, &ummap_policy_wiro_f, &ummap_policy_wiro_l,
};

#define COUNT(table) (sizeof(table) / sizeof(*(table)))
#define NODES 40

static void *make(const struct ummap_policy *policy, const char *args)
{
	void *p = NULL;

	cr_assert_eq(policy->create(args, &p), 0, "%s: create \"%s\"", policy->name, args);
	return p;
}

static void touch(const struct ummap_policy *policy, void *p, struct ummap_node *node,
		  enum ummap_event why)
{
	if (policy->touch)
		policy->touch(p, node, why);
}

/* One step of a script: what happens, and to which node. */
static void step(const struct ummap_policy *policy, void *p, char what, struct ummap_node *node)
{
	switch (what) {
	case 'r':
		policy->insert(p, node, UMMAP_EV_READ);
		break;
	case 'w':
		policy->insert(p, node, UMMAP_EV_WRITE);
		break;
	case 'a':
		policy->insert(p, node, UMMAP_EV_AHEAD);
		break;
	case 'd':
		touch(policy, p, node, UMMAP_EV_DIRTIED);
		break;
	case 'c':
		touch(policy, p, node, UMMAP_EV_CLEANED);
		break;
	case 'b':
		touch(policy, p, node, UMMAP_EV_RETURN);
		break;
	case 'x':
		policy->remove(p, node);
		break;
	default:
		cr_assert_fail("no such step: %c", what);
	}
}

static const struct {
	const struct ummap_policy *policy;
	const char *script; /* "rA wB xA": read fault on A, write fault on B, A is removed */
	const char *order;
} orders[] = {
	{ &ummap_policy_fifo, "", "" },
	{ &ummap_policy_fifo, "rA", "A" },
	{ &ummap_policy_fifo, "rA xA", "" },
	{ &ummap_policy_fifo, "rA wB aC", "ABC" },
	{ &ummap_policy_fifo, "rA rB rC dA cA bB", "ABC" },
	{ &ummap_policy_fifo, "rA rB rC xA rA", "BCA" },
	{ &ummap_policy_fifo, "rA rB rC xB", "AC" },
	{ &ummap_policy_lifo, "", "" },
	{ &ummap_policy_lifo, "rA wB aC", "CBA" },
	{ &ummap_policy_lifo, "rA rB rC dA cA bB", "CBA" },
	{ &ummap_policy_lifo, "rA rB rC xC rD xB", "DA" },
	{ &ummap_policy_plru, "", "" },
	{ &ummap_policy_plru, "rA wB aC", "ABC" },
	{ &ummap_policy_plru, "rA rB rC dA", "BCA" },
	{ &ummap_policy_plru, "rA rB rC dA cB", "BCA" },
	{ &ummap_policy_plru, "rA rB rC bC", "ABC" },
	{ &ummap_policy_plru, "rA rB rC bA xC", "BA" },
	{ &ummap_policy_wiro_f, "", "" },
	{ &ummap_policy_wiro_f, "wA", "A" },
	{ &ummap_policy_wiro_f, "wA rB wC rD aE", "BDEAC" },
	{ &ummap_policy_wiro_f, "rA rB rC dA", "BCA" },
	{ &ummap_policy_wiro_f, "rA rB rC dB dA", "CBA" },
	{ &ummap_policy_wiro_f, "wA wB rC cA", "CAB" },
	{ &ummap_policy_wiro_f, "rA rB wC wD bA bC", "ABCD" },
	{ &ummap_policy_wiro_f, "wA rB xB", "A" },
	{ &ummap_policy_wiro_f, "wA rB xA wC", "BC" },
	{ &ummap_policy_wiro_l, "", "" },
	{ &ummap_policy_wiro_l, "wA rB wC rD aE", "EDBCA" },
	{ &ummap_policy_wiro_l, "rA rB rC dA", "CBA" },
	{ &ummap_policy_wiro_l, "rA rB rC dB dC", "ACB" },
	{ &ummap_policy_wiro_l, "rC wA wB cA", "ACB" },
	{ &ummap_policy_wiro_l, "rA rB wC wD bA bC", "BADC" },
	{ &ummap_policy_wiro_l, "wA rB xB", "A" },
	{ &ummap_policy_wiro_l, "wA rB xA wC", "BC" },
	{ &ummap_policy_prnd, "", "" },
	{ &ummap_policy_prnd, "rA", "A" },
	{ &ummap_policy_prnd, "rA rB xA", "B" },
	{ &ummap_policy_prnd, "rA rB xB xA", "" },
};

Test(policy, order)
{
	for (size_t i = 0; i < COUNT(orders); i++) {
		const struct ummap_policy *policy = orders[i].policy;
		struct ummap_node nodes[26], *at = NULL;
		void *p = make(policy, "");
		char got[27] = "";
		size_t len = 0;

		for (const char *s = orders[i].script; *s; s += s[2] ? 3 : 2)
			step(policy, p, s[0], &nodes[s[1] - 'A']);
		while ((at = policy->pick(p, at)) && len < 26)
			got[len++] = (char)('A' + (at - nodes));
		cr_expect_str_eq(got, orders[i].order, "%s \"%s\": %s instead of %s", policy->name,
				 orders[i].script, got, orders[i].order);
		policy->destroy(p);
	}
}

/* What a policy should know of a node. */
struct known {
	bool resident, changed;
	unsigned inserted, heard, turned; /* when: put in, last event but a cleaning, last change of its kind */
};

/* Does a go before b? Each policy in one line, from what is known and not from a list. */
static bool before(const struct ummap_policy *policy, const struct known *a, const struct known *b)
{
	if (policy == &ummap_policy_fifo)
		return a->inserted < b->inserted;
	if (policy == &ummap_policy_lifo)
		return a->inserted > b->inserted;
	if (policy == &ummap_policy_plru)
		return a->heard < b->heard;
	if (a->changed != b->changed)
		return b->changed;
	return policy == &ummap_policy_wiro_f ? a->turned < b->turned : a->turned > b->turned;
}

static void check_walk(const struct ummap_policy *policy, void *p, const struct ummap_node *nodes,
		       const struct known *known, unsigned now)
{
	unsigned visits[NODES] = { 0 };
	const struct known *last = NULL;
	struct ummap_node *at = NULL;
	unsigned steps = 0;

	while ((at = policy->pick(p, at))) {
		const struct known *k = &known[at - nodes];

		cr_assert_leq(++steps, NODES, "%s: endless walk after step %u", policy->name, now);
		visits[at - nodes]++;
		if (last && policy != &ummap_policy_prnd)
			cr_assert(before(policy, last, k), "%s: order after step %u", policy->name, now);
		last = k;
	}
	for (size_t i = 0; i < NODES; i++)
		cr_assert_eq(visits[i], known[i].resident, "%s: node %zu visited %u times after step %u",
			     policy->name, i, visits[i], now);
}

static char random_step(const struct known *k)
{
	if (!k->resident)
		return "rwa"[rand() % 3];
	if (rand() % 3 == 0)
		return 'x';
	if (rand() % 4 == 0)
		return 'b';
	return k->changed ? 'c' : 'd';
}

static void learn(struct known *k, char what, unsigned now)
{
	if (what != 'c')
		k->heard = now;
	if (strchr("rwa", what))
		k->inserted = now;
	if (strchr("rwadc", what)) {
		k->turned = now;
		k->changed = what == 'w' || what == 'd';
	}
	k->resident = what != 'x';
}

/* Each node exactly once, in the right order, whatever has happened before. */
Test(policy, walks)
{
	srand(7);
	for (size_t i = 0; i < COUNT(policies); i++) {
		struct known known[NODES] = { 0 };
		struct ummap_node nodes[NODES];
		void *p = make(policies[i], "");

		for (unsigned now = 1; now <= 5000; now++) {
			int n = rand() % NODES;
			char what = random_step(&known[n]);

			step(policies[i], p, what, &nodes[n]);
			learn(&known[n], what, now);
			check_walk(policies[i], p, nodes, known, now);
		}
		policies[i]->destroy(p);
	}
}

Test(policy, pick_changes_nothing)
{
	for (size_t i = 0; i < COUNT(policies); i++) {
		struct ummap_node nodes[NODES], *first;
		void *p = make(policies[i], "");

		for (int n = 0; n < NODES; n++)
			policies[i]->insert(p, &nodes[n], n & 1 ? UMMAP_EV_READ : UMMAP_EV_WRITE);
		first = policies[i]->pick(p, NULL);
		for (struct ummap_node *at = first; at; at = policies[i]->pick(p, at))
			cr_assert_eq(policies[i]->pick(p, NULL), first, "%s", policies[i]->name);
		policies[i]->destroy(p);
	}
}

Test(policy, tables)
{
	for (size_t i = 0; i < COUNT(policies); i++) {
		cr_expect_eq(policies[i]->struct_size, sizeof(struct ummap_policy));
		cr_expect_eq(policies[i]->abi, UMMAP_POLICY_ABI);
		cr_expect(policies[i]->name && policies[i]->help && policies[i]->create &&
			  policies[i]->destroy && policies[i]->insert && policies[i]->remove &&
			  policies[i]->pick);
	}
}

Test(policy, bad_arguments)
{
	static const char *const bad[] = {
		"x", "seed", "seed=", "seed=x", "seed=-1", "seed= 1", "seed=1 ", "seed=1x", " seed=1",
		"Seed=1", "seed=18446744073709551616",
	};
	void *p;

	for (size_t i = 0; i < COUNT(policies); i++) {
		for (size_t k = 0; k < COUNT(bad); k++)
			cr_expect_eq(policies[i]->create(bad[k], &p), -EINVAL, "%s takes \"%s\"",
				     policies[i]->name, bad[k]);
		if (policies[i] != &ummap_policy_prnd)
			cr_expect_eq(policies[i]->create("seed=1", &p), -EINVAL);
	}
}

/* Puts all nodes in and takes them out again in the order proposed. */
static void random_order(const char *args, struct ummap_node *nodes, int *order)
{
	const struct ummap_policy *policy = &ummap_policy_prnd;
	void *p = make(policy, args);

	for (int n = 0; n < NODES; n++)
		policy->insert(p, &nodes[n], UMMAP_EV_READ);
	for (int n = 0; n < NODES; n++) {
		struct ummap_node *at = policy->pick(p, NULL);

		order[n] = (int)(at - nodes);
		policy->remove(p, at);
	}
	policy->destroy(p);
}

Test(policy, seed_decides)
{
	struct ummap_node nodes[NODES];
	int one[NODES], again[NODES], other[NODES], zero[NODES];

	random_order("seed=1", nodes, one);
	random_order("seed=1", nodes, again);
	random_order("seed=18446744073709551615", nodes, other);
	random_order("seed=0", nodes, zero);
	cr_expect_arr_eq(one, again, sizeof(one));
	cr_expect_arr_neq(one, other, sizeof(one));
	cr_expect_arr_neq(one, zero, sizeof(one));
}

/*
 * One in, one out, a hundred rounds. Where each resident is as likely to go as any other, the age at
 * which one goes, counted in fills of the cache, is distributed exponentially: 39 % go before half a
 * fill, 63 % before one, 86 % before two. For fifo that would be 0, 0, 100; for lifo 100, 100, 100.
 */
Test(policy, random_is_random)
{
	enum { FILL = 512, ROUNDS = 100 };
	const struct ummap_policy *policy = &ummap_policy_prnd;
	static struct ummap_node nodes[FILL];
	static unsigned born[FILL];
	unsigned young = 0, middle = 0, old = 0, all = 0;
	void *p = make(policy, "seed=3");

	for (unsigned n = 0; n < FILL; n++)
		policy->insert(p, &nodes[n], UMMAP_EV_READ);
	for (unsigned now = 1; now <= FILL * ROUNDS; now++) {
		struct ummap_node *at = policy->pick(p, NULL);
		unsigned age = now - born[at - nodes];

		policy->remove(p, at);
		policy->insert(p, at, UMMAP_EV_READ);
		born[at - nodes] = now;
		if (now < FILL * 5)
			continue;
		all++;
		young += age < FILL / 2;
		middle += age < FILL;
		old += age < FILL * 2;
	}
	young = young * 100 / all;
	middle = middle * 100 / all;
	old = old * 100 / all;
	cr_expect(young >= 33 && young <= 45, "%u %%", young);
	cr_expect(middle >= 57 && middle <= 69, "%u %%", middle);
	cr_expect(old >= 81 && old <= 91, "%u %%", old);
	policy->destroy(p);
}
