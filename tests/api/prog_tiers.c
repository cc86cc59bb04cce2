/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tiers that are all on node 0: refused values; the limit of each tier; demotions that keep dirty
 * segments in memory; promotions of segments that are used; ranges and mappings that stay in a
 * tier; and prog_stress, whose threads store while segments move. Everything runs with the engine
 * uffd, too, and if UMMAP_TEST_DAX is a folder on persistent memory (tests/check-vm), with a tier
 * there. Kernels before Linux 5.13 do not move mappings of files; there, such a tier is refused.
 */
#include "common.h"
#include "uffd.h"

#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/utsname.h>

#define SEG (64 * KIB)
#define FAST (2 * MIB)
#define SLOW (4 * MIB)
#define DAX_PARTS 4 /* parts of the test that are only for DAX */
#define TIERS "fast=node:0:2M,slow=node:0:4M,last=node:0"

/* Memory of the tiers with the name "slow". */
#define SLOW_TIER "slow=node:0"
static const char *dax_folder;

static void set_tiers(const char *tiers, const char *policy, const char *limit)
{
	const char *slow = dax_folder ? strstr(tiers, SLOW_TIER) : NULL;
	char text[4096];

	if (slow)
		snprintf(text, sizeof(text), "%.*sslow=dax:%s%s", (int)(slow - tiers), tiers,
			 dax_folder, slow + strlen(SLOW_TIER));
	check(setenv("UMMAP_TIERS", slow ? text : tiers, 1) == 0);
	check(setenv("UMMAP_TIERS_POLICY", policy, 1) == 0);
	check(setenv("UMMAP_MEM_LIMIT", limit, 1) == 0);
	check(setenv("UMMAP_MEMCONFIG", "static", 1) == 0);
}

static uint8_t *map_tiers(size_t size, const char *tiers, int *fd)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	char uri[64];
	void *base;

	*fd = temp_file(size);
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", *fd);
	attr.seg_size = SEG;
	attr.tiers = tiers;
	check(ummap_open(uri, size, 0, READ_WRITE, &attr, &base) == 0);
	check(umadvise(base, size, UMMAP_ADV_RANDOM) == 0);
	return base;
}

static void store_all(uint8_t *base, size_t size, uint64_t seed)
{
	for (size_t at = 0; at < size; at += SEG)
		fill(base + at, SEG, at, seed);
}

/* ---- Parts of the test. Each runs in a child, because the tiers are those of the process. ---- */

static void refuse_with_words(const char *tiers, const char *words)
{
	set_tiers(tiers, "lru", "64M");
	check_fails(umstart(), EINVAL);
	check(strstr(umerrormsg(), words), "%s", umerrormsg());
}

static void refuse_values(void)
{
	static const char *const values[] = {
		"", "nodes", "node:", "node:x", "node:63", "node:0:", "node:0:0", "node:0:-1",
		"node:0,node:0", "dax:", "dax:/dev/shm:1G", "dax:/dev/null", "dax:/no/folder",
		"dax:/dev/shm:0", "a=dax:/dev/shm", "=node:0", "fast=", ",node:0",
		"a=node:0,b=node:0,c=node:0,d=node:0,e=node:0",
		"a-name-that-is-longer-than-31-characters=node:0",
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		set_tiers(values[i], "lru", "64M");
		check_fails(umstart(), EINVAL);
	}
	refuse_with_words("x=y=node:0", "cannot use 'y=node:0' in UMMAP_TIERS: there is no such");
	refuse_with_words("node:0:1M,", "an element of the list is empty");
	set_tiers("node:0", "random", "64M");
	check_fails(umstart(), EINVAL);
}

static void refuse_names(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *base;

	set_tiers(TIERS, "lru", "64M");
	attr.tiers = "fast,other";
	check_fails(ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &base), EINVAL);
	check(strstr(umerrormsg(), "the tiers 'fast,other': UMMAP_TIERS has no tier 'other'"));
	attr.tiers = "slow";
	attr.engine = UMMAP_ENGINE_SIGBUS;
	check_fails(ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &base), EINVAL);
	attr.engine = UMMAP_ENGINE_DEFAULT;
	attr.seg_size = 4 * KIB;
	check(ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &base) == 0);
	check_fails(umadvise(base, MIB, UMMAP_ADV_TIER), EINVAL);
	check_fails(umadvise(base, MIB, UMMAP_ADV_TIER + 3), EINVAL);
	check(umadvise(base, MIB, UMMAP_ADV_TIER + 1) == 0);
	check(umunmap(base, 0) == 0);
}

