/* SPDX-License-Identifier: BSD-3-Clause */
/* The policies without a mapping: the order in which they propose nodes, walks, and arguments. */
#include "ummap-policy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern const struct ummap_policy ummap_policy_fifo, ummap_policy_lifo, ummap_policy_plru,
	ummap_policy_prnd, ummap_policy_wiro_f, ummap_policy_wiro_l, ummap_policy_s3fifo;

static const struct ummap_policy *const policies[] = {
	&ummap_policy_fifo, &ummap_policy_lifo, &ummap_policy_plru,
	&ummap_policy_prnd, &ummap_policy_wiro_f, &ummap_policy_wiro_l, &ummap_policy_s3fifo,
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

/* Removes a node as the library does, which reuses the links afterwards. Returns the label. */
static unsigned remove_node(const struct ummap_policy *policy, void *p, struct ummap_node *node)
{
	unsigned label = policy->label ? policy->label(p, node) : 0;

	policy->remove(p, node);
	*node = (struct ummap_node){ NULL, NULL };
	return label;
}

/* Removes a node whose segment is evicted. */
static void evict_node(const struct ummap_policy *policy, void *p, struct ummap_node *node)
{
	unsigned label = remove_node(policy, p, node);

	if (policy->gone)
		policy->gone(p, node, label);
}

/* Performs one step of a script with a node. */
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
		remove_node(policy, p, node);
		break;
	case 'g':
		evict_node(policy, p, node);
		break;
	default:
		cr_assert_fail("no such step: %c", what);
	}
}

static const struct {
	const struct ummap_policy *policy;
	/* "rA wB xA gB": read fault on A, write fault on B, A is removed, B is evicted. */
	const char *script;
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
	{ &ummap_policy_s3fifo, "", "" },
	{ &ummap_policy_s3fifo, "rA wB aC", "ABC" },
	{ &ummap_policy_s3fifo, "rA rB dA cA", "AB" },
	{ &ummap_policy_s3fifo, "rA rB bA", "BA" },
	{ &ummap_policy_s3fifo, "rA rB bA bB rC", "CAB" },
	{ &ummap_policy_s3fifo, "rA rB bA bB bA", "BA" },
	{ &ummap_policy_s3fifo, "rA rB rC xA rA rD", "BCAD" },
	{ &ummap_policy_s3fifo, "rA rB rC gA rA rD", "BCDA" },
	{ &ummap_policy_s3fifo, "rA rB rC gA aA rD", "BCAD" },
	{ &ummap_policy_s3fifo, "rA rB rC bA gA wA rD", "BCDA" },
	{ &ummap_policy_s3fifo, "rA rB rC rD gA gB gC rA rE", "DAE" },
	{ &ummap_policy_prnd, "", "" },
	{ &ummap_policy_prnd, "rA", "A" },
	{ &ummap_policy_prnd, "rA rB xA", "B" },
	{ &ummap_policy_prnd, "rA rB xB xA", "" },
};

