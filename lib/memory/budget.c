/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much memory there is for frames, and how much of it this process may hold (mode.c computes that from the former).
 * Reads RAM and cgroup limits once, at the start; takes no lock. A process may be in a v1 memory controller and in a v2
 * hierarchy: the limits of all levels count.
 */
#include "memory/budget.h"

#include "base/sys.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t limit;
static _Atomic size_t budget, peak, pagecache;

/* A limit file holds a number, or "max". */
static size_t read_limit(const char *dir, const char *name)
{
	char path[PATH_MAX], text[64];
	size_t bytes = SIZE_MAX;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return bytes;
	f = fopen(path, "re");
	if (!f)
		return bytes;
	if (fgets(text, sizeof(text), f) && strncmp(text, "max", 3) != 0)
		bytes = strtoull(text, NULL, 10);
	fclose(f);
	return bytes;
}

/* The smallest limit from the process's own group up to the mount point. */
static size_t walk_up(const char *mount, const char *group, const char *name)
{
	char dir[PATH_MAX];
	size_t smallest = SIZE_MAX, root = strlen(mount);

	if (snprintf(dir, sizeof(dir), "%s%s", mount, group) >= (int)sizeof(dir))
		return smallest;
	for (;;) {
		char *slash;

		smallest = min_size(smallest, read_limit(dir, name));
		slash = strrchr(dir, '/');
		if (!slash || (size_t)(slash - dir) < root)
			return smallest;
		*slash = '\0';
	}
}

static size_t cgroup_limit(void)
{
	char line[PATH_MAX];
	size_t smallest = SIZE_MAX;
	FILE *f = fopen("/proc/self/cgroup", "re");

	if (!f)
		return smallest;
	while (fgets(line, sizeof(line), f)) {
		char *controllers = strchr(line, ':'), *group;

		line[strcspn(line, "\n")] = '\0';
		group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		if (controllers[1] == '\0') {
			smallest = min_size(smallest, walk_up("/sys/fs/cgroup", group, "memory.max"));
			smallest = min_size(smallest, walk_up("/sys/fs/cgroup/unified", group, "memory.max"));
		} else if (strstr(controllers + 1, "memory")) {
			smallest = min_size(smallest, walk_up("/sys/fs/cgroup/memory", group,
							      "memory.limit_in_bytes"));
		}
	}
	fclose(f);
	return smallest;
}

size_t budget_ram(void)
{
	return (size_t)sysconf(_SC_PHYS_PAGES) * sys_page();
}

size_t budget_memory(void)
{
	return min_size(budget_ram(), cgroup_limit());
}

void budget_start(size_t bytes, double share)
{
	limit = bytes ? bytes : (size_t)((double)budget_memory() * share);
}

size_t budget_limit(void)
{
	return limit;
}

size_t budget_bytes(void)
{
	return atomic_load_explicit(&budget, memory_order_relaxed);
}

size_t budget_peak(void)
{
	return atomic_load_explicit(&peak, memory_order_relaxed);
}

void budget_set(size_t bytes)
{
	atomic_store_explicit(&budget, bytes, memory_order_relaxed);
	if (bytes > budget_peak())
		atomic_store_explicit(&peak, bytes, memory_order_relaxed);
}

size_t budget_pagecache(void)
{
	return atomic_load_explicit(&pagecache, memory_order_relaxed);
}

size_t budget_add_pagecache(size_t bytes)
{
	return atomic_fetch_add(&pagecache, bytes) + bytes;
}

void budget_subtract_pagecache(size_t bytes)
{
	atomic_fetch_sub(&pagecache, bytes);
}

size_t budget_frames(void)
{
	size_t all = budget_bytes(), taken = budget_pagecache();

	return all > taken ? all - taken : 0;
}