/* Node copies are in no tier. Messages name the flag and not the engine to which it has led. */
static void refuse_node_copies(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int fd = filled_file(MIB, 1);
	char uri[64];
	void *base;

	set_tiers(TIERS, "lru", "64M");
	unsetenv("UMMAP_ENGINE");
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	attr.tiers = "slow";
	attr.flags = UMMAP_NODE;
	check_fails(ummap_open(uri, MIB, 0, PROT_READ, &attr, &base), EINVAL);
	check(strstr(umerrormsg(), "with the flag UMMAP_NODE:"), "%s", umerrormsg());
}

/* UMMAP_NODE_CACHE does not apply to mappings that choose tiers. */
static void cache_on_node(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int fd = filled_file(MIB, 1);
	char uri[64];
	void *base;

	set_tiers(TIERS, "lru", "64M");
	unsetenv("UMMAP_ENGINE");
	check(setenv("UMMAP_NODE_CACHE", "1", 1) == 0);
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	attr.tiers = "slow";
	check(ummap_open(uri, MIB, 0, PROT_READ, &attr, &base) == 0);
	check_bytes(base, MIB, 0, 1);
	check(stat_of(NULL).tier_loads[1] > 0);
	check(umunmap(base, 0) == 0);
}

static void refuse_without_tiers(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *base;

	unsetenv("UMMAP_TIERS");
	attr.tiers = "node:0";
	check_fails(ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &base), EINVAL);
	check(stat_of(NULL).tiers == 0);
}

/* Twice as much as the first two tiers is stored: no byte is written before the sync, and the tiers
 * keep their limits. Later stores demote segments that are cold by then. */
static void demote_dirty(void)
{
	size_t size = 2 * (FAST + SLOW);
	struct umstat st;
	int fd;
	uint8_t *base;

	set_tiers(TIERS, "lru", "16M");
	base = map_tiers(size, NULL, &fd);
	store_all(base, size / 2, 1);
	for (size_t at = size / 2; at < size; at += SEG) {
		if (stat_of(NULL).tier_demotions[0] == 0)
			usleep(100000);
		fill(base + at, SEG, at, 1);
	}
	st = stat_of(NULL);
	check(st.tiers == 3);
	check(st.write_bytes == 0, "%" PRIu64, st.write_bytes);
	check(st.tier_bytes[0] <= FAST && st.tier_bytes[1] <= SLOW);
	check(st.tier_bytes[2] >= size - FAST - SLOW, "%" PRIu64, st.tier_bytes[2]);
	check(st.tier_loads[0] > FAST / SEG, "%" PRIu64, st.tier_loads[0]);
	check(st.tier_demotions[0] > 0 && st.tier_demotions[1] > 0);
	for (size_t at = 0; at < size; at += SEG)
		check_bytes(base + at, SEG, at, 1);
	check(umsync(base, 0) == 0);
	check_file(fd, 0, size, 0, 1);
	check(umunmap(base, 0) == 0);
}

/* More than all tiers together: the last tier writes. */
static void overflow(void)
{
	size_t size = 32 * MIB;
	int fd;
	uint8_t *base;

	set_tiers("fast=node:0:2M,slow=node:0:6M", "lru", "16M");
	base = map_tiers(size, NULL, &fd);
	for (uint64_t seed = 1; seed <= 2; seed++)
		store_all(base, size, seed);
	check(stat_of(NULL).write_bytes > 0);
	check(stat_of(NULL).tier_bytes[0] <= FAST);
	check(stat_of(NULL).tier_bytes[1] <= 6 * MIB);
	for (size_t at = 0; at < size; at += SEG)
		check_bytes(base + at, SEG, at, 2);
	check(umunmap(base, 1) == 0);
	check_file(fd, 0, size, 0, 2);
}

