/* SPDX-License-Identifier: BSD-3-Clause */
/* Places of frames on a machine with one node, as if it had two; and the kinds of memory nodes,
 * from files as those of the kernel. */
#include "base/place.h"
#include "common.h"
#include "memory/frame.h"
#include "memory/tiers.h"

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

static void write_file(const char *node, const char *name, const char *text)
{
	char path[400];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/%s", temp_dir(), node, name);
	f = fopen(path, "w");
	check(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

static void make_node(unsigned number, const char *processors, const char *bandwidth,
		      const char *latency)
{
	static const char *const folders[] = { "", "/access0", "/access0/initiators" };
	char node[16], meminfo[64], path[400];

	snprintf(node, sizeof(node), "node%u", number);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s%s", temp_dir(), node, folders[i]);
		check(mkdir(path, 0700) == 0);
	}
	snprintf(meminfo, sizeof(meminfo), "Node %u MemTotal:       %u kB\n", number,
		 1024 * (number + 1));
	write_file(node, "meminfo", meminfo);
	write_file(node, "cpulist", processors);
	if (bandwidth)
		write_file(node, "access0/initiators/read_bandwidth", bandwidth);
	if (latency)
		write_file(node, "access0/initiators/read_latency", latency);
}

Test(place, kinds)
{
	struct memory_node nodes[8];

	make_node(0, "0-3\n", "200000\n", "100\n");
	make_node(1, "4-7\n", "200000\n", "100\n");
	make_node(2, "\n", "800000\n", "120\n");
	make_node(3, "\n", "50000\n", "250\n");
	make_node(5, "\n", NULL, NULL);
	cr_assert_eq(tiers_read_nodes(temp_dir(), nodes, 8), 5);
	cr_assert_str_eq(nodes[0].kind, "dram");
	cr_assert_str_eq(nodes[1].kind, "dram");
	cr_assert_str_eq(nodes[2].kind, "hbm");
	cr_assert_str_eq(nodes[3].kind, "cxl");
	cr_assert_str_eq(nodes[4].kind, "cxl");
	cr_assert_eq(nodes[4].number, 5);
	cr_assert_eq(nodes[2].bytes, 3 * MIB);
	cr_assert_eq(nodes[2].bandwidth, 800000);
	cr_assert_eq(nodes[3].latency, 250);
	cr_assert_eq(tiers_read_nodes(temp_dir(), nodes, 2), 2);
}
