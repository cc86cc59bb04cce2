/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the nodes and their attributes from sysfs, from the same files as hwloc(7), so that the
 * library needs no other library for it: bandwidth and latency come from the firmware (HMAT).
 */
#include "memory/tiers.h"

#include "base/log.h"
#include "base/place.h"
#include "common/size.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE_FOLDER "/sys/devices/system/node"
#define KINDS "NAME=node:N, node:N, hbm, dram, cxl, bandwidth, latency or capacity, each with an " \
	      "optional :SIZE"

unsigned tier_count;
struct tier tiers[UMMAP_MAX_TIERS];
bool tiers_are_static;

/* ---- Nodes ---- */

/* Reads the number after `word` in a file of a node; without a word, the first number. 0: none. */
static uint64_t read_number(const char *folder, unsigned node, const char *name, const char *word)
{
	char path[256], text[4096];
	const char *at = text;
	size_t len;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/node%u/%s", folder, node, name) >= (int)sizeof(path))
		return 0;
	f = fopen(path, "re");
	if (!f)
		return 0;
	len = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[len] = '\0';
	if (word)
		at = strstr(text, word);
	return at ? strtoull(at + (word ? strlen(word) : 0), NULL, 10) : 0;
}

/* Whether the file has any text, such as a list of processors. */
static bool has_text(const char *folder, unsigned node, const char *name)
{
	char path[256];
	int c = EOF;
	FILE *f;

	snprintf(path, sizeof(path), "%s/node%u/%s", folder, node, name);
	f = fopen(path, "re");
	if (f) {
		c = getc(f);
		fclose(f);
	}
	return c != EOF && c != '\n';
}

/* Tells memory without processors from ordinary memory: it is high-bandwidth memory if it is faster
 * than all memory with processors, otherwise an expansion such as CXL. */
static void set_kinds(struct memory_node *nodes, unsigned n)
{
	uint64_t ordinary = 0;

	for (unsigned i = 0; i < n; i++) {
		if (nodes[i].has_processors && nodes[i].bandwidth > ordinary)
			ordinary = nodes[i].bandwidth;
	}
	for (unsigned i = 0; i < n; i++)
		nodes[i].kind = nodes[i].has_processors ? "dram" :
				ordinary && nodes[i].bandwidth > ordinary ? "hbm" : "cxl";
}

unsigned tiers_read_nodes(const char *folder, struct memory_node *nodes, unsigned most)
{
	unsigned n = 0;

	folder = folder ? folder : NODE_FOLDER;
	for (unsigned i = 0; i < MAX_NODES && n < most; i++) {
		uint64_t kib = read_number(folder, i, "meminfo", "MemTotal:");

		if (!kib)
			continue;
		nodes[n++] = (struct memory_node){
			.number = i, .bytes = kib << 10,
			.has_processors = has_text(folder, i, "cpulist"),
			.bandwidth = read_number(folder, i, "access0/initiators/read_bandwidth",
						 NULL),
			.latency = read_number(folder, i, "access0/initiators/read_latency", NULL),
		};
	}
	set_kinds(nodes, n);
	return n;
}

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

/* Sets *set to the nodes that a tier without its size names. */
static int find_nodes(const char *text, uint64_t *set)
{
	struct memory_node nodes[MAX_NODES];
	unsigned n = tiers_read_nodes(NULL, nodes, MAX_NODES);
	uint64_t number;

	*set = 0;
	if (strncmp(text, "dax:", 4) == 0)
		return fail(EINVAL, "cannot use '%.200s' in UMMAP_TIERS: frames must be on NUMA "
			    "nodes. Try 'daxctl reconfigure-device --mode=system-ram' for a DAX "
			    "device, which makes it a node", text);
	if (strncmp(text, "node:", 5) == 0) {
		if (size_parse_count(text + 5, &number) < 0)
			return fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: node: needs a "
				    "number, as in node:0", text);
		for (unsigned i = 0; i < n; i++)
			*set |= nodes[i].number == number ? 1ull << number : 0;
	} else if (is_attribute(text)) {
		*set = find_best(nodes, n, text);
	} else if (is_kind(text)) {
		for (unsigned i = 0; i < n; i++)
			*set |= strcmp(nodes[i].kind, text) == 0 ? 1ull << nodes[i].number : 0;
	} else {
		return fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: there is no such tier. "
			    "Try " KINDS, text);
	}
	if (!*set)
		return fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: no memory of this machine "
			    "is known to be of that kind. `ummap info` lists its nodes", text);
	*set &= place_allowed_nodes();
	return *set ? 0 : fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: the cpuset of this "
			       "process does not allow its nodes", text);
}