/* Segments of the slow tier that are used again and again come to the fast one. */
static void promote_used(void)
{
	size_t size = 24 * SEG;
	int fd;
	uint8_t *base;

	set_tiers("fast=node:0:1M,slow=node:0", "lru", "16M");
	base = map_tiers(size, NULL, &fd);
	store_all(base, size, 1);
	check(umsync(base, 0) == 0);
	for (int i = 0; i < 6000 && stat_of(NULL).tier_promotions[0] == 0; i++) {
		for (size_t at = size - 4 * SEG; at < size; at += SEG)
			check_bytes(base + at, 8, at, 1);
		usleep(10000);
	}
	check(stat_of(NULL).tier_promotions[0] > 0);
	check(stat_of(NULL).tier_hits[1] > 0);
	for (size_t at = 0; at < size; at += SEG)
		check_bytes(base + at, SEG, at, 1);
	check(umunmap(base, 0) == 0);
}

static const char *own_folder(void)
{
	static char path[4096];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);

	check(len > 0);
	path[len] = '\0';
	*strrchr(path, '/') = '\0';
	return path;
}

/* The policy promotes at the first use. Returns false if it was not built. */
static bool set_eager_tiers(const char *tiers, const char *limit)
{
	char folder[4200];

	snprintf(folder, sizeof(folder), "%s/plugins", own_folder());
	/* The script of mutants builds only this program. */
	if (access(folder, X_OK) < 0)
		return false;
	set_env("UMMAP_DRIVER_PATH", folder);
	set_tiers(tiers, "eager", limit);
	return true;
}

static void load_policy(void)
{
	int fd;
	uint8_t *base;

	if (!set_eager_tiers("fast=node:0:1M,slow=node:0", "16M"))
		return;
	base = map_tiers(24 * SEG, NULL, &fd);
	store_all(base, 24 * SEG, 1);
	check(umsync(base, 0) == 0);
	for (int i = 0; i < 6000 && stat_of(NULL).tier_promotions[0] == 0; i++) {
		for (size_t at = 20 * SEG; at < 24 * SEG; at += SEG)
			check_bytes(base + at, 8, at, 1);
		usleep(10000);
	}
	check(stat_of(NULL).tier_promotions[0] > 0);
	check(umunmap(base, 0) == 0);
}

