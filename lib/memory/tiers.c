/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/tiers.h"

#include "base/log.h"
#include "common/size.h"
#include "memory/dax.h"
#include "memory/nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KINDS "NAME=node:N, node:N, hbm, dram, cxl, bandwidth, latency, capacity or " \
	      "dax:FOLDER, each with an optional :SIZE"

unsigned tier_count;
struct tier tiers[UMMAP_MAX_TIERS];

/* ---- The value of UMMAP_TIERS ---- */

static uint64_t attribute_of(const struct memory_node *node, const char *name)
{
	if (strcmp(name, "bandwidth") == 0)
		return node->bandwidth;
	if (strcmp(name, "latency") == 0)
		return node->latency ? UINT64_MAX - node->latency : 0;
	return node->bytes;
}

static bool is_attribute(const char *name)
{
	return strcmp(name, "bandwidth") == 0 || strcmp(name, "latency") == 0 ||
	       strcmp(name, "capacity") == 0;
}

/* Returns the set of the nodes that are best in an attribute; 0: the attribute is unknown. */
static uint64_t find_best(const struct memory_node *nodes, unsigned n, const char *name)
{
	uint64_t best = 0, set = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t value = attribute_of(&nodes[i], name);

		if (!value || value < best)
			continue;
		set = (value > best ? 0 : set) | 1ull << nodes[i].number;
		best = value;
	}
	return set;
}

static bool is_kind(const char *name)
{
	return strcmp(name, "hbm") == 0 || strcmp(name, "dram") == 0 || strcmp(name, "cxl") == 0;
}

/* Returns the nodes of this number that the process may use. */
static uint64_t find_number(const char *text)
{
	uint64_t number;

	return size_parse_count(text, &number) == 0 && number < MAX_NODES ?
	       place_allowed_nodes() & 1ull << number : 0;
}

/* Returns the nodes that have a kind, or are best in an attribute, and that the process may use. */
static uint64_t find_quality(const char *name, const struct memory_node *nodes, unsigned n)
{
	uint64_t set = 0;

	if (is_attribute(name))
		return find_best(nodes, n, name) & place_allowed_nodes();
	for (unsigned i = 0; i < n; i++)
		set |= strcmp(nodes[i].kind, name) == 0 ? 1ull << nodes[i].number : 0;
	return set & place_allowed_nodes();
}

/* Sets *set to the nodes that a tier without its size names. */
static int find_nodes(const char *text, uint64_t *set)
{
	struct memory_node nodes[MAX_NODES];
	int n;

	if (strncmp(text, "node:", 5) == 0) {
		*set = find_number(text + 5);
		return *set ? 0 : fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: this process "
				       "may use no node of that number. `ummap info` lists the "
				       "nodes of the machine", text);
	}
	if (!is_attribute(text) && !is_kind(text))
		return fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: there is no such tier. "
			    "Try " KINDS, text);
	n = nodes_find(nodes, MAX_NODES);
	if (n < 0)
		return -EINVAL;
	*set = find_quality(text, nodes, (unsigned)n);
	return *set ? 0 : fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: no memory that this "
			       "process may use is known to be of that kind. `ummap info` lists "
			       "the nodes of the machine", text);
}

/* Segments that change places need a frame more for a moment, so a tier does not use this part of
 * the free space of its file system. */
#define DAX_RESERVE_PART 16

static bool is_dax(const char *text)
{
	return strncmp(text, "dax:", 4) == 0;
}

/* Separates the size after the last colon from the text, if there is one. node:2 and dax:/a:b/c
 * have none. */
static int cut_size(char *text, uint64_t *size)
{
	bool has_prefix = is_dax(text) || strncmp(text, "node:", 5) == 0;
	char *colon = strrchr(text, ':');
	bool is_known;

	if (!colon || (has_prefix && colon == strchr(text, ':')) || strchr(colon, '/'))
		return 0;
	*colon = '\0';
	is_known = has_prefix || is_kind(text) || is_attribute(text);
	*colon = ':';
	if (!is_known)
		return 0;
	if (size_parse(colon + 1, size) < 0 || !*size)
		return fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: '%.40s' must be " A_SIZE
			    " of at least 1", text, colon + 1);
	*colon = '\0';
	return 0;
}

