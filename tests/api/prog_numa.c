/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * On a machine with several NUMA nodes: segments are on the node of the thread that accesses them,
 * also under a budget and with readahead; a memory policy of the process counts; each tier is on
 * its nodes; the kinds of memory are those that the firmware tells; and nothing is lost with memory
 * that goes offline. tests/check-vm runs this in a virtual machine whose nodes 0 and 1 have
 * processors, and whose nodes 2 and 3 are memory with high bandwidth and with high latency.
 *
 *	prog_numa [PART]
 */
#include "common.h"
#include "uffd.h"

#include <glob.h>
#include <linux/mempolicy.h>
#include <sched.h>

#define SEG (64 * KIB)
#define PAGE (4 * KIB)
#define FIRST_OF_TIERS 4 /* first part about tiers */

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

/* Runs the calling thread on a processor of a node. */
static void run_on(unsigned node)
{
	cpu_set_t set;
	char path[128];

	CPU_ZERO(&set);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpu%u", node, cpu);
		if (exists(path))
			CPU_SET(cpu, &set);
	}
	check(sched_setaffinity(0, sizeof(set), &set) == 0);
}

/* Returns how many segments of a mapping are on a node. */
static size_t count_on(const uint8_t *base, size_t size, int node)
{
	size_t on = 0;

	for (size_t at = 0; at < size; at += SEG) {
		void *page = (void *)(uintptr_t)(base + at);
		int where = -1;

		check(syscall(SYS_move_pages, 0, 1ul, &page, NULL, &where, 0) == 0);
		on += where == node;
	}
	return on;
}

static uint8_t *map_store(const char *uri, size_t size, const char *tiers)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *base;

	attr.seg_size = SEG;
	attr.policy = "fifo";
	attr.tiers = tiers;
	check(ummap_open(uri, size, 0, READ_WRITE, &attr, &base) == 0);
	return base;
}

static uint8_t *map_zeros(size_t size, const char *tiers)
{
	char uri[32];

	snprintf(uri, sizeof(uri), "mem:%zu", size);
	return map_store(uri, size, tiers);
}

static void store_all(uint8_t *base, size_t size)
{
	for (size_t at = 0; at < size; at += PAGE)
		*(volatile uint8_t *)(base + at) = 1;
}

/* ---- Parts of the test, each in a process of its own ---- */

static void place_by_thread(void)
{
	size_t size = 8 * MIB;
	uint8_t *maps[2];

	for (int i = 0; i < 4; i++) {
		run_on(i % 2);
		if (i < 2)
			maps[i] = map_zeros(size, NULL);
		/* In the last two rounds, each thread frees and uses again the other's frames. */
		check(umsync_range(maps[i % 2], size, UMMAP_EVICT) == 0);
		store_all(maps[i % 2], size);
		check(count_on(maps[i % 2], size, i % 2) == size / SEG,
		      "round %d: %zu, %zu, %zu, %zu", i, count_on(maps[i % 2], size, 0),
		      count_on(maps[i % 2], size, 1), count_on(maps[i % 2], size, 2),
		      count_on(maps[i % 2], size, 3));
	}
	check(umsync(maps[0], 1) == 0);
	run_on(1);
	store_all(maps[0], size);
	check(count_on(maps[0], size, 1) == size / SEG);
}

static void place_in_budget(void)
{
	size_t size = 16 * MIB;
	uint8_t *base;

	setenv("UMMAP_MEM_LIMIT", "4M", 1);
	run_on(0);
	base = map_zeros(size, NULL);
	check(umadvise(base, size, UMMAP_ADV_RANDOM) == 0);
	store_all(base, size);
	check(count_on(base, size, 0) > 0 && count_on(base, size, 1) == 0);
	run_on(1);
	for (int i = 0; i < 2; i++)
		store_all(base, size);
	check(count_on(base, size, 1) > 0 && count_on(base, size, 0) == 0, "%zu, %zu",
	      count_on(base, size, 1), count_on(base, size, 0));
}

static void place_readahead(void)
{
	size_t size = 16 * MIB;
	char path[320], uri[400];
	int fd = temp_named("file", size, path);
	uint8_t *base;

	file_fill(fd, 0, size, 0, 1);
	snprintf(uri, sizeof(uri), "posix:%s", path);
	run_on(1);
	base = map_store(uri, size, NULL);
	for (size_t at = 0; at < size; at += SEG)
		check_bytes(base + at, SEG, at, 1);
	check(stat_of(base).readahead_hits > 0);
	check(count_on(base, size, 0) == 0, "%zu", count_on(base, size, 0));
}

static void keep_policy(void)
{
	unsigned long nodes = 1ul << 1;
	uint8_t *base;

	check(syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, 64) == 0);
	run_on(0);
	base = map_zeros(8 * MIB, NULL);
	store_all(base, 8 * MIB);
	check(count_on(base, 8 * MIB, 1) == 8 * MIB / SEG);
}