static double thread_seconds(void)
{
	struct timespec t;

	check(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns the least processor time in which this machine copies so many bytes. */
static double time_of_copy(size_t size)
{
	char *from = malloc(size), *to = malloc(size);
	double least = 1;

	check(from && to);
	for (int i = 0; i < 10; i++) {
		double begin, end;

		memset(from, i, size);
		begin = thread_seconds();
		memcpy(to, from, size);
		end = thread_seconds();
		check(to[size - 1] == i);
		least = end - begin < least ? end - begin : least;
	}
	free(from);
	free(to);
	return least;
}

/* Promotions take at most 1 % of the time of a processor, and the 10 ms with which they begin. Only
 * the last one may exceed that. */
static void bound_promotions(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	size_t seg = 8 * MIB, size = 24 * seg;
	double copy = time_of_copy(seg), begin = now();
	uint64_t promotions;
	void *base;

	if (!set_eager_tiers("fast=node:0:64M,slow=node:0", "256M"))
		return;
	attr.seg_size = seg;
	check(ummap_open("mem:192M", size, 0, READ_WRITE, &attr, &base) == 0);
	check(umadvise(base, size, UMMAP_ADV_RANDOM) == 0);
	do {
		for (size_t at = 0; at < size; at += seg)
			*(volatile uint8_t *)((uint8_t *)base + at) = 1;
		usleep(10000);
		promotions = stat_of(NULL).tier_promotions[0];
	} while (now() - begin < 5 || (promotions == 0 && now() - begin < 60));
	check(promotions > 0);
	check((double)(promotions - 1) * copy < 0.01 + 0.01 * (now() - begin),
	      "%" PRIu64 " in %.1f s, each %.4f s", promotions, now() - begin, copy);
	check(umunmap(base, 0) == 0);
}

static void stay_static(void)
{
	size_t size = 4 * MIB;
	int fd;
	uint8_t *base;

	set_tiers("fast=node:0:2M,slow=node:0", "static", "16M");
	base = map_tiers(size, NULL, &fd);
	store_all(base, size, 1);
	check(stat_of(NULL).tier_demotions[0] == 0);
	check(stat_of(NULL).tier_loads[1] >= (size - FAST) / SEG);
	check(umunmap(base, 1) == 0);
	check_file(fd, 0, size, 0, 1);
}

static void keep_ranges(void)
{
	size_t size = 4 * MIB;
	int fd, other_fd;
	uint8_t *base, *other;
	uint64_t moved;

	set_tiers("fast=node:0:2M,slow=node:0", "lru", "16M");
	base = map_tiers(size, NULL, &fd);
	other = map_tiers(MIB, "slow", &other_fd);
	store_all(base, size, 1);
	/* On a slow machine, some of the last segments have taken the place of cold ones. */
	check(umadvise(base + size - MIB, MIB, UMMAP_ADV_TIER + 1) == 0);
	moved = stat_of(NULL).tier_promotions[0];
	check(umadvise(base + size - MIB, MIB, UMMAP_ADV_TIER + 0) == 0);
	check(stat_of(NULL).tier_promotions[0] - moved >= MIB / SEG);
	check(umadvise(base + size - MIB, MIB, UMMAP_ADV_ANY_TIER) == 0);
	moved = stat_of(NULL).tier_demotions[0];
	check(umadvise(base + MIB, MIB, UMMAP_ADV_TIER + 1) == 0);
	check(stat_of(NULL).tier_demotions[0] > moved);
	for (unsigned i = 1; i < 8; i++)
		check(umadvise(base + i * 2 * SEG + 2 * MIB, SEG, UMMAP_ADV_TIER + i % 2) == 0);
	check_fails(umadvise(base + 3 * MIB, SEG, UMMAP_ADV_TIER), ENOSPC);
	check(umadvise(base, size, UMMAP_ADV_ANY_TIER) == 0);
	check(umadvise(base + 3 * MIB, SEG, UMMAP_ADV_TIER) == 0);
	/* A mapping that is never in the fast tier. */
	moved = stat_of(NULL).tier_loads[0];
	store_all(other, MIB, 3);
	check(stat_of(NULL).tier_loads[0] == moved);
	check(umunmap(other, 1) == 0);
	check_file(other_fd, 0, MIB, 0, 3);
	/* A store to a segment that was clean when it moved must be noticed. */
	check(umsync(base, 0) == 0);
	check(umadvise(base, size, UMMAP_ADV_TIER + 1) == 0);
	store_all(base, size, 4);
	check(umunmap(base, 1) == 0);
	check_file(fd, 0, size, 0, 4);
}

static void use_own_tiers(void *unused)
{
	int fd;
	uint8_t *base = map_tiers(4 * MIB, "fast,slow", &fd);

	(void)unused;
	store_all(base, 4 * MIB, 2);
	check(stat_of(NULL).tiers == 3);
	check(stat_of(NULL).tier_bytes[0] > 0 && stat_of(NULL).tier_bytes[0] <= 4 * SEG);
	check(umunmap(base, 1) == 0);
	check_file(fd, 0, 4 * MIB, 0, 2);
}

/* The fork of a process with tiers has tiers of its own. */
static void fork_child(void)
{
	int fd;
	uint8_t *base;

	set_tiers("fast=node:0:256K,slow=node:0:4M,last=node:0", "lru", "16M");
	base = map_tiers(4 * MIB, NULL, &fd);
	store_all(base, 4 * MIB, 1);
	check_exits(run_child(use_own_tiers, NULL), 0);
	check(umunmap(base, 1) == 0);
	check_file(fd, 0, 4 * MIB, 0, 1);
}

/* A read-only mapping whose segment size the library chooses. */
static void read_in_tiers(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int fd = filled_file(4 * MIB, 1);
	char uri[64];
	void *base;

	set_tiers("fast=node:0:8M,last=node:0", "lru", "32M");
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	attr.tiers = "last";
	attr.seg_size = UMMAP_SEG_AUTO;
	check(ummap_open(uri, 4 * MIB, 0, PROT_READ, &attr, &base) == 0);
	check_bytes(base, 4 * MIB, 0, 1);
	check(stat_of(NULL).tier_loads[1] > 0);
	check(umadvise(base, MIB, UMMAP_ADV_TIER + 1) == 0);
	check(umunmap(base, 0) == 0);
}

/* Pins fill all tiers, but not the budget: other segments are loaded without a wait. */
static void pin_tiers(void)
{
	size_t size = 16 * MIB;
	int fd, other_fd;
	uint8_t *base, *other;
	double begin;

	set_tiers("fast=node:0:2M,slow=node:0:4M", "lru", "64M");
	base = map_tiers(size, NULL, &fd);
	other = map_tiers(size, "fast", &other_fd);
	check_fails(umpin(base, FAST + SLOW + SEG, READ_WRITE), ENOMEM);
	check_fails(umpin(other, FAST + SEG, PROT_READ), ENOMEM);
	check(stat_of(NULL).pinned_bytes == 0);
	check(umpin(other, FAST, PROT_READ) == 0);
	check_fails(umpin(base, SLOW + SEG, READ_WRITE), ENOMEM);
	check(umpin(base, SLOW, READ_WRITE) == 0);
	check_fails(umpin(base + SLOW, SEG, PROT_READ), ENOMEM);
	begin = now();
	store_all(base, size, 1);
	/* More time in a virtual machine. */
	check(now() - begin < child_seconds() / 10, "%.1f s", now() - begin);
	check(umunpin(other, FAST) == 0);
	check(umpin(base + SLOW, FAST, PROT_READ) == 0);
	check(umunmap(other, 0) == 0);
	check(umunmap(base, 1) == 0);
	check_file(fd, 0, size, 0, 1);
	/* The pins have ended with their mappings. */
	base = map_tiers(size, NULL, &fd);
	check(umpin(base, FAST + SLOW, PROT_READ) == 0);
	check(umunmap(base, 0) == 0);
}

/* Tiers have room for the segments that one instruction accesses. */
static void enlarge_small(void)
{
	int fd;
	uint8_t *base;
	uint64_t word;

	set_tiers("fast=node:0:4K", "lru", "16M");
	base = map_tiers(4 * MIB, NULL, &fd);
	for (size_t at = SEG; at < 4 * MIB; at += SEG) {
		memcpy(base + at - 4, &at, sizeof(at));
		memcpy(&word, base + at - 4, sizeof(word));
		check(word == at);
	}
	check(stat_of(NULL).tier_bytes[0] <= 4 * SEG);
	check(umunmap(base, 0) == 0);
}

/* Readahead takes a part of the tiers, which are much smaller than the budget. */
static void read_ahead(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	size_t size = 32 * MIB;
	int fd = filled_file(size, 1);
	struct umstat st;
	char uri[64];
	void *base;

	set_tiers("fast=node:0:4M", "lru", "128M");
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", fd);
	attr.seg_size = SEG;
	check(ummap_open(uri, size, 0, PROT_READ, &attr, &base) == 0);
	for (size_t at = 0; at < size; at += SEG) {
		check_bytes((uint8_t *)base + at, SEG, at, 1);
		usleep(300);
	}
	st = stat_of(NULL);
	check(st.readahead_loads > 0);
	check(st.read_bytes < size + size / 8, "%" PRIu64, st.read_bytes);
	check(umunmap(base, 0) == 0);
}

/* A system call pins more pages than the tier holds. Later loads return the tier to its size. */
static void return_excess(void)
{
	size_t size = 32 * SEG, len = 6 * SEG;
	struct iovec from = { calloc(1, len), len }, to;
	int fd;
	uint8_t *base;

	set_tiers("fast=node:0:256K", "lru", "16M");
	base = map_tiers(size, NULL, &fd);
	to = (struct iovec){ base, len };
	/* Engines without messages fail to serve such a call. */
	if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) == (ssize_t)len)
		check(stat_of(NULL).tier_bytes[0] > 4 * SEG);
	for (int i = 0; i < 4; i++)
		store_all(base, size, 1);
	check(stat_of(NULL).tier_bytes[0] <= 4 * SEG, "%" PRIu64, stat_of(NULL).tier_bytes[0]);
	free(from.iov_base);
	check(umunmap(base, 1) == 0);
	check_file(fd, 0, size, 0, 1);
}