Test(policy, order)
{
	for (size_t i = 0; i < COUNT(orders); i++) {
		const struct ummap_policy *policy = orders[i].policy;
		struct ummap_node nodes[26] = { 0 }, *at = NULL;
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

/* Facts about a node that determine the order. */
struct known {
	bool resident, changed;
	unsigned inserted; /* step at which the node was inserted */
	unsigned heard;    /* step of its last event except for a cleaning */
	unsigned turned;   /* step of the last change between clean and dirty */
};

/* Whether node a is evicted before b, by the definition of the policy. */
static bool goes_before(const struct ummap_policy *policy, const struct known *a,
			const struct known *b)
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

/* Whether the order is defined: prnd has none, and s3fifo has the model below. */
static bool has_order(const struct ummap_policy *policy)
{
	return policy != &ummap_policy_prnd && policy != &ummap_policy_s3fifo;
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
		if (last && has_order(policy))
			cr_assert(goes_before(policy, last, k), "%s: order after step %u",
				  policy->name, now);
		last = k;
	}
	for (size_t i = 0; i < NODES; i++)
		cr_assert_eq(visits[i], known[i].resident,
			     "%s: node %zu visited %u times after step %u", policy->name, i,
			     visits[i], now);
}

static char random_step(const struct known *k)
{
	if (!k->resident)
		return "rwa"[rand() % 3];
	if (rand() % 3 == 0)
		return "xg"[rand() % 2];
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
	k->resident = what != 'x' && what != 'g';
}

/* A walk visits each node once, in the right order, after any sequence of steps. */
Test(policy, walks)
{
	srand(7);
	for (size_t i = 0; i < COUNT(policies); i++) {
		struct known known[NODES] = { 0 };
		struct ummap_node nodes[NODES] = { 0 };
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
		struct ummap_node nodes[NODES] = { 0 }, *first;
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
		"x",
		"seed",
		"seed=",
		"seed=x",
		"seed=-1",
		"seed= 1",
		"seed=1 ",
		"seed=1x",
		" seed=1",
		"Seed=1",
		"seed=18446744073709551616",
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

/* Inserts all nodes and removes them in the proposed order. */
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
	struct ummap_node nodes[NODES] = { 0 };
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
 * One node is inserted and one is removed, a hundred rounds. If each resident node is equally
 * likely to be removed, its age at removal, in fills of the cache, is distributed exponentially: 39
 * % are removed before half a fill, 63 % before one, and 86 % before two. With fifo, these would be
 * 0, 0 and 100 %; with lifo, 100 % each.
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

/* ---- A model of S3-FIFO with arrays ---- */

struct s3model {
	int queue[2][NODES]; /* nodes that were used once, and nodes used again; oldest first */
	int count[2];        /* number of nodes in each queue */
	long went[2], clock; /* recent evictions from each queue, and evictions so far */
	long part;           /* part of queue 0, in 1/2^20 */
	long left_at[NODES]; /* clock at the eviction of the node; 0: unknown */
	int left[NODES];     /* queue that the node was evicted from */
};

static void model_put(struct s3model *m, int queue, int n)
{
	m->queue[queue][m->count[queue]++] = n;
}

/* Removes a node. Returns the queue that it was in. */
static int model_take(struct s3model *m, int n)
{
	for (int queue = 0; queue < 2; queue++) {
		for (int i = 0; i < m->count[queue]; i++) {
			if (m->queue[queue][i] != n)
				continue;
			m->count[queue]--;
			memmove(&m->queue[queue][i], &m->queue[queue][i + 1],
				(size_t)(m->count[queue] - i) * sizeof(int));
			return queue;
		}
	}
	cr_assert_fail("node %d is in no queue", n);
	return 0;
}

static void model_insert(struct s3model *m, int n, bool ahead)
{
	bool known = !ahead && m->left_at[n] &&
		     m->clock - m->left_at[n] <= (m->count[0] + m->count[1]) / 2;
	long whole = 1 << 20, step;

	if (known) {
		step = whole / 1024 * m->went[!m->left[n]] / (m->went[0] + m->went[1]);
		m->part += m->left[n] == 0 ? step : -step;
		m->part = m->part < whole / 50     ? whole / 50 :
			  m->part > whole / 10 * 9 ? whole / 10 * 9 :
						     m->part;
	}
	m->left_at[n] = 0;
	model_put(m, known, n);
}

static void model_gone(struct s3model *m, int n)
{
	m->left[n] = model_take(m, n);
	m->left_at[n] = ++m->clock;
	m->went[m->left[n]]++;
	if (m->went[0] + m->went[1] > (m->count[0] + m->count[1]) / 2 + 64) {
		m->went[0] /= 2;
		m->went[1] /= 2;
	}
}

static void model_step(struct s3model *m, char what, int n)
{
	if (strchr("rwa", what)) {
		model_insert(m, n, what == 'a');
	} else if (what == 'b') {
		model_take(m, n);
		model_put(m, 1, n);
	} else if (what == 'x') {
		model_take(m, n);
	} else if (what == 'g') {
		model_gone(m, n);
	}
}

static int model_nth(const struct s3model *m, int i)
{
	int first = m->count[1] > 0 && m->count[0] <= (m->count[0] + m->count[1]) * m->part >> 20;

	return i < m->count[first] ? m->queue[first][i] : m->queue[!first][i - m->count[first]];
}

static void check_model(const struct s3model *m, void *p, const struct ummap_node *nodes,
			unsigned now)
{
	struct ummap_node *at = NULL;

	for (int i = 0; i < m->count[0] + m->count[1]; i++) {
		at = ummap_policy_s3fifo.pick(p, at);
		cr_assert_eq(at, &nodes[model_nth(m, i)], "place %d after step %u", i, now);
	}
	cr_assert_null(ummap_policy_s3fifo.pick(p, at), "after step %u", now);
}

static char model_choice(const struct known *k)
{
	if (!k->resident)
		return "rwa"[rand() % 3];
	if (rand() % 3 == 0)
		return 'g';
	if (rand() % 40 == 0)
		return 'x';
	return rand() % 4 == 0 ? 'b' : k->changed ? 'c' : 'd';
}

/* Chooses a node. In each phase, nodes that were evicted from one queue return at once, so that the
 * border moves in both directions. */
static int model_node(const struct s3model *m, const struct known *known, int last, int phase)
{
	return !known[last].resident && m->left_at[last] && m->left[last] == phase && rand() % 2 ?
		       last :
		       rand() % NODES;
}

Test(policy, s3fifo_is_its_model)
{
	struct ummap_node nodes[NODES] = { 0 };
	struct known known[NODES] = { 0 };
	struct s3model m = { .part = (1 << 20) / 10 };
	void *p = make(&ummap_policy_s3fifo, "");
	long least = m.part, most = m.part;
	int last = 0;

	srand(11);
	for (unsigned now = 1; now <= 200000; now++) {
		int n = model_node(&m, known, last, !(now / 50000 & 1));
		char what = model_choice(&known[n]);

		last = what == 'g' ? n : last;
		step(&ummap_policy_s3fifo, p, what, &nodes[n]);
		model_step(&m, what, n);
		learn(&known[n], what, now);
		check_model(&m, p, nodes, now);
		least = m.part < least ? m.part : least;
		most = m.part > most ? m.part : most;
	}
	/* The part has had small and large values. */
	cr_expect_lt(least, (1 << 20) / 20, "%ld", least);
	cr_expect_gt(most, (1 << 20) / 5, "%ld", most);
	ummap_policy_s3fifo.destroy(p);
}