/* Opens the file of a tier, whose default size is that of the free space. */
static int open_dax(const char *path, struct place *place)
{
	uint64_t space;

	place->file = dax_open(path, &space);
	if (place->file >= 0 && !place->limit)
		place->limit = space - space / DAX_RESERVE_PART;
	return place->file < 0 ? place->file : 0;
}

static int set_name(struct tier *tier, const char *name)
{
	if (!*name || snprintf(tier->name, sizeof(tier->name), "%s", name) >= TIER_NAME_LEN)
		return fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: a name must have 1 to %d "
			    "characters", name, TIER_NAME_LEN - 1);
	for (unsigned i = 0; i < tier_count; i++) {
		if (strcmp(tiers[i].name, tier->name) == 0)
			return fail(EINVAL, "cannot use UMMAP_TIERS: two tiers have the name "
				    "'%s'. Try other names, as in fast=node:0", tier->name);
	}
	return 0;
}

static int add_tier(char *text)
{
	struct tier *tier = &tiers[tier_count];
	char *equals = text + strcspn(text, "=:"), *memory = *equals == '=' ? equals + 1 : text;
	int err;

	if (!*text)
		return fail(EINVAL, "cannot use UMMAP_TIERS: an element of the list is empty. Try "
			    KINDS);
	if (tier_count == UMMAP_MAX_TIERS)
		return fail(EINVAL, "cannot use UMMAP_TIERS: it has more than %d tiers",
			    UMMAP_MAX_TIERS);
	tier->place = (struct place){ .file = -1 };
	err = cut_size(memory, &tier->place.limit);
	if (memory > text)
		*equals = '\0';
	if (!err)
		err = set_name(tier, memory == text && is_dax(text) ? "dax" : text);
	if (!err)
		err = is_dax(memory) ? open_dax(memory + 4, &tier->place) :
				       find_nodes(memory, &tier->place.nodes);
	tier_count += !err;
	return err;
}

void tiers_forget(void)
{
	for (; tier_count > 0; tier_count--) {
		if (tiers[tier_count - 1].place.file >= 0)
			close(tiers[tier_count - 1].place.file);
	}
}

unsigned tiers_with_files(void)
{
	unsigned set = 0;

	for (unsigned i = 0; i < tier_count; i++)
		set |= place_has_file(i) ? 1u << i : 0;
	return set;
}

int tiers_start(const char *text)
{
	/* Frames of mappings without tiers have a place without nodes. */
	struct place all[UMMAP_MAX_TIERS + 1];
	char *copy, *rest, *one;
	int err = 0;

	tiers_forget();
	if (!text)
		return 0;
	rest = copy = strdup(text);
	if (!copy)
		return fail(ENOMEM, "cannot read UMMAP_TIERS: not enough memory");
	while (!err && (one = strsep(&rest, ",")))
		err = add_tier(one);
	free(copy);
	if (err) {
		tiers_forget();
		return err;
	}
	for (unsigned i = 0; i < tier_count; i++)
		all[i] = tiers[i].place;
	all[tier_count] = (struct place){ .file = -1 };
	place_start_tiers(tier_count + 1, all);
	return 0;
}

/* Returns the number of the tier whose name is the first `len` bytes, or tier_count. */
static unsigned find_tier(const char *name, size_t len)
{
	unsigned i = 0;

	while (i < tier_count && (strlen(tiers[i].name) != len ||
				  memcmp(tiers[i].name, name, len) != 0))
		i++;
	return i;
}

int tiers_find(const char *names, unsigned *set)
{
	const char *all = names;

	*set = names ? 0 : (1u << tier_count) - 1;
	if (names && !tier_count)
		return fail(EINVAL, "cannot use the tiers '%.100s': the process has none. Try to "
			    "set UMMAP_TIERS (ummap-tiers(7))", names);
	while (names) {
		size_t len = strcspn(names, ",");
		unsigned tier = find_tier(names, len);

		if (tier == tier_count)
			return fail(EINVAL, "cannot use the tiers '%.100s': UMMAP_TIERS has no "
				    "tier '%.*s'", all, (int)(len < 100 ? len : 100), names);
		*set |= 1u << tier;
		names = names[len] ? names + len + 1 : NULL;
	}
	return 0;
}