struct killed {
	int fd, ends[2];
};

static void read_until_killed(void *arg)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	const struct killed *k = arg;
	char uri[64];
	void *base;

	set_tiers("fast=node:0:1M,slow=node:0", "lru", "16M");
	snprintf(uri, sizeof(uri), "posix:/proc/self/fd/%d", k->fd);
	attr.seg_size = SEG;
	check(ummap_open(uri, 4 * MIB, 0, READ_WRITE, &attr, &base) == 0);
	store_all(base, 4 * MIB, 1);
	check(umsync(base, 0) == 0);
	check(write(k->ends[1], "", 1) == 1);
	for (;;)
		for (size_t at = 0; at < 4 * MIB; at += SEG)
			check_bytes((uint8_t *)base + at, 64, at, 1);
}

/* Synced data survives a kill while segments move. */
static void kill_while_moving(void)
{
	for (int round = 0; round < 5; round++) {
		struct killed k = { .fd = temp_file(4 * MIB) };
		pid_t child;
		char byte;

		check(pipe(k.ends) == 0);
		child = start_child(read_until_killed, &k);
		check(read(k.ends[0], &byte, 1) == 1);
		usleep(20000);
		check(kill(child, SIGKILL) == 0);
		check_killed(wait_child(child), SIGKILL);
		check_file(k.fd, 0, 4 * MIB, 0, 1);
		close(k.fd);
		close(k.ends[0]);
		close(k.ends[1]);
	}
}

