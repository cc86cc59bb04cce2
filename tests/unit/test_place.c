/* SPDX-License-Identifier: BSD-3-Clause */
/* Places of frames on a machine with one node, as if it had two; and the kinds of memory nodes,
 * of a machine that hwloc reads from a file. */
#include "base/place.h"
#include "common.h"
#include "memory/frame.h"
#include "memory/nodes.h"

#include <criterion/criterion.h>

#define SEG (64 * KIB)
#define BUDGET (4 * MIB)

static uint8_t *map_two_places(size_t size)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *base;

	setenv("UMMAP_MEM_LIMIT", "4M", 1);
	setenv("UMMAP_MEMCONFIG", "static", 1);
	setenv("UMMAP_GROUP", "test_place", 1);
	unsetenv("UMMAP_ENGINE");
	check(umstart() == 0);
	place_count = 2;
	place_set_thread(0);
	attr.seg_size = SEG;
	attr.policy = "fifo";
	check(ummap_open("mem:16M", size, 0, READ_WRITE, &attr, &base) == 0);
	check(umadvise(base, size, UMMAP_ADV_RANDOM) == 0);
	return base;
}

static void store_all(uint8_t *base, size_t size, uint8_t value)
{
	for (size_t at = 0; at < size; at += SEG)
		*(volatile uint8_t *)(base + at) = value;
}

/* The frames of a full budget go from one place to the other. */
Test(place, budget)
{
	size_t size = 16 * MIB;
	uint8_t *base = map_two_places(size);

	for (unsigned i = 0; i < 4; i++) {
		place_set_thread(i % 2);
		store_all(base, size, (uint8_t)(i + 1));
		cr_assert_geq(frame_held_at(i % 2), BUDGET / 2, "%zu", frame_held_at(i % 2));
		cr_assert_leq(frame_held_at(1 - i % 2), BUDGET / 8, "%zu",
			      frame_held_at(1 - i % 2));
	}
	for (size_t at = 0; at < size; at += SEG)
		cr_assert_eq(base[at], 4);
	cr_assert_eq(umunmap(base, 0), 0);
}

/* Readahead, in the threads of the library, takes frames of the place of the reader. */
Test(place, readahead)
{
	size_t size = 3 * MIB;
	uint8_t *base = map_two_places(size), sum = 0;

	store_all(base, size, 1);
	check(umsync(base, 1) == 0);
	check(umadvise(base, size, UMMAP_ADV_SEQUENTIAL) == 0);
	place_set_thread(1);
	for (size_t at = 0; at < size; at += SEG)
		sum += *(volatile uint8_t *)(base + at);
	cr_assert_eq(sum, size / SEG);
	cr_assert_gt(frame_held_at(1), 0);
	cr_assert_eq(umunmap(base, 0), 0);
}

/* Writes an object of hwloc's XML, whose processors are a set of bits. */
static void write_node(FILE *f, unsigned number, unsigned processors)
{
	fprintf(f, "<object type=\"NUMANode\" os_index=\"%u\" cpuset=\"%#x\" "
		"complete_cpuset=\"%#x\" nodeset=\"%#x\" "
		"complete_nodeset=\"%#x\" gp_index=\"%u\" local_memory=\"%zu\"/>\n",
		number, processors, processors, 1u << number, 1u << number, 10 + number,
		(number + 1) * MIB);
}

static void write_package(FILE *f, unsigned number, unsigned nodes)
{
	fprintf(f, "<object type=\"Package\" os_index=\"%u\" cpuset=\"%#x\" "
		"complete_cpuset=\"%#x\" nodeset=\"%#x\" "
		"complete_nodeset=\"%#x\" gp_index=\"%u\">\n", number, 1u << number,
		1u << number, nodes, nodes, 2 + number);
	for (unsigned i = 0; i < 8; i++) {
		if (nodes >> i & 1)
			write_node(f, i, 1u << number);
	}
	fprintf(f, "<object type=\"PU\" os_index=\"%u\" cpuset=\"%#x\" complete_cpuset=\"%#x\" "
		"nodeset=\"%#x\" complete_nodeset=\"%#x\" gp_index=\"%u\"/>\n</object>\n", number,
		1u << number, 1u << number, nodes, nodes, 4 + number);
}

static void write_attribute(FILE *f, const char *name, int flags, const unsigned values[5])
{
	fprintf(f, "<memattr name=\"%s\" flags=\"%d\">\n", name, flags);
	for (unsigned i = 0; i < 5; i++) {
		if (values[i])
			fprintf(f, "<memattr_value target_obj_type=\"NUMANode\" "
				"target_obj_gp_index=\"%u\" value=\"%u\" "
				"initiator_cpuset=\"%#x\"/>\n", 10 + i, values[i],
				i == 1 ? 2 : 1);
	}
	fprintf(f, "</memattr>\n");
}

/* hwloc presents a machine of two processors: their nodes 0 and 1, and near the first one, node 2
 * with high bandwidth, node 3 with high latency, and node 4, of which nothing is known. */
Test(place, kinds)
{
	static const unsigned bandwidths[5] = { 200000, 200000, 800000, 50000 };
	static const unsigned latencies[5] = { 100, 100, 120, 250 };
	static const char *const kinds[5] = { "dram", "dram", "hbm", "cxl", "cxl" };
	struct memory_node nodes[8];
	char path[320];
	FILE *f = fdopen(temp_named("machine.xml", 0, path), "w");
	int n;

	check(f != NULL);
	fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
		"<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" "
		"allowed_cpuset=\"0x3\" nodeset=\"0x1f\" complete_nodeset=\"0x1f\" "
		"allowed_nodeset=\"0x1f\" gp_index=\"1\">\n");
	write_package(f, 0, 0x1d);
	write_package(f, 1, 0x2);
	fprintf(f, "</object>\n");
	write_attribute(f, "Bandwidth", 5, bandwidths);
	write_attribute(f, "Latency", 6, latencies);
	fprintf(f, "</topology>\n");
	check(fclose(f) == 0);
	check(setenv("HWLOC_XMLFILE", path, 1) == 0);
	n = nodes_find(nodes, 8);
	if (n == -EOPNOTSUPP)
		cr_skip_test("no hwloc");
	cr_assert_eq(n, 5, "%d", n);
	for (unsigned i = 0; i < 5; i++) {
		cr_assert_eq(nodes[i].number, i);
		cr_assert_eq(nodes[i].has_processors, i < 2);
		cr_assert_eq(nodes[i].bytes, (i + 1) * MIB);
		cr_assert_eq(nodes[i].bandwidth, bandwidths[i]);
		cr_assert_eq(nodes[i].latency, latencies[i]);
		cr_assert_str_eq(nodes[i].kind, kinds[i]);
	}
	cr_assert_eq(nodes_find(nodes, 2), 2);
}