static void place_in_tiers(void)
{
	size_t size = 8 * MIB;
	uint8_t *base;

	setenv("UMMAP_TIERS", "near=node:0:2M,far=node:1", 1);
	/* Samples make segments inactive, which have no page at their addresses. */
	setenv("UMMAP_TIERS_POLICY", "static", 1);
	run_on(1);
	base = map_zeros(size, NULL);
	store_all(base, size);
	check(count_on(base, size, 0) == 2 * MIB / SEG, "%zu", count_on(base, size, 0));
	check(count_on(base, size, 1) == 6 * MIB / SEG);
	check(umadvise(base, MIB, UMMAP_ADV_TIER + 0) == 0);
	check(count_on(base, MIB, 0) == MIB / SEG);
	check(umadvise(base, size, UMMAP_ADV_TIER + 1) == 0);
	check(count_on(base, size, 1) == size / SEG);
}

/* Whether the firmware tells bandwidths. */
static bool has_attributes(void)
{
	return exists("/sys/devices/system/node/node2/access0/initiators/read_bandwidth");
}

static void find_kinds(void)
{
	static const char *const names[] = { "hbm", "dram", "cxl" };
	static const int nodes[] = { 2, 0, 3 };

	if (!has_attributes())
		return;
	setenv("UMMAP_TIERS", "hbm:4M,dram:4M,cxl:4M", 1);
	setenv("UMMAP_TIERS_POLICY", "static", 1);
	run_on(0);
	for (int i = 0; i < 3; i++) {
		uint8_t *base = map_zeros(2 * MIB, names[i]);

		store_all(base, 2 * MIB);
		check(count_on(base, 2 * MIB, nodes[i]) == 2 * MIB / SEG, "%s", names[i]);
	}
}

static void find_best(void)
{
	uint8_t *base;

	if (!has_attributes())
		return;
	setenv("UMMAP_TIERS", "bandwidth:4M,capacity", 1);
	setenv("UMMAP_TIERS_POLICY", "static", 1);
	base = map_zeros(2 * MIB, "bandwidth");
	store_all(base, 2 * MIB);
	check(count_on(base, 2 * MIB, 2) == 2 * MIB / SEG);
}

/* Sets all blocks of memory of a node offline or online. Returns how many of them were set. */
static unsigned set_blocks(const char *node, const char *state)
{
	unsigned set = 0;
	char pattern[128];
	glob_t blocks;

	snprintf(pattern, sizeof(pattern), "/sys/devices/system/node/node%s/memory*/state", node);
	check(glob(pattern, 0, NULL, &blocks) == 0);
	for (size_t i = 0; i < blocks.gl_pathc; i++) {
		int fd = open(blocks.gl_pathv[i], O_WRONLY | O_CLOEXEC);

		check(fd >= 0, "%s", blocks.gl_pathv[i]);
		set += write(fd, state, strlen(state)) > 0;
		close(fd);
	}
	globfree(&blocks);
	return set;
}

/* Segments of a tier whose node goes offline move to other nodes, and keep their contents. Blocks
 * in which the kernel has data of its own stay, so the tier has segments in many blocks. */
static void lose_node(void)
{
	const char *node = getenv("UMMAP_TEST_OFFLINE");
	size_t size = 384 * MIB, before, after;
	unsigned taken;
	char tiers[80];
	uint8_t *base;

	if (!node)
		return;
	snprintf(tiers, sizeof(tiers), "fast=node:0:4M,slow=node:%s:512M,last=node:1", node);
	setenv("UMMAP_TIERS", tiers, 1);
	setenv("UMMAP_TIERS_POLICY", "static", 1);
	setenv("UMMAP_MEM_LIMIT", "512M", 1);
	base = map_zeros(size, "slow");
	for (size_t at = 0; at < size; at += SEG)
		fill(base + at, 64, at, 1);
	before = count_on(base, size, atoi(node));
	check(before == size / SEG, "%zu", before);
	taken = set_blocks(node, "offline");
	after = count_on(base, size, atoi(node));
	printf("%u blocks offline; %zu of %zu segments left on the node\n", taken, after, before);
	fflush(stdout);
	check(taken > 0 && after < before);
	for (size_t at = 0; at < size; at += SEG) {
		check_bytes(base + at, 64, at, 1);
		fill(base + at, 64, at, 2);
	}
	check(umsync(base, 1) == 0);
	for (size_t at = 0; at < size; at += SEG)
		check_bytes(base + at, 64, at, 2);
	check(umunmap(base, 0) == 0);
	set_blocks(node, "online");
}

int main(int argc, char **argv)
{
	static const struct test_part parts[] = {
		{ "thread", place_by_thread }, { "budget", place_in_budget },
		{ "readahead", place_readahead }, { "policy", keep_policy },
		[FIRST_OF_TIERS] = { "tiers", place_in_tiers },
		{ "kinds", find_kinds }, { "best", find_best }, { "offline", lose_node },
	};
	size_t n = sizeof(parts) / sizeof(*parts);

	if (!exists("/sys/devices/system/node/node1/cpulist")) {
		printf("skipped: this machine has one NUMA node\n");
		return 77;
	}
	set_group();
	setenv("UMMAP_MEM_LIMIT", "64M", 1);
	setenv("UMMAP_MEMCONFIG", "static", 1);
	for (size_t i = 0; i < n; i++) {
		if (argc == 1 || strcmp(argv[1], parts[i].name) == 0)
			run_test_part(&parts[i]);
	}
	setenv("UMMAP_ENGINE", "uffd", 1);
	for (size_t i = FIRST_OF_TIERS; i < n - 1 && has_uffd(); i++) {
		if (argc == 1 || strcmp(argv[1], parts[i].name) == 0)
			run_test_part(&parts[i]);
	}
	return 0;
}