/* ---- Threads that count in a mapping whose segments move ---- */

#define COUNTERS 4096 /* a counter in each 256 bytes */

struct counting {
	uint8_t *base;
	atomic_bool stop;
	_Atomic uint64_t counted;
};

static void *count_often(void *arg)
{
	struct counting *c = arg;
	uint64_t random = (uintptr_t)&random;

	while (!c->stop) {
		uint64_t at = next_random(&random) % COUNTERS * 256;

		__atomic_fetch_add((uint64_t *)(c->base + at), 1, __ATOMIC_RELAXED);
		c->counted++;
	}
	return NULL;
}

/* No addition is lost while the segments move from tier to tier. */
static void count_while_moving(void)
{
	double seconds = stress_seconds(3, 20);
	struct counting c = { .counted = 0 };
	pthread_t thread[3];
	uint64_t sum = 0;
	time_t end;
	int fd;

	set_tiers("fast=node:0:2M,slow=node:0", "lru", "16M");
	c.base = map_tiers(COUNTERS * 256, NULL, &fd);
	for (int i = 0; i < 3; i++)
		check(pthread_create(&thread[i], NULL, count_often, &c) == 0);
	end = time(NULL) + (time_t)seconds;
	for (int i = 0; time(NULL) < end; i++)
		check(umadvise(c.base, COUNTERS * 256, UMMAP_ADV_TIER + i % 2) == 0);
	c.stop = true;
	for (int i = 0; i < 3; i++)
		check(pthread_join(thread[i], NULL) == 0);
	check(stat_of(NULL).tier_promotions[0] > 0);
	for (size_t i = 0; i < COUNTERS; i++)
		sum += *(uint64_t *)(c.base + i * 256);
	check(sum == c.counted, "%" PRIu64 " of %" PRIu64, sum, c.counted);
	check(umunmap(c.base, 0) == 0);
}

struct stress_run {
	const char *program, *policy;
};

static void run_stress(void *arg)
{
	const struct stress_run *r = arg;

	execl(r->program, r->program, "7", r->policy, "65536", NULL);
	check(false, "%s", r->program);
}