/* Separates the size after the last colon from the text, if there is one. node:2 has none. */
static int cut_size(char *text, uint64_t *size)
{
	char *colon = strrchr(text, ':');

	*size = 0;
	if (!colon || (colon == text + 4 && strncmp(text, "node:", 5) == 0))
		return 0;
	if (size_parse(colon + 1, size) < 0 || !*size)
		return fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: '%.40s' must be " A_SIZE
			    " of at least 1", text, colon + 1);
	*colon = '\0';
	return 0;
}

static int add_tier(char *text)
{
	struct tier *tier = &tiers[tier_count];
	char *equals = strchr(text, '='), *what = equals ? equals + 1 : text;
	int err;

	if (tier_count == UMMAP_MAX_TIERS)
		return fail(EINVAL, "cannot use UMMAP_TIERS: it has more than %d tiers",
			    UMMAP_MAX_TIERS);
	err = strncmp(what, "dax:", 4) == 0 ? 0 : cut_size(what, &tier->size);
	if (!err)
		err = find_nodes(what, &tier->nodes);
	if (err)
		return err;
	if (equals)
		*equals = '\0';
	if (!*text || snprintf(tier->name, sizeof(tier->name), "%s", text) >= TIER_NAME_LEN)
		return fail(EINVAL, "cannot use '%.100s' in UMMAP_TIERS: a name must have 1 to %d "
			    "characters", text, TIER_NAME_LEN - 1);
	for (unsigned i = 0; i < tier_count; i++) {
		if (strcmp(tiers[i].name, tier->name) == 0)
			return fail(EINVAL, "cannot use UMMAP_TIERS: two tiers have the name "
				    "'%s'. Try other names, as in fast=node:0", tier->name);
	}
	tier_count++;
	return 0;
}

int tiers_start(const char *text)
{
	char *copy, *rest, *one;
	uint64_t nodes[UMMAP_MAX_TIERS + 1] = { 0 }, limits[UMMAP_MAX_TIERS + 1] = { 0 };
	int err = 0;

	tier_count = 0;
	if (!text)
		return 0;
	rest = copy = strdup(text);
	if (!copy)
		return fail(ENOMEM, "cannot read UMMAP_TIERS: not enough memory");
	while (!err && (one = strsep(&rest, ",")))
		err = add_tier(one);
	free(copy);
	if (err) {
		tier_count = 0;
		return err;
	}
	for (unsigned i = 0; i < tier_count; i++) {
		nodes[i] = tiers[i].nodes;
		limits[i] = tiers[i].size;
	}
	/* Frames of mappings without tiers have a place without nodes. */
	place_start_tiers(tier_count + 1, nodes, limits);
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
	*set = names ? 0 : (1u << tier_count) - 1;
	if (names && !tier_count)
		return fail(EINVAL, "cannot use the tiers '%.100s': the process has none. Try to "
			    "set UMMAP_TIERS (ummap-tiers(7))", names);
	while (names) {
		size_t len = strcspn(names, ",");
		unsigned tier = find_tier(names, len);

		if (tier == tier_count)
			return fail(EINVAL, "cannot use the tier '%.*s': UMMAP_TIERS has none of "
				    "that name", (int)(len < 100 ? len : 100), names);
		*set |= 1u << tier;
		names = names[len] ? names + len + 1 : NULL;
	}
	return 0;
}