static void stress(void)
{
	static const char *const policies[] = { "fifo", "plru" };
	char program[4200], seconds[16];

	set_tiers("fast=node:0:256K,mid=node:0:256K,slow=node:0:1M", "lru", "80%");
	snprintf(program, sizeof(program), "%s/prog_stress", own_folder());
	/* The script of mutants builds only this program. */
	if (access(program, X_OK) < 0)
		return;
	/* prog_stress divides its time by the number of its runs. */
	snprintf(seconds, sizeof(seconds), "%.1f", stress_seconds(2, 10) * 28);
	setenv("UMMAP_STRESS_SECONDS", seconds, 1);
	for (int i = 0; i < 2; i++) {
		struct stress_run r = { program, policies[i] };

		check_exits(run_child(run_stress, &r), 0);
	}
}

/* ---- Persistent memory ---- */

/* Whether the pages at an address are those of a file in the folder of the tier. */
static bool is_in_file(const void *addr)
{
	char line[8192], *path;
	FILE *maps = fopen("/proc/self/maps", "r");
	uintptr_t first, end;
	bool is = false;

	check(maps);
	while (fgets(line, sizeof(line), maps)) {
		check(sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &first, &end) == 2);
		path = strchr(line, '/');
		is |= (uintptr_t)addr >= first && (uintptr_t)addr < end && path &&
		      strncmp(path, dax_folder, strlen(dax_folder)) == 0;
	}
	fclose(maps);
	return is;
}

static bool kernel_frees_parts(void)
{
	struct utsname kernel;
	unsigned version, patchlevel;

	check(uname(&kernel) == 0);
	check(sscanf(kernel.release, "%u.%u", &version, &patchlevel) == 2);
	return version > 6 || (version == 6 && patchlevel >= 12);
}

static void refuse_dax(void)
{
	refuse_with_words(TIERS, "this kernel may stop threads");
}

/* The budget is memory of the machine, and does not count the tier. */
static void exceed_memory(void)
{
	size_t size = 16 * MIB;
	int fd;
	uint8_t *base;

	set_tiers("fast=node:0,slow=node:0:32M", "static", "4M");
	base = map_tiers(size, NULL, &fd);
	store_all(base, size, 1);
	check(stat_of(NULL).write_bytes == 0);
	check(stat_of(NULL).held_bytes <= 4 * MIB, "%" PRIu64, stat_of(NULL).held_bytes);
	check(stat_of(NULL).tier_bytes[1] >= size - 4 * MIB);
	check(!is_in_file(base) && is_in_file(base + size - SEG));
	for (size_t at = 0; at < size; at += SEG)
		check_bytes(base + at, SEG, at, 1);
	check(umunmap(base, 1) == 0);
	check_file(fd, 0, size, 0, 1);
}

/* The tier is larger than its file system, and the only one. */
static void fill_file_system(void)
{
	struct statvfs fs;
	size_t size, free_bytes;
	int fd;
	uint8_t *base;

	check(statvfs(dax_folder, &fs) == 0);
	free_bytes = fs.f_bfree * fs.f_frsize;
	size = (free_bytes / SEG + 64) * SEG;
	set_tiers("slow=node:0:1T", "lru", "8M");
	base = map_tiers(size, NULL, &fd);
	store_all(base, size, 1);
	check(stat_of(NULL).write_bytes > 0);
	check(stat_of(NULL).tier_bytes[0] > free_bytes / 2);
	check(statvfs(dax_folder, &fs) == 0);
	for (size_t at = 0; at < size; at += SEG)
		check_bytes(base + at, SEG, at, 1);
	check(umunmap(base, 1) == 0);
	check_file(fd, 0, size, 0, 1);
	/* The file system gets its space back. */
	for (int i = 0; i < 6000 && fs.f_bfree * fs.f_frsize + 64 * SEG < free_bytes; i++) {
		usleep(10000);
		check(statvfs(dax_folder, &fs) == 0);
	}
	check(fs.f_bfree * fs.f_frsize + 64 * SEG >= free_bytes);
}

static void hold_share(void *arg)
{
	const int *ends = arg;
	int fd;
	char byte;
	uint8_t *base = map_tiers(MIB, NULL, &fd);

	store_all(base, MIB, 3);
	check(read(ends[0], &byte, 1) == 1);
	check(umunmap(base, 0) == 0);
}

/* A process whose budget falls moves segments to the file, and does not write them. */
static void shrink_to_file(void)
{
	size_t size = 12 * MIB;
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	int ends[2];
	void *base;
	pid_t child;

	set_tiers("fast=node:0,slow=node:0:32M", "lru", "16M");
	check(pipe(ends) == 0);
	attr.seg_size = SEG;
	check(ummap_open("mem:12M", size, 0, READ_WRITE, &attr, &base) == 0);
	store_all(base, size, 1);
	child = start_child(hold_share, ends);
	for (int i = 0; i < 6000 && stat_of(NULL).held_bytes > 8 * MIB; i++)
		usleep(10000);
	check(stat_of(NULL).held_bytes <= 8 * MIB, "%" PRIu64, stat_of(NULL).held_bytes);
	check(stat_of(NULL).write_bytes == 0, "%" PRIu64, stat_of(NULL).write_bytes);
	check(write(ends[1], "", 1) == 1);
	check_exits(wait_child(child), 0);
	for (size_t at = 0; at < size; at += SEG)
		check_bytes((uint8_t *)base + at, SEG, at, 1);
	check(umunmap(base, 0) == 0);
}

static void refuse_shared_and_uffd(void)
{
	struct ummap_attr attr = UMMAP_ATTR_INIT;
	void *base;

	set_tiers("fast=node:0,slow=node:0:32M", "lru", "16M");
	attr.flags = UMMAP_SHARED;
	attr.tiers = "slow";
	check_fails(ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &base), EINVAL);
	attr.tiers = NULL;
	check(ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &base) == 0);
	store_all(base, MIB, 1);
	check(!is_in_file(base));
	check(umunmap(base, 0) == 0);
	if (!has_uffd())
		return;
	attr.flags = 0;
	attr.engine = UMMAP_ENGINE_UFFD;
	attr.tiers = "slow";
	check_fails(ummap_open("mem:1M", MIB, 0, READ_WRITE, &attr, &base), EINVAL);
}

enum round { DEFAULT_ENGINE, UFFD, DAX };

int main(int argc, char **argv)
{
	static const struct test_part parts[] = {
		{ "values", refuse_values }, { "names", refuse_names },
		{ "node", refuse_node_copies }, { "cache", cache_on_node },
		{ "none", refuse_without_tiers }, { "demote", demote_dirty },
		{ "overflow", overflow }, { "promote", promote_used }, { "policy", load_policy },
		{ "bound", bound_promotions },
		{ "static", stay_static },
		{ "ranges", keep_ranges }, { "fork", fork_child },
		{ "read", read_in_tiers }, { "pin", pin_tiers }, { "small", enlarge_small },
		{ "ahead", read_ahead }, { "excess", return_excess }, { "kill", kill_while_moving },
		{ "count", count_while_moving }, { "stress", stress },
		{ "memory", exceed_memory }, { "full", fill_file_system },
		{ "shrink", shrink_to_file }, { "shared", refuse_shared_and_uffd },
	};
	static const struct test_part old_kernel = { "old kernel", refuse_dax };
	size_t n = sizeof(parts) / sizeof(*parts);

	set_group();
	for (enum round round = DEFAULT_ENGINE; round <= DAX; round++) {
		unsetenv("UMMAP_ENGINE");
		if (round == UFFD)
			setenv("UMMAP_ENGINE", "uffd", 1);
		dax_folder = round == DAX ? getenv("UMMAP_TEST_DAX") : NULL;
		if ((round == UFFD && !has_uffd()) || (round == DAX && !dax_folder))
			continue;
		printf("%s\n", round == UFFD ? "uffd" : round == DAX ? "DAX" : "default engine");
		fflush(stdout);
		if (dax_folder && !kernel_frees_parts()) {
			run_test_part(&old_kernel);
			continue;
		}
		for (size_t i = 0; i < (dax_folder ? n : n - DAX_PARTS); i++) {
			if (argc == 1 || strcmp(argv[1], parts[i].name) == 0)
				run_test_part(&parts[i]);
		}
	}
	return 0;
}
